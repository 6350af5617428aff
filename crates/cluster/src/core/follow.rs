//! Live messages, and the begin and end of following a channel: what the actions of a channel's state machine mean for the
//! rest of the core ([`super::channel`]).

use std::sync::Arc;

use bytes::Bytes;
use dunlin_engine::{Event, ShardIndex, log::LogError};

use crate::{
    link::{MessageHeaders, StoredMessage},
    names::{EPOCH_TOKEN, PartitionId, decode_token, is_fence},
    record,
};

use super::{
    Core, CoreEffect, Timer,
    channel::{Advanced, Attaching, ChannelAction, ChannelEvent, FollowedChannel, Following},
    partition::Partition,
};

impl Core {
    pub(super) fn follow(&mut self, shard: ShardIndex, name: &Arc<str>, namespace: u16) {
        if let Some(channel) = self.channels.get_mut(name) {
            channel.shard = shard;
            channel.opens = true;
            self.channels.set_following(&mut self.context, name, Following::Followed);
            return;
        }
        let Some(partition) = self.partitions.of_channel(&self.context.options, name, namespace) else { return };
        self.attach(name, FollowedChannel::new(shard, partition));
    }

    /// Attaches a channel that the engine does not follow; it lingers.
    pub(super) fn attach_for_a_while(&mut self, name: &Arc<str>, partition: PartitionId) {
        if self.channels.contains(name) {
            return;
        }
        self.attach(name, FollowedChannel::new(ShardIndex(0), partition));
        self.unfollow(name, 0);
    }

    pub(super) fn unfollow(&mut self, name: &Arc<str>, only_user: u64) {
        let due_us = self.context.now.after_ms(self.context.options.limits.linger_ms);
        if !self.channels.contains(name) {
            return;
        }
        self.channels.set_following(&mut self.context, name, Following::Lingering { until_us: due_us });
        self.channels.lingering.insert(due_us, Arc::clone(name), only_user);
        self.context.set_timer(due_us, Timer::Linger(Arc::clone(name)));
        // Those that have lingered for longest end beyond the limit and the share of a user.
        while let Some(name) = self.channels.lingering.excess(self.context.options.limits.lingering_max, only_user) {
            self.detach(&name, LogError::Unavailable);
        }
    }

    pub(super) fn linger_over(&mut self, name: &Arc<str>) {
        let Some(channel) = self.channels.get(name) else { return };
        if channel.following.lingers_until_us().is_none_or(|until_us| until_us > self.context.now.mono_us) {
            return;
        }
        if channel.outbox.unresolved.is_empty() {
            self.detach(name, LogError::Unavailable);
        } else {
            // Its answer comes over the channel, at the latest after `publish_timeout_ms`.
            self.unfollow(name, 0);
        }
    }

    /// Detaches a channel. Its pending loads are answered with the error.
    pub(super) fn detach(&mut self, name: &Arc<str>, error: LogError) {
        let Some(mut channel) = self.channels.remove(&mut self.context, name) else { return };
        let id = channel.partition;
        let Partition { stream, syncs, .. } = &mut self.partitions[id];
        syncs.detach(&mut self.context, stream, name);
        let waiting_loads = channel.attaching_mut().map(|attaching| std::mem::take(&mut attaching.loads));
        for waiting in waiting_loads.into_iter().flatten() {
            self.context.effects.push(waiting.refused(name, error));
        }
        for waiting in channel.ahead.take_due(u64::MAX) {
            self.context.effects.push(waiting.refused(name, error));
        }
        self.refuse_window_loads(name, error);
        self.drop_key_question(name);
        if self.partitions[id].reads.drop_channel(&mut self.context, name, error) {
            self.resume_reads(id);
        }
        for key in channel.outbox.unresolved {
            self.end_publishing(key, Err(error));
        }
    }

    /// A message on a subscription: a fence, a change of leader, or a message of a followed channel.
    pub(super) fn delivered(&mut self, subject: &str, headers: MessageHeaders, payload: Bytes) {
        if let Some(id) = self.partitions.with_leader_subject(subject) {
            let partition = &mut self.partitions[id];
            partition.stream.watch.describe(&mut self.context);
            // The new leader may not have the fence in flight.
            partition.syncs.audit_anew(&mut self.context, &mut partition.stream, &mut self.channels);
            self.send_again(id);
            return;
        }
        // A token contains no dot.
        let Some((prefix, token)) = subject.rsplit_once('.') else { return };
        let Some(id) = self.partitions.with_live_prefix(prefix) else { return };
        let message = record::republished(headers, payload);
        let Some(message) = self.context.strays.found_or_late(message) else { return };
        let marks = &mut self.partitions[id].stream.marks;
        let is_other_stream = marks.is_followed_too_low(&message);
        marks.push(&message, self.context.now.mono_us);
        if is_other_stream {
            self.partitions[id].stream.watch.describe(&mut self.context);
            self.partitions[id].syncs.audit_soon(&mut self.context, id);
        }
        if is_fence(token) {
            // A wildcard subscription receives those of other nodes as well.
            if *self.partitions[id].stream.names.live_fence_subject(&self.context.options.node) == *subject {
                let is_truncated = self.sync(id, |syncs, context, stream, channels| {
                    syncs.fence_returned(context, stream, channels, &message)
                });
                if is_truncated {
                    self.on_truncation(id);
                }
            }
            return;
        }
        if token == EPOCH_TOKEN {
            return self.epoch_arrived(id, &message);
        }
        let Some(name) = self.context.strays.found_or_late(decode_token(token)) else { return };
        // A wildcard subscription receives the messages of all channels.
        let Some(name) = self.channels.name(&name) else { return };
        self.context.counters.delivered += 1;
        self.message_arrived(&name, message);
    }

    /// Applies the rule of the chain.
    pub(super) fn message_arrived(&mut self, name: &Arc<str>, message: StoredMessage) {
        let action = self.on_channel(name, ChannelEvent::Arrived(message));
        self.context.counters.gaps += u64::from(matches!(action, ChannelAction::ReadGap));
        self.act(name, action);
    }

    /// Messages of a channel are missing, up to `through`. They are read before anything later is delivered.
    pub(super) fn found_missing(&mut self, name: &Arc<str>, through: u64) {
        let action = self.on_channel(name, ChannelEvent::FoundMissing { through });
        self.act(name, action);
    }

    /// Gives an event to a channel. Nothing is to be done if the channel was detached in the meantime.
    fn on_channel(&mut self, name: &Arc<str>, event: ChannelEvent<'_>) -> ChannelAction {
        let Some(channel) = self.channels.get(name) else { return ChannelAction::Nothing };
        let stream = &self.partitions[channel.partition].stream;
        self.channels.on(&self.context, stream, name, event)
    }

    fn act(&mut self, name: &Arc<str>, action: ChannelAction) {
        match action {
            ChannelAction::Nothing => {}
            ChannelAction::Impossible => self.context.strays.impossible += 1,
            ChannelAction::CountLate => self.context.counters.late += 1,
            ChannelAction::Deliver(message) => self.pass_on(name, &message),
            ChannelAction::Truncated { partition } => self.on_truncation(partition),
            ChannelAction::Hole { partition } => self.on_hole(partition),
            ChannelAction::ReadGap => {
                let due_us = self.context.now.after_ms(self.context.options.limits.gap_timeout_ms);
                self.context.set_timer(due_us, Timer::Gap(Arc::clone(name)));
                self.fill(name);
            }
            ChannelAction::Resume(waiting) => self.resume(name, waiting),
            ChannelAction::Replay(buffered) => {
                for message in buffered.into_messages() {
                    self.message_arrived(name, message);
                }
            }
        }
    }

    /// Delivers the next message of a channel.
    pub(super) fn pass_on(&mut self, name: &Arc<str>, message: &StoredMessage) {
        let partition = self.channels.get(name).map(|channel| channel.partition);
        if let Some(partition) = partition {
            self.note_key(self.context.now, partition, message);
        }
        let channel = self.context.strays.expected(self.channels.get_mut(name), "the message is the next of a channel");
        let Some(channel) = channel else { return };
        let limits = self.partitions[channel.partition].stream.window_limits();
        let advanced = channel.advance(message, self.context.now.mono_us, limits);
        let (shard, is_followed) = (channel.shard, channel.is_followed());
        let returned = channel.outbox.take_returned(channel.position);
        let own = message.headers.get(record::MESSAGE_ID).and_then(|id| self.outgoing.by_id.get(id)).copied();
        let own = own.filter(|key| self.outgoing.by_key.get(key).is_some_and(|own| own.is_to(name)));
        self.channels.bound_windows(&self.context, name);
        match advanced {
            Advanced::Published(record) => {
                // The engine already has this node's own publication, but not another node's duplicate of it.
                let is_known = own.is_some_and(|key| self.outgoing.has_own_id(key));
                if is_followed && !is_known {
                    let event = Event::Replicated { channel: Arc::clone(name), record };
                    self.context.effects.push(CoreEffect::ToShard { shard, event });
                }
            }
            Advanced::Purged { through } => {
                if is_followed {
                    let event = Event::Trimmed { channel: Arc::clone(name), through };
                    self.context.effects.push(CoreEffect::ToShard { shard, event });
                }
            }
        }
        if let Some(key) = own {
            self.end_publishing(key, Ok(message.sequence));
        }
        for (sequence, key) in returned {
            self.end_publishing(key, Ok(sequence));
        }
        self.serve_ahead(name);
        // Messages that waited for them can be sent.
        self.send_of_channel(name);
    }

    /// The missing messages have been read: all that the stream has after the newest known one, up to the end of the
    /// gap.
    pub(super) fn gap_filled(&mut self, name: &Arc<str>, messages: &[StoredMessage]) {
        for message in messages {
            let is_behind = self.channels.get(name).is_some_and(|channel| message.sequence > channel.position);
            if is_behind {
                self.context.counters.filled += 1;
                self.pass_on(name, message);
            }
        }
        let action = self.on_channel(name, ChannelEvent::GapRead);
        self.act(name, action);
        self.serve_ahead(name);
    }

    pub(super) fn gap_overdue(&mut self, name: &Arc<str>) {
        let timeout_ms = self.context.options.limits.gap_timeout_ms;
        let is_up = self.context.links.live && self.context.links.read;
        // The gap of this timer may have been closed.
        let Some(gap) = self.channels.get_mut(name).and_then(FollowedChannel::gap_mut) else { return };
        let due_us = gap.since_us + timeout_ms * 1_000;
        if !is_up || due_us > self.context.now.mono_us {
            // Without connections, nothing can be read. The timeout starts when they are back.
            gap.since_us = if is_up { gap.since_us } else { self.context.now.mono_us };
            let next_us = gap.since_us + timeout_ms * 1_000;
            self.context.set_timer(next_us.max(self.context.now.mono_us + 1_000), Timer::Gap(Arc::clone(name)));
            return;
        }
        self.interrupt(name);
    }

    /// It cannot be determined what a channel's subscribers have missed, so they must resubscribe.
    pub(super) fn interrupt(&mut self, name: &Arc<str>) {
        let Some(channel) = self.channels.get(name) else { return };
        let (shard, is_followed) = (channel.shard, channel.is_followed());
        self.context.counters.interrupted += 1;
        self.detach(name, LogError::Unavailable);
        if is_followed {
            let event = Event::Interrupted { channel: Arc::clone(name) };
            self.context.effects.push(CoreEffect::ToShard { shard, event });
        }
    }

    /// All positions of a partition have become invalid.
    pub(super) fn begin_epoch_of_channels(&mut self, id: PartitionId) {
        self.interrupt_all(id);
        let of_partition = self.channels.iter().filter(|(_, channel)| channel.partition == id);
        let names: Vec<Arc<str>> = of_partition.map(|(name, _)| Arc::clone(name)).collect();
        for name in names {
            let action = self.on_channel(&name, ChannelEvent::EpochBegan);
            self.act(&name, action);
        }
    }

    pub(super) fn interrupt_all(&mut self, id: PartitionId) {
        let of_partition = self.channels.iter().filter(|(_, channel)| channel.partition == id && channel.is_attached());
        let names: Vec<Arc<str>> = of_partition.map(|(name, _)| Arc::clone(name)).collect();
        for name in names {
            self.interrupt(&name);
        }
    }

    /// The newest message of a channel that is being attached is known.
    pub(super) fn attached(&mut self, name: &Arc<str>, head: Option<&StoredMessage>, fence: u64) {
        let action = self.on_channel(name, ChannelEvent::HeadRead { head, fence });
        let id = self.channels.get(name).map(|channel| channel.partition);
        let Some(id) = self.context.strays.expected(id, "its newest message was read for it") else { return };
        self.context.counters.attached += 1;
        self.partitions[id].syncs.attached(name);
        if let Some(head) = head {
            self.note_key(self.context.now, id, head);
        }
        self.channels.bound_windows(&self.context, name);
        self.act(name, action);
    }

    /// Handles what has waited for the newest message of a channel.
    fn resume(&mut self, name: &Arc<str>, waiting: Attaching) {
        for load in waiting.loads {
            self.serve_load(name, load);
        }
        for message in waiting.buffered.into_messages() {
            self.message_arrived(name, message);
        }
        self.send_of_channel(name);
    }
}
