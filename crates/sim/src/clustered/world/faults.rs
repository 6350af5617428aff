//! Faults: lost connections, crashed nodes, and servers that lose power.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_cluster::{
    link::{LinkEvent, LinkName},
    names::{PartitionNames, part_of},
};

use super::{CHANNELS, ClusteredWorld, LinkQueues};

/// The sequences that a node received from streams that were truncated.
#[derive(Default)]
pub(super) struct ReceivedSequences {
    /// The highest sequence that it received, by stream.
    highest: BTreeMap<String, u64>,
    /// Streams that were removed. Until it has heard of the epoch of the new one, it takes what it receives for messages of
    /// the old one.
    removed: BTreeSet<String>,
    /// Epochs that it has heard of. Until then, it takes what it receives for messages of an earlier one.
    epochs: BTreeSet<String>,
    /// Sequences that it received and that were lost, with the invalid epochs.
    lost: Vec<LostSequence>,
}

struct LostSequence {
    stream: Box<str>,
    epochs: BTreeSet<String>,
    sequence: u64,
}

impl ClusteredWorld {
    fn stream_of(&self, channel: &str) -> Box<str> {
        PartitionNames::new("dn", "log", part_of(channel, self.partitions)).stream
    }

    /// Records the sequence of a message that a node received.
    pub(super) fn record_received(&mut self, node_index: usize, event: &LinkEvent) {
        let known = match event {
            LinkEvent::Delivered { headers, .. } => headers.get("Dn-Epoch"),
            LinkEvent::StreamInfo { outcome: Ok(state), .. } => state.metadata("dunlin.epoch"),
            LinkEvent::Answered { outcome: Ok(answer), .. } => {
                answer.messages.iter().find_map(|message| message.headers.get("Dn-Epoch"))
            }
            _ => None,
        };
        self.received[node_index].epochs.extend(known.map(str::to_owned));
        let LinkEvent::Delivered { headers, .. } = event else { return };
        let (Some(stream), Some(sequence)) = (headers.get("Nats-Stream"), headers.number("Nats-Sequence")) else {
            return;
        };
        let received = &mut self.received[node_index];
        if received.removed.contains(stream) {
            if self.jetstream.newest_epoch(stream).is_none_or(|epoch| !received.epochs.contains(&epoch)) {
                return;
            }
            received.removed.remove(stream);
        }
        let highest = received.highest.entry(stream.to_owned()).or_default();
        *highest = (*highest).max(sequence);
    }

    /// Truncates a stream. No node may crash afterwards, because a new node could not detect the truncation.
    pub(super) fn truncate_stream(&mut self) {
        let Some((stream, kept, epochs)) = self.jetstream.truncate_stream(self.harness.now_us, &mut self.links) else {
            return;
        };
        self.harness.line(|| format!("{stream} is truncated after {kept}, in the epochs {epochs:?}"));
        self.was_truncated = true;
        for channel in CHANNELS.into_iter().filter(|channel| self.stream_of(channel) == stream).collect::<Vec<_>>() {
            self.truth.entry(channel.to_owned()).or_default().truncate_after(kept, &epochs);
            self.idempotency.truncate_after(channel, kept);
        }
        for sequences in &mut self.received {
            // What it received before it heard of an epoch, it forgets when it hears of it.
            let known: BTreeSet<String> = epochs.intersection(&sequences.epochs).cloned().collect();
            let highest = sequences.highest.remove(&*stream).filter(|highest| *highest > kept && !known.is_empty());
            let lost = |sequence| LostSequence { stream: stream.clone(), epochs: known, sequence };
            sequences.lost.extend(highest.map(lost));
        }
        if self.harness.chance.percent(50) {
            for _ in 0..self.links.len() * 2 {
                self.cut_link();
            }
        }
    }

    /// Removes or empties a stream, or fills the store for a while.
    pub(super) fn lose_stream(&mut self) {
        let chosen = self.stream_faults.below(64);
        match self.stream_faults.weighted(&[5, 2, 3]) {
            0 => self.remove_stream(chosen),
            1 => {
                let Some(stream) = self.jetstream.empty_stream(chosen) else { return };
                self.harness.line(|| format!("{stream} is emptied"));
                self.has_lost_stream = true;
                let emptied: Vec<&str> = CHANNELS.into_iter().filter(|of| self.stream_of(of) == stream).collect();
                for channel in emptied {
                    let truth = self.truth.entry(channel.to_owned()).or_default();
                    truth.emptied_through = truth.top();
                }
            }
            _ => {
                let full_us = self.stream_faults.between(50_000, 3_000_000);
                self.harness.line(|| format!("the store is full for {full_us} us"));
                self.jetstream.full_until_us = self.harness.now_us + full_us;
            }
        }
    }

    /// Has a replica lose messages, which the stream still has.
    pub(super) fn damage_replica(&mut self) {
        let Some((stream, damaged)) = self.jetstream.damage_replica() else { return };
        self.harness.line(|| format!("a replica of {stream} loses {damaged:?}"));
        self.has_lost_stream = true;
    }

    pub(super) fn restart_servers(&mut self) {
        let has_forgotten = self.jetstream.restart_in_turn();
        self.harness
            .trace
            .line(self.harness.now_us, || format!("the servers restart in turn; ids are forgotten: {has_forgotten}"));
    }

    fn remove_stream(&mut self, chosen: usize) {
        let Some((stream, epochs)) = self.jetstream.remove_stream(chosen, &mut self.links) else { return };
        self.harness.line(|| format!("{stream} is removed, in the epochs {epochs:?}"));
        self.has_lost_stream = true;
        for channel in CHANNELS.into_iter().filter(|channel| self.stream_of(channel) == stream).collect::<Vec<_>>() {
            self.truth.entry(channel.to_owned()).or_default().truncate_after(0, &epochs);
            self.idempotency.truncate_after(channel, 0);
            self.removed_epochs.extend(epochs.iter().cloned());
        }
        for sequences in &mut self.received {
            sequences.highest.remove(&*stream);
            sequences.removed.insert(stream.to_string());
        }
    }

    /// Whether a node can detect that the stream of a channel was truncated in an epoch.
    pub(super) fn is_loss_provable(&self, channel: &str, epoch: &str) -> bool {
        // Every node learns that a stream is gone, even if it has received nothing of it.
        if self.removed_epochs.contains(epoch) {
            return true;
        }
        let stream = self.stream_of(channel);
        let seen = self.received.iter().flat_map(|sequences| &sequences.lost);
        let mut seen = seen.filter(|lost| lost.stream == stream && lost.epochs.contains(epoch));
        seen.any(|lost| self.jetstream.is_loss_provable(&lost.stream, lost.sequence))
    }

    pub(super) fn cut_link(&mut self) {
        self.harness.count("connection cut");
        let node_index = self.harness.chance.below(self.links.len());
        let until_us = self.harness.now_us + self.harness.chance.between(0, 800_000);
        let link = *self.harness.chance.pick(&LinkName::ALL);
        if !self.has_broadcasts && self.harness.chance.percent(20) {
            // The node must detect the partition by itself.
            self.harness.line(|| format!("the server of {link:?} of node {node_index} is parted"));
            self.links[node_index].partition(link);
            return;
        }
        self.links[node_index].cut(self.harness.now_us, link, until_us);
        if self.harness.chance.percent(30) {
            self.links[node_index].reply(self.harness.now_us, LinkName::Live, LinkEvent::SlowConsumer);
        }
    }

    /// Crashes a node and replaces it by a new one.
    pub(super) fn crash(&mut self) {
        if !self.harness.chance.percent(40) || self.was_truncated {
            return;
        }
        self.harness.count("crash");
        let node_index = self.harness.chance.below(self.nodes.len());
        self.replace_node(node_index);
    }

    pub(super) fn replace_node(&mut self, node_index: usize) {
        self.harness.line(|| format!("node {node_index} crashes"));
        for client in &mut self.clients {
            if client.session.at.is_some_and(|(at, _)| at == node_index) {
                client.leave();
            }
        }
        self.requests.retain(|_, (node, _)| *node != node_index);
        self.nodes[node_index] = self.new_node();
        self.links[node_index] = LinkQueues::default();
        self.received[node_index] = ReceivedSequences::default();
        self.peers.forget_node(node_index);
        self.keys.forget_node(node_index);
        // It may have been the only one that had seen a key.
        if self.restarts.is_some() {
            self.idempotency.clear();
        }
        self.announce(node_index);
    }
}
