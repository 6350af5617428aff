//! The commands of clients. They borrow from the frame that contains them.
//!
//! A payload (`data`) is `None` when it is absent. In JSON, `null` is a payload like any other; in Protobuf, empty
//! bytes are absent.

use std::borrow::Cow;

/// One command of a frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Command<'a> {
    /// Chosen by the client; above 0 for commands with a reply.
    pub id: u32,
    /// The first non-null request, by field number; `None` for an empty command, which is a pong when `id` is 0.
    pub request: Option<Request<'a>>,
}

/// The request of a [`Command`].
#[derive(Clone, Debug, PartialEq)]
pub enum Request<'a> {
    /// Authenticate; the first command of every session.
    Connect(Box<ConnectRequest<'a>>),
    /// Subscribe to a channel.
    Subscribe(Box<SubscribeRequest<'a>>),
    /// End a subscription.
    Unsubscribe {
        /// Name as the client sent it; not checked yet.
        channel: Cow<'a, str>,
    },
    /// Publish into a channel.
    Publish(PublishRequest<'a>),
    /// List the clients of a channel.
    Presence {
        /// Name as the client sent it; not checked yet.
        channel: Cow<'a, str>,
    },
    /// Count the clients and users of a channel.
    PresenceStats {
        /// Name as the client sent it; not checked yet.
        channel: Cow<'a, str>,
    },
    /// Read a channel's history.
    History(HistoryRequest<'a>),
    /// Always refused with error 108; no SDK uses it.
    Ping,
    /// A message without a reply.
    Send {
        /// The application's bytes.
        data: Option<&'a [u8]>,
    },
    /// A call that the backend handles.
    Rpc(RpcRequest<'a>),
    /// A new connection token.
    Refresh {
        /// A connection JWT, not verified yet.
        token: Cow<'a, str>,
    },
    /// A new subscription token.
    SubRefresh(SubRefreshRequest<'a>),
}

/// Fields of `connect`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConnectRequest<'a> {
    /// A JWT; empty for none.
    pub token: Cow<'a, str>,
    /// Application bytes for a connect hook.
    pub data: Option<&'a [u8]>,
    /// Positions of server-side subscriptions to recover, by channel: in the order of the channels, each once.
    pub subs: Vec<(Cow<'a, str>, SubscribeRequest<'a>)>,
    /// The SDK's name.
    pub name: Cow<'a, str>,
    /// The application's version.
    pub version: Cow<'a, str>,
}

/// Sorts the entries of a map by channel, and keeps only the last entry of each channel.
pub(crate) fn each_channel_once<T>(entries: &mut Vec<(Cow<'_, str>, T)>) {
    entries.reverse();
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    entries.dedup_by(|(one, _), (other, _)| one == other);
}

/// Bits of `SubscribeRequest.flag`; unknown ones are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscribeFlags(pub i64);

impl SubscribeFlags {
    /// The client can read numeric channel ids.
    pub const fn wants_compaction(self) -> bool {
        self.0 & 1 != 0
    }

    /// The client wants error 112 instead of `recovered: false`.
    pub const fn rejects_unrecoverable(self) -> bool {
        self.0 & 2 != 0
    }
}

/// Fields of `subscribe`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SubscribeRequest<'a> {
    /// Name as the client sent it; not checked yet.
    pub channel: Cow<'a, str>,
    /// A subscription JWT; empty for none.
    pub token: Cow<'a, str>,
    /// Whether to send the publications after `offset` in `epoch`.
    pub recover: bool,
    /// The last epoch the client has seen; empty for any.
    pub epoch: Cow<'a, str>,
    /// The last offset the client has seen.
    pub offset: u64,
    /// Application bytes for a subscribe hook or a room.
    pub data: Option<&'a [u8]>,
    /// Requests a positioned subscription.
    pub positioned: bool,
    /// Requests a recoverable subscription.
    pub recoverable: bool,
    /// Requests join and leave pushes.
    pub join_leave: bool,
    /// Requested delta type, such as `fossil`; empty for none.
    pub delta: Cow<'a, str>,
    /// An encoded tags filter (field `tf`): see [`crate::TagsFilter::parse`].
    pub tags_filter: Option<&'a [u8]>,
    /// Feature bits.
    pub flag: SubscribeFlags,
    /// Subscription type; 0 is a stream.
    pub kind: i32,
}

/// Fields of `publish`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PublishRequest<'a> {
    /// Name as the client sent it; not checked yet.
    pub channel: Cow<'a, str>,
    /// The application's bytes.
    pub data: Option<&'a [u8]>,
    /// 0 for a stream.
    pub kind: i32,
}

/// A position in a channel's stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamPosition<'a> {
    /// Offset of the last publication seen.
    pub offset: u64,
    /// Epoch of the stream; empty for any.
    pub epoch: Cow<'a, str>,
}

/// Fields of `history`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistoryRequest<'a> {
    /// Name as the client sent it; not checked yet.
    pub channel: Cow<'a, str>,
    /// Maximum number of publications. 0: only the position; negative: all.
    pub limit: i32,
    /// Only publications after this position, or before it if `reverse` is set.
    pub since: Option<StreamPosition<'a>>,
    /// Send the newest publication first.
    pub reverse: bool,
}

/// Fields of `rpc`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RpcRequest<'a> {
    /// The application's bytes.
    pub data: Option<&'a [u8]>,
    /// The method's name.
    pub method: Cow<'a, str>,
}

/// Fields of `sub_refresh`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SubRefreshRequest<'a> {
    /// Name as the client sent it; not checked yet.
    pub channel: Cow<'a, str>,
    /// A subscription JWT, not verified yet.
    pub token: Cow<'a, str>,
    /// 0 to refresh; other kinds belong to shared polls.
    pub kind: i32,
}
