//! What fails: connections, nodes, and servers that lose power.

use std::collections::BTreeMap;

use dunlin_cluster::{
    link::{LinkEvent, LinkName},
    names::{PartitionNames, part_of},
};

use super::{CHANNELS, ClusteredWorld, LinkQueues};

/// What a node has seen of streams that have lost their end.
#[derive(Default)]
pub(super) struct Witness {
    /// The highest sequence that it has received, by stream.
    highest: BTreeMap<String, u64>,
    /// Sequences that it has received and that were lost, with the epoch that is void since.
    lost: Vec<LostSequence>,
}

struct LostSequence {
    stream: Box<str>,
    epoch: String,
    sequence: u64,
}

impl ClusteredWorld<'_> {
    fn stream_of(&self, channel: &str) -> Box<str> {
        PartitionNames::new("dn", "log", part_of(channel, self.partitions)).stream
    }

    /// A node receives something.
    pub(super) fn witness(&mut self, place: usize, event: &LinkEvent) {
        let LinkEvent::Delivered { headers, .. } = event else { return };
        if let (Some(stream), Some(sequence)) = (headers.get("Nats-Stream"), headers.number("Nats-Sequence")) {
            let highest = self.witnesses[place].highest.entry(stream.to_owned()).or_default();
            *highest = (*highest).max(sequence);
        }
    }

    /// A stream loses its end. Nodes that crash from now on would not know of it.
    pub(super) fn lose_end(&mut self) {
        let Some((stream, kept, epoch)) = self.jetstream.lose_end(self.now_us, &mut self.links) else { return };
        self.trace.line(self.now_us, || format!("{stream} has lost what is behind {kept}, in {epoch}"));
        self.has_lost_end = true;
        for channel in CHANNELS.into_iter().filter(|channel| self.stream_of(channel) == stream).collect::<Vec<_>>() {
            self.truth.entry(channel.to_owned()).or_default().lose_behind(kept, &epoch);
            self.keyed.retain(|(of, _), offset| of != channel || *offset <= kept);
        }
        for witness in &mut self.witnesses {
            let highest = witness.highest.remove(&*stream).filter(|highest| *highest > kept);
            let lost = |sequence| LostSequence { stream: stream.clone(), epoch: epoch.clone(), sequence };
            witness.lost.extend(highest.map(lost));
        }
        if self.chance.percent(50) {
            for _ in 0..self.links.len() * 2 {
                self.cut_link();
            }
        }
    }

    /// Whether a node could know that the stream of a channel has lost its end in an epoch.
    pub(super) fn is_loss_provable(&self, channel: &str, epoch: &str) -> bool {
        let stream = self.stream_of(channel);
        let seen = self.witnesses.iter().flat_map(|witness| &witness.lost);
        let mut seen = seen.filter(|lost| lost.stream == stream && lost.epoch == epoch);
        seen.any(|lost| self.jetstream.is_loss_provable(&lost.stream, lost.sequence))
    }

    pub(super) fn cut_link(&mut self) {
        self.count("connection cut");
        let place = self.chance.below(self.links.len());
        let until_us = self.now_us + self.chance.between(0, 800_000);
        let link = *self.chance.pick(&LinkName::ALL);
        if !self.has_broadcasts && self.chance.percent(20) {
            // The node notices by itself.
            self.links[place].lead_nowhere(link);
            return;
        }
        self.links[place].cut(self.now_us, link, until_us);
        if self.chance.percent(30) {
            self.links[place].reply(self.now_us, LinkName::Live, LinkEvent::SlowConsumer);
        }
    }

    /// A node is gone at once, and another one takes its place.
    pub(super) fn crash(&mut self) {
        if !self.chance.percent(40) || self.has_lost_end {
            return;
        }
        self.count("crash");
        let place = self.chance.below(self.nodes.len());
        self.trace.line(self.now_us, || format!("node {place} crashes"));
        for client in &mut self.clients {
            if client.session.is_some_and(|(at, _)| at == place) {
                client.leave();
            }
        }
        self.asked.retain(|_, (node, _)| *node != place);
        self.nodes[place] = self.new_node();
        self.links[place] = LinkQueues::default();
        self.witnesses[place] = Witness::default();
        self.peers.forget_node(place);
        self.announce(place);
    }
}
