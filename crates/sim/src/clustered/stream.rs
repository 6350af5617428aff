//! The stored messages of a `JetStream` stream.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dunlin_cluster::{link::StoredMessage, names::EPOCH_TOKEN, record};

#[derive(Default)]
pub struct Stream {
    pub messages: BTreeMap<u64, StoredMessage>,
    pub by_subject: BTreeMap<Box<str>, BTreeSet<u64>>,
    /// Recently removed messages, with the sequence that removed them. A lagging replica still has them.
    pub removed: VecDeque<(u64, StoredMessage)>,
    /// Messages that one of three replicas has lost.
    pub damaged: BTreeSet<u64>,
    pub last: u64,
    pub ids: BTreeMap<Box<str>, u64>,
    pub epoch: String,
    /// The epochs in which the stream was emptied, or a replica was damaged. A node that has not noticed it continues in
    /// one of them.
    pub lossy_epochs: BTreeSet<String>,
    /// The last sequence when it was emptied. No node that starts later can prove that nothing is missing after an older
    /// position.
    pub emptied_through: u64,
}

impl Stream {
    /// The stored subjects that match a subject with a trailing wildcard. A subject without a wildcard matches itself.
    pub fn subjects_like(&self, subject: &str) -> Vec<Box<str>> {
        match subject.strip_suffix('*') {
            Some(start) => self.by_subject.keys().filter(|known| known.starts_with(start)).cloned().collect(),
            None => vec![subject.into()],
        }
    }

    fn newest_record(&self) -> Option<&StoredMessage> {
        self.messages.values().rfind(|message| message.subject.ends_with(EPOCH_TOKEN))
    }

    /// The epoch of the newest epoch record.
    pub fn newest_epoch(&self) -> String {
        let record = self.newest_record();
        record.and_then(|record| record.headers.get(record::EPOCH)).unwrap_or(&self.epoch).to_owned()
    }

    /// Whether a message of a channel after an offset names one after it in an ended epoch, which the stream does not have and may
    /// have had. Its publisher had not heard of the end. The sequences from the record of the new epoch on were assigned again; for
    /// those before it, nodes cannot tell a message that was lost with the epoch from one that a replica lacks, and prove nothing.
    pub fn names_lost(&self, subject: &str, offset: u64) -> bool {
        let (Some(record), Some(stored)) = (self.newest_record(), self.by_subject.get(subject)) else { return false };
        let epoch = record.headers.get(record::EPOCH).unwrap_or_default();
        let after = stored.range(offset + 1..).filter_map(|sequence| self.messages.get(sequence));
        let mut named = after.filter_map(|message| message.headers.get(record::FOLLOWS)?.split_once(' '));
        named.any(|(sequences, of)| {
            let is_lost = |sequence: u64| sequence > offset && !stored.contains(&sequence);
            let is_proven = |sequence: u64| of == self.epoch && sequence >= record.sequence;
            let mut sequences = sequences.split(',').filter_map(|sequence| sequence.parse().ok());
            of != epoch && sequences.any(|sequence| is_lost(sequence) && !is_proven(sequence))
        })
    }

    /// Removes all messages, including the epoch record. The sequences continue.
    pub fn empty(&mut self) {
        // Nodes that follow the stream are in the epoch of the record. A node that starts now finds no record, and uses
        // the epoch in the metadata.
        self.lossy_epochs.extend([self.newest_epoch(), self.epoch.clone()]);
        self.emptied_through = self.last;
        self.messages.clear();
        self.by_subject.clear();
        self.removed.clear();
        self.damaged.clear();
    }

    /// The messages of channels that a later message of the current epoch names. Nodes can prove that these are lost.
    pub fn named(&self) -> BTreeSet<u64> {
        let epoch = self.newest_epoch();
        let follows =
            self.messages.values().filter_map(|message| message.headers.get(record::FOLLOWS)?.split_once(' '));
        let of_epoch = follows.filter(|(_, its_epoch)| *its_epoch == epoch);
        let named =
            of_epoch.flat_map(|(sequences, _)| sequences.split(',').filter_map(|sequence| sequence.parse().ok()));
        named.filter(|sequence| self.messages.contains_key(sequence)).collect()
    }

    /// The epochs in which nodes may be.
    pub fn used_epochs(&self) -> BTreeSet<String> {
        let mut epochs = self.lossy_epochs.clone();
        epochs.insert(self.newest_epoch());
        epochs
    }

    /// The names of the nodes whose newest lease record is marked as held.
    pub fn held_leases(&self) -> BTreeSet<String> {
        let newest = self.by_subject.values().filter_map(|of_subject| self.messages.get(of_subject.last()?));
        let held = newest.filter(|message| message.headers.get("Dn-Lease") == Some("held"));
        held.filter_map(|message| message.headers.get(record::NODE)).map(str::to_owned).collect()
    }
}
