//! Which node of a cluster runs the queues and the lobbies.

use std::{collections::BTreeSet, sync::Arc};

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

    /// The node that has been live for the longest time runs the queues. So they do not move when a node joins, and all nodes
    /// agree without asking each other. While they do not agree, a node passes on the tickets that it has received.
    pub(super) fn site(&self) -> QueueSite {
        let Some(cluster) = self.node.cluster() else { return QueueSite::Here };
        let nodes = cluster.live_nodes();
        let starts = nodes.iter().map(|live| (live.about.started_ms, &*live.node));
        let is_draining = self.node.is_draining();
        site_of(starts, &self.own, |node| self.leaving.contains(node) || is_draining && *node == *self.own)
    }
}

/// Nodes that are about to leave are the last choice.
fn site_of<'n>(
    starts: impl Iterator<Item = (u64, &'n str)>,
    own: &str,
    is_leaving: impl Fn(&str) -> bool,
) -> QueueSite {
    let nodes: Vec<_> = starts.collect();
    if !nodes.iter().any(|(_, node)| *node == own) {
        return QueueSite::Unknown;
    }
    match nodes.into_iter().min_by_key(|(started_ms, node)| (is_leaving(node), *started_ms, *node)) {
        Some((_, node)) if node != own => QueueSite::At(node.into()),
        _ => QueueSite::Here,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(node: &str) -> QueueSite {
        QueueSite::At(node.into())
    }

    #[test]
    fn the_oldest_node_has_the_queues_until_it_drains() {
        let nodes = [(7, "c"), (5, "b"), (5, "a")];
        let site = |own: &str, leaving: &[&str]| site_of(nodes.into_iter(), own, |node| leaving.contains(&node));
        assert_eq!(["a", "b", "c"].map(|own| site(own, &[])), [QueueSite::Here, at("a"), at("a")]);
        assert_eq!(["a", "b", "c"].map(|own| site(own, &["a"])), [at("b"), QueueSite::Here, at("b")]);
        assert_eq!(["a", "b", "c"].map(|own| site(own, &["a", "b", "c"])), [QueueSite::Here, at("a"), at("a")]);
        assert_eq!(site_of([(5, "a")].into_iter(), "a", |_| true), QueueSite::Here, "it is alone");
    }

    #[test]
    fn a_node_that_sees_no_cluster_does_not_know() {
        assert_eq!(site_of(std::iter::empty(), "a", |_| false), QueueSite::Unknown);
    }
}
