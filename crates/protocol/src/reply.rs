//! Replies to commands.

use std::sync::Arc;

use crate::{ClientInfo, DataForm, EncodedPublications, ErrorCode, Payload, Publication};

/// The answer to one command. The encoders write it under the command's id.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The command failed; the session goes on.
    Error(ErrorCode),
    /// The application does not want it: an error in its own words.
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
    /// The session's secret id, by which commands find it that come by requests of their own; empty leaves it out.
    pub session: Box<str>,
    /// The node's id, to go with `session`; empty leaves it out.
    pub node: Box<str>,
    /// The server's Unix time in milliseconds; 0 leaves it out.
    pub time_ms: i64,
}

/// Result of `subscribe`, and what a server-side subscription is.
#[derive(Clone, Debug, Default)]
pub struct SubscribeResult {
    /// Seconds until the subscription expires; `None` when it does not.
    pub ttl_s: Option<u32>,
    /// The client may recover with the position it holds.
    pub recoverable: bool,
    /// The server watches over the position.
    pub positioned: bool,
    /// Epoch of the stream; empty when there is none.
    pub epoch: Box<str>,
    /// Offset of the stream's top, or of the client's position when it recovered.
    pub offset: u64,
    /// What the client had missed.
    pub publications: Vec<Arc<Publication>>,
    /// Where the subscription gets differences: the patch of each publication against the one before it. One without a
    /// patch is written whole.
    pub patches: Vec<Option<Arc<[u8]>>>,
    /// `publications` as they are written, if that was done before, in the encoding of the message.
    pub encoded: Option<Arc<EncodedPublications>>,
    /// Whether nothing is missing.
    pub recovered: bool,
    /// Whether recovery was attempted.
    pub was_recovering: bool,
    /// Application bytes.
    pub data: Option<Payload>,
    /// Whether the subscription gets differences between publications.
    pub delta: bool,
    /// The number that pushes carry instead of the channel's name; 0 for none.
    pub channel_number: u64,
}

impl SubscribeResult {
    /// What the client had missed, and how each publication's data is written.
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

/// The clients of a channel, as the owner knows them.
#[derive(Clone, Debug, Default)]
pub struct PresenceResult {
    /// Everyone, keyed on the wire by session id.
    pub clients: Vec<Arc<ClientInfo>>,
}

/// Numbers of clients and users of a channel, as the owner knows them.
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

/// The connection's new expiration.
#[derive(Clone, Debug)]
pub struct RefreshResult {
    /// The session's id.
    pub client: Arc<str>,
    /// The server's version.
    pub version: &'static str,
    /// Seconds until the client must refresh; `None` if it need not.
    pub ttl_s: Option<u32>,
}
