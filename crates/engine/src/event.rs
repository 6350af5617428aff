//! The one way into a shard, and the one way out.

use dunlin_protocol::Payload;

use crate::{
    api::{Answer, ApiRequest},
    backend::{BackendOutcome, BackendQuestion, Overrides, QuestionId},
    message::ShardMessage,
    room::{FromRoom, RoomThreadIndex, ToRoom},
    wire::Wire,
};

/// The time of an event, as the caller's clocks tell it.
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

    /// The moment `ms` milliseconds from now, on the clock of [`Now::mono_us`]; never (`u64::MAX`) where there is none.
    pub const fn after_ms(self, ms: u64) -> u64 {
        self.mono_us.saturating_add(ms.saturating_mul(1_000))
    }
}

/// A shard's number on its node, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardIndex(pub u16);

/// A session on its shard. The caller picks the index, densely, and may use it again after [`Event::Gone`] with another
/// generation, so that what arrives late for the first finds nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey {
    /// Place in the caller's and the shard's tables.
    pub index: u32,
    /// Counts the sessions that had this index.
    pub generation: u32,
}

/// An API request in flight; the caller's number, given back with the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Something happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// A transport was opened.
    Opened {
        /// The new session.
        session: SessionKey,
        /// What it speaks.
        wire: Wire,
    },
    /// A whole WebSocket message came.
    Received {
        /// From whom.
        session: SessionKey,
        /// The message: one or more commands.
        frame: &'a [u8],
    },
    /// A WebSocket ping came.
    Pinged {
        /// From whom.
        session: SessionKey,
        /// What the pong has to carry, at most 125 bytes.
        payload: &'a [u8],
    },
    /// A WebSocket close frame came.
    CloseReceived {
        /// From whom.
        session: SessionKey,
        /// Its code, to be echoed.
        code: Option<u16>,
    },
    /// The peer broke the WebSocket protocol.
    Violated {
        /// Who.
        session: SessionKey,
        /// The close code to answer with: 1002, 1007 or 1009.
        code: u16,
        /// What was wrong, in fixed words.
        what: &'static str,
    },
    /// The first `bytes` bytes of what [`crate::Shard::outgoing`] offered are with the kernel.
    Wrote {
        /// Whose.
        session: SessionKey,
        /// How many.
        bytes: usize,
    },
    /// The transport is gone, by either side's doing. The session's index is free afterwards.
    Gone {
        /// Which.
        session: SessionKey,
    },
    /// Answer to [`Effect::Authenticate`].
    Authenticated {
        /// Whose token.
        session: SessionKey,
        /// What it says.
        outcome: Result<ConnectionClaims, TokenError>,
    },
    /// Answer to [`Effect::AskBackend`].
    BackendAnswered {
        /// Who asked.
        session: SessionKey,
        /// What.
        question: QuestionId,
        /// What came of it.
        outcome: BackendOutcome,
    },
    /// Answer to [`Effect::AuthorizeSubscription`].
    SubscriptionAuthorized {
        /// Whose token.
        session: SessionKey,
        /// What it says.
        outcome: Result<SubscriptionClaims, TokenError>,
    },
    /// A message from a shard of this node, in the order in which that shard sent them.
    Message {
        /// The sender.
        from: ShardIndex,
        /// What it says.
        message: ShardMessage,
    },
    /// A message from a room thread of this node, in the order in which that thread sent them.
    FromRoom {
        /// The sender.
        from: RoomThreadIndex,
        /// What it says.
        message: FromRoom,
    },
    /// A request of the server API.
    Api {
        /// Given back with the answer.
        ticket: Ticket,
        /// What is asked.
        request: ApiRequest,
    },
    /// The deadline of [`crate::Shard::next_deadline_us`] has passed.
    Woke,
    /// Everything that was dirty has been offered to the kernel; measures publish → socket latency. Once a turn.
    TurnEnded,
    /// The node is about to shut down: close so many sessions with 3001, those first for whom nothing waits.
    DrainSome {
        /// How many, at most.
        sessions_max: usize,
    },
    /// The node shuts down: close every session with 3001 after its reliable lane, and admit none.
    Drain,
}

/// What the caller has to do.
#[derive(Debug)]
pub enum Effect {
    /// Put `message` on the ring to shard `to`.
    Send {
        /// The receiver; never the shard itself.
        to: ShardIndex,
        /// What to say.
        message: ShardMessage,
    },
    /// Put `message` on the ring to a room thread. What does not fit waits, and holds nothing else up.
    ToRoom {
        /// The receiver.
        thread: RoomThreadIndex,
        /// What to say.
        message: ToRoom,
    },
    /// Verify a connection token and answer with [`Event::Authenticated`]. The session is paused until then.
    Authenticate {
        /// Who waits.
        session: SessionKey,
        /// The JWT.
        token: Box<str>,
    },
    /// Verify a subscription token and answer with [`Event::SubscriptionAuthorized`]. The session is paused until then.
    AuthorizeSubscription {
        /// Who waits.
        session: SessionKey,
        /// The JWT.
        token: Box<str>,
    },
    /// Ask the application's backend and answer with [`Event::BackendAnswered`].
    AskBackend {
        /// Who asks.
        session: SessionKey,
        /// Whom, and what.
        question: Box<BackendQuestion>,
    },
    /// Give the shard no more [`Event::Received`] of this session.
    Pause {
        /// Which.
        session: SessionKey,
    },
    /// Go on reading.
    Resume {
        /// Which.
        session: SessionKey,
    },
    /// All is written: end the sending side, and hang up when the peer does.
    Finish {
        /// Which.
        session: SessionKey,
    },
    /// Drop the transport now and answer with [`Event::Gone`].
    HangUp {
        /// Which.
        session: SessionKey,
    },
    /// The answer to an API request.
    Answer {
        /// The request's.
        ticket: Ticket,
        /// What was asked for.
        answer: Answer,
    },
}

/// What a turn's events led to. The caller empties both lists.
#[derive(Debug, Default)]
pub struct Effects {
    /// To be performed in order.
    pub list: Vec<Effect>,
    /// Sessions that have something to write, each once until it is drained by [`Event::Wrote`]. A session whose socket
    /// is full is not listed again: the caller comes back to it when the socket is writable.
    pub dirty: Vec<SessionKey>,
}

/// What a valid connection token says.
#[derive(Clone, Debug, Default)]
pub struct ConnectionClaims {
    /// The user's id; empty for the anonymous user.
    pub user: String,
    /// Connection info.
    pub info: Option<Payload>,
    /// Unix time of the connection's expiry in seconds; `None` for never.
    pub expires_at_s: Option<u64>,
    /// For backends alone: JSON.
    pub meta: Option<Payload>,
    /// Server-side subscriptions.
    pub subscriptions: Vec<ServerSubscription>,
}

/// A subscription that the server makes for a session.
#[derive(Clone, Debug, Default)]
pub struct ServerSubscription {
    /// The channel.
    pub channel: Box<str>,
    /// Channel info.
    pub info: Option<Payload>,
    /// Application bytes for the client.
    pub data: Option<Payload>,
    /// Unix time of its expiry in seconds; `None` for never.
    pub expires_at_s: Option<u64>,
    /// What it has instead of its namespace's options.
    pub overrides: Overrides,
    /// Where to recover from, if the server is to say.
    pub recover_since: Option<(u64, Box<str>)>,
}

/// What a valid subscription token says.
#[derive(Clone, Debug, Default)]
pub struct SubscriptionClaims {
    /// The user's id.
    pub user: String,
    /// The channel.
    pub channel: String,
    /// The one session that may use it; empty for any.
    pub client: String,
    /// Channel info.
    pub info: Option<Payload>,
    /// Application bytes for the subscribe reply.
    pub data: Option<Payload>,
    /// Unix time of the subscription's expiry in seconds; `None` for never.
    pub expires_at_s: Option<u64>,
    /// What it has instead of its namespace's options.
    pub overrides: Overrides,
}

/// Why a token does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// Past its time, or not yet in it; a new one may do.
    Expired,
    /// Not verifiable, or not what it should be.
    Invalid,
    /// Not to be judged now: its key cannot be had, or too many wait. The same token may do a moment later.
    Unavailable,
}
