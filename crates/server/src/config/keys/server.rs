//! The node itself: listener, API, observation.

use super::{
    COUNT, COUNT_OR_ZERO, ENABLED, Key,
    Kind::{Any, Bool, Choice, Duration, Int, Secret, Text, Texts},
    NUMBER, PORT, TLS, needless, own, part, part_table, refused_table, table, warned, warned_table, yes,
};

const NO_AUTOCERT: &str = "Dunlin asks nobody for certificates; let another program do so, and name its files in `tls`";
const NO_INTERNAL_TLS: &str =
    "the internal port is not encrypted; keep it to a network that is, or put a proxy in front of it";

pub(super) const TOP: &[Key] = &[
    table("http_server", &[HTTP_SERVER], "The port that WebSockets, the API and everything else share."),
    table("http_api", &[HTTP_API], "The server API."),
    table("health", &[HEALTH], "The health check."),
    table("prometheus", &[PROMETHEUS], "Metrics for Prometheus."),
    table("log", &[LOG], "Logging."),
    table("node", &[NODE], "This node."),
    table("shutdown", &[SHUTDOWN], "Shutting down."),
    yes("pid_file", Text, "", "File that holds the process id while the node runs."),
    own("shards", Int(0, 256), "0", "I/O threads; 0 for one per core."),
    own(
        "reactor",
        Choice(&["auto", "io_uring", "epoll"]),
        "auto",
        "What the shards wait on; `auto` takes io_uring where the kernel allows it, and epoll where not.",
    ),
    table("net", &[NET], "Sockets and threads. Only Dunlin has this table."),
    table("demo", &[DEMO], "The demonstration. Only Dunlin has this table."),
    refused_table(
        "grpc_api",
        &[ENABLED, GRPC_API],
        "what backends publish through it would be lost; let them use the HTTP API",
    ),
    warned_table("admin", &[ENABLED, ADMIN], "Dunlin has no web interface for operators yet"),
    table("swagger", &[SWAGGER], "The API's description, as OpenAPI and as a page."),
    table(
        "debug",
        &[DEBUG],
        "What the shards hold, as JSON. Dunlin's own in content: Centrifugo serves a Go profiler there.",
    ),
    warned_table(
        "dev",
        &[ENABLED, &[part("handler_prefix", Text, "/dev")]],
        "Dunlin does not serve this page; see `demo`",
    ),
    warned_table("opentelemetry", &[ENABLED, OPENTELEMETRY], "Dunlin exports no traces yet"),
    warned_table("graphite", &[ENABLED, GRAPHITE], "Dunlin exports metrics to Prometheus only"),
    warned_table("singleflight", &[ENABLED], "there is no remote storage whose calls could be joined"),
    table(
        "usage_stats",
        &[&[needless("disabled", Bool, "false", "Dunlin sends no usage statistics")]],
        "Usage statistics, which Dunlin does not send.",
    ),
    warned("enable_unreleased_features", Bool, "false", "its features belong to Centrifugo"),
];

const HTTP_SERVER: &[Key] = &[
    yes("address", Text, "", "IP address to listen on, or `localhost`; empty for all interfaces."),
    yes("port", PORT, "8000", "TCP port; 0 for any that is free."),
    own(
        "trusted_proxies",
        Texts,
        "",
        "Addresses and networks, such as `10.0.0.0/8`, of proxies whose `X-Forwarded-For` tells the client's address. Bounds by address count the rightmost address in it that is not in this list. Without it a proxy counts as one client.",
    ),
    yes(
        "internal_address",
        Text,
        "",
        "IP address of the internal port, or `localhost`; empty for `http_server.address`.",
    ),
    yes(
        "internal_port",
        Any,
        "",
        "TCP port for what clients have no business with: health, metrics, debug pages, the API's description, and the API unless `http_api.external` is set. The public port answers 404 for them. Not set, and with no `internal_address`, all share the one port.",
    ),
    table("tls", &[SERVER_TLS], "TLS on the port for clients; with it, everything there is TLS."),
    refused_table("tls_autocert", &[ENABLED, AUTOCERT], NO_AUTOCERT),
    refused_table("internal_tls", TLS, NO_INTERNAL_TLS),
    warned("tls_external", Bool, "false", "`tls` holds for the port for clients, and for no other"),
    warned_table("http3", &[ENABLED], "Dunlin speaks HTTP/1.1"),
    warned("h2c_external", Bool, "false", "Dunlin speaks HTTP/1.1"),
];

const SERVER_TLS: &[Key] = &[
    yes("enabled", Bool, "false", "Switches TLS on: versions 1.2 and 1.3."),
    yes(
        "cert_pem",
        Text,
        "",
        "The certificate and those between it and a root: a file, or the PEM text itself, as it is or in base64. Files are \
         read again when they change, and on SIGHUP.",
    ),
    yes("key_pem", Secret, "", "The certificate's key, in the same forms."),
    yes("client_ca_pem", Text, "", "Who vouches for clients, in the same forms; clients then need a certificate."),
    warned("server_ca_pem", Text, "", "a server has nobody to check by it"),
    warned("insecure_skip_verify", Bool, "false", "a server has nobody to check"),
    warned("server_name", Text, "", "a server has nobody to ask for by name"),
];

const AUTOCERT: &[Key] = &[
    part("host_whitelist", Texts, ""),
    part("cache_dir", Text, ""),
    part("email", Text, ""),
    part("server_name", Text, ""),
    part("http", Bool, "false"),
    part("http_addr", Text, ":80"),
];

const HTTP_API: &[Key] = &[
    yes("disabled", Bool, "false", "Switches the API off."),
    yes("handler_prefix", Text, "/api", "Path under which the API's methods lie."),
    yes(
        "key",
        Secret,
        "",
        "The key that requests carry in `X-API-Key`. Without it, and without `insecure`, every request is answered with 401.",
    ),
    own("previous_key", Secret, "", "A key that opens the API as well, while `key` is changed."),
    yes(
        "insecure",
        Bool,
        "false",
        "Answer requests without a key. For development, or behind a proxy that checks them.",
    ),
    own(
        "request_size_limit",
        Int(1, 1 << 30),
        "4194304",
        "Bytes of a request's body. A larger one is answered with 413.",
    ),
    own(
        "requests_limit",
        Int(1, 1 << 20),
        "1024",
        "Requests being answered at the same time. One more is answered with 503.",
    ),
    own("timeout", Duration, "5s", "Time for the shards to answer a request, or it is answered with error 100."),
    yes(
        "error_mode",
        Choice(&["", "transport"]),
        "",
        "How errors are told: empty for status 200 and the error in the body, `transport` for a status of its own.",
    ),
    own(
        "broadcast_channels_limit",
        COUNT,
        "1000",
        "Channels in one `broadcast`. One with more is answered with error 107.",
    ),
    own("batch_commands_limit", COUNT, "1000", "Commands in one `batch`. One with more is answered with error 107."),
    yes("external", Bool, "false", "Serve the API on the public port, although there is an internal one."),
];

const HEALTH: &[Key] =
    &[yes("enabled", Bool, "false", "Serve the health check."), yes("handler_prefix", Text, "/health", "Its path.")];

const PROMETHEUS: &[Key] = &[
    yes("enabled", Bool, "false", "Serve metrics."),
    yes("handler_prefix", Text, "/metrics", "Their path."),
    own(
        "survey_max_age",
        Duration,
        "1s",
        "How old what the shards reported may be when the page is asked for again; 0 asks them each time.",
    ),
    warned("instrument_http_handlers", Bool, "false", "requests are not counted by path"),
    warned("recovered_publications_histogram", Bool, "false", "Dunlin has no such histogram"),
    warned("native_histograms", Bool, "false", "histograms have fixed buckets"),
];

const SWAGGER: &[Key] = &[
    yes("enabled", Bool, "false", "Serve the description."),
    yes("handler_prefix", Text, "/swagger", "Path of the page; `openapi.json` lies below it."),
];

const DEBUG: &[Key] = &[
    yes("enabled", Bool, "false", "Serve the page. On the internal port alone: it shows names of channels."),
    yes("handler_prefix", Text, "/debug/pprof", "Its path."),
];

const LOG: &[Key] = &[
    yes("level", Choice(&["none", "error", "warn", "info", "debug", "trace"]), "info", "What is worth a line."),
    yes("file", Text, "", "File to append to; empty for standard error."),
];

const NODE: &[Key] = &[
    yes("name", Text, "", "The node's name in the API's `info`; empty for one made of host name and port."),
    warned("info_metrics_aggregate_interval", Duration, "60s", "metrics are not aggregated"),
];

const SHUTDOWN: &[Key] = &[
    yes(
        "timeout",
        Duration,
        "30s",
        "Time from SIGTERM (and `shutdown.delay`) to giving up on sessions that do not take their last frames. All are told by three quarters of it.",
    ),
    own(
        "delay",
        Duration,
        "0s",
        "Time after SIGTERM in which the health check is answered with 503 and everything else goes on, for a load balancer to notice.",
    ),
    own(
        "sessions_per_second",
        Int(0, 1 << 30),
        "0",
        "Sessions closed in a second at shutdown, idle ones first; 0 for as many as it takes to be through in half of `shutdown.timeout`.",
    ),
];

const NET: &[Key] = &[
    own(
        "tcp_notsent_lowat_bytes",
        Int(0, 1 << 30),
        "16384",
        "Unsent bytes in the kernel's buffer from which a socket counts as full, so that stale bytes wait where they can still be replaced; 0 leaves it to the kernel.",
    ),
    own(
        "accept_backlog",
        Int(1, 65_535),
        "4096",
        "Connections that the kernel keeps for each shard until they are accepted.",
    ),
    own("head_bytes_limit", Int(256, 65_536), "16384", "Bytes of a request's head. A longer one is answered with 431."),
    own(
        "request_line_bytes_limit",
        Int(64, 65_536),
        "4096",
        "Bytes of a request's first line. A longer one is answered with 414.",
    ),
    own("head_timeout", Duration, "5s", "Time for a request's head to come."),
    own(
        "http_connections_limit",
        Int(1, 1 << 20),
        "4096",
        "Connections of the HTTP server at a time. One more is answered with 503.",
    ),
    own("idle_timeout", Duration, "60s", "Time that an HTTP connection may wait between two requests."),
    own("linger_timeout", Duration, "2s", "Time for a refused client to hang up after it was answered."),
    own(
        "read_bytes_per_turn",
        Int(1_024, 65_536),
        "16384",
        "Bytes read from one connection before the next has its turn.",
    ),
    own(
        "shard_imbalance_limit",
        Int(0, 1 << 20),
        "32",
        "Connections that a shard may have more than the emptiest one, before it gives those that it accepts to that; 0 leaves them where the kernel puts them.",
    ),
    own(
        "memory_limit",
        Int(0, 1 << 50),
        "0",
        "Bytes of resident memory of the process from which new sessions are refused with 503, until it is a sixteenth below; 0 for no bound.",
    ),
    own(
        "ring_messages_limit",
        Int(16, 1 << 20),
        "1024",
        "Messages in one ring between two shards; a full ring makes the sender wait.",
    ),
    own("inbox_requests_limit", COUNT, "1024", "API requests that wait for a shard; the next waits outside."),
];

const DEMO: &[Key] = &[
    own(
        "dir",
        Text,
        "",
        "Directory whose files are served at `/`, next to a publisher of made-up prices; empty outside of demonstrations.",
    ),
    own(
        "bots",
        Int(0, 10_000),
        "0",
        "Players for the room `arena:hunt`, which the server plays itself; with `demo.dir` only.",
    ),
];

const GRPC_API: &[Key] = &[
    part("error_mode", Text, ""),
    part("address", Text, ""),
    part("port", NUMBER, "10000"),
    part("key", Secret, ""),
    part_table("tls", TLS),
    part("reflection", Bool, "false"),
    part("max_receive_message_size", NUMBER, "0"),
];

const ADMIN: &[Key] = &[
    part("handler_prefix", Text, ""),
    part("password", Secret, ""),
    part("secret", Secret, ""),
    part("insecure", Bool, "false"),
    part("web_path", Text, ""),
    part("web_proxy_address", Text, ""),
    part("external", Bool, "false"),
];

const OPENTELEMETRY: &[Key] =
    &[part("api", Bool, "false"), part("consuming", Bool, "false"), part("google_cloud_adc_auth", Bool, "false")];

const GRAPHITE: &[Key] = &[
    part("host", Text, "localhost"),
    part("port", COUNT_OR_ZERO, "2003"),
    part("prefix", Text, "centrifugo"),
    part("interval", Duration, "10s"),
    part("tags", Any, "false"),
];
