//! All metrics of a node: name, kind, labels and help. `schema/metrics.json` and `docs/metrics.md` are generated from
//! this list, and the tests below check that they are fresh. Counters of the engine and of the storage that are metrics by themselves are
//! declared there ([`CounterMetric`]); numbers of other states have their reader beside their name ([`Reading`]).

use std::sync::LazyLock;

use dunlin_cluster::thread::ClusterState;
use dunlin_engine::counters::{CounterMetric, Counters, NamespaceCounters, NamespaceRoomCounters};
use dunlin_storage::StorageCounts;

use crate::node::NetCounters;

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Monotonic for the lifetime of the process.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Observations in buckets; its series end in `_bucket`, `_sum` and `_count`.
    Histogram,
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// Its name, with the unit at the end.
    pub name: &'static str,
    /// The type.
    pub kind: MetricKind,
    /// Label names, in the order of the values.
    pub labels: &'static [&'static str],
    /// The description, in one sentence.
    pub help: &'static str,
}

impl MetricKind {
    /// The type in the exposition format.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The label value of channels without a namespace. No namespace has a name of one character.
pub const NO_NAMESPACE: &str = "-";

/// The families of counters that are declared with their metrics where they are counted.
const fn of_counters<T, const N: usize>(
    metrics: &[CounterMetric<T>; N],
    labels: &'static [&'static str],
) -> [Family; N] {
    let mut families = [Family { name: "", kind: MetricKind::Counter, labels: &[], help: "" }; N];
    let mut index = 0;
    while index < N {
        let CounterMetric { name, help, .. } = metrics[index];
        families[index] = Family { name, kind: MetricKind::Counter, labels, help };
        index += 1;
    }
    families
}

/// Counters of the channels of a namespace.
pub static NAMESPACE_COUNTERS: [Family; NamespaceCounters::METRICS.len()] =
    of_counters(&NamespaceCounters::METRICS, &["namespace"]);

/// Counters of a shard that concern no namespace.
pub static SHARD_COUNTERS: [Family; Counters::METRICS.len()] = of_counters(&Counters::METRICS, &[]);

/// Counters of the rooms of a namespace, on the shards.
pub static ROOM_COUNTERS: [Family; NamespaceRoomCounters::METRICS.len()] =
    of_counters(&NamespaceRoomCounters::METRICS, &["namespace"]);

/// Counters of the storage that are metrics by themselves.
pub static STORAGE_COUNTERS: [Family; StorageCounts::METRICS.len()] = of_counters(&StorageCounts::METRICS, &[]);

/// Every metric, in the order of the page.
pub static FAMILIES: LazyLock<Vec<&'static Family>> = LazyLock::new(|| {
    let mut families = Vec::new();
    families.extend(NODE.iter().copied().chain(&NAMESPACE_COUNTERS));
    families.extend(PUBLISHING.iter().copied().chain(&SHARD_COUNTERS));
    families.extend(CLIENTS.iter().copied().chain(of_readings(SOCKETS)));
    families.extend(SHARD_TIMES.iter().copied().chain(of_readings(TURNS_AND_RINGS)));
    families.extend(ROOM_THREADS.iter().copied().chain(&ROOM_COUNTERS));
    families.extend(MATCHES_TOKENS_AND_BACKENDS.iter().copied().chain(&STORAGE_COUNTERS));
    families.extend(STORAGE_AND_CLUSTER.iter().copied().chain(of_readings(CLUSTER_CHANNELS)));
    families.extend(of_readings(CLUSTER_BROADCASTS).chain(BROADCASTS.iter().copied()));
    families.extend(of_readings(CLUSTER_NODES).chain(QUESTIONS_AND_CONTROL.iter().copied()));
    families
});

fn of_readings<T>(readings: &'static [Reading<T>]) -> impl Iterator<Item = &'static Family> {
    readings.iter().map(|reading| &reading.family)
}

/// A metric that is one number of a state, so that its reader stands beside its name.
pub struct Reading<T: 'static> {
    /// The metric.
    pub family: Family,
    /// Reads its value.
    pub value: fn(&T) -> u64,
}

macro_rules! readings {
    (
        $(#[$meta:meta])*
        $list:ident of $state:ty, $labels:tt:
        $($kind:ident $name:literal $help:literal = $value:expr;)*
    ) => {
        $(#[$meta])*
        pub static $list: &[Reading<$state>] = &[$(
            Reading {
                family: Family { name: $name, kind: MetricKind::$kind, labels: &$labels, help: $help },
                value: $value,
            },
        )*];
    };
}

macro_rules! families {
    ($list:ident: $($constant:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(
            #[doc = $help]
            #[allow(clippy::doc_markdown, reason = "the same words stand in the exposition")]
            pub static $constant: Family =
                Family { name: $name, kind: MetricKind::$kind, labels: &[$($label),*], help: $help };
        )*

        static $list: &[&Family] = &[$(&$constant,)*];
    };
}

families! {
    NODE:
    BUILD_INFO = Gauge "dunlin_build_info" ["version", "reactor"] "Always 1. The labels contain the version and the reactor.";
    UPTIME = Gauge "dunlin_uptime_seconds" [] "Time since the node started.";
    STANDARD_CPU = Counter "process_cpu_seconds_total" [] "CPU time of the process, user and kernel.";
    STANDARD_RESIDENT = Gauge "process_resident_memory_bytes" [] "Resident memory of the process.";
    STANDARD_VIRTUAL = Gauge "process_virtual_memory_bytes" [] "Virtual address space of the process.";
    STANDARD_OPEN_FILES = Gauge "process_open_fds" [] "Open file descriptors of the process.";
    STANDARD_FILES_MAX = Gauge "process_max_fds" [] "Maximum number of open file descriptors of the process.";
    STANDARD_START = Gauge "process_start_time_seconds" [] "Start time of the process in Unix seconds.";
    PROCESS_CPU = Counter "dunlin_process_cpu_seconds_total" [] "CPU time of the process, user and kernel.";
    PROCESS_RESIDENT = Gauge "dunlin_process_resident_memory_bytes" [] "Resident memory of the process.";
    PROCESS_MEMORY_LIMIT = Gauge "dunlin_process_memory_limit_bytes" [] "net.memory_limit: at this resident memory, new sessions are refused. 0: no limit.";
    PROCESS_OPEN_FILES = Gauge "dunlin_process_open_fds" [] "Open file descriptors.";
    PROCESS_FILES_MAX = Gauge "dunlin_process_max_fds" [] "Maximum number of open file descriptors.";
    PROCESS_THREADS = Gauge "dunlin_process_threads" [] "Threads of the process.";

    SESSIONS = Gauge "dunlin_sessions" ["shard"] "Connected sessions.";
    USERS = Gauge "dunlin_users" [] "Distinct users with at least one session.";
    CHANNELS = Gauge "dunlin_channels" [] "Channels with subscribers.";
    SUBSCRIPTIONS = Gauge "dunlin_subscriptions" ["namespace"] "Subscriptions of sessions.";
    PACED_SUBSCRIPTIONS = Gauge "dunlin_paced_subscriptions" ["namespace"] "Subscriptions with a pace: a maximum of updates per second that the client or the server API has stated.";
    CHANNELS_KEPT = Gauge "dunlin_channels_remembered" [] "Channels in memory, with subscribers or with history.";
    CHANNELS_REFUSED = Counter "dunlin_channels_refused_total" ["reason"] "Channels that were not created. node: channel.max_channels was reached and all channels have subscribers. session, user, address: the limit of channels per session, user or address was reached.";
    HISTORY_BYTES = Gauge "dunlin_history_bytes" [] "Bytes of the publications in all histories.";
}

families! {
    PUBLISHING:
    SUPPRESSED = Counter "dunlin_publications_suppressed_total" ["namespace", "reason"] "Publish requests that succeeded without a publication, because their idempotency key was known or their version was old.";
    RECOVERIES = Counter "dunlin_recoveries_total" ["namespace", "recovered"] "Recovery requests of subscriptions, by success.";
    RECOVERY_ANSWERS = Counter "dunlin_recovery_answers_total" ["namespace", "shared"] "Recoveries with publications, by whether they used a shared encoding.";
    KEYS_GATHERED = Counter "dunlin_cached_keys_gathered_total" ["namespace", "complete"] "Channels without history whose cached keys (cache_keys) were asked of the other nodes of the cluster for their first subscription, by whether all answered completely.";
    CACHED_BYTES = Gauge "dunlin_cached_keys_bytes" ["shard"] "Bytes of cached keys (cache_keys).";
    PUBLISH_TO_COMMIT = Histogram "dunlin_publish_to_commit_seconds" ["namespace"] "Of publications that are followed (opentelemetry.publication_interval): time from the acceptance until the namespace's log has committed it; 0 without a log.";
    PUBLISH_TO_SHARD = Histogram "dunlin_publish_to_shard_seconds" ["namespace"] "Of publications that are followed: time from the acceptance until a shard with subscribers has received it, for each of them.";
    PUBLISH_TO_LAST_SOCKET = Histogram "dunlin_publish_to_last_socket_seconds" ["namespace"] "Of publications that are followed: time from the acceptance until the sockets of a shard have taken it, with those that were not writable at once, or their sessions have ended or been given a newer one. Once for each of its encodings, after 10 seconds at most; 16 at a time (dunlin_frames_unfollowed_total).";
    PUBLISH_TO_SOCKET = Histogram "dunlin_publish_to_socket_seconds" ["namespace"] "Time from accepting a publication to writing it to the last socket that was writable at once.";
}

families! {
    CLIENTS:
    COMMANDS = Counter "dunlin_commands_total" ["command"] "Commands from clients.";
    ERROR_REPLIES = Counter "dunlin_error_replies_total" ["code"] "Error replies to clients, by code.";
    DISCONNECTS = Counter "dunlin_disconnects_total" ["code"] "Sessions closed by the server, by code.";
    SLOW_SESSIONS = Counter "dunlin_slow_sessions_total" ["reason"] "Sessions closed because their queue exceeded the limit of bytes or frames.";
    PING_ROUND_TRIP = Histogram "dunlin_ping_round_trip_seconds" [] "Time from a ping to the client's pong, for each ping that was answered. It includes what waited for the socket before the ping.";

    NETWORK_ROUND_TRIP = Histogram "dunlin_network_round_trip_seconds" [] "Round-trip times of sessions' connections as the kernel measures them (TCP_INFO), smoothed. A session is sampled when its client sends something, a pong included, at most every ten seconds. Behind a proxy, this is the way to the proxy.";

    QUEUE_BYTES = Gauge "dunlin_queue_bytes" ["shard"] "Bytes queued for sessions.";
    QUEUE_FRAMES = Gauge "dunlin_queue_frames" ["shard"] "Frames queued for sessions.";
    QUEUE_AGE = Gauge "dunlin_queue_age_seconds" ["shard"] "Age of the oldest queued frame. A publication that replaced older ones of its key counts from the first of them.";
    SESSIONS_BEHIND = Gauge "dunlin_sessions_behind" ["over_seconds"] "Sessions whose oldest queued frame is older than over_seconds.";

    CONNECTIONS = Gauge "dunlin_connections" ["shard"] "Open sockets of shards, including handshakes.";
    WEBSOCKETS = Gauge "dunlin_websockets" ["shard"] "Open WebSockets of shards.";
    ACCEPTED = Counter "dunlin_connections_accepted_total" ["shard"] "Sockets accepted.";
    ACCEPT_FAILURES = Counter "dunlin_accept_failures_total" ["reason"] "Failed accepts, by reason. reserved: the file descriptor is one that net.reserved_open_files leaves for others. shard_full: each shard has as many connections as net.shard_connections_limit and the limit of open files allow.";
    REFUSED = Counter "dunlin_connections_refused_total" ["reason"] "Connections refused before they became sessions, by reason.";
    PLACED = Counter "dunlin_connections_placed_total" ["shard"] "Sockets accepted by the shard and passed to a shard with fewer connections.";
    IMBALANCE = Gauge "dunlin_shard_imbalance_ratio" [] "Largest number of sessions of a shard, divided by the mean. 1 means an even distribution.";
    RATE_REFUSED = Counter "dunlin_rate_refused_total" ["what"] "Connects, recoveries and commands refused with error 111 because of a rate limit.";
    LOG_DROPPED = Counter "dunlin_log_lines_dropped_total" [] "Log lines that were dropped because the log queue was full (log.queue_limit).";
    ABANDONED = Counter "dunlin_connections_abandoned_total" [] "Connections that the peer closed before its request was complete.";
    TRANSPORTS = Counter "dunlin_transport_sessions_opened_total" ["transport"] "Sessions opened, by transport.";
    TLS_HANDSHAKES = Counter "dunlin_tls_handshakes_total" ["outcome"] "TLS handshakes, by outcome.";
    HANDED_OVER = Counter "dunlin_connections_handed_over_total" [] "Connections passed to the HTTP server because of the path of their request.";
    OPENED_WEBSOCKETS = Counter "dunlin_websockets_opened_total" ["by"] "WebSockets opened, by a shard or on a kept-alive connection of the HTTP server.";
}

readings! {
    /// Sockets of a shard.
    SOCKETS of NetCounters, ["shard"]:
    Gauge "dunlin_connections_max" "Maximum number of connections of the shard: net.shard_connections_limit, at most the limit of open files. 0: connections use file descriptors, and only their limit counts." = |net| net.connections_max;
    Counter "dunlin_read_bytes_total" "Bytes read from sockets of shards." = |net| net.read_bytes;
    Counter "dunlin_written_bytes_total" "Bytes written to sockets of shards." = |net| net.write_bytes;
    Counter "dunlin_writes_total" "Writes to sockets of shards." = |net| net.writes;
    Counter "dunlin_blocked_writes_total" "Writes that the socket accepted only in part." = |net| net.blocked_writes;
    Counter "dunlin_reactor_calls_total" "System calls of the shard for io_uring." = |net| net.reactor.calls;
    Counter "dunlin_send_submissions_total" "System calls that submitted sends to io_uring." = |net| net.reactor.batches;
    Counter "dunlin_submitted_sends_total" "Sends submitted to io_uring." = |net| net.reactor.batched_sends;
    Counter "dunlin_receive_buffers_empty_total" "Receives on io_uring that found no free buffer and continued later." = |net| net.reactor.buffers_ran_out;
}

families! {
    SHARD_TIMES:
    SHARD_ANSWERED = Gauge "dunlin_shard_answered" ["shard"] "1 if the shard reported its metrics, 0 if it did not report within 750 ms and its other series are missing.";
    TURNS = Counter "dunlin_shard_turns_total" ["shard"] "Turns of the shard's event loop.";
    BUSY = Counter "dunlin_shard_busy_seconds_total" ["shard"] "Time that the shard was busy.";
    HELD = Counter "dunlin_shard_held_seconds_total" ["shard"] "Time in which the shard did not read sockets and requests, because messages to other shards were waiting.";
    IDLE = Counter "dunlin_shard_idle_seconds_total" ["shard"] "Time that the shard was idle.";
    BUSY_RATIO = Gauge "dunlin_shard_busy_ratio" ["shard"] "Busy share of the shard over about five seconds, from 0 to 1.";
}

readings! {
    /// Turns and queues of a shard.
    TURNS_AND_RINGS of NetCounters, ["shard"]:
    Counter "dunlin_shard_held_turns_total" "Turns without reading sockets and requests, because messages to other shards were waiting." = |net| net.held_turns;
    Counter "dunlin_shard_wakes_total" "Wakeups of other shards by the shard." = |net| net.wakes;
    Counter "dunlin_ring_messages_total" "Messages from the shard to other shards." = |net| net.ring_messages;
    Counter "dunlin_ring_overflowed_total" "Messages from the shard that had to wait because the ring was full." = |net| net.ring_overflowed;
    Gauge "dunlin_ring_overflow_messages" "Messages from the shard that are waiting for space in a ring." = |net| net.ring_overflow;
    Gauge "dunlin_ring_depth_messages" "Messages in the rings to the shard." = |net| net.ring_depth;
    Gauge "dunlin_shard_events_queued" "Results of the storage, the cluster, tokens and backends, and messages of other nodes, that wait for the shard." = |net| net.events_queued;
    Counter "dunlin_shard_events_refused_total" "Results that became an error, and messages of other nodes that were not delivered, because too many were waiting for the shard." = |net| net.events_refused;
}

families! {
    ROOM_THREADS:
    ROOMS = Gauge "dunlin_rooms" ["thread"] "Open rooms.";
    ROOMS_OPENING = Gauge "dunlin_rooms_unmade" ["thread"] "Rooms whose world is being created.";
    ROOM_PLAYERS = Gauge "dunlin_room_players" ["thread"] "Players in rooms that have a client.";
    ROOM_SPECTATORS = Gauge "dunlin_room_spectators" ["thread"] "Spectators in rooms.";
    ROOMS_MEMORY = Gauge "dunlin_rooms_memory_bytes" [] "Memory of the worlds of all rooms, and what their simulations report. room.total_memory_limit limits it.";
    ROOM_BUILDER_BUSY = Counter "dunlin_room_builder_busy_seconds_total" [] "Time that the room builder created and dropped worlds.";
    ROOM_BUILDER_REPLACED = Counter "dunlin_room_builder_replaced_total" [] "Replacements of the room builder's thread because a game did not return.";
    ROOM_BUILDER_LOST = Gauge "dunlin_room_builder_threads_lost" [] "Abandoned threads of the room builder that have not returned.";
    ROOMS_OPENED = Counter "dunlin_rooms_opened_total" [] "Rooms opened.";
    ROOMS_REFUSED = Counter "dunlin_rooms_refused_total" ["namespace", "reason"] "Rooms that were not opened because of a limit (open rooms, memory, worlds being created, or rooms per second of the node, a session or an address), or because another node of the cluster has the room, or has not answered whether it has it.";
    ROOMS_CLOSED = Counter "dunlin_rooms_closed_total" [] "Rooms closed by the server API or because they were empty.";
    ROOMS_FAILED = Counter "dunlin_rooms_failed_total" ["reason"] "Rooms that failed, by reason.";
    ROOM_JOINS = Counter "dunlin_room_joins_total" ["outcome"] "Joins of players, by outcome: accepted; refused by the game, or because the room was full; reserved: all free places were; gone: the room ended or could not be read; not_read: the answer did not fit into the session's queue for 3 s; too_many_wait: too many joins waited for their clients.";
    ROOM_SEATS = Counter "dunlin_room_seats_total" ["outcome"] "Seats of players: kept with their subscription while their room moved to another node, or not_kept then; resumed by a client that came back, expired after seat_grace, displaced because their user had more than max_away_per_user without a client, or unseated because another connection took the seat or the game removed the player; and joins whose seat token had no effect, because no player of the room had it (token_unknown) or the player of another user (token_of_other_user).";
    ROOM_TICKS = Counter "dunlin_room_ticks_total" ["thread"] "Ticks of rooms.";
    ROOM_TICK_DURATION = Histogram "dunlin_room_tick_seconds" ["thread"] "Duration of ticks.";
    ROOM_TICK_LATENESS = Histogram "dunlin_room_tick_lateness_seconds" ["thread"] "Delay between the scheduled and the actual start of ticks.";
    ROOM_TICK_LONGEST = Gauge "dunlin_room_tick_slowest_seconds" ["thread"] "Maximum of 100 recent tick durations, in the slowest room.";
    ROOM_TICKS_LATE = Counter "dunlin_room_ticks_late_total" ["thread"] "Ticks that started after the next tick was due.";
    ROOM_TICKS_SKIPPED = Counter "dunlin_room_ticks_skipped_total" ["thread", "reason"] "Ticks that did not run, because they were too late, too many messages waited for a shard, or too many ticks waited for the log.";
    ROOM_OVERRUNS = Counter "dunlin_room_overruns_total" ["thread"] "Ticks that took longer than their interval.";
    ROOM_RATE = Gauge "dunlin_room_rate" ["thread"] "Rate of the slowest room's clock: 1 is real time. It is lower while a room with overrun: dilate is overloaded.";
    ROOM_LOAD = Gauge "dunlin_room_thread_load_ratio" ["thread"] "Share of about one second in which game code ran, from 0 to 1.";
    ROOM_BUSY = Counter "dunlin_room_thread_busy_seconds_total" ["thread"] "Time that game code ran.";
    ROOM_THREADS_REPLACED = Counter "dunlin_room_threads_replaced_total" ["thread"] "Replacements of the room thread because a game did not return.";
    ROOM_THREADS_LOST = Gauge "dunlin_room_threads_lost" ["thread"] "Abandoned threads that have not returned.";
    ROOM_PRIORITY = Gauge "dunlin_room_thread_priority" ["thread"] "1 if the room thread has a raised scheduling priority.";
    ROOM_REMOTE_ROOMS = Gauge "dunlin_room_remote_rooms" [] "Rooms of other nodes that players of this node are in.";
    ROOM_REMOTE_PLAYERS = Gauge "dunlin_room_remote_players" ["where"] "Players of this node in rooms of other nodes (away), and players of other nodes in rooms of this node (here).";
    ROOM_RELAY_FRAMES = Counter "dunlin_room_relay_frames_total" ["direction"] "Messages about rooms between this node and others: sent, received, or received and of another version (unknown).";
    ROOM_RELAY_BYTES = Counter "dunlin_room_relay_bytes_total" ["direction"] "Bytes of messages about rooms between this node and others.";
    ROOM_RELAY_LOSSES = Counter "dunlin_room_relay_losses_total" ["reason"] "Times that all rooms and players between this node and another one ended, because the other was silent for three seconds or is gone (silence), a message was missing (gap) or came two seconds later than others (late), the other node noticed a loss (peer) or sent something else (malformed), or this node lost its connection to NATS or stopped (disconnected). The clients join again.";
    ROOM_RELAY_LIMITS = Counter "dunlin_room_relay_limits_total" ["limit"] "Limits reached on messages about rooms between this node and other nodes, counted once each time one is reached, by limit. update: a room's world is too large to be sent to another node, and that node's players lose their places. batch: so many messages were waiting that they were sent early. long_batch: another node sent more messages at once than a node may. queue_out: the queue to NATS was full. queue_in: the queue from NATS was full. behind: a shard was behind, so messages of other nodes were not read for a time.";
    ROOM_INPUTS = Counter "dunlin_room_inputs_total" ["outcome"] "Inputs of players, by outcome: applied, rejected by the game, or refused for a reason.";
    ROOM_VALUES_LIMITED = Counter "dunlin_room_values_limited_total" [] "Values of objects' fields that were outside of their ranges and were limited to them.";
    ROOM_MESSAGES = Counter "dunlin_room_messages_total" ["outcome"] "Messages of the backend to rooms, by outcome: answered or refused by the game, the room ended before, or refused for a reason.";
    ROOM_CALLS = Counter "dunlin_room_calls_total" ["outcome"] "Calls of games to the backend, by outcome. answered, error: by the backend. failed: not reached, or no valid response. busy: too many requests for the proxy. too_long: the answer exceeds room.call_size_limit. timeout: no answer within the ticks that the game set; late: the answer came after that or after the end of the room, so such a call counts twice. lost: the room continued after a restart. refused: by a limit, before it was sent.";
    ROOM_EVENTS = Counter "dunlin_room_events_total" [] "Events of rooms.";
    ROOM_PUBLICATIONS = Counter "dunlin_room_publications_total" ["outcome"] "Publications of rooms into other channels, by outcome.";
    ROOM_KEYFRAMES = Counter "dunlin_room_keyframes_total" [] "Keyframes sent to shards.";
    ROOM_UPDATES = Counter "dunlin_room_updates_total" [] "Tick updates sent to shards.";
    ROOM_RECORDINGS_BYTES = Gauge "dunlin_room_recordings_bytes" [] "Bytes of the recordings in all directories of room.record_directory.";
    ROOM_RECORDINGS_DELETED = Counter "dunlin_room_recordings_deleted_total" ["outcome"] "Deletions of recordings, by outcome. size: for room.record_bytes_max. age: for room.record_ttl. failed: the file system refused it; it is tried again.";
    ROOM_RECORDINGS_CUT = Counter "dunlin_room_recordings_cut_total" ["reason"] "Recordings that ended before their room, by reason. disk: it was too slow or failed. limit: room.record_bytes_max, of which recordings that are written or replayed have all.";
    ROOM_CHECKPOINTS = Counter "dunlin_room_checkpoints_total" ["outcome"] "Checkpoints of rooms, by outcome: written or failed.";
    ROOM_CHECKPOINT_BYTES = Counter "dunlin_room_checkpoint_bytes_total" [] "Bytes of checkpoints of rooms.";
    ROOM_LOG_RECORDS = Counter "dunlin_room_log_records_total" [] "Ticks whose inputs were logged, in rooms with survival: exact.";
    ROOM_LOG_BYTES = Counter "dunlin_room_log_bytes_total" [] "Bytes of logged inputs of rooms.";
    ROOM_TICKS_REPLAYED = Counter "dunlin_room_ticks_replayed_total" [] "Ticks that were replayed from logs after a restart.";
    ROOMS_RESTORED = Counter "dunlin_rooms_restored_total" ["outcome"] "Rooms with a checkpoint that were opened, by outcome: restored, migrated because their game had changed, or failed because the checkpoint or the log is of no use.";
    ROOM_PATH_BLOCKS = Counter "dunlin_room_path_blocks_total" ["outcome"] "Blocks of players' paths, by outcome: stored, or dropped because the queue was full or the storage failed.";
    ROOM_PATH_POINTS = Counter "dunlin_room_path_points_total" [] "Points of players' paths that are stored.";
    ROOM_PATH_BYTES = Counter "dunlin_room_path_bytes_total" [] "Compressed bytes of the blocks that are stored.";
}

families! {
    MATCHES_TOKENS_AND_BACKENDS:
    ROOM_ASSEMBLIES = Counter "dunlin_room_assemblies_total" ["namespace", "kind"] "Snapshot bodies assembled, by kind: from the last tick, from an older tick, or in full.";
    ROOM_VIEW_AGE = Histogram "dunlin_room_view_age_seconds" ["namespace"] "Of players with `room.player_bandwidth_limit`: how old the oldest cells of the view have become when a snapshot is written, in ticks of the room. One tick if nothing waits; far cells wait for their interval. Ticks that a subscriber's pace leaves out do not count.";

    MATCH_PENDING = Gauge "dunlin_match_pending_tickets" ["namespace"] "Tickets that are unconfirmed or wait for a room.";
    MATCH_RESERVED = Gauge "dunlin_match_reserved_places" ["namespace"] "Places in rooms that are reserved for users who have not joined.";
    MATCH_TICKETS = Counter "dunlin_match_tickets_total" ["namespace"] "Tickets that were accepted.";
    MATCH_PLACED = Counter "dunlin_match_placed_total" ["namespace"] "Tickets that were placed in a room, once for each room.";
    MATCH_WITHDRAWN = Counter "dunlin_match_withdrawn_total" ["namespace"] "Tickets that lost their places in a room to players who had joined before the reservation reached the room. They wait again.";
    MATCH_COMPARED = Counter "dunlin_match_comparisons_total" ["namespace"] "Comparisons of a waiting ticket with another one or with open rooms. A pass makes at most about 32 per waiting ticket.";
    MATCH_ENDED = Counter "dunlin_match_ended_total" ["namespace", "outcome"] "Tickets that are over, by outcome: joined, or the reason why their users are in no room.";
    MATCH_REFUSED = Counter "dunlin_match_refused_total" ["namespace", "reason"] "Requests about tickets that were refused; rate_limited: by `room.match.user_rate_limit`; address_limited: by `room.match.address_users_limit`.";
    MATCH_ROOMS = Counter "dunlin_match_rooms_total" ["namespace", "outcome"] "Rooms of matchmaking, by outcome: opened, or failed before all users came.";
    MATCH_RESERVATIONS_LOST = Counter "dunlin_match_reservations_lost_total" ["reason"] "Reservations of places that have not reached their room. Full: too many waited for its node. Failed: its node did not answer, or the room was closed.";
    MATCH_HERE = Gauge "dunlin_match_queues_here" [] "1 if this node runs the queues and the lobbies of its cluster; 1 on a node without a cluster.";
    MATCH_FORWARDED = Counter "dunlin_match_forwarded_total" [] "Requests about tickets that were passed to other nodes of the cluster.";
    MATCH_FORWARDS_REFUSED = Counter "dunlin_match_forwards_refused_total" [] "Clients' requests about tickets that got error 111, because too many were being passed to other nodes of the cluster.";
    MATCH_REMEMBERED = Gauge "dunlin_match_remembered" [] "Tickets of this node that wait on the node that runs the queues, and that it enters again if that one dies.";
    MATCH_NOT_REMEMBERED = Counter "dunlin_match_not_remembered_total" [] "Tickets of this node that it cannot enter again, because it remembers 4,096 others.";
    MATCH_HANDED = Counter "dunlin_match_handed_over_total" ["direction"] "Waiting tickets that this node gave to the node that runs the queues (out), took over from another one (in), did not take over because its rules refuse them or it cannot read them (refused), or entered again because the node that ran the queues was gone (again).";
    MATCH_BUSY = Counter "dunlin_match_busy_seconds_total" ["namespace"] "Time in which tickets were placed.";
    MATCH_LONGEST = Gauge "dunlin_match_longest_placing_seconds" ["namespace"] "The longest time of one placing since the start.";
    LOBBY_ROOMS = Gauge "dunlin_lobby_rooms" ["channel"] "Rooms that a lobby lists.";
    LOBBY_LISTINGS = Counter "dunlin_lobby_listings_total" ["channel", "outcome"] "Listings of rooms in a lobby: published, or refused by the channel.";

    ACCESS_RULES = Gauge "dunlin_access_rules" [] "Rules about who may not connect: blocked users and revoked tokens, and for a day those that were lifted.";
    ACCESS_RULES_BYTES = Gauge "dunlin_access_rules_bytes" [] "Bytes of these rules, which each shard has in memory.";
    ACCESS_RULES_UNSTORED = Gauge "dunlin_access_rules_unstored" [] "Rules whose last change could not be stored, and is tried again every 3 seconds. They do not outlive a restart.";
    ACCESS_RULES_REFUSED = Counter "dunlin_access_rules_refused_total" ["reason"] "Rules that a limit refused (full), or that could not be stored (not_stored).";
    TOKENS = Counter "dunlin_tokens_total" ["outcome"] "Tokens by result of the verification: accepted, expired, refused, or not verifiable at the time.";
    TOKEN_CACHE = Counter "dunlin_token_cache_total" ["result"] "Lookups of public-key tokens in the token cache, by result.";
    TOKEN_SIGNATURES = Counter "dunlin_token_signatures_total" [] "Public-key signatures of tokens that were verified.";
    TOKENS_WAITING = Gauge "dunlin_tokens_waiting" [] "Tokens that wait for a signature verification or for keys.";
    KEY_FETCHES = Counter "dunlin_token_key_fetches_total" ["outcome"] "Fetches of key sets (JWKS).";

    BACKEND_CALLS = Counter "dunlin_backend_calls_total" ["proxy", "type", "outcome"] "Requests to backends, by outcome.";
    BACKEND_CODES = Counter "dunlin_backend_error_codes_total" ["proxy", "type", "code"] "Errors and disconnects from backends, by code. Only the first 64 codes of a proxy are counted individually; the others count as other.";
    BACKEND_DURATION = Histogram "dunlin_backend_seconds" ["proxy", "type"] "Duration of requests to backends, including failed ones.";
    BACKEND_WAITING = Gauge "dunlin_backend_waiting" ["proxy"] "Requests that wait for a backend.";
    BACKEND_OPEN = Gauge "dunlin_backend_breaker_open" ["proxy"] "1 while the circuit breaker of a backend is open.";
    WEBHOOK_EVENTS = Counter "dunlin_webhook_events_total" [] "Events that the backend of webhooks.endpoint has taken.";
    WEBHOOK_EVENTS_LOST = Counter "dunlin_webhook_events_lost_total" ["reason"] "Events that the backend of webhooks.endpoint does not receive, by reason: queue_full (webhooks.queue_limit or webhooks.queue_size_limit), refused (status 400 or 422, or 413 to a single event), retry_timeout (webhooks.retry_timeout), shutdown, channel_limit (the cluster has more than 1,000,000 occupied channels, or 64 MiB of their names).";
    WEBHOOK_REQUESTS = Counter "dunlin_webhook_requests_total" ["outcome"] "Requests to webhooks.endpoint, by outcome.";
    WEBHOOK_EVENTS_WAITING = Gauge "dunlin_webhook_events_waiting" [] "Events that wait for the backend of webhooks.endpoint.";
    WEBHOOK_BYTES_WAITING = Gauge "dunlin_webhook_bytes_waiting" [] "Bytes of events that wait for the backend of webhooks.endpoint.";
    WEBHOOK_OLDEST_AGE = Gauge "dunlin_webhook_oldest_event_seconds" [] "Age of the oldest event that is being sent; 0 if none is.";
    PROFILES_PUSHED = Counter "dunlin_profiles_pushed_total" ["kind", "outcome"] "Profiles for the server of profiling.pyroscope.address, by kind (cpu, heap) and outcome: taken; refused, server_error, unreachable, timeout (profiling.pyroscope.timeout): the server does not have it; replaced: a newer one came while it waited; too_large: above 4 MiB, compressed; yielded: an operator recorded one; not_recorded.";
    OTLP_SPANS = Counter "dunlin_otlp_spans_total" ["outcome"] "Spans for the collector of opentelemetry.endpoint, by outcome: accepted; rejected, server_error, unreachable, timeout (opentelemetry.timeout): the collector does not have them; dropped: opentelemetry.queue_limit spans were waiting, 100 recoveries had been recorded in the last second, a batch had more than 64 commands, or the node ended.";
    OTLP_SPANS_WAITING = Gauge "dunlin_otlp_spans_waiting" [] "Spans that wait for the collector.";
    OTLP_REQUESTS = Counter "dunlin_otlp_requests_total" ["signal", "outcome"] "Requests to the collector, by what they have (traces, metrics) and outcome, as for spans. Metrics that were dropped were replaced by newer ones while they waited. Traces are sent up to four times.";
}

families! {
    STORAGE_AND_CLUSTER:
    STORAGE_COMMIT_SECONDS = Counter "dunlin_storage_commit_seconds_total" [] "Time spent in group commits.";
    STORAGE_COMMIT_SECONDS_MAX = Gauge "dunlin_storage_commit_seconds_max" [] "Duration of the longest group commit since the start.";
    STORAGE_PUBLICATIONS_REFUSED = Counter "dunlin_storage_publications_refused_total" ["reason"] "Publications refused with error 111 by a limit on disk space, by reason: low_space (storage.free_space_min), channel (history_disk_limit of the namespace), namespace (history_disk_total_limit), node (channel.history_disk_limit).";
    STORAGE_HISTORY_BYTES = Gauge "dunlin_storage_history_bytes" ["namespace"] "Bytes of stored publications, as the limits count them. Expired publications leave it with the next count, a minute later, or 10 s later while a limit refuses publications.";
    STORAGE_FREE_BYTES = Gauge "dunlin_storage_free_bytes" [] "Free bytes of the file system of storage.path. Publications are refused below storage.free_space_min.";
    STORAGE_POISONED = Gauge "dunlin_storage_poisoned" ["fault"] "1 after a write failed. Durable namespaces then refuse publications until the cause has passed. The label is the reason.";
    STORAGE_BACKUPS = Counter "dunlin_storage_backups_total" ["outcome"] "Backups of the storage, by outcome.";
    STORAGE_UNDELETED_BACKUPS = Counter "dunlin_storage_backup_deletions_failed_total" [] "Failures to delete old backups. Their directory grows until the cause is removed.";
    STORAGE_LAST_BACKUP = Gauge "dunlin_storage_last_backup_timestamp_seconds" [] "Unix time of the newest backup in storage.backup.path; 0 if there is none.";

    CLUSTER_READY = Gauge "dunlin_cluster_ready" [] "1 while all connections to NATS are open and all streams can be used, otherwise 0.";
    CLUSTER_STREAMS_UNUSABLE = Gauge "dunlin_cluster_streams_unusable" [] "Streams that do not exist, store nothing, do not answer, or were not created by Dunlin.";
    CLUSTER_CONNECTIONS_OPENED = Counter "dunlin_cluster_connections_opened_total" ["link"] "Connections to NATS opened, by link: live (subscriptions), publish, read. All but the first of a link are reconnects.";
}

readings! {
    /// Channels of the cluster with an offset.
    CLUSTER_CHANNELS of ClusterState, []:
    Gauge "dunlin_cluster_channels_followed" "Channels that the node receives from NATS, including those without subscribers for less than broker.nats.jetstream.linger." = |state| state.counters.followed;
    Gauge "dunlin_cluster_channels_lingering" "Channels that the node follows without subscribers. At broker.nats.jetstream.linger_limit, the one that has waited for longest is no longer followed." = |state| state.counters.lingering;
    Counter "dunlin_cluster_channels_attached_total" "Channels that the node started to receive, or started to receive again." = |state| state.counters.attached;
    Gauge "dunlin_cluster_publications_in_flight" "Publications sent to NATS and not acknowledged yet, limited by broker.nats.jetstream.publish_window." = |state| state.counters.in_flight;
    Gauge "dunlin_cluster_window_bytes" "Bytes of the newest publications of followed channels in memory. At history_memory_limit of a namespace or of channel, the oldest are evicted, and read from the stream when they are requested." = |state| state.counters.window_bytes;
    Gauge "dunlin_cluster_seen_keys" "Idempotency keys of publications in streams that this node has seen and remembers for the duplicate window." = |state| state.counters.seen_keys;
    Gauge "dunlin_cluster_seen_keys_bytes" "Bytes of these keys. At broker.nats.jetstream.keys_size_limit the oldest are forgotten." = |state| state.counters.seen_keys_bytes;
    Counter "dunlin_cluster_keys_answered_total" "Publications that were answered with an earlier one because this node had seen their idempotency key." = |state| state.counters.keys_answered;
    Counter "dunlin_cluster_keys_unanswered_total" "Questions about idempotency keys that at least one asked node did not answer, or that were asked before this node knew the others. A key that only such a node has seen can publish again." = |state| state.counters.keys_unanswered;
    Counter "dunlin_cluster_publications_retried_total" "Publications sent to NATS again, because no acknowledgement came." = |state| state.counters.retries;
    Counter "dunlin_cluster_publications_abandoned_total" "Publications given up after broker.nats.jetstream.publish_timeout. They may be stored nevertheless." = |state| state.counters.abandoned;
    Counter "dunlin_cluster_messages_received_total" "Messages of followed channels received from NATS, including the node's own." = |state| state.counters.delivered;
    Counter "dunlin_cluster_messages_known_total" "Received messages that were dropped because the node already had them." = |state| state.counters.late;
    Counter "dunlin_cluster_gaps_total" "Gaps found in the messages of a channel, because a later message arrived or was acknowledged." = |state| state.counters.gaps;
    Counter "dunlin_cluster_lost_tails_total" "Channels whose newest messages were missing, found by comparing with the stream." = |state| state.counters.lost_tails;
    Counter "dunlin_cluster_truncations_total" "Streams found to have lost their end, for example because servers lost power or a backup was restored. All positions in them become invalid." = |state| state.counters.truncations;
    Counter "dunlin_cluster_holes_total" "Publications found to be missing from a stream, or from one of its replicas, although later ones name them. All positions in the stream become invalid." = |state| state.counters.holes;
    Counter "dunlin_cluster_streams_absent_total" "Streams found to be gone while the node ran. All positions in them become invalid." = |state| state.counters.streams_absent;
    Counter "dunlin_cluster_streams_created_total" "Streams that this node created again because they were gone." = |state| state.counters.streams_created;
    Counter "dunlin_cluster_messages_filled_total" "Missing messages that were read from the stream." = |state| state.counters.filled;
    Counter "dunlin_cluster_channels_interrupted_total" "Channels whose subscriptions ended with 2500, because a gap could not be filled in broker.nats.jetstream.gap_timeout or the stream was replaced." = |state| state.counters.interrupted;
    Counter "dunlin_cluster_undelivered_total" "Channels whose subscribers had to resubscribe, because a shard did not take the messages of other nodes fast enough (64 MiB wait)." = |state| state.counters.undelivered;
    Counter "dunlin_cluster_overflows_total" "Overflows of the messages of NATS that wait for the cluster's thread, at broker.nats.jetstream.messages_limit or messages_size_limit, or in a server. What was dropped is read from the streams; broadcasts are lost." = |state| state.counters.overflows;
    Counter "dunlin_cluster_audits_total" "Completed comparisons of all followed channels of a stream with the stream." = |state| state.counters.audits;
    Counter "dunlin_cluster_positions_ahead_total" "Recoveries from positions that the node had not reached yet, because the client came from another node." = |state| state.counters.ahead;
    Counter "dunlin_cluster_reads_total" "Reads of messages of a channel from its stream, for history, recovery and gaps." = |state| state.counters.reads;
    Counter "dunlin_cluster_reads_shared_total" "Reads of a stream that many recoveries shared." = |state| state.counters.shared_reads;
    Counter "dunlin_cluster_peer_windows_total" "Recoveries and reads of history that another node's memory served instead of a read of the stream." = |state| state.counters.peer_windows;
    Counter "dunlin_cluster_stale_answers_total" "Reads and comparisons that were tried again, because a replica was behind or did not answer." = |state| state.counters.stale_answers;
    Counter "dunlin_cluster_damaged_messages_total" "Messages of a stream that were left out, because a replica has damaged them." = |state| state.counters.damaged_messages;
    Counter "dunlin_cluster_late_messages_total" "Messages and answers of other nodes and of NATS that came too late for what they belong to, or that Dunlin did not send." = |state| state.counters.strays.late;
    Counter "dunlin_cluster_impossible_events_total" "Events of the cluster's protocol that cannot happen and did. The node disregards them. Each is a bug of Dunlin: report it with the log." = |state| state.counters.strays.impossible;
}

readings! {
    /// Publications without an offset, joins and leaves.
    CLUSTER_BROADCASTS of ClusterState, []:
    Gauge "dunlin_cluster_broadcast_channels" "Channels whose broadcasts the node receives, including those without subscribers for less than broker.nats.jetstream.linger. Broadcasts are publications without an offset, joins and leaves." = |state| state.counters.broadcast_channels;
    Counter "dunlin_cluster_follows_unconfirmed_total" "First subscriptions of the node to a channel without history that were accepted before the NATS servers of all nodes knew of them: after broker.nats.jetstream.follow_timeout, or without a connection to NATS. The first publications of other nodes may be missing." = |state| state.counters.follows_unconfirmed;
    Counter "dunlin_cluster_broadcasts_sent_total" "Broadcasts handed to the connection to NATS." = |state| state.counters.broadcasts_sent;
    Counter "dunlin_cluster_broadcasts_received_total" "Broadcasts of other nodes received in channels that the node follows." = |state| state.counters.broadcasts_received;
}

families! {
    BROADCASTS:
    CLUSTER_BROADCASTS_DROPPED = Counter "dunlin_cluster_broadcasts_dropped_total" ["reason"] "Broadcasts dropped, by reason: disconnected (no connection to NATS), too_large (for the NATS servers), malformed (received and not valid), queue_full (half of broker.nats.jetstream.requests_limit requests were waiting).";
}

readings! {
    /// Connections, queues and other nodes.
    CLUSTER_NODES of ClusterState, []:
    Counter "dunlin_cluster_connections_silent_total" "Connections to NATS that were given up because what was asked for did not come: their server was parted from the others." = |state| state.counters.silent_connections;
    Gauge "dunlin_cluster_requests_queued" "Requests of shards that wait for the cluster's thread." = |state| state.requests_queued as u64;
    Counter "dunlin_cluster_requests_refused_total" "Publications and loads refused with error 111, because broker.nats.jetstream.requests_limit requests were waiting." = |state| state.requests_refused as u64;
    Gauge "dunlin_cluster_operations_waiting" "Operations that wait for a connection to NATS." = |state| state.effects_waiting as u64;
    Gauge "dunlin_cluster_peers" "Other nodes that are live: their newest heartbeat came within broker.nats.peers.silence_timeout." = |state| state.counters.peers.live;
    Gauge "dunlin_cluster_peers_other_version" "Of these, nodes with another version of Dunlin." = |state| state.counters.peers.other_version;
    Gauge "dunlin_cluster_peers_clock_off" "Of these, nodes whose clock differs from this node's by more than a minute." = |state| state.counters.peers.clock_off;
    Gauge "dunlin_cluster_same_id" "1 while another node has the id of this one, otherwise 0." = |state| u64::from(state.counters.peers.same_id);
    Counter "dunlin_cluster_peers_lost_total" "Nodes that became silent without stopping in order." = |state| state.counters.peers.lost;
    Counter "dunlin_cluster_silences_total" "How often this node has sent no heartbeat for so long that other nodes may have counted it as lost: its process was paused, or a connection to NATS was down." = |state| state.counters.peers.own_silences;
    Gauge "dunlin_cluster_lease_held" "1 while this node holds its lease, otherwise 0. Without streams there are no leases." = |state| u64::from(state.counters.leases.term > 0);
    Gauge "dunlin_cluster_leases_elsewhere" "Leases that other nodes hold." = |state| state.counters.leases.others;
    Counter "dunlin_cluster_leases_lost_total" "How often another node has taken the lease of this node, because this node did not renew it in broker.nats.peers.silence_timeout." = |state| state.counters.leases.lost;
    Counter "dunlin_cluster_leases_taken_total" "Leases of other nodes that this node has taken, because they were not renewed in broker.nats.peers.silence_timeout." = |state| state.counters.leases.taken;
    Gauge "dunlin_cluster_room_logs" "Rooms of this node whose state is kept in the cluster (room.survival)." = |state| state.counters.room_logs.held;
    Counter "dunlin_cluster_room_logs_taken_total" "Rooms that this node continues because their node did not renew its lease." = |state| state.counters.room_logs.taken;
    Counter "dunlin_cluster_room_logs_lost_total" "Rooms of this node that have ended because another node has taken them over, or the stream has lost their log." = |state| state.counters.room_logs.lost;
    Counter "dunlin_cluster_room_log_messages_total" "Messages of the logs of rooms that were stored." = |state| state.counters.room_logs.messages;
    Counter "dunlin_cluster_room_log_bytes_total" "Bytes of records and checkpoints in the stored messages of the logs of rooms." = |state| state.counters.room_logs.bytes;
    Counter "dunlin_cluster_room_lists_refused_total" "Searches for rooms of nodes that have stopped or died that NATS refused, because it lists 1,024 logs. Those rooms open with their next join." = |state| state.counters.room_logs.lists_refused;
    Counter "dunlin_cluster_room_log_retries_total" "Messages of the logs of rooms that were sent again, because the stream did not acknowledge them." = |state| state.counters.room_logs.retries;
    Counter "dunlin_cluster_surveys_total" "Questions to other nodes, for example for presence." = |state| state.counters.peers.surveys;
    Counter "dunlin_cluster_surveys_partial_total" "Questions that a live node did not answer in broker.nats.peers.survey_timeout, or that were asked without NATS." = |state| state.counters.peers.incomplete;
    Counter "dunlin_cluster_surveys_refused_total" "Questions not asked, because broker.nats.peers.surveys_limit questions were waiting or NATS does not take one so large." = |state| state.counters.peers.surveys_refused;
    Counter "dunlin_cluster_queries_total" "Questions of other nodes." = |state| state.counters.peers.queries;
    Counter "dunlin_cluster_queries_refused_total" "Questions of other nodes refused, because the node was answering broker.nats.peers.queries_limit of them." = |state| state.counters.peers.queries_refused;
    Gauge "dunlin_cluster_users_elsewhere" "Users with sessions on other nodes that count for client.user_connection_limit." = |state| state.counters.peers.users_elsewhere;
    Counter "dunlin_cluster_users_uncounted_total" "Counts of users on other nodes that were ignored, because broker.nats.peers.users_limit counts are known, or wait for a shard." = |state| state.counters.peers.users_uncounted;
    Counter "dunlin_cluster_peer_messages_dropped_total" "Messages of other nodes dropped, because they make no sense or broker.nats.peers.nodes_limit nodes are known." = |state| state.counters.peers.dropped + state.counters.leases.dropped;
}

families! {
    QUESTIONS_AND_CONTROL:
    CLUSTER_QUESTIONS_REFUSED = Counter "dunlin_cluster_shard_questions_refused_total" ["about"] "Questions to other nodes that were refused because their queue was full (1,024): presence and rooms answer error 111; for keys the answer counts as incomplete.";
    CLUSTER_NOT_UNDERSTOOD = Counter "dunlin_cluster_peer_messages_not_understood_total" ["message"] "Messages of other nodes that this version does not understand, or answers that are larger than they may be, by message: question or answer. Nodes of different versions may cause a few during a rolling restart.";

    API_REQUESTS = Counter "dunlin_api_requests_total" ["method"] "Requests to the server API, including commands in batches.";
    API_ERRORS = Counter "dunlin_api_errors_total" ["method", "code"] "Errors of the server API. Refusals of games count under the code 400.";
    TLS_RELOADS = Counter "dunlin_tls_certificate_reloads_total" ["outcome"] "Reloads of changed certificates, by outcome. After a failure the old certificates stay in use.";
    CONFIG_RELOADS = Counter "dunlin_config_reloads_total" ["outcome"] "Configuration reloads, by outcome.";
    CONFIG_LAST_RELOAD = Gauge "dunlin_config_last_reload_success_timestamp_seconds" [] "Unix time of the last successful configuration reload; 0 before the first one.";
    HTTP_CONNECTIONS = Gauge "dunlin_http_connections" [] "Open connections of the HTTP server.";
    CONSOLE_REPLAYS = Gauge "dunlin_console_replays" [] "Recordings of rooms that are open in the console, each in a process of its own.";
    HTTP_REFUSED = Counter "dunlin_http_refused_total" ["reason"] "HTTP connections and requests refused by a limit, and idle connections that were closed, by reason (gave_way: closed in favor of another connection; origin: sent by a page of another site).";
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, fmt::Write as _, fs, path::PathBuf};

    use super::*;

    #[test]
    fn names_follow_the_conventions() {
        let mut seen = HashSet::new();
        for family in FAMILIES.iter() {
            assert!(seen.insert(family.name), "{} occurs twice", family.name);
            let is_standard = family.name.starts_with("process_");
            assert!(is_standard || family.name.starts_with("dunlin_"), "{}", family.name);
            assert!(family.name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'_')), "{}", family.name);
            assert_eq!(family.name.ends_with("_total"), family.kind == MetricKind::Counter, "{}", family.name);
            assert!(family.help.ends_with('.') && !family.help.contains(['\n', '\\']), "{}", family.name);
            assert!(!family.labels.contains(&"le"), "{}", family.name);
        }
    }

    #[test]
    fn the_committed_list_is_fresh() {
        prove_fresh("schema/metrics.json", &as_json());
    }

    #[test]
    fn the_manual_is_fresh() {
        prove_fresh("docs/metrics.md", &as_markdown());
    }

    /// Compares a committed file with the generated text; with `DUNLIN_WRITE=1` in the environment, rewrites it.
    fn prove_fresh(path: &str, expected: &str) {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
        if std::env::var_os("DUNLIN_WRITE").is_some_and(|value| value == "1") {
            fs::write(&file, expected).expect("the file is writable");
        }
        let committed = fs::read_to_string(&file).unwrap_or_default();
        assert!(committed == expected, "{path} is stale; DUNLIN_WRITE=1 cargo test -p dunlin fresh rewrites it");
    }

    fn as_json() -> String {
        let mut text = String::from("[\n");
        for (index, family) in FAMILIES.iter().enumerate() {
            let separator = if index + 1 < FAMILIES.len() { "," } else { "" };
            let entry = serde_json::json!({
                "name": family.name, "type": family.kind.name(), "labels": family.labels, "help": family.help,
            });
            let _ = writeln!(text, "  {entry}{separator}");
        }
        text.push_str("]\n");
        text
    }

    fn as_markdown() -> String {
        let mut text = String::from(
            "# Metrics\n\n\
             `GET /metrics` (`prometheus.enabled`, `prometheus.handler_prefix`) returns all metrics in the Prometheus text\n\
             format. This page is generated from the code; `schema/metrics.json` has the same content for programs.\n\n\
             [The runbook](../platform/watching/runbook.md) has a section for each alert on these metrics; the alerts (`rules/dunlin.yaml`), and a\n\
             board for Grafana, are beside it. The Debian package has these three in `/usr/share/doc/dunlin/watching/`.\n\n\
             - `namespace` is the name of a channel namespace; `-` stands for channels without a namespace.\n\
             - `shard` is the index of a shard, starting at 0, and `thread` the index of a room thread.\n\
             - The `process_` metrics have the names of the official Prometheus client libraries.\n\
             - No label contains a value that clients choose, so the number of series depends only on the configuration.\n\n\
             | metric | type | labels | meaning |\n|---|---|---|---|\n",
        );
        for family in FAMILIES.iter() {
            let labels = family.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
            let _ = writeln!(text, "| `{}` | {} | {labels} | {} |", family.name, family.kind.name(), family.help);
        }
        text
    }
}
