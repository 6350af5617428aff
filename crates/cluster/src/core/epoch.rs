//! The epoch of a stream. Positions are valid in one epoch only.
//!
//! A stream's metadata contains its first epoch. When a node finds that the stream was truncated, it publishes an
//! *epoch record* in the stream, on a subject that no channel has: the next generation, with a new epoch. The record is
//! stored on the condition that its predecessor is still the newest, so only one of several nodes that find the same
//! begins the epoch. All nodes receive it in the order of the stream, and read it with each attach and each audit, from
//! a replica that has their fence. The record is published again before it expires by age, with the time at which it was
//! first stored: it began the epoch then.

use crate::{
    link::StoredMessage,
    names::fnv1a,
    record::{EPOCH, GENERATION, SINCE},
};

/// The newest epoch record of a stream; generation 0 without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EpochRecord {
    pub(super) generation: u64,
    pub(super) epoch: Box<str>,
    pub(super) sequence: u64,
    pub(super) time_ms: u64,
    /// When it was first stored, which is when the epoch began.
    pub(super) since_ms: u64,
}

/// The state of a stream's epoch on a node.
#[derive(Debug, Default)]
pub(super) struct EpochState {
    /// `None` until the stream is read for the first time.
    known: Option<EpochRecord>,
    /// Whether the stream was truncated and no new record is known yet.
    pub(super) is_renewing: bool,
    /// When a message that the stream has lost was stored; 0 if unknown. Records that were stored later begin an epoch.
    lost_ms: u64,
    /// Whether the metadata must be read before a new record is published: it may have a new epoch.
    pub(super) awaits_description: bool,
}

/// The decision about an epoch record that was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Goes,
    Begins,
    Truncated,
    Renew,
}

impl EpochRecord {
    pub(super) fn of(message: &StoredMessage) -> Option<Self> {
        let generation = message.headers.number(GENERATION).filter(|generation| *generation > 0)?;
        let epoch = message.headers.get(EPOCH)?.into();
        let time_ms = message.time_ms;
        let since_ms = message.headers.number(SINCE).map_or(time_ms, |since_ms| since_ms.min(time_ms));
        Some(Self { generation, epoch, sequence: message.sequence, time_ms, since_ms })
    }

    /// Whether the record was stored after `known`, or after the stream lost `known`. A record is stored only after one
    /// of an older generation. So of two records of the same generation, the second was stored after the first was
    /// lost.
    fn replaces(&self, known: &Self) -> bool {
        self.generation > known.generation || (self.generation == known.generation && self.epoch != known.epoch)
    }

    /// Whether both are of the same epoch. Each can be stored several times.
    fn is_same(&self, other: &Self) -> bool {
        self.generation == other.generation && self.epoch == other.epoch
    }
}

impl EpochState {
    pub(super) const fn known(&self) -> Option<&EpochRecord> {
        self.known.as_ref()
    }

    /// The epoch of the known record; `None` if the stream is in the one of its metadata.
    pub(super) fn begun(&self) -> Option<&str> {
        self.known.as_ref().filter(|known| known.generation > 0).map(|known| &*known.epoch)
    }

    /// When the known epoch began; 0 without a record.
    pub(super) fn known_since_ms(&self) -> u64 {
        self.known.as_ref().map_or(0, |known| known.since_ms)
    }

    /// Whether a record is known that was stored after each truncation.
    pub(super) const fn is_settled(&self) -> bool {
        self.known.is_some() && !self.is_renewing
    }

    pub(super) fn generation(&self) -> u64 {
        self.known.as_ref().map_or(0, |known| known.generation)
    }

    /// The stream was truncated: it has lost a message that was stored at this time.
    pub(super) fn truncated(&mut self, lost_ms: u64) {
        (self.is_renewing, self.awaits_description) = (true, true);
        self.lost_ms = self.lost_ms.max(lost_ms);
    }

    /// Decides about the newest record on a replica that has this node's fence.
    pub(super) fn judge(&self, found: &EpochRecord, fence: u64) -> Verdict {
        // A new node may find the truncation before it has read a record. A record that the stream still has was first stored before
        // everything that it has lost, or after. This deceives a node if a server's clock is ahead by more than lies between the
        // record and the loss, or if a node of an earlier version, which has not found the loss, publishes its old record again just
        // then. To begin an epoch in any case would begin one for each new node.
        let is_new = || found.generation > 0 && found.since_ms >= self.lost_ms;
        let is_replaced = self.known.as_ref().map_or_else(is_new, |known| found.replaces(known));
        match &self.known {
            // The affected channels have been interrupted.
            _ if self.is_renewing && is_replaced => Verdict::Goes,
            _ if self.is_renewing => Verdict::Renew,
            Some(known) if known.sequence > fence => Verdict::Goes,
            Some(known) if found.generation > known.generation => Verdict::Begins,
            Some(known) if found.generation < known.generation || found.epoch != known.epoch => Verdict::Truncated,
            None | Some(_) => Verdict::Goes,
        }
    }

    /// Whether the known record was published again. Another record of the same generation is one that the stream has
    /// lost, or replaces the known one: a read decides.
    pub(super) fn is_preserved_by(&self, arrived: &EpochRecord) -> bool {
        !self.is_renewing
            && self.known.as_ref().is_some_and(|known| known.is_same(arrived) && arrived.sequence > known.sequence)
    }

    /// Whether an arrived record begins an epoch. One that arrives before this node has read a record of a truncated stream may
    /// be of before the truncation, and preserved by a node that does not know of it.
    pub(super) fn is_begun_by(&self, arrived: &EpochRecord) -> bool {
        arrived.generation > self.generation() && !(self.is_renewing && self.known.is_none())
    }

    pub(super) fn adopt(&mut self, mut found: EpochRecord) {
        if let Some(known) = self.known.as_ref().filter(|known| known.is_same(&found)) {
            // A node of an earlier version stores it again without this time.
            found.since_ms = found.since_ms.min(known.since_ms);
        }
        if self.known.as_ref().is_none_or(|known| found.generation >= known.generation) {
            self.known = Some(found);
        }
        (self.is_renewing, self.lost_ms) = (false, 0);
    }

    /// This node replaces the found record. If another node does so first, that one's record shows it.
    pub(super) fn replaces(&mut self, found: EpochRecord) {
        self.known.get_or_insert(found);
    }
}

/// An epoch that no other run, stream or number has, because a node's name is random for each run.
pub(crate) fn epoch_of(node: &str, stream: &str, number: u64) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let hash = fnv1a(node.bytes().chain([0]).chain(stream.bytes()).chain(number.to_le_bytes()));
    let mixed = (hash ^ (hash >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..8).map(|place| char::from(ALPHABET[usize::try_from(mixed >> (24 + 5 * place) & 31).unwrap_or(0)])).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::link::MessageHeaders;

    #[test]
    fn epochs_are_eight_characters_and_differ() {
        let epochs =
            [epoch_of("a", "s_0", 0), epoch_of("a", "s_1", 0), epoch_of("b", "s_0", 0), epoch_of("a", "s_0", 1)];
        assert!(epochs.iter().all(|epoch| epoch.len() == 8), "{epochs:?}");
        let distinct: std::collections::BTreeSet<&String> = epochs.iter().collect();
        assert_eq!(distinct.len(), epochs.len(), "{epochs:?}");
    }

    fn record(generation: u64, epoch: &str, sequence: u64) -> EpochRecord {
        EpochRecord { generation, epoch: epoch.into(), sequence, time_ms: 0, since_ms: 0 }
    }

    #[test]
    fn a_new_node_distinguishes_records_by_the_time_of_the_truncation() {
        // It may have been stored again, which says nothing.
        let stored = |since_ms| EpochRecord { since_ms, time_ms: 900, ..record(1, "a", 6) };
        let mut state = EpochState::default();
        state.truncated(500);
        state.truncated(400);
        assert_eq!(state.judge(&stored(499), 102), Verdict::Renew, "the stream had it before the truncation");
        assert_eq!(state.judge(&stored(500), 102), Verdict::Goes, "another node has begun an epoch");
        assert!(!state.is_begun_by(&stored(600)), "it may be preserved, and a read decides");
        // This node begins an epoch, and another one is faster.
        state.replaces(stored(499));
        assert_eq!(state.judge(&stored(499), 110), Verdict::Renew);
        assert_eq!(state.judge(&record(2, "b", 103), 110), Verdict::Goes);
        assert!(state.is_begun_by(&record(2, "b", 103)));
        state.adopt(record(2, "b", 103));
        assert!(state.is_settled());
    }

    #[test]
    fn after_a_truncation_one_new_epoch_begins() {
        let none = EpochRecord::default();
        let a = record(3, "a", 270);
        for (known, found, verdict) in [
            (None, &none, Verdict::Renew),
            (None, &a, Verdict::Goes),
            (Some(&none), &a, Verdict::Goes),
            (Some(&none), &none, Verdict::Renew),
            // The known record is still there, so no node has begun an epoch since the truncation.
            (Some(&a), &a, Verdict::Renew),
            (Some(&a), &record(3, "a", 280), Verdict::Renew),
            (Some(&a), &record(2, "before", 223), Verdict::Renew),
            // Another node has begun an epoch: after the known record, or after its predecessor, because the known one
            // was lost.
            (Some(&a), &record(4, "c", 277), Verdict::Goes),
            (Some(&a), &record(3, "b", 277), Verdict::Goes),
            (Some(&a), &record(3, "b", 265), Verdict::Goes),
        ] {
            let state = EpochState { known: known.cloned(), is_renewing: true, ..EpochState::default() };
            assert_eq!(state.judge(found, 300), verdict, "{known:?}, {found:?}");
        }
    }

    #[test]
    fn without_a_truncation_the_newest_record_is_adopted() {
        let none = EpochRecord::default();
        let a = record(3, "a", 270);
        for (known, found, fence, verdict) in [
            (None, &none, 300, Verdict::Goes),
            (None, &a, 300, Verdict::Goes),
            (Some(&none), &a, 300, Verdict::Begins),
            (Some(&a), &a, 300, Verdict::Goes),
            (Some(&a), &record(3, "b", 265), 300, Verdict::Truncated),
            (Some(&a), &none, 300, Verdict::Truncated),
            // The known record arrived after the fence was stored.
            (Some(&a), &none, 260, Verdict::Goes),
        ] {
            let state = EpochState { known: known.cloned(), ..EpochState::default() };
            assert_eq!(state.judge(found, fence), verdict, "{known:?}, {found:?}");
        }
    }

    #[test]
    fn a_record_that_the_stream_has_lost_is_not_adopted_when_it_arrives_late() {
        let known = EpochState { known: Some(record(3, "b", 265)), ..EpochState::default() };
        assert!(!known.is_preserved_by(&record(3, "a", 270)));
        assert!(!known.is_preserved_by(&record(3, "b", 265)));
        assert!(known.is_preserved_by(&record(3, "b", 266)));
        assert!(!EpochState { is_renewing: true, ..known }.is_preserved_by(&record(3, "b", 266)));
    }

    #[test]
    fn an_epoch_keeps_the_time_at_which_it_began() {
        let stored = |time_ms, since_ms| EpochRecord { time_ms, since_ms, ..record(3, "a", 270) };
        let mut state = EpochState { known: Some(stored(20, 10)), ..EpochState::default() };
        state.adopt(stored(30, 30));
        assert_eq!(state.known(), Some(&stored(30, 10)), "a node of an earlier version has stored it again");
        state.adopt(EpochRecord { time_ms: 40, since_ms: 40, ..record(4, "b", 280) });
        assert_eq!(state.known_since_ms(), 40);
    }

    #[test]
    fn messages_with_invalid_headers_are_not_epoch_records() {
        let message = |headers| StoredMessage {
            subject: "s".into(),
            sequence: 9,
            last_sequence: 0,
            time_ms: 5,
            headers,
            payload: Bytes::new(),
        };
        let good = MessageHeaders::new().with(GENERATION, "2").with(EPOCH, "e");
        let expected = EpochRecord { generation: 2, epoch: "e".into(), sequence: 9, time_ms: 5, since_ms: 5 };
        assert_eq!(EpochRecord::of(&message(good.clone())), Some(expected.clone()));
        for (since, since_ms) in [("3", 3), ("7", 5), ("x", 5)] {
            let preserved = EpochRecord { since_ms, ..expected.clone() };
            assert_eq!(EpochRecord::of(&message(good.clone().with(SINCE, since))), Some(preserved));
        }
        for (generation, name) in [("0", EPOCH), ("x", EPOCH), ("", EPOCH), ("2", "Other")] {
            let headers = MessageHeaders::new().with(GENERATION, generation).with(name, "e");
            assert_eq!(EpochRecord::of(&message(headers)), None);
        }
    }
}
