//! Asks the other nodes of a cluster about their channels, and tells the backend if it is this node's turn.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use super::{
    Webhooks,
    occupancy::{ClusterChannels, VACANT_MS},
};
use crate::{
    node::NodeCluster,
    peers::{OccupancyQuestion, ask_all},
};

/// The time between two rounds. With it, a survey and [`VACANT_MS`], the backend knows within five seconds.
const ROUND: Duration = Duration::from_secs(1);

/// The task of a node.
pub struct Teller {
    webhooks: Arc<Webhooks>,
    cluster: Arc<NodeCluster>,
    own: Box<str>,
    known: ClusterChannels,
    begun: Instant,
}

impl Teller {
    /// For the node with the id `own`.
    pub fn new(webhooks: Arc<Webhooks>, cluster: Arc<NodeCluster>, own: &str) -> Self {
        Self { webhooks, cluster, own: own.into(), known: ClusterChannels::default(), begun: Instant::now() }
    }

    /// Runs until `stop` is used or dropped. If no other node can tell the end of the last subscriptions, this one does.
    pub async fn run(mut self, mut stop: oneshot::Receiver<()>) {
        while tokio::time::timeout(ROUND, &mut stop).await.is_err() {
            self.round(VACANT_MS).await;
        }
        let is_last = self.cluster.live_nodes().iter().all(|live| *live.node == *self.own);
        if is_last {
            self.round(0).await;
        }
    }

    async fn round(&mut self, vacant_ms: u64) {
        loop {
            let Some(changes) = self.webhooks.channels_since(self.known.version(&self.own)) else { return };
            let has_more = changes.has_more;
            self.known.apply(&self.own, changes);
            let question = OccupancyQuestion { since: self.known.versions() };
            // A node that does not answer keeps the channels that it had.
            let Ok(answers) = ask_all(&self.cluster, &question).await else { return };
            if answers.is_cut_off {
                // The others go on, and this node does not know of what.
                return;
            }
            let has_more = has_more || answers.results.iter().any(|answer| answer.more);
            for answer in answers.results {
                let (node, changes) = answer.into_parts();
                self.known.apply(&node, changes);
            }
            if !has_more {
                break;
            }
        }
        let nodes = self.cluster.live_nodes();
        let Some(own) = nodes.iter().find(|live| *live.node == *self.own) else { return };
        self.known.retain(|node| nodes.iter().any(|live| *live.node == *node));
        let age = (own.about.started_ms, &own.node);
        // A node that has never answered has no webhooks.
        let mut others = nodes.iter().filter(|live| self.known.knows(&live.node));
        let is_teller = others.all(|live| age <= (live.about.started_ms, &live.node));
        let now_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        for (channel, state) in self.known.settle(now_ms, vacant_ms, is_teller) {
            self.webhooks.tell(channel, state);
        }
    }
}
