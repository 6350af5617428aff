//! Executes commands: sends requests to the shards and combines the results.

use std::sync::Arc;

use futures_util::{StreamExt as _, stream};

use super::{
    ApiCommand, ApiError, ChannelsWanted, CommandBatch, JsonResult, Method, Parsed,
    all_nodes::AllNodes,
    own_node::OwnNode,
    paths::{self, BinaryPaths},
    trace,
};
use crate::{matchmaking::MatchHandle, telemetry::api_counters::ControlCounters};

/// Maximum number of concurrent requests to shards per API request.
pub(super) const QUESTIONS_AT_ONCE: usize = 64;

/// Executes commands.
pub struct Executor {
    own: OwnNode,
    counters: Arc<ControlCounters>,
    /// `None` if no namespace has matchmaking or a lobby.
    matchmaking: Option<MatchHandle>,
}

impl Executor {
    /// An executor for a running node.
    pub const fn new(own: OwnNode, counters: Arc<ControlCounters>) -> Self {
        Self { own, counters, matchmaking: None }
    }

    /// Adds the matchmaking that executes commands about tickets.
    #[must_use]
    pub fn with_matchmaking(self, matchmaking: Option<MatchHandle>) -> Self {
        Self { matchmaking, ..self }
    }

    /// Executes one command and counts it.
    ///
    /// # Errors
    /// The error for the response.
    pub async fn run(&self, method: Method, command: Parsed) -> JsonResult {
        let span = trace::command(method);
        let outcome = match command {
            Ok(command) => command.carry_out(self).await,
            Err(error) => Err(error),
        };
        trace::end(span, outcome.as_ref().err());
        self.counters.count_request(method, outcome.as_ref().err());
        outcome
    }

    /// Executes [`Method::RoomPaths`] for a binary response, and counts it.
    ///
    /// # Errors
    /// As [`Executor::run`].
    pub async fn run_binary(&self, command: Parsed) -> Result<BinaryPaths, ApiError> {
        let span = trace::command(Method::RoomPaths);
        let outcome = match command {
            Ok(ApiCommand::RoomPaths(wanted)) => paths::read_binary(self.own.node(), *wanted).await,
            Ok(_) => Err(ApiError::INTERNAL),
            Err(error) => Err(error),
        };
        trace::end(span, outcome.as_ref().err());
        self.counters.count_request(Method::RoomPaths, outcome.as_ref().err());
        outcome
    }

    /// The states of all nodes.
    ///
    /// # Errors
    /// The error for the response.
    pub async fn status(&self) -> JsonResult {
        AllNodes::new(&self.own).status().await
    }

    /// A page of channels with subscribers, on all nodes.
    ///
    /// # Errors
    /// The error for the response.
    pub async fn channel_page(&self, wanted: ChannelsWanted) -> JsonResult {
        AllNodes::new(&self.own).channel_page(wanted).await
    }

    /// Executes the commands of a batch. Returns one reply for each, in order, with its method.
    pub async fn run_batch(&self, batch: CommandBatch) -> Vec<(Option<Method>, JsonResult)> {
        let at_once = if batch.parallel { QUESTIONS_AT_ONCE } else { 1 };
        let replies = stream::iter(batch.commands).map(|(method, command)| async move {
            let outcome = match method {
                // Boxed, because the future of a broadcast is as large as this one.
                Some(known) => Box::pin(self.run(known, command)).await,
                None => Err(command.err().unwrap_or(ApiError::NOT_FOUND)),
            };
            (method, outcome)
        });
        self.counters.count_request(Method::Batch, None);
        replies.buffered(at_once).collect().await
    }

    /// This node.
    pub(super) const fn own(&self) -> &OwnNode {
        &self.own
    }

    /// All nodes of the cluster.
    pub(super) const fn all_nodes(&self) -> AllNodes<'_> {
        AllNodes::new(&self.own)
    }

    /// The matchmaking, if there is one.
    pub(super) const fn matchmaking(&self) -> Option<&MatchHandle> {
        self.matchmaking.as_ref()
    }
}
