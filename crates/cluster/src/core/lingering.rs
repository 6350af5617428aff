//! Channels that are followed for a while after their last subscriber has left.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// A user who subscribes to one channel after the other keeps at most this part of the lingering channels.
const SHARE_OF_A_USER: usize = 8;

/// Lingering channels by the time at which they end. The bound is on their number: a client that subscribes to one channel
/// after the other would otherwise make the node follow all of them for the whole time. Nobody may use all of it up, or the
/// channels of others would end with their last subscriber, and open again for the next.
#[derive(Debug, Default)]
pub(super) struct Lingering {
    /// With the only user of each, 0 for several.
    by_due: BTreeMap<(u64, Arc<str>), u64>,
    by_user: HashMap<u64, BTreeSet<(u64, Arc<str>)>>,
}

impl Lingering {
    pub(super) fn len(&self) -> usize {
        self.by_due.len()
    }

    pub(super) fn insert(&mut self, due_us: u64, name: Arc<str>, only_user: u64) {
        if only_user != 0 {
            self.by_user.entry(only_user).or_default().insert((due_us, Arc::clone(&name)));
        }
        self.by_due.insert((due_us, name), only_user);
    }

    /// Removes a channel, if it lingers.
    pub(super) fn remove(&mut self, due_us: u64, name: &Arc<str>) -> bool {
        let key = (due_us, Arc::clone(name));
        let Some(only_user) = self.by_due.remove(&key) else { return false };
        if let Some(of_user) = self.by_user.get_mut(&only_user) {
            of_user.remove(&key);
            if of_user.is_empty() {
                self.by_user.remove(&only_user);
            }
        }
        true
    }

    /// The channel that has lingered for longest: of `user`, if the user has more than a share of `lingering_max`, or of
    /// all, if there are more than that.
    pub(super) fn excess(&self, lingering_max: usize, user: u64) -> Option<Arc<str>> {
        let share = lingering_max.div_ceil(SHARE_OF_A_USER);
        let of_user = self.by_user.get(&user).filter(|of_user| of_user.len() > share).and_then(BTreeSet::first);
        let of_all = || self.by_due.keys().next().filter(|_| self.by_due.len() > lingering_max);
        of_user.or_else(of_all).map(|(_, name)| Arc::clone(name))
    }
}

#[cfg(test)]
mod tests {
    use dunlin_engine::{Event, event::Ticket};

    use crate::core::{
        CoreEffect, CoreEvent, CoreLimits,
        rig::{Rig, SHARD},
    };

    #[test]
    fn the_channel_that_has_lingered_for_longest_ends_beyond_the_limit() {
        let mut rig = Rig::new(CoreLimits { lingering_max: 2, ..CoreLimits::default() });
        let follow = |rig: &mut Rig, channel: &str| {
            rig.handle(CoreEvent::Follow { shard: SHARD, channel: channel.into(), namespace: 1 });
        };
        let unfollow =
            |rig: &mut Rig, channel: &str| rig.handle(CoreEvent::Unfollow { channel: channel.into(), only_user: 0 });
        for (after_us, channel) in (1..).zip(["chat:1", "chat:2", "chat:3"]) {
            rig.wait(after_us);
            follow(&mut rig, channel);
        }
        for (after_us, channel) in (11..).zip(["chat:1", "chat:2"]) {
            rig.wait(after_us);
            unfollow(&mut rig, channel);
        }
        assert_eq!((rig.core.counters().followed, rig.core.counters().lingering), (3, 2), "at the limit");
        rig.wait(20);
        unfollow(&mut rig, "chat:3");
        assert_eq!((rig.core.counters().followed, rig.core.counters().lingering), (2, 2), "past it");
        assert!(!rig.core.channels.contains("chat:1"), "it has lingered for longest");
        // One that is followed again lingers no longer, and leaves no timer behind.
        follow(&mut rig, "chat:2");
        assert_eq!((rig.core.counters().followed, rig.core.counters().lingering), (2, 1));
        unfollow(&mut rig, "chat:2");
        rig.wait(CoreLimits::default().linger_ms * 1_000 + 1_000);
        assert_eq!((rig.core.counters().followed, rig.core.counters().lingering), (0, 0), "the time is over");
    }

    #[test]
    fn a_channel_whose_message_is_in_flight_lingers_until_it_is_answered() {
        let mut rig = Rig::new(CoreLimits { linger_ms: 10, ..CoreLimits::default() });
        let (channel, ticket) = ("chat:1".into(), Some(Ticket(1)));
        rig.handle(CoreEvent::Trim { shard: SHARD, channel, namespace: 1, ticket });
        let answers = |rig: &Rig| {
            let is_answer =
                |effect: &&CoreEffect| matches!(effect, CoreEffect::ToShard { event: Event::TrimCommitted { .. }, .. });
            rig.effects.iter().filter(is_answer).count()
        };
        let give_up_us = CoreLimits::default().publish_timeout_ms * 1_000;
        for after_us in [10_000, 500_000, give_up_us - 1] {
            rig.wait(after_us);
            assert_eq!((answers(&rig), rig.core.counters().followed), (0, 1), "{after_us}");
        }
        rig.wait(give_up_us);
        assert_eq!(answers(&rig), 1);
        rig.wait(give_up_us + 10_000);
        assert_eq!((answers(&rig), rig.core.counters().followed), (1, 0));
    }

    #[test]
    fn a_user_keeps_a_share_of_the_lingering_channels() {
        let mut rig = Rig::new(CoreLimits { lingering_max: 16, ..CoreLimits::default() });
        let linger = |rig: &mut Rig, number: u64, only_user| {
            let channel: std::sync::Arc<str> = format!("chat:{number}").into();
            rig.wait(number);
            rig.handle(CoreEvent::Follow { shard: SHARD, channel: channel.clone(), namespace: 1 });
            rig.handle(CoreEvent::Unfollow { channel, only_user });
        };
        linger(&mut rig, 1, 7);
        linger(&mut rig, 2, 0);
        linger(&mut rig, 3, 9);
        linger(&mut rig, 4, 9);
        assert_eq!(rig.core.counters().lingering, 4, "at the share of two");
        for number in 5..100 {
            linger(&mut rig, number, 9);
        }
        assert_eq!(rig.core.counters().lingering, 4, "past it");
        let kept = |number: u64| rig.core.channels.contains(&format!("chat:{number}"));
        assert_eq!([1, 2, 3, 97, 98, 99].map(kept), [true, true, false, false, true, true]);
        // Channels that several have used have no share.
        for number in 100..200 {
            linger(&mut rig, number, 0);
        }
        assert_eq!(rig.core.counters().lingering, 16);
        assert_eq!(rig.core.channels.lingering.by_user.len(), 0, "the entries of users go with their channels");
    }
}
