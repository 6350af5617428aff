//! The numbers of reservations. A room has reservations of several nodes after the queues have moved.

use std::collections::HashSet;

use dunlin_config::MatchSettings;

use super::{TicketName, cluster_rooms::ClusterRooms};

/// The number of a ticket's reservation in its room. It is unique among the tickets of a namespace, and not among those of several,
/// because each queue of a node counts its tickets.
pub(super) fn reservation_number(name: TicketName) -> u64 {
    u64::from(name.boot) << 32 | name.id.0 & u64::from(u32::MAX)
}

/// The reservations in all rooms, by the index of their queue.
pub(super) struct Reserved(Vec<HashSet<u64>>);

impl Reserved {
    pub(super) fn of(settings: &[MatchSettings], rooms: &ClusterRooms) -> Self {
        let numbers = |settings: &MatchSettings| {
            let rooms = rooms.of_namespace(&settings.namespace);
            rooms.flat_map(|known| known.room.reservations.iter().map(|(number, _)| *number)).collect()
        };
        Self(settings.iter().map(numbers).collect())
    }

    /// Whether a ticket has places in a room.
    pub(super) fn has(&self, name: TicketName) -> bool {
        let of_queue = self.0.get(usize::from(name.queue));
        of_queue.is_some_and(|numbers| numbers.contains(&reservation_number(name)))
    }
}

#[cfg(test)]
mod tests {
    use dunlin_matchmaking::TicketId;

    use super::*;
    use crate::matchmaking::RoomSummary;

    #[test]
    fn tickets_of_two_namespaces_have_the_same_numbers() {
        let name = |queue| TicketName { boot: 7, queue, id: TicketId(1) };
        let room = RoomSummary {
            channel: "duel:1".into(),
            namespace: "duel".into(),
            players: 0,
            players_joined: 0,
            players_max: 8,
            reservations: [(reservation_number(name(1)), 1)].into(),
            is_made: true,
            is_public: true,
            metadata: "".into(),
            params: "".into(),
        };
        let mut rooms = ClusterRooms::new("".into());
        rooms.take_own((vec![room], true));
        let settings = ["arena", "duel"]
            .map(|namespace| MatchSettings { namespace: namespace.into(), ..MatchSettings::default() });
        let reserved = Reserved::of(&settings, &rooms);
        assert_eq!([0, 1, 2].map(|queue| reserved.has(name(queue))), [false, true, false]);
    }
}
