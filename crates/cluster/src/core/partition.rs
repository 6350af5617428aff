//! A partition: one stream, its known state, and the subjects that all its channels share.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{Index, IndexMut},
    sync::Arc,
};

use crate::{
    link::{LinkEffect, ReadAnswer, ReadFault, StreamState},
    names::{PartitionId, PartitionNames},
};

use super::{
    Context, CoreOptions, Requester, StreamedNamespace, epoch::EpochState, read::Reads, standing::StreamWatch,
    sync::HeadSync, truncation::Marks, window::WindowLimits,
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

/// The followed channels of a partition. One that is in none of the lists is being attached by the sync in flight.
#[derive(Debug, Default)]
pub(super) struct PartitionChannels {
    /// Channels to be attached.
    pub(super) attaching: Vec<Arc<str>>,
    /// Attached channels to be compared.
    pub(super) comparing: BTreeSet<Arc<str>>,
    /// Attached channels.
    pub(super) attached: BTreeSet<Arc<str>>,
    /// Whether one wildcard subscription receives the messages of all channels.
    is_wide: bool,
}

/// When the partition is audited.
#[derive(Debug, Default)]
pub(super) struct AuditSchedule {
    /// The next sync includes an audit.
    pub(super) is_needed: bool,
    /// When the next audit is due; timers for other times are obsolete.
    pub(super) due_us: u64,
    /// When the last audit began.
    pub(super) begun_us: u64,
}

/// A stream and its followed channels.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) names: PartitionNames,
    pub(super) facts: Option<StreamFacts>,
    pub(super) watch: StreamWatch,
    pub(super) history: HistoryLimits,
    pub(super) epoch: EpochState,
    /// Messages that this node has seen.
    pub(super) marks: Marks,
    age_floor: AgeFloors,
    pub(super) channels: PartitionChannels,
    /// The attach or audit in flight.
    pub(super) sync: Option<HeadSync>,
    pub(super) audit: AuditSchedule,
    pub(super) reads: Reads,
}

/// All partitions of this node. They are made with the core and stay, so an id is an index.
#[derive(Debug)]
pub(super) struct Partitions {
    by_id: BTreeMap<PartitionId, Partition>,
    by_live_prefix: BTreeMap<Box<str>, PartitionId>,
    by_leader_subject: BTreeMap<Box<str>, PartitionId>,
    /// Whether the subjects that do not depend on channels are subscribed to. The connection itself renews these
    /// subscriptions.
    have_subscriptions: bool,
}

impl Partitions {
    pub(super) fn new(options: &CoreOptions) -> Self {
        let mut by_id = BTreeMap::new();
        for (index, namespace) in options.namespaces.iter().enumerate() {
            let Some(namespace) = namespace else { continue };
            for part in 0..namespace.partitions.max(1) {
                let id = PartitionId { namespace: u16::try_from(index).unwrap_or(u16::MAX), part };
                by_id.insert(id, Partition::new(&options.prefix, namespace, part));
            }
        }
        let live_prefixes = by_id.iter().map(|(id, partition)| (partition.names.live_prefix().into(), *id));
        let leader_subjects = by_id.iter().map(|(id, partition)| (partition.names.leader_subject(), *id));
        Self {
            by_live_prefix: live_prefixes.collect(),
            by_leader_subject: leader_subjects.collect(),
            by_id,
            have_subscriptions: false,
        }
    }

    pub(super) fn contains(&self, id: PartitionId) -> bool {
        self.by_id.contains_key(&id)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.by_id.keys().copied()
    }

    /// The partition whose stream republishes its messages under this prefix.
    pub(super) fn with_live_prefix(&self, prefix: &str) -> Option<PartitionId> {
        self.by_live_prefix.get(prefix).copied()
    }

    /// The partition whose new leaders are announced on this subject.
    pub(super) fn with_leader_subject(&self, subject: &str) -> Option<PartitionId> {
        self.by_leader_subject.get(subject).copied()
    }
}

impl Partitions {
    /// Subscribes to the subjects that do not depend on channels: fences, epochs, and new leaders.
    pub(super) fn subscribe(&mut self, context: &mut Context) {
        if std::mem::replace(&mut self.have_subscriptions, true) {
            return;
        }
        for Partition { names, .. } in self.by_id.values() {
            let fences = names.live_fence_subject(&context.options.node);
            for subject in [fences, names.live_epoch_subject(), names.leader_subject()] {
                context.link(LinkEffect::Subscribe { subject });
            }
        }
    }
}

impl Index<PartitionId> for Partitions {
    type Output = Partition;

    fn index(&self, id: PartitionId) -> &Partition {
        &self.by_id[&id]
    }
}

impl IndexMut<PartitionId> for Partitions {
    fn index_mut(&mut self, id: PartitionId) -> &mut Partition {
        self.by_id.get_mut(&id).expect("a partition stays")
    }
}

impl Partition {
    pub(super) fn new(prefix: &str, namespace: &StreamedNamespace, part: u16) -> Self {
        Self {
            names: PartitionNames::new(prefix, &namespace.name, part),
            facts: None,
            watch: StreamWatch::default(),
            history: HistoryLimits { ttl_ms: namespace.history_ttl_ms, bytes_max: namespace.history_bytes_max },
            epoch: EpochState::default(),
            marks: Marks::default(),
            age_floor: AgeFloors::default(),
            channels: PartitionChannels::default(),
            sync: None,
            audit: AuditSchedule::default(),
            reads: Reads::default(),
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

    pub(super) const fn forget_age_floor(&mut self) {
        self.age_floor.known = None;
    }
}

impl Partition {
    /// Reads the age floor, unless it is being read. Pending reads continue when it arrives.
    pub(super) fn read_age_floor(&mut self, context: &mut Context, id: PartitionId) {
        let Some(age_max_ms) = self.age_max_ms().filter(|_| self.age_floor.asked_us.is_none()) else { return };
        self.age_floor.asked_us = Some(context.now.mono_us);
        let stream = self.names.stream.clone();
        let time_ms = context.now.unix_ms.saturating_sub(age_max_ms) + AGE_MARGIN_MS;
        let request = context.request(Requester::AgeFloor(id));
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

    /// Subscribes to the live subjects of channels, or to a wildcard for all channels once there are many.
    pub(super) fn subscribe_to(&mut self, context: &mut Context, channels: &[Arc<str>]) {
        if self.channels.is_wide {
            return;
        }
        if self.channels.attached.len() + channels.len() < context.options.limits.wide_channels_min {
            for name in channels {
                context.link(LinkEffect::Subscribe { subject: self.names.live_subject(name) });
            }
            return;
        }
        self.channels.is_wide = true;
        // The audit finds messages that the ended subscriptions did not deliver.
        self.audit.is_needed = true;
        context.link(LinkEffect::Subscribe { subject: self.names.republished_subjects() });
        for name in &self.channels.attached {
            context.link(LinkEffect::Unsubscribe { subject: self.names.live_subject(name) });
        }
    }

    /// A channel is followed no longer.
    pub(super) fn detach(&mut self, context: &mut Context, name: &Arc<str>) {
        self.channels.attached.remove(name);
        self.channels.comparing.remove(name);
        self.channels.attaching.retain(|attaching| attaching != name);
        if !self.channels.is_wide {
            context.link(LinkEffect::Unsubscribe { subject: self.names.live_subject(name) });
        }
    }
}

/// The facts in a description; `None` for a stream that Dunlin did not create.
pub(super) fn facts(state: &StreamState) -> Option<StreamFacts> {
    let epoch = state.metadata(EPOCH_KEY)?;
    // A limit that was raised later proves nothing about messages dropped before.
    let number = |key: &str| state.metadata(key).and_then(|text| text.parse::<u64>().ok());
    let kept = state.shape.messages_per_subject_max?;
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
    use crate::link::StreamShape;

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
}
