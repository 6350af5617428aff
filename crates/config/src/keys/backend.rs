//! Keys about what nodes share: `engine` and `broker`. Of Centrifugo's brokers, Dunlin has `nats`.

use super::{
    COUNT, Key,
    ValueKind::{Bool, Choice, Duration, Int, Secret, Text, Url},
    own, table, yes,
};

pub(super) const TOP: &[Key] = &[
    table("engine", &[], "Where channels live."),
    table("broker", &[BROKER], "What connects the nodes of a cluster; see clustering.md."),
];

const BROKER: &[Key] = &[
    yes("enabled", Bool, "false", "Whether `type` counts. Without it, the node is on its own."),
    yes(
        "type",
        Choice(&["memory", "nats", "redis", "postgres", "redisnats"]),
        "memory",
        "`nats`: nodes share channels through NATS JetStream, with history and recovery. Dunlin has no other broker.",
    ),
    table("nats", &[NATS_BROKER], "The NATS servers."),
];

const NATS_BROKER: &[Key] = &[
    yes(
        "url",
        Url,
        "nats://localhost:4222",
        "Addresses of the NATS servers, with commas between them. They may contain a user and a password, or a token.",
    ),
    yes(
        "prefix",
        Text,
        "centrifugo",
        "Begins the names of all subjects and streams. Two clusters on the same servers need different ones.",
    ),
    yes("dial_timeout", Duration, "1s", "Timeout for opening a connection to a server."),
    table("tls", &[NATS_TLS], "TLS to the servers. Without it, the servers decide."),
    table("jetstream", &[JETSTREAM], "Streams that keep the publications. Centrifugo does not have this table."),
    table("peers", &[PEERS], "How nodes notice and ask each other. Centrifugo does not have this table."),
];

const NATS_TLS: &[Key] = &[
    yes("enabled", Bool, "false", "Encrypt the connections, and apply the keys of this table."),
    yes(
        "server_ca_pem",
        Text,
        "",
        "CA certificates that verify the servers, instead of the system's: the path of a PEM file, PEM text, or base64 of PEM text.",
    ),
    yes("cert_pem", Text, "", "The client certificate that Dunlin presents, in the same forms as `server_ca_pem`."),
    yes("key_pem", Secret, "", "The private key of `cert_pem`, in the same forms."),
    yes("insecure_skip_verify", Bool, "false", "Accept any certificate. For development only."),
];

const PEERS: &[Key] = &[
    own(
        "heartbeat_interval",
        Duration,
        "500ms",
        "Time between two heartbeats of the node, and between two renewals of its lease.",
    ),
    own(
        "silence_timeout",
        Duration,
        "1.5s",
        "A node without a heartbeat for this time does not count any more: it is not asked, and answers are complete without \
         it. A lease without a renewal for this time is taken.",
    ),
    own(
        "window_timeout",
        Duration,
        "100ms",
        "How long a recovery waits for the publications that another node has in memory. After it the stream is read.",
    ),
    own(
        "windows_limit",
        COUNT,
        "1024",
        "Channels about which the node asks another node at a time. At most 16 times as many recoveries wait for the answers. \
         Further ones read the stream.",
    ),
    own("nodes_limit", Int(1, 10_000), "256", "Other nodes that the node knows. Further ones are not asked."),
    own(
        "survey_timeout",
        Duration,
        "1s",
        "How long the node waits for the answers of others, for example to `presence`. Then it answers with what is there.",
    ),
    own(
        "surveys_limit",
        COUNT,
        "256",
        "Surveys that wait for answers. Further requests get error 100. \
         Questions about presence, about keys and about rooms take at most an eighth each. Clients' requests about tickets of \
         matchmaking take a sixteenth, and those of an address an eighth of that; further ones get error 111.",
    ),
    own(
        "forwards_limit",
        COUNT,
        "128",
        "Requests to `/emulation` that are being forwarded to other nodes. An address may have an eighth of them. Further \
         requests get 503. Each is a survey, so no more than half of `surveys_limit` are forwarded.",
    ),
    own(
        "survey_bytes_limit",
        COUNT,
        "67108864",
        "Bytes of the answers to all surveys that wait. An answer beyond it counts as missing.",
    ),
    own(
        "presence_limit",
        COUNT,
        "16384",
        "Clients' requests for presence that wait for other nodes, for each shard. Further ones get error 111.",
    ),
    own(
        "queries_limit",
        COUNT,
        "256",
        "Questions of other nodes that the node answers at a time. It refuses further ones.",
    ),
    own(
        "users_limit",
        COUNT,
        "1000000",
        "Users with sessions on other nodes that count for `client.user_connection_limit`, on the whole node and not for each \
         shard. A user counts once for each other node. Further ones count on each node by itself. While a shard's queue is \
         full, up to this many updates wait for it.",
    ),
];

const JETSTREAM: &[Key] = &[
    own("replicas", Int(1, 5), "3", "Servers that keep a copy of each publication. 1 with a single server."),
    own(
        "storage",
        Choice(&["file", "memory"]),
        "file",
        "Where the servers keep publications. `memory` is for tests: history is slower to read, and a restart loses it.",
    ),
    own(
        "partitions",
        Int(1, 64),
        "1",
        "Streams of a namespace that has none yet. Later it is what the first stream says. 1 suffices up to 1,000 \
         publications per second.",
    ),
    own("publish_window", Int(1, 65_536), "1024", "Publications that the node has sent and NATS has not acknowledged."),
    own("publish_timeout", Duration, "10s", "How long a publication is tried. After it the publisher gets error 100."),
    own("linger", Duration, "30s", "How long the node follows a channel after its last subscriber has left."),
    own(
        "linger_limit",
        COUNT,
        "4096",
        "Channels that the node follows without subscribers; channels without history count separately. Beyond it, the one that has waited for longest is no longer followed. Channels that only one user (an anonymous one: one address) has used take at most an eighth of it.",
    ),
    own(
        "follow_timeout",
        Duration,
        "1s",
        "How long the node's first subscription to a channel without history waits until the NATS servers of all nodes know of \
         it. After it the subscription is accepted, and the first publications of other nodes may be missing.",
    ),
    own("audit_interval", Duration, "30s", "Time between two comparisons of the newest publications with the streams."),
    own("gap_timeout", Duration, "1s", "How long a gap may stay open before subscribers recover."),
    own(
        "silence_timeout",
        Duration,
        "5s",
        "How long a connection may bring nothing of what the node asks for. Then the node connects to the next server.",
    ),
    own(
        "shared_reads_min",
        Int(1, 65_536),
        "25",
        "Recoveries and gaps of a stream that wait. From this number on, one read of the stream serves all of them.",
    ),
    own(
        "keys_size_limit",
        COUNT,
        "33554432",
        "Bytes of the idempotency keys that the node has seen in streams and remembers for five minutes, also when the \
         servers restart. At the limit, the oldest are forgotten.",
    ),
    own("start_timeout", Duration, "30s", "How long servers may be out of reach when the node starts."),
    own(
        "requests_limit",
        COUNT,
        "16384",
        "Publications and loads that wait for the cluster thread. Beyond it, error 111.",
    ),
    own(
        "requests_size_limit",
        COUNT,
        "67108864",
        "Bytes of publications and broadcasts that wait for the cluster thread. Beyond it, error 111. Broadcasts take at most half of it, and are dropped beyond.",
    ),
    own(
        "messages_limit",
        Int(1, 1 << 20),
        "65536",
        "Messages of NATS that wait for the cluster thread. Beyond it they are dropped, and read from the stream.",
    ),
    own(
        "messages_size_limit",
        COUNT,
        "67108864",
        "Bytes of messages of NATS that wait for the cluster thread. Beyond it they are dropped, and read from the stream.",
    ),
];
