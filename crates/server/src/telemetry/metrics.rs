//! Every metric that the node has: name, kind, labels and meaning, once. `schema/metrics.json` and `docs/metrics.md` are
//! written from this list, and the tests below fail when they are not.

/// What a sample's value does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows while the process lives.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Observations in buckets; its series end in `_bucket`, `_sum` and `_count`.
    Histogram,
}

/// One metric.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// Its name, with the unit at the end.
    pub name: &'static str,
    /// What its value does.
    pub kind: Kind,
    /// Its labels, in the order in which values are given.
    pub labels: &'static [&'static str],
    /// What it tells, in one sentence.
    pub help: &'static str,
}

impl Kind {
    /// The word of the exposition format.
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

macro_rules! families {
    ($($constant:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(
            #[doc = $help]
            #[allow(clippy::doc_markdown, reason = "the same words stand in the exposition")]
            pub static $constant: Family =
                Family { name: $name, kind: Kind::$kind, labels: &[$($label),*], help: $help };
        )*

        /// Every metric, in the order of the page.
        pub static FAMILIES: &[&Family] = &[$(&$constant,)*];
    };
}

families! {
    BUILD_INFO = Gauge "dunlin_build_info" ["version", "reactor"] "Always 1; the labels tell the version and what the shards wait on.";
    UPTIME = Gauge "dunlin_uptime_seconds" [] "Time since the node started.";
    PROCESS_CPU = Counter "dunlin_process_cpu_seconds_total" [] "Processor time of the process, user and kernel.";
    PROCESS_RESIDENT = Gauge "dunlin_process_resident_memory_bytes" [] "Memory of the process in RAM.";
    PROCESS_OPEN_FILES = Gauge "dunlin_process_open_fds" [] "Open file descriptors.";
    PROCESS_FILES_MAX = Gauge "dunlin_process_max_fds" [] "File descriptors that may be open.";
    PROCESS_THREADS = Gauge "dunlin_process_threads" [] "Threads of the process.";

    SESSIONS = Gauge "dunlin_sessions" ["shard"] "Sessions that have connected in the client protocol.";
    USERS = Gauge "dunlin_users" [] "Distinct users with a session.";
    CHANNELS = Gauge "dunlin_channels" [] "Channels that have subscribers.";
    SUBSCRIPTIONS = Gauge "dunlin_subscriptions" ["namespace"] "Subscriptions of sessions.";
    SESSIONS_OPENED = Counter "dunlin_sessions_opened_total" [] "Sessions opened.";

    PUBLICATIONS = Counter "dunlin_publications_total" ["namespace"] "Publications accepted by the channel's owner.";
    ENCODES = Counter "dunlin_encodes_total" ["namespace"] "Frames that publications, joins and leaves were encoded into, once for each encoding in use.";
    ENCODES_SKIPPED = Counter "dunlin_encodes_skipped_tag_total" ["namespace"] "Frames encoded again with the tag skipped, for sessions that had fallen behind.";
    DELIVERIES = Counter "dunlin_deliveries_total" ["namespace"] "Publications put into sessions' lanes.";
    JOIN_LEAVE_DELIVERIES = Counter "dunlin_join_leave_deliveries_total" ["namespace"] "Joins and leaves put into sessions' lanes.";
    SKIPPED = Counter "dunlin_skipped_total" ["namespace"] "Publications replaced by a newer one in a latest lane before they were written.";
    FILTERED = Counter "dunlin_tags_filtered_total" ["namespace"] "Publications that subscribers' tags filters kept from them.";
    PATCHES = Counter "dunlin_patches_total" ["namespace"] "Publications of which a difference to the one before was made.";
    SUPPRESSED = Counter "dunlin_publications_suppressed_total" ["namespace", "reason"] "Publications that were answered and not published, since their idempotency key or version was old.";
    RECOVERIES = Counter "dunlin_recoveries_total" ["namespace", "recovered"] "Recoveries asked for by subscribers, by whether nothing was missing.";
    RECOVERY_ANSWERS = Counter "dunlin_recovery_answers_total" ["namespace", "shared"] "Recoveries that brought publications, by whether these had been encoded for another one from the same position.";
    HISTORIES_CUT = Counter "dunlin_history_replies_cut_total" ["namespace"] "History replies to clients that end sooner than asked for, since they would have been too long.";
    PRESENCES_REFUSED = Counter "dunlin_presence_replies_refused_total" ["namespace"] "Presence replies to clients that would have been too long, answered with error 106.";
    PUBLISH_TO_SOCKET = Histogram "dunlin_publish_to_socket_seconds" ["namespace"] "Time from a publication's acceptance until a shard has given it to the last socket that took it at once.";

    COMMANDS = Counter "dunlin_commands_total" ["command"] "Commands from clients.";
    ERROR_REPLIES = Counter "dunlin_error_replies_total" ["code"] "Error replies to clients.";
    DISCONNECTS = Counter "dunlin_disconnects_total" ["code"] "Sessions closed by the server.";
    MALFORMED_FRAMES = Counter "dunlin_malformed_frames_total" [] "Messages from clients that were not of the protocol.";
    VIOLATIONS = Counter "dunlin_websocket_violations_total" [] "Breaches of the WebSocket protocol by clients.";
    SLOW_SESSIONS = Counter "dunlin_slow_sessions_total" ["reason"] "Sessions closed because they read too slowly: more bytes or more frames waited than may.";
    LATE_MESSAGES = Counter "dunlin_late_messages_total" [] "Messages between shards whose session or channel had gone.";
    USER_SESSIONS_REFUSED = Counter "dunlin_user_sessions_refused_total" [] "Sessions refused because their users had as many as they may.";
    SERVER_SUBSCRIPTIONS_REFUSED = Counter "dunlin_server_subscriptions_refused_total" [] "Subscriptions made by the API that their channels' owners refused.";

    QUEUE_BYTES = Gauge "dunlin_queue_bytes" ["shard"] "Bytes waiting in sessions' lanes.";
    QUEUE_FRAMES = Gauge "dunlin_queue_frames" ["shard"] "Frames waiting in sessions' lanes.";
    QUEUE_AGE = Gauge "dunlin_queue_age_seconds" ["shard"] "How long the longest-waiting frame has waited.";
    SESSIONS_BEHIND = Gauge "dunlin_sessions_behind" ["over_seconds"] "Sessions that have waited for their socket for longer than so many seconds.";

    CONNECTIONS = Gauge "dunlin_connections" ["shard"] "Sockets open on shards, handshakes included.";
    WEBSOCKETS = Gauge "dunlin_websockets" ["shard"] "WebSockets open on shards.";
    ACCEPTED = Counter "dunlin_connections_accepted_total" ["shard"] "Sockets accepted.";
    ACCEPT_FAILURES = Counter "dunlin_accept_failures_total" ["reason"] "Connections that could not be accepted.";
    REFUSED = Counter "dunlin_connections_refused_total" ["reason"] "Connections refused before they became a session.";
    PLACED = Counter "dunlin_connections_placed_total" ["shard"] "Sockets accepted by the shard and given to one with fewer.";
    IMBALANCE = Gauge "dunlin_shard_imbalance_ratio" [] "Sessions of the shard that has most, over the mean of all; 1 when they are spread evenly.";
    RATE_REFUSED = Counter "dunlin_rate_refused_total" ["what"] "Connects, recoveries and commands of one session answered with error 111 because too many came in a second.";
    ABANDONED = Counter "dunlin_connections_abandoned_total" [] "Connections that the peer ended before its request had come.";
    TRANSPORTS = Counter "dunlin_transport_sessions_opened_total" ["transport"] "Sessions opened, by their transport.";
    TLS_HANDSHAKES = Counter "dunlin_tls_handshakes_total" ["outcome"] "TLS handshakes that were finished, and connections whose TLS failed.";
    HANDED_OVER = Counter "dunlin_connections_handed_over_total" [] "Connections given to the HTTP server because their request was for another path than the WebSockets'.";
    OPENED_WEBSOCKETS = Counter "dunlin_websockets_opened_total" ["by"] "WebSockets opened, by a shard or on a kept-alive connection of the HTTP server.";

    READ_BYTES = Counter "dunlin_read_bytes_total" ["shard"] "Bytes read from sockets of shards.";
    WRITTEN_BYTES = Counter "dunlin_written_bytes_total" ["shard"] "Bytes given to the kernel for sockets of shards.";
    WRITES = Counter "dunlin_writes_total" ["shard"] "Calls that gave bytes to the kernel.";
    BLOCKED_WRITES = Counter "dunlin_blocked_writes_total" ["shard"] "Writes of which the socket took less than was offered.";
    REACTOR_CALLS = Counter "dunlin_reactor_calls_total" ["shard"] "Times that a shard on io_uring entered the kernel for it.";
    SEND_SUBMISSIONS = Counter "dunlin_send_submissions_total" ["shard"] "Of these, how often it was to submit sends.";
    SUBMITTED_SENDS = Counter "dunlin_submitted_sends_total" ["shard"] "Sends in all of these submissions.";
    BUFFERS_EMPTY = Counter "dunlin_receive_buffers_empty_total" ["shard"] "Receives on io_uring that found all of the shard's buffers filled, and went on later.";

    TURNS = Counter "dunlin_shard_turns_total" ["shard"] "Turns of the shard's loop.";
    BUSY = Counter "dunlin_shard_busy_seconds_total" ["shard"] "Time that the shard worked.";
    IDLE = Counter "dunlin_shard_idle_seconds_total" ["shard"] "Time that the shard waited for something to do.";
    BUSY_RATIO = Gauge "dunlin_shard_busy_ratio" ["shard"] "Share of the time since the page was last asked for (at first, since the start) that the shard worked, from 0 to 1.";
    HELD_TURNS = Counter "dunlin_shard_held_turns_total" ["shard"] "Turns that took in no sockets and no requests because messages to other shards waited.";
    WAKES = Counter "dunlin_shard_wakes_total" ["shard"] "Times that the shard woke another.";
    RING_MESSAGES = Counter "dunlin_ring_messages_total" ["shard"] "Messages that the shard sent to others.";
    RING_OVERFLOWED = Counter "dunlin_ring_overflowed_total" ["shard"] "Messages of the shard that found their ring full and had to wait.";
    RING_OVERFLOW = Gauge "dunlin_ring_overflow_messages" ["shard"] "Messages of the shard that wait for room in a ring.";
    RING_DEPTH = Gauge "dunlin_ring_depth_messages" ["shard"] "Messages that wait in the rings to the shard.";

    ROOMS = Gauge "dunlin_rooms" ["thread"] "Rooms that are open.";
    ROOM_PLAYERS = Gauge "dunlin_room_players" ["thread"] "Players in rooms.";
    ROOMS_OPENED = Counter "dunlin_rooms_opened_total" [] "Rooms opened.";
    ROOMS_REFUSED = Counter "dunlin_rooms_refused_total" ["namespace"] "Rooms that were not opened because as many were open as may be.";
    ROOMS_CLOSED = Counter "dunlin_rooms_closed_total" [] "Rooms closed, by the server API or because nobody was there.";
    ROOMS_FAILED = Counter "dunlin_rooms_failed_total" ["reason"] "Rooms that ended by themselves.";
    ROOM_JOINS = Counter "dunlin_room_joins_total" ["outcome"] "Joins of players, by whether the game let them in.";
    ROOM_TICKS = Counter "dunlin_room_ticks_total" ["thread"] "Ticks of rooms.";
    ROOM_TICK_DURATION = Histogram "dunlin_room_tick_seconds" ["thread"] "How long ticks took.";
    ROOM_TICK_LATENESS = Histogram "dunlin_room_tick_lateness_seconds" ["thread"] "How long after their time ticks began.";
    ROOM_TICK_LONGEST = Gauge "dunlin_room_tick_slowest_seconds" ["thread"] "The longest of a hundred of the last ticks, in the room where that is longest.";
    ROOM_TICKS_LATE = Counter "dunlin_room_ticks_late_total" ["thread"] "Ticks that began when the next one was due already.";
    ROOM_TICKS_SKIPPED = Counter "dunlin_room_ticks_skipped_total" ["thread", "reason"] "Ticks that were passed over: their time was too long ago, or too much waited for a shard.";
    ROOM_OVERRUNS = Counter "dunlin_room_overruns_total" ["thread"] "Ticks that took longer than their interval.";
    ROOM_LOAD = Gauge "dunlin_room_thread_load_ratio" ["thread"] "Share of the last second or so that games' code ran, from 0 to 1.";
    ROOM_BUSY = Counter "dunlin_room_thread_busy_seconds_total" ["thread"] "Time that games' code ran.";
    ROOM_THREADS_REPLACED = Counter "dunlin_room_threads_replaced_total" ["thread"] "Times that a room thread was given up because a game did not come back.";
    ROOM_THREADS_LOST = Gauge "dunlin_room_threads_lost" ["thread"] "Threads that were given up and have not come back.";
    ROOM_PRIORITY = Gauge "dunlin_room_thread_priority" ["thread"] "1 if the kernel lets the room thread go before others.";
    ROOM_INPUTS = Counter "dunlin_room_inputs_total" ["outcome"] "Inputs of players: applied, senseless to the game, or refused for a reason.";
    ROOM_EVENTS = Counter "dunlin_room_events_total" [] "Events of rooms.";
    ROOM_PUBLICATIONS = Counter "dunlin_room_publications_total" ["outcome"] "Publications of rooms in other channels.";
    ROOM_KEYFRAMES = Counter "dunlin_room_keyframes_total" [] "Whole worlds sent to shards.";
    ROOM_UPDATES = Counter "dunlin_room_updates_total" [] "Changes of worlds sent to shards.";
    ROOM_RECORDINGS_CUT = Counter "dunlin_room_recordings_cut_total" [] "Recordings that ended before their room because the disk was too slow, or failed.";
    ROOM_FRAMES = Counter "dunlin_room_frames_total" ["namespace"] "Frames of what players see that were begun to be written.";
    ROOM_FRAME_BYTES = Counter "dunlin_room_frame_bytes_total" ["namespace"] "Bytes of those.";
    ROOM_BODIES = Counter "dunlin_room_bodies_total" ["namespace"] "Bodies of frames asked for, most of which others had asked for before.";
    ROOM_SKIPPED = Counter "dunlin_room_frames_skipped_total" ["namespace"] "Ticks that players were not sent because newer ones replaced them.";
    ROOM_ASSEMBLIES = Counter "dunlin_room_assemblies_total" ["namespace", "kind"] "Bodies of frames put together: from the last tick, from a tick before it, or in full.";

    TOKENS = Counter "dunlin_tokens_total" ["outcome"] "Tokens judged: accepted, expired, refused, or not to be judged at the time.";
    TOKEN_CACHE = Counter "dunlin_token_cache_total" ["result"] "Tokens signed for public keys, by whether they had been verified before.";
    TOKEN_SIGNATURES = Counter "dunlin_token_signatures_total" [] "Signatures of tokens by public keys that were checked.";
    TOKENS_WAITING = Gauge "dunlin_tokens_waiting" [] "Tokens that wait for their signature to be checked, or for keys.";
    KEY_FETCHES = Counter "dunlin_token_key_fetches_total" ["outcome"] "Fetches of key sets (JWKS).";

    BACKEND_CALLS = Counter "dunlin_backend_calls_total" ["proxy", "type", "outcome"] "Questions to backends, by what came of them.";
    BACKEND_DURATION = Histogram "dunlin_backend_seconds" ["proxy", "type"] "How long backends took to answer, or not to.";
    BACKEND_WAITING = Gauge "dunlin_backend_waiting" ["proxy"] "Questions that wait for a backend's answer.";
    BACKEND_OPEN = Gauge "dunlin_backend_breaker_open" ["proxy"] "1 while a backend is left alone because it failed too often in a row.";

    API_REQUESTS = Counter "dunlin_api_requests_total" ["method"] "Requests of the server API, those inside of batches included.";
    API_ERRORS = Counter "dunlin_api_errors_total" ["method", "code"] "Error answers of the server API.";
    TLS_RELOADS = Counter "dunlin_tls_certificate_reloads_total" ["outcome"] "Times that changed certificates were taken up, or could not be and those from before were kept.";
    HTTP_CONNECTIONS = Gauge "dunlin_http_connections" [] "Connections open on the HTTP server.";
    HTTP_REFUSED = Counter "dunlin_http_refused_total" ["reason"] "HTTP connections and requests refused before they were looked into.";
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, fmt::Write as _, fs, path::PathBuf};

    use super::*;

    #[test]
    fn names_follow_the_conventions() {
        let mut seen = HashSet::new();
        for family in FAMILIES {
            assert!(seen.insert(family.name), "{} stands there twice", family.name);
            assert!(family.name.starts_with("dunlin_"), "{}", family.name);
            assert!(family.name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'_')), "{}", family.name);
            assert_eq!(family.name.ends_with("_total"), family.kind == Kind::Counter, "{}", family.name);
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

    /// Compares a committed file with what the list says; with `DUNLIN_WRITE=1` in the environment it is written.
    fn prove_fresh(path: &str, expected: &str) {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
        if std::env::var_os("DUNLIN_WRITE").is_some_and(|value| value == "1") {
            fs::write(&file, expected).expect("the file is writable");
        }
        let committed = fs::read_to_string(&file).unwrap_or_default();
        assert!(
            committed == expected,
            "{path} is not what the code says; DUNLIN_WRITE=1 cargo test -p dunlin fresh writes it"
        );
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
             `GET /metrics` (`prometheus.enabled`, `prometheus.handler_prefix`) answers with the Prometheus text format,\n\
             computed at that moment. This page is written from the code; `schema/metrics.json` is the same for programs.\n\n\
             - `namespace` is the name of a channel namespace of the configuration; `-` stands for channels without one.\n\
             - `shard` is the number of a shard, from 0, and `thread` that of a room thread.\n\
             - No label holds a value that clients choose: the number of series depends on the configuration alone.\n\n\
             | metric | type | labels | what it tells |\n|---|---|---|---|\n",
        );
        for family in FAMILIES {
            let labels = family.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
            let _ = writeln!(text, "| `{}` | {} | {labels} | {} |", family.name, family.kind.name(), family.help);
        }
        text
    }
}
