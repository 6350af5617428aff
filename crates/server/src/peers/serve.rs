//! Answers the questions of other nodes.

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use dunlin_engine::api::{ApiAnswer, ApiRequest};
use dunlin_queues::CountedReceiver;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::{
    access_rules::AccessOrder,
    channel_owner::{ask_owner, presence},
    kinds::{
        ChannelCountsQuestion, ChannelPageQuestion, ChannelPart, ChannelRooms, Channels, ChannelsQuestion, Done,
        EmulateAnswer, EmulateOrder, Info, NewestKeys, Received, RoomList, RoomListQuestion, Rooms, Sessions,
        SessionsQuestion,
    },
    matchmaking::{
        HandOverOrder, HandOverReply, MatchRooms, MatchRoomsQuestion, OpenRoomOrder, RoomOpening, TicketOrder,
        TicketReply,
    },
    message::{PeerError, decode_question, encode_answer},
    occupancy::{OccupancyAnswer, OccupancyQuestion},
    presence::{Presence, PresenceUsers},
    recordings::{RecordingList, RecordingsQuestion},
    rooms::{RoomStateAnswer, close_room_here},
    shards::ShardAnswers,
};
use crate::{
    access_sync,
    matchmaking::{self, MatchHandle},
    node::{ClusterInbox, Emulated, Node, NodeCluster, NodeQuery},
    recordings::OwnRecordings,
    webhooks::Webhooks,
};

/// Bytes of an answer around its lists.
const ANSWER_BYTES: usize = 1_024;

/// What a node reports of itself.
pub trait LocalReports: Send + Sync + 'static {
    /// The channels with subscribers.
    fn channels(&self, question: ChannelsQuestion) -> impl Future<Output = Result<Channels, PeerError>> + Send;

    /// A page of the channels with subscribers.
    fn channel_page(
        &self,
        question: ChannelPageQuestion,
    ) -> impl Future<Output = Result<ChannelPart, PeerError>> + Send;

    /// The subscribers of some channels.
    fn channel_counts(
        &self,
        question: ChannelCountsQuestion,
    ) -> impl Future<Output = Result<Channels, PeerError>> + Send;

    /// The node.
    fn info(&self) -> impl Future<Output = Result<Info, PeerError>> + Send;

    /// The state of the node, for the console.
    fn status(&self) -> impl Future<Output = Result<Info, PeerError>> + Send;

    /// All rooms.
    ///
    /// # Errors
    /// For the other node.
    fn rooms(&self) -> Result<Rooms, PeerError>;

    /// A page of rooms of at most this size.
    fn room_list(
        &self,
        question: RoomListQuestion,
        bytes_max: usize,
    ) -> impl Future<Output = Result<RoomList, PeerError>> + Send;

    /// A page of sessions.
    fn sessions(&self, question: SessionsQuestion) -> impl Future<Output = Result<Sessions, PeerError>> + Send;

    /// The room of a channel, if there is one.
    ///
    /// # Errors
    /// For the other node.
    fn channel_rooms(&self, channel: &str) -> Result<ChannelRooms, PeerError>;
}

/// How this node is called.
#[derive(Clone, Debug)]
pub struct OwnName {
    /// Its id.
    pub uid: Box<str>,
    /// Its name; may be empty.
    pub name: Box<str>,
}

/// Answers the questions of other nodes, and with their help those of this node's shards.
pub struct PeerService<R> {
    node: Node,
    cluster: Arc<NodeCluster>,
    own: OwnName,
    reports: R,
    parts: AskedParts,
}

/// Parts of a node that other nodes ask, if it has them.
#[derive(Clone, Default)]
pub struct AskedParts {
    /// They know which channels are occupied.
    pub webhooks: Option<Arc<Webhooks>>,
    /// The tickets.
    pub matchmaking: Option<MatchHandle>,
    /// The recordings of rooms.
    pub recordings: Arc<OwnRecordings>,
}

impl<R: LocalReports> PeerService<R> {
    /// A service for a node that reports `reports`.
    pub const fn new(node: Node, cluster: Arc<NodeCluster>, own: OwnName, reports: R, parts: AskedParts) -> Self {
        Self { node, cluster, own, reports, parts }
    }

    /// Serves until the node ends. The cluster limits the number of concurrent questions of other nodes.
    /// `surveys_limit` bounds what this node asks.
    pub async fn serve(self, ClusterInbox { queries, questions }: ClusterInbox, surveys_limit: usize) {
        let of_shards = ShardAnswers::new(self.node.clone(), Arc::clone(&self.cluster), self.own.uid.clone());
        tokio::join!(Self::serve_nodes(Arc::new(self), queries), of_shards.serve(questions, surveys_limit));
    }

    async fn serve_nodes(service: Arc<Self>, mut queries: CountedReceiver<NodeQuery>) {
        while let Some(NodeQuery { number, payload, timeout_ms }) = queries.recv().await {
            let service = Arc::clone(&service);
            tokio::spawn(async move {
                // After this timeout, the other node no longer waits for the answer.
                let timeout = Duration::from_millis(timeout_ms);
                if let Ok(answer) = tokio::time::timeout(timeout, service.answer(&payload, timeout_ms)).await {
                    service.cluster.answer(number, answer);
                }
            });
        }
    }

    async fn answer(&self, payload: &Bytes, wait_ms: u64) -> Bytes {
        let outcome = match decode_question(payload) {
            Ok(question) => self.find(question, wait_ms).await,
            Err(why) => {
                self.cluster.question_counters().count_question_not_understood();
                Err(why.into())
            }
        };
        encode_answer(outcome)
    }

    async fn find(&self, question: Received, wait_ms: u64) -> Result<Box<RawValue>, PeerError> {
        match question {
            Received::Presence(question) => {
                encoded(&presence(&self.node, &question.channel).await?.into_iter().collect::<Presence>())
            }
            Received::PresenceUsers(question) => {
                encoded(&PresenceUsers::of(&presence(&self.node, &question.channel).await?))
            }
            Received::Channels(question) => encoded(&self.reports.channels(question).await?),
            Received::ChannelPage(question) => encoded(&self.reports.channel_page(question).await?),
            Received::ChannelCounts(question) => encoded(&self.reports.channel_counts(question).await?),
            Received::Info(_) => encoded(&self.reports.info().await?),
            Received::Status(_) => encoded(&self.reports.status().await?),
            Received::Rooms(_) => encoded(&self.reports.rooms()?),
            Received::RoomList(question) => encoded(&self.reports.room_list(question, self.answer_bytes_max()).await?),
            Received::ChannelRooms(question) => encoded(&self.reports.channel_rooms(&question.channel)?),
            Received::Sessions(question) => encoded(&self.reports.sessions(question).await?),
            Received::RoomState(question) => encoded(&self.room_state(question.channel, wait_ms).await?),
            Received::CloseRoom(order) => encoded(&close_room_here(&self.node, &order.channel).await?),
            Received::Recordings(question) => encoded(&self.recordings(question).await?),
            Received::RecordingPart(question) => {
                encoded(&self.parts.recordings.part(question, self.answer_bytes_max()).await?)
            }
            Received::NewestKeys(question) => encoded(&self.newest_keys(question.channel).await?),
            Received::Occupancy(question) => encoded(&self.occupancy(&question)?),
            Received::Emulate(order) => encoded(&self.emulate(order).await?),
            Received::Access(order) => encoded(&self.take_access(order).await?),
            Received::AccessRules(question) => encoded(&self.node.access().answer(&question, self.answer_bytes_max())),
            Received::Disconnect(order) => encoded(&self.order(order.into()).await?),
            Received::Unsubscribe(order) => encoded(&self.order(order.into()).await?),
            Received::Subscribe(order) => encoded(&self.order(order.into()).await?),
            Received::Refresh(order) => encoded(&self.order(order.into()).await?),
            Received::Pace(order) => encoded(&self.order(order.into()).await?),
            Received::MatchTicket(order) => encoded(&self.ticket(order).await?),
            Received::MatchHandOver(order) => encoded(&self.take_over(order).await?),
            Received::MatchRooms(question) => encoded(&self.match_rooms(&question)?),
            Received::OpenRoom(order) => encoded(&self.open_room(&order).await),
            Received::ReservePlaces(order) => {
                let (channel, request) = order.into_request();
                ask_owner(&self.node, &channel, request).await?;
                encoded(&Done {})
            }
        }
    }

    fn matchmaking(&self) -> Result<&MatchHandle, PeerError> {
        self.parts.matchmaking.as_ref().ok_or(PeerError::NOT_FOUND)
    }

    async fn ticket(&self, order: TicketOrder) -> Result<TicketReply, PeerError> {
        let matchmaking = self.matchmaking()?;
        Ok(TicketReply::new(match order.into_command() {
            Ok(command) => matchmaking.ask_for_node(command).await,
            Err(fault) => Err(fault),
        }))
    }

    async fn take_over(&self, mut order: HandOverOrder) -> Result<HandOverReply, PeerError> {
        let leaving = order.leaving.take();
        let taken = self.matchmaking()?.take_over(leaving, order.into_tickets()).await;
        taken.as_ref().map(HandOverReply::new).map_err(|fault| PeerError::internal(fault.why()))
    }

    fn match_rooms(&self, question: &MatchRoomsQuestion) -> Result<MatchRooms, PeerError> {
        Ok(self.matchmaking()?.rooms_page(&self.node, question, self.answer_bytes_max()))
    }

    async fn open_room(&self, order: &OpenRoomOrder) -> RoomOpening {
        // The room would move at once.
        if self.node.is_draining() {
            return RoomOpening::Busy;
        }
        matchmaking::open(&self.node, order).await.into()
    }

    /// The state of a room on this node.
    async fn room_state(&self, channel: Box<str>, wait_ms: u64) -> Result<RoomStateAnswer, PeerError> {
        let request = ApiRequest::RoomState { channel: channel.clone(), wait_ms };
        match ask_owner(&self.node, &channel, request).await? {
            ApiAnswer::RoomState(state) => Ok(RoomStateAnswer::new(state, &self.own)),
            _ => Err(PeerError::INTERNAL),
        }
    }

    async fn take_access(&self, order: AccessOrder) -> Result<Done, PeerError> {
        access_sync::apply(&self.node, order.rules()).await?;
        Ok(Done {})
    }

    async fn newest_keys(&self, channel: Box<str>) -> Result<NewestKeys, PeerError> {
        let request = ApiRequest::NewestKeys { channel: channel.clone() };
        match ask_owner(&self.node, &channel, request).await? {
            // An answer has the same limit as a broadcast: one message of NATS.
            ApiAnswer::NewestKeys(found) => Ok(NewestKeys::new(found, self.cluster.broadcast_bytes_max())),
            _ => Err(PeerError::INTERNAL),
        }
    }

    fn occupancy(&self, question: &OccupancyQuestion) -> Result<OccupancyAnswer, PeerError> {
        let webhooks = self.parts.webhooks.as_ref().ok_or(PeerError::NOT_FOUND)?;
        let bytes_max = self.answer_bytes_max();
        let changes = webhooks.answer_channels(&question.asker, question.cursor(&self.own.uid), bytes_max);
        let changes = changes.ok_or(PeerError::NOT_FOUND)?;
        Ok(OccupancyAnswer::new(&self.own.uid, webhooks.behind_ms(), changes))
    }

    async fn recordings(&self, question: RecordingsQuestion) -> Result<RecordingList, PeerError> {
        let mut list = self.parts.recordings.list(question).await.ok_or(PeerError::INTERNAL)?;
        list.fit(self.answer_bytes_max());
        Ok(list)
    }

    /// Maximum bytes of the lists of an answer, which is one message of NATS.
    fn answer_bytes_max(&self) -> usize {
        self.cluster.broadcast_bytes_max().saturating_sub(ANSWER_BYTES)
    }

    async fn emulate(&self, EmulateOrder { session, commands }: EmulateOrder) -> Result<EmulateAnswer, PeerError> {
        let outcome = self.node.emulate(&session, commands).await.map_err(|_| PeerError::INTERNAL)?;
        Ok(EmulateAnswer { taken: outcome != Emulated::Busy })
    }

    /// Executes a command on the sessions of all shards.
    async fn order(&self, request: ApiRequest) -> Result<Done, PeerError> {
        for answer in self.node.ask_all(request).await {
            answer.map_err(PeerError::from)?;
        }
        Ok(Done {})
    }
}

fn encoded(answer: &impl Serialize) -> Result<Box<RawValue>, PeerError> {
    to_raw_value(answer).map_err(|_| PeerError::INTERNAL)
}
