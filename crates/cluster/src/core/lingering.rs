//! Channels that are followed for a while after their last subscriber has left.

use std::{collections::BTreeSet, sync::Arc};

use dunlin_engine::log::LogError;

use super::{Core, Timer, Turn};

/// Lingering channels by the time at which they end. The bound is on their number: a client that subscribes to one channel
/// after the other would otherwise make the node follow all of them for the whole time.
#[derive(Debug, Default)]
pub(super) struct Lingering {
    by_due: BTreeSet<(u64, Arc<str>)>,
}

impl Lingering {
    pub(super) fn len(&self) -> usize {
        self.by_due.len()
    }

    pub(super) fn insert(&mut self, due_us: u64, name: Arc<str>) {
        self.by_due.insert((due_us, name));
    }

    /// Removes a channel, if it lingers.
    pub(super) fn remove(&mut self, due_us: u64, name: &Arc<str>) -> bool {
        self.by_due.remove(&(due_us, Arc::clone(name)))
    }

    /// The channel that has lingered for longest, if there are more than `lingering_max`.
    pub(super) fn excess(&self, lingering_max: usize) -> Option<Arc<str>> {
        let (_, name) = self.by_due.first().filter(|_| self.by_due.len() > lingering_max)?;
        Some(Arc::clone(name))
    }
}

impl Core {
    /// A channel with a stream lingers no longer: it is followed again, or detached.
    pub(super) fn end_lingering(&mut self, due_us: u64, name: &Arc<str>) {
        if self.lingering.remove(due_us, name) {
            self.timers.remove(&(due_us, Timer::Linger(Arc::clone(name))));
        }
    }

    /// The same for a channel without a stream.
    pub(super) fn end_broadcast_lingering(&mut self, due_us: u64, name: &Arc<str>) {
        if self.broadcasts.lingering.remove(due_us, name) {
            self.timers.remove(&(due_us, Timer::BroadcastLinger(Arc::clone(name))));
        }
    }

    /// Ends the channels that have lingered for longest beyond the limit.
    pub(super) fn bound_lingering(&mut self, turn: &mut Turn<'_>) {
        let lingering_max = self.options.limits.lingering_max;
        while let Some(name) = self.lingering.excess(lingering_max) {
            self.detach(turn, &name, LogError::Unavailable);
        }
        while let Some(name) = self.broadcasts.lingering.excess(lingering_max) {
            self.end_broadcasts(turn, &name);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::core::{
        CoreEvent, CoreLimits,
        rig::{Rig, SHARD},
    };

    #[test]
    fn the_channel_that_has_lingered_for_longest_ends_beyond_the_limit() {
        let mut rig = Rig::new(CoreLimits { lingering_max: 2, ..CoreLimits::default() });
        let follow = |rig: &mut Rig, channel: &str| {
            rig.handle(CoreEvent::Follow { shard: SHARD, channel: channel.into(), namespace: 1 });
        };
        let unfollow = |rig: &mut Rig, channel: &str| rig.handle(CoreEvent::Unfollow { channel: channel.into() });
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
        assert!(!rig.core.channels.contains_key("chat:1"), "it has lingered for longest");
        // One that is followed again lingers no longer, and leaves no timer behind.
        follow(&mut rig, "chat:2");
        assert_eq!((rig.core.counters().followed, rig.core.counters().lingering), (2, 1));
        unfollow(&mut rig, "chat:2");
        rig.wait(CoreLimits::default().linger_ms * 1_000 + 1_000);
        assert_eq!((rig.core.counters().followed, rig.core.counters().lingering), (0, 0), "the time is over");
    }
}
