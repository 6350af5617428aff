//! This node's messages: sent until the stream has acknowledged them, and committed when they come back.
//!
//! Messages of a channel are sent in the order of proposal. While one is being retried, or depends on the channel's
//! newest message, those behind it wait.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use dunlin_engine::{
    Event, ShardIndex,
    event::Ticket,
    log::{LogError, LogRecord, ProposalNumber},
};

use crate::{
    link::{LinkEffect, LinkName, MessageHeaders, PublishAck, PublishFault, RequestNumber},
    names::PartitionId,
    record::{self, EXPECTED_LAST, FOLLOWS, MESSAGE_ID, OPERATION, PURGE, ROLLUP},
};

use super::{
    Context, Core, CoreEffect, Requester, Timer, idempotency_questions::key_prefix, standing::StreamKey,
    window::NewestPublication,
};

/// The first pause before a retry; it doubles up to the maximum.
const RETRY_MIN_US: u64 = 50_000;
const RETRY_MAX_US: u64 = 1_000_000;
/// The pause if the stream is still processing an earlier copy, or another message of the subject.
const BUSY_RETRY_US: u64 = 20_000;
/// How long an acknowledged message may take to come back before it is read from the stream.
const RETURN_TIMEOUT_US: u64 = 250_000;
/// Bytes that NATS headers may take in a message, besides those of Dunlin.
pub const HEADER_BYTES: usize = 4_096;

/// NATS error: a copy with the same id is being stored.
const DUPLICATE_IN_PROCESS: u64 = 10_158;
/// NATS error: a message of the subject is being stored.
const SUBJECT_IN_PROCESS: u64 = 10_164;

/// The number of a message of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PublishingKey(pub(super) u64);

/// Who waits for the outcome of a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waiter {
    Nobody,
    Proposal { shard: ShardIndex, proposal: ProposalNumber },
    Trim { shard: ShardIndex, ticket: Ticket },
}

impl Waiter {
    /// Gives it the outcome: the sequence of the message, or the error.
    fn answer(self, context: &mut Context, channel: Arc<str>, outcome: Result<u64, LogError>) {
        let (shard, event) = match self {
            Self::Nobody => return,
            Self::Proposal { shard, proposal } => (shard, Event::Committed { channel, proposal, outcome }),
            Self::Trim { shard, ticket } => (shard, Event::TrimCommitted { ticket, outcome: outcome.map(|_| ()) }),
        };
        context.effects.push(CoreEffect::ToShard { shard, event });
    }
}

/// The condition of a message on the channel's newest one.
#[derive(Clone, Debug)]
enum Condition {
    None,
    /// The newest one's version must be lower.
    Version {
        version: u64,
        epoch: Box<str>,
    },
    /// The message must follow the newest one: it purges the history before it.
    Newest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Must be sent, for the first time or again.
    Unsent,
    Sent,
    /// Waits for a pause before a retry.
    Pausing,
    /// The stream has stored it at this sequence. It has not come back yet.
    Acknowledged(u64),
}

/// Whether other nodes have to be asked for the idempotency key of a message ([`super::idempotency_questions`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyCheck {
    /// The id is unique to this message.
    Unneeded,
    /// The id is made from a key, and may also be that of another node's message.
    Needed,
    Asking,
    Done,
}

/// A message of this node that the stream has not confirmed, or that has not come back.
#[derive(Debug)]
pub(super) struct Publishing {
    channel: Arc<str>,
    partition: PartitionId,
    waiter: Waiter,
    pub(super) id: Box<str>,
    pub(super) key_check: KeyCheck,
    condition: Condition,
    headers: MessageHeaders,
    payload: Bytes,
    stage: Stage,
    /// The request of the newest copy that was sent. Answers to older copies may still arrive.
    request: Option<RequestNumber>,
    /// The highest sequence of the stream that had been seen when the message was sent.
    sent_after: u64,
    pause_us: u64,
    due_us: u64,
    give_up_us: u64,
}

/// The messages of this node that are not confirmed, and the window of those in flight.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    pub(super) by_key: BTreeMap<PublishingKey, Publishing>,
    pub(super) by_id: BTreeMap<Box<str>, PublishingKey>,
    /// Channels with messages that wait for space in the publish window.
    pub(super) waiting_channels: VecDeque<Arc<str>>,
    /// Messages sent and not acknowledged.
    pub(super) in_flight: usize,
}

impl Outgoing {
    /// Whether no other message has the id of this one.
    pub(super) fn has_own_id(&self, key: PublishingKey) -> bool {
        self.by_key.get(&key).is_some_and(Publishing::has_own_id)
    }
}

impl Publishing {
    /// Whether it is a message to this channel.
    pub(super) fn is_to(&self, channel: &str) -> bool {
        *self.channel == *channel
    }

    /// Whether no other message has its id.
    pub(super) fn has_own_id(&self) -> bool {
        self.key_check == KeyCheck::Unneeded
    }

    /// Whether it may be stored whatever the channel's newest message is.
    fn is_unconditional(&self) -> bool {
        matches!(self.condition, Condition::None)
    }
}

impl Core {
    pub(super) fn propose(
        &mut self,
        shard: ShardIndex,
        name: &Arc<str>,
        namespace: u16,
        proposal: ProposalNumber,
        record: &LogRecord,
    ) {
        let waiter = Waiter::Proposal { shard, proposal };
        let (mut headers, payload) = record::encode(record);
        let is_too_large = headers.bytes() + payload.len() + HEADER_BYTES > self.context.payload_bytes_max;
        let refusal = match self.partitions.of_channel(&self.context.options, name, namespace) {
            None => Some(LogError::Unavailable),
            // Before the first connection, the maximum message size is unknown.
            Some(_) if self.context.payload_bytes_max > 0 && is_too_large => Some(LogError::TooLarge),
            Some(_) => None,
        };
        let (Some(partition), None) = (self.partitions.of_channel(&self.context.options, name, namespace), refusal)
        else {
            return waiter.answer(&mut self.context, Arc::clone(name), Err(refusal.unwrap_or(LogError::Unavailable)));
        };
        let condition = match record.publication.version {
            0 => Condition::None,
            version => Condition::Version { version, epoch: record.version_epoch.clone() },
        };
        let key_id = record
            .idempotency_key
            .as_ref()
            .map(|key| format!("{}{}", key_prefix(name), record::escape(key.as_bytes())));
        let number = self.context.next_number();
        let key_check = if key_id.is_none() { KeyCheck::Unneeded } else { KeyCheck::Needed };
        let id: Box<str> = key_id.unwrap_or_else(|| format!("%_{}-{number}", self.context.options.node)).into();
        headers.push(MESSAGE_ID, id.clone());
        let publishing = Publishing {
            channel: Arc::clone(name),
            partition,
            waiter,
            id,
            key_check,
            condition,
            headers,
            payload,
            stage: Stage::Unsent,
            request: None,
            sent_after: 0,
            pause_us: RETRY_MIN_US,
            due_us: 0,
            give_up_us: self.context.now.after_ms(self.context.options.limits.publish_timeout_ms),
        };
        self.begin_publishing(PublishingKey(number), publishing);
    }

    /// Purges a channel's history with a message that all nodes see at the same position of the chain.
    pub(super) fn purge(&mut self, name: &Arc<str>, namespace: u16, waiter: Waiter) {
        let Some(partition) = self.partitions.of_channel(&self.context.options, name, namespace) else {
            return waiter.answer(&mut self.context, Arc::clone(name), Err(LogError::Unavailable));
        };
        self.attach_for_a_while(name, partition);
        let number = self.context.next_number();
        let id: Box<str> = format!("%_{}-{number}", self.context.options.node).into();
        let headers = MessageHeaders::new().with(OPERATION, PURGE).with(ROLLUP, "sub").with(MESSAGE_ID, id.clone());
        let publishing = Publishing {
            channel: Arc::clone(name),
            partition,
            waiter,
            id,
            key_check: KeyCheck::Unneeded,
            condition: Condition::Newest,
            headers,
            payload: Bytes::new(),
            stage: Stage::Unsent,
            request: None,
            sent_after: 0,
            pause_us: RETRY_MIN_US,
            due_us: 0,
            give_up_us: self.context.now.after_ms(self.context.options.limits.publish_timeout_ms),
        };
        self.begin_publishing(PublishingKey(number), publishing);
    }

    fn begin_publishing(&mut self, key: PublishingKey, publishing: Publishing) {
        let name = Arc::clone(&publishing.channel);
        let give_up_us = publishing.give_up_us;
        let Some(channel) = self.channels.get_mut(&name) else {
            // The engine proposes only to channels that it follows; without the channel, no message would come back.
            return publishing.waiter.answer(&mut self.context, name, Err(LogError::Unavailable));
        };
        channel.outbox.push(key);
        self.outgoing.by_id.insert(publishing.id.clone(), key);
        self.outgoing.by_key.insert(key, publishing);
        self.context.set_timer(give_up_us, Timer::Publish(key));
        self.send_of_channel(&name);
    }

    /// Sends the messages of a channel that may be sent.
    pub(super) fn send_of_channel(&mut self, name: &Arc<str>) {
        while let Some(channel) = self.channels.get_mut(name).filter(|channel| channel.is_attached())
            && let Some(key) = channel.outbox.next()
            && let Some(publishing) = self.outgoing.by_key.get(&key)
        {
            let is_conditional = !publishing.is_unconditional();
            if !publishing.has_own_id() && !self.is_key_checked(name, key) {
                return;
            }
            let Some(channel) = self.channels.get_mut(name) else { return };
            if is_conditional && !channel.outbox.is_first(key) {
                return;
            }
            if self.outgoing.in_flight >= self.context.options.limits.publish_window_max {
                if !std::mem::replace(&mut channel.outbox.is_queued, true) {
                    self.outgoing.waiting_channels.push_back(Arc::clone(name));
                }
                return;
            }
            channel.outbox.unsent.remove(&key);
            channel.outbox.alone = (is_conditional || channel.outbox.probes).then_some(key);
            self.send(key);
        }
    }

    /// Sends waiting messages, after space in the publish window or a connection has become available.
    pub(super) fn send_waiting(&mut self) {
        let mut tries = self.outgoing.waiting_channels.len();
        while tries > 0
            && self.outgoing.in_flight < self.context.options.limits.publish_window_max
            && let Some(name) = self.outgoing.waiting_channels.pop_front()
        {
            tries -= 1;
            if let Some(channel) = self.channels.get_mut(&name) {
                channel.outbox.is_queued = false;
            }
            self.send_of_channel(&name);
        }
    }

    fn send(&mut self, key: PublishingKey) {
        let Some(publishing) = self.outgoing.by_key.get(&key) else { return };
        let seen = self.sequence_of_key(&publishing.id, self.context.now).filter(|_| !publishing.has_own_id());
        let Some(channel) = self.channels.get(&publishing.channel) else { return };
        // The servers may have restarted, and forgotten the key of a publication that has left the history.
        if let Some(sequence) = seen.filter(|sequence| *sequence <= channel.position) {
            self.context.counters.keys_answered += 1;
            return self.end_publishing(key, Ok(sequence));
        }
        let partition = &self.partitions[publishing.partition];
        let mut headers = publishing.headers.clone();
        match &publishing.condition {
            Condition::None => {}
            // There is no history to purge.
            Condition::Newest if channel.newest.sequence == 0 => return self.end_publishing(key, Ok(0)),
            Condition::Newest => headers.push(EXPECTED_LAST, channel.newest.sequence.to_string()),
            Condition::Version { version, epoch } => {
                if let Some(newest) = channel.window.newest()
                    && is_as_new(newest, *version, epoch)
                {
                    let sequence = newest.offset;
                    self.end_publishing(key, Ok(sequence));
                    return;
                }
                headers.push(EXPECTED_LAST, channel.newest.sequence.to_string());
            }
        }
        let channel = self.channels.get_mut(&publishing.channel);
        if let Some(follows) = channel.and_then(|channel| channel.unnamed.header(partition.stream.current_epoch())) {
            headers.push(FOLLOWS, follows);
        }
        let (subject, payload) =
            (partition.stream.names.publish_subject(&publishing.channel), publishing.payload.clone());
        let sent_after = partition.stream.marks.highest();
        let request = self.context.request(Requester::Publish(key));
        self.outgoing.in_flight += 1;
        if let Some(publishing) = self.outgoing.by_key.get_mut(&key) {
            (publishing.stage, publishing.sent_after) = (Stage::Sent, sent_after);
            publishing.request = Some(request);
        }
        self.context.link(LinkEffect::Publish {
            link: LinkName::Publish,
            request: Some(request),
            subject,
            headers,
            payload,
        });
    }

    /// The stream has answered, or there was no answer.
    pub(super) fn acknowledged(
        &mut self,
        key: PublishingKey,
        request: RequestNumber,
        outcome: Result<PublishAck, PublishFault>,
    ) {
        self.outgoing.in_flight = self.outgoing.in_flight.saturating_sub(1);
        match outcome {
            Ok(_) | Err(PublishFault::Refused { .. }) => self.context.silence.end(LinkName::Publish),
            Err(PublishFault::NoResponders | PublishFault::TimedOut) => self.context.on_silence(LinkName::Publish),
            Err(PublishFault::Disconnected) => {}
        }
        let Some(publishing) = self.outgoing.by_key.get_mut(&key) else {
            // The message has come back already.
            self.send_waiting();
            return;
        };
        let (name, partition) = (Arc::clone(&publishing.channel), publishing.partition);
        let is_of_newest_copy = publishing.request == Some(request);
        let stores_nothing = outcome.as_ref().is_err_and(|fault| fault.store_refusal().is_some());
        self.stream_answered(StreamKey::Partition(partition), outcome.as_ref().err());
        let Some(publishing) = self.outgoing.by_key.get_mut(&key) else { return };
        match outcome {
            // Another copy is in flight, or is stored.
            Err(_) if !is_of_newest_copy || matches!(publishing.stage, Stage::Acknowledged(_)) => {}
            Ok(ack) if is_of_newest_copy && ack.sequence <= publishing.sent_after && !ack.is_duplicate => {
                self.on_truncation(partition);
            }
            Ok(ack) => {
                publishing.stage = Stage::Acknowledged(ack.sequence);
                let key_id = (ack.is_duplicate && !publishing.has_own_id()).then(|| publishing.id.clone());
                if let Some(id) = key_id {
                    self.note_known_key(id, partition, ack.sequence);
                }
                self.await_return(key, &name, ack.sequence);
            }
            Err(fault) if fault.is_wrong_last_sequence() => self.newest_was_other(key),
            Err(PublishFault::Refused { error_code: DUPLICATE_IN_PROCESS | SUBJECT_IN_PROCESS, .. }) => {
                self.pause(key, BUSY_RETRY_US);
            }
            // 429: too many requests. Any other refusal is permanent, or lasts while the stream stores nothing.
            Err(PublishFault::Refused { code, .. }) if stores_nothing || code != 429 && code != 503 => {
                self.end_publishing(key, Err(LogError::Unavailable));
            }
            Err(_) => {
                let pause_us = publishing.pause_us;
                publishing.pause_us = (pause_us * 2).min(RETRY_MAX_US);
                self.pause(key, pause_us);
            }
        }
        self.send_of_channel(&name);
        self.send_waiting();
    }

    /// Commits a message whose sequence the channel has reached, or waits until it does.
    fn await_return(&mut self, key: PublishingKey, name: &Arc<str>, sequence: u64) {
        let is_unconditional = self.outgoing.by_key.get(&key).is_some_and(Publishing::is_unconditional);
        let Some(channel) = self.channels.get_mut(name) else { return };
        channel.outbox.mark_stored(key, is_unconditional);
        if channel.position >= sequence {
            self.end_publishing(key, Ok(sequence));
            return;
        }
        // Two messages with the same idempotency key have the same sequence.
        channel.outbox.acknowledged.entry(sequence).or_insert(key);
        let due_us = self.context.now.mono_us + RETURN_TIMEOUT_US;
        if let Some(publishing) = self.outgoing.by_key.get_mut(&key) {
            publishing.due_us = due_us;
        }
        self.context.set_timer(due_us, Timer::Publish(key));
    }

    /// A message's condition on the channel's newest message failed. If the newest message is the first copy of this
    /// one, it was stored. Otherwise the chain delivers the other message, and the condition is evaluated again.
    fn newest_was_other(&mut self, key: PublishingKey) {
        self.pause(key, BUSY_RETRY_US);
        if let Some(publishing) = self.outgoing.by_key.get(&key) {
            let partition = publishing.partition;
            self.partitions[partition].syncs.audit_soon(&mut self.context, partition);
        }
    }

    fn pause(&mut self, key: PublishingKey, pause_us: u64) {
        let Some(publishing) = self.outgoing.by_key.get_mut(&key) else { return };
        publishing.stage = Stage::Pausing;
        publishing.due_us = self.context.now.mono_us + pause_us;
        let due_us = publishing.due_us;
        if let Some(channel) = self.channels.get_mut(&publishing.channel) {
            channel.outbox.alone.take_if(|alone| *alone == key);
            channel.outbox.paused.insert(key);
            channel.outbox.probes = true;
        }
        self.context.set_timer(due_us, Timer::Publish(key));
    }

    /// A stream has a new leader: unacknowledged messages are sent again, in the same order. Of each channel, only the
    /// first is sent, and the others when it is acknowledged. The stream drops duplicates by their ids.
    pub(super) fn send_again(&mut self, id: PartitionId) {
        let mut names = BTreeSet::new();
        for (key, publishing) in &mut self.outgoing.by_key {
            if publishing.partition != id || !matches!(publishing.stage, Stage::Sent | Stage::Pausing) {
                continue;
            }
            publishing.stage = Stage::Unsent;
            publishing.pause_us = RETRY_MIN_US;
            self.context.counters.retries += 1;
            let Some(channel) = self.channels.get_mut(&publishing.channel) else { continue };
            channel.outbox.paused.remove(key);
            channel.outbox.alone.take_if(|alone| alone == key);
            channel.outbox.unsent.insert(*key);
            channel.outbox.probes = true;
            names.insert(Arc::clone(&publishing.channel));
        }
        for name in names {
            self.send_of_channel(&name);
        }
    }

    /// A message's timer is due: it is retried, read from the stream, or given up.
    pub(super) fn review_publishing(&mut self, key: PublishingKey) {
        let now_us = self.context.now.mono_us;
        let Some(publishing) = self.outgoing.by_key.get_mut(&key) else { return };
        let name = Arc::clone(&publishing.channel);
        if publishing.give_up_us <= now_us {
            // The message may be stored anyway; then it arrives like another node's message.
            self.context.counters.abandoned += 1;
            self.end_publishing(key, Err(LogError::Unavailable));
            self.send_of_channel(&name);
            return;
        }
        if publishing.due_us > now_us {
            return;
        }
        match publishing.stage {
            Stage::Pausing => {
                publishing.stage = Stage::Unsent;
                if let Some(channel) = self.channels.get_mut(&name) {
                    channel.outbox.paused.remove(&key);
                    channel.outbox.unsent.insert(key);
                }
                self.context.counters.retries += 1;
                self.send_of_channel(&name);
            }
            Stage::Acknowledged(sequence) => {
                self.look_behind(&name, sequence);
                self.pause_return(key);
            }
            Stage::Unsent | Stage::Sent => {}
        }
    }

    fn pause_return(&mut self, key: PublishingKey) {
        let due_us = self.context.now.mono_us + RETURN_TIMEOUT_US;
        if let Some(publishing) = self.outgoing.by_key.get_mut(&key) {
            publishing.due_us = due_us;
            self.context.set_timer(due_us, Timer::Publish(key));
        }
    }

    /// Messages of the channel are known to be stored up to a sequence and have not arrived: they are read.
    fn look_behind(&mut self, name: &Arc<str>, through: u64) {
        let is_missing =
            self.channels.get(name).is_some_and(|channel| channel.is_attached() && channel.position < through);
        if is_missing {
            self.context.counters.gaps += 1;
            self.found_missing(name, through);
        }
    }

    /// Ends a message whose outcome is known.
    pub(super) fn end_publishing(&mut self, key: PublishingKey, outcome: Result<u64, LogError>) {
        let Some(publishing) = self.outgoing.by_key.remove(&key) else { return };
        if self.outgoing.by_id.get(&publishing.id) == Some(&key) {
            self.outgoing.by_id.remove(&publishing.id);
        }
        if let Some(channel) = self.channels.get_mut(&publishing.channel) {
            channel.outbox.remove(key);
            if let Stage::Acknowledged(sequence) = publishing.stage
                && channel.outbox.acknowledged.get(&sequence) == Some(&key)
            {
                channel.outbox.acknowledged.remove(&sequence);
            }
        }
        publishing.waiter.answer(&mut self.context, publishing.channel, outcome);
    }
}

/// Whether a publication has this version or a newer one.
fn is_as_new(newest: &NewestPublication, version: u64, epoch: &str) -> bool {
    newest.version >= version && (epoch.is_empty() || *newest.version_epoch == *epoch)
}

#[cfg(test)]
mod tests;
