//! All queues, in the order of ARCHITECTURE.md's table.

use crate::{Bound, Bytes, Queue};

macro_rules! queues {
    ($($(#[$why:meta])* $constant:ident = $holds:literal, $messages:expr, $bytes:expr, $when_full:literal;)*) => {
        $(
            #[doc = $holds]
            #[doc = ""]
            $(#[$why])*
            pub const $constant: Queue =
                Queue { holds: $holds, messages: $messages, bytes: $bytes, when_full: $when_full };
        )*

        /// Every queue.
        pub const QUEUES: &[Queue] = &[$($constant,)*];
    };
}

const fn fixed(max: usize) -> Bound {
    Bound { max, key: None }
}

const fn keyed(max: usize, key: &'static str) -> Bound {
    Bound { max, key: Some(key) }
}

const fn counted(max: usize) -> Bytes {
    Bytes::Counted(fixed(max))
}

const fn counted_by_key(max: usize, key: &'static str) -> Bytes {
    Bytes::Counted(keyed(max, key))
}

/// Space for a message without variable parts, or with the name of a channel (`channel.max_length`, 255 bytes).
const SMALL: usize = 1_024;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

queues! {
    /// The receiver publishes what it has taken once per turn, so that a message costs no shared write.
    SHARD_RING = "messages in a ring between two shards",
        keyed(1_024, "net.ring_messages_limit"), counted(16 * MIB),
        "wait in the sender, which stops reading sockets";
    /// See [`SHARD_RING`].
    ROOM_RING = "messages in a ring between a room thread and a shard, or the relay, in each direction",
        keyed(1_024, "room.ring_messages_limit"), counted(16 * MIB),
        "wait in the sender: rooms with messages for the shard skip ticks; the bounds on inputs and subscriptions, and the ticks that the room has sent, limit what waits in the shard";
    /// Waiting costs the HTTP server a place of `http_api.requests_limit`. The requester counts the bytes until it has
    /// the answer.
    SHARD_INBOX = "requests of the HTTP server that wait for a shard, and bytes of these and of those in progress",
        keyed(1_024, "net.inbox_requests_limit"), counted(64 * MIB),
        "wait, and time out as requests";
    /// Each message is the sender of an answer, and of a request for sessions a reference to the query, which they share.
    REPORT_REQUESTS = "requests for a shard's report, or for a list of its sessions",
        fixed(16), Bytes::OfMessage(SMALL), "wait for 750 ms, then the metrics page, the health check or the list names the shard";
    /// Messages of other nodes are refused when it is full. Answers without content are not, because their requests are
    /// bounded: proposals, loads, follows, tokens and backend requests.
    SHARD_EVENTS = "answers for a shard, and messages of other nodes",
        fixed(262_144), counted(64 * MIB),
        "a page, a backend response and presence become error 111, and keys an incomplete answer; the subscribers of the channel resubscribe; a broadcast is dropped; a user's number of sessions is sent later";
    /// A head of a request (`net.request_head_limit`), and what one read has brought behind it.
    HANDED_OVER = "connections on their way from a shard to the HTTP server; 64 of them for operators",
        fixed(256 + 64), Bytes::OfMessage(128 * KIB), "503";
    ACCEPTED = "connections to the internal port that wait for their task",
        fixed(16), Bytes::OfMessage(SMALL), "wait in the backlog of the listener";
    MATCH_REQUESTS = "requests for matchmaking", fixed(4_096), counted(16 * MIB), "error 111";
    REPLAY_QUESTIONS = "questions of the page of `dunlin replay` that wait for the game",
        fixed(16), Bytes::OfMessage(SMALL), "503";
    /// Longer lines are dropped, so they have the size of `LOG_LINE_BYTES_MAX`.
    LOG_LINES = "log lines",
        keyed(4_096, "log.queue_limit"), Bytes::OfMessage(LOG_LINE_BYTES_MAX), "dropped and counted";

    /// Tokens wait until they are verified, also for a key set.
    TOKENS = "tokens that wait for a public-key verification",
        keyed(65_536, "client.token_queue_limit"), counted(64 * MIB), "error 100";
    /// A place is held until the response has arrived. The request of a session is one of its messages
    /// (`websocket.message_size_limit`); a call of a game is smaller (`room.call_size_limit`).
    BACKEND_CALLS = "requests to a proxy that wait or are in progress",
        keyed(256, "requests_limit of the proxy"), Bytes::OfMessage(64 * KIB), "error 111";
    /// Those of the request that is being sent have left it (`webhooks.batch_size`).
    WEBHOOK_EVENTS = "events for `webhooks.endpoint` that wait for its thread",
        keyed(262_144, "webhooks.queue_limit"), counted_by_key(64 * MIB, "webhooks.queue_size_limit"),
        "dropped and counted";
    /// A batch of at most 512 that is being sent has left it.
    OTLP_SPANS = "spans that wait for the collector",
        keyed(2_048, "opentelemetry.queue_limit"), counted(8 * MIB), "dropped and counted";
    /// As many as there are requests to all proxies.
    RETURNED_CALLS = "backend responses for the games of a room thread",
        fixed(65_536), counted(64 * MIB), "the game receives an error";

    /// Rooms that are opened are bounded by `room.opening_limit`, and rooms that end by `room.max_rooms`. Their worlds
    /// count in `room.total_memory_limit`.
    ROOM_TASKS = "rooms to create and to drop, which wait for the room builder",
        fixed(256 + 10_000), Bytes::OfMessage(SMALL), "room.opening_limit: error 111; each room ends once";
    /// See [`ROOM_TASKS`].
    MADE_ROOMS = "rooms that were created, which wait for their room thread",
        fixed(256), Bytes::OfMessage(SMALL), "room.opening_limit: error 111";
    RECORDING_CHUNKS = "chunks of a room's recording that wait for the disk",
        fixed(64), counted(16 * MIB), "the recording ends";
    /// A block has at most 4,096 bytes. The names of users and channels are shared with the room.
    PATH_BLOCKS = "blocks of players' paths that wait for the storage",
        keyed(16_384, "room.paths_queue_limit"), Bytes::OfMessage(4_096 + 128), "dropped and counted";

    /// The writer also receives one task to stop.
    STORAGE_WRITES = "requests that wait for the storage's writer",
        keyed(65_536, "storage.queue_writes_limit"), counted_by_key(64 * MIB, "storage.queue_bytes_limit"),
        "error 111; a touch is dropped";
    STORAGE_READS = "requests that wait for the storage's readers",
        keyed(16_384, "storage.queue_reads_limit"), Bytes::OfMessage(SMALL), "error 111";

    /// Follows, unfollows and messages of the protocol of peers are never refused, because the shard and the cluster's
    /// thread would disagree; each is small, and most are answers.
    CLUSTER_REQUESTS = "publications, loads and broadcasts that wait for the cluster's thread",
        keyed(16_384, "broker.nats.jetstream.requests_limit"),
        counted_by_key(64 * MIB, "broker.nats.jetstream.requests_size_limit"),
        "error 111; broadcasts take half of it, and are dropped beyond";
    /// Over all three connections. One turn of the cluster's thread may exceed it.
    LINK_EFFECTS = "operations that wait for the connections to NATS",
        fixed(8_192), counted(32 * MIB), "the cluster's thread takes no requests";
    /// A frame is at most half a mebibyte and its head.
    NODE_FRAMES_OUT = "frames about rooms that wait for the connection to NATS; a quarter for one node",
        fixed(16_384), counted(64 * MIB), "dropped: the rooms and players between the two nodes end, and clients join again";
    /// See [`NODE_FRAMES_OUT`].
    NODE_FRAMES_IN = "frames about rooms of other nodes that wait for the relay",
        fixed(16_384), counted(64 * MIB), "dropped, as above";
    /// Answers are bounded by what is asked for, and count as well.
    LINK_EVENTS = "messages of NATS that wait for the cluster's thread",
        keyed(65_536, "broker.nats.jetstream.messages_limit"),
        counted_by_key(64 * MIB, "broker.nats.jetstream.messages_size_limit"),
        "dropped, then read from the stream";
    /// The client bounds the number. The connection's task counts the bytes until the client has written them. More commands
    /// bring nothing: in five pairs of runs of `cluster_rate` with 1,000 publications in flight, the rate in units of a bare
    /// client's was 0.23 with 256 commands and 0.19 with 16,384 (medians).
    NATS_COMMANDS = "commands that a connection's NATS client has not written",
        fixed(256), counted(8 * MIB), "the connection's task waits; after one second without progress the connection is reopened";
    /// Tasks that never wait pass the messages of all subscriptions on to [`LINK_EVENTS`] before the client reads again.
    /// Tokio lets a task read 128 times, and the client reads up to 64 KiB.
    NATS_SUBSCRIPTION = "messages of one NATS subscription; bytes of all that one turn of the client reads",
        fixed(65_536), counted(8 * MIB), "dropped, then read from the stream";
    /// Texts are cut.
    NATS_NOTICES = "events about a connection to NATS",
        fixed(128), Bytes::OfMessage(SMALL), "the client waits";
    NODE_QUERIES = "requests of other nodes",
        keyed(256, "broker.nats.peers.queries_limit"), counted(32 * MIB),
        "refused; the result there is partial";
    /// The questions of shards have queues by kind, so that no kind delays another.
    PRESENCE_QUESTIONS = "requests of shards for the presence of a channel on other nodes",
        fixed(1_024), Bytes::OfMessage(SMALL), "error 111";
    KEY_QUESTIONS = "requests of shards for the keys of a channel on other nodes",
        fixed(1_024), Bytes::OfMessage(SMALL), "an incomplete answer";
    ROOM_QUESTIONS = "requests of shards for the room of a channel on other nodes",
        fixed(1_024), Bytes::OfMessage(SMALL), "error 111";
}

/// Maximum size of a log line; longer ones are dropped. Events are shorter, because outside texts are shortened.
pub const LOG_LINE_BYTES_MAX: usize = 16 * KIB;

#[cfg(test)]
mod tests {
    use std::{fmt::Write as _, fs, path::PathBuf};

    use super::*;

    const PAGE: &str = "ARCHITECTURE.md";
    const BEGIN: &str =
        "| queues between threads, and to NATS | default | key | when it is full |\n|---|---|---|---|\n";

    /// With `DUNLIN_WRITE=1` in the environment, writes the table anew.
    #[test]
    fn the_table_of_queues_is_fresh() {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
        let page = fs::read_to_string(&file).expect("the page is in the repository");
        let (before, rest) = page.split_once(BEGIN).expect("the page has the table");
        let (_, after) = rest.split_once("\n\n").expect("an empty line ends the table");
        let expected = format!("{before}{BEGIN}{}\n{after}", rows());
        if std::env::var_os("DUNLIN_WRITE").is_some_and(|value| value == "1") {
            fs::write(&file, &expected).expect("the file is writable");
        }
        let committed = fs::read_to_string(&file).unwrap_or_default();
        assert!(committed == expected, "{PAGE} is stale; DUNLIN_WRITE=1 cargo test -p dunlin-queues fresh rewrites it");
    }

    #[test]
    fn no_queue_is_large() {
        for queue in QUEUES {
            assert!(queue.messages.max > 0 && queue.bytes_max() > 0, "{}", queue.holds);
            assert!(queue.bytes_max() <= 70 * MIB, "{}: {} bytes", queue.holds, queue.bytes_max());
        }
    }

    fn rows() -> String {
        let mut text = String::new();
        for Queue { holds, messages, bytes, when_full } in QUEUES.iter().copied() {
            let number = with_commas(messages.max);
            let (bytes, keys) = match bytes {
                Bytes::Counted(bound) if messages.key.is_none() && bound.key.is_none() => {
                    (size(bound.max), "–".to_owned())
                }
                Bytes::Counted(bound) => (size(bound.max), format!("{}; {}", key(messages.key), key(bound.key))),
                Bytes::OfMessage(each) => {
                    (format!("{} each, {}", size(each), size(each * messages.max)), key(messages.key))
                }
            };
            let _ = writeln!(text, "| {holds} | {number}; {bytes} | {keys} | {when_full} |");
        }
        text
    }

    /// The first word is the key, and the rest says whose key it is.
    fn key(key: Option<&str>) -> String {
        match key.map(|key| key.split_once(' ').unwrap_or((key, ""))) {
            None => "–".to_owned(),
            Some((key, "")) => format!("`{key}`"),
            Some((key, owner)) => format!("`{key}` {owner}"),
        }
    }

    fn size(bytes: usize) -> String {
        match bytes {
            bytes if bytes >= MIB && bytes % MIB == 0 => format!("{} MiB", with_commas(bytes / MIB)),
            bytes if bytes >= 10 * MIB => format!("{} MiB", with_commas(bytes.div_ceil(MIB))),
            bytes if bytes >= KIB && bytes % KIB == 0 => format!("{} KiB", with_commas(bytes / KIB)),
            bytes => format!("{} bytes", with_commas(bytes)),
        }
    }

    fn with_commas(number: usize) -> String {
        let digits = number.to_string();
        let mut text = String::new();
        for (place, digit) in digits.chars().enumerate() {
            if place > 0 && (digits.len() - place).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        text
    }
}
