//! What waits for the sockets of a shard's sessions, and since when. The caller adds what it knows about the sockets, and
//! judges why a client is behind.

use core::net::IpAddr;
use std::sync::Arc;

use dunlin_protocol::ClientInfo;

use crate::{SessionKey, Wire, options::Lane};

/// Maximum number of queued frames that one request looks at to divide queues by channel: a few milliseconds.
pub const FRAMES_EXAMINED_MAX: usize = 65_536;

/// Maximum number of channels in the facts about one session: those with the most queued bytes.
pub const CHANNELS_MAX: usize = 8;

/// Which sessions are requested. All given fields must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionsQuery {
    /// The public id of the session.
    pub client: Option<Box<str>>,
    /// The sessions' user; empty for the anonymous user.
    pub user: Option<Box<str>>,
    /// The address of their clients.
    pub address: Option<IpAddr>,
    /// A channel that they are subscribed to.
    pub channel: Option<Box<str>>,
    /// Only sessions after this place.
    pub after: Option<SessionPlace>,
    /// Maximum number of sessions.
    pub sessions_max: usize,
}

/// The place of a session in the list. Those that have been behind for longest come first, and those with empty queues
/// last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionPlace {
    /// Since when the oldest queued frame has waited, on the clock of [`crate::Now::mono_us`]; `u64::MAX` for none.
    pub behind_since_us: u64,
    /// The public id of the session.
    pub client: Arc<str>,
}

/// A part of the requested sessions.
#[derive(Clone, Debug, Default)]
pub struct SessionsPage {
    /// In the order of their places.
    pub sessions: Vec<SessionFacts>,
    /// Whether more sessions follow.
    pub has_more: bool,
    /// The limits on their queues.
    pub limits: QueueLimits,
}

/// The limits on the queue of one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLimits {
    /// Maximum bytes in both lanes.
    pub bytes_max: usize,
    /// Maximum frames in both lanes.
    pub frames_max: usize,
}

/// What the engine knows about one session. It never contains the secret id.
#[derive(Clone, Debug)]
pub struct SessionFacts {
    /// For the caller, which has the socket.
    pub session: SessionKey,
    /// The public id and the user.
    pub info: Arc<ClientInfo>,
    /// The transport and the encoding.
    pub wire: Wire,
    /// The client's address, if known.
    pub address: Option<IpAddr>,
    /// Subscriptions, including those to rooms.
    pub subscriptions: u32,
    /// Whether `connect` is not answered yet: other frames are held back until then.
    pub is_connecting: bool,
    /// What its next command waits for.
    pub commands_wait_for: Option<CommandsWaitFor>,
    /// What is queued.
    pub queue: QueueFacts,
    /// Since when the oldest queued frame has waited; `u64::MAX` for none.
    pub behind_since_us: u64,
    /// The queue by lane and channel, the most bytes first. At most [`CHANNELS_MAX`].
    pub channels: Vec<ChannelQueue>,
    /// Whether `channels` is incomplete, because there are more or because too many frames are queued.
    pub are_channels_cut: bool,
    /// Pings and pongs.
    pub pings: PingFacts,
    /// What the client or the server API has stated.
    pub paces: PaceFacts,
}

/// The paces of one session.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PaceFacts {
    /// Subscriptions with a pace.
    pub subscriptions: u32,
    /// The fewest updates per second of these.
    pub updates_per_second_min: Option<f64>,
    /// The bytes per second of the session.
    pub bytes_per_second: Option<u32>,
    /// Whether the latest lane and the snapshots wait for that pace.
    pub is_held: bool,
}

/// What is queued for one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueFacts {
    /// The reliable lane: replies, pushes, and publications in order.
    pub reliable: LaneFacts,
    /// The latest lane: the newest publication of each key.
    pub latest: LaneFacts,
    /// Publications that newer ones have replaced in the latest lane, of those keys that wait now.
    pub replaced: u64,
    /// The rest of a room's snapshot that is partly written.
    pub room_bytes: usize,
    /// Rooms with a newer tick than the one that was written.
    pub rooms_due: u32,
    /// The age of the oldest frame.
    pub age_us: u64,
    /// How long a room has skipped ticks for the session, because it was sent as much as `room.player_bandwidth_limit` allows. These
    /// ticks are not queued.
    pub limited_us: u64,
    /// Frames that were not divided by channel, because the request has looked at [`FRAMES_EXAMINED_MAX`] others.
    pub unexamined_frames: usize,
}

/// Frames of one lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneFacts {
    /// Their number.
    pub frames: usize,
    /// Their bytes.
    pub bytes: usize,
}

/// What is queued for one session in one lane and from one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelQueue {
    /// The channel; `None` for replies and pushes that are not publications.
    pub channel: Option<Arc<str>>,
    /// The lane.
    pub lane: Lane,
    /// Its frames.
    pub queued: LaneFacts,
    /// Older publications that these have replaced.
    pub replaced: u64,
    /// The age of the oldest.
    pub oldest_age_us: u64,
    /// The age of the newest.
    pub newest_age_us: u64,
}

/// What the next command of a session waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandsWaitFor {
    /// The verification of a token.
    Token,
    /// A response of the backend.
    Backend,
    /// The owners of channels, or the home of the user.
    Channel,
    /// The socket, which must take earlier replies first.
    Socket,
}

impl CommandsWaitFor {
    /// The name in the server API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Backend => "backend",
            Self::Channel => "owner",
            Self::Socket => "socket",
        }
    }
}

/// Pings and pongs of one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PingFacts {
    /// The time since the last pong, unless a ping is not answered.
    pub pong_age_us: Option<u64>,
    /// The time from a ping to the last pong, rounded down by at most an eighth.
    pub round_trip_us: Option<u64>,
    /// The time since a ping that is not answered yet.
    pub unanswered_us: Option<u64>,
}
