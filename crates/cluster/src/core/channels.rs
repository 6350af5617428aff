//! The followed channels of a node, and what bounds all of them together: the bytes of their windows, and the number of
//! those that linger.

use std::{collections::BTreeMap, sync::Arc};

use dunlin_engine::ShardIndex;

use crate::names::PartitionId;

use super::{
    Context, Timer,
    channel::{ChannelAction, ChannelContext, ChannelEvent, FollowedChannel, Following},
    known_stream::KnownStream,
    lingering::Lingering,
};

/// The channels of all partitions by name. The node has them in this order, so that it does the same in each run.
#[derive(Debug, Default)]
pub(super) struct Channels {
    by_name: BTreeMap<Arc<str>, FollowedChannel>,
    window_memory: WindowMemory,
    pub(super) lingering: Lingering,
}

/// The bytes of all windows of the node.
#[derive(Debug, Default)]
pub(super) struct WindowMemory {
    bytes: usize,
    /// The channel behind which the next search for a large window begins.
    searched_through: Option<Arc<str>>,
}

impl WindowMemory {
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// A channel has gone with its window.
    pub(super) fn forget(&mut self, counted_bytes: usize) {
        self.bytes -= counted_bytes;
    }
}

impl Channels {
    pub(super) fn get(&self, name: &str) -> Option<&FollowedChannel> {
        self.by_name.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut FollowedChannel> {
        self.by_name.get_mut(name)
    }

    /// The channel's name, if it is followed, without another copy of it.
    pub(super) fn name(&self, name: &str) -> Option<Arc<str>> {
        self.by_name.get_key_value(name).map(|(name, _)| Arc::clone(name))
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &FollowedChannel)> {
        self.by_name.iter()
    }

    pub(super) const fn window_bytes(&self) -> usize {
        self.window_memory.bytes()
    }

    /// Gives an event to a channel. Nothing is to be done if the channel was detached in the meantime.
    pub(super) fn on(
        &mut self,
        context: &Context,
        stream: &KnownStream,
        name: &str,
        event: ChannelEvent<'_>,
    ) -> ChannelAction {
        let Some(channel) = self.by_name.get_mut(name) else { return ChannelAction::Nothing };
        channel.on(event, &ChannelContext { now: context.now, stream, limits: &context.options.limits })
    }

    pub(super) fn insert(&mut self, name: Arc<str>, channel: FollowedChannel) {
        let before = self.by_name.insert(name, channel);
        debug_assert!(before.is_none(), "a channel is followed once");
    }

    /// Removes a channel with its window.
    pub(super) fn remove(&mut self, context: &mut Context, name: &Arc<str>) -> Option<FollowedChannel> {
        let channel = self.by_name.remove(name)?;
        self.window_memory.forget(channel.window.counted_bytes);
        self.end_lingering(context, name, channel.following);
        Some(channel)
    }

    /// The engine follows a channel again. Returns whether the channel is there.
    pub(super) fn follow_again(&mut self, context: &mut Context, shard: ShardIndex, name: &Arc<str>) -> bool {
        let Some(channel) = self.by_name.get_mut(name) else { return false };
        channel.shard = shard;
        channel.opens = true;
        self.set_following(context, name, Following::Followed);
        true
    }

    /// The engine does not follow a channel, or no longer. Returns whether the channel is there.
    pub(super) fn linger(&mut self, context: &mut Context, name: &Arc<str>, only_user: u64) -> bool {
        let until_us = context.now.after_ms(context.options.limits.linger_ms);
        if !self.contains(name) {
            return false;
        }
        self.set_following(context, name, Following::Lingering { until_us });
        self.lingering.insert(until_us, Arc::clone(name), only_user);
        context.set_timer(until_us, Timer::Linger(Arc::clone(name)));
        true
    }

    /// Whether the gap of a channel is open for too long. If not, a timer is set for when it may be.
    pub(super) fn is_gap_overdue(&mut self, context: &mut Context, name: &Arc<str>) -> bool {
        let (now_us, timeout_us) = (context.now.mono_us, context.options.limits.gap_timeout_ms * 1_000);
        let is_up = context.links.live && context.links.read;
        // The gap of this timer may have been closed.
        let Some(gap) = self.by_name.get_mut(name).and_then(FollowedChannel::gap_mut) else { return false };
        if is_up && gap.since_us + timeout_us <= now_us {
            return true;
        }
        // Without connections, nothing can be read. The timeout starts when they are back.
        gap.since_us = if is_up { gap.since_us } else { now_us };
        let due_us = (gap.since_us + timeout_us).max(now_us + 1_000);
        context.set_timer(due_us, Timer::Gap(Arc::clone(name)));
        false
    }

    /// The names of the channels of a partition for which the condition holds.
    pub(super) fn of_partition(&self, id: PartitionId, condition: impl Fn(&FollowedChannel) -> bool) -> Vec<Arc<str>> {
        let of_partition = self.by_name.iter().filter(|(_, channel)| channel.partition == id && condition(channel));
        of_partition.map(|(name, _)| Arc::clone(name)).collect()
    }

    fn set_following(&mut self, context: &mut Context, name: &Arc<str>, following: Following) {
        if let Some(channel) = self.by_name.get_mut(name) {
            let before = std::mem::replace(&mut channel.following, following);
            self.end_lingering(context, name, before);
        }
    }

    fn end_lingering(&mut self, context: &mut Context, name: &Arc<str>, following: Following) {
        if let Some(due_us) = following.lingers_until_us()
            && self.lingering.remove(due_us, name)
        {
            context.timers.remove(&(due_us, Timer::Linger(Arc::clone(name))));
        }
    }

    /// Counts the window of a channel, which has changed, and evicts publications if the node holds too many bytes. Those
    /// of windows above an equal share go first, so that one channel does not evict the publications of all others.
    pub(super) fn bound_windows(&mut self, context: &Context, name: &Arc<str>) {
        let bytes_max = context.options.limits.window_bytes_max;
        self.count_window(name, usize::MAX);
        if self.window_memory.bytes <= bytes_max {
            return;
        }
        let share = bytes_max / self.by_name.len().max(1);
        let excess = self.window_memory.bytes - bytes_max;
        let own = self.by_name.get(name).map_or(0, |channel| channel.window.bytes());
        self.count_window(name, share.max(own.saturating_sub(excess)));
        // While the sum is above the limit, some window is above the share. It is evicted down to the share at once, and
        // the next search continues behind it, so that the searches for many publications pass each channel once.
        while self.window_memory.bytes > bytes_max
            && let Some(large) = self.next_window_above(share)
        {
            self.count_window(&large, share);
            self.window_memory.searched_through = Some(large);
        }
    }

    fn next_window_above(&self, share: usize) -> Option<Arc<str>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let behind = match &self.window_memory.searched_through {
            Some(name) => self.by_name.range((Excluded(Arc::clone(name)), Unbounded)),
            None => self.by_name.range::<Arc<str>, _>(..),
        };
        let is_above = |(_, channel): &(&Arc<str>, &FollowedChannel)| channel.window.bytes() > share;
        behind.chain(self.by_name.iter()).find(is_above).map(|(name, _)| Arc::clone(name))
    }

    fn count_window(&mut self, name: &Arc<str>, bytes_max: usize) {
        let Some(channel) = self.by_name.get_mut(name) else { return };
        channel.window.evict_to(bytes_max);
        let bytes = channel.window.bytes();
        let counted_before = std::mem::replace(&mut channel.window.counted_bytes, bytes);
        self.window_memory.bytes = self.window_memory.bytes - counted_before + bytes;
    }
}
