//! What a node knows of a stream: its limits, its epoch, and the messages that it has seen in it.

use bytes::Bytes;

use crate::{
    link::{LinkEffect, LinkName, MessageHeaders, ReadAnswer, ReadFault, StoredMessage, StreamState},
    names::{PartitionId, PartitionNames},
    record::{EPOCH, EXPECTED_LAST, GENERATION, SINCE},
};

use super::{
    Context, Requester, StreamedNamespace,
    epoch::{EpochRecord, EpochState, Verdict, epoch_of},
    holes::EndedEpoch,
    stream_standing::{StreamKey, StreamWatch},
    truncation::Marks,
    window::WindowLimits,
};

/// The key of the epoch in a stream's metadata.
pub const EPOCH_KEY: &str = "dunlin.epoch";
/// The keys of the limits that the stream was created with: messages per channel, and their age in milliseconds.
pub const KEPT_KEY: &str = "dunlin.kept";
pub const AGE_KEY: &str = "dunlin.age_ms";

/// Maximum age of an age floor when a request is sent, and when its answer is evaluated. The floor must not be older
/// than its margin.
const AGE_FLOOR_FRESH_US: u64 = 5_000_000;
const AGE_FLOOR_USABLE_US: u64 = 7_500_000;
/// Margin below the age floor, for differences between clocks and for the age of the floor.
const AGE_MARGIN_MS: u64 = 10_000;

/// What a stream keeps, by its own description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StreamFacts {
    pub(super) epoch: Box<str>,
    /// Maximum number of publications in a channel's history: one fewer than the stream keeps.
    pub(super) history_max: u64,
    /// How long the stream keeps them; `None` for ever.
    pub(super) age_max_ms: Option<u64>,
    /// How long the stream remembers the ids of messages.
    pub(super) duplicate_window_ms: u64,
}

/// The first sequence that cannot have expired by age.
#[derive(Clone, Copy, Debug)]
struct AgeFloor {
    sequence: u64,
    /// When it was requested.
    asked_us: u64,
}

/// The newest age floor, and the request for the next one.
#[derive(Debug, Default)]
struct AgeFloors {
    known: Option<AgeFloor>,
    /// When the read in flight was requested.
    asked_us: Option<u64>,
}

/// What the namespace keeps of each channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct HistoryLimits {
    /// How long the publications are kept after the newest one.
    pub(super) ttl_ms: u64,
    /// Maximum bytes of the publications in memory.
    bytes_max: usize,
}

/// The consequence of an epoch record that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EpochReview {
    /// The epoch is known and still valid.
    Settled,
    /// Another node has begun an epoch.
    Began,
    /// The stream has lost the record.
    Truncated,
    /// This node has published a new record.
    Renewed,
    /// It is read again after a pause.
    Paused,
}

/// An epoch record that arrived, and that this node does not have.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrivedEpoch {
    pub(super) begins: bool,
    /// Whether it is the epoch in the metadata, as this node has read it.
    pub(super) is_described: bool,
}

/// What has changed with the description of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FactsChange {
    None,
    /// It is the first description.
    First,
    /// The stream was removed and created again.
    Replaced,
}

/// A stream, as far as it is known.
#[derive(Debug)]
pub(super) struct KnownStream {
    pub(super) id: PartitionId,
    pub(super) names: PartitionNames,
    pub(super) facts: Option<StreamFacts>,
    pub(super) watch: StreamWatch,
    pub(super) history: HistoryLimits,
    epoch: EpochState,
    /// Messages that this node has seen.
    pub(super) marks: Marks,
    age_floor: AgeFloors,
}

impl KnownStream {
    pub(super) fn new(prefix: &str, namespace: &StreamedNamespace, id: PartitionId) -> Self {
        let names = PartitionNames::new(prefix, &namespace.name, id.part);
        Self {
            id,
            watch: StreamWatch::new(StreamKey::Partition(id), &names.stream),
            names,
            facts: None,
            history: HistoryLimits { ttl_ms: namespace.history_ttl_ms, bytes_max: namespace.history_bytes_max },
            epoch: EpochState::default(),
            marks: Marks::default(),
            age_floor: AgeFloors::default(),
        }
    }

    /// The first sequence that cannot have expired by age, if it was read recently, and after `since_us`. A floor from
    /// before a channel was attached may be from before the stream was emptied.
    pub(super) fn fresh_age_floor(&self, now_us: u64, since_us: u64) -> Option<u64> {
        self.age_floor_within(now_us, AGE_FLOOR_FRESH_US, since_us)
    }

    /// The same, for the answer to a request that was sent while the floor was fresh.
    pub(super) fn usable_age_floor(&self, now_us: u64, since_us: u64) -> Option<u64> {
        self.age_floor_within(now_us, AGE_FLOOR_USABLE_US, since_us)
    }

    fn age_floor_within(&self, now_us: u64, age_us: u64, since_us: u64) -> Option<u64> {
        let facts = self.facts.as_ref()?;
        if facts.age_max_ms.is_none() {
            return Some(1);
        }
        let is_usable = |floor: &AgeFloor| now_us < floor.asked_us + age_us && floor.asked_us >= since_us;
        let floor = self.age_floor.known.filter(is_usable)?;
        Some(floor.sequence)
    }

    /// How long the stream keeps messages; `None` for ever, or before it is known.
    pub(super) fn age_max_ms(&self) -> Option<u64> {
        self.facts.as_ref().and_then(|facts| facts.age_max_ms)
    }

    pub(super) fn window_limits(&self) -> WindowLimits {
        let entries_max = self.facts.as_ref().map_or(1, |facts| facts.history_max.max(1));
        WindowLimits { entries_max, bytes_max: self.history.bytes_max }
    }

    /// Reads the age floor, unless it is being read. Pending reads continue when it arrives.
    pub(super) fn read_age_floor(&mut self, context: &mut Context) {
        let Some(age_max_ms) = self.age_max_ms().filter(|_| self.age_floor.asked_us.is_none()) else { return };
        self.age_floor.asked_us = Some(context.now.mono_us);
        let stream = self.names.stream.clone();
        let time_ms = context.now.unix_ms.saturating_sub(age_max_ms) + AGE_MARGIN_MS;
        let request = context.request(Requester::AgeFloor(self.id));
        context.link(LinkEffect::FirstSince { request, stream, time_ms });
    }

    /// Takes the answer to the request for the age floor. Returns whether it has one: this node's own fence is recent
    /// enough, so a replica without it lags.
    pub(super) fn take_age_floor(&mut self, outcome: Result<ReadAnswer, ReadFault>) -> bool {
        let asked_us = self.age_floor.asked_us.take().unwrap_or(0);
        let sequence = outcome.ok().and_then(|answer| Some(answer.messages.first()?.sequence));
        if let Some(sequence) = sequence {
            self.age_floor.known = Some(AgeFloor { sequence, asked_us });
        }
        sequence.is_some()
    }

    /// Requests the messages at the sequences of the marks.
    pub(super) fn read_marks(&self, context: &mut Context) {
        let (stream, sequences) = (self.names.stream.clone(), self.marks.sequences());
        if !sequences.is_empty() {
            let request = context.request(Requester::Marks(self.id));
            context.link(LinkEffect::Sequences { request, stream, sequences });
        }
    }

    /// The stream has stated its epoch and its limits.
    pub(super) fn take_facts(&mut self, facts: StreamFacts) -> FactsChange {
        // An epoch record may have announced the epoch of a new stream already.
        let is_known = |known: &StreamFacts| known.epoch == facts.epoch || self.current_epoch() == &*facts.epoch;
        let change = match &self.facts {
            None => FactsChange::First,
            Some(known) if is_known(known) => FactsChange::None,
            Some(_) => FactsChange::Replaced,
        };
        self.facts = Some(facts);
        self.epoch.awaits_description = false;
        if change == FactsChange::Replaced {
            self.epoch = EpochState::default();
        }
        change
    }

    /// The epoch of positions.
    pub(super) fn current_epoch(&self) -> &str {
        let made_with = self.facts.as_ref().map(|facts| &*facts.epoch);
        self.epoch.begun().or(made_with).unwrap_or("")
    }

    /// The epoch of the stream's metadata, if another one has begun since. The record of that one has its sequence in this
    /// epoch, so what had this sequence, or a later one, before is lost.
    pub(super) fn ended_epoch(&self) -> Option<EndedEpoch<'_>> {
        let (begun, facts) = self.epoch.known().zip(self.facts.as_ref())?;
        let is_ended = begun.generation > 0 && begun.epoch != facts.epoch;
        is_ended.then_some(EndedEpoch { epoch: &facts.epoch, lost_from: begun.sequence })
    }

    /// The stream was truncated: a new epoch is to begin.
    pub(super) fn truncated(&mut self, context: &mut Context) {
        self.epoch.truncated(self.marks.lost_ms());
        // The stream may have been removed and created again: then its metadata has the new epoch.
        self.watch.describe(context);
    }

    /// What was seen in an earlier epoch says nothing of this one.
    pub(super) fn begin_epoch(&mut self) {
        self.marks = Marks::since(self.epoch.known_since_ms());
        self.age_floor.known = None;
    }

    /// Handles the newest epoch record of a replica that has this node's fence, if the answer contains one.
    pub(super) fn review_epoch(
        &mut self,
        context: &mut Context,
        messages: &[StoredMessage],
        fence: u64,
    ) -> EpochReview {
        let subject = self.names.epoch_subject();
        let found = messages.iter().find(|message| message.subject == subject);
        let newest = found.map_or(0, |message| message.sequence);
        let found = found.and_then(EpochRecord::of).unwrap_or_default();
        match self.epoch.judge(&found, fence) {
            Verdict::Goes => {
                if !self.epoch.is_settled() {
                    // What this node saw before the record may be what the stream lost before it.
                    self.marks.forget_before(found.since_ms);
                }
                self.epoch.adopt(found);
                self.preserve_epoch(context);
                EpochReview::Settled
            }
            Verdict::Begins => {
                self.epoch.adopt(found);
                EpochReview::Began
            }
            Verdict::Truncated => EpochReview::Truncated,
            Verdict::Renew if self.epoch.awaits_description => EpochReview::Paused,
            Verdict::Renew => {
                let generation = self.epoch.generation().max(found.generation) + 1;
                // The record of the previous attempt may have been stored, read by another node, and lost: its epoch is
                // invalid.
                let number = context.next_number();
                let epoch = epoch_of(&context.options.node, &self.names.stream, number).into();
                let record = EpochRecord { generation, epoch, sequence: newest, ..EpochRecord::default() };
                self.publish_epoch(context, &record);
                self.epoch.replaces(found);
                EpochReview::Renewed
            }
        }
    }

    /// Takes an epoch record that was republished, if it says anything new.
    pub(super) fn epoch_arrived(&mut self, message: &StoredMessage) -> Option<ArrivedEpoch> {
        let arrived = EpochRecord::of(message)?;
        let begins = self.epoch.is_begun_by(&arrived);
        if !begins && self.epoch.is_preserved_by(&arrived) {
            self.epoch.adopt(arrived);
            return None;
        }
        // It may be the first record of a new stream.
        let is_described = self.facts.as_ref().is_some_and(|facts| facts.epoch == arrived.epoch);
        if begins {
            self.epoch.adopt(arrived);
        }
        Some(ArrivedEpoch { begins, is_described })
    }

    /// Announces the epoch of a stream that this node has created. The record is sent before this node's next fence.
    pub(super) fn publish_first_epoch(&self, context: &mut Context, epoch: Box<str>) {
        self.publish_epoch(context, &EpochRecord { generation: 1, epoch, ..EpochRecord::default() });
    }

    /// Publishes the record again after half of its time to live.
    fn preserve_epoch(&self, context: &mut Context) {
        let (Some(known), Some(age_max_ms)) = (self.epoch.known(), self.age_max_ms()) else { return };
        if known.generation > 0 && context.now.unix_ms > known.time_ms + age_max_ms / 2 {
            self.publish_epoch(context, known);
        }
    }

    /// Publishes a record after the one with its sequence. It uses the same connection as the next fence, before it.
    fn publish_epoch(&self, context: &mut Context, record: &EpochRecord) {
        let mut headers = MessageHeaders::new()
            .with(GENERATION, record.generation.to_string())
            .with(EPOCH, record.epoch.clone())
            .with(EXPECTED_LAST, record.sequence.to_string());
        if record.since_ms > 0 {
            headers.push(SINCE, record.since_ms.to_string());
        }
        let subject = self.names.epoch_subject();
        context.link(LinkEffect::Publish {
            link: LinkName::Live,
            request: None,
            subject,
            headers,
            payload: Bytes::new(),
        });
    }
}

/// The facts in a description; `None` for a stream that Dunlin did not create.
pub(super) fn facts(state: &StreamState) -> Option<StreamFacts> {
    let epoch = state.metadata(EPOCH_KEY)?;
    // A limit that was raised later proves nothing about messages dropped before.
    let number = |key: &str| state.metadata(key).and_then(|text| text.parse::<u64>().ok());
    // Without a limit, as many are kept as the stream was made with.
    let kept = state.shape.messages_per_subject_max.unwrap_or(u64::MAX);
    let kept = number(KEPT_KEY).map_or(kept, |made_with| made_with.min(kept));
    let age_ms = state.shape.age_max_ms.filter(|age_ms| *age_ms > 0);
    let made_with_ms = number(AGE_KEY).filter(|age_ms| *age_ms > 0);
    Some(StreamFacts {
        epoch: epoch.into(),
        history_max: kept.checked_sub(1)?,
        age_max_ms: age_ms.into_iter().chain(made_with_ms).min(),
        duplicate_window_ms: state.shape.duplicate_window_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        core::{CoreEffect, CoreLimits, CoreOptions},
        link::StreamShape,
    };

    fn state(kept: u64, age_ms: u64, metadata: &[(&str, &str)]) -> StreamState {
        let metadata = metadata.iter().map(|(key, value)| ((*key).into(), (*value).into()));
        let shape =
            StreamShape { messages_per_subject_max: Some(kept), age_max_ms: Some(age_ms), ..StreamShape::default() };
        StreamState { shape, metadata: metadata.collect(), ..StreamState::default() }
    }

    #[test]
    fn raised_stream_limits_do_not_extend_proven_retention() {
        let made_with = [(EPOCH_KEY, "e"), (KEPT_KEY, "11"), (AGE_KEY, "60000")];
        for (kept, age_ms, history_max, proven_age_ms) in
            [(11, 60_000, 10, 60_000), (101, 90_000, 10, 60_000), (6, 30_000, 5, 30_000)]
        {
            let facts = facts(&state(kept, age_ms, &made_with)).unwrap();
            assert_eq!((facts.history_max, facts.age_max_ms), (history_max, Some(proven_age_ms)));
        }
    }

    #[test]
    fn a_stream_without_an_epoch_is_foreign() {
        assert_eq!(facts(&state(11, 60_000, &[])), None);
    }

    /// What is published when a record that was stored at `stored_ms` is read at `now_ms`.
    fn preserved(record: MessageHeaders, stored_ms: u64, now_ms: u64) -> Option<MessageHeaders> {
        let namespace =
            StreamedNamespace { name: "chat".into(), partitions: 1, history_ttl_ms: 60_000, history_bytes_max: 1 };
        let mut context = Context::new(CoreOptions {
            prefix: "dn".into(),
            node: "n1".into(),
            namespaces: vec![None, Some(namespace.clone())],
            broadcasts: vec![None, None],
            has_leases: false,
            has_room_logs: false,
            creatable: Vec::new(),
            limits: CoreLimits::default(),
        });
        context.now.unix_ms = now_ms;
        let mut stream = KnownStream::new("dn", &namespace, PartitionId { namespace: 1, part: 0 });
        stream.facts = facts(&state(11, 60_000, &[(EPOCH_KEY, "e")]));
        let stored = StoredMessage {
            subject: stream.names.epoch_subject(),
            sequence: 9,
            last_sequence: 0,
            time_ms: stored_ms,
            headers: record,
            payload: Bytes::new(),
        };
        assert_eq!(stream.review_epoch(&mut context, &[stored], 10), EpochReview::Settled);
        match context.effects.pop()? {
            CoreEffect::Link(LinkEffect::Publish { headers, .. }) => Some(headers),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_record_is_stored_again_with_the_time_of_the_first_one() {
        let record = |since: Option<&str>| {
            let headers = MessageHeaders::new().with(GENERATION, "2").with(EPOCH, "b");
            since.into_iter().fold(headers, |headers, since| headers.with(SINCE, since))
        };
        assert_eq!(preserved(record(None), 100_000, 130_000), None, "half of its time is not over");
        let once = preserved(record(None), 100_000, 130_001).unwrap();
        assert_eq!(once, record(None).with(EXPECTED_LAST, "9").with(SINCE, "100000"));
        let twice = preserved(record(Some("100000")), 130_001, 170_000).unwrap();
        assert_eq!(twice.get(SINCE), Some("100000"));
    }
}
