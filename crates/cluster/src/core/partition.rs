//! A partition: one stream, its followed channels, and the reads of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{Index, IndexMut},
    sync::Arc,
};

use crate::{
    link::LinkEffect,
    names::{PartitionId, part_of},
};

use super::{Context, CoreOptions, known_stream::KnownStream, read::Reads, sync::HeadSync};

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
    pub(super) stream: KnownStream,
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
                let stream = KnownStream::new(&options.prefix, namespace, id);
                by_id.insert(id, Partition::new(stream));
            }
        }
        let live_prefixes = by_id.iter().map(|(id, partition)| (partition.stream.names.live_prefix().into(), *id));
        let leader_subjects = by_id.iter().map(|(id, partition)| (partition.stream.names.leader_subject(), *id));
        Self {
            by_live_prefix: live_prefixes.collect(),
            by_leader_subject: leader_subjects.collect(),
            by_id,
            have_subscriptions: false,
        }
    }

    /// The partition of a channel; `None` if its namespace has no stream.
    pub(super) fn of_channel(&self, options: &CoreOptions, name: &str, namespace: u16) -> Option<PartitionId> {
        let parts = options.namespaces.get(usize::from(namespace))?.as_ref()?.partitions;
        let id = PartitionId { namespace, part: part_of(name, parts) };
        self.by_id.contains_key(&id).then_some(id)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.by_id.keys().copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Partition> + '_ {
        self.by_id.values()
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
        for partition in self.by_id.values() {
            let names = &partition.stream.names;
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
    fn new(stream: KnownStream) -> Self {
        Self {
            stream,
            channels: PartitionChannels::default(),
            sync: None,
            audit: AuditSchedule::default(),
            reads: Reads::default(),
        }
    }

    /// Subscribes to the live subjects of channels, or to a wildcard for all channels once there are many.
    pub(super) fn subscribe_to(&mut self, context: &mut Context, channels: &[Arc<str>]) {
        if self.channels.is_wide {
            return;
        }
        if self.channels.attached.len() + channels.len() < context.options.limits.wide_channels_min {
            for name in channels {
                context.link(LinkEffect::Subscribe { subject: self.stream.names.live_subject(name) });
            }
            return;
        }
        self.channels.is_wide = true;
        // The audit finds messages that the ended subscriptions did not deliver.
        self.audit.is_needed = true;
        context.link(LinkEffect::Subscribe { subject: self.stream.names.republished_subjects() });
        for name in &self.channels.attached {
            context.link(LinkEffect::Unsubscribe { subject: self.stream.names.live_subject(name) });
        }
    }

    /// A channel is followed no longer.
    pub(super) fn detach(&mut self, context: &mut Context, name: &Arc<str>) {
        self.channels.attached.remove(name);
        self.channels.comparing.remove(name);
        self.channels.attaching.retain(|attaching| attaching != name);
        if !self.channels.is_wide {
            context.link(LinkEffect::Unsubscribe { subject: self.stream.names.live_subject(name) });
        }
    }
}
