//! Requests to the application's backend and its responses: Centrifugo's proxies. The caller performs the requests;
//! each is answered with one event, which carries an error if the backend does not respond.

#![allow(missing_docs, reason = "a field whose name says all has no comment")]

use std::sync::Arc;

use dunlin_protocol::{Disconnect, ErrorCode, Payload, Tags};

use crate::{
    Wire,
    event::{ServerSubscription, SubscriptionGrant, payload_bytes},
};

/// Index of a proxy in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProxyIndex(pub u16);

impl ProxyIndex {
    /// The node itself, which answers some RPC methods.
    pub const NODE: Self = Self(u16::MAX);
}

/// Prefix of the methods that the node itself answers.
pub const NODE_METHODS: &str = "dunlin.";

/// Number of a request on its shard. The answer repeats it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProxyRequestId(pub u64);

/// A request to a backend. Exactly one [`crate::Event::ProxyResponded`] answers it, at the latest after the proxy's
/// timeout.
#[derive(Debug)]
pub struct ProxyRequest {
    /// Given back with the answer.
    pub id: ProxyRequestId,
    pub proxy: ProxyIndex,
    pub asker: ProxySession,
    pub kind: ProxyRequestKind,
}

/// The session in a request to a backend.
#[derive(Clone, Debug)]
pub struct ProxySession {
    /// The session's id; for a call of a room, the room's channel.
    pub client: Arc<str>,
    /// Transport and encoding of the session.
    pub wire: Wire,
    /// The user; `None` before the session has one.
    pub user: Option<Arc<str>>,
    /// A JSON document from the token or the connect hook that only backends receive.
    pub meta: Option<Payload>,
}

/// The kind of a request, with its parameters.
#[derive(Clone, Debug)]
pub enum ProxyRequestKind {
    /// Authenticate a session that has no token.
    Connect {
        /// Application bytes of the command.
        data: Option<Payload>,
        name: Box<str>,
        version: Box<str>,
        /// Channels of the server-side subscriptions that the client asks to recover.
        channels: Vec<Box<str>>,
    },
    /// Refresh a session.
    Refresh,
    /// Authorize a subscription.
    Subscribe {
        channel: Arc<str>,
        /// Application bytes of the command.
        data: Option<Payload>,
    },
    /// Authorize a publication, which the backend may change.
    Publish {
        channel: Arc<str>,
        /// The data of the publication.
        data: Payload,
    },
    /// Refresh a subscription.
    SubRefresh { channel: Arc<str> },
    /// Call a method of the application.
    Rpc {
        method: Box<str>,
        /// Application bytes of the command.
        data: Option<Payload>,
    },
    /// The game of a room calls the application. The response is [`ProxyResponse::Rpc`].
    RoomCall { channel: Arc<str>, method: Box<str>, data: Payload },
}

/// The result of a request.
pub type ProxyResult = Result<ProxyResponse, ProxyError>;

/// A backend's response, of the request's kind.
#[derive(Clone, Debug)]
pub enum ProxyResponse {
    /// The session is authenticated.
    Connect(Box<ConnectResponse>),
    /// The session continues or has expired.
    Refresh(RefreshResponse),
    /// The subscription is authorized.
    Subscribe(Box<SubscriptionGrant>),
    /// The publication is accepted.
    Publish(Box<PublishResponse>),
    /// The subscription continues or has expired.
    SubRefresh(RefreshResponse),
    /// The result of the call.
    Rpc {
        /// Application bytes.
        data: Option<Payload>,
    },
}

impl ProxyResponse {
    /// Approximate bytes of what the backend has sent.
    pub fn bytes(&self) -> usize {
        let of = |payload: &Option<Payload>| payload_bytes(payload.as_ref());
        match self {
            Self::Connect(response) => {
                let ConnectResponse { user, info, data, meta, subscriptions, .. } = &**response;
                let subscriptions = subscriptions.iter().map(ServerSubscription::bytes);
                user.len() + of(info) + of(data) + of(meta) + subscriptions.sum::<usize>()
            }
            Self::Refresh(response) | Self::SubRefresh(response) => of(&response.info) + of(&response.meta),
            Self::Subscribe(grant) => grant.bytes(),
            Self::Publish(response) => of(&response.data) + response.how.bytes(),
            Self::Rpc { data } => of(data),
        }
    }
}

/// An authenticated session.
#[derive(Clone, Debug, Default)]
pub struct ConnectResponse {
    /// The user's id; empty for the anonymous user.
    pub user: String,
    /// Unix time of the session's expiry in milliseconds; `None` for never.
    pub expires_at_ms: Option<u64>,
    pub info: Option<Payload>,
    /// Application bytes for the reply.
    pub data: Option<Payload>,
    /// A JSON document that only backends receive.
    pub meta: Option<Payload>,
    pub subscriptions: Vec<ServerSubscription>,
}

/// The next expiry of a session or subscription.
#[derive(Clone, Debug, Default)]
pub struct RefreshResponse {
    /// Whether the session or subscription has expired.
    pub expired: bool,
    /// Unix time of the next expiry in milliseconds; `None` for never.
    pub expires_at_ms: Option<u64>,
    /// New info; `None` keeps the current one.
    pub info: Option<Payload>,
    /// New meta; `None` keeps the current one. For sessions only.
    pub meta: Option<Payload>,
}

/// An accepted publication.
#[derive(Clone, Debug, Default)]
pub struct PublishResponse {
    /// Replaces the data that the session sent; `None` keeps it.
    pub data: Option<Payload>,
    pub how: PublishHow,
}

/// Options of a publication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishHow {
    pub tags: Tags,
    /// Do not add it to the channel's history.
    pub skip_history: bool,
    /// A second publication with the same key within five minutes is not published; its answer repeats the first one's.
    pub idempotency_key: Option<Box<str>>,
    /// Send it as a patch against the previous publication to subscribers that accept patches.
    pub delta: bool,
    /// Version of the data; 0 for none. A publication whose version is not above the channel's last one is not
    /// published.
    pub version: u64,
    /// The epoch of the version; empty for any epoch.
    pub version_epoch: Box<str>,
}

impl PublishHow {
    /// The bytes of its texts.
    pub fn bytes(&self) -> usize {
        let tags: usize = self.tags.iter().map(|(name, value)| name.len() + value.len()).sum();
        tags + self.idempotency_key.as_ref().map_or(0, |key| key.len()) + self.version_epoch.len()
    }
}

/// Overrides of a namespace's options for a subscription; `None` keeps the namespace's value.
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

/// Why a backend request failed or was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyError {
    /// The backend could not be reached, did not respond in time, or sent an invalid response: error 100.
    Failed,
    /// Too many requests wait for the backend.
    Busy,
    /// The backend's own error, for the client.
    Error {
        /// 100 to 1,999.
        code: u16,
        message: Box<str>,
        /// Whether the client may try again.
        temporary: bool,
    },
    /// The session is to be closed.
    Disconnect(Disconnect),
}

impl ProxyError {
    /// The protocol's error for a failure without a message of the backend.
    pub const fn error_code(&self) -> ErrorCode {
        match self {
            Self::Busy => ErrorCode::TooManyRequests,
            Self::Failed | Self::Error { .. } | Self::Disconnect(_) => ErrorCode::Internal,
        }
    }
}
