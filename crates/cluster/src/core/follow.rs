//! Live messages: the rule of the chain, gaps, and the begin and end of following a channel.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_engine::{ShardIndex, log::LogError};

use crate::{
    link::{LinkEffect, MessageHeaders, StoredMessage},
    names::{EPOCH_TOKEN, PartitionId, decode_token, is_fence, part_of},
    planted::CoreBug,
    record,
};

use super::{
    Core, CoreEffect, Timer, Turn,
    channel::{Advanced, BufferedMessages, ChannelState, FollowedChannel, Gap},
    peer_keys::KeyKnowledge,
    standing::StreamKey,
    window::{Window, WindowLimits},
};

impl Core {
    pub(super) fn follow(&mut self, turn: &mut Turn<'_>, shard: ShardIndex, name: &Arc<str>, namespace: u16) {
        if let Some(channel) = self.channels.get_mut(name) {
            channel.shard = shard;
            channel.is_followed = true;
            channel.opens = true;
            let lingered_until_us = std::mem::replace(&mut channel.lingers_until_us, u64::MAX);
            self.end_lingering(lingered_until_us, name);
            return;
        }
        let Some(partition) = self.partition_of(name, namespace) else { return };
        self.channels.insert(Arc::clone(name), FollowedChannel::new(shard, partition));
        self.attach(turn, name, partition);
    }

    /// Attaches a channel that the engine does not follow; it lingers.
    pub(super) fn attach_for_a_while(&mut self, turn: &mut Turn<'_>, name: &Arc<str>, partition: PartitionId) {
        if self.channels.contains_key(name) {
            return;
        }
        self.channels.insert(Arc::clone(name), FollowedChannel::new(ShardIndex(0), partition));
        self.attach(turn, name, partition);
        self.unfollow(turn, name, 0);
    }

    pub(super) fn unfollow(&mut self, turn: &mut Turn<'_>, name: &Arc<str>, only_user: u64) {
        let due_us = turn.now.after_ms(self.options.limits.linger_ms);
        let Some(channel) = self.channels.get_mut(name) else { return };
        channel.is_followed = false;
        let lingered_until_us = std::mem::replace(&mut channel.lingers_until_us, due_us);
        self.end_lingering(lingered_until_us, name);
        self.lingering.insert(due_us, Arc::clone(name), only_user);
        self.set_timer(due_us, Timer::Linger(Arc::clone(name)));
        self.bound_lingering(turn, only_user);
    }

    pub(super) fn linger_over(&mut self, turn: &mut Turn<'_>, name: &Arc<str>) {
        let Some(channel) = self.channels.get(name) else { return };
        if !channel.is_followed && channel.lingers_until_us <= turn.now.mono_us {
            self.detach(turn, name, LogError::Unavailable);
        }
    }

    /// The partition of a channel; `None` if its namespace has no stream.
    pub(super) fn partition_of(&self, name: &str, namespace: u16) -> Option<PartitionId> {
        let parts = self.options.namespaces.get(usize::from(namespace))?.as_ref()?.partitions;
        let id = PartitionId { namespace, part: part_of(name, parts) };
        self.partitions.contains_key(&id).then_some(id)
    }

    /// Detaches a channel. Its pending loads are answered with the error.
    pub(super) fn detach(&mut self, turn: &mut Turn<'_>, name: &Arc<str>, error: LogError) {
        let Some(channel) = self.channels.remove(name) else { return };
        self.window_memory.forget(channel.counted_window_bytes);
        self.end_lingering(channel.lingers_until_us, name);
        if let Some(partition) = self.partitions.get_mut(&channel.partition) {
            partition.attached.remove(name);
            partition.comparing.remove(name);
            partition.attaching.retain(|attaching| attaching != name);
            if !partition.is_wide {
                turn.link(LinkEffect::Unsubscribe { subject: partition.names.live_subject(name) });
            }
        }
        for waiting in channel.waiting_loads {
            turn.effects.push(waiting.refused(name, error));
        }
        self.refuse_ahead(turn, name, u64::MAX, error);
        self.refuse_window_loads(turn, name, error);
        self.end_key_question(name);
        self.drop_reads(turn, channel.partition, name, error);
        for key in channel.outbox.unresolved {
            self.end_publishing(turn, key, Err(error));
        }
    }

    /// A message on a subscription: a fence, a change of leader, or a message of a followed channel.
    pub(super) fn delivered(&mut self, turn: &mut Turn<'_>, subject: &str, headers: MessageHeaders, payload: Bytes) {
        if let Some(id) = self.by_leader_subject.get(subject).copied() {
            self.needs_audit(id);
            self.describe(turn, StreamKey::Partition(id));
            // The new leader may not have the fence in flight.
            self.restart_sync(turn, id);
            self.start_sync(turn, id);
            self.send_again(turn, id);
            return;
        }
        // A token contains no dot.
        let Some((prefix, token)) = subject.rsplit_once('.') else { return };
        let Some(id) = self.by_live_prefix.get(prefix).copied() else { return };
        let Some(message) = record::republished(headers, payload) else { return };
        if let Some(partition) = self.partitions.get_mut(&id) {
            let is_other_stream = partition.marks.is_followed_too_low(&message);
            partition.marks.push(&message, turn.now.mono_us);
            if is_other_stream {
                self.describe(turn, StreamKey::Partition(id));
                self.audit_soon(turn, id);
            }
        }
        if is_fence(token) {
            // A wildcard subscription receives those of other nodes as well.
            let own = self.partitions.get(&id).map(|partition| partition.names.live_fence_subject(&self.options.node));
            if own.is_some_and(|own| *own == *subject) {
                self.fence_returned(turn, id, &message);
            }
            return;
        }
        if token == EPOCH_TOKEN {
            self.epoch_arrived(turn, id, &message);
            return;
        }
        let Some(name) = decode_token(token) else { return };
        let Some((name, _)) = self.channels.get_key_value(&*name) else { return };
        let name = Arc::clone(name);
        self.counters.delivered += 1;
        self.message_arrived(turn, &name, message);
    }

    /// Applies the rule of the chain.
    pub(super) fn message_arrived(&mut self, turn: &mut Turn<'_>, name: &Arc<str>, message: StoredMessage) {
        let limits = &self.options.limits;
        let Some(channel) = self.channels.get_mut(name) else { return };
        if let ChannelState::Attaching { buffered } = &mut channel.state {
            buffered.push(message, limits);
            return;
        }
        if message.sequence <= channel.position && !self.planted.is(CoreBug::LateDuplicatePassedOn) {
            self.counters.late += 1;
            return;
        }
        if let Some(gap) = &mut channel.gap {
            if !gap.buffered.contains(message.last_sequence) {
                gap.through = gap.through.max(message.last_sequence);
            }
            let sequence = message.sequence;
            if !gap.buffered.push(message, limits) {
                gap.through = gap.through.max(sequence);
            }
            return;
        }
        let id = channel.partition;
        let Some(partition) = self.partitions.get(&id) else { return };
        let Some(age_max_ms) = partition.facts.as_ref().map(|facts| facts.age_max_ms) else { return };
        if channel.is_lost_before(&message, turn.now.unix_ms, age_max_ms) {
            return self.on_truncation(turn, id);
        }
        if partition.has_lost_before(channel, &message) {
            return self.on_hole(turn, id);
        }
        let ignores_gaps = self.planted.is(CoreBug::GapNotNoticed);
        if ignores_gaps || channel.is_next(&message, turn.now.mono_us, age_max_ms) {
            self.pass_on(turn, name, &message);
        } else {
            self.counters.gaps += 1;
            let through = message.last_sequence.max(channel.newest + 1).min(message.sequence - 1);
            self.open_gap(turn, name, through, Some(message));
        }
    }

    /// Delivers the next message of a channel.
    pub(super) fn pass_on(&mut self, turn: &mut Turn<'_>, name: &Arc<str>, message: &StoredMessage) {
        let Some(partition) = self.channels.get(name).map(|channel| channel.partition) else { return };
        self.note_key(turn.now, partition, message);
        let limits = self.window_limits(partition);
        let Some(channel) = self.channels.get_mut(name) else { return };
        let advanced = channel.advance(message, turn.now.mono_us, limits);
        let (shard, is_followed) = (channel.shard, channel.is_followed);
        let returned = channel.take_returned();
        let own = message.headers.get(record::MESSAGE_ID).and_then(|id| self.publishing_by_id.get(id)).copied();
        let own = own.filter(|key| self.publishing.get(key).is_some_and(|own| own.is_to(name)));
        self.bound_windows(name);
        match advanced {
            Advanced::Published(record) => {
                // The engine already has this node's own publication, but not another node's duplicate of it.
                let is_known = own.is_some_and(|key| self.publishing.get(&key).is_some_and(|own| own.has_own_id));
                if is_followed && !is_known {
                    turn.effects.push(CoreEffect::Replicated { shard, channel: Arc::clone(name), record });
                }
            }
            Advanced::Purged { through } => {
                if is_followed {
                    turn.effects.push(CoreEffect::Trimmed { shard, channel: Arc::clone(name), through });
                }
            }
        }
        if let Some(key) = own {
            self.end_publishing(turn, key, Ok(message.sequence));
        }
        for (sequence, key) in returned {
            self.end_publishing(turn, key, Ok(sequence));
        }
        if !self.ahead.is_empty() {
            self.serve_ahead(turn, name);
        }
        // Messages that waited for them can be sent.
        self.send_of_channel(turn, name);
    }

    /// Messages of a channel are missing, up to `through`. They are read before anything later is delivered.
    pub(super) fn open_gap(
        &mut self,
        turn: &mut Turn<'_>,
        name: &Arc<str>,
        through: u64,
        behind: Option<StoredMessage>,
    ) {
        let Some(channel) = self.channels.get_mut(name) else { return };
        if let Some(gap) = &mut channel.gap {
            gap.through = gap.through.max(through);
            return;
        }
        let (mut buffered, mut through) = (BufferedMessages::default(), through);
        if let Some(message) = behind {
            let sequence = message.sequence;
            if !buffered.push(message, &self.options.limits) {
                through = through.max(sequence);
            }
        }
        let since_us = turn.now.mono_us;
        channel.gap = Some(Box::new(Gap { through, buffered, since_us, is_reading: false }));
        let due_us = turn.now.after_ms(self.options.limits.gap_timeout_ms);
        self.set_timer(due_us, Timer::Gap(Arc::clone(name)));
        self.fill(turn, name);
    }

    /// The missing messages have been read: all that the stream has after the newest known one, up to the end of the
    /// gap.
    pub(super) fn gap_filled(&mut self, turn: &mut Turn<'_>, name: &Arc<str>, messages: &[StoredMessage]) {
        for message in messages {
            let is_behind = self.channels.get(name).is_some_and(|channel| message.sequence > channel.position);
            if is_behind {
                self.counters.filled += 1;
                self.pass_on(turn, name, message);
            }
        }
        let Some(channel) = self.channels.get_mut(name) else { return };
        let Some(gap) = channel.gap.take() else { return };
        channel.position = channel.position.max(gap.through);
        for message in gap.buffered.into_messages() {
            self.message_arrived(turn, name, message);
        }
        // The stream may have trimmed messages of the gap, and their keys with them.
        self.forget_key_knowledge(turn, name);
        self.send_of_channel(turn, name);
        self.serve_ahead(turn, name);
    }

    pub(super) fn gap_overdue(&mut self, turn: &mut Turn<'_>, name: &Arc<str>) {
        let timeout_ms = self.options.limits.gap_timeout_ms;
        let is_up = self.links.live && self.links.read;
        let Some(channel) = self.channels.get_mut(name) else { return };
        let Some(gap) = &mut channel.gap else { return };
        let due_us = gap.since_us + timeout_ms * 1_000;
        if !is_up || due_us > turn.now.mono_us {
            // Without connections, nothing can be read. The timeout starts when they are back.
            gap.since_us = if is_up { gap.since_us } else { turn.now.mono_us };
            let next_us = gap.since_us + timeout_ms * 1_000;
            self.set_timer(next_us.max(turn.now.mono_us + 1_000), Timer::Gap(Arc::clone(name)));
            return;
        }
        self.interrupt(turn, name);
    }

    /// It cannot be determined what a channel's subscribers have missed, so they must resubscribe.
    pub(super) fn interrupt(&mut self, turn: &mut Turn<'_>, name: &Arc<str>) {
        let Some(channel) = self.channels.get(name) else { return };
        let (shard, is_followed) = (channel.shard, channel.is_followed);
        self.counters.interrupted += 1;
        self.detach(turn, name, LogError::Unavailable);
        if is_followed {
            turn.effects.push(CoreEffect::Interrupted { shard, channel: Arc::clone(name) });
        }
    }

    pub(super) fn interrupt_all(&mut self, turn: &mut Turn<'_>, id: PartitionId) {
        let of_partition = self.channels.iter().filter(|(_, channel)| channel.partition == id && channel.is_attached());
        let names: Vec<Arc<str>> = of_partition.map(|(name, _)| Arc::clone(name)).collect();
        for name in names {
            self.interrupt(turn, &name);
        }
    }

    /// The newest message of a channel that is being attached is known.
    pub(super) fn attached(&mut self, turn: &mut Turn<'_>, name: &Arc<str>, head: Option<&StoredMessage>, fence: u64) {
        let limits = self.channels.get(name).map(|channel| self.window_limits(channel.partition));
        let (Some(channel), Some(limits)) = (self.channels.get_mut(name), limits) else { return };
        let ChannelState::Attaching { buffered } = std::mem::replace(&mut channel.state, ChannelState::Attached) else {
            return;
        };
        self.counters.attached += 1;
        (channel.attached_us, channel.confirmed_us) = (turn.now.mono_us, turn.now.mono_us);
        channel.keys = KeyKnowledge::Since { mono_us: turn.now.mono_us };
        if let Some(head) = head {
            channel.window = Window::starting_at(head.sequence - 1);
            channel.advance(head, turn.now.mono_us, WindowLimits { entries_max: 1, ..limits });
        } else {
            channel.window = Window::starting_at(fence);
            channel.position = fence;
        }
        let id = channel.partition;
        if let Some(partition) = self.partitions.get_mut(&id) {
            partition.attached.insert(Arc::clone(name));
        }
        if let Some(head) = head {
            self.note_key(turn.now, id, head);
        }
        self.bound_windows(name);
        self.serve_waiting_loads(turn, name);
        for message in buffered.into_messages() {
            self.message_arrived(turn, name, message);
        }
        self.send_of_channel(turn, name);
    }
}
