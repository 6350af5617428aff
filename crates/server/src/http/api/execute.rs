//! Executes commands: sends requests to the shards and combines the results.

use std::sync::Arc;

use dunlin_engine::api::{ApiAnswer, ApiRequest};
use futures_util::{StreamExt as _, stream};

use super::{
    ApiCommand, ApiError, ChannelsWanted, CommandBatch, JsonResult, Method, Parsed,
    all_nodes::AllNodes,
    command::ApiPublication,
    own_node::OwnNode,
    paths::{self, BinaryPaths},
    result, rooms,
};
use crate::{
    matchmaking::{MatchHandle, TicketFault},
    telemetry::api_counters::ControlCounters,
};

/// Maximum number of concurrent requests to shards per API request.
const QUESTIONS_AT_ONCE: usize = 64;

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
        let outcome = match command {
            Ok(command) => self.carry_out(command).await,
            Err(error) => Err(error),
        };
        self.counters.count_request(method, outcome.as_ref().err());
        outcome
    }

    /// Executes [`Method::RoomPaths`] for a binary response, and counts it.
    ///
    /// # Errors
    /// As [`Executor::run`].
    pub async fn run_binary(&self, command: Parsed) -> Result<BinaryPaths, ApiError> {
        let outcome = match command {
            Ok(ApiCommand::RoomPaths(wanted)) => paths::read_binary(self.own.node(), *wanted).await,
            Ok(_) => Err(ApiError::INTERNAL),
            Err(error) => Err(error),
        };
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

    /// Executes a command, on all nodes of the cluster if it concerns them.
    async fn carry_out(&self, command: ApiCommand) -> JsonResult {
        let (own, all) = (&self.own, AllNodes::new(&self.own));
        match command {
            ApiCommand::Publish { channel, publication } => self.publish(channel, publication).await,
            ApiCommand::Broadcast { channels, publication } => self.broadcast(channels, publication).await,
            ApiCommand::Presence { channel } => all.presence(channel).await,
            ApiCommand::PresenceStats { channel } => all.presence_stats(channel).await,
            ApiCommand::History { channel, query } => {
                let request = ApiRequest::History { channel: channel.clone(), query };
                let ApiAnswer::History { publications, epoch, offset, is_cut } = own.ask(&channel, request).await?
                else {
                    return Err(ApiError::INTERNAL);
                };
                let publications =
                    publications.iter().map(|publication| result::PublicationJson::new(publication)).collect();
                result::to_outcome(&result::HistoryJson { publications, epoch: &epoch, offset, truncated: is_cut })
            }
            ApiCommand::HistoryRemove { channel } => {
                let request = ApiRequest::HistoryRemove { channel: channel.clone() };
                own.ask(&channel, request).await?;
                result::to_outcome(&result::EmptyJson {})
            }
            ApiCommand::Channels { pattern } => all.channels(pattern).await,
            ApiCommand::WithSessions(request) => all.order(request).await,
            ApiCommand::Info => all.info().await,
            ApiCommand::RoomClose { channel } => {
                let closed = own.node().stored_room(&channel);
                match own.ask(&channel, ApiRequest::CloseRoom { channel: channel.clone() }).await? {
                    ApiAnswer::Done { sessions } => {
                        own.node().forget_room(&channel, closed).await.map_err(ApiError::internal)?;
                        result::to_outcome(&result::RoomClosedJson { num_players: sessions })
                    }
                    _ => Err(ApiError::INTERNAL),
                }
            }
            ApiCommand::Rooms => all.rooms().await,
            ApiCommand::RoomList(query) => all.room_list(&query).await,
            ApiCommand::RoomInfo { channel } => all.room_info(channel).await,
            ApiCommand::RoomPaths(wanted) => paths::read_json(own.node(), *wanted).await,
            ApiCommand::Sessions(wanted) => all.sessions(&wanted).await,
            ApiCommand::Room(command) => rooms::carry_out(own, command).await,
            ApiCommand::Ticket(command) => {
                let matchmaking = self.matchmaking.as_ref().ok_or(TicketFault::NotEnabled)?;
                result::to_outcome(&matchmaking.ask(*command).await?)
            }
        }
    }

    async fn publish(&self, channel: Box<str>, publication: ApiPublication) -> JsonResult {
        let ApiPublication { data, how } = publication;
        let request = ApiRequest::Publish { channel: channel.clone(), data, how };
        match self.own.ask(&channel, request).await? {
            ApiAnswer::Published { offset, epoch } => result::to_outcome(&result::PublishedJson { offset, epoch }),
            _ => Err(ApiError::INTERNAL),
        }
    }

    async fn broadcast(&self, channels: Vec<Box<str>>, publication: ApiPublication) -> JsonResult {
        let publication = &publication;
        let responses = stream::iter(channels).map(|channel| async move {
            if channel.is_empty() {
                return result::ApiResponse::Error(ApiError::NO_CHANNEL);
            }
            result::ApiResponse::from(self.publish(channel, publication.clone()).await)
        });
        let responses = responses.buffered(QUESTIONS_AT_ONCE).collect().await;
        result::to_outcome(&result::BroadcastJson { responses })
    }
}
