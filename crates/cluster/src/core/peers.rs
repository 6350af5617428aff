//! The nodes of the cluster: which of them are live, and queries to them.
//!
//! Each node publishes heartbeats on core NATS, which works while `JetStream` elects leaders. A node that has been
//! silent for a while, on the clock of the observer, is not live; a node that stops cleanly announces it. The time in a
//! heartbeat is the sender's, and serves to report nodes whose clock is off.
//!
//! A *survey* ([`survey`]) is a query to all live nodes, or to one of them. Each node answers once. The contents of
//! queries and answers are not part of this protocol.

mod cluster_view;
pub(crate) mod heartbeat_message;
mod limits;
mod live_nodes;
mod survey;
#[cfg(test)]
mod tests;
mod users;

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use dunlin_engine::SessionTagKey;

use crate::link::{LinkEffect, MessageHeaders};

use super::{Context, leases::LeaseChange};

use cluster_view::{ClusterView, Membership, PeerSubjects};
use heartbeat_message::Heartbeat;
use survey::Surveys;
use users::SharedUsers;

pub use limits::{PeerCounters, PeerLimits};
pub use survey::{
    MissingAnswer, NodeAnswer, QueryFault, QueryNumber, SurveyAnswers, SurveyFault, SurveyNumber, SurveyTarget,
};

/// The header with the id of the sending node.
const NODE: &str = "Dn-Node";

/// The description that a node publishes about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeDescription {
    /// A name for humans.
    pub name: Box<str>,
    /// The version of Dunlin.
    pub version: Box<str>,
    /// Unix time of its start.
    pub started_ms: u64,
    /// Proves that it has issued the id of a session; `None` of a node of an earlier version.
    pub session_tag_key: Option<SessionTagKey>,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveNode {
    /// The node's id, new at each start.
    pub node: Box<str>,
    /// The description that it publishes.
    pub about: NodeDescription,
}

impl LiveNode {
    /// The order in which nodes do what one node does for all: the first is the one that started first. So the work does not move
    /// when a node joins, and nodes that know the same nodes agree without asking each other.
    pub fn seniority(&self) -> (u64, &str) {
        (self.about.started_ms, &self.node)
    }
}

/// A change of another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerChange {
    /// The other node is live.
    Joined,
    /// The other node has stopped cleanly.
    Left,
    /// The other node has become silent.
    Lost,
    /// The other node has another version than this node. Follows [`PeerChange::Joined`].
    OtherVersion,
    /// The clocks of the other node and this node differ.
    ClockOff {
        /// The other node's clock minus that of this node.
        offset_ms: i64,
    },
    /// The clocks of the other node and this node agree again.
    ClockRight,
    /// The other node has the id of this node.
    SameId,
}

/// An input about other nodes.
#[derive(Debug)]
pub enum PeerEvent {
    /// This node is ready to answer. It becomes a member of the cluster.
    Announce {
        /// The description of this node.
        about: NodeDescription,
    },
    /// This node stops, and announces that to the others.
    Depart,
    /// Query other nodes; answered with [`PeerEffect::Surveyed`].
    Survey {
        /// Returned with the answers.
        number: SurveyNumber,
        /// The nodes to query.
        to: SurveyTarget,
        /// The query.
        payload: Bytes,
    },
    /// See [`dunlin_engine::Effect::ShareUserSessions`].
    UserSessions {
        /// The user.
        user: Arc<str>,
        /// Sessions on this node.
        sessions: u32,
    },
    /// Answer to [`PeerEffect::Queried`].
    QueryAnswered {
        /// The number of the query.
        query: QueryNumber,
        /// The answer.
        payload: Bytes,
    },
}

/// An output about other nodes.
#[derive(Debug)]
pub enum PeerEffect {
    /// Answer to [`PeerEvent::Survey`].
    Surveyed {
        /// The survey.
        number: SurveyNumber,
        /// The answers, or the reason why no node was queried.
        outcome: Result<SurveyAnswers, SurveyFault>,
    },
    /// Another node sends a query. Answered with [`PeerEvent::QueryAnswered`] within the timeout, or not at all.
    Queried {
        /// Returned with the answer.
        query: QueryNumber,
        /// The query.
        payload: Bytes,
        /// How long the other node waits.
        timeout_ms: u64,
    },
    /// See [`dunlin_engine::Event::UserSessionsElsewhere`].
    UserSessionsElsewhere {
        /// The user.
        user: Arc<str>,
        /// Sessions on the other live nodes.
        sessions: u32,
    },
    /// Another node has changed.
    Changed {
        /// The node.
        node: LiveNode,
        /// The change.
        change: PeerChange,
    },
    /// A lease of this node, or one that this node has taken, has changed.
    LeaseChanged(LeaseChange),
}

/// The other nodes, as known to this one.
#[derive(Debug)]
pub(super) struct Peers {
    view: ClusterView,
    surveys: Surveys,
    users: SharedUsers,
    heartbeat_due_us: Option<u64>,
    /// When the connection was up for a heartbeat last. While it is down, they are dropped.
    heartbeat_sent_us: Option<u64>,
    /// The next deadline. Cached, because each event of the cluster compares it.
    due_us: Option<u64>,
    unusable_streams: u32,
}

impl Peers {
    pub(super) fn new(prefix: &str, node: &str, limits: PeerLimits) -> Self {
        Self {
            view: ClusterView::new(prefix, node, limits),
            surveys: Surveys::default(),
            users: SharedUsers::default(),
            heartbeat_due_us: None,
            heartbeat_sent_us: None,
            due_us: None,
            unusable_streams: 0,
        }
    }

    pub(super) fn handle(&mut self, context: &mut Context, event: PeerEvent) {
        match event {
            PeerEvent::Announce { about } => self.announce(context, about),
            PeerEvent::Depart => self.depart(context),
            PeerEvent::Survey { number, to, payload } => {
                self.surveys.begin(context, &mut self.view, number, to, payload);
            }
            PeerEvent::QueryAnswered { query, payload } => {
                self.surveys.answer_query(context, &self.view, query, payload);
            }
            PeerEvent::UserSessions { user, sessions } => self.users.set_own(user, sessions),
        }
        self.set_due();
    }

    /// Handles a change of the connections.
    pub(super) fn on_links(&mut self, context: &mut Context) {
        let is_connected = context.links.live && context.links.publish;
        let was_connected = std::mem::replace(&mut self.view.is_connected, is_connected);
        if is_connected && !was_connected {
            self.rejoin(context);
        }
        self.set_due();
    }

    /// Handles a message of this protocol. Returns whether it is one.
    pub(super) fn take(
        &mut self,
        context: &mut Context,
        subject: &str,
        headers: &MessageHeaders,
        payload: &Bytes,
    ) -> bool {
        let Self { view, surveys, users, .. } = self;
        if *subject == *view.subjects.heartbeats {
            self.on_heartbeat(context, payload);
        } else if *subject == *view.subjects.users {
            users.on_message(context, view, headers, payload);
        } else if *subject == *view.subjects.surveys || *subject == *view.subjects.own {
            surveys.on_query(context, view, headers, payload.clone());
        } else if let Some(number) = subject.strip_prefix(&*view.subjects.own_answers) {
            surveys.on_answer(context, view, number, headers, payload.clone());
        } else {
            return false;
        }
        self.set_due();
        true
    }

    /// The next deadline of [`Self::run_deadlines`].
    pub(super) const fn next_deadline_us(&self) -> Option<u64> {
        self.due_us
    }

    fn set_due(&mut self) {
        let dues = [self.heartbeat_due_us, self.view.silence_due_us(), self.surveys.due_us(&self.view)];
        self.due_us = dues.into_iter().flatten().min();
    }

    pub(super) fn run_deadlines(&mut self, context: &mut Context) {
        let now_us = context.now.mono_us;
        let Some(due_us) = self.due_us.filter(|due_us| *due_us <= now_us) else { return };
        if now_us - due_us > self.view.limits.heartbeat_interval_ms * 1_000 {
            // This node itself was paused, and has not read the others' messages of that time yet.
            self.view.table.mark_all_seen(now_us);
            self.view.heard_itself_us = self.view.heard_itself_us.and(Some(now_us));
        }
        self.send_due_heartbeat(context);
        self.drop_silent(context);
        self.surveys.run_deadlines(context, &mut self.view);
        self.set_due();
    }

    /// All live nodes, including this one, by id. Empty until this node is a member of the cluster.
    pub(super) fn live_nodes(&self) -> Vec<LiveNode> {
        self.view.live_nodes()
    }

    /// A version that changes with [`Self::live_nodes`].
    pub(super) fn table_version(&self) -> u64 {
        self.view.table.version
    }

    pub(super) fn counters(&self) -> PeerCounters {
        let mut counters = PeerCounters {
            same_id: self.view.table.same_id.is_some(),
            users_elsewhere: self.users.users_elsewhere(),
            users_uncounted: self.users.users_uncounted(),
            ..self.view.counters.clone()
        };
        self.view.table.count(&mut counters);
        counters
    }

    pub(super) fn has_departed(&self) -> bool {
        matches!(self.view.membership, Membership::Departed)
    }

    pub(super) fn is_member(&self) -> bool {
        self.view.is_member()
    }

    /// Whether this node is a member of the cluster, and its connections are up.
    pub(super) fn is_connected_member(&self) -> bool {
        self.view.is_connected_member()
    }

    /// Whether live nodes may be missing in the table: it is not complete yet, or this node does not even receive its
    /// own heartbeats.
    pub(super) fn may_miss_nodes(&self, now_us: u64) -> bool {
        self.view.may_miss_nodes(now_us)
    }

    /// From this time on, every other live node is in the table.
    pub(super) const fn settled_us(&self) -> u64 {
        self.view.settled_us
    }

    /// The ids of the other live nodes.
    pub(super) fn known_nodes(&self) -> impl Iterator<Item = &str> {
        self.view.table.ids()
    }

    /// The ids of the other live nodes of this node's version.
    pub(super) fn nodes_alike(&self) -> BTreeSet<Box<str>> {
        self.view.nodes_alike()
    }

    /// Whether another node is live.
    pub(super) fn is_known(&self, node: &str) -> bool {
        self.view.table.is_known(node)
    }

    /// The subject of a query about windows to a node with a recent heartbeat, round-robin.
    pub(super) fn window_subject(&self, now_us: u64, number: u64) -> Option<Box<str>> {
        self.view.window_subject(now_us, number)
    }

    /// The subject of an answer to a node, if the node is known.
    pub(super) fn window_answer_subject(&self, node: &str) -> Option<Box<str>> {
        self.is_known(node).then(|| self.window_subject_of(node))
    }

    /// The subject of messages about windows and keys to a node.
    pub(super) fn window_subject_of(&self, node: &str) -> Box<str> {
        self.view.subjects.windows_of(node)
    }

    /// Whether a message is about windows and addressed to this node.
    pub(super) fn is_about_windows(&self, subject: &str) -> bool {
        *subject == *self.view.subjects.own_windows
    }

    fn announce(&mut self, context: &mut Context, about: NodeDescription) {
        if !matches!(self.view.membership, Membership::NotYet) {
            return;
        }
        // In the form that the others receive, so that the node recognizes its own messages.
        let sent = self.heartbeat(&about, 0);
        let about = Heartbeat::decode(&sent.encode()).map_or(about, |heartbeat| heartbeat.about);
        self.view.table.own_version = about.version.clone();
        self.view.table.version += 1;
        self.view.membership = Membership::Member(about);
        let answers = format!("{}*", self.view.subjects.own_answers).into();
        let PeerSubjects { heartbeats, users, own, surveys, interest, own_windows, .. } = &self.view.subjects;
        for subject in [heartbeats, users, own, surveys, interest, &answers, own_windows] {
            context.link(LinkEffect::Subscribe { subject: subject.clone() });
        }
        if self.view.is_connected {
            self.rejoin(context);
        }
    }

    /// No heartbeats arrived while a connection was down. Other nodes count as live until they have had time to send
    /// one.
    fn rejoin(&mut self, context: &mut Context) {
        if !self.is_member() {
            return;
        }
        // Its own heartbeat shows that the subscription is active. Without it, an empty table would prove nothing.
        self.view.settled_us = u64::MAX;
        self.view.heard_itself_us = None;
        self.view.table.mark_all_seen(context.now.mono_us);
        self.users.repeat_all();
        self.send_heartbeat(context);
    }

    fn depart(&mut self, context: &mut Context) {
        if let Membership::Member(about) = &self.view.membership {
            let leaving = Heartbeat { is_leaving: true, ..self.heartbeat(about, context.now.unix_ms) };
            context.publish(self.view.subjects.heartbeats.clone(), MessageHeaders::new(), leaving.encode());
        }
        self.view.membership = Membership::Departed;
        self.heartbeat_due_us = None;
        self.view.table.clear();
        self.surveys.end_all(context, &mut self.view);
    }

    fn heartbeat(&self, about: &NodeDescription, time_ms: u64) -> Heartbeat {
        Heartbeat {
            node: self.view.node.clone(),
            about: about.clone(),
            time_ms,
            is_leaving: false,
            unusable_streams: self.unusable_streams,
        }
    }

    /// Sets the number of streams that this node cannot use, which its heartbeats tell.
    pub(super) const fn set_unusable_streams(&mut self, count: u32) {
        self.unusable_streams = count;
    }

    fn send_heartbeat(&mut self, context: &mut Context) {
        let Membership::Member(about) = &self.view.membership else { return };
        if context.links.publish {
            self.view.counters.own_silences += u64::from(self.was_silent(context.now.mono_us));
            self.heartbeat_sent_us = Some(context.now.mono_us);
        }
        let heartbeat = self.heartbeat(about, context.now.unix_ms);
        context.publish(self.view.subjects.heartbeats.clone(), MessageHeaders::new(), heartbeat.encode());
        self.heartbeat_due_us = Some(context.now.mono_us + self.view.limits.heartbeat_interval_ms * 1_000);
    }

    /// Whether other nodes may have counted this one as lost since its last heartbeat: its process was paused, or a connection was
    /// down.
    fn was_silent(&self, now_us: u64) -> bool {
        let PeerLimits { heartbeat_interval_ms, silence_timeout_ms, .. } = self.view.limits;
        // The next heartbeat may take half an interval longer to arrive than the last one did.
        let silent_us =
            silence_timeout_ms.saturating_mul(1_000).saturating_sub(heartbeat_interval_ms.saturating_mul(500));
        self.heartbeat_sent_us.is_some_and(|sent_us| now_us > sent_us.saturating_add(silent_us))
    }

    fn send_due_heartbeat(&mut self, context: &mut Context) {
        if self.heartbeat_due_us.is_some_and(|due_us| due_us <= context.now.mono_us) {
            self.send_heartbeat(context);
            self.users.publish(context, &self.view);
        }
    }

    fn on_heartbeat(&mut self, context: &mut Context, payload: &Bytes) {
        if !self.is_member() {
            return;
        }
        let Some(heartbeat) = Heartbeat::decode(payload) else {
            self.view.counters.dropped += 1;
            return;
        };
        if *heartbeat.node == *self.view.node {
            self.check_own(context, heartbeat);
            return;
        }
        if heartbeat.is_leaving {
            if let Some(left) = self.view.table.remove(&heartbeat.node) {
                self.users.forget_node(context, &left.node);
                report(context, left, PeerChange::Left);
                self.surveys.forget_node(context, &mut self.view, &heartbeat.node);
            }
            return;
        }
        let is_known = self.view.table.is_known(&heartbeat.node);
        if !is_known && self.view.table.len() >= self.view.limits.nodes_max {
            self.view.counters.dropped += 1;
            return;
        }
        let node = LiveNode { node: heartbeat.node.clone(), about: heartbeat.about.clone() };
        for change in self.view.table.update(heartbeat, context.now) {
            report(context, node.clone(), change);
        }
        if !is_known {
            if context.now.mono_us < self.view.settled_us {
                self.surveys.await_node(context, &self.view, &node);
            }
            // The new node does not have to wait for the next heartbeat.
            self.send_heartbeat(context);
            self.users.repeat_all();
        }
    }

    /// A heartbeat with the id of this node is its own, unless its description differs.
    fn check_own(&mut self, context: &mut Context, heartbeat: Heartbeat) {
        let is_own = matches!(&self.view.membership, Membership::Member(about) if *about == heartbeat.about);
        if is_own {
            let now_us = context.now.mono_us;
            // After a longer silence, others may have been removed from the table that are live.
            let silence_us = self.view.limits.silence_timeout_ms * 1_000;
            if self.view.heard_itself_us.replace(now_us).is_none_or(|heard_us| now_us - heard_us > silence_us) {
                self.view.settled_us = now_us.saturating_add(self.view.limits.heartbeat_interval_ms * 1_000);
                self.view.table.version += 1;
            }
            return;
        }
        let was_known = self.view.table.same_id.replace(context.now.mono_us).is_some();
        if !was_known {
            report(context, LiveNode { node: heartbeat.node, about: heartbeat.about }, PeerChange::SameId);
        }
    }

    fn drop_silent(&mut self, context: &mut Context) {
        let now_us = context.now.mono_us;
        if self.view.silence_due_us().is_none_or(|due_us| due_us > now_us) {
            return;
        }
        let silent_us = now_us.saturating_sub(self.view.limits.silence_timeout_ms * 1_000);
        for lost in self.view.table.remove_silent(silent_us) {
            self.view.counters.lost += 1;
            self.surveys.lose_node(context, &mut self.view, &lost);
            self.users.forget_node(context, &lost.node);
            report(context, lost, PeerChange::Lost);
        }
    }
}

fn report(context: &mut Context, node: LiveNode, change: PeerChange) {
    context.push_peer_effect(PeerEffect::Changed { node, change });
}

/// A snapshot of the live nodes, for other threads.
pub type LiveNodes = Arc<[LiveNode]>;
