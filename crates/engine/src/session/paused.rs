//! What a paused session waits for.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_protocol::{ConnectResult, Disconnect, ErrorCode, Payload, TagsFilter, UnsubscribeCode};

use crate::{
    backend::{ProxyError, ProxyRequestId},
    event::ServerSubscription,
    hub::LocalChannelId,
};

/// What a session waits for, and what it does after that. It is paused meanwhile.
#[derive(Debug)]
pub(crate) struct Paused {
    pub(crate) paused_on: PausedOn,
    pub(crate) unparsed: UnparsedCommands,
}

/// The commands of a frame that come after the one that waits.
#[derive(Debug, Default)]
pub(crate) struct UnparsedCommands {
    pub(crate) commands: Vec<u8>,
    /// Bytes of them that have been carried out since they were put here.
    pub(crate) done_bytes: usize,
    /// How many they may be.
    pub(crate) commands_max: usize,
}

/// What a session waits for.
#[derive(Debug)]
pub(crate) enum PausedOn {
    /// A connection token, presented by `connect`.
    Connect { command_id: u32, params: Box<ConnectParams> },
    /// Whether the user may have one more session.
    Admission(Box<ConnectGrant>),
    /// The owners' answers to the server-side subscriptions that `connect` is answered with.
    Subscriptions(Box<PendingConnect>),
    /// A connection token, presented by `refresh`.
    Refresh { command_id: u32 },
    /// A subscription token, presented by `subscribe`.
    Subscribe { command_id: u32, params: Box<SubscriptionParams> },
    /// A subscription token, presented by `sub_refresh`.
    SubRefresh { command_id: u32, channel: Box<str> },
    /// The owner's answer to a subscription that is over already, before it may subscribe to the same channel again.
    Ending { channel: LocalChannelId },
    /// A backend.
    Backend(Box<ProxyCall>),
    /// The session's socket, which has to take earlier replies first, or owners, which have yet to give them.
    Pace(Share),
}

/// How much of its bounds may wait for a session when it has a command carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// For a command whose reply may be large: what is left is for the reply.
    Quarter,
    /// For any other.
    ThreeQuarters,
}

impl Share {
    /// So much of `max`.
    pub(crate) const fn of(self, max: usize) -> usize {
        match self {
            Self::Quarter => max / 4,
            Self::ThreeQuarters => max - max / 4,
        }
    }
}

impl UnparsedCommands {
    /// What is left to be carried out.
    pub(crate) fn left(&self) -> &[u8] {
        &self.commands[self.done_bytes..]
    }
}

/// A command about which a backend is asked.
#[derive(Debug)]
pub(crate) struct ProxyCall {
    pub(crate) request_id: ProxyRequestId,
    pub(crate) command_id: u32,
    pub(crate) about: ProxiedCommand,
}

/// Which command, and what of it is needed when the answer comes.
#[derive(Debug)]
pub(crate) enum ProxiedCommand {
    Connect(ConnectParams),
    Subscribe(SubscriptionParams),
    Publish { channel: Arc<str>, data: Payload },
    Rpc,
}

/// An offset and the epoch in which it counts.
type Position = (u64, Box<str>);

/// What of a connect command outlives its frame.
#[derive(Debug, Default)]
pub(crate) struct ConnectParams {
    /// The id in a request to a backend.
    pub(crate) client: Option<Arc<str>>,
    /// The channels that the client wants to be subscribed to, each once, and where it wants to recover from.
    pub(crate) subs: Vec<(Box<str>, Option<Position>)>,
}

/// A session that is let in by its token, its backend or nobody, before anything has come of it.
#[derive(Debug)]
pub(crate) struct ConnectGrant {
    pub(crate) command_id: u32,
    /// The session's id, if a request to a backend contained one.
    pub(crate) client: Option<Arc<str>>,
    pub(crate) user: Arc<str>,
    pub(crate) info: Option<Payload>,
    pub(crate) data: Option<Payload>,
    pub(crate) meta: Option<Payload>,
    pub(crate) expires_at_s: Option<u64>,
    /// No two to the same channel.
    pub(crate) subscriptions: Vec<ServerSubscription>,
    /// Where the client wants to recover channels from to which it is not subscribed yet.
    pub(crate) positions: Vec<(Box<str>, Position)>,
}

/// A `connect` that is answered when all owners have answered.
#[derive(Debug)]
pub(crate) struct PendingConnect {
    pub(crate) command_id: u32,
    /// The answer, with what has come so far.
    pub(crate) result: ConnectResult,
    /// Answers that are still missing.
    pub(crate) missing: usize,
    /// The first of the owners' refusals.
    pub(crate) refused: Option<ErrorCode>,
    /// Bytes of the recoveries that the answer has so far.
    pub(crate) recovered_bytes: usize,
    /// [`ConnectGrant::positions`], for subscriptions that the API makes meanwhile.
    pub(crate) positions: Vec<(Box<str>, Position)>,
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
pub(crate) struct SubscriptionParams {
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
    /// The API has ended the subscription during a token check or a backend request; the client gets the push after the reply.
    pub(crate) ended: Option<UnsubscribeCode>,
}

impl Paused {
    /// The subscription about which a token or a backend is being asked.
    pub(crate) fn subscription_params(&mut self) -> Option<&mut SubscriptionParams> {
        match &mut self.paused_on {
            PausedOn::Subscribe { params, .. } => Some(params),
            PausedOn::Backend(asked) => match &mut asked.about {
                ProxiedCommand::Subscribe(params) => Some(params),
                ProxiedCommand::Connect(_) | ProxiedCommand::Publish { .. } | ProxiedCommand::Rpc => None,
            },
            _ => None,
        }
    }
}

impl From<ProxyError> for RefusedConnect {
    fn from(refusal: ProxyError) -> Self {
        match refusal {
            ProxyError::Error { code, message, temporary } => Self::Own { code, message, temporary },
            ProxyError::Disconnect(disconnect) => Self::Disconnect(disconnect),
            ProxyError::Failed | ProxyError::Busy => Self::Error(refusal.error_code()),
        }
    }
}
