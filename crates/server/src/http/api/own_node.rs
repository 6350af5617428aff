//! What this node answers itself, without other nodes.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use dunlin_engine::api::{ApiAnswer, ApiRequest};
use dunlin_protocol::ClientInfo;

use super::{
    ApiError, JsonResult, SessionsWanted,
    channel_page_merge::NodePage,
    glob::{Exhausted, Glob},
    result,
    room_list::{self, RoomQuery},
    sessions, status,
};
use crate::{
    http::shared_shard_reports::SharedShardReports,
    insight::NodeJson,
    node::{Node, NodeSurvey, ShardReport},
    peers::{
        ChannelCount, ChannelCountsQuestion, ChannelPageQuestion, ChannelPart, ChannelRooms, Channels,
        ChannelsQuestion, Description, Info, LocalReports, PeerError, RoomList, RoomListQuestion, Rooms, Sessions,
        SessionsQuestion,
    },
    rooms::RoomReport,
    telemetry::{
        api_counters::ControlCounters,
        count_users,
        process::{CpuShare, ProcessUse},
    },
};

/// Number of channels that are matched before other tasks may run.
const CHANNELS_PER_TURN: usize = 1_024;

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

/// This node, as the server API and other nodes see it.
pub struct OwnNode {
    surveys: Arc<SharedShardReports>,
    identity: NodeIdentity,
    counters: Arc<ControlCounters>,
    cpu_share: CpuShare,
}

impl OwnNode {
    /// The running node that has these surveys.
    pub const fn new(surveys: Arc<SharedShardReports>, identity: NodeIdentity, counters: Arc<ControlCounters>) -> Self {
        let cpu_share = CpuShare::since(identity.started);
        Self { surveys, identity, counters, cpu_share }
    }

    pub(super) fn counters(&self) -> &ControlCounters {
        &self.counters
    }

    pub(super) const fn identity(&self) -> &NodeIdentity {
        &self.identity
    }

    pub(super) fn node(&self) -> &Node {
        self.surveys.node()
    }

    pub(super) async fn ask(&self, channel: &str, request: ApiRequest) -> Result<ApiAnswer, ApiError> {
        let answer = self.node().ask_owner(channel, request).await.map_err(|_| ApiError::INTERNAL)?;
        // One request may affect many channels, and the storage may refuse some of them.
        answer.map_err(|refused| PeerError::of_channel(channel, refused).into())
    }

    /// As [`OwnNode::ask`], but the message of an error does not name the channel.
    pub(super) async fn ask_room(&self, channel: &str, request: ApiRequest) -> Result<ApiAnswer, ApiError> {
        let answer = self.node().ask_owner(channel, request).await.map_err(|_| ApiError::INTERNAL)?;
        answer.map_err(ApiError::from)
    }

    /// Executes a request on the sessions of all shards.
    pub(super) async fn done_by_all(&self, request: ApiRequest) -> Result<(), ApiError> {
        self.ask_all(request).await.map(drop)
    }

    /// The sessions in a channel's presence on this node.
    pub(super) async fn clients(&self, channel: &str) -> Result<Vec<Arc<ClientInfo>>, ApiError> {
        match self.ask(channel, ApiRequest::Presence { channel: channel.into() }).await? {
            ApiAnswer::Presence(clients) => Ok(clients),
            _ => Err(ApiError::INTERNAL),
        }
    }

    /// Counts on the shard. In a cluster, the users of all nodes must be distinguished.
    pub(super) async fn presence_stats(&self, channel: Box<str>) -> JsonResult {
        let request = ApiRequest::PresenceStats { channel: channel.clone() };
        match self.ask(&channel, request).await? {
            ApiAnswer::PresenceStats { num_clients, num_users } => {
                result::to_outcome(&result::PresenceStatsJson { num_clients, num_users })
            }
            _ => Err(ApiError::INTERNAL),
        }
    }

    /// The channels with subscribers on this node.
    pub(super) async fn find_channels(&self, pattern: Option<Glob>) -> Result<Channels, ApiError> {
        let mut channels = BTreeMap::new();
        self.visit_channels(pattern.as_ref(), |name, num_clients| {
            let channel = channels.entry(Box::from(&*name)).or_insert_with(ChannelCount::default);
            channel.num_clients += num_clients;
        })
        .await?;
        Ok(Channels { channels })
    }

    /// A page of the channels with subscribers on this node.
    pub(super) async fn page_of_channels(&self, question: &ChannelPageQuestion) -> Result<ChannelPart, ApiError> {
        let pattern = compiled(&question.pattern)?;
        let mut page = NodePage::new(question);
        self.visit_channels(pattern.as_ref(), |name, num_clients| page.add(name, num_clients)).await?;
        Ok(page.finish())
    }

    /// The subscribers of some channels on this node.
    pub(super) async fn count_channels(&self, question: &ChannelCountsQuestion) -> Result<Channels, ApiError> {
        let mut channels = BTreeMap::new();
        self.visit_channels(None, |name, num_clients| {
            if question.channels.contains(&*name) {
                channels.insert(Box::from(&*name), ChannelCount { num_clients });
            }
        })
        .await?;
        Ok(Channels { channels })
    }

    /// Visits the channels with subscribers on this node whose names match a pattern. Each has one owner, so it is visited once.
    async fn visit_channels(
        &self,
        pattern: Option<&Glob>,
        mut visit: impl FnMut(Arc<str>, u32),
    ) -> Result<(), ApiError> {
        let mut matcher = pattern.map(Glob::matcher);
        for answer in self.ask_all(ApiRequest::Channels).await? {
            let ApiAnswer::Channels(found) = answer else { return Err(ApiError::INTERNAL) };
            for (index, (name, num_clients)) in found.into_iter().enumerate() {
                if index % CHANNELS_PER_TURN == CHANNELS_PER_TURN - 1 {
                    tokio::task::yield_now().await;
                }
                let fits = matcher.as_mut().map_or(Ok(true), |matcher| matcher.matches(&name));
                match fits {
                    Ok(true) => visit(name, num_clients),
                    Ok(false) => {}
                    Err(Exhausted) => {
                        return Err(ApiError::bad_request("the pattern is too expensive for this number of channels"));
                    }
                }
            }
        }
        Ok(())
    }

    /// What this node says about itself.
    pub(super) async fn describe(&self) -> Result<Info, ApiError> {
        let NodeSurvey { reports: shards, silent } = self.node().survey().await;
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

    /// The state of this node, for the console.
    pub(super) async fn state(&self) -> Result<Info, ApiError> {
        // Each open page of a console asks for it every two seconds.
        let survey = self.surveys.latest().await;
        let process = ProcessUse::now();
        let cpu_percent = self.cpu_percent(&process);
        let state = status::NodeState { own: self, survey: &survey, process: &process, cpu_percent };
        Ok(Info { nodes: vec![Description::new(&state.to_json()).ok_or(ApiError::INTERNAL)?] })
    }

    /// The rooms of this node.
    pub(super) fn all_rooms(&self) -> Result<Rooms, ApiError> {
        let described = |room: &RoomReport| {
            let description = Description::new(&result::RoomJson::new(room)).ok_or(ApiError::INTERNAL)?;
            Ok((Box::from(&*room.channel), description))
        };
        Ok(Rooms { rooms: self.node().rooms().iter().map(described).collect::<Result<_, ApiError>>()? })
    }

    /// The rooms of this node that a query selects.
    pub(super) async fn room_page(&self, query: &RoomQuery) -> Result<RoomList, ApiError> {
        room_list::page(query, self.room_node(), |from, count| self.node().rooms_from(from, count)).await
    }

    /// The room of a channel on this node, if there is one.
    pub(super) fn room_of(&self, channel: &str) -> Result<ChannelRooms, ApiError> {
        room_list::of_channel(self.node().room_of(channel).as_ref(), self.room_node())
    }

    /// Why there is no room of a channel.
    pub(super) fn why_no_room(&self, channel: &str) -> ApiError {
        match self.node().has_rooms(channel) {
            Ok(true) => ApiError::not_found("the room is not open"),
            Ok(false) => ApiError::unsupported("the namespace of the channel has no rooms: set room.simulation"),
            Err(code) => code.into(),
        }
    }

    fn room_node(&self) -> NodeJson<'_> {
        NodeJson { uid: &self.identity.uid, name: &self.identity.name }
    }

    fn cpu_percent(&self, process: &ProcessUse) -> f64 {
        self.cpu_share.percent(process.cpu, Instant::now())
    }

    /// The results of all shards; an error if any shard failed.
    async fn ask_all(&self, request: ApiRequest) -> Result<Vec<ApiAnswer>, ApiError> {
        let answers = self.node().ask_all(request).await;
        answers.into_iter().map(|answer| answer.map_err(ApiError::from)).collect()
    }
}

/// The pattern of a question; empty for none.
fn compiled(pattern: &str) -> Result<Option<Glob>, ApiError> {
    let pattern = (!pattern.is_empty()).then(|| Glob::compile(pattern));
    pattern.transpose().map_err(ApiError::bad_request)
}

impl LocalReports for OwnNode {
    async fn channels(&self, ChannelsQuestion { pattern }: ChannelsQuestion) -> Result<Channels, PeerError> {
        Ok(self.find_channels(compiled(&pattern)?).await?)
    }

    async fn channel_page(&self, question: ChannelPageQuestion) -> Result<ChannelPart, PeerError> {
        Ok(self.page_of_channels(&question).await?)
    }

    async fn channel_counts(&self, question: ChannelCountsQuestion) -> Result<Channels, PeerError> {
        Ok(self.count_channels(&question).await?)
    }

    async fn info(&self) -> Result<Info, PeerError> {
        Ok(self.describe().await?)
    }

    async fn status(&self) -> Result<Info, PeerError> {
        Ok(self.state().await?)
    }

    async fn sessions(&self, question: SessionsQuestion) -> Result<Sessions, PeerError> {
        Ok(sessions::of_own_node(self, &SessionsWanted::of_question(question)?).await?)
    }

    fn rooms(&self) -> Result<Rooms, PeerError> {
        Ok(self.all_rooms()?)
    }

    async fn room_list(&self, question: RoomListQuestion, bytes_max: usize) -> Result<RoomList, PeerError> {
        Ok(self.room_page(&RoomQuery::of_question(question, bytes_max)?).await?)
    }

    fn channel_rooms(&self, channel: &str) -> Result<ChannelRooms, PeerError> {
        Ok(self.room_of(channel)?)
    }
}
