//! The messages of a room's log: names and headers. The body has records, or a part of a checkpoint.
//!
//! | header | value |
//! |---|---|
//! | `Dn-Room` | `claim`, `records`, `part`, `check`, `released` or `ended` |
//! | `Dn-Node` | the node that wrote it |
//! | `Dn-Refused` | of a release: the nodes that cannot run the room, encoded as in subjects, with spaces between them |
//! | `Dn-Tick` | of a part: the number of ticks in its checkpoint |
//! | `Dn-Part` | of a part: its index, a slash, and the number of parts |
//! | `Dn-Bytes` | the length of the body |
//!
//! Each record in a body is the number of ticks and the length, 8 and 4 bytes in little-endian order, and the steps.

use std::collections::BTreeSet;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::{
    link::{MessageHeaders, StoredMessage},
    names::{decode_token, encode_token},
    record::{BYTES, EXPECTED_LAST, MESSAGE_ID, NODE},
};

const ROOM: &str = "Dn-Room";
const TICK: &str = "Dn-Tick";
const PART: &str = "Dn-Part";
const REFUSED: &str = "Dn-Refused";

/// The bytes of a record besides its steps.
pub(super) const RECORD_HEAD_BYTES: usize = 12;

/// The names of the stream of rooms' logs and of its subjects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoomLogNames {
    /// The name of the stream.
    pub stream: Box<str>,
    /// The prefix of the subjects; the channel's token follows.
    start: Box<str>,
}

impl RoomLogNames {
    /// `prefix` is the setting `broker.nats.prefix`.
    pub fn new(prefix: &str) -> Self {
        // The names of the namespaces' streams end with a number.
        Self { stream: format!("{}_ROOM", encode_token(prefix)).into(), start: format!("{prefix}.k.room.").into() }
    }

    /// The subject of a room's log.
    pub fn subject_of(&self, channel: &str) -> Box<str> {
        format!("{}{}", self.start, encode_token(channel)).into()
    }

    /// The subjects of all logs.
    pub fn all_subjects(&self) -> Box<str> {
        format!("{}*", self.start).into()
    }

    /// All subjects that the stream stores.
    pub fn stored_subjects(&self) -> Box<str> {
        format!("{}>", self.start).into()
    }

    /// The channel of a log.
    pub(super) fn channel_of(&self, subject: &str) -> Option<Box<str>> {
        let channel = decode_token(subject.strip_prefix(&*self.start)?)?;
        Some(channel.into())
    }
}

/// What a message of this node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageKind {
    Claim,
    /// Shows whether this node still holds the room.
    Check,
    Records {
        /// The number of ticks in the last one.
        tick: u64,
    },
    Part {
        tick: u64,
        index: usize,
        count: usize,
    },
    End {
        keeps: bool,
    },
}

/// A message of a log that is to be stored.
#[derive(Debug)]
pub(super) struct LogMessage {
    id: Box<str>,
    pub(super) kind: MessageKind,
    pub(super) headers: MessageHeaders,
    pub(super) payload: Bytes,
}

impl LogMessage {
    pub(super) fn claim(node: &str, id: Box<str>, expected: u64) -> Self {
        Self::of((MessageKind::Claim, Bytes::new()), node, id, expected)
    }

    /// A message to be stored behind the one with the sequence `expected`.
    pub(super) fn of((kind, payload): (MessageKind, Bytes), node: &str, id: Box<str>, expected: u64) -> Self {
        let name = match kind {
            MessageKind::Claim => "claim",
            MessageKind::Check => "check",
            MessageKind::Records { .. } => "records",
            MessageKind::Part { .. } => "part",
            MessageKind::End { keeps: true } => "released",
            MessageKind::End { keeps: false } => "ended",
        };
        let mut headers = MessageHeaders::new()
            .with(ROOM, name)
            .with(NODE, node)
            .with(MESSAGE_ID, id.clone())
            .with(EXPECTED_LAST, expected.to_string())
            .with(BYTES, payload.len().to_string());
        if let MessageKind::Part { tick, index, count } = kind {
            headers.push(TICK, tick.to_string());
            headers.push(PART, format!("{index}/{count}"));
        }
        Self { id, kind, headers, payload }
    }

    /// Says in a release which nodes cannot run the room.
    pub(super) fn refused_by(&mut self, nodes: &BTreeSet<Box<str>>) {
        let nodes: Vec<_> = nodes.iter().map(|node| encode_token(node)).collect();
        self.headers.push(REFUSED, nodes.join(" "));
    }

    pub(super) fn is_claim(&self) -> bool {
        self.kind == MessageKind::Claim
    }

    /// Whether a stored message is a copy of this one.
    pub(super) fn is_copy(&self, stored: &StoredMessage) -> bool {
        stored.headers.get(MESSAGE_ID) == Some(&*self.id)
    }
}

/// What a message says about the holder of a room.
#[derive(Debug)]
pub(super) struct LogMark {
    /// The node that wrote it.
    pub(super) node: Box<str>,
    /// Whether the room has ended, and continues nowhere.
    pub(super) is_over: bool,
    /// Whether the node has released the room.
    pub(super) is_released: bool,
    /// The nodes that have found since its last tick that they cannot run it.
    pub(super) refused_by: BTreeSet<Box<str>>,
}

impl LogMark {
    /// Returns `None` for a message that is not of a log.
    pub(super) fn of(message: &StoredMessage) -> Option<Self> {
        let kind = message.headers.get(ROOM)?;
        let node = message.headers.get(NODE)?.into();
        let refused = message.headers.get(REFUSED).unwrap_or_default().split(' ').filter(|token| !token.is_empty());
        let refused_by = refused.filter_map(decode_token).map(Box::from).collect();
        Some(Self { node, is_over: kind == "ended", is_released: kind == "released", refused_by })
    }
}

/// A message of a log that was read.
#[derive(Debug)]
pub(super) enum ReadMessage {
    Records(Vec<(u64, Bytes)>),
    Part {
        tick: u64,
        index: usize,
        count: usize,
    },
    /// The log begins anew.
    Ended,
    Other,
}

impl ReadMessage {
    /// Returns `None` for a message that cannot be decoded.
    pub(super) fn decode(message: &StoredMessage) -> Option<Self> {
        Some(match message.headers.get(ROOM)? {
            "records" => Self::Records(decode_records(message.payload.clone())?),
            "part" => {
                let (index, count) = message.headers.get(PART)?.split_once('/')?;
                let (tick, index, count) = (message.headers.number(TICK)?, index.parse().ok()?, count.parse().ok()?);
                Self::Part { tick, index, count }
            }
            "ended" => Self::Ended,
            _ => Self::Other,
        })
    }
}

pub(super) fn put_record(body: &mut BytesMut, tick: u64, record: &[u8]) {
    body.put_u64_le(tick);
    body.put_u32_le(u32::try_from(record.len()).unwrap_or(u32::MAX));
    body.put_slice(record);
}

fn decode_records(mut body: Bytes) -> Option<Vec<(u64, Bytes)>> {
    let mut records = Vec::new();
    while !body.is_empty() {
        if body.len() < RECORD_HEAD_BYTES {
            return None;
        }
        let (tick, length) = (body.get_u64_le(), body.get_u32_le() as usize);
        if body.len() < length {
            return None;
        }
        records.push((tick, body.split_to(length)));
    }
    Some(records)
}
