//! Opens rooms for the queues. Creating a world may take long, so the queues do not wait for it.

use std::sync::Arc;

use dunlin_config::MatchSettings;
use dunlin_engine::{
    Refused,
    api::{ApiAnswer, ApiRequest, ApiResult},
};
use dunlin_matchmaking::{MatchCriteria, MatchRoomId, OpenFailure, OpenedRoom};
use dunlin_protocol::ErrorCode;
use serde_json::{Map, Value};
use tokio::task::JoinSet;

use super::RoomSummary;
use crate::{
    node::{Node, NodeError},
    peers::{self, OpenRoomOrder, RoomOpening},
};

/// The outcome of an opening.
pub(super) struct Opened {
    /// Index of the queue.
    pub queue: usize,
    pub room: MatchRoomId,
    pub outcome: Result<(), OpenFailure>,
    /// The channel of a room that another node has not taken, and that is on this one.
    pub fell_back: Option<Box<str>>,
}

/// The rooms that are being opened, at most `room.match.opening_limit` per queue.
pub(super) struct Openings {
    node: Node,
    in_flight: JoinSet<Opened>,
}

impl Openings {
    pub fn new(node: Node) -> Self {
        Self { node, in_flight: JoinSet::new() }
    }

    /// Opens a room for a queue, on another node or on this one.
    pub fn begin(&mut self, queue: usize, room: MatchRoomId, order: OpenRoomOrder, on: Option<Box<str>>) {
        let node = self.node.clone();
        self.in_flight.spawn(async move {
            let answer = match on.zip(node.cluster()) {
                Some((other, cluster)) => peers::ask_node(cluster, &other, &order).await.ok(),
                None => return Opened { queue, room, outcome: open(&node, &order).await, fell_back: None },
            };
            if let Some(opening @ (RoomOpening::Opened | RoomOpening::Failed)) = answer {
                return Opened { queue, room, outcome: opening.into(), fell_back: None };
            }
            // The other node is draining, or has reached a limit. If only its answer is missing and it has the room, this node
            // finds it there, and opens none.
            let outcome = open(&node, &order).await;
            Opened { queue, room, outcome, fell_back: outcome.is_ok().then_some(order.channel) }
        });
    }

    /// Waits for the next outcome; forever if nothing is in flight.
    pub async fn next(&mut self) -> Opened {
        match self.in_flight.join_next().await {
            Some(Ok(opened)) => opened,
            Some(Err(failure)) => std::panic::resume_unwind(failure.into_panic()),
            None => std::future::pending().await,
        }
    }
}

/// The parameters of a room that its tickets determine: the criteria with configured names, and the region. Empty if there are
/// none.
pub(super) fn params(settings: &MatchSettings, criteria: &MatchCriteria, region: Option<&str>) -> Box<str> {
    let is_param = |name: &str| settings.criteria_params.iter().any(|param| **param == *name);
    let region = settings.region_param.as_deref().zip(region);
    let params: Map<String, Value> = criteria
        .pairs()
        .filter(|(name, _)| is_param(name))
        .chain(region)
        .map(|(name, value)| (name.to_owned(), Value::from(value)))
        .collect();
    if params.is_empty() { Box::default() } else { Value::Object(params).to_string().into() }
}

/// A room that was opened with its own parameters. The parameters that tickets determine become its criteria and its
/// region.
pub(super) fn opened_room(settings: &MatchSettings, room: &RoomSummary) -> OpenedRoom {
    let params: Map<String, Value> = serde_json::from_str(&room.params).unwrap_or_default();
    let text = |name: &str| params.get(name).and_then(Value::as_str);
    let criteria = settings.criteria_params.iter().filter_map(|name| Some((name.clone(), text(name)?.into())));
    let region = settings.region_param.as_deref().and_then(text).filter(|region| !region.is_empty());
    OpenedRoom {
        channel: Arc::clone(&room.channel),
        params: Arc::clone(&room.params),
        criteria: MatchCriteria::new(criteria).ok(),
        region: region.map(Into::into),
    }
}

/// Opens a room on this node.
pub(crate) async fn open(node: &Node, order: &OpenRoomOrder) -> Result<(), OpenFailure> {
    let request = ApiRequest::OpenRoom { channel: order.channel.clone(), overrides: Arc::new(order.overrides()) };
    outcome(node.ask_owner(&order.channel, request).await)
}

fn outcome(answer: Result<ApiResult, NodeError>) -> Result<(), OpenFailure> {
    match answer {
        // The memory limit of all rooms is reached. Tickets wait until other rooms have closed.
        Ok(Ok(ApiAnswer::NotOpened(refusal))) if refusal.code == ErrorCode::LimitExceeded as u16 => {
            Err(OpenFailure::Busy)
        }
        Ok(Ok(ApiAnswer::NotOpened(_))) => Err(OpenFailure::Failed),
        Ok(Ok(_)) => Ok(()),
        Ok(Err(Refused { code: ErrorCode::LimitExceeded | ErrorCode::TooManyRequests, .. }))
        | Err(NodeError::Stopped) => Err(OpenFailure::Busy),
        Ok(Err(_)) | Err(NodeError::Stream(_)) => Err(OpenFailure::Failed),
    }
}

#[cfg(test)]
mod tests {
    use dunlin_rooms::Refusal;

    use super::*;

    #[test]
    fn a_refusal_by_a_limit_keeps_tickets_waiting_and_others_fail_the_room() {
        let not_opened = |code| outcome(Ok(Ok(ApiAnswer::NotOpened(Refusal { code, message: "".into() }))));
        assert_eq!(not_opened(106), Err(OpenFailure::Busy), "the memory of all rooms");
        assert_eq!(not_opened(400), Err(OpenFailure::Failed), "the game refuses the parameters");
        let refused = |code: ErrorCode| outcome(Ok(Err(code.into())));
        assert_eq!(refused(ErrorCode::LimitExceeded), Err(OpenFailure::Busy), "room.max_rooms");
        assert_eq!(refused(ErrorCode::TooManyRequests), Err(OpenFailure::Busy), "room.open_rate_limit");
        assert_eq!(refused(ErrorCode::BadRequest), Err(OpenFailure::Failed));
        assert_eq!(outcome(Err(NodeError::Stopped)), Err(OpenFailure::Busy));
    }
}
