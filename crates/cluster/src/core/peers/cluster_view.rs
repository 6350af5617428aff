//! What a node knows of its cluster: its own membership, and the live nodes.

use std::collections::BTreeSet;

use crate::{core::interest::interest_subject, names::encode_token};

use super::{LiveNode, NodeDescription, PeerCounters, PeerLimits, live_nodes::PeerTable};

/// Whether this node is a member of the cluster.
#[derive(Debug)]
pub(super) enum Membership {
    NotYet,
    Member(NodeDescription),
    Departed,
}

/// This node's view of its cluster.
#[derive(Debug)]
pub(super) struct ClusterView {
    pub(super) node: Box<str>,
    pub(super) subjects: PeerSubjects,
    pub(super) limits: PeerLimits,
    pub(super) membership: Membership,
    pub(super) is_connected: bool,
    /// From this time on, every other live node is in the table.
    pub(super) settled_us: u64,
    /// When this node last received a heartbeat of its own, since it has had its connections.
    pub(super) heard_itself_us: Option<u64>,
    pub(super) table: PeerTable,
    pub(super) counters: PeerCounters,
}

impl ClusterView {
    pub(super) fn new(prefix: &str, node: &str, limits: PeerLimits) -> Self {
        Self {
            node: node.into(),
            subjects: PeerSubjects::new(prefix, node),
            limits,
            membership: Membership::NotYet,
            is_connected: false,
            settled_us: u64::MAX,
            heard_itself_us: None,
            table: PeerTable::default(),
            counters: PeerCounters::default(),
        }
    }

    pub(super) const fn is_member(&self) -> bool {
        matches!(self.membership, Membership::Member(_))
    }

    /// Whether this node is a member of the cluster, and its connections are up.
    pub(super) const fn is_connected_member(&self) -> bool {
        self.is_connected && self.is_member()
    }

    /// Whether live nodes may be missing in the table: it is not complete yet, or this node does not even receive its
    /// own heartbeats. A connection that is open and delivers nothing does not make the other nodes dead.
    pub(super) fn may_miss_nodes(&self, now_us: u64) -> bool {
        let heard_until_us =
            self.heard_itself_us.map(|heard_us| heard_us.saturating_add(self.limits.silence_timeout_ms * 1_000));
        now_us < self.settled_us || heard_until_us.is_none_or(|until_us| until_us < now_us)
    }

    /// All live nodes, including this one, by id. Empty until this node is a member of the cluster.
    pub(super) fn live_nodes(&self) -> Vec<LiveNode> {
        let Membership::Member(about) = &self.membership else { return Vec::new() };
        let own = LiveNode { node: self.node.clone(), about: about.clone() };
        let mut nodes: Vec<LiveNode> = std::iter::once(own).chain(self.table.live()).collect();
        nodes.sort_by(|one, other| one.node.cmp(&other.node));
        nodes
    }

    /// The ids of the other live nodes of this node's version.
    pub(super) fn nodes_alike(&self) -> BTreeSet<Box<str>> {
        self.table.alike_since(0).into_iter().map(Box::from).collect()
    }

    /// The subject of a query about windows to a node with a recent heartbeat, round-robin.
    pub(super) fn window_subject(&self, now_us: u64, number: u64) -> Option<Box<str>> {
        if !self.is_connected_member() {
            return None;
        }
        // A node that is gone would cost every recovery the timeout of a query.
        let since_us = now_us.saturating_sub(self.limits.heartbeat_interval_ms * 1_500);
        let nodes = self.table.alike_since(since_us);
        let place = usize::try_from(number).unwrap_or(0).checked_rem(nodes.len())?;
        nodes.get(place).map(|node| self.subjects.windows_of(node))
    }

    /// When the next node counts as lost, if no heartbeat arrives.
    pub(super) fn silence_due_us(&self) -> Option<u64> {
        // Without connections, no heartbeats arrive.
        let seen_us = self.table.earliest_seen_us().filter(|_| self.is_connected)?;
        Some(seen_us.saturating_add(self.limits.silence_timeout_ms * 1_000))
    }
}

#[derive(Debug)]
pub(super) struct PeerSubjects {
    pub(super) heartbeats: Box<str>,
    pub(super) users: Box<str>,
    /// The prefix of the subjects of queries to one node; its token follows.
    pub(super) node_prefix: Box<str>,
    pub(super) own: Box<str>,
    pub(super) surveys: Box<str>,
    pub(super) interest: Box<str>,
    /// The prefix of the subjects of answers; the querying node's token and the number of the survey follow.
    pub(super) answer_prefix: Box<str>,
    pub(super) own_answers: Box<str>,
    /// The prefix of the subjects of messages about windows; the receiving node's token follows.
    window_prefix: Box<str>,
    pub(super) own_windows: Box<str>,
}

impl PeerSubjects {
    fn new(prefix: &str, node: &str) -> Self {
        let token = encode_token(node);
        Self {
            heartbeats: format!("{prefix}.n").into(),
            users: format!("{prefix}.u").into(),
            node_prefix: format!("{prefix}.n.").into(),
            own: format!("{prefix}.n.{token}").into(),
            surveys: format!("{prefix}.q").into(),
            interest: interest_subject(prefix),
            answer_prefix: format!("{prefix}.s.").into(),
            own_answers: format!("{prefix}.s.{token}.").into(),
            window_prefix: format!("{prefix}.w.").into(),
            own_windows: format!("{prefix}.w.{token}").into(),
        }
    }
    /// The subject of messages about windows and keys to a node.
    pub(super) fn windows_of(&self, node: &str) -> Box<str> {
        format!("{}{}", self.window_prefix, encode_token(node)).into()
    }
}
