//! Whether another node has a room, which this node is about to open.

use dunlin_cluster::core::peers::{NodeAnswer, SurveyTarget};
use dunlin_engine::{
    api::{ApiAnswer, ApiRequest},
    room::{RoomElsewhere, RoomState},
};
use serde::{Deserialize, Serialize};

use super::{
    super::{ApiError, JsonResult, result::to_outcome},
    PeerService,
    calls::{PeerCall, PeerReply, ROOM_STATE},
};

/// The code for an unknown method, and for a request that is not understood at all.
const NOT_FOUND: u32 = 104;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StateBody {
    None,
    Asking,
    Open,
}

/// A node's answer to [`ROOM_STATE`].
#[derive(Debug, Serialize, Deserialize)]
struct RoomStateBody {
    state: StateBody,
    /// The id of the node, by which two nodes that ask at the same time decide.
    uid: Box<str>,
    name: Box<str>,
}

impl PeerService {
    /// Asks all other nodes for a room.
    pub(super) async fn find_room(&self, channel: &str) -> RoomElsewhere {
        let call = PeerCall::of_channel(ROOM_STATE, channel);
        let Ok(found) = self.cluster.survey(SurveyTarget::All, call.encode()).await else {
            return RoomElsewhere::Unanswered;
        };
        let mut states = Vec::new();
        let mut is_complete = found.is_complete();
        for answer in &found.answers {
            match state_of(answer) {
                Ok(state) => states.push(state),
                // It is of a version that does not know the method or this format, and asks nobody before it opens a room.
                Err(NotTold::NotUnderstood) => {}
                Err(_) => is_complete = false,
            }
        }
        elsewhere(states.into_iter(), &self.executor.identity().uid, is_complete)
    }

    /// The state of a room on this node, for another one.
    pub(super) async fn room_state_here(&self, channel: Box<str>, wait_ms: u64) -> JsonResult {
        let request = ApiRequest::RoomState { channel: channel.clone(), wait_ms };
        let ApiAnswer::RoomState(state) = self.executor.ask(&channel, request).await? else {
            return Err(ApiError::INTERNAL);
        };
        let state = match state {
            RoomState::None => StateBody::None,
            RoomState::Asking => StateBody::Asking,
            RoomState::Open => StateBody::Open,
        };
        let identity = self.executor.identity();
        to_outcome(&RoomStateBody { state, uid: identity.uid.as_str().into(), name: identity.name.as_str().into() })
    }
}

/// Why an answer has no state.
enum NotTold {
    NotUnderstood,
    Other,
}

fn state_of(answer: &NodeAnswer) -> Result<RoomStateBody, NotTold> {
    match PeerReply::decode(&answer.payload) {
        Some(PeerReply { error: Some(error), .. }) if error.code == NOT_FOUND => Err(NotTold::NotUnderstood),
        Some(PeerReply { result: Some(result), .. }) => serde_json::from_str(result.get()).map_err(|_| NotTold::Other),
        _ => Err(NotTold::Other),
    }
}

/// What the answers of other nodes mean for a node with this id.
fn elsewhere(states: impl Iterator<Item = RoomStateBody>, own_uid: &str, is_complete: bool) -> RoomElsewhere {
    let mut is_left = false;
    for other in states {
        match other.state {
            StateBody::None => {}
            // Both nodes ask: the one with the lower id opens the room, unless a third one has it or does not answer.
            StateBody::Asking => is_left |= *other.uid < *own_uid,
            StateBody::Open => {
                return RoomElsewhere::Open { node: if other.name.is_empty() { other.uid } else { other.name } };
            }
        }
    }
    if is_complete && !is_left { RoomElsewhere::Nowhere } else { RoomElsewhere::Unanswered }
}

/// An answer, for the test of its bytes.
#[cfg(test)]
pub(super) fn golden() -> JsonResult {
    to_outcome(&RoomStateBody { state: StateBody::Asking, uid: "n".into(), name: "one".into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(answers: &[(StateBody, &str)], own_uid: &str, is_complete: bool) -> RoomElsewhere {
        let states =
            answers.iter().map(|(state, uid)| RoomStateBody { state: *state, uid: (*uid).into(), name: "".into() });
        elsewhere(states, own_uid, is_complete)
    }

    fn open(node: &str) -> RoomElsewhere {
        RoomElsewhere::Open { node: node.into() }
    }

    #[test]
    fn of_nodes_that_ask_at_the_same_time_one_opens_the_room() {
        use StateBody::{Asking, None, Open};
        assert_eq!(found(&[], "b", true), RoomElsewhere::Nowhere);
        assert_eq!(found(&[(None, "a"), (None, "c")], "b", true), RoomElsewhere::Nowhere);
        assert_eq!(found(&[(None, "a")], "b", false), RoomElsewhere::Unanswered);
        assert_eq!(found(&[(None, "a"), (Open, "c")], "b", false), open("c"), "whoever else does not answer");
        let asking = [(Asking, "a"), (Asking, "b"), (Asking, "c")];
        let opens = |own: &str| {
            let others: Vec<_> = asking.into_iter().filter(|(_, uid)| *uid != own).collect();
            found(&others, own, true) == RoomElsewhere::Nowhere
        };
        assert_eq!(["a", "b", "c"].map(opens), [true, false, false]);
        assert_eq!(found(&[(Asking, "a")], "c", true), RoomElsewhere::Unanswered, "it may not open the room after all");
        assert_eq!(found(&[(Asking, "a"), (Open, "b")], "c", true), open("b"));
    }
}
