//! Replies to commands.

use std::sync::Arc;

use crate::{ClientInfo, DataForm, EncodedPublications, ErrorCode, Payload, Publication};

/// The answer to one command. The encoders write it under the command's id.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The command failed; the session continues.
    Error(ErrorCode),
    /// The application refused the command with its own error.
    Refused {
        /// 100 to 1,999.
        code: u16,
        /// The text of the error.
        message: Box<str>,
        /// Whether the same command may succeed later.
        temporary: bool,
    },
    /// Answer to `connect`.
    Connect(Box<ConnectResult>),
    /// Answer to `subscribe`.
    Subscribe(Box<SubscribeResult>),
    /// Answer to `unsubscribe`.
    Unsubscribe,
    /// Answer to `publish`.
    Publish,
    /// Answer to `presence`.
    Presence(PresenceResult),
    /// Answer to `presence_stats`.
    PresenceStats(PresenceStatsResult),
    /// Answer to `history`.
    History(HistoryResult),
    /// Answer to `rpc`.
    Rpc(RpcResult),
    /// Answer to `refresh`.
    Refresh(RefreshResult),
    /// Answer to `sub_refresh`.
    SubRefresh {
        /// Seconds until the subscription expires; `None` when it does not.
        ttl_s: Option<u32>,
    },
}

/// Fields of the reply to `connect`, which SDKs read before they send anything else.
#[derive(Clone, Debug)]
pub struct ConnectResult {
    /// The session's id.
    pub client: Arc<str>,
    /// The server's version.
    pub version: &'static str,
    /// Seconds until the client must refresh; `None` if it need not.
    pub ttl_s: Option<u32>,
    /// Application bytes.
    pub data: Option<Payload>,
    /// Server-side subscriptions.
    pub subs: Vec<(Box<str>, SubscribeResult)>,
    /// Seconds between the server's pings; 0 for none.
    pub ping_s: u32,
    /// Whether the client must answer pings.
    pub pong: bool,
    /// The session's secret id, with which separate HTTP requests select the session for their commands; omitted if
    /// empty.
    pub session: Box<str>,
    /// The node's id, which belongs to `session`; omitted if empty.
    pub node: Box<str>,
    /// The server's Unix time in milliseconds; omitted if 0.
    pub time_ms: i64,
}

/// Result of `subscribe`; also describes a server-side subscription.
#[derive(Clone, Debug, Default)]
pub struct SubscribeResult {
    /// Seconds until the subscription expires; `None` when it does not.
    pub ttl_s: Option<u32>,
    /// Whether the client may recover with its position.
    pub recoverable: bool,
    /// Whether the server checks the position.
    pub positioned: bool,
    /// Epoch of the stream; empty without a stream.
    pub epoch: Box<str>,
    /// Offset of the stream's top, or of the client's position if it recovered.
    pub offset: u64,
    /// The publications that the client missed.
    pub publications: Vec<Arc<Publication>>,
    /// For a subscription with deltas: the patch of each publication against the previous one. A publication without a
    /// patch is written whole.
    pub patches: Vec<Option<Arc<[u8]>>>,
    /// `publications` in the encoding of the message, if they are already encoded.
    pub encoded: Option<Arc<EncodedPublications>>,
    /// Whether the client has received all publications.
    pub recovered: bool,
    /// Whether recovery was attempted.
    pub was_recovering: bool,
    /// Application bytes.
    pub data: Option<Payload>,
    /// Whether the subscription receives deltas.
    pub delta: bool,
    /// The number that pushes carry instead of the channel's name; 0 for none.
    pub channel_number: u64,
}

impl SubscribeResult {
    /// The publications that the client missed, each with the form of its data.
    pub(crate) fn written_publications(&self) -> impl Iterator<Item = (&Publication, DataForm<'_>)> {
        self.publications.iter().enumerate().map(|(place, publication)| {
            let form = match self.patches.get(place) {
                _ if !self.delta => DataForm::Plain,
                Some(Some(patch)) => DataForm::Patch(patch),
                Some(None) | None => DataForm::Whole,
            };
            (&**publication, form)
        })
    }
}

/// The clients of a channel, from its owner.
#[derive(Clone, Debug, Default)]
pub struct PresenceResult {
    /// All clients; on the wire, the key is the session id.
    pub clients: Vec<Arc<ClientInfo>>,
}

/// Numbers of clients and users of a channel, from its owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PresenceStatsResult {
    /// Subscribed sessions.
    pub num_clients: u32,
    /// Distinct users.
    pub num_users: u32,
}

/// A page of a channel's history and the channel's position.
#[derive(Clone, Debug, Default)]
pub struct HistoryResult {
    /// In the requested order.
    pub publications: Vec<Arc<Publication>>,
    /// Epoch of the stream.
    pub epoch: Box<str>,
    /// Offset of the stream's top.
    pub offset: u64,
}

/// The backend's response to a call.
#[derive(Clone, Debug)]
pub struct RpcResult {
    /// Application bytes.
    pub data: Option<Payload>,
}

/// The new expiry of the connection.
#[derive(Clone, Debug)]
pub struct RefreshResult {
    /// The session's id.
    pub client: Arc<str>,
    /// The server's version.
    pub version: &'static str,
    /// Seconds until the client must refresh; `None` if it need not.
    pub ttl_s: Option<u32>,
}
