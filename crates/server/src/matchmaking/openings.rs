//! Rooms that the queues open. A world may take long to make, so the queues go on meanwhile.

use std::sync::Arc;

use dunlin_engine::api::{ApiAnswer, ApiRefusal, ApiRequest};
use dunlin_matchmaking::{MatchRoomId, OpenFailure};
use dunlin_protocol::ErrorCode;
use tokio::task::JoinSet;

use crate::node::{Node, NodeError};

/// The outcome of an opening.
pub(super) struct Opened {
    /// Index of the queue.
    pub queue: usize,
    pub room: MatchRoomId,
    pub outcome: Result<(), OpenFailure>,
}

/// The openings in flight. A queue has at most `room.match.opening_limit`.
pub(super) struct Openings {
    node: Node,
    in_flight: JoinSet<Opened>,
}

impl Openings {
    pub fn new(node: Node) -> Self {
        Self { node, in_flight: JoinSet::new() }
    }

    /// Opens a room for a queue.
    pub fn begin(&mut self, queue: usize, room: MatchRoomId, channel: Arc<str>) {
        let node = self.node.clone();
        self.in_flight.spawn(async move { Opened { queue, room, outcome: open(&node, &channel).await } });
    }

    /// Waits for the next outcome, for ever if nothing is in flight.
    pub async fn next(&mut self) -> Opened {
        match self.in_flight.join_next().await {
            Some(Ok(opened)) => opened,
            Some(Err(failure)) => std::panic::resume_unwind(failure.into_panic()),
            None => std::future::pending().await,
        }
    }
}

async fn open(node: &Node, channel: &str) -> Result<(), OpenFailure> {
    let request = ApiRequest::OpenRoom { channel: channel.into(), overrides: Arc::default() };
    match node.ask_owner(channel, request).await {
        Ok(Ok(ApiAnswer::NotOpened(_))) => Err(OpenFailure::Failed),
        Ok(Ok(_)) => Ok(()),
        Ok(Err(ApiRefusal { code: ErrorCode::LimitExceeded | ErrorCode::TooManyRequests, .. }))
        | Err(NodeError::Stopped) => Err(OpenFailure::Busy),
        Ok(Err(_)) | Err(NodeError::Stream(_)) => Err(OpenFailure::Failed),
    }
}
