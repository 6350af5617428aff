//! What a room has queued for its log.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::record::{MessageKind, RECORD_HEAD_BYTES, put_record};

/// Maximum size of a part of a checkpoint, and of the records that share a message. A larger one would delay the
/// publications behind it on the same connection.
const PART_BYTES: usize = 256 << 10;
/// Maximum bytes of records that wait. The room stops ticking at `held_ticks_limit`, which does not bound their bytes.
pub(super) const RECORDS_BYTES_MAX: usize = 64 << 20;
/// Reserved for the headers of a message.
const HEADER_BYTES: usize = 4_096;

/// A checkpoint that is being written, or waits.
#[derive(Debug)]
struct Checkpoint {
    tick: u64,
    size: usize,
    /// What is not sent yet.
    rest: Bytes,
    index: usize,
    /// Set with the first part, by the size that the servers take.
    count: usize,
    /// The sequence of the first message that was stored after the checkpoint was queued. Records in it may be of later
    /// ticks, so everything from there on is kept.
    kept_from: Option<u64>,
}

/// How the log ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    #[default]
    Open,
    Wanted {
        keeps: bool,
    },
    /// The room cannot be stored, and was told so. It is released as it was stored last, unless it has ended for good.
    GivenUp {
        keeps: bool,
    },
}

/// What a stored message means.
#[derive(Debug, Default)]
pub(super) struct StoredWrite {
    /// Messages with lower sequences are not needed any more.
    pub(super) purge_below: Option<u64>,
    /// The size of the checkpoint whose last part it was.
    pub(super) checkpoint_bytes: Option<usize>,
}

/// The queue of one log: records, bounded in bytes, and at most two checkpoints, which `checkpoint_size_limit` bounds.
#[derive(Debug, Default)]
pub(super) struct Writes {
    records: VecDeque<(u64, Bytes)>,
    records_bytes: usize,
    writing: Option<Checkpoint>,
    /// Waits for the one that is being written. Replaced by a newer one.
    waiting: Option<Checkpoint>,
    is_check_due: bool,
    /// Whether the log has no checkpoint yet, or none of the rules of now. Without one, its records are worth nothing.
    is_first_due: bool,
    /// Whether the last message had records. Otherwise a room that ticks as fast as messages are stored would never finish a
    /// checkpoint.
    is_turn_of_parts: bool,
    end: End,
}

impl Writes {
    /// Returns whether there was space. A room whose log has ended does not know it yet: a record behind those that were
    /// dropped would leave a gap.
    pub(super) fn push_record(&mut self, tick: u64, bytes: Bytes) -> bool {
        if self.end != End::Open {
            return true;
        }
        if self.records_bytes + bytes.len() > RECORDS_BYTES_MAX {
            return false;
        }
        self.records_bytes += bytes.len();
        self.records.push_back((tick, bytes));
        true
    }

    pub(super) fn push_checkpoint(&mut self, tick: u64, bytes: Bytes) {
        if self.end != End::Open {
            return;
        }
        let (size, index, count, kept_from) = (bytes.len(), 0, 0, None);
        let place = if self.writing.is_some() { &mut self.waiting } else { &mut self.writing };
        *place = Some(Checkpoint { tick, size, rest: bytes, index, count, kept_from });
    }

    /// The log has no checkpoint yet that records can follow.
    pub(super) const fn await_first_checkpoint(&mut self) {
        self.is_first_due = true;
    }

    /// Drops what waits, and releases the room, unless it has ended for good.
    pub(super) fn give_up(&mut self) {
        let end = End::GivenUp { keeps: !self.discards() };
        *self = Self { end, ..Self::default() };
    }

    /// Whether the room was told that its log is lost.
    pub(super) fn is_given_up(&self) -> bool {
        matches!(self.end, End::GivenUp { .. })
    }

    /// The end of a log shows as much as a check.
    pub(super) fn push_check(&mut self) {
        self.is_check_due = self.end == End::Open;
    }

    /// Whether the room is given up.
    pub(super) fn discards(&self) -> bool {
        matches!(self.end, End::Wanted { keeps: false } | End::GivenUp { keeps: false })
    }

    /// Ends the log when everything is stored. A room that does not continue needs nothing of it.
    pub(super) fn end(&mut self, keeps: bool) {
        if !keeps {
            self.records.clear();
            (self.writing, self.waiting, self.records_bytes) = (None, None, 0);
        }
        self.end = match self.end {
            End::GivenUp { keeps: was_kept } => End::GivenUp { keeps: keeps && was_kept },
            End::Open | End::Wanted { .. } => End::Wanted { keeps },
        };
    }

    /// The next message.
    ///
    /// # Errors
    /// The bytes of a record that the servers do not take.
    pub(super) fn next(&mut self, payload_max: usize) -> Result<Option<(MessageKind, Bytes)>, usize> {
        let bytes_max = payload_max.saturating_sub(HEADER_BYTES).clamp(1, PART_BYTES);
        self.is_check_due &= self.records.is_empty() && self.writing.is_none();
        let parts_first = self.is_first_due || self.is_turn_of_parts;
        if let Some(checkpoint) = self.writing.as_mut().filter(|_| parts_first) {
            self.is_turn_of_parts = false;
            return Ok(Some(checkpoint.next_part(bytes_max)));
        }
        // Players wait for records, and nobody for a checkpoint.
        if let Some((_, first)) = self.records.front() {
            self.is_turn_of_parts = true;
            let bytes = first.len() + RECORD_HEAD_BYTES;
            if bytes > payload_max.saturating_sub(HEADER_BYTES) {
                return Err(bytes);
            }
            return Ok(Some(self.next_records(bytes_max)));
        }
        if let Some(checkpoint) = &mut self.writing {
            return Ok(Some(checkpoint.next_part(bytes_max)));
        }
        if std::mem::take(&mut self.is_check_due) {
            return Ok(Some((MessageKind::Check, Bytes::new())));
        }
        Ok(match self.end {
            End::Open => None,
            End::Wanted { keeps } | End::GivenUp { keeps } => Some((MessageKind::End { keeps }, Bytes::new())),
        })
    }

    fn next_records(&mut self, bytes_max: usize) -> (MessageKind, Bytes) {
        let (mut body, mut last) = (BytesMut::new(), 0);
        while let Some((tick, record)) = self
            .records
            .pop_front_if(|(_, record)| body.is_empty() || body.len() + RECORD_HEAD_BYTES + record.len() <= bytes_max)
        {
            self.records_bytes -= record.len();
            put_record(&mut body, tick, &record);
            last = tick;
        }
        (MessageKind::Records { tick: last }, body.freeze())
    }

    /// A message is stored.
    pub(super) fn stored(&mut self, kind: &MessageKind, sequence: u64) -> StoredWrite {
        let mut stored = StoredWrite::default();
        for checkpoint in self.writing.iter_mut().chain(&mut self.waiting) {
            checkpoint.kept_from.get_or_insert(sequence);
        }
        match *kind {
            MessageKind::End { keeps: false } => stored.purge_below = Some(sequence + 1),
            MessageKind::Part { tick, index, count } if index + 1 == count => {
                // Without it, the room was given up meanwhile.
                if let Some(written) = self.writing.take_if(|checkpoint| checkpoint.tick == tick) {
                    self.is_first_due = false;
                    stored = StoredWrite { purge_below: written.kept_from, checkpoint_bytes: Some(written.size) };
                    self.writing = self.waiting.take();
                }
            }
            MessageKind::Part { .. }
            | MessageKind::Records { .. }
            | MessageKind::Claim
            | MessageKind::Check
            | MessageKind::End { keeps: true } => {}
        }
        stored
    }
}

impl Checkpoint {
    fn next_part(&mut self, bytes_max: usize) -> (MessageKind, Bytes) {
        if self.index == 0 {
            self.count = self.size.div_ceil(bytes_max).max(1);
        }
        // The size of parts must not change between them, or their number would.
        let (tick, index, count) = (self.tick, self.index, self.count);
        let left = count - index;
        let part = self.rest.split_to(self.rest.len().div_ceil(left.max(1)));
        self.index += 1;
        (MessageKind::Part { tick, index, count }, part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_written_although_records_always_wait() {
        let mut writes = Writes::default();
        writes.push_checkpoint(1, vec![0; 2 * PART_BYTES].into());
        let mut kinds = Vec::new();
        for (tick, sequence) in (2..).zip(10..14) {
            assert!(writes.push_record(tick, Bytes::from_static(b"steps")));
            let (kind, _) = writes.next(1 << 20).expect("it fits").expect("something waits");
            let stored = writes.stored(&kind, sequence);
            // The records of tick 2 were stored first.
            assert_eq!(stored.purge_below, (sequence == 13).then_some(10));
            kinds.push(matches!(kind, MessageKind::Part { .. }));
        }
        assert_eq!(kinds, [false, true, false, true]);
    }

    #[test]
    fn the_first_checkpoint_precedes_all_records() {
        let mut writes = Writes::default();
        writes.await_first_checkpoint();
        writes.push_checkpoint(0, vec![0; 2 * PART_BYTES].into());
        assert!(writes.push_record(1, Bytes::from_static(b"steps")));
        for is_part in [true, true, false] {
            let (kind, _) = writes.next(1 << 20).expect("it fits").expect("something waits");
            assert_eq!(matches!(kind, MessageKind::Part { .. }), is_part);
            writes.stored(&kind, 1);
        }
    }

    #[test]
    fn nothing_is_taken_behind_the_end() {
        let release: fn(&mut Writes) = |writes| writes.end(true);
        for end in [Writes::give_up, release] {
            let mut writes = Writes::default();
            end(&mut writes);
            assert!(writes.push_record(2, Bytes::from_static(b"steps")), "there is no limit on what is dropped");
            writes.push_checkpoint(2, Bytes::from_static(b"state"));
            writes.push_check();
            let (kind, _) = writes.next(1 << 20).expect("it fits").expect("the end waits");
            assert!(matches!(kind, MessageKind::End { keeps: true }), "{kind:?}");
        }
    }

    #[test]
    fn a_room_that_has_ended_for_good_is_not_kept_when_its_log_is_lost() {
        let close: fn(&mut Writes) = |writes| writes.end(false);
        for order in [[Writes::give_up, close], [close, Writes::give_up]] {
            let mut writes = Writes::default();
            for change in order {
                change(&mut writes);
            }
            assert!(writes.is_given_up(), "the room was told, and is not told again");
            let (kind, _) = writes.next(1 << 20).expect("it fits").expect("the end waits");
            assert!(matches!(kind, MessageKind::End { keeps: false }), "{kind:?}");
        }
    }

    #[test]
    fn a_record_at_the_limit_of_the_servers_fits_and_one_past_it_does_not() {
        let fits = |bytes: usize| {
            let mut writes = Writes::default();
            assert!(writes.push_record(1, vec![0; bytes].into()));
            writes.next(1 << 20).is_ok()
        };
        let bytes_max = (1 << 20) - HEADER_BYTES - RECORD_HEAD_BYTES;
        assert!(fits(bytes_max) && !fits(bytes_max + 1));
    }

    #[test]
    fn records_that_wait_are_bounded_in_bytes() {
        let (mut writes, mebibyte) = (Writes::default(), Bytes::from(vec![0; 1 << 20]));
        for tick in 1..=64 {
            assert!(writes.push_record(tick, mebibyte.clone()), "at the limit");
        }
        assert!(!writes.push_record(65, Bytes::from_static(b"1")), "one past it");
        writes.next(2 << 20).expect("it fits").expect("one waits");
        assert!(writes.push_record(65, mebibyte), "there is space again");
    }
}
