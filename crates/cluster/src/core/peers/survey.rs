//! Queries to other nodes, and their queries to this one.
//!
//! A query names the querying node and the number of the survey; the answer is sent to a subject that consists of both.
//! A survey ends when all nodes that were live at its start have answered or stopped cleanly, or at its timeout. It
//! starts with the known nodes; until the table is complete, it also waits for others.

use std::{collections::BTreeMap, fmt};

use bytes::Bytes;

use crate::{
    core::{Context, CoreEffect},
    link::MessageHeaders,
    names::encode_token,
};

use super::{LiveNode, NODE, PeerEffect, Peers};

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
pub(super) struct RunningSurvey {
    to: SurveyTarget,
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
    pub(super) fn next_us(&self, settled_us: u64) -> u64 {
        if self.waiting.is_empty() { self.due_us.min(settled_us) } else { self.due_us }
    }
}

/// A query that this node is answering.
#[derive(Debug)]
pub(super) struct AskedQuery {
    node: Box<str>,
    survey: SurveyNumber,
    pub(super) due_us: u64,
}

impl Peers {
    pub(super) fn begin_survey(
        &mut self,
        context: &mut Context,
        number: SurveyNumber,
        to: SurveyTarget,
        payload: Bytes,
    ) {
        let timeout_ms = self.limits.survey_timeout_ms;
        let fault = if self.surveys.len() >= self.limits.surveys_max {
            Some(SurveyFault::Busy)
        } else {
            (payload.len() + HEADER_BYTES > context.payload_bytes_max && self.is_connected())
                .then_some(SurveyFault::TooLarge)
        };
        if let Some(fault) = fault {
            self.counters.surveys_refused += 1;
            context.effects.push(CoreEffect::Peers(PeerEffect::Surveyed { number, outcome: Err(fault) }));
            return;
        }
        self.counters.surveys += 1;
        let (waiting, missing) = self.survey_targets(&to);
        let due_us = context.now.after_ms(timeout_ms);
        let survey = RunningSurvey { to, waiting, answers: BTreeMap::new(), missing, due_us };
        if self.is_connected() && self.is_member() && survey.is_open(self.settled_us, context.now.mono_us) {
            let headers = MessageHeaders::new()
                .with(NODE, self.node.clone())
                .with(SURVEY, number.0.to_string())
                .with(TIMEOUT, timeout_ms.to_string());
            let subject = match &survey.to {
                SurveyTarget::All => self.subjects.surveys.clone(),
                SurveyTarget::Node(node) => format!("{}{}", self.subjects.node_prefix, encode_token(node)).into(),
            };
            context.link(Self::message(subject, headers, payload));
            self.surveys.insert(number, survey);
        } else {
            self.surveys.insert(number, survey);
            self.end_survey(context, number);
        }
    }

    /// The nodes of a survey, with their names, and those that cannot be queried.
    fn survey_targets(&self, to: &SurveyTarget) -> (BTreeMap<Box<str>, Box<str>>, Vec<MissingAnswer>) {
        match to {
            SurveyTarget::All => (self.table.live().map(|live| (live.node, live.about.name)).collect(), Vec::new()),
            SurveyTarget::Node(node) => {
                let Some(about) = self.table.about(node) else {
                    let (name, fault) = (Box::default(), QueryFault::NotLive);
                    return (BTreeMap::new(), vec![MissingAnswer { node: node.clone(), name, fault }]);
                };
                ([(node.clone(), about.name.clone())].into(), Vec::new())
            }
        }
    }

    pub(super) fn on_answer(&mut self, context: &mut Context, number: &str, headers: &MessageHeaders, payload: Bytes) {
        // If there is no subscriber, NATS itself answers, without such a header.
        let (Some(node), Ok(number)) = (headers.get(NODE), number.parse()) else {
            self.counters.dropped += 1;
            return;
        };
        let number = SurveyNumber(number);
        let Some(survey) = self.surveys.get_mut(&number) else { return };
        let name = survey.waiting.remove(node);
        if survey.answers.contains_key(node) || survey.missing.iter().any(|missing| *missing.node == *node) {
            return;
        }
        let fits = self.survey_bytes + payload.len() <= self.limits.survey_bytes_max;
        let fault = headers.get(REFUSED).map(QueryFault::parse).or((!fits).then_some(QueryFault::TooLarge));
        // Nodes beyond the capacity of the table are ignored.
        if name.is_some() || survey.answers.len() + survey.missing.len() < self.limits.nodes_max {
            if let Some(fault) = fault {
                survey.missing.push(MissingAnswer { node: node.into(), name: name.unwrap_or_default(), fault });
            } else {
                self.survey_bytes += payload.len();
                survey.answers.insert(node.into(), payload);
            }
        }
        if !survey.is_open(self.settled_us, context.now.mono_us) {
            self.end_survey(context, number);
        }
    }

    /// Ends the surveys whose timeout has passed, and those that wait for no node.
    pub(super) fn end_due_surveys(&mut self, context: &mut Context) {
        let now_us = context.now.mono_us;
        let is_over = |survey: &RunningSurvey| survey.due_us <= now_us || !survey.is_open(self.settled_us, now_us);
        let over: Vec<SurveyNumber> =
            self.surveys.iter().filter(|(_, survey)| is_over(survey)).map(|(number, _)| *number).collect();
        for number in over {
            self.end_survey(context, number);
        }
    }

    fn end_survey(&mut self, context: &mut Context, number: SurveyNumber) {
        let Some(survey) = self.surveys.remove(&number) else { return };
        let RunningSurvey { to, waiting, answers, mut missing, .. } = survey;
        self.survey_bytes -= answers.values().map(Bytes::len).sum::<usize>();
        let silent = |(node, name)| MissingAnswer { node, name, fault: QueryFault::Silent };
        missing.extend(waiting.into_iter().map(silent));
        let answers = answers.into_iter().map(|(node, payload)| NodeAnswer { node, payload }).collect();
        let may_miss_nodes = to == SurveyTarget::All && self.may_miss_nodes(context.now.mono_us);
        let is_cut_off = !self.is_connected() || !self.is_member() || may_miss_nodes;
        let found = SurveyAnswers { answers, missing, is_cut_off };
        self.counters.incomplete += u64::from(!found.is_complete());
        context.effects.push(CoreEffect::Peers(PeerEffect::Surveyed { number, outcome: Ok(found) }));
    }

    /// A node has stopped cleanly, so no survey waits for it.
    pub(super) fn forget_in_surveys(&mut self, context: &mut Context, node: &str) {
        self.surveys.values_mut().for_each(|survey| drop(survey.waiting.remove(node)));
        self.end_due_surveys(context);
    }

    /// A node has become silent, so no survey waits for it.
    pub(super) fn lose_in_surveys(&mut self, context: &mut Context, lost: &LiveNode) {
        for survey in self.surveys.values_mut() {
            if let Some(name) = survey.waiting.remove(&lost.node) {
                survey.missing.push(MissingAnswer { node: lost.node.clone(), name, fault: QueryFault::NotLive });
            }
        }
        self.end_due_surveys(context);
    }

    pub(super) fn fail_all_surveys(&mut self, context: &mut Context) {
        let numbers: Vec<SurveyNumber> = self.surveys.keys().copied().collect();
        for number in numbers {
            self.end_survey(context, number);
        }
    }

    pub(super) fn on_query(&mut self, context: &mut Context, headers: &MessageHeaders, payload: Bytes) {
        if !self.is_member() {
            return;
        }
        let (Some(node), Some(survey)) = (headers.get(NODE), headers.number(SURVEY)) else {
            self.counters.dropped += 1;
            return;
        };
        if *node == *self.node {
            return;
        }
        let (node, survey) = (Box::from(node), SurveyNumber(survey));
        self.counters.queries += 1;
        if self.queries.len() >= self.limits.queries_max {
            self.counters.queries_refused += 1;
            let refused = QueryFault::Busy;
            self.send_answer(context, &node, survey, Some(refused), Bytes::new());
            return;
        }
        let timeout_ms = headers.number(TIMEOUT).unwrap_or(QUERY_TIMEOUT_MAX_MS).min(QUERY_TIMEOUT_MAX_MS);
        self.numbered += 1;
        let query = QueryNumber(self.numbered);
        let due_us = context.now.after_ms(timeout_ms);
        self.queries.insert(query, AskedQuery { node, survey, due_us });
        context.effects.push(CoreEffect::Peers(PeerEffect::Queried { query, payload, timeout_ms }));
    }

    pub(super) fn answer_query(&mut self, context: &mut Context, query: QueryNumber, payload: Bytes) {
        // The other node no longer waits.
        let Some(AskedQuery { node, survey, .. }) = self.queries.remove(&query) else { return };
        if payload.len() + HEADER_BYTES > context.payload_bytes_max {
            self.send_answer(context, &node, survey, Some(QueryFault::TooLarge), Bytes::new());
        } else {
            self.send_answer(context, &node, survey, None, payload);
        }
    }

    fn send_answer(
        &self,
        context: &mut Context,
        node: &str,
        survey: SurveyNumber,
        refused: Option<QueryFault>,
        payload: Bytes,
    ) {
        let mut headers = MessageHeaders::new().with(NODE, self.node.clone());
        if let Some(fault) = refused {
            headers.push(REFUSED, fault.label());
        }
        let subject = format!("{}{}.{}", self.subjects.answer_prefix, encode_token(node), survey.0);
        context.link(Self::message(subject.into(), headers, payload));
    }
}
