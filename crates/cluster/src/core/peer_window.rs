//! Recovery from the window of another node. A node that has just attached a channel has only its newest message, and
//! clients that connect to it are behind that. A node that has followed the channel for longer has the rest in memory,
//! so NATS does not have to read it.
//!
//! One node with a recent heartbeat is queried about one channel at a time. Its answer is valid if it has the epoch of
//! this node, and all publications from the requested position up to and including the oldest one that this node has.
//! Without such an answer within a short time, the stream is read.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use dunlin_engine::log::LogError;
use serde::{Deserialize, Serialize};

use crate::{
    link::{MessageHeaders, StoredMessage},
    planted::CoreBug,
    record,
};

use super::{
    Core, Timer,
    channel::WaitingLoad,
    idempotency_questions::{KeyAnswer, KeyQuestion},
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
    Question { number: u64, node: Box<str>, channel: Box<str>, epoch: Box<str>, after: u64, through: u64 },
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

impl Core {
    /// Makes a load wait for the window of another node. Returns whether it does.
    pub(super) fn ask_for_window(&mut self, name: &Arc<str>, mut waiting: WaitingLoad) -> bool {
        let loads_max = LOADS_PER_WINDOW_MAX * self.context.options.limits.windows_max;
        let Some(after) = waiting.query.after.filter(|_| !waiting.has_asked && self.window_questions.loads < loads_max)
        else {
            return false;
        };
        waiting.has_asked = true;
        if let Some(question) = self.window_questions.by_channel.get_mut(name) {
            let is_covered = after >= question.after;
            if is_covered {
                question.loads.push(waiting);
                self.window_questions.loads += 1;
            }
            return is_covered;
        }
        let Some(channel) = self.channels.get(name) else { return false };
        let (Some(oldest), Some(epoch)) = (channel.window.oldest(), self.epoch_of_channel(name)) else {
            return false;
        };
        let (through, through_ms) = (oldest.record.publication.offset, oldest.time_ms);
        if self.window_questions.by_channel.len() >= self.context.options.limits.windows_max {
            return false;
        }
        let number = self.context.next_number();
        let Some(subject) = self.peers.window_subject(self.context.now.mono_us, number) else { return false };
        let (node, channel) = (self.context.options.node.clone(), Box::from(&**name));
        let body = WindowMessage::Question { number, node, channel, epoch, after, through };
        self.peers.send_window_message(&mut self.context, subject, body.encode());
        let due_us = self.context.now.after_ms(self.context.options.limits.window_timeout_ms);
        let question = WindowQuestion { number, due_us, after, through, through_ms, loads: vec![waiting] };
        self.window_questions.by_channel.insert(Arc::clone(name), question);
        self.window_questions.loads += 1;
        self.context.set_timer(due_us, Timer::PeerWindow(Arc::clone(name)));
        true
    }

    /// Handles a message about windows. Returns whether it is one.
    pub(super) fn take_window_message(&mut self, subject: &str, payload: &Bytes) -> bool {
        if !self.peers.is_about_windows(subject) {
            return false;
        }
        match serde_json::from_slice(payload) {
            Ok(WindowMessage::Question { number, node, channel, epoch, after, through }) => {
                let Some(subject) = self.peers.window_answer_subject(&node) else { return true };
                let records = self.records_between(&channel, &epoch, after, through);
                let answer = |records| {
                    let (channel, epoch) = (channel.clone(), epoch.clone());
                    WindowMessage::Answer(WindowAnswer { number, channel, epoch, records }).encode()
                };
                let mut body = answer(records);
                if body.len() + OVERHEAD_BYTES > self.context.payload_bytes_max {
                    body = answer(None);
                }
                self.peers.send_window_message(&mut self.context, subject, body);
            }
            Ok(WindowMessage::Answer(answer)) => self.on_window_answer(answer),
            Ok(WindowMessage::KeyQuestion(question)) => self.answer_key_question(question),
            Ok(WindowMessage::KeyAnswer(answer)) => self.on_key_answer(answer),
            Err(_) => self.context.strays.late += 1,
        }
        true
    }

    /// All publications of a channel after `after`, up to `through`, if this node has them.
    fn records_between(&self, name: &str, epoch: &str, after: u64, through: u64) -> Option<Vec<StoredRecord>> {
        let channel = self.channels.get(name).filter(|channel| channel.is_attached())?;
        let has_all = channel.window.len() > 0 && channel.has_in_window(after) && channel.position >= through;
        if !(has_all || self.context.planted.is(CoreBug::ShortWindowBelieved))
            || *self.epoch_of_channel(name)? != *epoch
        {
            return None;
        }
        let known = || channel.window.behind(after).take_while(|entry| entry.record.publication.offset <= through);
        let data_bytes: usize = known().map(|entry| entry.record.publication.data.bytes().len()).sum();
        (data_bytes <= self.context.payload_bytes_max).then(|| known().map(StoredRecord::of).collect())
    }

    fn epoch_of_channel(&self, name: &str) -> Option<Box<str>> {
        let channel = self.channels.get(name)?;
        Some(self.partitions[channel.partition].stream.current_epoch().into())
    }

    fn on_window_answer(&mut self, answer: WindowAnswer) {
        let WindowAnswer { number, channel, epoch, records } = answer;
        let name: &Arc<str> = &Arc::from(channel);
        let question = self.window_questions.by_channel.get(name).filter(|question| question.number == number);
        let Some(question) = self.context.strays.found_or_late(question) else { return };
        let (after, through, through_ms) = (question.after, question.through, question.through_ms);
        let is_same_epoch = self.epoch_of_channel(name).is_some_and(|own| own == epoch);
        let messages: Option<Vec<StoredMessage>> = records
            .filter(|_| is_same_epoch)
            .and_then(|records| records.into_iter().map(StoredRecord::into_message).collect())
            .filter(|messages: &Vec<StoredMessage>| is_rising(messages, after, (through, through_ms)));
        if let (Some(messages), Some(channel)) = (messages, self.channels.get_mut(name)) {
            let limits = self.partitions[channel.partition].stream.window_limits();
            channel.window.extend_below(&messages, after, through, limits);
            self.context.counters.peer_windows += 1;
            self.channels.bound_windows(&self.context, name);
        }
        self.end_window_question(name);
    }

    /// There was no answer in time.
    pub(super) fn window_overdue(&mut self, name: &Arc<str>) {
        if self
            .window_questions
            .by_channel
            .get(name)
            .is_some_and(|question| question.due_us <= self.context.now.mono_us)
        {
            self.end_window_question(name);
        }
    }

    fn end_window_question(&mut self, name: &Arc<str>) {
        for load in self.take_window_loads(name) {
            self.serve_load(name, load);
        }
    }

    /// Refuses the loads of a channel that wait for a window.
    pub(super) fn refuse_window_loads(&mut self, name: &Arc<str>, error: LogError) {
        for load in self.take_window_loads(name) {
            self.context.effects.push(load.refused(name, error));
        }
    }

    fn take_window_loads(&mut self, name: &Arc<str>) -> Vec<WaitingLoad> {
        let loads = self.window_questions.by_channel.remove(name).map(|question| question.loads).unwrap_or_default();
        self.window_questions.loads -= loads.len();
        loads
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
