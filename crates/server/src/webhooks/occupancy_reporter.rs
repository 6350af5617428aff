//! Asks the other nodes of a cluster about their channels, and tells the backend if it is this node's turn.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use dunlin_cluster::core::peers::LiveNode;
use tokio::sync::oneshot;

use super::{
    Webhooks,
    counters::unix_ms,
    node_channels::CHANGES_BYTES_MAX,
    occupancy::{ClusterChannels, VACANT_MS},
    shared::SharedChannels,
};
use crate::{
    node::NodeCluster,
    peers::{OccupancyQuestion, ask_all},
};

/// The time between two rounds. With it, a survey and [`VACANT_MS`], the backend knows within five seconds.
const ROUND: Duration = Duration::from_secs(1);

/// The time between two looks at a queue that has no space, while the node ends.
const LAST_LOOK: Duration = Duration::from_millis(20);

/// The task of a node.
pub struct OccupancyReporter {
    webhooks: Arc<Webhooks>,
    channels: Arc<SharedChannels>,
    cluster: Arc<NodeCluster>,
    own: Box<str>,
    known: ClusterChannels,
    /// Nodes that have answered that they have no webhooks.
    without: BTreeSet<Box<str>>,
    /// The age of the oldest change that a node has not told, as of its last answer.
    behind_ms: BTreeMap<Box<str>, u64>,
    /// Whether this node has been without the cluster since the last round. Another one has told the backend meanwhile that the
    /// channels of this node are vacated.
    was_apart: bool,
    /// How often others may have counted this node as lost, as of the last round.
    silences: u64,
    begun: Instant,
}

/// What a node has to do with webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// It has some.
    Takes,
    /// It has none.
    Without,
    /// It has not answered yet.
    Unknown,
}

impl OccupancyReporter {
    /// For the node with the id `own`; `None` without a cluster.
    pub fn new(webhooks: &Arc<Webhooks>, cluster: Arc<NodeCluster>, own: &str) -> Option<Self> {
        Some(Self {
            webhooks: Arc::clone(webhooks),
            channels: Arc::clone(webhooks.channels.as_ref()?),
            cluster,
            own: own.into(),
            known: ClusterChannels::default(),
            without: BTreeSet::new(),
            behind_ms: BTreeMap::new(),
            was_apart: false,
            silences: 0,
            begun: Instant::now(),
        })
    }

    /// Runs until `stop` is used or dropped. If no other node can tell the end of the last subscriptions, this one does.
    pub async fn run(mut self, mut stop: oneshot::Receiver<()>) {
        while tokio::time::timeout(ROUND, &mut stop).await.is_err() {
            self.round(VACANT_MS).await;
        }
        let is_last = self.cluster.live_nodes().iter().all(|live| *live.node == *self.own);
        if is_last {
            self.round(0).await;
            // The caller bounds the time.
            while self.channels.untold() > 0 {
                tokio::time::sleep(LAST_LOOK).await;
                self.tell();
            }
        }
    }

    async fn round(&mut self, vacant_ms: u64) {
        self.note_absence();
        if !self.read().await {
            return;
        }
        let nodes = self.cluster.live_nodes();
        let is_live = |node: &str| nodes.iter().any(|live| *live.node == *node);
        if !is_live(&self.own) {
            return;
        }
        self.known.retain(is_live);
        self.without.retain(|node| is_live(node));
        self.behind_ms.retain(|node, _| is_live(node));
        let now_ms = self.now_ms();
        self.channels.begin_round(now_ms, is_live);
        let others = nodes.iter().map(|live| &*live.node);
        let others = others.filter(|node| **node != *self.own && self.part_of(node) != Part::Without);
        let others: Vec<&str> = others.collect();
        let channels = &self.channels;
        self.known.settle(now_ms, vacant_ms, |channel| channels.is_known_to(channel, others.iter().copied()));
        if std::mem::replace(&mut self.was_apart, !self.cluster.state().is_ready) {
            self.known.tell_occupied_again(now_ms);
        }
        for (channel, since_unix_ms) in self.channels.take_given_up() {
            let age_ms = unix_ms().saturating_sub(since_unix_ms);
            self.known.tell_again(now_ms.saturating_sub(age_ms), channel);
        }
        match reporter_of(&nodes, |node| self.part_of(node)) {
            Some(reporter) if *reporter == *self.own => return self.tell(),
            Some(reporter) => {
                let behind_ms = self.behind_ms.get(reporter).copied().unwrap_or(0);
                self.known.forget_told(now_ms, behind_ms);
                // That node counts them. This one would count them once more when it takes its place.
                self.known.take_ignored();
            }
            // It is not known yet who tells. Nothing is forgotten until then.
            None => {}
        }
        self.channels.set_untold(0, 0);
    }

    fn note_absence(&mut self) {
        let state = self.cluster.state();
        // A process that was paused keeps its connections, so it is ready all the time. Others may have taken its lease, if
        // there are leases, or have heard none of its heartbeats.
        let silences = state.counters.leases.lost + state.counters.peers.own_silences;
        let was_silent = silences != std::mem::replace(&mut self.silences, silences);
        self.was_apart |= !state.is_ready || was_silent;
    }

    /// Reads the changes of all nodes. False if this node does not know of all.
    async fn read(&mut self) -> bool {
        loop {
            let own = self.channels.since(self.known.cursor(&self.own), CHANGES_BYTES_MAX);
            let mut has_more = own.has_more;
            self.known.apply(&self.own, own);
            let question = OccupancyQuestion::new(&self.own, &self.known.cursors());
            // A node that does not answer keeps the channels that it had.
            let Ok(answers) = ask_all(&self.cluster, &question).await else { return false };
            if answers.is_cut_off {
                // The others go on, and this node does not know of what.
                self.was_apart = true;
                return false;
            }
            self.without.extend(answers.declining);
            for answer in answers.results {
                has_more |= answer.more;
                let (node, behind_ms, changes) = answer.into_parts();
                self.without.remove(&node);
                self.known.apply(&node, changes);
                self.behind_ms.insert(node, behind_ms);
            }
            if !has_more {
                return true;
            }
        }
    }

    /// Tells what the queue has space for. The rest waits for the next round.
    fn tell(&mut self) {
        let now_ms = self.now_ms();
        while self.webhooks.has_space_for_channels()
            && let Some((time_ms, channel, state)) = self.known.next_untold()
        {
            self.webhooks.tell(channel, state, now_ms.saturating_sub(time_ms));
        }
        let ignored = self.known.take_ignored();
        if ignored > 0 {
            self.webhooks.count_ignored(ignored);
        }
        let (changes, age_ms) = self.known.untold(now_ms);
        self.channels.set_untold(changes, age_ms);
    }

    fn part_of(&self, node: &str) -> Part {
        if self.known.knows(node) {
            Part::Takes
        } else if self.without.contains(node) {
            Part::Without
        } else {
            Part::Unknown
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// The node that tells: of those with webhooks, the one that has run for longest. `None` if another one, which has run for
/// longer, has not answered yet.
fn reporter_of(nodes: &[LiveNode], part_of: impl Fn(&str) -> Part) -> Option<&str> {
    let others = nodes.iter().filter(|live| part_of(&live.node) != Part::Without);
    let oldest = others.min_by_key(|live| live.seniority())?;
    (part_of(&oldest.node) == Part::Takes).then_some(&*oldest.node)
}

#[cfg(test)]
mod tests {
    use dunlin_cluster::core::peers::NodeDescription;

    use super::*;

    #[test]
    fn the_oldest_node_with_webhooks_tells_and_nobody_until_it_is_known() {
        use Part::{Takes, Unknown, Without};

        let node = |node: &str, started_ms| LiveNode {
            node: node.into(),
            about: NodeDescription { name: "".into(), version: "1".into(), started_ms, session_tag_key: None },
        };
        let nodes = [node("a", 3), node("b", 1), node("c", 2), node("d", 2)];
        let reporter = |parts: [Part; 4]| {
            let place = |id: &str| nodes.iter().position(|live| *live.node == *id).expect("a node");
            reporter_of(&nodes, |id| parts[place(id)])
        };
        assert_eq!(reporter([Takes, Takes, Takes, Takes]), Some("b"));
        assert_eq!(reporter([Unknown, Takes, Unknown, Unknown]), Some("b"), "younger ones do not matter");
        assert_eq!(reporter([Takes, Without, Takes, Takes]), Some("c"), "of the same age, the id decides");
        assert_eq!(reporter([Takes, Unknown, Takes, Takes]), None, "it may have webhooks");
        assert_eq!(reporter([Takes, Without, Unknown, Takes]), None);
        assert_eq!(reporter([Without; 4]), None);
    }
}
