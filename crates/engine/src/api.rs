//! What the server API asks of a shard. Requests about a channel go to its owner ([`crate::owner_of`]); requests about
//! sessions and surveys go to every shard, and the caller joins the answers.

use std::sync::Arc;

use dunlin_protocol::{ClientInfo, Disconnect, ErrorCode, Payload, Publication, UnsubscribeCode};

use crate::{backend::PublishHow, event::ServerSubscription};

/// One request.
#[derive(Clone, Debug)]
pub enum ApiRequest {
    /// Publish into a channel.
    Publish {
        /// The channel.
        channel: Box<str>,
        /// The application's bytes.
        data: Payload,
        /// How.
        how: PublishHow,
    },
    /// Who is in a channel.
    Presence {
        /// The channel.
        channel: Box<str>,
    },
    /// How many are in a channel.
    PresenceStats {
        /// The channel.
        channel: Box<str>,
    },
    /// A channel's history.
    History {
        /// The channel.
        channel: Box<str>,
        /// What part of it.
        query: HistoryQuery,
    },
    /// Forget a channel's publications.
    HistoryRemove {
        /// The channel.
        channel: Box<str>,
    },
    /// Names of the channels that have subscribers, of those that this shard owns.
    Channels,
    /// Close sessions of this shard.
    Disconnect {
        /// Whose; empty means the anonymous user.
        user: Box<str>,
        /// Only which.
        only: SessionFilter,
        /// All but these.
        whitelist: Vec<Box<str>>,
        /// With which code.
        disconnect: Disconnect,
    },
    /// Subscribe sessions of this shard to a channel, each on its own behalf as a server-side subscription.
    Subscribe {
        /// Whose.
        user: Box<str>,
        /// Only which.
        only: SessionFilter,
        /// To what.
        subscription: Box<ServerSubscription>,
    },
    /// Set the expiry of sessions of this shard.
    Refresh {
        /// Whose.
        user: Box<str>,
        /// Only which.
        only: SessionFilter,
        /// They are over: close them with 3005.
        expired: bool,
        /// Unix time of the expiry in seconds; `None` for never.
        expires_at_s: Option<u64>,
        /// New connection info; `None` leaves it.
        info: Option<Payload>,
    },
    /// End subscriptions of sessions of this shard.
    Unsubscribe {
        /// The channel; empty for all.
        channel: Box<str>,
        /// Whose.
        user: Box<str>,
        /// Only which.
        only: SessionFilter,
        /// With which code.
        code: UnsubscribeCode,
    },
    /// Open a channel's room, if it is not open. Error 108 for a channel that has none.
    OpenRoom {
        /// The channel.
        channel: Box<str>,
    },
    /// Close a channel's room; its players' subscriptions end with 2010. Answered with [`ApiAnswer::Done`]: how many
    /// players it had, 0 if it was not open. Error 108 for a channel that has none.
    CloseRoom {
        /// The channel.
        channel: Box<str>,
    },
    /// How many of what this shard has.
    Survey,
}

/// Which of a user's sessions; all that is given has to fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// The session's id, which everybody in a channel may see.
    pub client: Option<Box<str>>,
    /// The session's secret id, which it was told alone.
    pub session: Option<Box<str>>,
}

/// What part of a history is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryQuery {
    /// 0 for the position alone, below 0 for all, otherwise the most publications to return.
    pub limit: i32,
    /// Only what comes after (or, reversed, before) this offset and epoch.
    pub since: Option<(u64, Box<str>)>,
    /// Newest first.
    pub reverse: bool,
    /// About as many bytes of publications as may be returned: it ends before one that would be too much, unless that is the
    /// first. `None` for any number.
    pub bytes_max: Option<usize>,
}

/// The answer to a request.
pub type Answer = Result<ApiAnswer, ErrorCode>;

/// What was asked for.
#[derive(Clone, Debug)]
pub enum ApiAnswer {
    /// Published.
    Published {
        /// Its offset; 0 without a stream.
        offset: u64,
        /// The stream's epoch; empty without one.
        epoch: Box<str>,
    },
    /// Everyone in the channel.
    Presence(Vec<Arc<ClientInfo>>),
    /// How many are in the channel.
    PresenceStats {
        /// Sessions.
        num_clients: u32,
        /// Distinct users.
        num_users: u32,
    },
    /// The part of the history.
    History {
        /// In the order asked for.
        publications: Vec<Arc<Publication>>,
        /// The stream's epoch.
        epoch: Box<str>,
        /// The stream's top.
        offset: u64,
    },
    /// Names and numbers of subscribers.
    Channels(Vec<(Arc<str>, u32)>),
    /// Done; to how many sessions.
    Done {
        /// Sessions that were concerned.
        sessions: u32,
    },
    /// What the shard has.
    Survey(Box<Survey>),
}

/// How many of what a shard has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Sessions, authenticated.
    pub sessions: u32,
    /// Subscriptions of its sessions.
    pub subscriptions: u32,
    /// Channels that it owns and that have subscribers.
    pub channels: u32,
    /// A hash of each distinct user id, the same on all shards of a node, so that the caller can count users once.
    pub users: Vec<u64>,
    /// Places of its sessions in rooms, those included that wait for an answer.
    pub seats: u32,
    /// Rooms that its sessions are in.
    pub rooms: u32,
    /// Bytes waiting in its sessions' lanes.
    pub queued_bytes: u64,
    /// Frames waiting in its sessions' lanes.
    pub queued_frames: u64,
    /// How long the longest-waiting frame has waited.
    pub queue_age_ms_max: u64,
    /// Sessions that have waited for their socket for longer than 1, 10, 100, 1,000 and 10,000 ms.
    pub behind_sessions: [u32; 5],
}
