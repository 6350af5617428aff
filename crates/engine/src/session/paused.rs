//! Why a session is paused.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_protocol::{ConnectResult, Payload, TagsFilter, UnsubscribeCode};

use crate::{
    backend::ProxyRequestId, event::ServerSubscription, hub::LocalChannelId, pace::UpdatePace, refused::Refused,
};

/// Why a session is paused, and the commands to run when it resumes.
#[derive(Debug)]
pub(crate) struct Paused {
    pub(crate) paused_on: PausedOn,
    pub(crate) unparsed: UnparsedCommands,
}

/// The commands of a frame after the one that waits.
#[derive(Debug, Default)]
pub(crate) struct UnparsedCommands {
    pub(crate) commands: Vec<u8>,
    /// Bytes of the commands that have been run since they were stored here.
    pub(crate) done_bytes: usize,
    /// Maximum number of remaining commands.
    pub(crate) commands_max: usize,
}

/// What a session waits for.
#[derive(Debug)]
pub(crate) enum PausedOn {
    /// A connection token, presented by `connect`.
    Connect { command_id: u32, params: Box<ConnectParams> },
    /// The decision whether the user may have one more session.
    Admission(Box<ConnectGrant>),
    /// The owners' answers to the server-side subscriptions in the answer to `connect`.
    Subscriptions(Box<PendingConnect>),
    /// A connection token, presented by `refresh`.
    Refresh { command_id: u32 },
    /// A subscription token, presented by `subscribe`.
    Subscribe { command_id: u32, params: Box<SubscriptionParams> },
    /// A subscription token, presented by `sub_refresh`.
    SubRefresh { command_id: u32, channel: Box<str> },
    /// The owner's answer to a subscription that has already ended, before the session may subscribe to the same
    /// channel again.
    Ending { channel: LocalChannelId },
    /// A backend's response.
    Backend(Box<ProxyCall>),
    /// The session's socket, which must accept earlier replies first, or owners, which have not answered yet.
    Pace(Share),
}

/// The share of its queue limits that may be in use when a session runs a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// For a command with a large reply: the rest is for the reply.
    Quarter,
    /// For any other command.
    ThreeQuarters,
}

impl Share {
    /// This share of `max`.
    pub(crate) const fn of(self, max: usize) -> usize {
        match self {
            Self::Quarter => max / 4,
            Self::ThreeQuarters => max - max / 4,
        }
    }
}

impl UnparsedCommands {
    /// The bytes that have not been run.
    pub(crate) fn left(&self) -> &[u8] {
        &self.commands[self.done_bytes..]
    }
}

/// A command that waits for a backend.
#[derive(Debug)]
pub(crate) struct ProxyCall {
    pub(crate) request_id: ProxyRequestId,
    pub(crate) command_id: u32,
    pub(crate) about: ProxiedCommand,
}

/// The command, with the fields that are needed when the response arrives.
#[derive(Debug)]
pub(crate) enum ProxiedCommand {
    Connect(ConnectParams),
    Subscribe(SubscriptionParams),
    Publish { channel: Arc<str>, data: Payload },
    Rpc,
}

/// An offset and its epoch.
type Position = (u64, Box<str>);

/// The fields of a connect command that are needed after its frame.
#[derive(Debug, Default)]
pub(crate) struct ConnectParams {
    /// The id in a request to a backend.
    pub(crate) client: Option<Arc<str>>,
    /// The channels of the client's server-side subscriptions, without duplicates, with the positions to recover from.
    pub(crate) subs: Vec<(Box<str>, Option<Position>)>,
}

/// The grant of an authenticated session that is not admitted yet. Its source is a token, a backend, or the option for
/// anonymous sessions.
#[derive(Debug)]
pub(crate) struct ConnectGrant {
    pub(crate) command_id: u32,
    /// The session's id, if a request to a backend contained one.
    pub(crate) client: Option<Arc<str>>,
    pub(crate) user: Arc<str>,
    pub(crate) info: Option<Payload>,
    pub(crate) data: Option<Payload>,
    pub(crate) meta: Option<Payload>,
    pub(crate) expires_at_ms: Option<u64>,
    /// At most one per channel.
    pub(crate) subscriptions: Vec<ServerSubscription>,
    /// The positions to recover from, for channels without a subscription so far.
    pub(crate) positions: Vec<(Box<str>, Position)>,
}

/// A `connect` that is answered when all owners have answered.
#[derive(Debug)]
pub(crate) struct PendingConnect {
    pub(crate) command_id: u32,
    /// The answer so far.
    pub(crate) result: ConnectResult,
    /// The number of answers still missing.
    pub(crate) missing: usize,
    /// The first refusal of an owner.
    pub(crate) refused: Option<Refused>,
    /// Bytes of the recoveries in the answer so far.
    pub(crate) recovered_bytes: usize,
    /// [`ConnectGrant::positions`], for subscriptions that the API makes before the answer.
    pub(crate) positions: Vec<(Box<str>, Position)>,
}

/// The fields of a subscribe command that are needed after its frame.
#[derive(Clone, Debug)]
pub(crate) struct SubscriptionParams {
    /// When the command was begun, on the clock of [`crate::Now::mono_us`].
    pub(crate) commanded_us: u64,
    pub(crate) channel: Box<str>,
    pub(crate) recover: bool,
    pub(crate) epoch: Box<str>,
    pub(crate) offset: u64,
    pub(crate) positioned: bool,
    pub(crate) recoverable: bool,
    pub(crate) join_leave: bool,
    pub(crate) reject_unrecoverable: bool,
    /// The client's filter on publications.
    pub(crate) filter: Option<Arc<TagsFilter>>,
    /// Pushes may carry the channel's number.
    pub(crate) compact: bool,
    /// Data may be sent as patches.
    pub(crate) delta: bool,
    /// Data for the game, if the channel has a room.
    pub(crate) data: Bytes,
    /// The pace that the data states.
    pub(crate) pace: Option<UpdatePace>,
    /// Set when the API ends the subscription during a token check or a backend request; the client receives the push
    /// after the reply.
    pub(crate) ended: Option<UnsubscribeCode>,
}

impl Paused {
    /// The subscription that waits for a token check or a backend.
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

impl ConnectGrant {
    /// Adds a subscription, unless the channel has one already.
    pub(crate) fn plan(&mut self, subscription: ServerSubscription) {
        let is_new = self.subscriptions.iter().all(|planned| planned.channel != subscription.channel);
        if is_new && !subscription.channel.is_empty() {
            self.subscriptions.push(subscription);
        }
    }
}
