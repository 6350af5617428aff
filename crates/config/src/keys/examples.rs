//! Examples for the keys without a default: complete lines of TOML. A test parses each of them.

/// The path of a key as the reference page writes it, and its example.
pub const EXAMPLES: &[(&str, &str)] = &[
    ("http_server.address", r#"http_server.address = "127.0.0.1""#),
    ("http_server.trusted_proxies", r#"http_server.trusted_proxies = ["10.0.0.0/8", "192.0.2.1"]"#),
    ("http_server.internal_address", r#"http_server.internal_address = "127.0.0.1""#),
    ("http_server.internal_port", "http_server.internal_port = 9000"),
    ("http_server.tls.cert_pem", r#"http_server.tls.cert_pem = "/etc/dunlin/certificate.pem""#),
    ("http_server.tls.key_pem", r#"http_server.tls.key_pem = "/etc/dunlin/key.pem""#),
    ("http_server.tls.client_ca_pem", r#"http_server.tls.client_ca_pem = "/etc/dunlin/clients.pem""#),
    ("http_api.key", r#"http_api.key = "a-random-text-of-at-least-32-bytes""#),
    (
        "http_api.previous_key",
        r#"http_api.key = "the-new-key-of-at-least-32-bytes"
http_api.previous_key = "the-old-key""#,
    ),
    ("http_api.error_mode", r#"http_api.error_mode = "transport""#),
    ("admin.password", r#"admin.password = "a-long-password-of-the-operators""#),
    ("admin.read_only_password", r#"admin.read_only_password = "another-for-those-who-only-look""#),
    ("admin.secret", r#"admin.secret = "the-same-random-text-on-all-nodes""#),
    (
        "profiling.pyroscope.address",
        r#"profiling.pyroscope.enabled = true
profiling.pyroscope.address = "https://pyroscope.example.com""#,
    ),
    ("profiling.pyroscope.tags", r#"profiling.pyroscope.tags = { region = "eu", env = "production" }"#),
    (
        "profiling.pyroscope.basic_auth_user",
        r#"profiling.pyroscope.basic_auth_user = "dunlin"
profiling.pyroscope.basic_auth_password = "a-password""#,
    ),
    (
        "profiling.pyroscope.basic_auth_password",
        r#"profiling.pyroscope.basic_auth_user = "dunlin"
profiling.pyroscope.basic_auth_password = "a-password""#,
    ),
    ("profiling.pyroscope.tenant_id", r#"profiling.pyroscope.tenant_id = "team-a""#),
    ("profiling.pyroscope.tls.server_ca_pem", r#"profiling.pyroscope.tls.server_ca_pem = "/etc/dunlin/ca.pem""#),
    ("profiling.pyroscope.tls.cert_pem", r#"profiling.pyroscope.tls.cert_pem = "/etc/dunlin/client.pem""#),
    ("profiling.pyroscope.tls.key_pem", r#"profiling.pyroscope.tls.key_pem = "/etc/dunlin/client-key.pem""#),
    ("profiling.pyroscope.tls.server_name", r#"profiling.pyroscope.tls.server_name = "pyroscope.example.com""#),
    ("opentelemetry.traces_endpoint", r#"opentelemetry.traces_endpoint = "https://traces.example.com/v1/traces""#),
    ("opentelemetry.metrics_endpoint", r#"opentelemetry.metrics_endpoint = "https://metrics.example.com/v1/metrics""#),
    ("opentelemetry.headers", r#"opentelemetry.headers = { authorization = "Bearer a-token" }"#),
    ("opentelemetry.resource_attributes", r#"opentelemetry.resource_attributes = { region = "eu" }"#),
    ("opentelemetry.tls.server_ca_pem", r#"opentelemetry.tls.server_ca_pem = "/etc/dunlin/ca.pem""#),
    ("opentelemetry.tls.cert_pem", r#"opentelemetry.tls.cert_pem = "/etc/dunlin/client.pem""#),
    ("opentelemetry.tls.key_pem", r#"opentelemetry.tls.key_pem = "/etc/dunlin/client-key.pem""#),
    ("opentelemetry.tls.server_name", r#"opentelemetry.tls.server_name = "collector.example.com""#),
    ("log.file", r#"log.file = "/var/log/dunlin.log""#),
    ("node.name", r#"node.name = "frankfurt-1""#),
    ("node.region", r#"node.region = "eu""#),
    ("storage.path", r#"storage.path = "/var/lib/dunlin/storage""#),
    (
        "storage.backup.path",
        r#"storage.path = "/var/lib/dunlin/storage"
storage.backup.path = "/mnt/backups/dunlin""#,
    ),
    (
        "broker.nats.url",
        r#"broker.enabled = true
broker.type = "nats"
broker.nats.url = "nats://dunlin:secret@10.0.0.1:4222,nats://dunlin:secret@10.0.0.2:4222""#,
    ),
    ("broker.nats.tls.server_ca_pem", r#"broker.nats.tls.server_ca_pem = "/etc/dunlin/nats-ca.pem""#),
    ("broker.nats.tls.cert_pem", r#"broker.nats.tls.cert_pem = "/etc/dunlin/nats-client.pem""#),
    ("broker.nats.tls.key_pem", r#"broker.nats.tls.key_pem = "/etc/dunlin/nats-client-key.pem""#),
    ("demo.dir", r#"demo.dir = "web/dist""#),
    ("pid_file", r#"pid_file = "/run/dunlin.pid""#),
    ("client.allowed_origins", r#"client.allowed_origins = ["https://example.com", "http://localhost:*"]"#),
    (
        "client.subscribe_to_user_personal_channel.personal_channel_namespace",
        r#"client.subscribe_to_user_personal_channel = { enabled = true, personal_channel_namespace = "user" }
channel.namespaces = [{ name = "user" }]"#,
    ),
    (
        "client.connect_code_to_unidirectional_disconnect.transforms",
        r#"client.connect_code_to_unidirectional_disconnect = { enabled = true, transforms = [{ code = 109, to = { code = 4000, reason = "expired" } }] }"#,
    ),
    (
        "client.connect_code_to_unidirectional_disconnect.transforms[].to.reason",
        r#"client.connect_code_to_unidirectional_disconnect.transforms = [{ code = 109, to = { code = 4000, reason = "expired" } }]"#,
    ),
    ("channel.namespaces", r#"channel.namespaces = [{ name = "chat", presence = true }, { name = "news" }]"#),
    ("channel.publication_data_format", r#"channel.publication_data_format = "json""#),
    (
        "rpc.namespaces",
        r#"rpc.namespaces = [{ name = "billing", proxy_enabled = true }]
rpc.proxy.endpoint = "http://localhost:3000/rpc""#,
    ),
    ("rpc.namespaces[].name", r#"rpc.namespaces = [{ name = "billing" }]"#),
    ("proxies", r#"proxies = [{ name = "billing", endpoint = "http://localhost:3000/rpc" }]"#),
    ("channel.namespaces[].name", r#"channel.namespaces = [{ name = "chat" }]"#),
    (
        "channel.namespaces[].conflation_key",
        r#"channel.namespaces = [{ name = "chat", delivery = "latest", conflation_key = "symbol" }]"#,
    ),
    (
        "channel.namespaces[].channel_regex",
        r#"channel.namespaces = [{ name = "chat", channel_regex = "^[a-z0-9]+$" }]"#,
    ),
    (
        "channel.namespaces[].publication_data_format",
        r#"channel.namespaces = [{ name = "chat", publication_data_format = "json_object" }]"#,
    ),
    (
        "channel.namespaces[].allowed_delta_types",
        r#"channel.namespaces = [{ name = "chat", allowed_delta_types = ["fossil"], history_size = 100, history_ttl = "300s" }]"#,
    ),
    (
        "channel.namespaces[].room.simulation",
        r#"channel.namespaces = [{ name = "game", room.simulation = "treasure_hunt", history_size = 100, history_ttl = "300s" }]"#,
    ),
    (
        "channel.namespaces[].room.params",
        r#"channel.namespaces = [{ name = "game", room = { simulation = "treasure_hunt", params = { columns = 32, rows = 32 } }, history_size = 100, history_ttl = "300s" }]"#,
    ),
    (
        "channel.namespaces[].room.lobby_channel",
        r#"channel.namespaces = [{ name = "game", room = { simulation = "treasure_hunt", lobby_channel = "lobby:game" }, history_size = 100, history_ttl = "300s" }, { name = "lobby", delivery = "latest", conflation_key = "room", cache_keys = 2000 }]"#,
    ),
    (
        "channel.namespaces[].room.match.notify_namespace",
        r#"channel.namespaces = [{ name = "game", room = { simulation = "treasure_hunt", match = { enabled = true, notify_namespace = "user" } }, history_size = 100, history_ttl = "300s" }, { name = "user", allow_user_limited_channels = true }]"#,
    ),
    (
        "channel.namespaces[].room.match.criteria_params",
        r#"channel.namespaces = [{ name = "game", room = { simulation = "treasure_hunt", match = { enabled = true, criteria_params = ["map", "mode"] } }, history_size = 100, history_ttl = "300s" }]"#,
    ),
    (
        "channel.namespaces[].room.match.region_param",
        r#"channel.namespaces = [{ name = "game", room = { simulation = "treasure_hunt", match = { enabled = true, region_param = "region" } }, history_size = 100, history_ttl = "300s" }]"#,
    ),
    (
        "channel.namespaces[].room.join_params",
        r#"channel.namespaces = [{ name = "game", room = { simulation = "treasure_hunt", join_params = ["columns", "rows"] }, history_size = 100, history_ttl = "300s" }]"#,
    ),
    (
        "channel.namespaces[].room.record_directory",
        r#"channel.namespaces = [{ name = "game", room = { simulation = "treasure_hunt", record_directory = "/var/lib/dunlin/rooms" }, history_size = 100, history_ttl = "300s" }]"#,
    ),
    ("client.token.hmac_secret_key", r#"client.token.hmac_secret_key = "at-least-32-random-bytes-of-text""#),
    (
        "client.token.hmac_previous_secret_key",
        r#"client.token.hmac_secret_key = "the-new-key-of-at-least-32-bytes"
client.token.hmac_previous_secret_key = "the-old-key-of-at-least-32-bytes""#,
    ),
    (
        "client.token.rsa_public_key",
        r#"client.token.rsa_public_key = "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAuWJ0IvFSbuUHNjrUb4xa\no5zkmjeKi/bT5Q4Jo2BOMLtxcCdCx4tIWYs1yCvDKyzRIZnrvo24ZIotzEC0ARvl\n10uWIaBjkjm5BrvxwaxEOtMGAIfjGdaCPjJBWNEa3wz68zNGgWTiywese1Qkmb9k\nLW5Z4nyA96z1DNNoffJlOH5kpJXbEVKM+S0U7hoDs8ZCX2sejyOetBpj3alAFvL0\nZhX7D1CgETiOwI682R8aNhC46g3zx2h0ORR9QfhR12tMbVH/RRIF2BjjPdClHU65\nPJokW8nLG8VsKiQBD9YeqYMAr+Lgs9HlutGSlxj0abz/QUnNbX6oEDdSyyUzfqMN\n6wIDAQAB\n-----END PUBLIC KEY-----""#,
    ),
    (
        "client.token.ecdsa_public_key",
        r#"client.token.ecdsa_public_key = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAER/PvbExHhfleHB/CWiWBS4qRWFoi\njdgDM/rIq+sqs46Dzg79jBkcuuDbYPRntFlgB+9jvoGmDMO+aU2TWedPSQ==\n-----END PUBLIC KEY-----""#,
    ),
    (
        "client.token.jwks_public_endpoint",
        r#"client.token.jwks_public_endpoint = "https://auth.example.com/.well-known/jwks.json""#,
    ),
    ("client.token.audience", r#"client.token.audience = "chat.example.com""#),
    ("client.token.audience_regex", r#"client.token.audience_regex = "^(chat|news)\\.example\\.com$""#),
    ("client.token.issuer", r#"client.token.issuer = "https://auth.example.com""#),
    ("client.token.issuer_regex", r#"client.token.issuer_regex = "^https://auth[0-9]\\.example\\.com$""#),
    ("client.token.user_id_claim", r#"client.token.user_id_claim = "user_id""#),
    ("proxies[].name", r#"proxies = [{ name = "billing", endpoint = "http://localhost:3000/rpc" }]"#),
    ("proxies[].endpoint", r#"proxies = [{ name = "billing", endpoint = "http://localhost:3000/rpc" }]"#),
    (
        "proxies[].http_headers",
        r#"proxies = [{ name = "billing", endpoint = "https://localhost:3000/rpc", http_headers = ["cookie", "x-request-id"] }]"#,
    ),
    (
        "proxies[].http.tls.server_ca_pem",
        r#"proxies = [{ name = "billing", endpoint = "https://localhost:3000/rpc", http.tls.server_ca_pem = "/etc/dunlin/ca.pem" }]"#,
    ),
    (
        "proxies[].http.tls.cert_pem",
        r#"proxies = [{ name = "billing", endpoint = "https://localhost:3000/rpc", http.tls.cert_pem = "/etc/dunlin/client.pem" }]"#,
    ),
    (
        "proxies[].http.tls.key_pem",
        r#"proxies = [{ name = "billing", endpoint = "https://localhost:3000/rpc", http.tls.key_pem = "/etc/dunlin/client-key.pem" }]"#,
    ),
    (
        "proxies[].http.tls.server_name",
        r#"proxies = [{ name = "billing", endpoint = "https://localhost:3000/rpc", http.tls.server_name = "backend.example.com" }]"#,
    ),
    (
        "proxies[].http.static_headers",
        r#"proxies = [{ name = "billing", endpoint = "https://localhost:3000/rpc", http.static_headers = { "x-service" = "dunlin" } }]"#,
    ),
    (
        "proxies[].http.status_to_code_transforms",
        r#"proxies = [{ name = "billing", endpoint = "https://localhost:3000/rpc", http.status_to_code_transforms = [{ status_code = 404, to_error = { code = 404, message = "not found" } }] }]"#,
    ),
    (
        "webhooks.endpoint",
        r#"webhooks.endpoint = "https://localhost:3000/events"
webhooks.secret = "whsec_bm8gc2VjcmV0IGlzIGluIHRoZSBkb2N1bWVudHM=""#,
    ),
    (
        "webhooks.secret",
        r#"webhooks.endpoint = "https://localhost:3000/events"
webhooks.secret = "whsec_bm8gc2VjcmV0IGlzIGluIHRoZSBkb2N1bWVudHM=""#,
    ),
    (
        "webhooks.previous_secret",
        r#"webhooks.endpoint = "https://localhost:3000/events"
webhooks.secret = "whsec_bm8gc2VjcmV0IGlzIGluIHRoZSBkb2N1bWVudHM="
webhooks.previous_secret = "whsec_dGhlIG9uZSBiZWZvcmUgaXQsIHdoaWNoIGlzIG9sZA==""#,
    ),
    ("webhooks.events", r#"webhooks.events = ["connected", "disconnected"]"#),
    ("webhooks.http.tls.server_ca_pem", r#"webhooks.http.tls.server_ca_pem = "/etc/dunlin/ca.pem""#),
    ("webhooks.http.tls.cert_pem", r#"webhooks.http.tls.cert_pem = "/etc/dunlin/client.pem""#),
    ("webhooks.http.tls.key_pem", r#"webhooks.http.tls.key_pem = "/etc/dunlin/client-key.pem""#),
    ("webhooks.http.tls.server_name", r#"webhooks.http.tls.server_name = "backend.example.com""#),
    ("webhooks.http.static_headers", r#"webhooks.http.static_headers = { "x-service" = "dunlin" }"#),
];

/// The example of a key.
pub fn of(path: &str) -> Option<&'static str> {
    EXAMPLES.iter().find(|(known, _)| *known == path).map(|(_, example)| *example)
}
