//! A shard's counters: plain fields that the server reads between turns.

use dunlin_protocol::{ErrorCode, Request};
use dunlin_rooms::MirrorCounters;

use crate::{names::NamespaceIndex, refused::Refused, room::RoomRefusal, session_seats::FrameWritten};

/// Upper bounds in microseconds of the buckets of [`Histogram`]; the last bucket has none.
pub const LATENCY_BOUNDS_US: [u64; 16] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000,
];

/// A histogram of durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// A counter that is a metric by itself: the server adds up its values of all shards.
#[derive(Debug)]
pub struct CounterMetric<T: 'static> {
    /// The name of the field.
    pub field: &'static str,
    /// The name of the metric.
    pub name: &'static str,
    /// The description, in one sentence.
    pub help: &'static str,
    /// Reads the counter.
    pub value: fn(&T) -> u64,
}

/// The value with which counts begin.
trait Zero {
    const ZERO: Self;
}

impl Zero for u64 {
    const ZERO: Self = 0;
}

impl<const N: usize> Zero for [u64; N] {
    const ZERO: Self = [0; N];
}

impl<T> Zero for Vec<T> {
    const ZERO: Self = Self::new();
}

impl Zero for Histogram {
    const ZERO: Self = Self { buckets: Zero::ZERO, sum_us: 0 };
}

/// Declares a struct of counts. Each field of `metrics` is declared with the name and the description of its metric, and nowhere else. The
/// `others` are parts of metrics with labels, or no metrics.
macro_rules! counts {
    (
        $(#[$meta:meta])*
        pub struct $counts:ident {
            metrics { $($metric:ident = $name:literal $help:literal;)* }
            others { $($(#[$doc:meta])* $field:ident: $type:ty,)* }
        }
    ) => {
        $(#[$meta])*
        pub struct $counts {
            $(
                #[doc = $help]
                #[allow(clippy::doc_markdown, reason = "the same words stand in the exposition")]
                pub $metric: u64,
            )*
            $($(#[$doc])* pub $field: $type,)*
        }

        impl $counts {
            /// The counters that are metrics by themselves.
            pub const METRICS: [CounterMetric<Self>; [$($name),*].len()] = [$(
                CounterMetric {
                    field: stringify!($metric),
                    name: $name,
                    help: $help,
                    value: |counts| counts.$metric,
                },
            )*];
        }

        impl Zero for $counts {
            const ZERO: Self = Self { $($metric: 0,)* $($field: Zero::ZERO,)* };
        }
    };
}

counts! {
    /// Counts of one namespace. All except the gauges are monotonic.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct NamespaceCounters {
        metrics {
            publications = "dunlin_publications_total" "Publications accepted by the owners of their channels.";
            encodes = "dunlin_encodes_total" "Frames encoded for publications, joins and leaves, one per frame class in use.";
            encodes_skipped = "dunlin_encodes_skipped_tag_total" "Frames encoded again with the tag skipped, for slow sessions on the latest lane.";
            deliveries = "dunlin_deliveries_total" "Publications queued for sessions.";
            join_leave_deliveries = "dunlin_join_leave_deliveries_total" "Joins and leaves queued for sessions.";
            skipped = "dunlin_skipped_total" "Publications replaced by a newer one in the latest lane before they were written.";
            pace_skipped = "dunlin_pace_skipped_total" "Publications that were not queued for a subscription with a pace, because a newer one of their key had come by its turn.";
            filtered = "dunlin_tags_filtered_total" "Deliveries suppressed by tags filters of subscriptions.";
            patches = "dunlin_patches_total" "Publications encoded as a delta.";
            keys_evicted = "dunlin_cached_keys_evicted_total" "Cached keys (cache_keys) that were evicted because of a limit.";
            keys_restored = "dunlin_cached_keys_restored_total" "Channels whose cached keys (cache_keys) were read from the log for their first subscription.";
            histories_cut = "dunlin_history_replies_cut_total" "History replies to clients that were cut because of client.history_reply_size_limit.";
            presences_refused = "dunlin_presence_replies_refused_total" "Presence requests of clients that were refused with error 106 because of client.presence_reply_size_limit.";
            history_evicted = "dunlin_history_evicted_total" "Publications removed from histories because of a byte limit.";
            history_refused = "dunlin_history_refused_total" "Publications refused with error 111 because of a history byte limit.";
            recovered_publications = "dunlin_recovered_publications_total" "Publications that the owners of channels returned for recoveries, including those of dunlin_recoveries_cut_total.";
            frames_unfollowed = "dunlin_frames_unfollowed_total" "Frames of followed publications that are not in dunlin_publish_to_last_socket_seconds, because 16 frames of the shard were waited for.";
        }
        others {
            /// Publications that were answered but not published, by [`Suppression`].
            suppressed: [u64; Suppression::ALL.len()],
            /// Recoveries that succeeded.
            recovered: u64,
            /// Recoveries that could not be complete.
            unrecovered: u64,
            /// Recoveries answered with publications that were encoded for them.
            answers_encoded: u64,
            /// Recoveries answered with publications that had been encoded for an earlier recovery.
            answers_shared: u64,
            /// Channels whose newest publications of keys were received from all other nodes.
            keys_gathered: u64,
            /// Queries for such publications that a node has not answered, or not completely.
            keys_missed: u64,
            /// Subscriptions now (gauge).
            subscriptions: u64,
            /// Those with a pace (gauge).
            paced_subscriptions: u64,
            /// Time from the acceptance of a publication until the last socket of this shard has received it.
            publish_to_socket: Histogram,
            /// Of publications that are followed: time from the acceptance until its log has committed it.
            publish_to_commit: Histogram,
            /// The same, until a shard with subscribers has received it.
            publish_to_shard: Histogram,
            /// The same, until no socket of such a shard has to be written any more.
            publish_to_last_socket: Histogram,
            /// Counts of its rooms.
            rooms: NamespaceRoomCounters,
        }
    }
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

counts! {
    /// Counts of the rooms of one namespace. All are monotonic.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct NamespaceRoomCounters {
        metrics {
            frames = "dunlin_room_frames_total" "Snapshot frames written to players.";
            frame_bytes = "dunlin_room_frame_bytes_total" "Bytes of snapshot frames written to players.";
            bodies = "dunlin_room_bodies_total" "Snapshot bodies requested from mirrors. Most of them are shared.";
            skipped_ticks = "dunlin_room_frames_skipped_total" "Ticks without a snapshot for a player, because a newer snapshot replaced it.";
            paced_ticks = "dunlin_room_ticks_paced_total" "Ticks without a snapshot for a player, because its pace has fewer snapshots.";
            limited_ticks = "dunlin_room_ticks_limited_total" "Ticks without a snapshot for a player, because it had been sent `room.player_bandwidth_limit`.";
            far_postponed = "dunlin_room_far_cells_postponed_total" "Snapshots without the far cells that were due, because less than half of `room.player_bandwidth_limit` was left.";
            near_postponed = "dunlin_room_near_cells_postponed_total" "Snapshots without some of the near cells around the first ones, because less than half of `room.player_bandwidth_limit` was left.";
            inputs_unsure = "dunlin_room_inputs_unsure_total" "Inputs that were dropped when a room had moved to another node, because it may have applied them.";
            queries = "dunlin_room_queries_total" "Questions to all other nodes of the cluster, whether one of them has a room that is to be opened here.";
        }
        others {
            /// Rooms opened, by the owner.
            opened: u64,
            /// Rooms that were not opened, by the owner, in the order of [`RoomRefusal::ALL`].
            refused: [u64; RoomRefusal::ALL.len()],
            /// Rooms closed because they were empty or by the server API, by the owner.
            closed: u64,
            /// Rooms that failed, by the owner.
            failed: u64,
            /// Joins accepted, by the owner.
            joins_accepted: u64,
            /// Joins that took over a player who was already in the room, by the owner.
            seats_resumed: u64,
            /// Players who have kept their subscription while their room moved, by the session.
            seats_kept: u64,
            /// Players who were to keep it, and could not, by the session.
            seats_not_kept: u64,
            /// Joins that the room refused, by the owner.
            joins_refused: u64,
            /// Joins that were refused because all free places were reserved, by the owner.
            joins_reserved: u64,
            /// Joins whose room ended before it answered, by the owner.
            joins_gone: u64,
            /// Joins that were refused because too many waited until their clients read, by the owner.
            joins_unheld: u64,
            /// Joins that were refused because their clients had not read for too long, by the session.
            joins_unread: u64,
            /// Events accepted, by the owner.
            events: u64,
            /// Room frames with a base: an earlier frame to the same player.
            frames_from_base: u64,
            /// Sum of the ticks between these frames and their bases: 1 each for players that keep up.
            base_age_ticks: u64,
            /// Of players with a bandwidth limit: the age of the oldest cells of the view when a frame is written.
            view_age: Histogram,
            /// Assembled frame bodies.
            assemblies: u64,
            /// Assembled bodies with the full state of the view.
            assemblies_full: u64,
            /// Assembled bodies with a base before the last tick.
            assemblies_catch_up: u64,
            /// Bytes of the assembled bodies.
            assembled_bytes: u64,
            /// Ticks received.
            ticks: u64,
            /// Inputs passed on to rooms.
            inputs: u64,
            /// Messages of the backend, by the owner, in the order of [`MessageOutcome::ALL`].
            messages: [u64; MessageOutcome::ALL.len()],
        }
    }
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

    /// The refusal of a `publish` command.
    pub(crate) const fn refused(self) -> Refused {
        let (code, why) = match self {
            Self::Malformed => (ErrorCode::BadRequest, "an input that cannot be decoded"),
            Self::TooLong => (ErrorCode::BadRequest, "an input longer than room.input_size_limit of the namespace"),
            Self::OldNumber => (ErrorCode::BadRequest, "an input whose number is not above that of the one before"),
            Self::Rate => {
                (ErrorCode::TooManyRequests, "more inputs in a second than room.input_rate_limit of the namespace")
            }
            Self::Inbox => (ErrorCode::TooManyRequests, "room.inbox_limit inputs wait for the room"),
            Self::NotSeated => (ErrorCode::PermissionDenied, "the client has no player in the room"),
        };
        Refused::new(code, why)
    }
}

counts! {
    /// Counts of a shard.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Counters {
        metrics {
            sessions_opened = "dunlin_sessions_opened_total" "Sessions opened.";
            channels_evicted = "dunlin_channels_evicted_total" "Channels without subscribers that were removed with their history, because channel.max_channels was reached.";
            malformed_frames = "dunlin_malformed_frames_total" "Messages from clients that violate the client protocol.";
            violations = "dunlin_websocket_violations_total" "Violations of the WebSocket protocol by clients.";
            sessions_held = "dunlin_sessions_held_total" "Times that the latest lane and the snapshots of a session waited, because it had been sent the bytes per second that its pace allows.";
            recoveries_cut = "dunlin_recoveries_cut_total" "Server-side subscriptions that were not recovered because together they exceed the session's queue.";
            writes_beyond_offer = "dunlin_writes_beyond_offer_total" "Sessions closed because the reactor reported more written bytes than were queued. This is a bug of the server.";
            late_messages = "dunlin_late_messages_total" "Messages between shards for sessions or channels that no longer exist.";
            user_sessions_refused = "dunlin_user_sessions_refused_total" "Sessions refused because of client.user_connection_limit.";
            blocked_connects = "dunlin_blocked_connects_total" "Sessions refused because their user is blocked.";
            revoked_tokens = "dunlin_revoked_tokens_total" "Tokens refused because they are revoked.";
            server_subscriptions_refused = "dunlin_server_subscriptions_refused_total" "Subscriptions by the API that the owners of the channels refused.";
            records_suppressed = "dunlin_log_records_suppressed_total" "Log lines about clients that were suppressed by a rate limit.";
        }
        others {
            /// By namespace: first the channels outside all namespaces, then in the order of the options.
            namespaces: Vec<NamespaceCounters>,
            /// Bytes of the publications in this shard's histories (gauge).
            history_bytes: u64,
            /// Channels in this shard's memory (gauge).
            channels_kept: u64,
            /// Channels that were not created, by [`ChannelRefusal`].
            channels_refused: [u64; ChannelRefusal::ALL.len()],
            /// `connect` commands above the rate limit, answered with error 111.
            connects_refused: u64,
            /// Commands answered with error 111 because of the session's command rate limit.
            commands_refused: u64,
            /// Recoveries above the rate limit, answered with error 111.
            recoveries_refused: u64,
            /// Commands by kind, in the order of [`CommandKind::ALL`].
            commands: [u64; CommandKind::ALL.len()],
            /// Error replies by code − 100.
            error_replies: [u64; 16],
            /// Closes by the server, by code − 3000 and − 3500, otherwise in the last place: see [`Counters::count_close`].
            closes: [u64; CLOSE_SLOTS],
            /// Sessions closed because too many bytes were queued.
            slow_bytes: u64,
            /// Sessions closed because too many frames were queued.
            slow_frames: u64,
            /// Time from a ping to its pong, which includes what waited before the ping.
            ping_round_trip: Histogram,
            /// Bytes handed to the kernel.
            written_bytes: u64,
            /// Players' inputs that were not forwarded, by [`InputRefusal`].
            inputs_refused: [u64; InputRefusal::ALL.len()],
            /// Publications of rooms to other channels that were refused.
            room_publications_refused: u64,
        }
    }
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
        Self { namespaces: vec![NamespaceCounters::ZERO; namespaces], ..Self::ZERO }
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
        let [near @ .., far] = written.is_postponed;
        rooms.far_postponed += u64::from(far);
        rooms.near_postponed += u64::from(near.contains(&true));
        if let Some(age_us) = written.view_age_us {
            rooms.view_age.observe(age_us);
        }
        if let Some(age_ticks) = written.base_age_ticks {
            rooms.frames_from_base += 1;
            rooms.base_age_ticks += u64::from(age_ticks);
            let skipped = u64::from(age_ticks.saturating_sub(1));
            let paced = skipped.min(written.paced_ticks.into());
            rooms.paced_ticks += paced;
            rooms.skipped_ticks += skipped - paced;
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
