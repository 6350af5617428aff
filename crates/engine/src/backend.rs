//! What a session's events ask of the application's own backend, and what it answers: Centrifugo's proxies. Somebody else
//! asks, over whatever the configuration says; the answer comes back as an event, or does not come, and then an error
//! does.

use std::sync::Arc;

use dunlin_protocol::{Disconnect, ErrorCode, Payload, Tags};

use crate::{Wire, event::ServerSubscription};

/// A proxy's number in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProxyIndex(pub u16);

/// A question's number on its shard, given back with the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QuestionId(pub u64);

/// One question. It is on its way for at most the proxy's timeout; there is exactly one [`crate::Event::BackendAnswered`]
/// for it.
#[derive(Debug)]
pub struct BackendQuestion {
    /// Given back with the answer.
    pub id: QuestionId,
    /// Who is asked.
    pub proxy: ProxyIndex,
    /// Who asks.
    pub asker: BackendAsker,
    /// What.
    pub ask: Ask,
}

/// What a backend is told of a session.
#[derive(Clone, Debug)]
pub struct BackendAsker {
    /// The session's id.
    pub client: Arc<str>,
    /// Its transport and encoding.
    pub wire: Wire,
    /// The user; `None` before the session has one.
    pub user: Option<Arc<str>>,
    /// What the token or the connect hook said about the session for backends alone: JSON.
    pub meta: Option<Payload>,
}

/// What is asked.
#[derive(Clone, Debug)]
pub enum Ask {
    /// Who the session is, when it has no token.
    Connect {
        /// Application bytes of the command.
        data: Option<Payload>,
        /// The SDK's name.
        name: Box<str>,
        /// The application's version.
        version: Box<str>,
        /// Channels of the server-side subscriptions that it wants to recover.
        channels: Vec<Box<str>>,
    },
    /// Whether the session goes on.
    Refresh,
    /// Whether the session may subscribe.
    Subscribe {
        /// The channel.
        channel: Arc<str>,
        /// Application bytes of the command.
        data: Option<Payload>,
    },
    /// Whether, and what, the session may publish.
    Publish {
        /// The channel.
        channel: Arc<str>,
        /// What it wants to publish.
        data: Payload,
    },
    /// Whether a subscription goes on.
    SubRefresh {
        /// The channel.
        channel: Arc<str>,
    },
    /// A call into the application.
    Rpc {
        /// The method's name.
        method: Box<str>,
        /// Application bytes of the command.
        data: Option<Payload>,
    },
}

/// What came of a question.
pub type BackendOutcome = Result<BackendAnswer, BackendRefusal>;

/// A backend's consent, of the question's kind.
#[derive(Clone, Debug)]
pub enum BackendAnswer {
    /// The session is let in.
    Connect(Box<ConnectAnswer>),
    /// The session goes on, or not.
    Refresh(RefreshAnswer),
    /// The session may subscribe.
    Subscribe(Box<SubscribeAnswer>),
    /// The publication is accepted.
    Publish(Box<PublishAnswer>),
    /// The subscription goes on, or not.
    SubRefresh(RefreshAnswer),
    /// What the call returned.
    Rpc {
        /// Application bytes.
        data: Option<Payload>,
    },
}

/// Who a session is.
#[derive(Clone, Debug, Default)]
pub struct ConnectAnswer {
    /// The user's id; empty for the anonymous user.
    pub user: String,
    /// Unix time of the session's expiry in seconds; `None` for never.
    pub expires_at_s: Option<u64>,
    /// Connection info.
    pub info: Option<Payload>,
    /// Application bytes for the reply.
    pub data: Option<Payload>,
    /// For backends alone: JSON.
    pub meta: Option<Payload>,
    /// Server-side subscriptions.
    pub subscriptions: Vec<ServerSubscription>,
}

/// How long something goes on.
#[derive(Clone, Debug, Default)]
pub struct RefreshAnswer {
    /// It is over.
    pub expired: bool,
    /// Unix time of the next expiry in seconds; `None` for never.
    pub expires_at_s: Option<u64>,
    /// New info; `None` leaves it.
    pub info: Option<Payload>,
    /// New meta; `None` leaves it. Of a session alone.
    pub meta: Option<Payload>,
}

/// What a subscription is.
#[derive(Clone, Debug, Default)]
pub struct SubscribeAnswer {
    /// Unix time of the subscription's expiry in seconds; `None` for never.
    pub expires_at_s: Option<u64>,
    /// Channel info.
    pub info: Option<Payload>,
    /// Application bytes for the reply.
    pub data: Option<Payload>,
    /// What it has instead of its namespace's options.
    pub overrides: Overrides,
}

/// What is published.
#[derive(Clone, Debug, Default)]
pub struct PublishAnswer {
    /// Instead of what the session sent; `None` leaves it.
    pub data: Option<Payload>,
    /// How.
    pub how: PublishHow,
}

/// How something is published, beyond what it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishHow {
    /// Tags.
    pub tags: Tags,
    /// Leave the channel's stream alone.
    pub skip_history: bool,
    /// A second publication with the same key, within five minutes, is not published but answered as the first was.
    pub idempotency_key: Option<Box<str>>,
    /// Send it as the difference to the publication before, to those who can read that.
    pub delta: bool,
    /// Of the data as a whole: a publication with one that is not above the channel's last is not published. 0 for none.
    pub version: u64,
    /// In which the version counts; empty for any.
    pub version_epoch: Box<str>,
}

/// What a subscription has instead of its namespace's options; `None` leaves those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Keep presence.
    pub presence: Option<bool>,
    /// Produce joins and leaves.
    pub join_leave: Option<bool>,
    /// Send it joins and leaves.
    pub force_push_join_leave: Option<bool>,
    /// Position it.
    pub force_positioning: Option<bool>,
    /// Make it recoverable.
    pub force_recovery: Option<bool>,
}

/// Why there is no consent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendRefusal {
    /// The backend was not reached, did not answer in time, or not in its language: error 100.
    Failed,
    /// More questions wait for the backend than may.
    Busy,
    /// The backend's own error, for the client.
    Error {
        /// 100 to 1,999.
        code: u16,
        /// What to say.
        message: Box<str>,
        /// Whether to try again.
        temporary: bool,
    },
    /// The session is to be closed.
    Disconnect(Disconnect),
}

impl BackendRefusal {
    /// The error of the protocol where there are no words of the backend's own.
    pub const fn error_code(&self) -> ErrorCode {
        match self {
            Self::Busy => ErrorCode::TooManyRequests,
            Self::Failed | Self::Error { .. } | Self::Disconnect(_) => ErrorCode::Internal,
        }
    }
}
