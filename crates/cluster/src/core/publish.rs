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
    Context, CoreEffect, Requester, Timer,
    channels::Channels,
    idempotency_questions::{Asking, KeyQuestions, key_prefix},
    leases::Leases,
    partition::Partitions,
    peers::Peers,
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

/// A publication that the engine proposes, or a purge that it requests.
#[derive(Debug)]
pub(super) struct Proposed<'a> {
    pub(super) channel: &'a Arc<str>,
    pub(super) namespace: u16,
    pub(super) waiter: Waiter,
}

/// Who waits for the outcome of a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waiter {
    Nobody,
    Proposal { shard: ShardIndex, proposal: ProposalNumber },
    Trim { shard: ShardIndex, ticket: Ticket },
}

impl Waiter {
    /// Gives it the outcome: the sequence of the message, or the error.
    pub(super) fn answer(self, context: &mut Context, channel: Arc<str>, outcome: Result<u64, LogError>) {
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

impl Publishing {
    fn new(context: &Context, proposed: &Proposed<'_>, partition: PartitionId, id: Box<str>) -> Self {
        Self {
            channel: Arc::clone(proposed.channel),
            partition,
            waiter: proposed.waiter,
            id,
            key_check: KeyCheck::Unneeded,
            condition: Condition::None,
            headers: MessageHeaders::new(),
            payload: Bytes::new(),
            stage: Stage::Unsent,
            request: None,
            sent_after: 0,
            pause_us: RETRY_MIN_US,
            due_us: 0,
            give_up_us: context.now.after_ms(context.options.limits.publish_timeout_ms),
        }
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

/// The messages of this node that are not confirmed.
#[derive(Debug, Default)]
pub(super) struct Messages {
    by_key: BTreeMap<PublishingKey, Publishing>,
    by_id: BTreeMap<Box<str>, PublishingKey>,
}

impl Messages {
    pub(super) fn get(&self, key: PublishingKey) -> Option<&Publishing> {
        self.by_key.get(&key)
    }

    fn get_mut(&mut self, key: PublishingKey) -> Option<&mut Publishing> {
        self.by_key.get_mut(&key)
    }

    pub(super) fn set_key_checks(&mut self, keys: &[PublishingKey], key_check: KeyCheck) {
        for key in keys {
            if let Some(publishing) = self.by_key.get_mut(key) {
                publishing.key_check = key_check;
            }
        }
    }

    fn insert(&mut self, key: PublishingKey, publishing: Publishing) {
        self.by_id.insert(publishing.id.clone(), key);
        self.by_key.insert(key, publishing);
    }

    fn remove(&mut self, key: PublishingKey) -> Option<Publishing> {
        let publishing = self.by_key.remove(&key)?;
        if self.by_id.get(&publishing.id) == Some(&key) {
            self.by_id.remove(&publishing.id);
        }
        Some(publishing)
    }
}

/// What messages are sent with: the channels, and the idempotency keys that this node and others have seen.
#[derive(Debug)]
pub(super) struct Sending<'a> {
    pub(super) channels: &'a mut Channels,
    pub(super) partitions: &'a Partitions,
    pub(super) keys: &'a mut KeyQuestions,
    pub(super) peers: &'a Peers,
    pub(super) leases: &'a Leases,
}

/// What the answer to a message shows of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acknowledged {
    Nothing,
    /// The stream has stored it below what it had before.
    Truncated,
    /// Its condition failed: the newest message is another one, which this node may not have. Or it is the first copy of this
    /// one; then it was stored.
    NewestIsOther,
}

/// The messages of this node that are not confirmed, and the window of those in flight.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    messages: Messages,
    /// Channels with messages that wait for space in the publish window.
    waiting_channels: VecDeque<Arc<str>>,
    /// Messages sent and not acknowledged.
    in_flight: usize,
}

impl Outgoing {
    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) const fn messages_mut(&mut self) -> &mut Messages {
        &mut self.messages
    }

    /// The message of this node to a channel that has this id.
    pub(super) fn with_id(&self, id: &str, channel: &str) -> Option<PublishingKey> {
        let key = *self.messages.by_id.get(id)?;
        self.messages.get(key).filter(|publishing| *publishing.channel == *channel).map(|_| key)
    }

    /// Whether no other message has the id of this one.
    pub(super) fn has_own_id(&self, key: PublishingKey) -> bool {
        self.messages.get(key).is_some_and(Publishing::has_own_id)
    }

    /// The channel of a message that is not confirmed yet, and its partition.
    pub(super) fn target_of(&self, key: PublishingKey) -> Option<(Arc<str>, PartitionId)> {
        self.messages.get(key).map(|publishing| (Arc::clone(&publishing.channel), publishing.partition))
    }

    /// Publishes what the engine proposes.
    pub(super) fn propose(
        &mut self,
        context: &mut Context,
        sending: &mut Sending<'_>,
        proposed: &Proposed<'_>,
        record: &LogRecord,
    ) {
        let name = proposed.channel;
        let (headers, payload) = record::encode(record);
        let is_too_large = headers.bytes() + payload.len() + HEADER_BYTES > context.payload_bytes_max;
        let Some(partition) = sending.partitions.of_channel(&context.options, name, proposed.namespace) else {
            return proposed.waiter.answer(context, Arc::clone(name), Err(LogError::Unavailable));
        };
        // Before the first connection, the maximum message size is unknown.
        if context.payload_bytes_max > 0 && is_too_large {
            return proposed.waiter.answer(context, Arc::clone(name), Err(LogError::TooLarge));
        }
        let condition = match record.publication.version {
            0 => Condition::None,
            version => Condition::Version { version, epoch: record.version_epoch.clone() },
        };
        let idempotency_key = record.idempotency_key.as_ref();
        let key_id = idempotency_key.map(|key| format!("{}{}", key_prefix(name), record::escape(key.as_bytes())));
        let number = context.next_number();
        let key_check = if key_id.is_none() { KeyCheck::Unneeded } else { KeyCheck::Needed };
        let id: Box<str> = key_id.unwrap_or_else(|| format!("%_{}-{number}", context.options.node)).into();
        let headers = headers.with(MESSAGE_ID, id.clone());
        let message = Publishing::new(context, proposed, partition, id);
        let message = Publishing { key_check, condition, headers, payload, ..message };
        self.begin(context, sending, PublishingKey(number), message);
    }

    /// Purges a channel's history with a message that all nodes see at the same position of the chain.
    pub(super) fn purge(
        &mut self,
        context: &mut Context,
        sending: &mut Sending<'_>,
        proposed: &Proposed<'_>,
        partition: PartitionId,
    ) {
        let number = context.next_number();
        let id: Box<str> = format!("%_{}-{number}", context.options.node).into();
        let headers = MessageHeaders::new().with(OPERATION, PURGE).with(ROLLUP, "sub").with(MESSAGE_ID, id.clone());
        let message = Publishing::new(context, proposed, partition, id);
        let message = Publishing { condition: Condition::Newest, headers, ..message };
        self.begin(context, sending, PublishingKey(number), message);
    }

    fn begin(&mut self, context: &mut Context, sending: &mut Sending<'_>, key: PublishingKey, publishing: Publishing) {
        let name = Arc::clone(&publishing.channel);
        let give_up_us = publishing.give_up_us;
        let Some(channel) = sending.channels.get_mut(&name) else {
            // The engine proposes only to channels that it follows; without the channel, no message would come back.
            return publishing.waiter.answer(context, name, Err(LogError::Unavailable));
        };
        channel.outbox.push(key);
        self.messages.insert(key, publishing);
        context.set_timer(give_up_us, Timer::Publish(key));
        self.send_of_channel(context, sending, &name);
    }

    /// Sends the messages of a channel that may be sent.
    pub(super) fn send_of_channel(&mut self, context: &mut Context, sending: &mut Sending<'_>, name: &Arc<str>) {
        while let Some(channel) = sending.channels.get_mut(name).filter(|channel| channel.is_attached())
            && let Some(key) = channel.outbox.next()
            && let Some(publishing) = self.messages.get(key)
        {
            let is_conditional = !publishing.is_unconditional();
            if !publishing.has_own_id() && !self.is_key_checked(context, sending, name, key) {
                return;
            }
            let Some(channel) = sending.channels.get_mut(name) else { return };
            if is_conditional && !channel.outbox.is_first(key) {
                return;
            }
            if self.in_flight >= context.options.limits.publish_window_max {
                if !std::mem::replace(&mut channel.outbox.is_queued, true) {
                    self.waiting_channels.push_back(Arc::clone(name));
                }
                return;
            }
            channel.outbox.unsent.remove(&key);
            channel.outbox.alone = (is_conditional || channel.outbox.probes).then_some(key);
            self.send(context, sending, key);
        }
    }

    fn is_key_checked(
        &mut self,
        context: &mut Context,
        sending: &mut Sending<'_>,
        name: &Arc<str>,
        key: PublishingKey,
    ) -> bool {
        let Sending { channels, partitions, keys, peers, leases } = sending;
        let mut asking = Asking { channels, partitions, messages: &mut self.messages, peers, leases };
        keys.is_checked(context, &mut asking, name, key)
    }

    /// Sends waiting messages, after space in the publish window or a connection has become available.
    pub(super) fn send_waiting(&mut self, context: &mut Context, sending: &mut Sending<'_>) {
        let mut tries = self.waiting_channels.len();
        while tries > 0
            && self.in_flight < context.options.limits.publish_window_max
            && let Some(name) = self.waiting_channels.pop_front()
        {
            tries -= 1;
            if let Some(channel) = sending.channels.get_mut(&name) {
                channel.outbox.is_queued = false;
            }
            self.send_of_channel(context, sending, &name);
        }
    }

    fn send(&mut self, context: &mut Context, sending: &mut Sending<'_>, key: PublishingKey) {
        let Some(publishing) = self.messages.get_mut(key) else { return };
        let seen = sending.keys.seen.sequence_of(&publishing.id, context.now);
        let seen = seen.filter(|_| !publishing.has_own_id());
        let Some(channel) = sending.channels.get_mut(&publishing.channel) else { return };
        // The servers may have restarted, and forgotten the key of a publication that has left the history.
        if let Some(sequence) = seen.filter(|sequence| *sequence <= channel.position) {
            context.counters.keys_answered += 1;
            return self.end(context, sending.channels, key, Ok(sequence));
        }
        let stream = &sending.partitions[publishing.partition].stream;
        let mut headers = publishing.headers.clone();
        match &publishing.condition {
            Condition::None => {}
            // There is no history to purge.
            Condition::Newest if channel.newest.sequence == 0 => {
                return self.end(context, sending.channels, key, Ok(0));
            }
            Condition::Newest => headers.push(EXPECTED_LAST, channel.newest.sequence.to_string()),
            Condition::Version { version, epoch } => {
                if let Some(newest) = channel.window.newest()
                    && is_as_new(newest, *version, epoch)
                {
                    let sequence = newest.offset;
                    return self.end(context, sending.channels, key, Ok(sequence));
                }
                headers.push(EXPECTED_LAST, channel.newest.sequence.to_string());
            }
        }
        if let Some(follows) = channel.unnamed.header(stream.current_epoch()) {
            headers.push(FOLLOWS, follows);
        }
        let (subject, payload) = (stream.names.publish_subject(&publishing.channel), publishing.payload.clone());
        let request = context.request(Requester::Publish(key));
        self.in_flight += 1;
        (publishing.stage, publishing.sent_after) = (Stage::Sent, stream.marks.highest());
        publishing.request = Some(request);
        context.link(LinkEffect::Publish {
            link: LinkName::Publish,
            request: Some(request),
            subject,
            headers,
            payload,
        });
    }

    /// The stream has answered one of the messages in flight, or there was no answer.
    pub(super) fn note_answer(&mut self, context: &mut Context, outcome: &Result<PublishAck, PublishFault>) {
        self.in_flight = self.in_flight.saturating_sub(1);
        match outcome {
            Ok(_) | Err(PublishFault::Refused { .. }) => context.unanswered.end(LinkName::Publish),
            Err(PublishFault::NoResponders | PublishFault::TimedOut) => context.on_silence(LinkName::Publish),
            Err(PublishFault::Disconnected) => {}
        }
    }

    /// Takes the answer to a message that is not confirmed.
    pub(super) fn acknowledged(
        &mut self,
        context: &mut Context,
        sending: &mut Sending<'_>,
        (key, request): (PublishingKey, RequestNumber),
        outcome: Result<PublishAck, PublishFault>,
    ) -> Acknowledged {
        let Some(publishing) = self.messages.get_mut(key) else { return Acknowledged::Nothing };
        let is_of_newest_copy = publishing.request == Some(request);
        let stores_nothing = outcome.as_ref().is_err_and(|fault| fault.store_refusal().is_some());
        match outcome {
            // Another copy is in flight, or is stored.
            Err(_) if !is_of_newest_copy || matches!(publishing.stage, Stage::Acknowledged(_)) => {}
            Ok(ack) if is_of_newest_copy && ack.sequence <= publishing.sent_after && !ack.is_duplicate => {
                return Acknowledged::Truncated;
            }
            Ok(ack) => {
                publishing.stage = Stage::Acknowledged(ack.sequence);
                if ack.is_duplicate && !publishing.has_own_id() {
                    let stream = &sending.partitions[publishing.partition].stream;
                    sending.keys.seen.note_known(context, stream, publishing.id.clone(), ack.sequence);
                }
                self.await_return(context, sending.channels, key, ack.sequence);
            }
            Err(fault) if fault.is_wrong_last_sequence() => {
                self.pause(context, sending.channels, key, BUSY_RETRY_US);
                return Acknowledged::NewestIsOther;
            }
            Err(PublishFault::Refused { error_code: DUPLICATE_IN_PROCESS | SUBJECT_IN_PROCESS, .. }) => {
                self.pause(context, sending.channels, key, BUSY_RETRY_US);
            }
            // 429: too many requests. Any other refusal is permanent, or lasts while the stream stores nothing.
            Err(PublishFault::Refused { code, .. }) if stores_nothing || code != 429 && code != 503 => {
                self.end(context, sending.channels, key, Err(LogError::Unavailable));
            }
            Err(_) => {
                let pause_us = publishing.pause_us;
                publishing.pause_us = (pause_us * 2).min(RETRY_MAX_US);
                self.pause(context, sending.channels, key, pause_us);
            }
        }
        Acknowledged::Nothing
    }

    /// Commits a message whose sequence the channel has reached, or waits until it does.
    fn await_return(&mut self, context: &mut Context, channels: &mut Channels, key: PublishingKey, sequence: u64) {
        let Some(publishing) = self.messages.get_mut(key) else { return };
        let Some(channel) = channels.get_mut(&publishing.channel) else { return };
        channel.outbox.mark_stored(key, publishing.is_unconditional());
        if channel.position >= sequence {
            return self.end(context, channels, key, Ok(sequence));
        }
        // Two messages with the same idempotency key have the same sequence.
        channel.outbox.acknowledged.entry(sequence).or_insert(key);
        publishing.due_us = context.now.mono_us + RETURN_TIMEOUT_US;
        context.set_timer(publishing.due_us, Timer::Publish(key));
    }

    fn pause(&mut self, context: &mut Context, channels: &mut Channels, key: PublishingKey, pause_us: u64) {
        let Some(publishing) = self.messages.get_mut(key) else { return };
        publishing.stage = Stage::Pausing;
        publishing.due_us = context.now.mono_us + pause_us;
        if let Some(channel) = channels.get_mut(&publishing.channel) {
            channel.outbox.alone.take_if(|alone| *alone == key);
            channel.outbox.paused.insert(key);
            channel.outbox.probes = true;
        }
        context.set_timer(publishing.due_us, Timer::Publish(key));
    }

    /// A stream has a new leader: unacknowledged messages are sent again, in the same order. Of each channel, only the
    /// first is sent, and the others when it is acknowledged. The stream drops duplicates by their ids.
    pub(super) fn send_again(&mut self, context: &mut Context, sending: &mut Sending<'_>, id: PartitionId) {
        let mut names = BTreeSet::new();
        for (key, publishing) in &mut self.messages.by_key {
            if publishing.partition != id || !matches!(publishing.stage, Stage::Sent | Stage::Pausing) {
                continue;
            }
            publishing.stage = Stage::Unsent;
            publishing.pause_us = RETRY_MIN_US;
            context.counters.retries += 1;
            let Some(channel) = sending.channels.get_mut(&publishing.channel) else { continue };
            channel.outbox.paused.remove(key);
            channel.outbox.alone.take_if(|alone| alone == key);
            channel.outbox.unsent.insert(*key);
            channel.outbox.probes = true;
            names.insert(Arc::clone(&publishing.channel));
        }
        for name in names {
            self.send_of_channel(context, sending, &name);
        }
    }

    /// A message's timer is due: it is retried, or given up. Returns the channel and the sequence if it is stored there and
    /// has not come back, so that it must be read.
    pub(super) fn review(
        &mut self,
        context: &mut Context,
        sending: &mut Sending<'_>,
        key: PublishingKey,
    ) -> Option<(Arc<str>, u64)> {
        let now_us = context.now.mono_us;
        let publishing = self.messages.get_mut(key)?;
        let name = Arc::clone(&publishing.channel);
        if publishing.give_up_us <= now_us {
            // The message may be stored anyway; then it arrives like another node's message.
            context.counters.abandoned += 1;
            self.end(context, sending.channels, key, Err(LogError::Unavailable));
            self.send_of_channel(context, sending, &name);
            return None;
        }
        if publishing.due_us > now_us {
            return None;
        }
        match publishing.stage {
            Stage::Pausing => {
                publishing.stage = Stage::Unsent;
                if let Some(channel) = sending.channels.get_mut(&name) {
                    channel.outbox.paused.remove(&key);
                    channel.outbox.unsent.insert(key);
                }
                context.counters.retries += 1;
                self.send_of_channel(context, sending, &name);
                None
            }
            Stage::Acknowledged(sequence) => Some((name, sequence)),
            Stage::Unsent | Stage::Sent => None,
        }
    }

    /// A message that has not come back is being read.
    pub(super) fn await_longer(&mut self, context: &mut Context, key: PublishingKey) {
        if let Some(publishing) = self.messages.get_mut(key) {
            publishing.due_us = context.now.mono_us + RETURN_TIMEOUT_US;
            context.set_timer(publishing.due_us, Timer::Publish(key));
        }
    }

    /// Ends a message whose outcome is known.
    pub(super) fn end(
        &mut self,
        context: &mut Context,
        channels: &mut Channels,
        key: PublishingKey,
        outcome: Result<u64, LogError>,
    ) {
        let Some(publishing) = self.messages.remove(key) else { return };
        if let Some(channel) = channels.get_mut(&publishing.channel) {
            channel.outbox.remove(key);
            if let Stage::Acknowledged(sequence) = publishing.stage
                && channel.outbox.acknowledged.get(&sequence) == Some(&key)
            {
                channel.outbox.acknowledged.remove(&sequence);
            }
        }
        publishing.waiter.answer(context, publishing.channel, outcome);
    }
}

/// Whether a publication has this version or a newer one.
fn is_as_new(newest: &NewestPublication, version: u64, epoch: &str) -> bool {
    newest.version >= version && (epoch.is_empty() || *newest.version_epoch == *epoch)
}

#[cfg(test)]
mod tests;
