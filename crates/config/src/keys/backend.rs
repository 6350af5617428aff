//! Keys about shared state in Centrifugo: `engine`, `broker`, `presence_manager`, `map_broker`, `controller`, and
//! `consumers`. Of these, Dunlin has the broker `nats`.

use super::{
    COUNT, ENABLED, Key, NUMBER, REDIS, TLS,
    ValueKind::{Any, Bool, Choice, Duration, Int, Secret, Tables, Text, Texts, Url},
    needless, own, part, part_table, refused, refused_table, table, warned_table, yes,
};

const SHARING: &str = "Dunlin shares channels and presence between nodes only through NATS, with `broker.type` `nats` (docs/clustering.md)";
const UNUSED: &str = "it has no effect with the engine `memory`";

pub(super) const TOP: &[Key] = &[
    table("engine", &[ENGINE], "Where channels live."),
    table("broker", &[BROKER], "What connects the nodes of a cluster; see clustering.md."),
    refused_table("presence_manager", &[ENABLED, &[TYPE, part_table("redis", &[REDIS, REDIS_PRESENCE])]], SHARING),
    warned_table(
        "map_broker",
        &[&[
            TYPE,
            part_table("redis", &[REDIS, REDIS_MAP]),
            part_table("postgres", &[POSTGRES_BROKER, &[part("ttl_check_interval", Duration, "1s")]]),
        ]],
        "Dunlin has no map subscriptions yet",
    ),
    refused_table(
        "controller",
        &[
            ENABLED,
            &[
                part("type", Text, ""),
                part_table("postgres", &[POSTGRES_CONTROLLER]),
                part_table("redis", &[REDIS]),
                part_table("nats", &[NATS]),
            ],
        ],
        SHARING,
    ),
    refused(
        "consumers",
        Tables(&[ENABLED, CONSUMER]),
        "",
        "Dunlin does not consume queues yet, so publications from them would be lost",
    ),
];

const TYPE: Key = part("type", Text, "memory");

const ENGINE: &[Key] = &[
    // `redis.rs` has the message.
    refused("type", Choice(&["", "memory", "redis"]), "memory", SHARING),
    warned_table("redis", &[REDIS, REDIS_HISTORY, REDIS_PRESENCE], UNUSED),
];

const REDIS_HISTORY: &[Key] = &[part("history_use_lists", Bool, "false")];

const REDIS_PRESENCE: &[Key] = &[
    part("presence_ttl", Duration, "60s"),
    part("presence_hash_field_ttl", Bool, "false"),
    part("presence_user_mapping", Bool, "false"),
];

const REDIS_MAP: &[Key] = &[
    part("cleanup_interval", Duration, "1s"),
    part("cleanup_batch_size", NUMBER, "100"),
    part("idempotent_result_ttl", Duration, "5m"),
    part("skip_pub_sub", Bool, "false"),
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
    warned_table("redis", &[REDIS, REDIS_HISTORY], NATS_ONLY),
    warned_table("postgres", &[POSTGRES_BROKER], NATS_ONLY),
    warned_table(
        "redisnats",
        &[&[part_table("redis", &[REDIS, REDIS_HISTORY]), part_table("nats", &[NATS])]],
        NATS_ONLY,
    ),
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
    needless("write_timeout", Duration, "1s", "a connection that takes no bytes for a second is opened again"),
    table("tls", &[NATS_TLS], "TLS to the servers. Without it, the servers decide."),
    refused("allow_wildcards", Bool, "false", "Dunlin has no subscriptions with wildcards"),
    refused_table(
        "raw_mode",
        &[ENABLED, &[part("channel_replacements", Any, ""), part("prefix", Text, "")]],
        "Dunlin's channels are not plain subjects of NATS",
    ),
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
    refused("server_name", Text, "", "the certificate must have the host name of `broker.nats.url`"),
    yes("insecure_skip_verify", Bool, "false", "Accept any certificate. For development only."),
    needless("client_ca_pem", Text, "", "it applies only to TLS servers"),
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
         Questions about presence, about keys and about rooms take at most an eighth each.",
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

const NATS_ONLY: &str = "of Centrifugo's brokers, Dunlin has only `nats`";

const NATS: &[Key] = &[
    part("url", Secret, "nats://localhost:4222"),
    part("prefix", Text, "centrifugo"),
    part("dial_timeout", Duration, "1s"),
    part("write_timeout", Duration, "1s"),
    part_table("tls", TLS),
    part("allow_wildcards", Bool, "false"),
    part_table("raw_mode", &[ENABLED, &[part("channel_replacements", Any, ""), part("prefix", Text, "")]]),
];

const POSTGRES_BROKER: &[Key] = &[
    part("dsn", Secret, ""),
    part("pool_size", NUMBER, "16"),
    part("num_shards", NUMBER, "8"),
    part("cleanup_interval", Duration, "1m"),
    part("idempotent_result_ttl", Duration, "5m"),
    part("binary_data", Bool, "false"),
    part("stream_retention", Duration, "24h"),
    part("use_notify", Bool, "false"),
    part("notify_dsn", Secret, ""),
    part("table_prefix", Text, "cf"),
    part("skip_schema_init", Bool, "false"),
    part_table("outbox", &[&[part("poll_interval", Duration, "100ms"), part("batch_size", NUMBER, "1000")]]),
    part("partition_lookahead_days", NUMBER, "2"),
    part("partition_retention_days", NUMBER, "7"),
];

const POSTGRES_CONTROLLER: &[Key] = &[
    part("dsn", Secret, ""),
    part("pool_size", NUMBER, "8"),
    part("num_shards", NUMBER, "1"),
    part("table_prefix", Text, "cf"),
    part("poll_interval", Duration, "50ms"),
    part("use_notify", Bool, "false"),
    part("notify_dsn", Secret, ""),
    part("partition_retention_days", NUMBER, "1"),
    part("partition_lookahead_days", NUMBER, "2"),
    part("partition_cleanup_interval", Duration, "1m"),
    part("batch_size", NUMBER, "1000"),
    part("skip_schema_init", Bool, "false"),
];

const CONSUMER: &[Key] = &[
    part("name", Text, ""),
    part("type", Text, ""),
    part_table("postgresql", &[POSTGRESQL]),
    part_table("kafka", &[KAFKA]),
    part_table("nats_jetstream", &[NATS_JETSTREAM]),
    part_table("redis_stream", &[REDIS, REDIS_STREAM]),
    part_table("google_pub_sub", &[GOOGLE_PUB_SUB]),
    part_table("aws_sqs", &[AWS_SQS]),
    part_table("azure_service_bus", &[AZURE_SERVICE_BUS]),
];

/// A key of all consumers except `postgresql`. Its nested keys name header fields.
const DATA_MODE: Key = part("publication_data_mode", Any, "");

const POSTGRESQL: &[Key] = &[
    part("dsn", Secret, ""),
    part("outbox_table_name", Text, ""),
    part("num_partitions", NUMBER, "1"),
    part("partition_select_limit", NUMBER, "100"),
    part("partition_poll_interval", Duration, "300ms"),
    part("partition_notification_channel", Text, ""),
    part("partition_notification_dsn", Secret, ""),
    part("use_try_lock", Bool, "false"),
    part_table("tls", TLS),
];

const KAFKA: &[Key] = &[
    part("brokers", Texts, ""),
    part("topics", Texts, ""),
    part("consumer_group", Text, ""),
    part("max_poll_records", NUMBER, "100"),
    part("fetch_max_bytes", NUMBER, "0"),
    part("fetch_max_wait", Duration, "500ms"),
    part("fetch_read_uncommitted", Bool, "false"),
    part("partition_queue_max_size", NUMBER, "1000"),
    part("dial_timeout", Duration, "3s"),
    part("sasl_mechanism", Text, ""),
    part("sasl_user", Text, ""),
    part("sasl_password", Secret, ""),
    part("assume_role_arn", Text, ""),
    part("instance_id", Text, ""),
    part_table("tls", TLS),
    part("method_header", Text, "centrifugo-method"),
    DATA_MODE,
];

const NATS_JETSTREAM: &[Key] = &[
    part("url", Secret, "nats://127.0.0.1:4222"),
    part("credentials_file", Text, ""),
    part("username", Text, ""),
    part("password", Secret, ""),
    part("token", Secret, ""),
    part("stream_name", Text, ""),
    part("use_existing_consumer", Bool, "false"),
    part("subjects", Texts, ""),
    part("durable_consumer_name", Text, ""),
    part("deliver_policy", Text, "new"),
    part("max_ack_pending", NUMBER, "100"),
    part("method_header", Text, "centrifugo-method"),
    part_table("tls", TLS),
    DATA_MODE,
];

const REDIS_STREAM: &[Key] = &[
    part("streams", Texts, ""),
    part("consumer_group", Text, ""),
    part("visibility_timeout", Duration, "30s"),
    part("num_workers", NUMBER, "1"),
    part("payload_value", Text, "payload"),
    part("method_value", Text, "method"),
    DATA_MODE,
];

const GOOGLE_PUB_SUB: &[Key] = &[
    part("project_id", Text, ""),
    part("subscriptions", Texts, ""),
    part("max_outstanding_messages", NUMBER, "100"),
    part("max_outstanding_bytes", NUMBER, "1000000"),
    part("auth_mechanism", Text, ""),
    part("credentials_file", Text, ""),
    part("method_attribute", Text, ""),
    DATA_MODE,
];

const AWS_SQS: &[Key] = &[
    part("queues", Texts, ""),
    part("sns_envelope", Bool, "false"),
    part("region", Text, ""),
    part("max_number_of_messages", NUMBER, "10"),
    part("wait_time_time", Duration, "20s"),
    part("visibility_timeout", Duration, "30s"),
    part("max_concurrency", NUMBER, "1"),
    part("credentials_profile", Text, ""),
    part("assume_role_arn", Text, ""),
    part("method_attribute", Text, ""),
    part("localstack_endpoint", Text, ""),
    DATA_MODE,
];

const AZURE_SERVICE_BUS: &[Key] = &[
    part("connection_string", Secret, ""),
    part("use_azure_identity", Any, ""),
    part("fully_qualified_namespace", Text, ""),
    part("tenant_id", Text, ""),
    part("client_id", Text, ""),
    part("client_secret", Secret, ""),
    part("queues", Texts, ""),
    part("use_sessions", Bool, "false"),
    part("max_concurrent_calls", NUMBER, "1"),
    part("max_receive_messages", NUMBER, "1"),
    part("method_property", Text, ""),
    DATA_MODE,
];
