//! Executes commands: sends requests to the shards and combines the results.

use std::{
    collections::BTreeMap,
    sync::Mutex,
    time::{Duration, Instant},
};

use dunlin_engine::api::{ApiAnswer, ApiRequest};
use futures_util::{StreamExt as _, stream};

use super::{
    ApiCommand, ApiError, CommandBatch, JsonResult, Method, Parsed,
    command::ApiPublication,
    glob::{Budget, Exhausted, Glob},
    paths::{self, BinaryPaths},
    result,
};
use crate::{
    matchmaking::{MatchHandle, TicketFault},
    node::{Node, NodeSurvey, ShardReport},
    peers::{ChannelCount, Channels, Description, Info, PeerError, Rooms},
    rooms::RoomReport,
    telemetry::{api_counters::ControlCounters, count_users, process::ProcessUse},
};

/// The constant values in the response to `info`.
#[derive(Clone, Debug)]
pub struct NodeIdentity {
    /// A random id, new at each start.
    pub uid: String,
    /// A name for human readers.
    pub name: String,
    /// The server's version.
    pub version: &'static str,
    /// The shards' reactor.
    pub reactor: &'static str,
    /// The start time.
    pub started: Instant,
}

/// Maximum number of concurrent requests to shards per API request.
const QUESTIONS_AT_ONCE: usize = 64;

/// Maximum number of steps to match a pattern with all channels of the node: a few tenths of a second.
const PATTERN_STEPS_MAX: u64 = 50_000_000;

/// Number of channels that are matched before other tasks may run.
const CHANNELS_PER_TURN: usize = 1_024;

/// Executes commands.
pub struct Executor {
    node: Node,
    identity: NodeIdentity,
    counters: std::sync::Arc<ControlCounters>,
    /// `None` if no namespace has matchmaking or a lobby.
    matchmaking: Option<MatchHandle>,
    /// Processor time and time of the last `info`.
    last_cpu: Mutex<(Duration, Instant)>,
}

impl Executor {
    /// An executor for a running node.
    pub fn new(node: Node, identity: NodeIdentity, counters: std::sync::Arc<ControlCounters>) -> Self {
        let last_cpu = Mutex::new((Duration::ZERO, identity.started));
        Self { node, identity, counters, matchmaking: None, last_cpu }
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
            Ok(ApiCommand::RoomPaths(wanted)) => paths::read_binary(&self.node, *wanted).await,
            Ok(_) => Err(ApiError::INTERNAL),
            Err(error) => Err(error),
        };
        self.counters.count_request(Method::RoomPaths, outcome.as_ref().err());
        outcome
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

    pub(super) const fn identity(&self) -> &NodeIdentity {
        &self.identity
    }

    pub(super) const fn node(&self) -> &Node {
        &self.node
    }

    /// Executes a command, on all nodes of the cluster if it concerns them.
    async fn carry_out(&self, command: ApiCommand) -> JsonResult {
        match command {
            ApiCommand::Publish { channel, publication } => self.publish(channel, publication).await,
            ApiCommand::Broadcast { channels, publication } => self.broadcast(channels, publication).await,
            ApiCommand::Presence { channel } => self.presence(channel).await,
            ApiCommand::PresenceStats { channel } => self.presence_stats(channel).await,
            ApiCommand::History { channel, query } => {
                let request = ApiRequest::History { channel: channel.clone(), query };
                let ApiAnswer::History { publications, epoch, offset, is_cut } = self.ask(&channel, request).await?
                else {
                    return Err(ApiError::INTERNAL);
                };
                let publications =
                    publications.iter().map(|publication| result::PublicationJson::new(publication)).collect();
                result::to_outcome(&result::HistoryJson { publications, epoch: &epoch, offset, truncated: is_cut })
            }
            ApiCommand::HistoryRemove { channel } => {
                let request = ApiRequest::HistoryRemove { channel: channel.clone() };
                self.ask(&channel, request).await?;
                result::to_outcome(&result::EmptyJson {})
            }
            ApiCommand::Channels { pattern } => self.channels(pattern).await,
            ApiCommand::WithSessions(request) => self.order(request).await,
            ApiCommand::Info => self.info().await,
            ApiCommand::RoomClose { channel } => {
                let closed = self.node.stored_room(&channel);
                match self.ask(&channel, ApiRequest::CloseRoom { channel: channel.clone() }).await? {
                    ApiAnswer::Done { sessions } => {
                        self.node.forget_room(&channel, closed).await.map_err(ApiError::internal)?;
                        result::to_outcome(&result::RoomClosedJson { num_players: sessions })
                    }
                    _ => Err(ApiError::INTERNAL),
                }
            }
            ApiCommand::Rooms => self.rooms().await,
            ApiCommand::RoomList(query) => self.room_list(&query).await,
            ApiCommand::RoomInfo { channel } => self.room_info(channel).await,
            ApiCommand::RoomPaths(wanted) => paths::read_json(&self.node, *wanted).await,
            ApiCommand::Sessions(wanted) => self.sessions(&wanted).await,
            ApiCommand::Room(command) => self.carry_out_in_room(command).await,
            ApiCommand::Ticket(command) => {
                let matchmaking = self.matchmaking.as_ref().ok_or(TicketFault::NotEnabled)?;
                result::to_outcome(&matchmaking.ask(*command).await?)
            }
        }
    }

    async fn publish(&self, channel: Box<str>, publication: ApiPublication) -> JsonResult {
        let ApiPublication { data, how } = publication;
        let request = ApiRequest::Publish { channel: channel.clone(), data, how };
        match self.ask(&channel, request).await? {
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

    /// Counts on the shard. In a cluster, the users of all nodes must be distinguished.
    pub(super) async fn own_presence_stats(&self, channel: Box<str>) -> JsonResult {
        let request = ApiRequest::PresenceStats { channel: channel.clone() };
        match self.ask(&channel, request).await? {
            ApiAnswer::PresenceStats { num_clients, num_users } => {
                result::to_outcome(&result::PresenceStatsJson { num_clients, num_users })
            }
            _ => Err(ApiError::INTERNAL),
        }
    }

    /// The channels with subscribers on this node.
    pub(super) async fn own_channels(&self, pattern: Option<Glob>) -> Result<Channels, ApiError> {
        let mut budget = Budget::new(PATTERN_STEPS_MAX);
        let mut channels = BTreeMap::new();
        for answer in self.ask_all(ApiRequest::Channels).await? {
            let ApiAnswer::Channels(found) = answer else { return Err(ApiError::INTERNAL) };
            for (index, (name, num_clients)) in found.into_iter().enumerate() {
                if index % CHANNELS_PER_TURN == CHANNELS_PER_TURN - 1 {
                    tokio::task::yield_now().await;
                }
                let fits = pattern.as_ref().map_or(Ok(true), |pattern| pattern.matches(&name, &mut budget));
                match fits {
                    Ok(true) => {
                        let channel = channels.entry(Box::from(&*name)).or_insert_with(ChannelCount::default);
                        channel.num_clients += num_clients;
                    }
                    Ok(false) => {}
                    Err(Exhausted) => {
                        return Err(ApiError::bad_request("the pattern is too expensive for this number of channels"));
                    }
                }
            }
        }
        Ok(Channels { channels })
    }

    /// What this node says about itself.
    pub(super) async fn own_info(&self) -> Result<Info, ApiError> {
        let NodeSurvey { reports: shards, silent } = self.node.survey().await;
        let process = ProcessUse::now();
        let add = |pick: fn(&ShardReport) -> u32| shards.iter().map(pick).sum();
        let node = result::NodeJson {
            uid: &self.identity.uid,
            name: &self.identity.name,
            version: self.identity.version,
            num_clients: add(|shard| shard.survey.sessions),
            num_users: u32::try_from(count_users(&shards)).unwrap_or(u32::MAX),
            num_channels: add(|shard| shard.survey.channels),
            num_subs: add(|shard| shard.survey.subscriptions),
            uptime: self.identity.started.elapsed().as_secs(),
            process: result::ProcessJson { cpu: self.cpu_percent(&process), rss: process.resident_bytes },
            reactor: self.identity.reactor,
            shards: (shards.len() + silent.len()) as u32,
            silent_shards: silent.iter().map(|shard| shard.0).collect(),
        };
        Ok(Info { nodes: vec![Description::new(&node).ok_or(ApiError::INTERNAL)?] })
    }

    /// The rooms of this node.
    pub(super) fn own_rooms(&self) -> Result<Rooms, ApiError> {
        let described = |room: &RoomReport| {
            let description = Description::new(&result::RoomJson::new(room)).ok_or(ApiError::INTERNAL)?;
            Ok((Box::from(&*room.channel), description))
        };
        Ok(Rooms { rooms: self.node.rooms().iter().map(described).collect::<Result<_, ApiError>>()? })
    }

    /// CPU usage since the last call or the start.
    fn cpu_percent(&self, process: &ProcessUse) -> f64 {
        let now = (process.cpu, Instant::now());
        let mut last = self.last_cpu.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (cpu_before, moment_before) = std::mem::replace(&mut *last, now);
        let elapsed_s = now.1.duration_since(moment_before).as_secs_f64();
        if elapsed_s > 0.0 { now.0.saturating_sub(cpu_before).as_secs_f64() / elapsed_s * 100.0 } else { 0.0 }
    }

    pub(super) async fn ask(&self, channel: &str, request: ApiRequest) -> Result<ApiAnswer, ApiError> {
        let answer = self.node.ask_owner(channel, request).await.map_err(|_| ApiError::INTERNAL)?;
        // One request may affect many channels, and the storage may refuse some of them.
        answer.map_err(|refused| PeerError::of_channel(channel, refused).into())
    }

    /// Executes a request on the sessions of all shards.
    pub(super) async fn done_by_all(&self, request: ApiRequest) -> Result<(), ApiError> {
        self.ask_all(request).await.map(drop)
    }

    /// The results of all shards; an error if any shard failed.
    async fn ask_all(&self, request: ApiRequest) -> Result<Vec<ApiAnswer>, ApiError> {
        let answers = self.node.ask_all(request).await;
        answers.into_iter().map(|answer| answer.map_err(ApiError::from)).collect()
    }
}
