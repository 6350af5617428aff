//! The inputs of a shard ([`Event`]) and its outputs ([`Effect`]).

#![allow(missing_docs, reason = "a field whose name says all has no comment")]

use core::net::IpAddr;
use std::{num::NonZeroU64, sync::Arc};

use dunlin_protocol::{ClientInfo, ErrorCode, Payload, Publication};

use crate::{
    Options,
    api::{ApiRequest, ApiResult},
    backend::{Overrides, ProxyRequest, ProxyRequestId, ProxyResult},
    broadcast::BroadcastMessage,
    history_stream::kept_bytes,
    lifecycle::LifecycleEvent,
    log::{LoadNumber, LoadQuery, LogError, LogPage, LogRecord, LogTerms, ProposalNumber},
    message::ShardMessage,
    record::SessionRecord,
    room::{FromRoom, RoomElsewhere, RoomThreadIndex, ToRoom},
    wire::Wire,
};

mod queued;

pub use queued::ShardEvents;

/// The time of an event, read from the caller's clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Monotonic, the same clock on all shards of a node.
    pub mono_us: u64,
    /// Unix time.
    pub unix_ms: u64,
}

impl Now {
    /// Monotonic milliseconds.
    pub const fn mono_ms(self) -> u64 {
        self.mono_us / 1_000
    }

    /// `ms` milliseconds after now, on the clock of [`Now::mono_us`]; `u64::MAX` (never) on overflow.
    pub const fn after_ms(self, ms: u64) -> u64 {
        self.mono_us.saturating_add(ms.saturating_mul(1_000))
    }
}

/// A shard's number, from 0. A room addresses the shards of other nodes by numbers above those of its own node; see
/// [`NodeSlot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardIndex(pub u16);

/// A node whose players are in rooms of this node: the high byte of the numbers of its shards. 0 is this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeSlot(pub u8);

impl NodeSlot {
    /// This node.
    pub const OWN: Self = Self(0);
    /// Maximum number of shards of a node.
    pub const SHARDS_MAX: u16 = 256;

    /// The number of this node's shard `index`; `None` for a shard that has none.
    pub fn shard(self, index: u16) -> Option<ShardIndex> {
        let index = u8::try_from(index).ok()?;
        Some(ShardIndex(u16::from_be_bytes([self.0, index])))
    }
}

impl ShardIndex {
    /// The node of the shard.
    pub const fn node(self) -> NodeSlot {
        NodeSlot(self.0.to_be_bytes()[0])
    }

    /// The shard's number on its own node.
    pub const fn on_its_node(self) -> u16 {
        self.0.to_be_bytes()[1] as u16
    }
}

/// A session on its shard. The caller assigns indices densely. It may reuse an index after [`Event::Gone`] with another
/// generation, so that a late message for the earlier session matches no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey {
    /// Position in the caller's and the shard's tables.
    pub index: u32,
    /// Counts the sessions that have used this index.
    pub generation: u32,
}

/// A client's address. Sessions with the same number share the limits per address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceKey(pub NonZeroU64);

/// Number of an API request in flight. The caller assigns it, and the answer repeats it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Number of a shard's query to all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerQueryNumber(pub u64);

/// The part of a channel's presence that is queried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PresenceKind {
    /// The list of clients.
    Clients,
    /// The numbers of clients and users.
    Stats,
}

/// Presence of a channel on all nodes.
#[derive(Clone, Debug)]
pub enum ClusterPresence {
    /// The answer to [`PresenceKind::Clients`].
    Clients(Vec<Arc<ClientInfo>>),
    /// The answer to [`PresenceKind::Stats`].
    Stats {
        /// The number of sessions.
        num_clients: u32,
        /// The number of distinct users.
        num_users: u32,
    },
}

/// A publication that another node has as the newest of its key, or that removed its key there.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerKey {
    pub publication: Arc<Publication>,
    /// The time since that node received it. Clocks of nodes differ, so there is no common time of publication.
    pub age_us: u64,
}

/// The newest publications of a channel's keys on other nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PeerKeys {
    /// In any order; a key is listed once for each node that has it.
    pub keys: Vec<PeerKey>,
    /// Whether a node may have others, because its answer is missing or was cut.
    pub is_partial: bool,
}

impl PeerKeys {
    /// Without the answer of any node.
    pub const UNKNOWN: Self = Self { keys: Vec::new(), is_partial: true };

    /// The bytes that the publications take in memory, counted as for a history.
    pub fn kept_bytes(&self) -> usize {
        self.keys.iter().map(|key| kept_bytes(&key.publication)).sum()
    }
}

/// An input of a shard.
#[derive(Debug)]
pub enum Event<'a> {
    /// A transport was opened.
    Opened {
        session: SessionKey,
        /// Transport and encoding of the session.
        wire: Wire,
        /// The client's address, if the caller knows it.
        source: Option<SourceKey>,
        /// The client's IP address, for games that use it.
        address: Option<IpAddr>,
    },
    /// A complete WebSocket message was received.
    Received {
        session: SessionKey,
        /// One or more commands.
        frame: &'a [u8],
    },
    /// A WebSocket ping was received.
    Pinged {
        session: SessionKey,
        /// The payload that the pong repeats; at most 125 bytes.
        payload: &'a [u8],
    },
    /// A WebSocket close frame was received.
    CloseReceived {
        session: SessionKey,
        /// The code that the reply repeats.
        code: Option<u16>,
    },
    /// The peer violated the WebSocket protocol.
    Violated {
        session: SessionKey,
        /// The close code of the reply: 1002, 1007 or 1009.
        code: u16,
        /// The violation, as a fixed text.
        what: &'static str,
    },
    /// The kernel has taken the first `bytes` bytes of what [`crate::Shard::outgoing`] offered.
    Wrote { session: SessionKey, bytes: usize },
    /// The transport has ended. The session's index is free afterwards.
    Gone { session: SessionKey },
    /// Answer to [`Effect::Authenticate`].
    Authenticated { session: SessionKey, outcome: Result<ConnectionClaims, TokenError> },
    /// Answer to [`Effect::SendProxyRequest`].
    ProxyResponded {
        /// The session that made the request.
        session: SessionKey,
        request_id: ProxyRequestId,
        /// The backend's response, or the error.
        outcome: ProxyResult,
    },
    /// Answer to [`Effect::AuthorizeSubscription`].
    SubscriptionAuthorized { session: SessionKey, outcome: Result<SubscriptionClaims, TokenError> },
    /// A message from a shard of this node, in the order in which that shard sent them.
    Message { from: ShardIndex, message: ShardMessage },
    /// A message from a room thread of this node, in the order in which that thread sent them.
    FromRoom { from: RoomThreadIndex, message: FromRoom },
    /// A request of the server API.
    Api {
        /// Given back with the answer.
        ticket: Ticket,
        request: ApiRequest,
    },
    /// Answer to [`Effect::Propose`].
    Committed {
        channel: Arc<str>,
        proposal: ProposalNumber,
        /// The offset of the stored publication; that of an earlier one with the same idempotency key.
        outcome: Result<u64, LogError>,
    },
    /// Another node has published to a channel that this node follows.
    Replicated {
        channel: Arc<str>,
        /// The publication, with its offset.
        record: Box<LogRecord>,
    },
    /// Answer to [`Effect::Follow`] for a channel without a log: from now on, messages of other nodes arrive as
    /// [`Event::BroadcastReceived`], except those that do not fit into the shard's queue. The owner ignores the event if nothing waits for it.
    Followed { channel: Arc<str> },
    /// Another node has sent a message without an offset to a channel that this node follows; see [`crate::broadcast`].
    BroadcastReceived { channel: Arc<str>, message: BroadcastMessage },
    /// A node has removed the history of a channel that this node follows.
    Trimmed {
        channel: Arc<str>,
        /// Publications up to this offset are gone.
        through: u64,
    },
    /// Answer to an [`Effect::Trim`] with a ticket: the log has stored that the publications are gone, or why not.
    TrimCommitted { ticket: Ticket, outcome: Result<(), LogError> },
    /// The log cannot determine which publications this node has missed in a channel. The log has answered all pending
    /// requests, and no longer follows the channel. Subscribers with a position must recover.
    Interrupted { channel: Arc<str> },
    /// Answer to [`Effect::Load`].
    Loaded { channel: Arc<str>, load: LoadNumber, outcome: Result<Box<LogPage>, LogError> },
    /// The number of sessions that a user has on other nodes; see [`Effect::ShareUserSessions`]. Every shard receives
    /// it.
    UserSessionsElsewhere { user: Arc<str>, sessions: u32 },
    /// Answer to [`Effect::QueryPeers`].
    PeersAnswered { query: PeerQueryNumber, outcome: Result<ClusterPresence, ErrorCode> },
    /// Answer to [`Effect::QueryKeys`].
    KeysAnswered { channel: Arc<str>, found: PeerKeys },
    /// Answer to [`Effect::QueryRoom`].
    RoomQueried { channel: Arc<str>, found: RoomElsewhere },
    /// The deadline of [`crate::Shard::next_deadline_us`] has passed.
    Woke,
    /// Answer to [`Effect::Recall`].
    Recalled { session: SessionKey },
    /// All dirty sessions have been offered to the kernel. Once per turn; measures the latency from publication to
    /// socket.
    TurnEnded,
    /// The node is about to shut down: close some sessions with 3001, those with empty queues first.
    DrainSome {
        /// Maximum number of sessions to close.
        sessions_max: usize,
    },
    /// The node continues with new options, made by [`crate::Options::succeeded_by`] from the current ones. All shards
    /// receive the same options in the same order.
    Reconfigured { options: Arc<Options> },
    /// The node shuts down: close every session with 3001 behind its reliable lane, and admit no more sessions.
    Drain,
}

/// An action for the caller to perform.
#[derive(Debug)]
pub enum Effect {
    /// Put `message` on the ring to shard `to`.
    Send {
        /// The receiver; never the shard itself.
        to: ShardIndex,
        message: ShardMessage,
    },
    /// Put `message` on the ring to a room thread. If the ring is full, the message waits and delays nothing else.
    ToRoom { thread: RoomThreadIndex, message: ToRoom },
    /// Verify a connection token and answer with [`Event::Authenticated`]. The session is paused until then.
    Authenticate {
        session: SessionKey,
        /// The JWT.
        token: Box<str>,
    },
    /// Verify a subscription token and answer with [`Event::SubscriptionAuthorized`]. The session is paused until then.
    AuthorizeSubscription {
        session: SessionKey,
        /// The JWT.
        token: Box<str>,
    },
    /// Call the application's backend and answer with [`Event::ProxyResponded`].
    SendProxyRequest { session: SessionKey, request: Box<ProxyRequest> },
    /// Store a publication in a channel's log and answer with [`Event::Committed`]; see [`crate::log`].
    Propose {
        channel: Arc<str>,
        /// Given back with the answer.
        proposal: ProposalNumber,
        /// The publication, with its offset if the owner orders the channel.
        record: Box<LogRecord>,
        /// While nothing is committed to the channel: the epoch that clients have heard, with which it begins.
        begins: Option<Box<str>>,
        /// Retention and durability of the channel.
        terms: LogTerms,
    },
    /// Read from a channel's log and answer with [`Event::Loaded`].
    Load {
        channel: Arc<str>,
        /// Given back with the answer.
        load: LoadNumber,
        query: LoadQuery,
        /// Retention and durability of the channel.
        terms: LogTerms,
    },
    /// Delete publications from a channel's log.
    Trim {
        channel: Arc<str>,
        /// The highest offset to delete; `u64::MAX` deletes all publications.
        through: u64,
        /// The request to answer with [`Event::TrimCommitted`]; `None` if nobody waits.
        ticket: Option<Ticket>,
    },
    /// Start to report what other nodes send to the channel, with [`Event::Replicated`] and [`Event::BroadcastReceived`].
    /// Where the channel has no log, answer with [`Event::Followed`], within a bounded time.
    Follow { channel: Arc<str> },
    /// Stop what [`Effect::Follow`] started.
    Unfollow {
        channel: Arc<str>,
        /// The only one that has used the channel, as a hash; 0 for several or none.
        only_user: u64,
    },
    /// Send other nodes a delivery without an offset. Not answered or retried; see [`crate::broadcast`].
    Broadcast { channel: Arc<str>, message: BroadcastMessage },
    /// Send other nodes the number of sessions that the user has on this node. Each count replaces the one before. Not
    /// answered.
    ShareUserSessions { user: Arc<str>, sessions: u32 },
    /// Query a channel's presence on all nodes, including this one, and answer with [`Event::PeersAnswered`].
    QueryPeers {
        /// Given back with the answer.
        query: PeerQueryNumber,
        channel: Arc<str>,
        kind: PresenceKind,
    },
    /// Ask all other nodes for the newest publications of a channel's keys, and answer with [`Event::KeysAnswered`],
    /// within a bounded time. A channel has one such query in flight.
    QueryKeys { channel: Arc<str> },
    /// Ask all other nodes whether one has the channel's room, and answer with [`Event::RoomQueried`], within a bounded
    /// time. A channel has one such query in flight.
    QueryRoom { channel: Arc<str> },
    /// Stop reading from this session: no more [`Event::Received`].
    Pause { session: SessionKey },
    /// Read from this session again.
    Resume { session: SessionKey },
    /// Commands of the session that waited for its socket or for other shards can run now. Answer with
    /// [`Event::Recalled`] when the shard accepts commands again, after all writes of the batch are reported.
    Recall { session: SessionKey },
    /// Everything is written: shut down the sending side, and close the transport when the peer does.
    Finish { session: SessionKey },
    /// Close the transport now and answer with [`Event::Gone`].
    HangUp { session: SessionKey },
    /// The answer to an API request.
    Answer { ticket: Ticket, answer: ApiResult },
}

/// The output of a turn's events. The caller empties the lists.
#[derive(Debug, Default)]
pub struct Effects {
    /// The caller performs them in order.
    pub list: Vec<Effect>,
    /// Sessions with something to write. Each is listed once until [`Event::Wrote`] has drained it. A session whose
    /// socket is full is not listed again: the caller writes it when the socket is writable.
    pub dirty: Vec<SessionKey>,
    /// Records for the log; see [`crate::record::RecordOptions`].
    pub records: Vec<SessionRecord>,
    /// Events for the application's backend; see [`crate::lifecycle`].
    pub lifecycle: Vec<LifecycleEvent>,
    /// Recoveries that were answered; see [`crate::options::FollowOptions`].
    pub recoveries: Vec<RecoveryReport>,
}

/// A recovery that was answered.
#[derive(Clone, Debug)]
pub struct RecoveryReport {
    pub session: SessionKey,
    pub channel: Arc<str>,
    /// When the session's shard asked the owner, on the clock of [`Now::mono_us`].
    pub asked_us: u64,
    /// Whether nothing is missing.
    pub is_recovered: bool,
    /// The publications in the answer.
    pub publications: usize,
}

/// The claims of a valid connection token.
#[derive(Clone, Debug, Default)]
pub struct ConnectionClaims {
    /// The user's id; empty for the anonymous user.
    pub user: String,
    pub info: Option<Payload>,
    /// Unix time of the connection's expiry in milliseconds; `None` for never.
    pub expires_at_ms: Option<u64>,
    /// A JSON document that only backends receive.
    pub meta: Option<Payload>,
    pub subscriptions: Vec<ServerSubscription>,
    pub token: TokenIdentity,
}

/// What revokes a token: its id, and when it was issued. Empty for what is no token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenIdentity {
    /// The claim `jti`; empty without one.
    pub id: Box<str>,
    /// The claim `iat` as Unix time in milliseconds.
    pub issued_at_ms: Option<u64>,
}

/// A subscription that the server makes for a session.
#[derive(Clone, Debug, Default)]
pub struct ServerSubscription {
    pub channel: Box<str>,
    pub grant: SubscriptionGrant,
    /// The offset and epoch to recover from, if the server or the `connect` command names them.
    pub recover_since: Option<(u64, Box<str>)>,
    /// Whether the connection token lists it. It ends when a refreshed token does not.
    pub from_token: bool,
}

impl ConnectionClaims {
    /// Approximate bytes of the claims.
    fn bytes(&self) -> usize {
        let Self { user, info, expires_at_ms: _, meta, subscriptions, token } = self;
        let subscriptions = subscriptions.iter().map(ServerSubscription::bytes).sum::<usize>();
        user.len() + payload_bytes(info.as_ref()) + payload_bytes(meta.as_ref()) + subscriptions + token.id.len()
    }
}

impl ServerSubscription {
    /// Approximate bytes, also of the structure.
    pub(crate) fn bytes(&self) -> usize {
        let Self { channel, grant, recover_since, from_token: _ } = self;
        let epoch = recover_since.as_ref().map_or(0, |(_, epoch)| epoch.len());
        size_of::<Self>() + channel.len() + grant.bytes() + epoch
    }
}

/// The claims of a valid subscription token.
#[derive(Clone, Debug, Default)]
pub struct SubscriptionClaims {
    pub user: String,
    pub channel: String,
    /// The id of the only session that may use the token; empty for any session.
    pub client: String,
    pub grant: SubscriptionGrant,
    pub token: TokenIdentity,
}

/// What the party that authorizes a subscription attaches to it: a token, a backend, or the server API.
#[derive(Clone, Debug, Default)]
pub struct SubscriptionGrant {
    pub info: Option<Payload>,
    /// Application bytes for the client.
    pub data: Option<Payload>,
    /// Unix time of the subscription's expiry in milliseconds; `None` for never.
    pub expires_at_ms: Option<u64>,
    /// Overrides of the namespace's options.
    pub overrides: Overrides,
}

impl SubscriptionClaims {
    /// Approximate bytes of the claims.
    fn bytes(&self) -> usize {
        let Self { user, channel, client, grant, token } = self;
        user.len() + channel.len() + client.len() + grant.bytes() + token.id.len()
    }
}

impl SubscriptionGrant {
    /// Approximate bytes of its payloads.
    pub(crate) fn bytes(&self) -> usize {
        payload_bytes(self.info.as_ref()) + payload_bytes(self.data.as_ref())
    }
}

/// Bytes of a payload; 0 for none.
pub(crate) fn payload_bytes(payload: Option<&Payload>) -> usize {
    payload.map_or(0, |payload| payload.bytes().len())
}

/// Why a token was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// The token has expired or is not valid yet. A new token may be accepted.
    Expired,
    /// The token cannot be verified, or its claims are wrong.
    Invalid,
    /// The token cannot be verified now: its key is not available, or too many tokens wait. A retry with the same token
    /// may succeed.
    Unavailable,
}
