//! Messages between the shards of a node, over FIFO rings. Two classes of messages use separate rings. A *request* may
//! cause its receiver to send notices; a *notice* causes no further message. A shard can therefore always accept
//! notices, and a full ring delays only requests: shards cannot deadlock.

#![allow(missing_docs, reason = "a field whose name says all has no comment")]

use std::sync::Arc;

use dunlin_protocol::{
    ClientInfo, EncodedPublications, Encoding, ErrorCode, Payload, Publication, TagsFilter, UnsubscribeCode,
};
use dunlin_rooms::Refusal;

use crate::{
    api::HistoryQuery,
    backend::PublishHow,
    channel_creators::ChannelCreator,
    event::{SessionKey, ShardIndex},
    frame::Delivery,
    refused::Refused,
    room::{Departure, JoinParams, LeftSeat, RoomKey, RoomThreadIndex, SeatKey},
    wire::FrameClass,
};

/// A message from one shard to another.
#[derive(Debug)]
pub enum ShardMessage {
    /// To a channel's owner.
    Request(ShardRequest),
    /// From a channel's owner.
    Notice(Notice),
}

/// The session and command that receive an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    pub shard: ShardIndex,
    /// The session on that shard.
    pub session: SessionKey,
    pub command_id: u32,
}

/// A request to a channel's owner.
#[derive(Debug)]
pub enum ShardRequest {
    /// Subscribe a session. Answered with [`Notice::Subscribed`].
    Subscribe(Box<SubscriptionRequest>),
    /// A subscription that the owner accepted has ended. Not answered.
    Unsubscribe {
        channel: Arc<str>,
        /// The session's shard.
        shard: ShardIndex,
        subscriber: Subscriber,
        /// The seat that becomes free, if the channel has a room.
        seat: Option<LeftSeat>,
    },
    /// Nobody waits for the answer to a join any more: its session has ended, has unsubscribed, or has refused it after
    /// [`Notice::JoinDue`]. This request has no answer; a join that the session does not have still gets its own.
    AbandonJoin {
        channel: Arc<str>,
        seat: SeatKey,
        /// [`Departure::Lost`] if the client may return.
        departure: Departure,
    },
    /// A room has accepted the join of a session that has meanwhile ended, or unsubscribed, and whose subscription was kept.
    /// Not answered.
    LeaveRoom {
        channel: Arc<str>,
        /// The seat that becomes free.
        seat: LeftSeat,
    },
    /// Publish. Answered with [`Notice::Published`] if `command_id` is not 0.
    Publish {
        channel: Arc<str>,
        /// The application's bytes.
        data: Payload,
        /// The publisher.
        info: Arc<ClientInfo>,
        how: Box<PublishHow>,
        /// The client that the channel counts against while no other client uses it.
        creator: ChannelCreator,
        asker: Asker,
    },
    /// To a user's home: a session of the user asks to be admitted. Answered with [`Notice::Arrived`].
    Arrive { user: Arc<str>, asker: Asker },
    /// To a user's home: an admitted session has ended. Not answered.
    Depart {
        user: Arc<str>,
        /// The session's shard.
        shard: ShardIndex,
        /// The session on that shard.
        session: SessionKey,
    },
    /// Update a session's info in presence, if the session is there. Not answered.
    ShowAs {
        channel: Arc<str>,
        /// The session's new info in this channel.
        info: Arc<ClientInfo>,
    },
    /// Read presence. Answered with [`Notice::Presence`].
    Presence {
        channel: Arc<str>,
        /// Approximate size limit of the answer; a larger one becomes error 106.
        bytes_max: usize,
        asker: Asker,
    },
    /// Count presence. Answered with [`Notice::PresenceStats`].
    PresenceStats { channel: Arc<str>, asker: Asker },
    /// Read history. Answered with [`Notice::History`].
    History {
        channel: Arc<str>,
        /// The requested part, with limits applied.
        query: HistoryQuery,
        /// The reader's user id; empty for an anonymous user.
        reader: Arc<str>,
        asker: Asker,
    },
}

impl ShardRequest {
    /// Its bytes of variable size, without the names of channels and users.
    pub fn queued_bytes(&self) -> usize {
        match self {
            Self::Publish { data, how, .. } => data.bytes().len() + how.bytes(),
            Self::Subscribe(request) => request.queued_bytes(),
            _ => 0,
        }
    }
}

impl SubscriptionRequest {
    /// The subscription of a session on another node, for the room alone: the owner on that node answers it, and the answer
    /// needs no more of it than the seat.
    pub fn of_remote_join(channel: Arc<str>, encoding: Encoding, join: JoinParams) -> Self {
        let session = SessionKey { index: join.seat.index, generation: join.seat.generation };
        Self {
            answer: AnswerPace::Short,
            channel,
            asker: Asker { shard: join.seat.shard, session, command_id: 0 },
            creator: ChannelCreator::default(),
            subscriber: Subscriber {
                class: FrameClass::plain(encoding.into()),
                join_leave: false,
                info: None,
                presence: false,
                announced: false,
            },
            positioned: false,
            was_recovering: false,
            asked_us: 0,
            recover: None,
            filter: None,
            join: Some(Box::new(join)),
        }
    }

    /// Whether it is the join of a seat that is kept: its session is subscribed already.
    pub fn is_keeping(&self) -> bool {
        self.join.as_ref().is_some_and(|join| join.claim.is_keeping())
    }

    /// Its bytes of variable size: what the client has sent for the game.
    pub fn queued_bytes(&self) -> usize {
        self.join.as_ref().map_or(0, |join| join.data.len())
    }
}

/// How the answer to a subscription holds up the session's next commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerPace {
    /// It is short, so they do not wait for it.
    Short,
    /// It may hold many publications, so those with large answers wait for it.
    Awaited,
    /// As [`Self::Awaited`], but it takes long, so they do not wait. Before the join goes to its room, the session's shard
    /// is asked whether the answer fits into the session's queue ([`Notice::JoinDue`]).
    Late,
}

/// A request of a session's shard to subscribe it.
#[derive(Debug)]
pub struct SubscriptionRequest {
    pub answer: AnswerPace,
    pub channel: Arc<str>,
    pub asker: Asker,
    /// The client that the channel counts against while no other client uses it.
    pub creator: ChannelCreator,
    pub subscriber: Subscriber,
    /// Whether the reply carries the stream's position.
    pub positioned: bool,
    /// Whether the client asked to recover, allowed or not; the reply repeats it.
    pub was_recovering: bool,
    /// When the session's shard asked, on the clock of [`crate::Now::mono_us`].
    pub asked_us: u64,
    /// Where to recover from, if asked for and allowed.
    pub recover: Option<RecoverFrom>,
    /// A filter on the missed publications; `None` for all.
    pub filter: Option<Arc<TagsFilter>>,
    /// The parameters of the join, if the channel has a room.
    pub join: Option<Box<JoinParams>>,
}

/// The part of a subscription that its owner stores.
#[derive(Clone, Debug)]
pub struct Subscriber {
    /// Frame class of the subscription.
    pub class: FrameClass,
    /// Whether the session receives joins and leaves.
    pub join_leave: bool,
    /// The session's info in presence, joins and leaves; `None` if the channel has none of them.
    pub info: Option<Arc<ClientInfo>>,
    /// Whether the session is in the channel's presence.
    pub presence: bool,
    /// Whether other subscribers receive its join and leave.
    pub announced: bool,
}

/// The position that a client recovers from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoverFrom {
    /// The last offset that the client received.
    pub offset: u64,
    /// The epoch of that offset; empty for any epoch.
    pub epoch: Box<str>,
    /// Answer with error 112 if recovery is not possible.
    pub reject_unrecoverable: bool,
}

/// Whether a user may have one more session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Admitted,
    /// The user has the maximum number of sessions on this node.
    FullHere,
    /// The user has the maximum number on all nodes together. Some sessions on other nodes may have ended.
    FullElsewhere,
}

/// A message from an owner to a shard.
#[derive(Debug)]
pub enum Notice {
    /// A publication, join or leave for the channel's subscribers.
    Deliver(Arc<Delivery>),
    /// A subscription was accepted or refused. Later publications follow on the same ring. For a seat that is kept, only its
    /// join was.
    Subscribed { request: Box<SubscriptionRequest>, outcome: Result<Box<Subscribed>, NotSubscribed> },
    /// A join waits for other nodes. Its answer may take seconds, so the session's next commands do not wait for it.
    JoinWaits { asker: Asker },
    /// The room of such a join is open. The session's shard requests the subscription again when the answer fits into the
    /// session's queue: the joins of one session may all become due at the same time.
    JoinDue { request: Box<SubscriptionRequest> },
    /// A channel's room has ended, and so have the subscriptions of its players. Follows the answers to those
    /// subscriptions.
    RoomOver {
        channel: Arc<str>,
        room: RoomKey,
        code: UnsubscribeCode,
        /// The reason for clients; `None` for that of the code.
        reason: Option<Arc<str>>,
    },
    /// A channel's room on another node is lost, and may go on elsewhere: its players keep their subscriptions, and their
    /// session's shard asks to join again. Follows the answers to those subscriptions.
    RoomMoves { channel: Arc<str>, room: RoomKey },
    /// The channel's stream was replaced, so the positions of its subscribers are invalid.
    PositionLost { channel: Arc<str> },
    /// The log no longer follows the channel, so every subscription to it ends.
    FollowingLost { channel: Arc<str> },
    /// The decision of a user's home about a session.
    Arrived { user: Arc<str>, asker: Asker, admission: Admission },
    /// A newer session of the user was admitted; this session ends.
    Superseded { session: SessionKey },
    /// The result of a publish command.
    Published { channel: Arc<str>, asker: Asker, outcome: Result<(), Refused> },
    /// The sessions in a channel's presence.
    Presence { channel: Arc<str>, asker: Asker, outcome: Result<Vec<Arc<ClientInfo>>, Refused> },
    /// The numbers of a channel's presence.
    PresenceStats {
        channel: Arc<str>,
        asker: Asker,
        /// The number of sessions and of distinct users.
        outcome: Result<(u32, u32), Refused>,
    },
    /// A part of a channel's history.
    History { channel: Arc<str>, asker: Asker, outcome: Result<Box<HistoryPart>, Refused> },
}

impl Notice {
    /// Its bytes of variable size, without the names of channels and users.
    pub fn queued_bytes(&self) -> usize {
        match self {
            Self::Deliver(delivery) => delivery.bytes(),
            Self::Subscribed { request, outcome } => {
                request.queued_bytes() + outcome.as_ref().map_or(0, |subscribed| subscribed.queued_bytes())
            }
            Self::JoinDue { request } => request.queued_bytes(),
            Self::Presence { outcome: Ok(infos), .. } => size_of_val(&**infos),
            Self::History { outcome: Ok(part), .. } => bytes_of(&part.publications),
            _ => 0,
        }
    }
}

impl Subscribed {
    fn queued_bytes(&self) -> usize {
        // What is encoded for all sessions is at least as long as the publications, which belong to the history.
        self.encoded.as_ref().map_or_else(|| bytes_of(&self.publications), |encoded| encoded.bytes().len())
    }
}

fn bytes_of(publications: &[Arc<Publication>]) -> usize {
    publications.iter().map(|publication| size_of::<Publication>() + publication.data.bytes().len()).sum()
}

/// The state of an accepted subscription.
#[derive(Clone, Debug, Default)]
pub struct Subscribed {
    /// The stream's epoch; empty without a stream.
    pub epoch: Box<str>,
    /// The `offset` of the reply.
    pub offset: u64,
    /// The missed publications.
    pub publications: Vec<Arc<Publication>>,
    /// For a delta class: the patch of each publication against the one before, if there is a patch.
    pub patches: Vec<Option<Arc<[u8]>>>,
    /// The missed publications, encoded once for all sessions that recover them.
    pub encoded: Option<Arc<EncodedPublications>>,
    /// Whether they include the stream's newest publication.
    pub has_newest: bool,
    /// Whether no publication is missing.
    pub recovered: bool,
    /// Whether recovery was attempted.
    pub was_recovering: bool,
    /// The channel's number, for a compact class; otherwise 0.
    pub channel_number: u64,
    /// The room that the session has joined, and the thread that receives its inputs.
    pub room: Option<(RoomKey, RoomThreadIndex)>,
    /// Whether its player was already in the room.
    pub is_back: bool,
}

/// Why a subscription was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotSubscribed {
    /// An error of the server.
    Error(Refused),
    /// The game refused it.
    Refused(Refusal),
}

impl NotSubscribed {
    /// The error of a `connect` that needed the subscription.
    pub(crate) fn of_connect(&self) -> Refused {
        match self {
            Self::Error(refused) => *refused,
            Self::Refused(_) => ErrorCode::PermissionDenied.into(),
        }
    }
}

impl From<Refused> for NotSubscribed {
    fn from(refused: Refused) -> Self {
        Self::Error(refused)
    }
}

impl From<ErrorCode> for NotSubscribed {
    fn from(code: ErrorCode) -> Self {
        Self::Error(code.into())
    }
}

/// Part of a channel's history.
#[derive(Clone, Debug, Default)]
pub struct HistoryPart {
    /// In the requested order.
    pub publications: Vec<Arc<Publication>>,
    pub epoch: Box<str>,
    /// The offset of the stream's newest publication.
    pub offset: u64,
    /// Whether it was truncated at the size limit.
    pub is_cut: bool,
}
