//! Asks other nodes.

use std::fmt;

use dunlin_cluster::core::peers::{NodeAnswer, QueryFault, SurveyFault, SurveyTarget};

use super::{
    kinds::{EmulateAnswer, EmulateOrder, Question},
    message::{AnswerFault, decode_answer, encode_question},
};
use crate::node::NodeCluster;

/// A live node that returned no result, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingPeer {
    /// Its name, or its id if it has none.
    pub name: Box<str>,
    /// For human readers.
    pub why: String,
}

/// The results of other nodes.
#[derive(Clone, Debug)]
pub struct PeerAnswers<A> {
    /// In any order.
    pub results: Vec<A>,
    /// The nodes without a result.
    pub missing: Vec<MissingPeer>,
    /// Of these, the ids of those that have answered with an error: they are there, and do not take part.
    pub declining: Vec<Box<str>>,
    /// Whether this node may not know all others.
    pub is_cut_off: bool,
}

impl<A> PeerAnswers<A> {
    /// Of a node without a cluster.
    pub const ALONE: Self = Self { results: Vec::new(), missing: Vec::new(), declining: Vec::new(), is_cut_off: false };

    /// Whether a result may be missing.
    pub fn is_partial(&self) -> bool {
        self.is_cut_off || !self.missing.is_empty()
    }
}

/// Why commands could not be passed to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardFault {
    /// No live node has this id.
    UnknownNode,
    /// The node has not issued the id of the session.
    ForeignSession,
    /// The message exceeds the maximum payload of NATS.
    TooLarge,
    /// A queue of either node is full, or the node does not answer.
    Unavailable,
}

/// Why one node has no result for a question, for human readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskFault {
    /// The question or its answer may have been lost, or was one too many at this time.
    Unanswered(String),
    /// It would not be answered a second time either: with an error, for example.
    Refused(String),
}

impl fmt::Display for AskFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Unanswered(why) | Self::Refused(why)) = self;
        f.write_str(why)
    }
}

/// Asks all other live nodes.
///
/// # Errors
/// The question was not sent.
pub async fn ask_all<Q: Question>(cluster: &NodeCluster, question: &Q) -> Result<PeerAnswers<Q::Answer>, SurveyFault> {
    let found = cluster.survey(SurveyTarget::All, encode_question(question)).await?;
    let named = |node: &str| {
        let nodes = cluster.live_nodes();
        let name = nodes.iter().find(|live| *live.node == *node).map(|live| live.about.name.clone());
        name.filter(|name| !name.is_empty()).unwrap_or_else(|| node.into())
    };
    let mut answers = PeerAnswers { is_cut_off: found.is_cut_off, ..PeerAnswers::ALONE };
    for missing in found.missing {
        let name = if missing.name.is_empty() { missing.node } else { missing.name };
        answers.missing.push(MissingPeer { name, why: missing.fault.to_string() });
    }
    for answer in found.answers {
        match result_of::<Q>(cluster, &answer) {
            Ok(result) => answers.results.push(result),
            Err(fault) => {
                answers.missing.push(MissingPeer { name: named(&answer.node), why: fault.to_string() });
                if matches!(fault, AnswerFault::Error(_)) {
                    answers.declining.push(answer.node);
                }
            }
        }
    }
    Ok(answers)
}

/// Asks one live node.
///
/// # Errors
/// No live node has this id, or there is no answer.
pub async fn ask_node<Q: Question>(cluster: &NodeCluster, node: &str, question: &Q) -> Result<Q::Answer, AskFault> {
    let asked = cluster.survey(SurveyTarget::Node(node.into()), encode_question(question)).await;
    let found = asked.map_err(|fault| match fault {
        SurveyFault::Busy => AskFault::Unanswered("too many questions wait for answers".to_owned()),
        SurveyFault::TooLarge => AskFault::Refused("the question is too large for NATS".to_owned()),
    })?;
    match (found.answers.first(), found.missing.first()) {
        (Some(answer), _) => result_of::<Q>(cluster, answer).map_err(|fault| AskFault::Refused(fault.to_string())),
        (None, Some(missing)) => Err(match missing.fault {
            fault @ (QueryFault::Silent | QueryFault::Busy) => AskFault::Unanswered(fault.to_string()),
            fault @ (QueryFault::NotLive | QueryFault::TooLarge) => AskFault::Refused(fault.to_string()),
        }),
        (None, None) => Err(AskFault::Unanswered("does not answer".to_owned())),
    }
}

/// The result in an answer. One that is not understood, or too large, is counted.
pub(super) fn result_of<Q: Question>(cluster: &NodeCluster, answer: &NodeAnswer) -> Result<Q::Answer, AnswerFault> {
    decode_answer::<Q>(&answer.payload).inspect_err(|fault| {
        if matches!(fault, AnswerFault::NotUnderstood | AnswerFault::TooLarge { .. }) {
            cluster.question_counters().count_answer_not_understood();
        }
    })
}

/// Passes commands to a session of another node.
///
/// # Errors
/// [`ForwardFault`]
pub async fn emulate_on(
    cluster: &NodeCluster,
    node: &str,
    session: &str,
    commands: Vec<u8>,
) -> Result<(), ForwardFault> {
    let nodes = cluster.live_nodes();
    let live = nodes.iter().find(|live| *live.node == *node).ok_or(ForwardFault::UnknownNode)?;
    // Nothing may leave this node for a session that the client made up. Nodes of earlier versions have no key.
    if live.about.session_tag_key.as_ref().is_some_and(|key| !key.has_tagged(session)) {
        return Err(ForwardFault::ForeignSession);
    }
    let order = EmulateOrder { session: session.into(), commands };
    let asked = cluster.survey(SurveyTarget::Node(node.into()), encode_question(&order)).await;
    let found = asked.map_err(|fault| match fault {
        SurveyFault::Busy => ForwardFault::Unavailable,
        SurveyFault::TooLarge => ForwardFault::TooLarge,
    })?;
    if found.missing.iter().any(|missing| missing.fault == QueryFault::NotLive) {
        return Err(ForwardFault::UnknownNode);
    }
    let answer = found.answers.first().ok_or(ForwardFault::Unavailable)?;
    match result_of::<EmulateOrder>(cluster, answer) {
        Ok(EmulateAnswer { taken: true }) => Ok(()),
        Ok(EmulateAnswer { taken: false }) | Err(_) => Err(ForwardFault::Unavailable),
    }
}
