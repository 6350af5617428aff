//! Reads a log up to the claim of this node.

use bytes::{Bytes, BytesMut};

use super::{KeptRoom, record::ReadMessage};
use crate::{link::StoredMessage, record::EXPECTED_LAST};

/// Maximum bytes of a log in memory while it is read: a checkpoint, parts of the next one, and records. What a newer
/// checkpoint replaces is dropped and does not count, so a log that nobody has purged can be read as well.
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
    bytes: usize,
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
    /// The bytes of the records in `kept`.
    records_bytes: usize,
    /// What was missing in the last answer, if anything was.
    fault: Option<&'static str>,
}

impl Loading {
    pub(super) fn until(claim: u64) -> Self {
        Self { claim, last: None, building: None, kept: KeptRoom::default(), records_bytes: 0, fault: None }
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
            self.add(read, &message.payload);
            if self.bytes() > LOG_BYTES_MAX {
                return Loaded::TooLarge { max: LOG_BYTES_MAX };
            }
        }
        // The end of the answer is not the claim, so the replica does not have it yet.
        if self.last == before { Loaded::Again } else { Loaded::More }
    }

    fn bytes(&self) -> usize {
        let of_checkpoint = self.kept.checkpoint.as_ref().map_or(0, |(_, bytes)| bytes.len());
        of_checkpoint + self.building.as_ref().map_or(0, |partial| partial.bytes) + self.records_bytes
    }

    fn add(&mut self, read: ReadMessage, payload: &Bytes) {
        match read {
            ReadMessage::Other => {}
            ReadMessage::Ended => {
                (self.kept, self.building, self.records_bytes) = (KeptRoom::default(), None, 0);
            }
            ReadMessage::Records(records) => {
                let from = self.kept.checkpoint.as_ref().map_or(0, |(tick, _)| *tick);
                for (tick, record) in records.into_iter().filter(|(tick, _)| *tick > from) {
                    self.records_bytes += record.len();
                    self.kept.records.push((tick, record));
                }
            }
            ReadMessage::Part { tick, index, count } => self.add_part((tick, index, count), payload),
        }
    }

    fn add_part(&mut self, (tick, index, count): (u64, usize, usize), payload: &Bytes) {
        if index == 0 {
            self.building = Some(PartialCheckpoint { tick, count, parts: Vec::new(), bytes: 0 });
        }
        // A holder that died between two parts has left the first ones.
        let is_next = |partial: &&mut PartialCheckpoint| {
            (partial.tick, partial.count, partial.parts.len()) == (tick, count, index)
        };
        let Some(partial) = self.building.as_mut().filter(is_next) else {
            self.building = None;
            return;
        };
        partial.bytes += payload.len();
        partial.parts.push(payload.clone());
        if partial.parts.len() == count {
            let mut whole = BytesMut::with_capacity(partial.bytes);
            partial.parts.iter().for_each(|part| whole.extend_from_slice(part));
            self.kept.checkpoint = Some((tick, whole.freeze()));
            self.kept.records.retain(|(record, _)| *record > tick);
            self.records_bytes = self.kept.records.iter().map(|(_, record)| record.len()).sum();
            self.building = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::record::{LogMessage, MessageKind, put_record},
        *,
    };

    const MEBIBYTE: usize = 1 << 20;
    const RECORDS: MessageKind = MessageKind::Records { tick: 1 };

    /// A log that is read, one message at a time.
    struct Log {
        loading: Loading,
        sequence: u64,
    }

    impl Log {
        /// With as many records as fit. All messages share one body.
        fn full() -> (Self, Bytes) {
            let mut body = BytesMut::new();
            put_record(&mut body, 1, &vec![0; MEBIBYTE]);
            let body = body.freeze();
            let mut log = Self { loading: Loading::until(u64::MAX), sequence: 0 };
            for _ in 0..LOG_BYTES_MAX / MEBIBYTE {
                assert!(matches!(log.read(RECORDS, &body), Loaded::More), "at the limit");
            }
            (log, body)
        }

        fn read(&mut self, kind: MessageKind, payload: &Bytes) -> Loaded {
            self.sequence += 1;
            let (sequence, id) = (self.sequence, "id".into());
            let LogMessage { headers, payload, .. } = LogMessage::of((kind, payload.clone()), "n", id, sequence - 1);
            let subject = "s".into();
            self.loading.take(&[StoredMessage { subject, sequence, last_sequence: 0, time_ms: 0, headers, payload }])
        }
    }

    #[test]
    fn what_is_kept_of_a_log_is_bounded() {
        let (mut log, _) = Log::full();
        let mut past = BytesMut::new();
        put_record(&mut past, 1, b"1");
        assert!(matches!(log.read(RECORDS, &past.freeze()), Loaded::TooLarge { .. }), "one past it");
    }

    #[test]
    fn what_a_checkpoint_replaces_does_not_count() {
        let (mut log, body) = Log::full();
        let whole = MessageKind::Part { tick: 1, index: 0, count: 1 };
        assert!(matches!(log.read(whole, &Bytes::from_static(b"1")), Loaded::More), "all records are of before");
        let first = MessageKind::Part { tick: 2, index: 0, count: 2 };
        for _ in 0..LOG_BYTES_MAX / MEBIBYTE {
            assert!(matches!(log.read(first, &body), Loaded::More), "a first part replaces the one of before");
        }
    }
}
