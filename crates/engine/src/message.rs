//! What shards of one node say to each other, over rings that keep order. Two classes travel on separate rings: a
//! *request* may lead its receiver to send notices; a *notice* leads to nothing further. So a shard can always take
//! notices, and a full ring can only ever hold up requests: shards cannot wait for each other in a circle.

use std::sync::Arc;

use dunlin_protocol::{ClientInfo, EncodedPublications, ErrorCode, Payload, Publication, TagsFilter, UnsubscribeCode};
use dunlin_rooms::Refusal;

use crate::{
    api::HistoryQuery,
    backend::PublishHow,
    event::{SessionKey, ShardIndex},
    frame::Delivery,
    room::{JoinWish, RoomKey, RoomThreadIndex, SeatKey},
    wire::FrameClass,
};

/// A message from one shard to another.
#[derive(Debug)]
pub enum ShardMessage {
    /// To a channel's owner.
    Request(Request),
    /// From a channel's owner.
    Notice(Notice),
}

/// Who gets the answer to a request: command `command_id` of `session` on `shard`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// The shard.
    pub shard: ShardIndex,
    /// The session there.
    pub session: SessionKey,
    /// The command's id.
    pub command_id: u32,
}

/// Asks a channel's owner.
#[derive(Debug)]
pub enum Request {
    /// A session wants the channel's publications. Answered with [`Notice::Subscribed`].
    Subscribe(Box<SubscribeOrder>),
    /// A subscription that the owner accepted is over. Not answered.
    Unsubscribe {
        /// The channel.
        channel: Arc<str>,
        /// The shard whose session it was.
        shard: ShardIndex,
        /// What it was.
        subscriber: Subscriber,
        /// Where the channel has a room: who leaves which.
        seat: Option<(RoomKey, SeatKey)>,
    },
    /// Publish. Answered with [`Notice::Published`] if `command_id` is not 0.
    Publish {
        /// The channel.
        channel: Arc<str>,
        /// The application's bytes.
        data: Payload,
        /// The publisher.
        info: Arc<ClientInfo>,
        /// How.
        how: Box<PublishHow>,
        /// Who asks.
        asker: Asker,
    },
    /// To a user's home: one more session of the user wants to come. Answered with [`Notice::Arrived`].
    Arrive {
        /// The user.
        user: Arc<str>,
        /// The session.
        asker: Asker,
    },
    /// To a user's home: a session that was admitted has gone. Not answered.
    Depart {
        /// The user.
        user: Arc<str>,
        /// The session's shard.
        shard: ShardIndex,
        /// The session there.
        session: SessionKey,
    },
    /// Read presence. Answered with [`Notice::Presence`].
    Presence {
        /// The channel.
        channel: Arc<str>,
        /// About as many bytes as the answer may have; more is error 106.
        bytes_max: usize,
        /// Who asks.
        asker: Asker,
    },
    /// Count presence. Answered with [`Notice::PresenceStats`].
    PresenceStats {
        /// The channel.
        channel: Arc<str>,
        /// Who asks.
        asker: Asker,
    },
    /// Read history. Answered with [`Notice::History`].
    History {
        /// The channel.
        channel: Arc<str>,
        /// What part of it, limits applied.
        query: HistoryQuery,
        /// The user who reads; empty for an anonymous one.
        reader: Arc<str>,
        /// Who asks.
        asker: Asker,
    },
}

/// A subscription on its way to the owner.
#[derive(Debug)]
pub struct SubscribeOrder {
    /// The channel.
    pub channel: Arc<str>,
    /// Who asks.
    pub asker: Asker,
    /// What it is.
    pub subscriber: Subscriber,
    /// Whether the reply carries the stream's position.
    pub positioned: bool,
    /// Whether the client asked to recover, allowed or not; the reply repeats it.
    pub was_recovering: bool,
    /// Where to recover from, if asked for and allowed.
    pub recover: Option<RecoverFrom>,
    /// Which of the missed publications it gets, if not all.
    pub filter: Option<Arc<TagsFilter>>,
    /// Where the channel has a room: what joining it takes.
    pub join: Option<Box<JoinWish>>,
}

/// What an owner needs to know of a subscription.
#[derive(Clone, Debug)]
pub struct Subscriber {
    /// What frames it shares with others.
    pub class: FrameClass,
    /// Whether the session gets joins and leaves.
    pub join_leave: bool,
    /// How presence, joins and leaves show the session; `None` where there is neither.
    pub info: Option<Arc<ClientInfo>>,
    /// Whether it is in the channel's presence.
    pub presence: bool,
    /// Whether others are told that it comes and leaves.
    pub announced: bool,
}

/// The position a client has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoverFrom {
    /// Last offset it saw.
    pub offset: u64,
    /// Its epoch; empty for any.
    pub epoch: Box<str>,
    /// Answer with error 112 where recovery is not possible.
    pub reject_unrecoverable: bool,
}

/// Tells a listening shard.
#[derive(Debug)]
pub enum Notice {
    /// A publication, join or leave for the channel's subscribers.
    Deliver(Arc<Delivery>),
    /// A subscription was accepted or not; publications after it come behind it on the same ring.
    Subscribed {
        /// The order it answers.
        order: Box<SubscribeOrder>,
        /// Where it stands.
        outcome: Result<Box<Subscribed>, NotSubscribed>,
    },
    /// A channel's room is over: so are the subscriptions of its players. Comes behind the answers to those.
    RoomOver {
        /// The channel.
        channel: Arc<str>,
        /// The room.
        room: RoomKey,
        /// Why.
        code: UnsubscribeCode,
    },
    /// The channel's stream has gone under its subscribers: their positions are of no use any more.
    PositionLost {
        /// The channel.
        channel: Arc<str>,
    },
    /// Whether a session may come, by its user's home.
    Arrived {
        /// The user.
        user: Arc<str>,
        /// The session.
        asker: Asker,
        /// Whether.
        admitted: bool,
    },
    /// A newer session of the user was admitted, and this one is to end.
    Superseded {
        /// The session.
        session: SessionKey,
    },
    /// A publish command was carried out or not.
    Published {
        /// Whose.
        asker: Asker,
        /// Whether.
        outcome: Result<(), ErrorCode>,
    },
    /// Who is in the channel.
    Presence {
        /// For whom.
        asker: Asker,
        /// Everyone.
        outcome: Result<Vec<Arc<ClientInfo>>, ErrorCode>,
    },
    /// How many are in the channel.
    PresenceStats {
        /// For whom.
        asker: Asker,
        /// Sessions and distinct users.
        outcome: Result<(u32, u32), ErrorCode>,
    },
    /// Part of the history.
    History {
        /// For whom.
        asker: Asker,
        /// The part.
        outcome: Result<Box<HistoryPart>, ErrorCode>,
    },
}

/// Where a new subscription stands.
#[derive(Clone, Debug, Default)]
pub struct Subscribed {
    /// The stream's epoch; empty without a stream.
    pub epoch: Box<str>,
    /// What the reply's `offset` says.
    pub offset: u64,
    /// What was missed.
    pub publications: Vec<Arc<Publication>>,
    /// For a delta class, the patch of each of them against the one before, if it has one.
    pub patches: Vec<Option<Arc<[u8]>>>,
    /// The same, encoded for all who recover them.
    pub encoded: Option<Arc<EncodedPublications>>,
    /// Whether the newest publication of the stream is among them.
    pub has_newest: bool,
    /// Whether nothing is missing.
    pub recovered: bool,
    /// Whether recovery was attempted.
    pub was_recovering: bool,
    /// The channel's number, for a compact class; otherwise 0.
    pub channel_number: u64,
    /// The room that the session is in from now on, and the thread that takes its inputs.
    pub room: Option<(RoomKey, RoomThreadIndex)>,
}

/// Why a subscription was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotSubscribed {
    /// The server's reasons.
    Error(ErrorCode),
    /// The game does not want it.
    Refused(Refusal),
}

impl NotSubscribed {
    /// The error of the protocol.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Error(code) => *code,
            Self::Refused(_) => ErrorCode::PermissionDenied,
        }
    }
}

impl From<ErrorCode> for NotSubscribed {
    fn from(code: ErrorCode) -> Self {
        Self::Error(code)
    }
}

/// Part of a channel's history.
#[derive(Clone, Debug, Default)]
pub struct HistoryPart {
    /// In the order asked for.
    pub publications: Vec<Arc<Publication>>,
    /// The stream's epoch.
    pub epoch: Box<str>,
    /// The stream's top.
    pub offset: u64,
    /// Whether it ends sooner than was asked for, because of its length.
    pub is_cut: bool,
}
