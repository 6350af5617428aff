//! Keys of the node itself: listeners, API, metrics, logs.

use super::{
    COUNT, COUNT_OR_ZERO, Key, PORT,
    ValueKind::{Any, Bool, Choice, Duration, Int, Secret, Table, Text, Texts, Url},
    own,
    proxy::CLIENT_TLS,
    table, yes,
};

pub(super) const TOP: &[Key] = &[
    table("http_server", &[HTTP_SERVER], "The port that all endpoints share."),
    table("http_api", &[HTTP_API], "The server API."),
    table("health", &[HEALTH], "The health check."),
    table("prometheus", &[PROMETHEUS], "Metrics for Prometheus."),
    table("log", &[LOG], "Logging."),
    table("node", &[NODE], "This node."),
    table("shutdown", &[SHUTDOWN], "Shutting down."),
    yes("pid_file", Text, "", "File that holds the process ID while the node runs."),
    own("shards", Int(0, 256), "0", "Number of I/O threads. 0: one per CPU core."),
    own(
        "reactor",
        Choice(&["auto", "io_uring", "epoll"]),
        "auto",
        "The I/O interface of the kernel. `auto` selects io_uring if the kernel allows it, and epoll otherwise.",
    ),
    table("net", &[NET], "Sockets and threads. Centrifugo does not have this table."),
    table("storage", &[STORAGE], "The storage of namespaces with `durability`. Centrifugo does not have this table."),
    table("demo", &[DEMO], "The demo pages. Centrifugo does not have this table."),
    table("admin", &[ADMIN], "The console for operators: who is connected, what is slow, and why."),
    table("swagger", &[SWAGGER], "The OpenAPI description of the server API, and a page that shows it."),
    table(
        "debug",
        &[DEBUG],
        "Profiles of the processor time and of the heap in pprof format, as Centrifugo serves them, and the state of the shards as JSON.",
    ),
    own(
        "profiling",
        Table(&[PROFILING]),
        "",
        "Profiles of the running node, which are pushed to a server; see insight.md. Centrifugo does not have this table.",
    ),
    table(
        "opentelemetry",
        &[OPENTELEMETRY],
        "Traces and metrics that are sent to an OpenTelemetry Collector by OTLP over HTTP; see insight.md. The standard variables in parentheses set the keys, if `opentelemetry.enabled` is on and the key is not set otherwise.",
    ),
    table("usage_stats", &[], "Usage statistics, which Dunlin does not send."),
];

const STORAGE: &[Key] = &[
    own("path", Text, "", "Directory of the storage. Empty: no storage. One process at a time can use it."),
    own("block_cache_size", COUNT, "67108864", "Bytes of uncompressed blocks, indexes and filters in memory."),
    own(
        "memtable_size",
        COUNT,
        "67108864",
        "Bytes of writes in memory that are in the write-ahead log and not in a table yet.",
    ),
    own(
        "wal_size_limit",
        COUNT,
        "268435456",
        "Maximum bytes of the write-ahead log. It bounds the duration of a start after a crash.",
    ),
    own(
        "free_space_min",
        COUNT_OR_ZERO,
        "268435456",
        "Free bytes of the file system that publications must leave, for compactions, rooms and other programs. A publication to a namespace with `durability` that would leave less gets error 111, which is temporary. Everything else goes on. At least 26 times `storage.memtable_size`, for the largest compaction, if the disk is not shared. 0: no reserve.",
    ),
    own(
        "huge_page_size",
        COUNT_OR_ZERO,
        "0",
        "Allocate memtables from huge pages of this size in bytes, which the kernel must have reserved. 0: from the heap.",
    ),
    own("open_files_limit", Int(64, 65_535), "512", "Files of the storage that are open at a time."),
    own("readers", Int(1, 64), "2", "Number of threads that read."),
    own("queue_writes_limit", COUNT, "65536", "Publications that wait for the writer. Beyond it, error 111."),
    own(
        "queue_bytes_limit",
        COUNT,
        "67108864",
        "Bytes of publications that wait for the writer. Beyond it, error 111.",
    ),
    own("queue_reads_limit", COUNT, "16384", "Loads that wait for a reader. Beyond it, error 111."),
    own(
        "damaged_log",
        Choice(&["refuse", "keep_until_damage"]),
        "refuse",
        "What happens at a start when a part of the write-ahead log is damaged that was complete once. `refuse`: the node does not start. `keep_until_damage`: the publications before the damage are kept, and all channels get a new epoch, so that clients notice.",
    ),
    own(
        "clock_ahead_limit",
        Duration,
        "9600h",
        "How long after the end of the last run a start may be. A clock that is wrong now would remove everything as expired; one that was wrong at the first start is beyond the limit when it is right. Then start once with `--accept-clock`, which sets this key to `0s`: no limit.",
    ),
    table("backup", &[STORAGE_BACKUP], "Backups of the storage while the node serves."),
];

const STORAGE_BACKUP: &[Key] = &[
    own(
        "path",
        Text,
        "",
        "Directory of the backups, best on another disk. Empty: no backups. A backup copies the files that the ones before it do not have.",
    ),
    own(
        "interval",
        Duration,
        "0s",
        "Time between two scheduled backups, counted from the newest one in the directory. `0s`: only on request, by `dunlin backup`.",
    ),
    own("keep", Int(1, 10_000), "7", "Number of backups that are kept. The older ones are deleted after each backup."),
];

const HTTP_SERVER: &[Key] = &[
    yes("address", Text, "", "IP address to listen on, or `localhost`. Empty: all interfaces."),
    yes("port", PORT, "8000", "TCP port. 0: any free port."),
    own(
        "trusted_proxies",
        Texts,
        "",
        "IP addresses and networks of reverse proxies whose `X-Forwarded-For` header is trusted. The client's address is the rightmost one in the header that is not in this list. Without this key, all clients behind a proxy share the proxy's address.",
    ),
    yes("internal_address", Text, "", "IP address of the internal port, or `localhost`. Empty: `http_server.address`."),
    yes(
        "internal_port",
        Any,
        "",
        "A second TCP port for the endpoints that are not for clients: health, metrics, debug, the OpenAPI description, and the server API unless `http_api.external` is true. The public port then answers 404 for them. If neither this key nor `http_server.internal_address` is set, all endpoints share one port.",
    ),
    table("tls", &[SERVER_TLS], "TLS on the public port. If enabled, the public port accepts nothing else."),
];

const SERVER_TLS: &[Key] = &[
    yes("enabled", Bool, "false", "Enable TLS 1.2 and 1.3."),
    yes(
        "cert_pem",
        Text,
        "",
        "The certificate chain: the path of a PEM file, PEM text, or base64 of PEM text. Files are read again when they \
         change, and on a reload.",
    ),
    yes(
        "key_pem",
        Secret,
        "",
        "The private key of the certificate: the path of a PEM file, PEM text, or base64 of PEM text.",
    ),
    yes(
        "client_ca_pem",
        Text,
        "",
        "CA certificates that verify client certificates, in the same forms as `cert_pem`. If set, clients must present a certificate.",
    ),
];

const HTTP_API: &[Key] = &[
    yes("disabled", Bool, "false", "Disable the server API."),
    yes("handler_prefix", Text, "/api", "Path prefix of the API methods."),
    yes(
        "key",
        Secret,
        "",
        "The key that requests send in the `X-API-Key` header. If neither this key nor `http_api.insecure` is set, every request gets 401.",
    ),
    own("previous_key", Secret, "", "The previous key, which is accepted as well during a key change."),
    yes(
        "insecure",
        Bool,
        "false",
        "Accept requests without a key. For development, or behind a proxy that authenticates requests. If browsers send them, the proxy has to remove `Origin` and `Sec-Fetch-Site`.",
    ),
    own(
        "request_size_limit",
        Int(1, 1 << 30),
        "4194304",
        "Maximum size of a request body in bytes. A larger request gets 413.",
    ),
    own(
        "requests_limit",
        Int(1, 1 << 20),
        "1024",
        "Maximum number of concurrent requests. Beyond it requests get 503.",
    ),
    own("timeout", Duration, "5s", "Timeout of a request. After it the request gets error 100."),
    yes(
        "error_mode",
        Choice(&["", "transport"]),
        "",
        "How errors are reported. Empty: status 200 with the error in the body. `transport`: an HTTP status for each error.",
    ),
    own(
        "broadcast_channels_limit",
        COUNT,
        "1000",
        "Maximum number of channels in one `broadcast`. A larger one gets error 107.",
    ),
    own(
        "batch_commands_limit",
        COUNT,
        "1000",
        "Maximum number of commands in one `batch`. A larger one gets error 107.",
    ),
    yes("external", Bool, "false", "Serve the API on the public port even if there is an internal port."),
];

const HEALTH: &[Key] = &[
    yes("enabled", Bool, "false", "Enable the health check endpoint."),
    yes("handler_prefix", Text, "/health", "Path of the health check."),
    own(
        "requires_cluster",
        Bool,
        "false",
        "Answer 503 while the node cannot use its cluster. Otherwise only the body says so: when NATS is out of reach for all \
         nodes, a load balancer that goes by the status has none left.",
    ),
];

const PROMETHEUS: &[Key] = &[
    yes("enabled", Bool, "false", "Enable the metrics endpoint."),
    yes("handler_prefix", Text, "/metrics", "Path of the metrics."),
    own(
        "survey_max_age",
        Duration,
        "1s",
        "How long the figures of the shards may be reused for further scrapes. 0: collect them for each scrape.",
    ),
];

const ADMIN: &[Key] = &[
    yes("enabled", Bool, "false", "Enable the console. Otherwise nothing of it can be reached."),
    yes(
        "password",
        Secret,
        "",
        "The password with which operators sign in. Empty: nobody can change anything through the console.",
    ),
    own(
        "read_only_password",
        Secret,
        "",
        "The password of a sign-in that sees everything and changes nothing. Empty: none.",
    ),
    yes(
        "secret",
        Secret,
        "",
        "Signs the cookies of sign-ins, together with the passwords: set the same secret on all nodes, and they hold on each of them and after a restart. Empty: a random one for each start.",
    ),
    yes("insecure", Bool, "false", "Let everyone who can reach the port do everything, without a password."),
    yes(
        "handler_prefix",
        Text,
        "/admin",
        "Path of the console. In Centrifugo the default is empty, and its interface is at `/`.",
    ),
    yes("external", Bool, "false", "Serve the console on the public port even if there is an internal port."),
    own("sign_in_lifetime", Duration, "12h", "Time after which a sign-in ends, rounded up to seconds."),
    own(
        "sign_in_limit",
        Int(1, 1_000),
        "10",
        "Wrong passwords per minute and address (an IPv4 address, or an IPv6 network of 64 bits), and ten times as many of all addresses together that have not signed in before. Beyond it, sign-ins get status 429, with the right password as well.",
    ),
    own(
        "replays_limit",
        Int(0, 64),
        "3",
        "Recordings of rooms that are open in the console at a time. Each is replayed in a process of its own, with the lowest priority. 0: none can be opened.",
    ),
    own(
        "sign_in_replays_limit",
        Int(1, 64),
        "2",
        "The same for one sign-in, so that others find a place as well. Without effect with `admin.insecure`.",
    ),
    own(
        "replay_memory_limit",
        Int(64 << 20, 1 << 36),
        "536870912",
        "Bytes of memory of each of these processes. A recording may have a quarter of it. Beyond it, the replay ends and the page says so.",
    ),
];

const SWAGGER: &[Key] = &[
    yes("enabled", Bool, "false", "Enable the OpenAPI description."),
    yes("handler_prefix", Text, "/swagger", "Path of the page. `openapi.json` is below it."),
];

const DEBUG: &[Key] = &[
    yes(
        "enabled",
        Bool,
        "false",
        "Serve profiles and the debug page, on the internal port only. The page shows channel names. While this is on, one allocation in about 512 KiB is sampled.",
    ),
    yes(
        "handler_prefix",
        Text,
        "/debug/pprof",
        "Path of the debug page. `profile`, `heap`, `allocs` and `block` are below it.",
    ),
];

const PROFILING: &[Key] =
    &[table("pyroscope", &[PYROSCOPE], "A Pyroscope server, to which profiles are pushed all the time.")];

const PYROSCOPE: &[Key] = &[
    own(
        "enabled",
        Bool,
        "false",
        "Push profiles of the processor time and of the heap. While this is on, each thread is sampled 100 times per second of its processor time, and one allocation in about 512 KiB.",
    ),
    own(
        "address",
        Url,
        "",
        "URL of the server; begins with `http://` or `https://`. Profiles go to `/ingest` below it. User and password may be in it, before the host.",
    ),
    own("application_name", Text, "dunlin", "The application, which the server shows as `service_name`."),
    own(
        "tags",
        Any,
        "",
        "Tags of the profiles: a table of names and texts. Without `node` among them, `node.name` is added as `node` if it is set.",
    ),
    own(
        "interval",
        Duration,
        "15s",
        "Time that a profile covers, from 1 s to 5 min. Then it is pushed, and the next one begins.",
    ),
    own(
        "timeout",
        Duration,
        "10s",
        "Timeout of a push. A profile that was not taken is dropped and counted, and not sent again.",
    ),
    own("basic_auth_user", Text, "", "User of HTTP basic authentication."),
    own("basic_auth_password", Secret, "", "Its password."),
    own("tenant_id", Secret, "", "The tenant of a server with several, sent as `X-Scope-OrgID`."),
    table("tls", &[CLIENT_TLS], "TLS towards the server."),
];

const OPENTELEMETRY: &[Key] = &[
    yes("enabled", Bool, "false", "Send traces and metrics to a collector."),
    yes(
        "api",
        Bool,
        "false",
        "Trace requests to the server API. The request continues the trace of its caller (`traceparent`).",
    ),
    own(
        "endpoint",
        Url,
        "http://localhost:4318",
        "URL of the collector for OTLP over HTTP (`OTEL_EXPORTER_OTLP_ENDPOINT`). Traces go to `/v1/traces` and metrics to `/v1/metrics` below it.",
    ),
    own(
        "traces_endpoint",
        Url,
        "",
        "URL that takes traces, if it is another one (`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`).",
    ),
    own(
        "metrics_endpoint",
        Url,
        "",
        "URL that takes metrics, if it is another one (`OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`).",
    ),
    own(
        "headers",
        Any,
        "",
        "Header fields of every request: a table of names and values (`OTEL_EXPORTER_OTLP_HEADERS`, as `name=value,name=value`).",
    ),
    own("timeout", Duration, "10s", "Timeout of a request (`OTEL_EXPORTER_OTLP_TIMEOUT`, in milliseconds)."),
    own("traces", Bool, "true", "Send traces. `OTEL_TRACES_EXPORTER=none` sends none."),
    own(
        "sampler",
        Choice(&[
            "always_on",
            "always_off",
            "traceidratio",
            "parentbased_always_on",
            "parentbased_always_off",
            "parentbased_traceidratio",
        ]),
        "parentbased_always_on",
        "Which traces are recorded (`OTEL_TRACES_SAMPLER`). With `parentbased_`, the decision of a caller of the server API holds for its trace; that of a client never does.",
    ),
    own(
        "sampler_argument",
        Text,
        "1",
        "The share of traces that `traceidratio` records, from 0 to 1 (`OTEL_TRACES_SAMPLER_ARG`).",
    ),
    own(
        "queue_limit",
        Int(1, 1 << 16),
        "2048",
        "Maximum number of spans that wait to be sent (`OTEL_BSP_MAX_QUEUE_SIZE`). Beyond it they are dropped and counted (`dunlin_otlp_spans_total`); nothing waits for the collector.",
    ),
    own("metrics", Bool, "true", "Send metrics, all those of `/metrics`. `OTEL_METRICS_EXPORTER=none` sends none."),
    own(
        "metrics_interval",
        Duration,
        "60s",
        "Time between two requests with all metrics, from 1 s to 1 h (`OTEL_METRIC_EXPORT_INTERVAL`, in milliseconds).",
    ),
    own(
        "publication_interval",
        Int(0, 1 << 20),
        "0",
        "Follow one of so many publications of each shard through its stages: committed, received by each shard with subscribers, taken by the last socket. Each stage has a histogram in `/metrics` (`dunlin_publish_to_…`), also without a collector. 0: none.",
    ),
    own("service_name", Text, "dunlin", "The name of the service, `service.name` (`OTEL_SERVICE_NAME`)."),
    own(
        "resource_attributes",
        Any,
        "",
        "Further attributes of the node: a table of names and texts (`OTEL_RESOURCE_ATTRIBUTES`, as `name=value,name=value`).",
    ),
    own(
        "tls",
        Table(&[CLIENT_TLS]),
        "",
        "TLS towards the collector. `OTEL_EXPORTER_OTLP_CERTIFICATE`, `…_CLIENT_CERTIFICATE` and `…_CLIENT_KEY` enable it.",
    ),
];

const LOG: &[Key] = &[
    yes(
        "level",
        Choice(&["none", "error", "warn", "info", "debug", "trace"]),
        "info",
        "Minimum severity of the lines that are logged. Those of what operators do in the console are always logged.",
    ),
    yes("file", Text, "", "File that log lines are appended to. Empty: standard error."),
    own(
        "library_level",
        Choice(&["none", "error", "warn", "info", "debug", "trace"]),
        "warn",
        "The log level of the libraries that Dunlin uses. It never exceeds `log.level`.",
    ),
    own(
        "queue_limit",
        Int(1, 1 << 20),
        "4096",
        "Maximum number of log lines that wait to be written. Beyond it lines are dropped and counted (`dunlin_log_lines_dropped_total`); nothing waits for the log.",
    ),
    own(
        "client_rate_limit",
        Int(0, 1 << 20),
        "500",
        "Maximum number of lines per second about clients, for each of the levels `info`, `debug` and `trace`. Further lines are counted (`dunlin_log_records_suppressed_total`). 0: no limit.",
    ),
    own(
        "session_rate_limit",
        Int(0, 1 << 20),
        "5",
        "Maximum number of `info` lines per second about one session. 0: no limit.",
    ),
];

const NODE: &[Key] = &[
    yes("name", Text, "", "The node name in the API method `info`. Empty: host name and port."),
    own(
        "region",
        Text,
        "",
        "The region of the node, at most 64 bytes. Matchmaking opens rooms for tickets with this region on nodes in it, if there are any.",
    ),
];

const SHUTDOWN: &[Key] = &[
    yes(
        "timeout",
        Duration,
        "30s",
        "Maximum duration of the shutdown after SIGTERM and `shutdown.delay`. All sessions are closed after three quarters of it; sessions that have not received their last frames at its end are cut off. With `webhooks.endpoint`, its last quarter is for events that wait, and sessions have the time before.",
    ),
    own(
        "delay",
        Duration,
        "0s",
        "How long the health check answers 503 after SIGTERM while everything else continues, so that a load balancer can notice.",
    ),
    own(
        "sessions_per_second",
        Int(0, 1 << 30),
        "0",
        "Sessions closed per second at shutdown, idle sessions first. 0: a rate that closes all sessions within half of `shutdown.timeout`.",
    ),
];

const NET: &[Key] = &[
    own(
        "tcp_notsent_lowat_bytes",
        Int(0, 1 << 30),
        "16384",
        "Unsent bytes in the kernel at which a socket counts as full (`TCP_NOTSENT_LOWAT`). A low value keeps queued data where it can still be replaced by newer data. 0: the kernel's default.",
    ),
    own("accept_backlog", Int(1, 65_535), "4096", "Length of the kernel's accept queue of each shard."),
    own(
        "head_bytes_limit",
        Int(256, 65_536),
        "16384",
        "Maximum size in bytes of an HTTP request head (request line and header fields). A larger one gets 431.",
    ),
    own(
        "request_line_bytes_limit",
        Int(64, 65_536),
        "4096",
        "Maximum size in bytes of an HTTP request line. A longer one gets 414. At most `net.head_bytes_limit`.",
    ),
    own("head_timeout", Duration, "5s", "How long a client may take to send an HTTP request head."),
    own(
        "http_connections_limit",
        Int(1, 1 << 20),
        "4096",
        "Maximum number of HTTP connections on each port. Beyond it, the connection that has been idle longest is closed; if none is idle, the new one gets 503.",
    ),
    own(
        "http_address_connections_limit",
        Int(0, 1 << 20),
        "1024",
        "Maximum number of HTTP connections of one IPv4 address or IPv6 /64 on each port; `http_server.trusted_proxies` are not counted. Beyond it, the address's connection that has been idle longest is closed; if none is idle, the new one gets 429. 0 for no limit.",
    ),
    own(
        "http_reserved_connections",
        Int(0, 65_536),
        "64",
        "HTTP connections on each port beyond `net.http_connections_limit` that answer only health, metrics and the API.",
    ),
    own(
        "reserved_open_files",
        Int(0, 1_000_000),
        "0",
        "File descriptors that connections on the public port leave for the storage, the internal port, NATS and backends. A connection that would use one is closed, and counted in `dunlin_accept_failures_total{reason=\"reserved\"}`. 0: as many as these may use at most, but not more than half of the limit of the process.",
    ),
    own("idle_timeout", Duration, "60s", "How long an HTTP connection may be idle between two requests."),
    own(
        "linger_timeout",
        Duration,
        "2s",
        "How long a refused client or a closed session may take to close its connection after the response.",
    ),
    own(
        "pending_address_connections_limit",
        Int(0, 1 << 20),
        "1024",
        "Maximum number of connections of one IPv4 address or IPv6 /64 on each shard that have no session: their handshake is incomplete, or they were refused and are not closed yet. Beyond it, the oldest of them is closed; `http_server.trusted_proxies` are not counted. 0: no limit.",
    ),
    own(
        "read_bytes_per_turn",
        Int(1_024, 65_536),
        "16384",
        "Maximum number of bytes read from one connection before the next connection is served.",
    ),
    own(
        "shard_connections_limit",
        Int(0, 1 << 20),
        "262144",
        "Maximum number of connections of each shard on `io_uring`, handshakes included. Their sockets are in a table of the shard and use no file descriptors, but the hard limit of open files bounds each table, so the lower of both counts; `dunlin_connections_max` shows it. A full shard passes connections to another one; if all are full, the connection is closed, and counted in `dunlin_accept_failures_total{reason=\"shard_full\"}`. An entry takes 8 bytes of kernel memory. 0: connections use file descriptors, as with epoll and before Linux 6.13.",
    ),
    own(
        "shard_imbalance_limit",
        Int(0, 1 << 20),
        "32",
        "How many more connections a shard may have than the shard with the fewest. Beyond it, new connections go to that shard. 0: connections stay where the kernel puts them.",
    ),
    own(
        "memory_limit",
        Int(0, 1 << 50),
        "0",
        "Resident memory of the process in bytes at which new sessions are refused with 503. New sessions are accepted again when memory is one sixteenth below the limit. 0: no limit.",
    ),
    own(
        "ring_messages_limit",
        Int(16, 1 << 20),
        "1024",
        "Capacity in messages of each ring buffer between two shards. If it is full, the sender waits.",
    ),
    own(
        "inbox_requests_limit",
        COUNT,
        "1024",
        "Maximum number of API requests queued for a shard. Further requests wait before the queue.",
    ),
];

const DEMO: &[Key] = &[
    own(
        "dir",
        Text,
        "",
        "Directory of the demo pages, which are served at `/`. Empty: no demo. The program `dunlin-demo` publishes their prices and moves their bots.",
    ),
    own(
        "guests",
        Bool,
        "false",
        "Give each visitor of the pages a connection token with a user id of its own, at `/lobby/guest`. Needs `demo.dir` and `client.token.hmac_secret_key`.",
    ),
];
