//! A shard's counters: plain fields that the server reads between turns.

use dunlin_protocol::{ErrorCode, Request};
use dunlin_rooms::MirrorCounters;

use crate::{names::NamespaceIndex, room::RoomRefusal, seats::FrameWritten};

/// Upper bounds in microseconds of the buckets of [`Histogram`]; the last bucket has none.
pub const LATENCY_BOUNDS_US: [u64; 16] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000,
];

/// A histogram of durations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Observations per bucket, not cumulated; one more than there are bounds.
    pub buckets: [u64; LATENCY_BOUNDS_US.len() + 1],
    /// Sum of all observations.
    pub sum_us: u64,
}

impl Histogram {
    /// Adds one observation.
    pub fn observe(&mut self, duration_us: u64) {
        let bucket = LATENCY_BOUNDS_US.partition_point(|&bound| bound < duration_us);
        self.buckets[bucket] += 1;
        self.sum_us += duration_us;
    }

    /// The number of observations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// Counts of one namespace. All except the gauges are monotonic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceCounters {
    /// Publications accepted by the owner.
    pub publications: u64,
    /// Frames that publications, joins and leaves were encoded into.
    pub encodes: u64,
    /// Frames encoded again with the tag `skipped` for sessions that had fallen behind.
    pub encodes_skipped: u64,
    /// Publications put into sessions' lanes.
    pub deliveries: u64,
    /// Joins and leaves put into sessions' lanes.
    pub join_leave_deliveries: u64,
    /// Publications replaced in a latest lane before they were written.
    pub skipped: u64,
    /// Publications withheld from subscribers by their filters.
    pub filtered: u64,
    /// Patches computed for publications.
    pub patches: u64,
    /// Publications that were answered but not published, by [`Suppression`].
    pub suppressed: [u64; Suppression::ALL.len()],
    /// Recoveries that succeeded.
    pub recovered: u64,
    /// Recoveries that could not be complete.
    pub unrecovered: u64,
    /// Recoveries answered with publications that were encoded for them.
    pub answers_encoded: u64,
    /// Recoveries answered with publications that had been encoded for an earlier recovery.
    pub answers_shared: u64,
    /// History replies truncated at the size limit.
    pub histories_cut: u64,
    /// Presence replies refused because they would exceed the size limit.
    pub presences_refused: u64,
    /// Keys whose newest publication was evicted before it expired.
    pub keys_evicted: u64,
    /// Channels whose newest publications of keys were restored from the log.
    pub keys_restored: u64,
    /// Channels whose newest publications of keys were received from all other nodes.
    pub keys_gathered: u64,
    /// Queries for such publications that a node has not answered, or not completely.
    pub keys_missed: u64,
    /// Publications evicted because their history, or all histories of the node, had too many bytes.
    pub history_evicted: u64,
    /// Publications refused because the byte limits left no space for them.
    pub history_refused: u64,
    /// Subscriptions now (gauge).
    pub subscriptions: u64,
    /// Time from the acceptance of a publication until the last socket of this shard has received it.
    pub publish_to_socket: Histogram,
    /// Counts of its rooms.
    pub rooms: NamespaceRoomCounters,
}

/// Why a publication is not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suppression {
    /// A publication with the same idempotency key was published before.
    Idempotency,
    /// The channel's version is at least as new.
    Version,
}

impl Suppression {
    /// Every variant, in index order.
    pub const ALL: [Self; 2] = [Self::Idempotency, Self::Version];

    /// The name used in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idempotency => "idempotency",
            Self::Version => "version",
        }
    }
}

/// Why a channel is not created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelRefusal {
    /// The node has the maximum number of channels, and each has subscribers.
    Node,
    /// The session has the maximum number of channels.
    Session,
    /// The user has the maximum number of channels.
    User,
    /// The address has the maximum number of channels.
    Address,
}

impl ChannelRefusal {
    /// Every variant, in index order.
    pub const ALL: [Self; 4] = [Self::Node, Self::Session, Self::User, Self::Address];

    /// The name used in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Session => "session",
            Self::User => "user",
            Self::Address => "address",
        }
    }
}

/// Counts of the rooms of one namespace. All are monotonic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceRoomCounters {
    /// Rooms opened, by the owner.
    pub opened: u64,
    /// Rooms that were not opened, by the owner, in the order of [`RoomRefusal::ALL`].
    pub refused: [u64; RoomRefusal::ALL.len()],
    /// Rooms closed because they were empty or by the server API, by the owner.
    pub closed: u64,
    /// Rooms that failed, by the owner.
    pub failed: u64,
    /// Joins accepted, by the owner.
    pub joins_accepted: u64,
    /// Joins that took over a player who was already in the room, by the owner.
    pub seats_resumed: u64,
    /// Joins that the game refused, by the owner.
    pub joins_refused: u64,
    /// Joins whose room ended before it answered, by the owner.
    pub joins_gone: u64,
    /// Events accepted, by the owner.
    pub events: u64,
    /// Room frames whose first bytes were written to a socket.
    pub frames: u64,
    /// Bytes of these frames.
    pub frame_bytes: u64,
    /// Room frames with a base: an earlier frame to the same player.
    pub frames_from_base: u64,
    /// Sum of the ticks between these frames and their bases: 1 each for players that keep up.
    pub base_age_ticks: u64,
    /// Ticks not sent to players because newer ones replaced them in the queue.
    pub skipped_ticks: u64,
    /// Ticks not sent to players because of the bandwidth limit.
    pub limited_ticks: u64,
    /// Frames sent without the far cells that were due, because of the bandwidth limit.
    pub far_postponed: u64,
    /// Requested frame bodies.
    pub bodies: u64,
    /// Assembled frame bodies.
    pub assemblies: u64,
    /// Assembled bodies with the full state of the view.
    pub assemblies_full: u64,
    /// Assembled bodies with a base before the last tick.
    pub assemblies_catch_up: u64,
    /// Bytes of the assembled bodies.
    pub assembled_bytes: u64,
    /// Ticks received.
    pub ticks: u64,
    /// Inputs passed on to rooms.
    pub inputs: u64,
    /// Messages of the backend, by the owner, in the order of [`MessageOutcome::ALL`].
    pub messages: [u64; MessageOutcome::ALL.len()],
}

/// The outcome of a backend's message to a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageOutcome {
    /// The game answered it.
    Answered,
    /// The game refused it.
    Refused,
    /// The game's answer is larger than the namespace allows.
    AnswerTooLong,
    /// The room ended before it answered.
    RoomEnded,
    /// The channel has no open room.
    NotOpen,
    /// The message is larger than the namespace allows.
    TooLong,
    /// The maximum number of messages waits for the room.
    TooMany,
}

impl MessageOutcome {
    /// Every variant, in the order of [`NamespaceRoomCounters::messages`].
    pub const ALL: [Self; 7] = [
        Self::Answered,
        Self::Refused,
        Self::AnswerTooLong,
        Self::RoomEnded,
        Self::NotOpen,
        Self::TooLong,
        Self::TooMany,
    ];

    /// The name used in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::AnswerTooLong => "answer_too_long",
            Self::RoomEnded => "room_ended",
            Self::NotOpen => "not_open",
            Self::TooLong => "too_long",
            Self::TooMany => "too_many",
        }
    }
}

/// Why an input is not forwarded to its room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputRefusal {
    /// The input cannot be decoded.
    Malformed,
    /// The input is larger than the namespace allows.
    TooLong,
    /// The input's number is not above the last accepted one.
    OldNumber,
    /// The player sends more inputs per second than the namespace allows.
    Rate,
    /// The room's inbox is full.
    Inbox,
    /// The session is not in the room.
    NotSeated,
}

impl InputRefusal {
    /// Every variant, in the order of [`Counters::inputs_refused`].
    pub const ALL: [Self; 6] =
        [Self::Malformed, Self::TooLong, Self::OldNumber, Self::Rate, Self::Inbox, Self::NotSeated];

    /// The name used in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::TooLong => "too_long",
            Self::OldNumber => "old_number",
            Self::Rate => "rate",
            Self::Inbox => "inbox",
            Self::NotSeated => "not_seated",
        }
    }

    /// The error with which a `publish` command is answered.
    pub(crate) const fn error_code(self) -> ErrorCode {
        match self {
            Self::Malformed | Self::TooLong | Self::OldNumber => ErrorCode::BadRequest,
            Self::Rate | Self::Inbox => ErrorCode::TooManyRequests,
            Self::NotSeated => ErrorCode::PermissionDenied,
        }
    }
}

/// Counts of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// By namespace: first the channels outside all namespaces, then in the order of the options.
    pub namespaces: Vec<NamespaceCounters>,
    /// Bytes of the publications in this shard's histories (gauge).
    pub history_bytes: u64,
    /// Channels in this shard's memory (gauge).
    pub channels_kept: u64,
    /// Channels without subscribers, evicted to make room for others.
    pub channels_evicted: u64,
    /// Channels that were not created, by [`ChannelRefusal`].
    pub channels_refused: [u64; ChannelRefusal::ALL.len()],
    /// Sessions opened.
    pub sessions_opened: u64,
    /// `connect` commands above the rate limit, answered with error 111.
    pub connects_refused: u64,
    /// Commands answered with error 111 because of the session's command rate limit.
    pub commands_refused: u64,
    /// Recoveries above the rate limit, answered with error 111.
    pub recoveries_refused: u64,
    /// Recoveries started by the server and answered as not recovered, because together they exceed the queue limit.
    pub recoveries_cut: u64,
    /// Commands by kind, in the order of [`CommandKind::ALL`].
    pub commands: [u64; CommandKind::ALL.len()],
    /// Frames that are not valid in the protocol.
    pub malformed_frames: u64,
    /// WebSocket violations.
    pub violations: u64,
    /// Error replies by code − 100.
    pub error_replies: [u64; 16],
    /// Closes by the server, by code − 3000 and − 3500, otherwise in the last place: see [`Counters::count_close`].
    pub closes: [u64; CLOSE_SLOTS],
    /// Sessions closed because too many bytes were queued.
    pub slow_bytes: u64,
    /// Sessions closed because too many frames were queued.
    pub slow_frames: u64,
    /// Sessions closed because the caller reported more bytes as written than were offered.
    pub writes_beyond_offer: u64,
    /// Bytes handed to the kernel.
    pub written_bytes: u64,
    /// Log records dropped by the rate limit.
    pub records_suppressed: u64,
    /// Messages dropped because their session, channel or room was gone.
    pub late_messages: u64,
    /// Sessions refused because their users had the maximum number of sessions.
    pub user_sessions_refused: u64,
    /// Subscriptions made by the API that their owners refused.
    pub server_subscriptions_refused: u64,
    /// Players' inputs that were not forwarded, by [`InputRefusal`].
    pub inputs_refused: [u64; InputRefusal::ALL.len()],
    /// Publications of rooms to other channels that were refused.
    pub room_publications_refused: u64,
}

/// The commands of the client protocol that are counted separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CommandKind {
    Connect,
    Subscribe,
    Unsubscribe,
    Publish,
    Presence,
    PresenceStats,
    History,
    Ping,
    Send,
    Rpc,
    Refresh,
    SubRefresh,
    /// The answer to a ping: a command without an id.
    Pong,
}

impl CommandKind {
    /// Every variant, in the order of [`Counters::commands`].
    pub const ALL: [Self; 13] = [
        Self::Connect,
        Self::Subscribe,
        Self::Unsubscribe,
        Self::Publish,
        Self::Presence,
        Self::PresenceStats,
        Self::History,
        Self::Ping,
        Self::Send,
        Self::Rpc,
        Self::Refresh,
        Self::SubRefresh,
        Self::Pong,
    ];

    /// The name used in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Subscribe => "subscribe",
            Self::Unsubscribe => "unsubscribe",
            Self::Publish => "publish",
            Self::Presence => "presence",
            Self::PresenceStats => "presence_stats",
            Self::History => "history",
            Self::Ping => "ping",
            Self::Send => "send",
            Self::Rpc => "rpc",
            Self::Refresh => "refresh",
            Self::SubRefresh => "sub_refresh",
            Self::Pong => "pong",
        }
    }

    pub(crate) const fn of(request: &Request<'_>) -> Self {
        match request {
            Request::Connect(_) => Self::Connect,
            Request::Subscribe(_) => Self::Subscribe,
            Request::Unsubscribe { .. } => Self::Unsubscribe,
            Request::Publish(_) => Self::Publish,
            Request::Presence { .. } => Self::Presence,
            Request::PresenceStats { .. } => Self::PresenceStats,
            Request::History(_) => Self::History,
            Request::Ping => Self::Ping,
            Request::Send { .. } => Self::Send,
            Request::Rpc(_) => Self::Rpc,
            Request::Refresh { .. } => Self::Refresh,
            Request::SubRefresh(_) => Self::SubRefresh,
        }
    }
}

/// Slots of [`Counters::closes`]: 3000–3019, 3500–3519, and one for all other codes.
pub const CLOSE_SLOTS: usize = 41;

impl Counters {
    /// What a message refers to. Counts the message as late if that is gone.
    pub(crate) fn found_or_late<T>(&mut self, found: Option<T>) -> Option<T> {
        self.late_messages += u64::from(found.is_none());
        found
    }

    /// All zero, for `namespaces` namespaces.
    pub fn new(namespaces: usize) -> Self {
        Self {
            namespaces: vec![NamespaceCounters::default(); namespaces],
            history_bytes: 0,
            channels_kept: 0,
            channels_evicted: 0,
            channels_refused: [0; ChannelRefusal::ALL.len()],
            sessions_opened: 0,
            connects_refused: 0,
            commands_refused: 0,
            recoveries_refused: 0,
            recoveries_cut: 0,
            commands: [0; CommandKind::ALL.len()],
            malformed_frames: 0,
            violations: 0,
            error_replies: [0; 16],
            closes: [0; CLOSE_SLOTS],
            slow_bytes: 0,
            slow_frames: 0,
            writes_beyond_offer: 0,
            written_bytes: 0,
            records_suppressed: 0,
            late_messages: 0,
            user_sessions_refused: 0,
            server_subscriptions_refused: 0,
            inputs_refused: [0; InputRefusal::ALL.len()],
            room_publications_refused: 0,
        }
    }

    /// Counts a close by the server with `code`.
    pub fn count_close(&mut self, code: u16) {
        let slot = match code {
            3000..=3019 => usize::from(code - 3000),
            3500..=3519 => usize::from(code - 3500) + 20,
            _ => CLOSE_SLOTS - 1,
        };
        self.closes[slot] += 1;
    }

    /// Counts a room frame whose first bytes were written.
    pub(crate) fn count_room_frame(&mut self, written: FrameWritten) {
        let rooms = &mut self.namespaces[usize::from(written.namespace.0)].rooms;
        rooms.frames += 1;
        rooms.frame_bytes += written.frame_bytes as u64;
        rooms.far_postponed += u64::from(written.is_far_postponed);
        if let Some(age_ticks) = written.base_age_ticks {
            rooms.frames_from_base += 1;
            rooms.base_age_ticks += u64::from(age_ticks);
            rooms.skipped_ticks += u64::from(age_ticks.saturating_sub(1));
        }
    }

    /// Adds the counts of a room's mirror.
    pub(crate) fn count_bodies(&mut self, namespace: NamespaceIndex, counted: MirrorCounters) {
        let rooms = &mut self.namespaces[usize::from(namespace.0)].rooms;
        rooms.bodies += counted.bodies;
        rooms.assemblies += counted.assemblies;
        rooms.assemblies_full += counted.assemblies_full;
        rooms.assemblies_catch_up += counted.assemblies_catch_up;
        rooms.assembled_bytes += counted.assembled_bytes;
    }

    /// The close code of a slot of [`Counters::closes`]; `None` for the last, which counts all other codes.
    pub const fn close_code(slot: usize) -> Option<u16> {
        match slot {
            0..20 => Some(3000 + slot as u16),
            20..40 => Some(3480 + slot as u16),
            _ => None,
        }
    }
}
