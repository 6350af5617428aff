//! Whether another node has a room, which this node is about to open or to close.

use dunlin_cluster::core::peers::SurveyTarget;
use dunlin_engine::{
    ShardIndex,
    api::{ApiAnswer, ApiRequest},
    room::{RoomElsewhere, RoomKey, RoomSite, RoomState, RoomThreadIndex},
};
use serde::{Deserialize, Serialize};

use super::{
    ask::result_of,
    channel_owner::ask_owner,
    message::{AnswerFault, PeerError, encode_question},
    serve::OwnName,
};
use crate::node::{Node, NodeCluster};

/// See [`super::Received::RoomState`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RoomStateQuestion {
    /// The channel.
    pub channel: Box<str>,
}

/// The state of a room on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerRoomState {
    /// It has none.
    None,
    /// It asks other nodes, as this one does.
    Asking,
    /// It has the room.
    Open,
}

/// A node's answer to [`RoomStateQuestion`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RoomStateAnswer {
    /// The state.
    pub state: PeerRoomState,
    /// The id of the node, by which two nodes that ask at the same time decide.
    pub uid: Box<str>,
    /// Its name; may be empty.
    pub name: Box<str>,
    /// The open room. A node of an earlier version takes no joins of other nodes, and names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<RoomAddress>,
}

/// See [`super::Received::CloseRoom`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CloseRoomOrder {
    /// The channel.
    pub channel: Box<str>,
}

/// A node's answer to [`CloseRoomOrder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomClosed {
    /// The players of the room; `None` if the node had no such room.
    pub num_players: Option<u32>,
}

/// A room on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomAddress {
    /// The shard of its channel's owner.
    pub owner: u16,
    /// Its number among the rooms of the owner.
    pub number: u64,
    /// The thread that runs it.
    pub thread: u16,
    /// Whether the node sends changed fields for clients that receive them. One of an earlier version says nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changes: bool,
}

impl RoomStateAnswer {
    /// The answer of a node on which the room has this state.
    pub(super) fn new(state: RoomState, own: &OwnName) -> Self {
        let (state, room) = match state {
            RoomState::None => (PeerRoomState::None, None),
            RoomState::Asking => (PeerRoomState::Asking, None),
            RoomState::Open { room, thread } => {
                let (owner, number) = (room.owner.0, room.number);
                (PeerRoomState::Open, Some(RoomAddress { owner, number, thread: thread.0, changes: true }))
            }
        };
        Self { state, uid: own.uid.clone(), name: own.name.clone(), room }
    }
}

/// Closes a room of this node, and deletes its stored state.
///
/// # Errors
/// The room may not be closed, or may come back.
pub async fn close_room_here(node: &Node, channel: &str) -> Result<RoomClosed, PeerError> {
    let stored = node.stored_room(channel);
    // The owner of the channel counts the players of this node only.
    let players = node.players_of_room(channel);
    let num_players = match ask_owner(node, channel, ApiRequest::CloseRoom { channel: channel.into() }).await? {
        ApiAnswer::Done { sessions } => Some(players.unwrap_or(sessions)),
        // A room that is stored and not open has no players.
        ApiAnswer::NoRoom => stored.map(|_| 0),
        _ => return Err(PeerError::INTERNAL),
    };
    node.forget_room(channel, stored).await.map_err(PeerError::internal)?;
    Ok(RoomClosed { num_players })
}

/// Asks all other nodes for a room.
pub(super) async fn find_room(cluster: &NodeCluster, own_uid: &str, channel: &str) -> RoomElsewhere {
    let question = RoomStateQuestion { channel: channel.into() };
    let Ok(found) = cluster.survey(SurveyTarget::All, encode_question(&question)).await else {
        return RoomElsewhere::Unanswered;
    };
    let mut states = Vec::new();
    let mut is_complete = found.is_complete();
    for answer in &found.answers {
        match result_of::<RoomStateQuestion>(cluster, answer) {
            Ok(state) => states.push(state),
            // It is of a version that does not know the kind or this format, and asks nobody before it opens a room.
            Err(AnswerFault::Error(error)) if error.code == PeerError::NOT_FOUND.code => {}
            Err(_) => is_complete = false,
        }
    }
    elsewhere(states.into_iter(), own_uid, is_complete)
}

/// What the answers of other nodes mean for a node with this id.
fn elsewhere(states: impl Iterator<Item = RoomStateAnswer>, own_uid: &str, is_complete: bool) -> RoomElsewhere {
    let (mut is_left, mut is_contended) = (false, false);
    for other in states {
        match other.state {
            PeerRoomState::None => {}
            // Both nodes ask: the one with the lower id opens the room, unless a third one has it or does not answer.
            PeerRoomState::Asking => {
                is_contended = true;
                is_left |= *other.uid < *own_uid;
            }
            PeerRoomState::Open => {
                let site = other.room.map(|RoomAddress { owner, number, thread, changes }| {
                    let (room, thread) = (RoomKey { owner: ShardIndex(owner), number }, RoomThreadIndex(thread));
                    Box::new(RoomSite { node: (*other.uid).into(), room, thread, sends_changes: changes })
                });
                let node = if other.name.is_empty() { other.uid } else { other.name };
                return RoomElsewhere::Open { node, site };
            }
        }
    }
    if is_complete && !is_left { RoomElsewhere::Nowhere { is_contended } } else { RoomElsewhere::Unanswered }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(answers: &[(PeerRoomState, &str)], own_uid: &str, is_complete: bool) -> RoomElsewhere {
        let states = answers.iter().map(|(state, uid)| RoomStateAnswer {
            state: *state,
            uid: (*uid).into(),
            name: "".into(),
            room: None,
        });
        elsewhere(states, own_uid, is_complete)
    }

    fn open(node: &str) -> RoomElsewhere {
        RoomElsewhere::Open { node: node.into(), site: None }
    }

    #[test]
    fn of_nodes_that_ask_at_the_same_time_one_opens_the_room() {
        use PeerRoomState::{Asking, None, Open};
        assert_eq!(found(&[], "b", true), RoomElsewhere::Nowhere { is_contended: false });
        assert_eq!(found(&[(None, "a"), (None, "c")], "b", true), RoomElsewhere::Nowhere { is_contended: false });
        assert_eq!(found(&[(None, "a")], "b", false), RoomElsewhere::Unanswered);
        assert_eq!(found(&[(None, "a"), (Open, "c")], "b", false), open("c"), "whoever else does not answer");
        let asking = [(Asking, "a"), (Asking, "b"), (Asking, "c")];
        let opens = |own: &str| {
            let others: Vec<_> = asking.into_iter().filter(|(_, uid)| *uid != own).collect();
            found(&others, own, true) == RoomElsewhere::Nowhere { is_contended: true }
        };
        assert_eq!(["a", "b", "c"].map(opens), [true, false, false]);
        assert_eq!(found(&[(Asking, "a")], "c", true), RoomElsewhere::Unanswered, "it may not open the room after all");
        assert_eq!(found(&[(Asking, "a"), (Open, "b")], "c", true), open("b"));
    }
}
