//! Queries to other nodes, and their queries to this one.
//!
//! A query names the querying node and the number of the survey; the answer is sent to a subject that consists of both.
//! A survey ends when all nodes that were live at its start have answered or stopped cleanly, or at its timeout. It
//! starts with the known nodes; until the table is complete, it also waits for others. Each that becomes known is queried
//! by itself, because its subscription may be younger than the survey.

use std::{collections::BTreeMap, fmt};

use bytes::Bytes;

use crate::{core::Context, link::MessageHeaders, names::encode_token};

use super::{LiveNode, NODE, PeerEffect, cluster_view::ClusterView};

/// The header with the number of a survey.
const SURVEY: &str = "Dn-Survey";
/// The header with the milliseconds that the querying node waits.
const TIMEOUT: &str = "Dn-Timeout";
/// The header of an answer without content: the reason.
const REFUSED: &str = "Dn-Refused";
/// Bytes reserved for the headers of a query or an answer.
const HEADER_BYTES: usize = 1_024;
/// Maximum time for which a query of another node is kept.
const QUERY_TIMEOUT_MAX_MS: u64 = 60_000;

/// The number of a survey of this node, assigned by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SurveyNumber(pub u64);

/// The number of a query of another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueryNumber(pub u64);

/// The nodes to query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SurveyTarget {
    /// All other live nodes.
    All,
    /// The node with this id.
    Node(Box<str>),
}

/// The answer of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAnswer {
    /// The node's id.
    pub node: Box<str>,
    /// The content of the answer.
    pub payload: Bytes,
}

/// A node without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingAnswer {
    /// The node.
    pub node: Box<str>,
    /// The node's name; empty if unknown.
    pub name: Box<str>,
    /// The reason.
    pub fault: QueryFault,
}

/// Why a node has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryFault {
    /// No answer in time.
    Silent,
    /// The node is not live, or has become silent.
    NotLive,
    /// The node is answering the maximum number of queries.
    Busy,
    /// The node's answer is too large for NATS, or for the limit of this node.
    TooLarge,
}

impl QueryFault {
    /// The value in the header of an answer.
    const fn label(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::NotLive => "not live",
            Self::Busy => "busy",
            Self::TooLarge => "too large",
        }
    }

    fn parse(label: &str) -> Self {
        let known = [Self::NotLive, Self::Busy, Self::TooLarge];
        known.into_iter().find(|fault| fault.label() == label).unwrap_or(Self::Silent)
    }
}

impl fmt::Display for QueryFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Silent => "does not answer",
            Self::NotLive => "is not live",
            Self::Busy => "is answering too many questions",
            Self::TooLarge => "has an answer that is too large",
        })
    }
}

/// The result of a survey.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SurveyAnswers {
    /// By the nodes' ids.
    pub answers: Vec<NodeAnswer>,
    /// Live nodes without an answer.
    pub missing: Vec<MissingAnswer>,
    /// Whether this node has no connection to NATS, or does not know all other nodes yet.
    pub is_cut_off: bool,
}

impl SurveyAnswers {
    /// Whether all live nodes have answered.
    pub const fn is_complete(&self) -> bool {
        self.missing.is_empty() && !self.is_cut_off
    }
}

/// Why no node was queried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SurveyFault {
    /// Too many surveys wait for answers.
    Busy,
    /// The query is too large for NATS.
    TooLarge,
}

/// A survey that waits for answers.
#[derive(Debug)]
struct RunningSurvey {
    to: SurveyTarget,
    /// The query, for nodes that become known; `None` if the table was complete when it began.
    payload: Option<Bytes>,
    waiting: BTreeMap<Box<str>, Box<str>>,
    answers: BTreeMap<Box<str>, Bytes>,
    missing: Vec<MissingAnswer>,
    due_us: u64,
}

impl RunningSurvey {
    /// Whether further answers are expected.
    fn is_open(&self, settled_us: u64, now_us: u64) -> bool {
        !self.waiting.is_empty() || (self.to == SurveyTarget::All && now_us < settled_us)
    }

    /// The next deadline of the survey.
    fn next_us(&self, settled_us: u64) -> u64 {
        if self.waiting.is_empty() { self.due_us.min(settled_us) } else { self.due_us }
    }
}

/// A query that this node is answering.
#[derive(Debug)]
struct AskedQuery {
    node: Box<str>,
    survey: SurveyNumber,
    due_us: u64,
}

/// The surveys of this node, and the queries of other nodes that it is answering.
#[derive(Debug, Default)]
pub(super) struct Surveys {
    running: BTreeMap<SurveyNumber, RunningSurvey>,
    /// The bytes of the answers to all running surveys.
    bytes: usize,
    queries: BTreeMap<QueryNumber, AskedQuery>,
    numbered: u64,
}

impl Surveys {
    /// The next deadline.
    pub(super) fn due_us(&self, view: &ClusterView) -> Option<u64> {
        let surveys = self.running.values().map(|survey| survey.next_us(view.settled_us));
        surveys.chain(self.queries.values().map(|query| query.due_us)).min()
    }

    /// Ends the surveys and the queries whose time is over.
    pub(super) fn run_deadlines(&mut self, context: &mut Context, view: &mut ClusterView) {
        self.end_due(context, view);
        self.queries.retain(|_, query| query.due_us > context.now.mono_us);
    }

    /// Ends everything, because this node departs.
    pub(super) fn end_all(&mut self, context: &mut Context, view: &mut ClusterView) {
        let numbers: Vec<SurveyNumber> = self.running.keys().copied().collect();
        for number in numbers {
            self.end(context, view, number);
        }
        self.queries.clear();
    }

    pub(super) fn begin(
        &mut self,
        context: &mut Context,
        view: &mut ClusterView,
        number: SurveyNumber,
        to: SurveyTarget,
        payload: Bytes,
    ) {
        let timeout_ms = view.limits.survey_timeout_ms;
        let fault = if self.running.len() >= view.limits.surveys_max {
            Some(SurveyFault::Busy)
        } else {
            (payload.len() + HEADER_BYTES > context.payload_bytes_max && view.is_connected)
                .then_some(SurveyFault::TooLarge)
        };
        if let Some(fault) = fault {
            view.counters.surveys_refused += 1;
            context.push_peer_effect(PeerEffect::Surveyed { number, outcome: Err(fault) });
            return;
        }
        view.counters.surveys += 1;
        let (waiting, missing) = targets(view, &to);
        let due_us = context.now.after_ms(timeout_ms);
        let is_for_new = to == SurveyTarget::All && context.now.mono_us < view.settled_us;
        let survey = RunningSurvey {
            to,
            payload: is_for_new.then(|| payload.clone()),
            waiting,
            answers: BTreeMap::new(),
            missing,
            due_us,
        };
        if view.is_connected_member() && survey.is_open(view.settled_us, context.now.mono_us) {
            let subject = match &survey.to {
                SurveyTarget::All => view.subjects.surveys.clone(),
                SurveyTarget::Node(node) => subject_of_node(view, node),
            };
            context.publish(subject, query_headers(view, number, timeout_ms), payload);
            self.running.insert(number, survey);
        } else {
            self.running.insert(number, survey);
            self.end(context, view, number);
        }
    }

    pub(super) fn on_answer(
        &mut self,
        context: &mut Context,
        view: &mut ClusterView,
        number: &str,
        headers: &MessageHeaders,
        payload: Bytes,
    ) {
        // If there is no subscriber, NATS itself answers, without such a header.
        let (Some(node), Ok(number)) = (headers.get(NODE), number.parse()) else {
            view.counters.dropped += 1;
            return;
        };
        let number = SurveyNumber(number);
        let Some(survey) = self.running.get_mut(&number) else { return };
        let name = survey.waiting.remove(node);
        if survey.answers.contains_key(node) || survey.missing.iter().any(|missing| *missing.node == *node) {
            return;
        }
        let fits = self.bytes + payload.len() <= view.limits.survey_bytes_max;
        let fault = headers.get(REFUSED).map(QueryFault::parse).or((!fits).then_some(QueryFault::TooLarge));
        // Nodes beyond the capacity of the table are ignored.
        if name.is_some() || survey.answers.len() + survey.missing.len() < view.limits.nodes_max {
            if let Some(fault) = fault {
                survey.missing.push(MissingAnswer { node: node.into(), name: name.unwrap_or_default(), fault });
            } else {
                self.bytes += payload.len();
                survey.answers.insert(node.into(), payload);
            }
        }
        if !survey.is_open(view.settled_us, context.now.mono_us) {
            self.end(context, view, number);
        }
    }

    /// Ends the surveys whose timeout has passed, and those that wait for no node.
    fn end_due(&mut self, context: &mut Context, view: &mut ClusterView) {
        let now_us = context.now.mono_us;
        let is_over = |survey: &RunningSurvey| survey.due_us <= now_us || !survey.is_open(view.settled_us, now_us);
        let over: Vec<SurveyNumber> =
            self.running.iter().filter(|(_, survey)| is_over(survey)).map(|(number, _)| *number).collect();
        for number in over {
            self.end(context, view, number);
        }
    }

    fn end(&mut self, context: &mut Context, view: &mut ClusterView, number: SurveyNumber) {
        let Some(survey) = self.running.remove(&number) else { return };
        let RunningSurvey { to, waiting, answers, mut missing, .. } = survey;
        self.bytes -= answers.values().map(Bytes::len).sum::<usize>();
        let silent = |(node, name)| MissingAnswer { node, name, fault: QueryFault::Silent };
        missing.extend(waiting.into_iter().map(silent));
        let answers = answers.into_iter().map(|(node, payload)| NodeAnswer { node, payload }).collect();
        let may_miss_nodes = to == SurveyTarget::All && view.may_miss_nodes(context.now.mono_us);
        let is_cut_off = !view.is_connected_member() || may_miss_nodes;
        let found = SurveyAnswers { answers, missing, is_cut_off };
        view.counters.incomplete += u64::from(!found.is_complete());
        context.push_peer_effect(PeerEffect::Surveyed { number, outcome: Ok(found) });
    }

    /// A node has become known that may have been live before: surveys that began with an incomplete table wait for it. Without
    /// its answer, they are not complete. It may have started since, so that it has not received the query.
    pub(super) fn await_node(&mut self, context: &mut Context, view: &ClusterView, node: &LiveNode) {
        let now_us = context.now.mono_us;
        for (number, survey) in &mut self.running {
            let Some(payload) = &survey.payload else { continue };
            let is_missing = survey.missing.iter().any(|missing| missing.node == node.node);
            if !is_missing && !survey.answers.contains_key(&node.node) {
                survey.waiting.insert(node.node.clone(), node.about.name.clone());
                let timeout_ms = survey.due_us.saturating_sub(now_us) / 1_000;
                let headers = query_headers(view, *number, timeout_ms);
                context.publish(subject_of_node(view, &node.node), headers, payload.clone());
            }
        }
    }

    /// A node has stopped cleanly, so no survey waits for it.
    pub(super) fn forget_node(&mut self, context: &mut Context, view: &mut ClusterView, node: &str) {
        self.running.values_mut().for_each(|survey| drop(survey.waiting.remove(node)));
        self.end_due(context, view);
    }

    /// A node has become silent, so no survey waits for it.
    pub(super) fn lose_node(&mut self, context: &mut Context, view: &mut ClusterView, lost: &LiveNode) {
        for survey in self.running.values_mut() {
            if let Some(name) = survey.waiting.remove(&lost.node) {
                survey.missing.push(MissingAnswer { node: lost.node.clone(), name, fault: QueryFault::NotLive });
            }
        }
        self.end_due(context, view);
    }

    pub(super) fn on_query(
        &mut self,
        context: &mut Context,
        view: &mut ClusterView,
        headers: &MessageHeaders,
        payload: Bytes,
    ) {
        if !view.is_member() {
            return;
        }
        let (Some(node), Some(survey)) = (headers.get(NODE), headers.number(SURVEY)) else {
            view.counters.dropped += 1;
            return;
        };
        if *node == *view.node {
            return;
        }
        let timeout_ms = headers.number(TIMEOUT).unwrap_or(QUERY_TIMEOUT_MAX_MS).min(QUERY_TIMEOUT_MAX_MS);
        let due_us = context.now.after_ms(timeout_ms);
        let asked = AskedQuery { node: node.into(), survey: SurveyNumber(survey), due_us };
        view.counters.queries += 1;
        if self.queries.len() >= view.limits.queries_max {
            view.counters.queries_refused += 1;
            send_answer(context, view, &asked, Err(QueryFault::Busy));
            return;
        }
        self.numbered += 1;
        let query = QueryNumber(self.numbered);
        self.queries.insert(query, asked);
        context.push_peer_effect(PeerEffect::Queried { query, payload, timeout_ms });
    }

    pub(super) fn answer_query(
        &mut self,
        context: &mut Context,
        view: &ClusterView,
        query: QueryNumber,
        payload: Bytes,
    ) {
        // The other node no longer waits.
        let Some(asked) = self.queries.remove(&query) else { return };
        let fits = payload.len() + HEADER_BYTES <= context.payload_bytes_max;
        send_answer(context, view, &asked, if fits { Ok(payload) } else { Err(QueryFault::TooLarge) });
    }
}

fn query_headers(view: &ClusterView, number: SurveyNumber, timeout_ms: u64) -> MessageHeaders {
    MessageHeaders::new()
        .with(NODE, view.node.clone())
        .with(SURVEY, number.0.to_string())
        .with(TIMEOUT, timeout_ms.to_string())
}

fn subject_of_node(view: &ClusterView, node: &str) -> Box<str> {
    format!("{}{}", view.subjects.node_prefix, encode_token(node)).into()
}

/// The nodes of a survey, with their names, and those that cannot be queried.
fn targets(view: &ClusterView, to: &SurveyTarget) -> (BTreeMap<Box<str>, Box<str>>, Vec<MissingAnswer>) {
    match to {
        SurveyTarget::All => (view.table.live().map(|live| (live.node, live.about.name)).collect(), Vec::new()),
        SurveyTarget::Node(node) => {
            let Some(about) = view.table.about(node) else {
                let (name, fault) = (Box::default(), QueryFault::NotLive);
                return (BTreeMap::new(), vec![MissingAnswer { node: node.clone(), name, fault }]);
            };
            ([(node.clone(), about.name.clone())].into(), Vec::new())
        }
    }
}

fn send_answer(context: &mut Context, view: &ClusterView, asked: &AskedQuery, answer: Result<Bytes, QueryFault>) {
    let mut headers = MessageHeaders::new().with(NODE, view.node.clone());
    if let Err(fault) = answer {
        headers.push(REFUSED, fault.label());
    }
    let subject = format!("{}{}.{}", view.subjects.answer_prefix, encode_token(&asked.node), asked.survey.0);
    context.publish(subject.into(), headers, answer.unwrap_or_default());
}
