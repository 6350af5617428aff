//! Commands that concern the sessions and rooms of all nodes of a cluster. This node executes the command on its own
//! part, sends it to the other live nodes, and merges the results.

mod calls;
mod emulate;
#[cfg(test)]
mod golden;
mod keys;
mod merge;
mod presence;
mod room_state;
mod serve;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use dunlin_cluster::core::peers::{SurveyFault, SurveyTarget};
use serde_json::value::RawValue;

use super::{ApiCommand, ApiError, Executor, JsonResult};
use crate::node::NodeCluster;

use calls::{PeerCall, PeerReply};
use merge::{Merging, ResultKind};

pub use emulate::{ForwardFault, emulate_on};
pub use serve::PeerService;

/// The request to the other nodes for a command, and how their results are merged.
struct SharedCommand {
    kind: ResultKind,
    call: PeerCall,
}

/// A live node that returned no result, and the reason.
struct MissingResult {
    name: Box<str>,
    why: String,
}

/// The results of other nodes.
struct PeerResults {
    results: Vec<Box<RawValue>>,
    missing: Vec<MissingResult>,
    is_cut_off: bool,
}

impl SharedCommand {
    /// `None` for commands that this node can execute alone.
    fn of(command: &ApiCommand) -> Option<Self> {
        let (kind, call) = match command {
            ApiCommand::Presence { channel } => (ResultKind::Presence, PeerCall::of_channel("presence", channel)),
            ApiCommand::PresenceStats { channel } => {
                (ResultKind::PresenceStats, PeerCall::of_channel(calls::PRESENCE_USERS, channel))
            }
            ApiCommand::Channels { pattern } => (ResultKind::Channels, PeerCall::channels(pattern.as_ref())),
            ApiCommand::Info => (ResultKind::Info, PeerCall::plain("info")),
            ApiCommand::Rooms => (ResultKind::Rooms, PeerCall::plain("rooms")),
            ApiCommand::RoomList(query) => {
                let call = PeerCall::new("room_list", &query.to_fields());
                (ResultKind::RoomList { rooms_max: query.rooms_max }, call)
            }
            ApiCommand::RoomInfo { channel } => {
                (ResultKind::RoomInfo, PeerCall::of_channel(calls::CHANNEL_ROOMS, channel))
            }
            ApiCommand::WithSessions(request) => (ResultKind::Empty, PeerCall::with_sessions(request)?),
            _ => return None,
        };
        Some(Self { kind, call })
    }
}

impl Executor {
    /// Executes a command, on all nodes of the cluster if it concerns them.
    pub(super) async fn carry_out(&self, command: ApiCommand) -> JsonResult {
        match (self.node().cluster().cloned(), SharedCommand::of(&command)) {
            (Some(cluster), Some(shared)) => self.carry_out_everywhere(&cluster, command, shared).await,
            _ => self.carry_out_here(command).await,
        }
    }

    async fn carry_out_everywhere(
        &self,
        cluster: &NodeCluster,
        command: ApiCommand,
        SharedCommand { kind, call }: SharedCommand,
    ) -> JsonResult {
        let mut room_of = None;
        let own = match command {
            ApiCommand::PresenceStats { channel } => self.presence_users(channel).await?,
            ApiCommand::RoomInfo { channel } => {
                let own = self.channel_rooms(&channel)?;
                room_of = Some(channel);
                own
            }
            command => self.carry_out_here(command).await?,
        };
        let found = ask_all(cluster, &call).await?;
        let merged = Merging::new(own, found).finish(kind);
        // This node knows whether the namespace has rooms.
        merged.map_err(|error| match room_of {
            Some(channel) if error == ApiError::NOT_FOUND => self.why_no_room(&channel),
            _ => error,
        })
    }
}

/// Sends the request to all other live nodes.
async fn ask_all(cluster: &NodeCluster, call: &PeerCall) -> Result<PeerResults, ApiError> {
    let found = cluster.survey(SurveyTarget::All, call.encode()).await.map_err(|fault| match fault {
        SurveyFault::Busy => {
            ApiError::internal("too many requests wait for other nodes: see broker.nats.peers.surveys_limit")
        }
        SurveyFault::TooLarge => {
            ApiError::bad_request("the request is too large for NATS: raise max_payload of its servers")
        }
    })?;
    let named = |node: &str| {
        let nodes = cluster.live_nodes();
        let name = nodes.iter().find(|live| *live.node == *node).map(|live| live.about.name.clone());
        name.filter(|name| !name.is_empty()).unwrap_or_else(|| node.into())
    };
    let mut results = PeerResults { results: Vec::new(), missing: Vec::new(), is_cut_off: found.is_cut_off };
    for missing in found.missing {
        let name = if missing.name.is_empty() { missing.node } else { missing.name };
        results.missing.push(MissingResult { name, why: missing.fault.to_string() });
    }
    for answer in found.answers {
        match result_of(&answer.payload) {
            Ok(result) => results.results.push(result),
            Err(why) => results.missing.push(MissingResult { name: named(&answer.node), why }),
        }
    }
    Ok(results)
}

fn result_of(payload: &Bytes) -> Result<Box<RawValue>, String> {
    match PeerReply::decode(payload) {
        Some(PeerReply { result: Some(result), .. }) => Ok(result),
        Some(PeerReply { error: Some(error), .. }) => {
            Err(format!("answers with error {}: {}", error.code, error.message))
        }
        _ => Err("has an answer that this version does not understand".to_owned()),
    }
}
