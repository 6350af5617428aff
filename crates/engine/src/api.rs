//! Requests of the server API to a shard. Requests about a channel go to its owner ([`crate::owner_of`]); requests
//! about sessions and surveys go to every shard, and the caller merges the answers.

#![allow(missing_docs, reason = "a field whose name says all has no comment")]

use std::sync::Arc;

use bytes::Bytes;
use dunlin_protocol::{ClientInfo, Disconnect, Payload, Publication, UnsubscribeCode};
use dunlin_rooms::{ListingChange, PlayerId, Refusal, RoomOverrides};

use crate::{
    access_rules::AccessRule,
    backend::PublishHow,
    event::{PeerKey, ServerSubscription, payload_bytes},
    insight::{SessionsPage, SessionsQuery},
    pace::PaceChange,
    refused::Refused,
    room::RoomState,
};

/// A request of the server API.
#[derive(Clone, Debug)]
pub enum ApiRequest {
    /// Publish to a channel.
    Publish {
        channel: Box<str>,
        /// The application's bytes.
        data: Payload,
        how: PublishHow,
    },
    /// List the sessions in a channel's presence.
    Presence { channel: Box<str> },
    /// Count the sessions and users in a channel's presence.
    PresenceStats { channel: Box<str> },
    /// Read a channel's history.
    History { channel: Box<str>, query: HistoryQuery },
    /// Delete a channel's publications.
    HistoryRemove { channel: Box<str> },
    /// List the newest publications of a channel's keys, for another node; see [`crate::Effect::QueryKeys`].
    NewestKeys { channel: Box<str> },
    /// The state of a channel's room, for another node, which opens it if no node has it; see
    /// [`crate::Effect::QueryRoom`].
    RoomState {
        channel: Box<str>,
        /// How long the other node waits for answers.
        wait_ms: u64,
    },
    /// List the channels with subscribers that this shard owns.
    Channels,
    /// Close sessions of this shard.
    Disconnect {
        /// The sessions' user; empty for the anonymous user.
        user: Box<str>,
        only: SessionFilter,
        /// Ids of sessions that stay connected.
        whitelist: Vec<Box<str>>,
        disconnect: Disconnect,
    },
    /// Make a server-side subscription for sessions of this shard.
    Subscribe { user: Box<str>, only: SessionFilter, subscription: Box<ServerSubscription> },
    /// Set the expiry of sessions of this shard.
    Refresh {
        user: Box<str>,
        only: SessionFilter,
        /// The sessions have expired: close them with 3005.
        expired: bool,
        /// Unix time of the expiry in milliseconds; `None` for never.
        expires_at_ms: Option<u64>,
        /// New connection info; `None` keeps the current one.
        info: Option<Payload>,
    },
    /// End subscriptions of sessions of this shard.
    Unsubscribe {
        /// The channel; empty for all.
        channel: Box<str>,
        user: Box<str>,
        only: SessionFilter,
        code: UnsubscribeCode,
    },
    /// Open a channel's room, if it is not open. Answered when its world is made, or with [`ApiAnswer::NotOpened`].
    /// Error 108 for a channel without rooms; 107 with overrides if the room is open.
    OpenRoom { channel: Box<str>, overrides: Arc<RoomOverrides> },
    /// Close a channel's room; its players' subscriptions end with 2010. [`ApiAnswer::Done`] carries the number of
    /// players. [`ApiAnswer::NoRoom`] if the room is not open on this node: another one may have it. Error 108 for a
    /// channel without rooms.
    CloseRoom { channel: Box<str> },
    /// Send a message to the game in a channel's room. Answered with [`ApiAnswer::MessageAnswered`] after the tick that
    /// handles it. Error 108 if the room is not open or closes first; 111 if the maximum number of messages waits.
    SendToRoom {
        channel: Box<str>,
        /// Bytes for the game.
        data: Bytes,
    },
    /// Change how a channel's room is listed, and who may join it. Answered like a message, with an empty body.
    ChangeListing { channel: Box<str>, change: Arc<ListingChange> },
    /// Remove players and spectators from a channel's room. Answered like a message, with their number in decimal
    /// digits.
    KickFromRoom { channel: Box<str>, order: Arc<KickOrder> },
    /// Reserve places in a channel's room for users, or release them. Answered with [`ApiAnswer::Done`] as soon as the
    /// message to the room's thread is sent. Error 108 if the room is not open.
    ReservePlaces { channel: Box<str>, reservations: Arc<[PlaceReservation]> },
    /// Change the pace of sessions of this shard, or of their subscriptions to a channel. [`ApiAnswer::Done`] carries the number
    /// of sessions. Error 108 for a channel without paces.
    SetPace {
        /// The sessions' user; empty for the anonymous user.
        user: Box<str>,
        only: SessionFilter,
        change: PaceChange,
    },
    /// Apply rules, close the sessions of users whom they block with 3503, and remove rules that have ended. The rules are
    /// limited by the requester.
    Access(Arc<[AccessRule]>),
    /// Return this shard's counts.
    Survey,
    /// List sessions of this shard, with what waits for their sockets.
    Sessions(Arc<SessionsQuery>),
}

impl ApiRequest {
    /// Whether it changes nothing, so that it has no effect once nobody waits for the answer.
    pub const fn only_reads(&self) -> bool {
        matches!(
            self,
            Self::Presence { .. }
                | Self::PresenceStats { .. }
                | Self::History { .. }
                | Self::NewestKeys { .. }
                | Self::Channels
                | Self::Survey
                | Self::Sessions(_)
        )
    }

    /// Approximate bytes of its parts that the requester chooses freely.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Publish { data, how, .. } => data.bytes().len() + how.bytes(),
            Self::SendToRoom { data, .. } => data.len(),
            Self::Subscribe { subscription, .. } => subscription.grant.bytes(),
            Self::Refresh { info, .. } => payload_bytes(info.as_ref()),
            Self::Disconnect { whitelist, .. } => whitelist.iter().map(|id| id.len()).sum(),
            Self::KickFromRoom { order, .. } => order.reason.len(),
            Self::OpenRoom { overrides, .. } => overrides.params.len(),
            Self::ReservePlaces { reservations, .. } => size_of_val(&**reservations),
            Self::Access(rules) => size_of_val(&**rules) + rules.iter().map(AccessRule::text_bytes).sum::<usize>(),
            _ => 0,
        }
    }
}

/// A filter on a user's sessions. Every given field must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// The session's id, which presence shows.
    pub client: Option<Box<str>>,
    /// The session's secret id, which only its own client receives.
    pub session: Option<Box<str>>,
}

/// Places in a room that are reserved for users, one per user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceReservation {
    /// A reservation replaces the room's earlier reservation with the same number.
    pub number: u64,
    /// Users who have not joined. An empty list releases the places.
    pub users: Vec<Arc<str>>,
    /// How long the places stay reserved. The room measures it in ticks.
    pub timeout_ms: u32,
}

/// The players and spectators that the backend removes from a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KickOrder {
    pub target: KickTarget,
    /// The reason sent to the clients; if empty, they receive the default reason of the code.
    pub reason: Box<str>,
}

/// Players and spectators of a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KickTarget {
    /// All players and spectators of this user, including those whose client is away. The anonymous user matches none.
    User(Box<str>),
    /// The player or spectator of this client.
    Client(Box<str>),
    /// The player with this number in the room.
    Player(PlayerId),
}

impl KickOrder {
    /// Bytes of its strings.
    pub fn text_bytes(&self) -> usize {
        let target = match &self.target {
            KickTarget::User(text) | KickTarget::Client(text) => text.len(),
            KickTarget::Player(_) => 0,
        };
        target + self.reason.len()
    }
}

/// The requested part of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryQuery {
    /// The maximum number of publications; 0 for the position alone, negative for all.
    pub limit: i32,
    /// Only publications after (if reversed: before) this offset and epoch.
    pub since: Option<(u64, Box<str>)>,
    /// Newest first.
    pub reverse: bool,
    /// Approximate size limit of the publications. The answer ends before the publication that would exceed it, unless
    /// that is the first one. `None` for no limit.
    pub bytes_max: Option<usize>,
}

impl HistoryQuery {
    /// The maximum number of publications.
    pub(crate) fn publications_max(&self) -> usize {
        usize::try_from(self.limit).unwrap_or(usize::MAX)
    }
}

/// The answer to a request.
pub type ApiResult = Result<ApiAnswer, Refused>;

/// The answer to a successful request.
#[derive(Clone, Debug)]
pub enum ApiAnswer {
    /// The position of the publication.
    Published {
        /// 0 without a stream.
        offset: u64,
        /// Empty without a stream.
        epoch: Box<str>,
    },
    /// The sessions in the channel's presence.
    Presence(Vec<Arc<ClientInfo>>),
    /// The numbers of the channel's presence.
    PresenceStats {
        /// The number of sessions.
        num_clients: u32,
        /// The number of distinct users.
        num_users: u32,
    },
    /// The requested part of the history.
    History {
        /// In the requested order.
        publications: Vec<Arc<Publication>>,
        epoch: Box<str>,
        /// The offset of the stream's newest publication.
        offset: u64,
        /// Whether the publications end before the requested number, at the limit on the bytes of an answer.
        is_cut: bool,
    },
    /// The newest publications of the channel's keys, newest first.
    NewestKeys(Vec<PeerKey>),
    /// The state of the room.
    RoomState(RoomState),
    /// The channels and their numbers of subscribers.
    Channels(Vec<(Arc<str>, u32)>),
    /// The request was carried out.
    Done {
        /// The number of sessions that it changed.
        sessions: u32,
    },
    /// The room is not open on this node.
    NoRoom,
    /// Why a room's world was not made.
    NotOpened(Refusal),
    /// The game's answer to a message.
    MessageAnswered(Result<Bytes, Refusal>),
    /// The shard's counts.
    Survey(Box<Survey>),
    /// The sessions.
    Sessions(Box<SessionsPage>),
}

/// Counts of what a shard has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Bytes of cached publications by key.
    pub cached_bytes: u64,
    /// Authenticated sessions.
    pub sessions: u32,
    /// Subscriptions of its sessions.
    pub subscriptions: u32,
    /// Channels that it owns and that have subscribers.
    pub channels: u32,
    /// A hash of each distinct user id, the same on all shards of a node, so that the caller can count users once.
    pub users: Vec<u64>,
    /// Seats of its sessions in rooms, including joins in flight.
    pub seats: u32,
    /// Rooms that its sessions are in.
    pub rooms: u32,
    /// Bytes queued in its sessions' lanes.
    pub queued_bytes: u64,
    /// Frames queued in its sessions' lanes.
    pub queued_frames: u64,
    /// Age of the oldest queued frame.
    pub queue_age_ms_max: u64,
    /// Sessions that have waited for their socket for longer than 1, 10, 100, 1,000 and 10,000 ms.
    pub behind_sessions: [u32; 5],
}
