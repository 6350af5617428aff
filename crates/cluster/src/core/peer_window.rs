//! Recovery from the window of another node. A node that has just attached a channel has only its newest message, and
//! clients that connect to it are behind that. A node that has followed the channel for longer has the rest in memory,
//! so NATS does not have to read it.
//!
//! One node with a recent heartbeat is queried about one channel at a time. Its answer is valid if it has the epoch of
//! this node, and all publications from the requested position up to and including the oldest one that this node has.
//! Without such an answer within a short time, the stream is read.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    link::{MessageHeaders, StoredMessage},
    record,
};

use super::{
    Context, Timer,
    channel::{FollowedChannel, WaitingLoad},
    channels::Channels,
    idempotency_questions::{KeyAnswer, KeyQuestion},
    known_stream::KnownStream,
    partition::Partitions,
    peers::Peers,
    window::WindowEntry,
};

/// Maximum number of waiting loads per channel that may be queried. Further ones are read from the stream.
const LOADS_PER_WINDOW_MAX: usize = 16;
/// The overhead that NATS adds to a message.
const OVERHEAD_BYTES: usize = 1_024;

/// A query that waits for its answer.
#[derive(Debug)]
struct WindowQuestion {
    number: u64,
    due_us: u64,
    after: u64,
    /// The oldest publication that this node has, and when it was stored.
    through: u64,
    through_ms: u64,
    loads: Vec<WaitingLoad>,
}

/// The queries in flight, and the loads that wait for them.
#[derive(Debug, Default)]
pub(super) struct WindowQuestions {
    by_channel: BTreeMap<Arc<str>, WindowQuestion>,
    /// The number of loads of all queries.
    loads: usize,
}

/// A message of one node to another about a channel.
#[derive(Serialize, Deserialize)]
pub(super) enum WindowMessage {
    Question(WindowRequest),
    Answer(WindowAnswer),
    KeyQuestion(KeyQuestion),
    KeyAnswer(KeyAnswer),
}

impl WindowMessage {
    pub(super) fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("texts and numbers are JSON").into()
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct WindowRequest {
    number: u64,
    pub(super) node: Box<str>,
    pub(super) channel: Box<str>,
    epoch: Box<str>,
    after: u64,
    through: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct WindowAnswer {
    number: u64,
    channel: Box<str>,
    epoch: Box<str>,
    /// All publications after `after`, up to `through`; `None` if the node does not have them all.
    records: Option<Vec<StoredRecord>>,
}

#[derive(Serialize, Deserialize)]
struct StoredRecord {
    sequence: u64,
    time_ms: u64,
    headers: Vec<(Box<str>, Box<str>)>,
    /// The data, escaped.
    data: Box<str>,
}

impl StoredRecord {
    fn of(entry: &WindowEntry) -> Self {
        let (headers, data) = record::encode(&entry.record);
        let headers = headers.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let sequence = entry.record.publication.offset;
        Self { sequence, time_ms: entry.time_ms, headers, data: record::escape(&data).into() }
    }

    fn into_message(self) -> Option<StoredMessage> {
        let mut headers = MessageHeaders::new();
        self.headers.into_iter().for_each(|(name, value)| headers.push(name, value));
        let message = StoredMessage {
            subject: Box::default(),
            sequence: self.sequence,
            last_sequence: 0,
            time_ms: self.time_ms,
            headers,
            payload: record::unescape(&self.data)?.into(),
        };
        record::purged_through(&message).is_none().then_some(message)
    }
}

/// A channel of this node, as far as a request for another node's window needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnWindow<'a> {
    pub(super) channel: &'a Arc<str>,
    pub(super) oldest: Option<&'a WindowEntry>,
    pub(super) epoch: &'a str,
}

impl WindowQuestions {
    /// Makes a load wait for the window of another node. Returns whether it does.
    pub(super) fn ask(
        &mut self,
        context: &mut Context,
        peers: &Peers,
        own: OwnWindow<'_>,
        mut waiting: WaitingLoad,
    ) -> bool {
        let loads_max = LOADS_PER_WINDOW_MAX * context.options.limits.windows_max;
        let after = waiting.query.after.filter(|_| !waiting.has_asked && self.loads < loads_max);
        let Some(after) = after else { return false };
        waiting.has_asked = true;
        if let Some(question) = self.by_channel.get_mut(own.channel) {
            let is_covered = after >= question.after;
            if is_covered {
                question.loads.push(waiting);
                self.loads += 1;
            }
            return is_covered;
        }
        let Some(oldest) = own.oldest else { return false };
        let (through, through_ms) = (oldest.record.publication.offset, oldest.time_ms);
        if self.by_channel.len() >= context.options.limits.windows_max {
            return false;
        }
        let number = context.next_number();
        let Some(subject) = peers.window_subject(context.now.mono_us, number) else { return false };
        let (node, channel) = (context.options.node.clone(), Box::from(&**own.channel));
        let request = WindowRequest { number, node, channel, epoch: own.epoch.into(), after, through };
        context.publish(subject, MessageHeaders::new(), WindowMessage::Question(request).encode());
        let due_us = context.now.after_ms(context.options.limits.window_timeout_ms);
        let question = WindowQuestion { number, due_us, after, through, through_ms, loads: vec![waiting] };
        self.by_channel.insert(Arc::clone(own.channel), question);
        self.loads += 1;
        context.set_timer(due_us, Timer::PeerWindow(Arc::clone(own.channel)));
        true
    }

    /// Takes the answer of another node. Returns the loads that have waited for it, and their channel.
    pub(super) fn take_answer(
        &mut self,
        context: &mut Context,
        channels: &mut Channels,
        partitions: &Partitions,
        answer: WindowAnswer,
    ) -> Option<(Arc<str>, Vec<WaitingLoad>)> {
        let WindowAnswer { number, channel, epoch, records } = answer;
        let name: Arc<str> = Arc::from(channel);
        let question = self.by_channel.get(&name).filter(|question| question.number == number);
        let question = context.strays.found_or_late(question)?;
        let (after, through, through_ms) = (question.after, question.through, question.through_ms);
        if let Some(channel) = channels.get_mut(&name) {
            let stream = &partitions[channel.partition].stream;
            let messages: Option<Vec<StoredMessage>> = records
                .filter(|_| *stream.current_epoch() == *epoch)
                .and_then(|records| records.into_iter().map(StoredRecord::into_message).collect())
                .filter(|messages: &Vec<StoredMessage>| is_rising(messages, after, (through, through_ms)));
            if let Some(messages) = messages {
                channel.window.extend_below(&messages, after, through, stream.window_limits());
                context.counters.peer_windows += 1;
                channels.bound_windows(context, &name);
            }
        }
        let loads = self.take_loads(&name);
        Some((name, loads))
    }

    /// Takes the loads of a question that was not answered in time.
    pub(super) fn take_overdue(&mut self, name: &Arc<str>, now_us: u64) -> Vec<WaitingLoad> {
        let is_overdue = self.by_channel.get(name).is_some_and(|question| question.due_us <= now_us);
        if is_overdue { self.take_loads(name) } else { Vec::new() }
    }

    /// Takes the loads of a channel that wait for a window.
    pub(super) fn take_loads(&mut self, name: &Arc<str>) -> Vec<WaitingLoad> {
        let loads = self.by_channel.remove(name).map(|question| question.loads).unwrap_or_default();
        self.loads -= loads.len();
        loads
    }
}

impl WindowRequest {
    /// The answer, with the publications of the channel, if this node has them all.
    pub(super) fn answer(self, context: &Context, own: Option<(&FollowedChannel, &KnownStream)>) -> Bytes {
        let records = own.and_then(|(channel, stream)| self.records(context, channel, stream));
        let Self { number, channel, epoch, .. } = self;
        let answer = |records| {
            let (channel, epoch) = (channel.clone(), epoch.clone());
            WindowMessage::Answer(WindowAnswer { number, channel, epoch, records }).encode()
        };
        let body = answer(records);
        if body.len() + OVERHEAD_BYTES > context.payload_bytes_max { answer(None) } else { body }
    }

    /// All publications of the channel after `after`, up to `through`, if this node has them.
    fn records(&self, context: &Context, channel: &FollowedChannel, stream: &KnownStream) -> Option<Vec<StoredRecord>> {
        let has_all = channel.window.len() > 0 && channel.has_in_window(self.after) && channel.position >= self.through;
        if !channel.is_attached() || !has_all || *stream.current_epoch() != *self.epoch {
            return None;
        }
        let is_asked_for = |entry: &&WindowEntry| entry.record.publication.offset <= self.through;
        let known = || channel.window.behind(self.after).take_while(is_asked_for);
        let data_bytes: usize = known().map(|entry| entry.record.publication.data.bytes().len()).sum();
        (data_bytes <= context.payload_bytes_max).then(|| known().map(StoredRecord::of).collect())
    }
}

/// Whether the sequences of `messages` rise from `after`, and the last message has this sequence and time. A truncated
/// stream assigns sequences again, at other times.
fn is_rising(messages: &[StoredMessage], after: u64, last: (u64, u64)) -> bool {
    let ends_right = messages.last().is_some_and(|message| (message.sequence, message.time_ms) == last);
    let is_behind = messages.first().is_some_and(|message| message.sequence > after);
    ends_right && is_behind && messages.windows(2).all(|pair| pair[0].sequence < pair[1].sequence)
}

#[cfg(test)]
mod tests;
