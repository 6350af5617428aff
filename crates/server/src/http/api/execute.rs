//! Carries commands out: asks the shards, and joins what they answer.

use std::{
    collections::BTreeMap,
    sync::Mutex,
    time::{Duration, Instant},
};

use dunlin_engine::api::{Answer, ApiAnswer, ApiRequest};
use futures_util::{StreamExt as _, stream};

use super::{
    ApiError, Batch, Command, Method, Outcome, Parsed,
    command::Publication,
    glob::{Budget, Exhausted, Glob},
    result,
};
use crate::{
    node::{Node, ShardReport},
    telemetry::{api_counters::ControlCounters, count_users, process::ProcessUse},
};

/// What `info` says of the node and what never changes.
#[derive(Clone, Debug)]
pub struct NodeIdentity {
    /// Random, new at each start.
    pub uid: String,
    /// For people.
    pub name: String,
    /// The server's version.
    pub version: &'static str,
    /// What the shards wait on.
    pub reactor: &'static str,
    /// When it started.
    pub started: Instant,
}

/// Questions to shards that one request has under way at a time.
const QUESTIONS_AT_ONCE: usize = 64;

/// Steps of a pattern over all channels of the node: some tenths of a second.
const PATTERN_STEPS_MAX: u64 = 50_000_000;

/// Channels that are looked at before others get a turn.
const CHANNELS_PER_TURN: usize = 1_024;

/// Carries out commands.
pub struct Executor {
    node: Node,
    identity: NodeIdentity,
    counters: std::sync::Arc<ControlCounters>,
    /// Processor time and moment of the last `info`.
    last_cpu: Mutex<(Duration, Instant)>,
}

impl Executor {
    /// For a running node.
    pub fn new(node: Node, identity: NodeIdentity, counters: std::sync::Arc<ControlCounters>) -> Self {
        let last_cpu = Mutex::new((Duration::ZERO, identity.started));
        Self { node, identity, counters, last_cpu }
    }

    /// Carries out one command, and counts it.
    ///
    /// # Errors
    /// The one to answer with.
    pub async fn run(&self, method: Method, command: Parsed) -> Outcome {
        let outcome = match command {
            Ok(command) => self.carry_out(command).await,
            Err(error) => Err(error),
        };
        self.counters.count_request(method, outcome.as_ref().err());
        outcome
    }

    /// Carries out the commands of a batch. One reply for each, in order, under the method's name.
    pub async fn run_batch(&self, batch: Batch) -> Vec<(Option<Method>, Outcome)> {
        let at_once = if batch.parallel { QUESTIONS_AT_ONCE } else { 1 };
        let replies = stream::iter(batch.commands).map(|(method, command)| async move {
            let outcome = match method {
                // Boxed, since a broadcast in here is as large as one outside.
                Some(known) => Box::pin(self.run(known, command)).await,
                None => Err(command.err().unwrap_or(ApiError::NOT_FOUND)),
            };
            (method, outcome)
        });
        self.counters.count_request(Method::Batch, None);
        replies.buffered(at_once).collect().await
    }

    async fn carry_out(&self, command: Command) -> Outcome {
        match command {
            Command::Publish { channel, publication } => self.publish(channel, publication).await,
            Command::Broadcast { channels, publication } => self.broadcast(channels, publication).await,
            Command::Presence { channel } => self.presence(channel).await,
            Command::PresenceStats { channel } => self.presence_stats(channel).await,
            Command::History { channel, query } => {
                let request = ApiRequest::History { channel: channel.clone(), query };
                let ApiAnswer::History { publications, epoch, offset } = self.ask(&channel, request).await? else {
                    return Err(ApiError::INTERNAL);
                };
                let publications =
                    publications.iter().map(|publication| result::Publication::new(publication)).collect();
                result::to_outcome(&result::History { publications, epoch: &epoch, offset })
            }
            Command::HistoryRemove { channel } => {
                let request = ApiRequest::HistoryRemove { channel: channel.clone() };
                self.ask(&channel, request).await?;
                result::to_outcome(&result::Done {})
            }
            Command::Channels { pattern } => self.channels(pattern).await,
            Command::WithSessions(request) => self.done_by_all(request).await,
            Command::Info => self.info().await,
            Command::RoomOpen { channel } => {
                self.ask(&channel, ApiRequest::OpenRoom { channel: channel.clone() }).await?;
                result::to_outcome(&result::Done {})
            }
            Command::RoomClose { channel } => {
                match self.ask(&channel, ApiRequest::CloseRoom { channel: channel.clone() }).await? {
                    ApiAnswer::Done { sessions } => result::to_outcome(&result::RoomClosed { num_players: sessions }),
                    _ => Err(ApiError::INTERNAL),
                }
            }
            Command::Rooms => {
                let rooms = self.node.rooms();
                let rooms = rooms.iter().map(|room| (&*room.channel, result::Room::new(room))).collect();
                result::to_outcome(&result::Rooms { rooms })
            }
        }
    }

    async fn publish(&self, channel: Box<str>, publication: Publication) -> Outcome {
        let Publication { data, how } = publication;
        let request = ApiRequest::Publish { channel: channel.clone(), data, how };
        match self.ask(&channel, request).await? {
            ApiAnswer::Published { offset, epoch } => result::to_outcome(&result::Published { offset, epoch }),
            _ => Err(ApiError::INTERNAL),
        }
    }

    async fn broadcast(&self, channels: Vec<Box<str>>, publication: Publication) -> Outcome {
        let publication = &publication;
        let responses = stream::iter(channels).map(|channel| async move {
            if channel.is_empty() {
                return result::Answer::Error(ApiError::BAD_REQUEST);
            }
            result::Answer::from(self.publish(channel, publication.clone()).await)
        });
        let responses = responses.buffered(QUESTIONS_AT_ONCE).collect().await;
        result::to_outcome(&result::Broadcast { responses })
    }

    async fn presence(&self, channel: Box<str>) -> Outcome {
        let request = ApiRequest::Presence { channel: channel.clone() };
        let ApiAnswer::Presence(clients) = self.ask(&channel, request).await? else {
            return Err(ApiError::INTERNAL);
        };
        let presence = clients.iter().map(|info| (&*info.client, result::Client::new(info))).collect();
        result::to_outcome(&result::Presence { presence })
    }

    async fn presence_stats(&self, channel: Box<str>) -> Outcome {
        let request = ApiRequest::PresenceStats { channel: channel.clone() };
        match self.ask(&channel, request).await? {
            ApiAnswer::PresenceStats { num_clients, num_users } => {
                result::to_outcome(&result::PresenceStats { num_clients, num_users })
            }
            _ => Err(ApiError::INTERNAL),
        }
    }

    async fn channels(&self, pattern: Option<Glob>) -> Outcome {
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
                        let channel = channels.entry(Box::from(&*name)).or_insert_with(result::Channel::default);
                        channel.num_clients += num_clients;
                    }
                    Ok(false) => {}
                    Err(Exhausted) => {
                        return Err(ApiError::bad_request("the pattern is too costly for so many channels"));
                    }
                }
            }
        }
        result::to_outcome(&result::Channels { channels })
    }

    async fn info(&self) -> Outcome {
        let shards = self.node.report().await;
        let process = ProcessUse::now();
        let add = |pick: fn(&ShardReport) -> u32| shards.iter().map(pick).sum();
        let node = result::Node {
            uid: &self.identity.uid,
            name: &self.identity.name,
            version: self.identity.version,
            num_clients: add(|shard| shard.survey.sessions),
            num_users: u32::try_from(count_users(&shards)).unwrap_or(u32::MAX),
            num_channels: add(|shard| shard.survey.channels),
            num_subs: add(|shard| shard.survey.subscriptions),
            uptime: self.identity.started.elapsed().as_secs(),
            process: result::Process { cpu: self.cpu_percent(&process), rss: process.resident_bytes },
            reactor: self.identity.reactor,
            shards: shards.len() as u32,
        };
        result::to_outcome(&result::Info { nodes: [node] })
    }

    /// Since the last call, or the start.
    fn cpu_percent(&self, process: &ProcessUse) -> f64 {
        let now = (process.cpu, Instant::now());
        let mut last = self.last_cpu.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (cpu_before, moment_before) = std::mem::replace(&mut *last, now);
        let elapsed_s = now.1.duration_since(moment_before).as_secs_f64();
        if elapsed_s > 0.0 { now.0.saturating_sub(cpu_before).as_secs_f64() / elapsed_s * 100.0 } else { 0.0 }
    }

    async fn ask(&self, channel: &str, request: ApiRequest) -> Result<ApiAnswer, ApiError> {
        self.node.ask_owner(channel, request).await.map_err(|_| ApiError::INTERNAL)?.map_err(ApiError::from)
    }

    /// Asks all shards to do something to their sessions.
    async fn done_by_all(&self, request: ApiRequest) -> Outcome {
        self.ask_all(request).await?;
        result::to_outcome(&result::Done {})
    }

    /// The answers of all shards; an error if one has one.
    async fn ask_all(&self, request: ApiRequest) -> Result<Vec<ApiAnswer>, ApiError> {
        let answers = self.node.ask_all(request).await;
        answers.into_iter().map(|answer: Answer| answer.map_err(ApiError::from)).collect()
    }
}
