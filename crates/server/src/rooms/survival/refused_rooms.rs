//! The rooms that this node could not go on with a moment ago, while other nodes of the cluster may be able to. Clients try
//! again and again meanwhile, and each try would claim the room's log and read all of it.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// Time until the node tries again. Other nodes look for rooms that were left to them within some ten seconds.
pub(super) const REFUSED_FOR: Duration = Duration::from_secs(30);
/// Maximum number of remembered rooms: as many as NATS lists. The logs of others are read with each try.
const ROOMS_MAX: usize = 1_024;

/// The remembered rooms.
#[derive(Debug, Default)]
pub(super) struct RefusedRooms {
    until: HashMap<Arc<str>, Instant>,
}

impl RefusedRooms {
    /// The node cannot go on with a room.
    pub(super) fn insert(&mut self, channel: &Arc<str>, now: Instant) {
        if self.until.len() >= ROOMS_MAX {
            self.until.retain(|_, until| *until > now);
        }
        if self.until.len() < ROOMS_MAX {
            self.until.insert(Arc::clone(channel), now + REFUSED_FOR);
        }
    }

    /// What is stored of a room is another state from now on.
    pub(super) fn remove(&mut self, channel: &str) {
        self.until.remove(channel);
    }

    /// Other nodes have held these rooms since.
    pub(super) fn forget(&mut self, channels: &[Box<str>]) {
        for channel in channels {
            self.remove(channel);
        }
    }

    /// Whether the node need not try to go on with a room.
    pub(super) fn contains(&self, channel: &str, now: Instant) -> bool {
        self.until.get(channel).is_some_and(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_room_is_tried_again_after_a_while() {
        let (mut rooms, channel, now) = (RefusedRooms::default(), Arc::from("a"), Instant::now());
        assert!(!rooms.contains("a", now));
        rooms.insert(&channel, now);
        assert!(rooms.contains("a", now + REFUSED_FOR / 2));
        assert!(!rooms.contains("a", now + REFUSED_FOR));
        rooms.remove("a");
        assert!(!rooms.contains("a", now), "it was given up");
    }

    #[test]
    fn rooms_that_others_have_held_are_tried_again_and_the_rest_is_not() {
        let (mut rooms, now) = (RefusedRooms::default(), Instant::now());
        for channel in ["a", "b", "c"] {
            rooms.insert(&channel.into(), now);
        }
        rooms.forget(&["c".into(), "a".into(), "d".into()]);
        assert_eq!(["a", "b", "c", "d"].map(|channel| rooms.contains(channel, now)), [false, true, false, false]);
    }

    #[test]
    fn the_number_of_remembered_rooms_is_limited() {
        let (mut rooms, now) = (RefusedRooms::default(), Instant::now());
        let channels: Vec<Arc<str>> = (0..=ROOMS_MAX).map(|number| number.to_string().into()).collect();
        for channel in &channels {
            rooms.insert(channel, now);
        }
        assert_eq!(channels.iter().filter(|channel| rooms.contains(channel, now)).count(), ROOMS_MAX);
        // Those before are over.
        let later = now + REFUSED_FOR;
        rooms.insert(&channels[ROOMS_MAX], later);
        assert!(rooms.contains(&channels[ROOMS_MAX], later));
    }
}
