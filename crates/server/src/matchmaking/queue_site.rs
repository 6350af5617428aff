//! Which node of a cluster runs the queues and the lobbies.

use std::{collections::BTreeSet, sync::Arc};

use dunlin_cluster::core::peers::LiveNode;

use crate::node::{Node, NodeCluster};

/// Where the queues run, as far as this node knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum QueueSite {
    Here,
    /// On the node with this id.
    At(Box<str>),
    /// This node does not see the cluster.
    Unknown,
}

/// The nodes that may run the queues.
pub(super) struct QueueNodes {
    node: Node,
    /// The id of this node.
    own: Box<str>,
    /// The nodes that are about to leave.
    leaving: BTreeSet<Box<str>>,
}

impl QueueNodes {
    pub(super) fn new(node: Node, own: Box<str>) -> Self {
        Self { node, own, leaving: BTreeSet::new() }
    }

    /// Another node is about to leave, so it would only give its tickets back.
    pub(super) fn note_leaving(&mut self, node: Box<str>) {
        let nodes = self.node.cluster().map(|cluster| cluster.live_nodes());
        self.leaving.retain(|leaving| nodes.iter().flat_map(|nodes| nodes.iter()).any(|live| live.node == *leaving));
        self.leaving.insert(node);
    }

    /// The id of this node if it is about to leave.
    pub(super) fn leaving(&self) -> Option<Box<str>> {
        self.node.is_draining().then(|| self.own.clone())
    }

    pub(super) fn cluster(&self) -> Option<&Arc<NodeCluster>> {
        self.node.cluster()
    }

    /// The ids of the other live nodes.
    pub(super) fn others(&self) -> Vec<Box<str>> {
        let Some(cluster) = self.node.cluster() else { return Vec::new() };
        let nodes = cluster.live_nodes();
        nodes.iter().map(|live| live.node.clone()).filter(|node| *node != self.own).collect()
    }

    /// The most senior node runs the queues. While nodes do not agree on it, one passes on the tickets that it has received.
    pub(super) fn site(&self) -> QueueSite {
        let Some(cluster) = self.node.cluster() else { return QueueSite::Here };
        let nodes = cluster.live_nodes();
        let is_draining = self.node.is_draining();
        site_of(&nodes, &self.own, |node| self.leaving.contains(node) || is_draining && *node == *self.own)
    }
}

/// Nodes that are about to leave are the last choice.
fn site_of(nodes: &[LiveNode], own: &str, is_leaving: impl Fn(&str) -> bool) -> QueueSite {
    if !nodes.iter().any(|live| *live.node == *own) {
        return QueueSite::Unknown;
    }
    match nodes.iter().min_by_key(|live| (is_leaving(&live.node), live.seniority())) {
        Some(live) if *live.node != *own => QueueSite::At(live.node.clone()),
        _ => QueueSite::Here,
    }
}

#[cfg(test)]
mod tests {
    use dunlin_cluster::core::peers::NodeDescription;

    use super::*;

    fn nodes(starts: &[(u64, &str)]) -> Vec<LiveNode> {
        let live = |(started_ms, node): &(u64, &str)| LiveNode {
            node: (*node).into(),
            about: NodeDescription { started_ms: *started_ms, ..NodeDescription::default() },
        };
        starts.iter().map(live).collect()
    }

    fn at(node: &str) -> QueueSite {
        QueueSite::At(node.into())
    }

    #[test]
    fn the_oldest_node_has_the_queues_until_it_drains() {
        let nodes = nodes(&[(7, "c"), (5, "b"), (5, "a")]);
        let site = |own: &str, leaving: &[&str]| site_of(&nodes, own, |node| leaving.contains(&node));
        assert_eq!(["a", "b", "c"].map(|own| site(own, &[])), [QueueSite::Here, at("a"), at("a")]);
        assert_eq!(["a", "b", "c"].map(|own| site(own, &["a"])), [at("b"), QueueSite::Here, at("b")]);
        assert_eq!(["a", "b", "c"].map(|own| site(own, &["a", "b", "c"])), [QueueSite::Here, at("a"), at("a")]);
        assert_eq!(site_of(&nodes[2..], "a", |_| true), QueueSite::Here, "it is alone");
    }

    #[test]
    fn a_node_that_sees_no_cluster_does_not_know() {
        assert_eq!(site_of(&[], "a", |_| false), QueueSite::Unknown);
    }
}
