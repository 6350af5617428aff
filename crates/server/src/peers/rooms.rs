//! Whether another node has a room, which this node is about to open.

use dunlin_cluster::core::peers::{NodeAnswer, SurveyTarget};
use dunlin_engine::{
    api::{ApiAnswer, ApiRequest},
    room::{RoomElsewhere, RoomState},
};
use serde::{Deserialize, Serialize};

use super::{
    ask::result_of,
    message::{AnswerFault, PeerError, encode_question},
    serve::{LocalReports, PeerService},
};

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
}

impl<R: LocalReports> PeerService<R> {
    /// Asks all other nodes for a room.
    pub(super) async fn find_room(&self, channel: &str) -> RoomElsewhere {
        let question = RoomStateQuestion { channel: channel.into() };
        let Ok(found) = self.cluster.survey(SurveyTarget::All, encode_question(&question)).await else {
            return RoomElsewhere::Unanswered;
        };
        let mut states = Vec::new();
        let mut is_complete = found.is_complete();
        for answer in &found.answers {
            match self.state_of(answer) {
                Ok(state) => states.push(state),
                // It is of a version that does not know the kind or this format, and asks nobody before it opens a room.
                Err(AnswerFault::Error(error)) if error.code == PeerError::NOT_FOUND.code => {}
                Err(_) => is_complete = false,
            }
        }
        elsewhere(states.into_iter(), &self.own.uid, is_complete)
    }

    fn state_of(&self, answer: &NodeAnswer) -> Result<RoomStateAnswer, AnswerFault> {
        result_of::<RoomStateQuestion>(&self.cluster, answer)
    }

    /// The state of a room on this node, for another one.
    pub(super) async fn room_state(&self, channel: Box<str>, wait_ms: u64) -> Result<RoomStateAnswer, PeerError> {
        let request = ApiRequest::RoomState { channel: channel.clone(), wait_ms };
        let ApiAnswer::RoomState(state) = self.ask_owner(&channel, request).await? else {
            return Err(PeerError::INTERNAL);
        };
        let state = match state {
            RoomState::None => PeerRoomState::None,
            RoomState::Asking => PeerRoomState::Asking,
            RoomState::Open => PeerRoomState::Open,
        };
        Ok(RoomStateAnswer { state, uid: self.own.uid.clone(), name: self.own.name.clone() })
    }
}

/// What the answers of other nodes mean for a node with this id.
fn elsewhere(states: impl Iterator<Item = RoomStateAnswer>, own_uid: &str, is_complete: bool) -> RoomElsewhere {
    let mut is_left = false;
    for other in states {
        match other.state {
            PeerRoomState::None => {}
            // Both nodes ask: the one with the lower id opens the room, unless a third one has it or does not answer.
            PeerRoomState::Asking => is_left |= *other.uid < *own_uid,
            PeerRoomState::Open => {
                return RoomElsewhere::Open { node: if other.name.is_empty() { other.uid } else { other.name } };
            }
        }
    }
    if is_complete && !is_left { RoomElsewhere::Nowhere } else { RoomElsewhere::Unanswered }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(answers: &[(PeerRoomState, &str)], own_uid: &str, is_complete: bool) -> RoomElsewhere {
        let states =
            answers.iter().map(|(state, uid)| RoomStateAnswer { state: *state, uid: (*uid).into(), name: "".into() });
        elsewhere(states, own_uid, is_complete)
    }

    fn open(node: &str) -> RoomElsewhere {
        RoomElsewhere::Open { node: node.into() }
    }

    #[test]
    fn of_nodes_that_ask_at_the_same_time_one_opens_the_room() {
        use PeerRoomState::{Asking, None, Open};
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
