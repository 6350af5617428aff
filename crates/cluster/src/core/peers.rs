//! The nodes of the cluster: which of them are live, and queries to them.
//!
//! Each node publishes heartbeats on core NATS, which works while `JetStream` elects leaders. A node that has been
//! silent for a while, on the clock of the observer, is not live; a node that stops cleanly announces it. The time in a
//! heartbeat is the sender's, and serves to report nodes whose clock is off.
//!
//! A *survey* ([`survey`]) is a query to all live nodes, or to one of them. Each node answers once. The contents of
//! queries and answers are not part of this protocol.

pub(crate) mod heartbeat_message;
mod limits;
mod live_nodes;
mod survey;
#[cfg(test)]
mod tests;
mod users;
mod windows;

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use dunlin_engine::SessionTagKey;

use crate::{
    link::{LinkEffect, LinkName, MessageHeaders},
    names::encode_token,
};

use super::{Context, CoreEffect, interest::interest_subject, leases::LeaseChange};

use heartbeat_message::Heartbeat;
use live_nodes::PeerTable;
use survey::{AskedQuery, RunningSurvey};
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

/// Whether this node is a member of the cluster.
#[derive(Debug)]
enum Membership {
    NotYet,
    Member(NodeDescription),
    Departed,
}

/// The other nodes, as known to this one.
#[derive(Debug)]
pub(super) struct Peers {
    node: Box<str>,
    subjects: PeerSubjects,
    limits: PeerLimits,
    membership: Membership,
    is_connected: bool,
    /// From this time on, every other live node is in the table.
    settled_us: u64,
    /// When this node last received a heartbeat of its own, since it has had its connections.
    heard_itself_us: Option<u64>,
    heartbeat_due_us: Option<u64>,
    /// The next deadline. Cached, because each event of the cluster compares it.
    due_us: Option<u64>,
    table: PeerTable,
    surveys: BTreeMap<SurveyNumber, RunningSurvey>,
    survey_bytes: usize,
    queries: BTreeMap<QueryNumber, AskedQuery>,
    users: SharedUsers,
    unusable_streams: u32,
    numbered: u64,
    counters: PeerCounters,
}

#[derive(Debug)]
struct PeerSubjects {
    heartbeats: Box<str>,
    users: Box<str>,
    /// The prefix of the subjects of queries to one node; its token follows.
    node_prefix: Box<str>,
    own: Box<str>,
    surveys: Box<str>,
    interest: Box<str>,
    /// The prefix of the subjects of answers; the querying node's token and the number of the survey follow.
    answer_prefix: Box<str>,
    own_answers: Box<str>,
    /// The prefix of the subjects of messages about windows; the receiving node's token follows.
    window_prefix: Box<str>,
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
        }
    }
}

impl Peers {
    pub(super) fn new(prefix: &str, node: &str, limits: PeerLimits) -> Self {
        Self {
            node: node.into(),
            subjects: PeerSubjects::new(prefix, node),
            limits,
            membership: Membership::NotYet,
            is_connected: false,
            settled_us: u64::MAX,
            heard_itself_us: None,
            heartbeat_due_us: None,
            due_us: None,
            table: PeerTable::default(),
            surveys: BTreeMap::new(),
            survey_bytes: 0,
            queries: BTreeMap::new(),
            users: SharedUsers::default(),
            unusable_streams: 0,
            numbered: 0,
            counters: PeerCounters::default(),
        }
    }

    pub(super) fn handle(&mut self, context: &mut Context, event: PeerEvent) {
        match event {
            PeerEvent::Announce { about } => self.announce(context, about),
            PeerEvent::Depart => self.depart(context),
            PeerEvent::Survey { number, to, payload } => self.begin_survey(context, number, to, payload),
            PeerEvent::QueryAnswered { query, payload } => self.answer_query(context, query, payload),
            PeerEvent::UserSessions { user, sessions } => self.users.set_own(user, sessions),
        }
        self.set_due();
    }

    /// Handles a change of the connections.
    pub(super) fn on_links(&mut self, context: &mut Context) {
        let is_connected = context.links.live && context.links.publish;
        let was_connected = std::mem::replace(&mut self.is_connected, is_connected);
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
        if *subject == *self.subjects.heartbeats {
            self.on_heartbeat(context, payload);
        } else if *subject == *self.subjects.users {
            self.on_user_sessions(context, headers, payload);
        } else if *subject == *self.subjects.surveys || *subject == *self.subjects.own {
            self.on_query(context, headers, payload.clone());
        } else if let Some(number) = subject.strip_prefix(&*self.subjects.own_answers) {
            self.on_answer(context, number, headers, payload.clone());
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
        let surveys = self.surveys.values().map(|survey| survey.next_us(self.settled_us));
        let queries = self.queries.values().map(|query| query.due_us);
        let silence = self.silence_due_us();
        self.due_us = [self.heartbeat_due_us, silence].into_iter().flatten().chain(surveys).chain(queries).min();
    }

    pub(super) fn run_deadlines(&mut self, context: &mut Context) {
        let now_us = context.now.mono_us;
        let Some(due_us) = self.due_us.filter(|due_us| *due_us <= now_us) else { return };
        if now_us - due_us > self.limits.heartbeat_interval_ms * 1_000 {
            // This node itself was paused, and has not read the others' messages of that time yet.
            self.table.mark_all_seen(now_us);
            self.heard_itself_us = self.heard_itself_us.and(Some(now_us));
        }
        self.send_due_heartbeat(context);
        self.drop_silent(context);
        self.end_due_surveys(context);
        self.queries.retain(|_, query| query.due_us > now_us);
        self.set_due();
    }

    /// All live nodes, including this one, by id. Empty until this node is a member of the cluster.
    pub(super) fn live_nodes(&self) -> Vec<LiveNode> {
        let Membership::Member(about) = &self.membership else { return Vec::new() };
        let own = LiveNode { node: self.node.clone(), about: about.clone() };
        let mut nodes: Vec<LiveNode> = std::iter::once(own).chain(self.table.live()).collect();
        nodes.sort_by(|one, other| one.node.cmp(&other.node));
        nodes
    }

    /// A version that changes with [`Self::live_nodes`].
    pub(super) fn table_version(&self) -> u64 {
        self.table.version
    }

    pub(super) fn counters(&self) -> PeerCounters {
        let mut counters = PeerCounters {
            same_id: self.table.same_id.is_some(),
            users_elsewhere: self.users.users_elsewhere(),
            users_uncounted: self.users.users_uncounted(),
            ..self.counters.clone()
        };
        self.table.count(&mut counters);
        counters
    }

    pub(super) fn has_departed(&self) -> bool {
        matches!(self.membership, Membership::Departed)
    }

    const fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Whether live nodes may be missing in the table: it is not complete yet, or this node does not even receive its
    /// own heartbeats. A connection that is open and delivers nothing does not make the other nodes dead.
    pub(super) fn may_miss_nodes(&self, now_us: u64) -> bool {
        let heard_until_us =
            self.heard_itself_us.map(|heard_us| heard_us.saturating_add(self.limits.silence_timeout_ms * 1_000));
        now_us < self.settled_us || heard_until_us.is_none_or(|until_us| until_us < now_us)
    }

    pub(super) fn is_member(&self) -> bool {
        matches!(self.membership, Membership::Member(_))
    }

    fn announce(&mut self, context: &mut Context, about: NodeDescription) {
        if !matches!(self.membership, Membership::NotYet) {
            return;
        }
        // In the form that the others receive, so that the node recognizes its own messages.
        let sent = self.heartbeat(&about, 0);
        let about = Heartbeat::decode(&sent.encode()).map_or(about, |heartbeat| heartbeat.about);
        self.table.own_version = about.version.clone();
        self.table.version += 1;
        self.membership = Membership::Member(about);
        let answers = format!("{}*", self.subjects.own_answers).into();
        let PeerSubjects { heartbeats, users, own, surveys, interest, .. } = &self.subjects;
        let windows = self.window_subject_of(&self.node);
        for subject in [heartbeats, users, own, surveys, interest, &answers, &windows] {
            context.link(LinkEffect::Subscribe { subject: subject.clone() });
        }
        if self.is_connected() {
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
        self.settled_us = u64::MAX;
        self.heard_itself_us = None;
        self.table.mark_all_seen(context.now.mono_us);
        self.users.repeat_all();
        self.send_heartbeat(context);
    }

    fn depart(&mut self, context: &mut Context) {
        if let Membership::Member(about) = &self.membership {
            let leaving = Heartbeat { is_leaving: true, ..self.heartbeat(about, context.now.unix_ms) };
            context.link(Self::message(self.subjects.heartbeats.clone(), MessageHeaders::new(), leaving.encode()));
        }
        self.membership = Membership::Departed;
        self.heartbeat_due_us = None;
        self.table.clear();
        self.fail_all_surveys(context);
        self.queries.clear();
    }

    fn heartbeat(&self, about: &NodeDescription, time_ms: u64) -> Heartbeat {
        Heartbeat {
            node: self.node.clone(),
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
        let Membership::Member(about) = &self.membership else { return };
        let heartbeat = self.heartbeat(about, context.now.unix_ms);
        context.link(Self::message(self.subjects.heartbeats.clone(), MessageHeaders::new(), heartbeat.encode()));
        self.heartbeat_due_us = Some(context.now.mono_us + self.limits.heartbeat_interval_ms * 1_000);
    }

    fn send_due_heartbeat(&mut self, context: &mut Context) {
        if self.heartbeat_due_us.is_some_and(|due_us| due_us <= context.now.mono_us) {
            self.send_heartbeat(context);
            self.send_user_sessions(context);
        }
    }

    fn on_heartbeat(&mut self, context: &mut Context, payload: &Bytes) {
        if !self.is_member() {
            return;
        }
        let Some(heartbeat) = Heartbeat::decode(payload) else {
            self.counters.dropped += 1;
            return;
        };
        if *heartbeat.node == *self.node {
            self.check_own(context, heartbeat);
            return;
        }
        if heartbeat.is_leaving {
            if let Some(left) = self.table.remove(&heartbeat.node) {
                self.forget_user_sessions(context, &left.node);
                self.report(context, left, PeerChange::Left);
                self.forget_in_surveys(context, &heartbeat.node);
            }
            return;
        }
        let is_known = self.table.is_known(&heartbeat.node);
        if !is_known && self.table.len() >= self.limits.nodes_max {
            self.counters.dropped += 1;
            return;
        }
        let node = LiveNode { node: heartbeat.node.clone(), about: heartbeat.about.clone() };
        for change in self.table.update(heartbeat, context.now) {
            self.report(context, node.clone(), change);
        }
        if !is_known {
            // The new node does not have to wait for the next heartbeat.
            self.send_heartbeat(context);
            self.users.repeat_all();
        }
    }

    /// A heartbeat with the id of this node is its own, unless its description differs.
    fn check_own(&mut self, context: &mut Context, heartbeat: Heartbeat) {
        let is_own = matches!(&self.membership, Membership::Member(about) if *about == heartbeat.about);
        if is_own {
            let now_us = context.now.mono_us;
            // After a longer silence, others may have been removed from the table that are live.
            let silence_us = self.limits.silence_timeout_ms * 1_000;
            if self.heard_itself_us.replace(now_us).is_none_or(|heard_us| now_us - heard_us > silence_us) {
                self.settled_us = now_us.saturating_add(self.limits.heartbeat_interval_ms * 1_000);
                self.table.version += 1;
            }
            return;
        }
        let was_known = self.table.same_id.replace(context.now.mono_us).is_some();
        if !was_known {
            self.report(context, LiveNode { node: heartbeat.node, about: heartbeat.about }, PeerChange::SameId);
        }
    }

    fn silence_due_us(&self) -> Option<u64> {
        // Without connections, no heartbeats arrive.
        let seen_us = self.table.earliest_seen_us().filter(|_| self.is_connected())?;
        Some(seen_us.saturating_add(self.limits.silence_timeout_ms * 1_000))
    }

    fn drop_silent(&mut self, context: &mut Context) {
        let now_us = context.now.mono_us;
        if self.silence_due_us().is_none_or(|due_us| due_us > now_us) {
            return;
        }
        let silent_us = now_us.saturating_sub(self.limits.silence_timeout_ms * 1_000);
        for lost in self.table.remove_silent(silent_us) {
            self.counters.lost += 1;
            self.lose_in_surveys(context, &lost);
            self.forget_user_sessions(context, &lost.node);
            self.report(context, lost, PeerChange::Lost);
        }
    }

    #[allow(clippy::unused_self, reason = "reads as what this node does")]
    fn report(&self, context: &mut Context, node: LiveNode, change: PeerChange) {
        context.effects.push(CoreEffect::Peers(PeerEffect::Changed { node, change }));
    }

    const fn message(subject: Box<str>, headers: MessageHeaders, payload: Bytes) -> LinkEffect {
        LinkEffect::Publish { link: LinkName::Publish, request: None, subject, headers, payload }
    }
}

/// A snapshot of the live nodes, for other threads.
pub type LiveNodes = Arc<[LiveNode]>;
