//! What a session waits for.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_protocol::{ConnectResult, Disconnect, ErrorCode, Payload, TagsFilter};

use crate::{
    backend::{BackendRefusal, QuestionId},
    event::ServerSubscription,
    hub::LocalChannelId,
};

/// What a session waits for, and what it does after that. It is paused meanwhile.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) waiting: Waiting,
    pub(crate) rest: Rest,
}

/// The commands of a frame that come after the one that waits.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    pub(crate) commands: Vec<u8>,
    /// How many they may be.
    pub(crate) commands_max: usize,
}

/// What a session waits for.
#[derive(Debug)]
pub(crate) enum Waiting {
    /// A connection token, presented by `connect`.
    Connect { command_id: u32, wish: Box<ConnectWish> },
    /// Whether the user may have one more session.
    Admission(Box<Arrival>),
    /// The owners' answers to the server-side subscriptions that `connect` is answered with.
    Subscriptions(Box<Entrance>),
    /// A connection token, presented by `refresh`.
    Refresh { command_id: u32 },
    /// A subscription token, presented by `subscribe`.
    Subscribe { command_id: u32, wish: Box<SubscribeWish> },
    /// A subscription token, presented by `sub_refresh`.
    SubRefresh { command_id: u32, channel: Box<str> },
    /// The owner's answer to a subscription that is over already, before it may subscribe to the same channel again.
    Ending { channel: LocalChannelId },
    /// A backend.
    Backend(Box<Asked>),
}

/// A command about which a backend is asked.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) question: QuestionId,
    pub(crate) command_id: u32,
    pub(crate) about: AskedFor,
}

/// Which command, and what of it is needed when the answer comes.
#[derive(Debug)]
pub(crate) enum AskedFor {
    Connect(ConnectWish),
    Subscribe(SubscribeWish),
    Publish { channel: Arc<str>, data: Payload },
    Rpc,
}

/// An offset and the epoch in which it counts.
type Position = (u64, Box<str>);

/// What of a connect command outlives its frame.
#[derive(Debug, Default)]
pub(crate) struct ConnectWish {
    /// The id that a backend has been told.
    pub(crate) client: Option<Arc<str>>,
    /// The channels that the client wants to be subscribed to, each once, and where it wants to recover from.
    pub(crate) subs: Vec<(Box<str>, Option<Position>)>,
}

/// A session that is let in by its token, its backend or nobody, before anything has come of it.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) command_id: u32,
    /// The session's id, if a backend has been told one.
    pub(crate) client: Option<Arc<str>>,
    pub(crate) user: Arc<str>,
    pub(crate) info: Option<Payload>,
    pub(crate) data: Option<Payload>,
    pub(crate) meta: Option<Payload>,
    pub(crate) expires_at_s: Option<u64>,
    /// No two to the same channel.
    pub(crate) subscriptions: Vec<Planned>,
}

/// A server-side subscription that is to be made at `connect`.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) subscription: ServerSubscription,
    pub(crate) from_token: bool,
    /// Whether the client asked to recover.
    pub(crate) recovers: bool,
}

/// A `connect` that is answered when all owners have answered.
#[derive(Debug)]
pub(crate) struct Entrance {
    pub(crate) command_id: u32,
    /// The answer, with what has come so far.
    pub(crate) result: ConnectResult,
    /// Answers that are still missing.
    pub(crate) missing: usize,
    /// The first of the owners' refusals.
    pub(crate) refused: Option<ErrorCode>,
}

/// Why a `connect` fails.
#[derive(Debug)]
pub(crate) enum RefusedConnect {
    Error(ErrorCode),
    /// In a backend's words.
    Own {
        code: u16,
        message: Box<str>,
        temporary: bool,
    },
    Disconnect(Disconnect),
}

impl From<ErrorCode> for RefusedConnect {
    fn from(code: ErrorCode) -> Self {
        Self::Error(code)
    }
}

impl From<Disconnect> for RefusedConnect {
    fn from(disconnect: Disconnect) -> Self {
        Self::Disconnect(disconnect)
    }
}

/// What of a subscribe command outlives its frame.
#[derive(Clone, Debug)]
pub(crate) struct SubscribeWish {
    pub(crate) channel: Box<str>,
    pub(crate) recover: bool,
    pub(crate) epoch: Box<str>,
    pub(crate) offset: u64,
    pub(crate) positioned: bool,
    pub(crate) recoverable: bool,
    pub(crate) join_leave: bool,
    pub(crate) reject_unrecoverable: bool,
    /// Which publications it wants, if not all.
    pub(crate) filter: Option<Arc<TagsFilter>>,
    /// Pushes may carry the channel's number.
    pub(crate) compact: bool,
    /// Data may be sent as differences.
    pub(crate) delta: bool,
    /// For the game, where the channel has a room.
    pub(crate) data: Bytes,
}

impl From<BackendRefusal> for RefusedConnect {
    fn from(refusal: BackendRefusal) -> Self {
        match refusal {
            BackendRefusal::Error { code, message, temporary } => Self::Own { code, message, temporary },
            BackendRefusal::Disconnect(disconnect) => Self::Disconnect(disconnect),
            BackendRefusal::Failed | BackendRefusal::Busy => Self::Error(refusal.error_code()),
        }
    }
}
