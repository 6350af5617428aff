//! Commands of a session on another node, whose transport carries data only from the server.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dunlin_cluster::core::peers::{QueryFault, SurveyFault, SurveyTarget};

use super::{
    calls::{EMULATE, EmulateBody, EmulateResult, PeerCall},
    result_of,
};
use crate::node::NodeCluster;

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

/// Passes commands to a session of another node.
///
/// # Errors
/// [`ForwardFault`]
pub async fn emulate_on(cluster: &NodeCluster, node: &str, session: &str, commands: &[u8]) -> Result<(), ForwardFault> {
    let nodes = cluster.live_nodes();
    let live = nodes.iter().find(|live| *live.node == *node).ok_or(ForwardFault::UnknownNode)?;
    // Nothing may leave this node for a session that the client made up. Nodes of earlier versions have no key.
    if live.about.session_tag_key.as_ref().is_some_and(|key| !key.has_tagged(session)) {
        return Err(ForwardFault::ForeignSession);
    }
    let body = EmulateBody { session: session.into(), b64data: STANDARD.encode(commands).into() };
    let call = PeerCall::new(EMULATE, &body);
    let found = cluster.survey(SurveyTarget::Node(node.into()), call.encode()).await.map_err(|fault| match fault {
        SurveyFault::Busy => ForwardFault::Unavailable,
        SurveyFault::TooLarge => ForwardFault::TooLarge,
    })?;
    if found.missing.iter().any(|missing| missing.fault == QueryFault::NotLive) {
        return Err(ForwardFault::UnknownNode);
    }
    let answer = found.answers.first().ok_or(ForwardFault::Unavailable)?;
    let result = result_of(&answer.payload).map_err(|_| ForwardFault::Unavailable)?;
    match serde_json::from_str(result.get()) {
        Ok(EmulateResult { taken: true }) => Ok(()),
        _ => Err(ForwardFault::Unavailable),
    }
}
