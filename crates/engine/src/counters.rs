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

    /// How many observations there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// Counts of one namespace. Everything but the gauges only grows.
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
    /// Publications that subscribers' filters kept from them.
    pub filtered: u64,
    /// Patches made of publications.
    pub patches: u64,
    /// Publications that were answered and not published, by [`Suppression`].
    pub suppressed: [u64; Suppression::ALL.len()],
    /// Recoveries that succeeded.
    pub recovered: u64,
    /// Recoveries that could not be complete.
    pub unrecovered: u64,
    /// Recoveries answered with publications that were encoded for them.
    pub answers_encoded: u64,
    /// Recoveries answered with publications that had been encoded for another.
    pub answers_shared: u64,
    /// History replies that were cut because of their length.
    pub histories_cut: u64,
    /// Presence replies that would have been too long.
    pub presences_refused: u64,
    /// Keys whose newest publication was evicted before its time.
    pub keys_evicted: u64,
    /// Publications that were forgotten, since their history or those of the node had too many bytes.
    pub history_evicted: u64,
    /// Publications that were refused, since there was no room for their bytes.
    pub history_refused: u64,
    /// Subscriptions now (gauge).
    pub subscriptions: u64,
    /// Publication accepted → handed to the last socket of this shard.
    pub publish_to_socket: Histogram,
    /// Its rooms.
    pub rooms: NamespaceRoomCounters,
}

/// Why a publication is not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suppression {
    /// One with its idempotency key was.
    Idempotency,
    /// The channel has a version that is as new.
    Version,
}

impl Suppression {
    /// Every one, in the order of their places.
    pub const ALL: [Self; 2] = [Self::Idempotency, Self::Version];

    /// The name as metrics write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idempotency => "idempotency",
            Self::Version => "version",
        }
    }
}

/// Why a channel is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelRefusal {
    /// The node has as many as it may, and somebody listens to each.
    Node,
    /// As many count for the session as may.
    Session,
    /// As many count for the user as may.
    User,
    /// As many count for the address as may.
    Address,
}

impl ChannelRefusal {
    /// Every one, in the order of their places.
    pub const ALL: [Self; 4] = [Self::Node, Self::Session, Self::User, Self::Address];

    /// The name as metrics write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Session => "session",
            Self::User => "user",
            Self::Address => "address",
        }
    }
}

/// Counts of the rooms of one namespace. All only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceRoomCounters {
    /// Rooms opened, by the owner.
    pub opened: u64,
    /// Rooms that were not opened, by the owner, in the order of [`RoomRefusal::ALL`].
    pub refused: [u64; RoomRefusal::ALL.len()],
    /// Rooms closed, because nobody was there or by the server API, by the owner.
    pub closed: u64,
    /// Rooms that failed, by the owner.
    pub failed: u64,
    /// Joins accepted, by the owner.
    pub joins_accepted: u64,
    /// Joins that took over a player who was in the room before, by the owner.
    pub seats_resumed: u64,
    /// Joins that the game refused, by the owner.
    pub joins_refused: u64,
    /// Joins whose room went meanwhile, by the owner.
    pub joins_gone: u64,
    /// Events accepted, by the owner.
    pub events: u64,
    /// Frames with what a player sees that were begun to be written.
    pub frames: u64,
    /// Their bytes.
    pub frame_bytes: u64,
    /// Of these frames, those that followed another one to the same player.
    pub frames_from_base: u64,
    /// Ticks between those and the ones before, summed up: 1 each for players who keep up.
    pub base_age_ticks: u64,
    /// Ticks that players were not sent, since newer ones replaced them.
    pub skipped_ticks: u64,
    /// Ticks that players were not sent, since they had been sent as many bytes as they may be.
    pub limited_ticks: u64,
    /// Frames without the far cells that were due, for the same reason.
    pub far_postponed: u64,
    /// Bodies of frames that were asked for.
    pub bodies: u64,
    /// Bodies that were put together.
    pub assemblies: u64,
    /// Of these, those with everything that is seen.
    pub assemblies_full: u64,
    /// Of these, those from a base before the last tick.
    pub assemblies_catch_up: u64,
    /// Bytes of the bodies that were put together.
    pub assembled_bytes: u64,
    /// Ticks taken in.
    pub ticks: u64,
    /// Inputs passed on to rooms.
    pub inputs: u64,
    /// Messages of the backend, by the owner, in the order of [`MessageOutcome::ALL`].
    pub messages: [u64; MessageOutcome::ALL.len()],
}

/// What has become of a message of the backend to a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageOutcome {
    /// The game has answered it.
    Answered,
    /// The game has refused it.
    Refused,
    /// The game's answer has more bytes than the namespace allows.
    AnswerTooLong,
    /// The room has ended before it answered.
    RoomEnded,
    /// There was no room.
    NotOpen,
    /// It has more bytes than the namespace allows.
    TooLong,
    /// As many waited for the room as the namespace allows.
    TooMany,
}

impl MessageOutcome {
    /// Every one, in the order of [`NamespaceRoomCounters::messages`].
    pub const ALL: [Self; 7] = [
        Self::Answered,
        Self::Refused,
        Self::AnswerTooLong,
        Self::RoomEnded,
        Self::NotOpen,
        Self::TooLong,
        Self::TooMany,
    ];

    /// The name as metrics write it.
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

/// Why an input is not passed on to its room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputRefusal {
    /// It cannot be decoded.
    Malformed,
    /// It has more bytes than the namespace allows.
    TooLong,
    /// Its number is not above the last one.
    OldNumber,
    /// The player sends more inputs per second than the namespace allows.
    Rate,
    /// The room's inbox is full.
    Inbox,
    /// The session is not in the room.
    NotSeated,
}

impl InputRefusal {
    /// Every one, in the order of [`Counters::inputs_refused`].
    pub const ALL: [Self; 6] =
        [Self::Malformed, Self::TooLong, Self::OldNumber, Self::Rate, Self::Inbox, Self::NotSeated];

    /// The name as metrics write it.
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
    /// By namespace: first the channels without one, then in the order of the options.
    pub namespaces: Vec<NamespaceCounters>,
    /// Bytes of the publications that this shard keeps now (gauge).
    pub history_bytes: u64,
    /// Channels that this shard remembers now (gauge).
    pub channels_kept: u64,
    /// Channels that nobody listened to, forgotten to make room for others.
    pub channels_evicted: u64,
    /// Channels that were not made, by [`ChannelRefusal`].
    pub channels_refused: [u64; ChannelRefusal::ALL.len()],
    /// Sessions opened.
    pub sessions_opened: u64,
    /// `connect` commands past the rate, answered with error 111.
    pub connects_refused: u64,
    /// Commands answered with error 111, because their session had sent too many in a second.
    pub commands_refused: u64,
    /// Recoveries past the rate, answered with error 111.
    pub recoveries_refused: u64,
    /// Recoveries that the server began and answered as not recovered, since together they are more than may wait.
    pub recoveries_cut: u64,
    /// Commands by kind, in the order of [`CommandKind::ALL`].
    pub commands: [u64; CommandKind::ALL.len()],
    /// Frames that were not of the protocol.
    pub malformed_frames: u64,
    /// WebSocket violations.
    pub violations: u64,
    /// Error replies by code − 100.
    pub error_replies: [u64; 16],
    /// Closes by the server, by code − 3000 and − 3500, otherwise in the last place: see [`Counters::count_close`].
    pub closes: [u64; CLOSE_SLOTS],
    /// Sessions closed because the bytes waiting passed the bound.
    pub slow_bytes: u64,
    /// Sessions closed because the frames waiting passed the bound.
    pub slow_frames: u64,
    /// Sessions ended because more was reported as written than had been offered.
    pub writes_beyond_offer: u64,
    /// Bytes handed to the kernel.
    pub written_bytes: u64,
    /// Records for the log that were left out, because there were too many in a second.
    pub records_suppressed: u64,
    /// Messages dropped because the session, channel or room they were for was gone.
    pub late_messages: u64,
    /// Sessions that were not let in, since their users had as many as they may.
    pub user_sessions_refused: u64,
    /// Subscriptions made by the API that their owners refused.
    pub server_subscriptions_refused: u64,
    /// Inputs of players that were not passed on, by [`InputRefusal`].
    pub inputs_refused: [u64; InputRefusal::ALL.len()],
    /// Publications of rooms in other channels that could not be taken.
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
    /// Every one, in the order of [`Counters::commands`].
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

    /// The name as metrics write it.
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

/// Places of [`Counters::closes`]: 3000–3019, 3500–3519, and one for all other codes.
pub const CLOSE_SLOTS: usize = 41;

impl Counters {
    /// All zero, with room for `namespaces` namespaces.
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

    /// Counts a frame of a room that was begun to be written.
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

    /// Adds what a room's mirror has counted.
    pub(crate) fn count_bodies(&mut self, namespace: NamespaceIndex, counted: MirrorCounters) {
        let rooms = &mut self.namespaces[usize::from(namespace.0)].rooms;
        rooms.bodies += counted.bodies;
        rooms.assemblies += counted.assemblies;
        rooms.assemblies_full += counted.assemblies_full;
        rooms.assemblies_catch_up += counted.assemblies_catch_up;
        rooms.assembled_bytes += counted.assembled_bytes;
    }

    /// The close code of a place of [`Counters::closes`]; `None` for the last, which holds all others.
    pub const fn close_code(slot: usize) -> Option<u16> {
        match slot {
            0..20 => Some(3000 + slot as u16),
            20..40 => Some(3480 + slot as u16),
            _ => None,
        }
    }
}
