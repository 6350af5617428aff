//! The partitions of a node: a stream each, with the attaches, audits and reads of its channels.

use std::{
    collections::BTreeMap,
    ops::{Index, IndexMut},
};

use crate::{
    link::LinkEffect,
    names::{PartitionId, part_of},
};

use super::{Context, CoreOptions, known_stream::KnownStream, read::Reads, sync::HeadSyncs};

/// A stream, the attaches and audits of its channels, and the reads of it.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) stream: KnownStream,
    pub(super) syncs: HeadSyncs,
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
                let partition = Partition { stream, syncs: HeadSyncs::default(), reads: Reads::default() };
                by_id.insert(id, partition);
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

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Partition> + '_ {
        self.by_id.values_mut()
    }

    /// The partition whose stream republishes its messages under this prefix.
    pub(super) fn with_live_prefix(&self, prefix: &str) -> Option<PartitionId> {
        self.by_live_prefix.get(prefix).copied()
    }

    /// The partition whose new leaders are announced on this subject.
    pub(super) fn with_leader_subject(&self, subject: &str) -> Option<PartitionId> {
        self.by_leader_subject.get(subject).copied()
    }

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
