//! What nodes share in Centrifugo: `engine`, `broker`, `presence_manager`, `map_broker`, `controller`, and where they
//! take publications from: `consumers`. Dunlin keeps everything in the memory of one node.

use super::{
    ENABLED, Key,
    Kind::{Any, Bool, Choice, Duration, Secret, Tables, Text, Texts},
    NUMBER, REDIS, TLS, part, part_table, refused, refused_table, table, warned_table,
};

const MEMORY: &str = "Dunlin has one engine yet, `memory`: nodes would not hear of each other's publications";
const UNUSED: &str = "it has no effect with the engine `memory`";

pub(super) const TOP: &[Key] = &[
    table("engine", &[ENGINE], "Where channels live."),
    refused_table("broker", &[ENABLED, BROKER], MEMORY),
    refused_table("presence_manager", &[ENABLED, &[TYPE, part_table("redis", &[REDIS, REDIS_PRESENCE])]], MEMORY),
    warned_table(
        "map_broker",
        &[&[
            TYPE,
            part_table("redis", &[REDIS, REDIS_MAP]),
            part_table("postgres", &[POSTGRES_BROKER, &[part("ttl_check_interval", Duration, "1s")]]),
        ]],
        "Dunlin knows no map subscriptions yet",
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
        MEMORY,
    ),
    refused(
        "consumers",
        Tables(&[ENABLED, CONSUMER]),
        "",
        "Dunlin consumes no queues yet, so what is published there would be lost",
    ),
];

const TYPE: Key = part("type", Text, "memory");

const ENGINE: &[Key] = &[
    refused("type", Choice(&["", "memory", "redis"]), "memory", MEMORY),
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
    TYPE,
    part_table("redis", &[REDIS, REDIS_HISTORY]),
    part_table("nats", &[NATS]),
    part_table("postgres", &[POSTGRES_BROKER]),
    part_table("redisnats", &[&[part_table("redis", &[REDIS, REDIS_HISTORY]), part_table("nats", &[NATS])]]),
];

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

/// What all consumers but `postgresql` have; its keys name headers.
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
