//! The epoch of a stream. Positions are valid in one epoch only.
//!
//! A stream's metadata contains its first epoch. When a node finds that the stream was truncated, it publishes an
//! *epoch record* in the stream, on a subject that no channel has: the next generation, with a new epoch. The record is
//! stored on the condition that its predecessor is still the newest, so only one of several nodes that find the same
//! begins the epoch. All nodes receive it in the order of the stream, and read it with each attach and each audit, from
//! a replica that has their fence. The record is published again before it expires by age.

use bytes::Bytes;

use crate::{
    link::{LinkEffect, LinkName, MessageHeaders, StoredMessage},
    names::{PartitionId, fnv1a},
    planted::CoreBug,
    record::{EPOCH, EXPECTED_LAST, GENERATION},
};

use super::{
    Core,
    partition::{Partition, StreamFacts},
    standing::StreamKey,
    truncation::Marks,
};

/// The newest epoch record of a stream; generation 0 without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EpochRecord {
    generation: u64,
    epoch: Box<str>,
    sequence: u64,
    time_ms: u64,
}

/// The state of a stream's epoch on a node.
#[derive(Debug, Default)]
pub(super) struct EpochState {
    /// `None` until the stream is read for the first time.
    known: Option<EpochRecord>,
    /// Whether the stream was truncated and no new record is known yet.
    pub(super) is_renewing: bool,
    /// Whether the metadata must be read before a new record is published: it may have a new epoch.
    pub(super) awaits_description: bool,
}

/// The consequence of an epoch record that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EpochReview {
    /// The epoch is known and still valid.
    Settled,
    /// A new fence is in flight: the read is invalid.
    Restarted,
    /// It is read again after a pause.
    Paused,
}

/// The decision about an epoch record that was read.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Goes,
    Begins,
    Truncated,
    Renew,
}

impl EpochRecord {
    fn of(message: &StoredMessage) -> Option<Self> {
        let generation = message.headers.number(GENERATION).filter(|generation| *generation > 0)?;
        let epoch = message.headers.get(EPOCH)?.into();
        Some(Self { generation, epoch, sequence: message.sequence, time_ms: message.time_ms })
    }

    /// Whether the record was stored after `known`, or after the stream lost `known`. A record is stored only after one
    /// of an older generation. So of two records of the same generation, the second was stored after the first was
    /// lost.
    fn replaces(&self, known: &Self) -> bool {
        self.generation > known.generation || (self.generation == known.generation && self.epoch != known.epoch)
    }
}

impl EpochState {
    fn generation(&self) -> u64 {
        self.known.as_ref().map_or(0, |known| known.generation)
    }

    /// Decides about the newest record on a replica that has this node's fence.
    fn judge(&self, found: &EpochRecord, fence: u64) -> Verdict {
        let is_replaced = self.known.as_ref().map_or(found.generation > 0, |known| found.replaces(known));
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
    fn is_preserved_by(&self, arrived: &EpochRecord) -> bool {
        let is_same = |known: &EpochRecord| arrived.generation == known.generation && arrived.epoch == known.epoch;
        !self.is_renewing
            && self.known.as_ref().is_some_and(|known| is_same(known) && arrived.sequence > known.sequence)
    }

    fn adopt(&mut self, found: EpochRecord) {
        if self.known.as_ref().is_none_or(|known| found.generation >= known.generation) {
            self.known = Some(found);
        }
        self.is_renewing = false;
    }
}

impl Partition {
    /// The epoch of positions.
    pub(super) fn current_epoch(&self) -> &str {
        let record = self.epoch.known.as_ref().filter(|known| known.generation > 0);
        let made_with = self.facts.as_ref().map(|facts| &facts.epoch);
        record.map(|record| &record.epoch).or(made_with).map_or("", |epoch| epoch)
    }
}

impl Core {
    /// A stream, or one of its replicas, has lost a message. All positions in it become invalid, on all nodes.
    pub(super) fn on_hole(&mut self, id: PartitionId) {
        self.context.counters.holes += 1;
        self.on_truncation(id);
    }

    /// A stream was truncated. All positions in it become invalid, on all nodes.
    pub(super) fn on_truncation(&mut self, id: PartitionId) {
        if self.context.planted.is(CoreBug::TruncationNotNoticed) {
            return;
        }
        self.context.counters.truncations += 1;
        let epoch = &mut self.partitions[id].epoch;
        (epoch.is_renewing, epoch.awaits_description) = (true, true);
        // The stream may have been removed and created again: then its metadata has the new epoch.
        self.describe(StreamKey::Partition(id));
        self.begin_epoch(id);
    }

    /// A stream has stated its epoch and its limits.
    pub(super) fn facts_known(&mut self, id: PartitionId, facts: StreamFacts) {
        let partition = &mut self.partitions[id];
        // An epoch record may have announced the epoch of a new stream already.
        let is_known = |known: &StreamFacts| known.epoch == facts.epoch || partition.current_epoch() == &*facts.epoch;
        let is_other = partition.facts.as_ref().is_some_and(|known| !is_known(known));
        let is_first = partition.facts.is_none();
        partition.facts = Some(facts);
        partition.epoch.awaits_description = false;
        if is_other {
            // The stream was removed and created again.
            partition.epoch = EpochState::default();
            self.begin_epoch(id);
        }
        if is_first {
            self.needs_audit(id);
        }
        self.start_sync(id);
        self.resume_reads(id);
    }

    /// Handles the newest epoch record of a replica that has this node's fence, if the answer contains one.
    pub(super) fn review_epoch(&mut self, id: PartitionId, messages: &[StoredMessage], fence: u64) -> EpochReview {
        let partition = &mut self.partitions[id];
        let subject = partition.names.epoch_subject();
        let found = messages.iter().find(|message| message.subject == subject);
        let newest = found.map_or(0, |message| message.sequence);
        let found = found.and_then(EpochRecord::of).unwrap_or_default();
        match partition.epoch.judge(&found, fence) {
            Verdict::Goes => {
                if partition.epoch.known.is_none() || partition.epoch.is_renewing {
                    // What this node saw before the record may be what the stream lost before it.
                    partition.marks.forget_before(found.time_ms);
                }
                partition.epoch.adopt(found);
                self.preserve_epoch(id);
                EpochReview::Settled
            }
            Verdict::Begins => {
                partition.epoch.adopt(found);
                self.begin_epoch(id);
                EpochReview::Restarted
            }
            Verdict::Truncated => {
                self.on_truncation(id);
                EpochReview::Restarted
            }
            Verdict::Renew if partition.epoch.awaits_description => EpochReview::Paused,
            Verdict::Renew => {
                let generation = partition.epoch.generation().max(found.generation) + 1;
                let stream = partition.names.stream.clone();
                // The record of the previous attempt may have been stored, read by another node, and lost: its epoch is
                // invalid.
                let number = self.context.next_number();
                let epoch = epoch_of(&self.context.options.node, &stream, number).into();
                let record = EpochRecord { generation, epoch, sequence: newest, time_ms: 0 };
                self.publish_epoch(id, &record);
                self.restart_sync(id);
                EpochReview::Restarted
            }
        }
    }

    /// An epoch record was republished.
    pub(super) fn epoch_arrived(&mut self, id: PartitionId, message: &StoredMessage) {
        let Some(arrived) = EpochRecord::of(message) else { return };
        let partition = &mut self.partitions[id];
        if arrived.generation > partition.epoch.generation() {
            partition.epoch.adopt(arrived.clone());
            self.begin_epoch(id);
        } else if partition.epoch.is_preserved_by(&arrived) {
            partition.epoch.adopt(arrived);
            return;
        }
        // It may be the first record of a new stream.
        let facts = self.partitions[id].facts.as_ref();
        let is_of_metadata = facts.is_some_and(|facts| facts.epoch == arrived.epoch);
        if !is_of_metadata {
            self.describe(StreamKey::Partition(id));
        }
    }

    /// Announces the epoch of a stream that this node has created. The record is sent before this node's next fence.
    pub(super) fn publish_first_epoch(&mut self, id: PartitionId, epoch: Box<str>) {
        self.publish_epoch(id, &EpochRecord { generation: 1, epoch, sequence: 0, time_ms: 0 });
    }

    /// The positions of all channels become invalid, and subscribers with a position must resubscribe.
    pub(super) fn begin_epoch(&mut self, id: PartitionId) {
        let partition = &mut self.partitions[id];
        partition.marks = Marks::since(partition.epoch.known.as_ref().map_or(0, |known| known.time_ms));
        partition.forget_age_floor();
        self.seen_keys.forget_stream(id);
        self.begin_epoch_of_channels(id);
        self.needs_audit(id);
        self.restart_sync(id);
        self.start_sync(id);
    }

    /// Publishes the record again after half of its time to live.
    fn preserve_epoch(&mut self, id: PartitionId) {
        let partition = &self.partitions[id];
        let age_max_ms = partition.age_max_ms();
        let (Some(known), Some(age_max_ms)) = (partition.epoch.known.clone(), age_max_ms) else { return };
        if known.generation > 0 && self.context.now.unix_ms > known.time_ms + age_max_ms / 2 {
            self.publish_epoch(id, &known);
        }
    }

    /// Publishes a record after the one with its sequence. It uses the same connection as the next fence, before it.
    fn publish_epoch(&mut self, id: PartitionId, record: &EpochRecord) {
        let partition = &self.partitions[id];
        let headers = MessageHeaders::new()
            .with(GENERATION, record.generation.to_string())
            .with(EPOCH, record.epoch.clone())
            .with(EXPECTED_LAST, record.sequence.to_string());
        let subject = partition.names.epoch_subject();
        self.context.link(LinkEffect::Publish {
            link: LinkName::Live,
            request: None,
            subject,
            headers,
            payload: Bytes::new(),
        });
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
    use super::*;

    #[test]
    fn epochs_are_eight_characters_and_differ() {
        let epochs =
            [epoch_of("a", "s_0", 0), epoch_of("a", "s_1", 0), epoch_of("b", "s_0", 0), epoch_of("a", "s_0", 1)];
        assert!(epochs.iter().all(|epoch| epoch.len() == 8), "{epochs:?}");
        let distinct: std::collections::BTreeSet<&String> = epochs.iter().collect();
        assert_eq!(distinct.len(), epochs.len(), "{epochs:?}");
    }

    fn record(generation: u64, epoch: &str, sequence: u64) -> EpochRecord {
        EpochRecord { generation, epoch: epoch.into(), sequence, time_ms: 0 }
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
            let state = EpochState { known: known.cloned(), is_renewing: true, awaits_description: false };
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
        let expected = EpochRecord { generation: 2, epoch: "e".into(), sequence: 9, time_ms: 5 };
        assert_eq!(EpochRecord::of(&message(good)), Some(expected));
        for (generation, name) in [("0", EPOCH), ("x", EPOCH), ("", EPOCH), ("2", "Other")] {
            let headers = MessageHeaders::new().with(GENERATION, generation).with(name, "e");
            assert_eq!(EpochRecord::of(&message(headers)), None);
        }
    }
}
