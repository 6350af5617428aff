//! Reads a log up to the claim of this node.

use bytes::{Bytes, BytesMut};

use super::{KeptRoom, record::ReadMessage};
use crate::{link::StoredMessage, record::EXPECTED_LAST};

/// Maximum bytes of a log that a node reads: those of some checkpoints and of what was logged between them.
const LOG_BYTES_MAX: usize = 256 << 20;

/// What is known after an answer.
#[derive(Debug)]
pub(super) enum Loaded {
    /// More messages follow.
    More,
    /// The answer lacks messages.
    Again,
    All(KeptRoom),
    /// Another node has claimed the room since.
    Taken,
    TooLarge {
        max: usize,
    },
}

/// A checkpoint whose parts are being read.
#[derive(Debug)]
struct PartialCheckpoint {
    tick: u64,
    count: usize,
    parts: Vec<Bytes>,
}

/// The part of a log that was read.
#[derive(Debug)]
pub(super) struct Loading {
    /// The sequence of this node's claim, which is the end.
    claim: u64,
    /// The sequence of the last message that was read.
    last: Option<u64>,
    building: Option<PartialCheckpoint>,
    kept: KeptRoom,
    bytes: usize,
    /// What was missing in the last answer, if anything was.
    fault: Option<&'static str>,
}

impl Loading {
    pub(super) fn until(claim: u64) -> Self {
        Self { claim, last: None, building: None, kept: KeptRoom::default(), bytes: 0, fault: None }
    }

    /// Why the log is not read yet, if it is not for want of an answer.
    pub(super) const fn fault(&self) -> Option<&'static str> {
        self.fault
    }

    /// The sequence from which to read.
    pub(super) fn from(&self) -> u64 {
        self.last.map_or(1, |last| last + 1)
    }

    /// Takes the messages of an answer, in their order.
    pub(super) fn take(&mut self, messages: &[StoredMessage]) -> Loaded {
        let before = self.last;
        for message in messages {
            if message.sequence > self.claim {
                return Loaded::Taken;
            }
            // Each message names its predecessor. The one of the first may have been purged.
            let expected = message.headers.number(EXPECTED_LAST);
            if self.last.is_some_and(|last| expected != Some(last)) {
                // Its predecessor may have been purged meanwhile, for a checkpoint that the holder before had stored.
                let fault = Some("a message is missing or damaged");
                *self = Self { fault, ..Self::until(self.claim) };
                return Loaded::Again;
            }
            if message.sequence == self.claim {
                return Loaded::All(std::mem::take(&mut self.kept));
            }
            let Some(read) = ReadMessage::decode(message) else {
                self.fault = Some("a message is none of a room's log");
                return Loaded::Again;
            };
            self.last = Some(message.sequence);
            self.bytes += message.payload.len();
            self.add(read, &message.payload);
            if self.bytes > LOG_BYTES_MAX {
                return Loaded::TooLarge { max: LOG_BYTES_MAX };
            }
        }
        // The end of the answer is not the claim, so the replica does not have it yet.
        if self.last == before { Loaded::Again } else { Loaded::More }
    }

    fn add(&mut self, read: ReadMessage, payload: &Bytes) {
        match read {
            ReadMessage::Other => {}
            ReadMessage::Ended => {
                (self.kept, self.building) = (KeptRoom::default(), None);
            }
            ReadMessage::Records(records) => {
                let from = self.kept.checkpoint.as_ref().map_or(0, |(tick, _)| *tick);
                self.kept.records.extend(records.into_iter().filter(|(tick, _)| *tick > from));
            }
            ReadMessage::Part { tick, index, count } => self.add_part((tick, index, count), payload),
        }
    }

    fn add_part(&mut self, (tick, index, count): (u64, usize, usize), payload: &Bytes) {
        if index == 0 {
            self.building = Some(PartialCheckpoint { tick, count, parts: Vec::new() });
        }
        // A holder that died between two parts has left the first ones.
        let is_next = |partial: &&mut PartialCheckpoint| {
            (partial.tick, partial.count, partial.parts.len()) == (tick, count, index)
        };
        let Some(partial) = self.building.as_mut().filter(is_next) else {
            self.building = None;
            return;
        };
        partial.parts.push(payload.clone());
        if partial.parts.len() == count {
            let size = partial.parts.iter().map(Bytes::len).sum();
            let mut whole = BytesMut::with_capacity(size);
            partial.parts.iter().for_each(|part| whole.extend_from_slice(part));
            self.kept.checkpoint = Some((tick, whole.freeze()));
            self.kept.records.retain(|(record, _)| *record > tick);
            self.building = None;
        }
    }
}
