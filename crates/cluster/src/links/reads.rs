//! Direct gets: the requests of a read, and their answers.

use async_nats::Message;
use bytes::Bytes;
use serde::Serialize;

use super::replies::{ReadPart, read_part};
use crate::{
    link::{ReadAnswer, ReadFault, StoredMessage},
    timestamps::timestamp,
};

/// Maximum bytes of one part of an answer. A larger answer could exceed the server's limit of unsent bytes, and the
/// server would then close the connection as a slow consumer.
const PART_BYTES_MAX: usize = 2 << 20;
/// Maximum number of single gets in flight, for the same reason.
const PIPELINED_MAX: usize = 64;

/// A read in flight.
#[derive(Debug)]
pub struct DirectRead {
    stream: Box<str>,
    query: ReadQuery,
    answer: ReadAnswer,
    /// The sequence of the previous message in this answer, as the server counts it.
    last_of_part: u64,
}

#[derive(Debug)]
pub enum ReadQuery {
    LastOf { subjects: Vec<Box<str>>, floor: Option<u64> },
    Range { subject: Option<Box<str>>, from: u64, messages_max: usize },
    Sequences { sequences: Vec<u64>, answered: usize },
    FirstSince { time_ms: u64 },
}

/// The progress of a read after a message.
#[derive(Debug)]
pub enum ReadProgress {
    /// More messages follow.
    Waiting,
    /// The answer reached its maximum size. Request the next part.
    Continue,
    /// The read has ended.
    Done(Result<ReadAnswer, ReadFault>),
}

#[derive(Default, Serialize)]
struct GetBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_by_subj: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    multi_last: Option<&'a [Box<str>]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    up_to_seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_bytes: Option<usize>,
}

impl DirectRead {
    pub fn new(stream: Box<str>, query: ReadQuery) -> Self {
        Self { stream, query, answer: ReadAnswer::default(), last_of_part: 0 }
    }

    /// The subject of its requests.
    pub fn subject(&self) -> String {
        format!("$JS.API.DIRECT.GET.{}", self.stream)
    }

    /// The bodies of the requests for the next part.
    pub fn bodies(&self) -> Vec<Bytes> {
        let next = self.answer.messages.last().map(|message| message.sequence + 1);
        let body = match &self.query {
            ReadQuery::LastOf { subjects, floor } => GetBody {
                multi_last: Some(subjects),
                seq: next.or(*floor),
                up_to_seq: Some(self.answer.up_to_sequence).filter(|up_to| *up_to > 0),
                max_bytes: Some(PART_BYTES_MAX),
                ..GetBody::default()
            },
            ReadQuery::Range { subject, from, messages_max } => GetBody {
                seq: Some(next.unwrap_or(*from).max(1)),
                next_by_subj: subject.as_deref(),
                batch: Some(messages_max - self.answer.messages.len()),
                max_bytes: Some(PART_BYTES_MAX),
                ..GetBody::default()
            },
            ReadQuery::Sequences { sequences, answered } => {
                let part = sequences.iter().skip(*answered).take(PIPELINED_MAX);
                return part.map(|sequence| one_sequence(*sequence)).collect();
            }
            ReadQuery::FirstSince { time_ms } => {
                GetBody { start_time: Some(timestamp(*time_ms)), batch: Some(1), ..GetBody::default() }
            }
        };
        vec![encoded(&body)]
    }

    /// Whether there is nothing to request.
    pub fn is_empty(&self) -> bool {
        match &self.query {
            ReadQuery::LastOf { subjects, .. } => subjects.is_empty(),
            ReadQuery::Range { messages_max, .. } => *messages_max == 0,
            ReadQuery::Sequences { sequences, .. } => sequences.is_empty(),
            ReadQuery::FirstSince { .. } => false,
        }
    }

    /// Handles one message of the answer.
    pub fn take(&mut self, message: Message) -> ReadProgress {
        match read_part(message) {
            Err(fault) => ReadProgress::Done(Err(fault)),
            Ok(ReadPart::Stored(message)) => self.take_stored(message),
            Ok(ReadPart::Nothing) => self.take_nothing(),
            Ok(ReadPart::End { pending, last_sequence, up_to_sequence }) => {
                self.take_end(pending, last_sequence, up_to_sequence)
            }
        }
    }

    fn take_stored(&mut self, message: StoredMessage) -> ReadProgress {
        if let ReadQuery::Sequences { sequences, answered } = &mut self.query {
            *answered += 1;
            let progress = single_get_progress(*answered, sequences.len());
            self.answer.messages.push(message);
            return progress.unwrap_or_else(|| self.finish());
        }
        if message.last_sequence != self.last_of_part || message.sequence <= self.last_of_part {
            return ReadProgress::Done(Err(ReadFault::Malformed { what: "a message of the answer is missing" }));
        }
        self.last_of_part = message.sequence;
        self.answer.messages.push(message);
        ReadProgress::Waiting
    }

    fn take_nothing(&mut self) -> ReadProgress {
        if let ReadQuery::Sequences { sequences, answered } = &mut self.query {
            *answered += 1;
            if let Some(progress) = single_get_progress(*answered, sequences.len()) {
                return progress;
            }
        }
        self.finish()
    }

    fn take_end(&mut self, pending: u64, last_sequence: u64, up_to_sequence: u64) -> ReadProgress {
        if last_sequence != self.last_of_part {
            return ReadProgress::Done(Err(ReadFault::Malformed { what: "a message of the answer is missing" }));
        }
        let is_part_empty = self.last_of_part == 0;
        self.last_of_part = 0;
        self.answer.pending = pending;
        if self.answer.up_to_sequence == 0 {
            self.answer.up_to_sequence = up_to_sequence;
        }
        let wants_more = match &self.query {
            ReadQuery::LastOf { .. } => pending > 0,
            ReadQuery::Range { messages_max, .. } => pending > 0 && self.answer.messages.len() < *messages_max,
            ReadQuery::Sequences { .. } | ReadQuery::FirstSince { .. } => false,
        };
        if wants_more && !is_part_empty {
            self.answer.is_in_parts = true;
            return ReadProgress::Continue;
        }
        self.finish()
    }

    fn finish(&mut self) -> ReadProgress {
        let mut answer = std::mem::take(&mut self.answer);
        // Answers to single gets come from several replicas, in any order.
        answer.messages.sort_by_key(|message| message.sequence);
        ReadProgress::Done(Ok(answer))
    }
}

/// The progress after `answered` answers to single gets; `None` after the last.
fn single_get_progress(answered: usize, all: usize) -> Option<ReadProgress> {
    match answered {
        _ if answered >= all => None,
        _ if answered.is_multiple_of(PIPELINED_MAX) => Some(ReadProgress::Continue),
        _ => Some(ReadProgress::Waiting),
    }
}

fn one_sequence(sequence: u64) -> Bytes {
    encoded(&GetBody { seq: Some(sequence), ..GetBody::default() })
}

fn encoded(body: &GetBody<'_>) -> Bytes {
    // Numbers, strings and a list of strings are always valid JSON.
    serde_json::to_vec(body).unwrap_or_default().into()
}
