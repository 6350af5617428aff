//! The names of tickets that other nodes have named.

use std::collections::HashMap;

use dunlin_matchmaking::TicketId;

use super::{TicketName, reservation_number::reservation_number};

/// The tickets of a queue that were handed over to it. They keep their names.
#[derive(Debug, Default)]
pub(super) struct TicketNames {
    by_name: HashMap<TicketName, TicketId>,
    by_id: HashMap<TicketId, TicketName>,
    /// By the numbers of their reservations.
    by_number: HashMap<u64, TicketId>,
}

impl TicketNames {
    pub(super) fn insert(&mut self, name: TicketName, id: TicketId) {
        self.by_name.insert(name, id);
        self.by_id.insert(id, name);
        self.by_number.insert(reservation_number(name), id);
    }

    pub(super) fn id_of(&self, name: TicketName) -> Option<TicketId> {
        self.by_name.get(&name).copied()
    }

    /// Which reservations in a room are of this queue's tickets, with the number of the ticket; `boot` is that of the node.
    pub(super) fn own_reservations(&self, boot: u32, reservations: &[(u64, u32)]) -> Vec<(u64, u32)> {
        let own = |number: u64| (number >> 32 == u64::from(boot)).then_some(number & u64::from(u32::MAX));
        let ticket = |number| self.by_number.get(&number).map_or_else(|| own(number), |id| Some(id.0));
        reservations.iter().filter_map(|(number, users)| Some((ticket(*number)?, *users))).collect()
    }

    pub(super) fn name_of(&self, id: TicketId) -> Option<TicketName> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn remove(&mut self, id: TicketId) {
        if let Some(name) = self.by_id.remove(&id) {
            self.by_name.remove(&name);
            self.by_number.remove(&reservation_number(name));
        }
    }

    /// Removes the names of tickets that are no longer known.
    pub(super) fn retain(&mut self, is_known: impl Fn(TicketId) -> bool) {
        self.by_name.retain(|_, id| is_known(*id));
        self.by_id.retain(|id, _| is_known(*id));
        self.by_number.retain(|_, id| is_known(*id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_is_of_the_ticket_with_its_name() {
        let name = |boot, id| TicketName { boot, queue: 0, id: TicketId(id) };
        let mut names = TicketNames::default();
        // One of another node, and one of this node that has come back.
        names.insert(name(9, 5), TicketId(2));
        names.insert(name(7, 1), TicketId(4));
        let reservations = [(name(9, 5), 1), (name(7, 3), 2), (name(8, 2), 3), (name(7, 1), 4)]
            .map(|(name, users)| (reservation_number(name), users));
        assert_eq!(names.own_reservations(7, &reservations), [(2, 1), (3, 2), (4, 4)]);
        names.remove(TicketId(4));
        names.retain(|_| false);
        assert_eq!(names.own_reservations(7, &reservations), [(3, 2), (1, 4)]);
    }
}
