//! `client.*`.

use super::{
    COUNT, COUNT_OR_ZERO, Key, PROXY, Support,
    ValueKind::{Bool, Duration, DurationOrOff, Int, Secret, Tables, Text, Texts, Url},
    own, table, yes,
};

/// A rate per second or a number, for a 32-bit counter; zero for no limit.
const RATE: super::ValueKind = Int(0, 1 << 30);

pub(super) const TOP: &[Key] = &[table("client", &[CLIENT], "Sessions.")];

const PERSONAL_CHANNEL: &[Key] = &[
    yes("enabled", Bool, "false", "Subscribe each user who connects to the user's own channel."),
    yes(
        "personal_channel_namespace",
        Text,
        "",
        "The namespace of the personal channels. Empty: they have no namespace.",
    ),
    yes(
        "single_connection",
        Bool,
        "false",
        "Allow one connection for each user: a new connection ends the user's older ones with code 3504.",
    ),
];

const UNIDIRECTIONAL_DISCONNECT: &[Key] = &[
    yes("enabled", Bool, "false", "Apply the transforms."),
    Key {
        name: "transforms",
        kind: Tables(&[TRANSFORM]),
        default: "",
        support: Support::Yes,
        doc: "Maps an error code at connect to a disconnect code. Without a transform, 109 and 110 become 3005, 111 becomes 3013, 103 becomes 3507, and all others become 3004.",
    },
];

const TRANSFORM: &[Key] = &[
    yes("code", Int(0, 65_535), "0", "The error code to map."),
    table(
        "to",
        &[&[
            yes("code", Int(0, 4_999), "0", "The disconnect code, from 3000 to 4999."),
            yes("reason", Text, "", "The disconnect reason."),
        ]],
        "The disconnect that replaces the error.",
    ),
];

const PROXY_ENABLED: &[Key] = &[yes(
    "enabled",
    Bool,
    "false",
    "Call this backend. Only `client.proxy.connect` and `client.proxy.refresh` have this key.",
)];

const CLIENT: &[Key] = &[
    yes(
        "allowed_origins",
        Texts,
        "",
        "Origins of the web pages that may connect: `https://example.com`, `https://*.example.com`, or `*` for any page. Requests without an `Origin` header are always allowed; browsers always send one. With an empty list, no page can connect.",
    ),
    table(
        "token",
        &[TOKEN],
        "Keys that verify connection tokens, and subscription tokens unless `client.subscription_token.enabled` is true. See [Token keys](#token-keys).",
    ),
    table(
        "subscription_token",
        &[
            &[yes(
                "enabled",
                Bool,
                "false",
                "Verify subscription tokens with the keys of this table instead of those of `client.token`.",
            )],
            TOKEN,
        ],
        "Keys that verify subscription tokens. See [Token keys](#token-keys).",
    ),
    own(
        "token_queue_limit",
        COUNT,
        "65536",
        "Maximum number of tokens that wait for verification with a public key, or for a key set to be fetched. Beyond it the client gets error 100, which is temporary.",
    ),
    own(
        "token_cache_size",
        COUNT_OR_ZERO,
        "67108864",
        "Size in bytes of the cache of verified tokens, which saves the signature check on reconnect. HMAC tokens are not cached.",
    ),
    own(
        "access_rules_limit",
        COUNT,
        "100000",
        "Maximum number of rules about who may not connect: blocked users and revoked tokens. Further ones get error 111 in the server API.",
    ),
    own(
        "access_rules_size_limit",
        COUNT,
        "33554432",
        "Maximum size in bytes of these rules, which each shard has in memory.",
    ),
    yes(
        "allow_anonymous_connect_without_token",
        Bool,
        "false",
        "Allow clients without a token to connect, as the anonymous user (empty user ID).",
    ),
    yes("disallow_anonymous_connection_tokens", Bool, "false", "Refuse connection tokens with an empty user ID."),
    yes(
        "ping_interval",
        DurationOrOff,
        "25s",
        "Interval between pings to a client. 0 or a negative duration disables pings.",
    ),
    yes(
        "pong_timeout",
        DurationOrOff,
        "8s",
        "How long to wait for a pong before the session ends with 3012. Must be less than `client.ping_interval`.",
    ),
    yes(
        "expired_close_delay",
        Duration,
        "25s",
        "How long a client may take to refresh an expired connection before the session ends with 3005.",
    ),
    yes(
        "expired_sub_close_delay",
        Duration,
        "25s",
        "How long a client may take to refresh an expired subscription before it ends with 2501.",
    ),
    yes(
        "stale_close_delay",
        Duration,
        "10s",
        "How long a client may take to send a valid `connect` command before the session ends with 3502.",
    ),
    own(
        "close_timeout",
        Duration,
        "5s",
        "How long a closing session may take to receive its last frames and close the connection.",
    ),
    yes(
        "channel_limit",
        COUNT,
        "128",
        "Maximum number of subscriptions of one session. Beyond it the client gets error 106.",
    ),
    yes(
        "queue_max_size",
        COUNT,
        "1048576",
        "Maximum number of bytes queued for one session. Beyond it the session ends with 3008 (slow).",
    ),
    own(
        "queue_max_frames",
        COUNT,
        "16384",
        "Maximum number of frames queued for one session. Beyond it the session ends with 3008 (slow).",
    ),
    own(
        "commands_per_frame_limit",
        COUNT,
        "1024",
        "Maximum number of commands in one WebSocket message. Beyond it the session ends with 3501.",
    ),
    own(
        "json_depth_limit",
        Int(1, 256),
        "32",
        "Maximum nesting depth of a client's JSON, including the command itself. Beyond it the session ends with 3501.",
    ),
    own(
        "object_keys_limit",
        Int(1, 1_000_000),
        "1000",
        "Maximum number of fields of an object in a client's JSON, and of subscriptions in one `connect` command. Beyond it the session ends with 3501.",
    ),
    yes(
        "connection_limit",
        COUNT_OR_ZERO,
        "0",
        "Maximum number of WebSocket connections of the node. Beyond it new connections get 503. 0: limited only by the number of open files.",
    ),
    yes("history_max_publication_limit", COUNT, "300", "Maximum number of publications in one history reply."),
    own(
        "history_reply_size_limit",
        COUNT,
        "524288",
        "Approximate maximum size in bytes of one history reply to a client; at most `client.queue_max_size`. A longer page is cut, and the client continues after its last publication. A page holds at least one publication. Does not apply to the server API.",
    ),
    own(
        "presence_reply_size_limit",
        COUNT,
        "524288",
        "Approximate maximum size in bytes of one presence reply to a client; at most `client.queue_max_size`. Beyond it the client gets error 106; `presence_stats` still works. Does not apply to the server API.",
    ),
    yes(
        "recovery_max_publication_limit",
        COUNT,
        "300",
        "Maximum number of publications in one recovery. A client that missed more, or more than fits into `client.queue_max_size`, gets `recovered: false`.",
    ),
    yes("connect_include_server_time", Bool, "false", "Include the server time in the connect reply."),
    yes(
        "insecure",
        Bool,
        "false",
        "Disable all permission checks and accept connections without a token. For development only.",
    ),
    table(
        "proxy",
        &[&[
            table(
                "connect",
                &[PROXY_ENABLED, PROXY],
                "The backend that authenticates clients that connect without a token. See [Proxy keys](#proxy-keys).",
            ),
            table(
                "refresh",
                &[PROXY_ENABLED, PROXY],
                "The backend that decides whether an expiring connection continues. See [Proxy keys](#proxy-keys).",
            ),
        ]],
        "Backends that decide about connections.",
    ),
    yes(
        "user_connection_limit",
        COUNT_OR_ZERO,
        "0",
        "Maximum number of connections of one user; does not apply to the anonymous user. Beyond it the new connection ends with 3504. In a cluster it is about all nodes together, as docs/clustering.md describes. 0: no limit.",
    ),
    yes(
        "connection_rate_limit",
        RATE,
        "0",
        "Maximum number of handshakes per second on the node; the burst size is the same. Beyond it connections get 503. 0: no limit.",
    ),
    own(
        "connect_rate_limit",
        RATE,
        "0",
        "Maximum number of `connect` commands per second on the node, divided equally between the shards. Beyond it the client gets error 111 and tries again later. 0: no limit.",
    ),
    own(
        "recovery_rate_limit",
        RATE,
        "0",
        "Maximum number of recoveries per second on the node, divided equally between the shards. Beyond it the client gets error 111 and tries again later from the same position. 0: no limit.",
    ),
    own(
        "command_rate_limit",
        RATE,
        "0",
        "Maximum number of commands per second of one session; the burst size is the same. Beyond it the client gets error 111 and tries again later. `connect`, `unsubscribe` and `send` do not count. 0: no limit.",
    ),
    own(
        "address_connection_limit",
        RATE,
        "0",
        "Maximum number of sessions of one IPv4 address or one IPv6 /64 network. Beyond it new connections get 429. 0: no limit.",
    ),
    own(
        "address_connection_rate_limit",
        RATE,
        "0",
        "Maximum number of handshakes per second of one IPv4 address or one IPv6 /64 network. Beyond it connections get 429. 0: no limit.",
    ),
    own(
        "address_table_limit",
        Int(1_000, 1 << 24),
        "65536",
        "Maximum number of addresses without a session whose handshake rate is remembered. Beyond it the oldest is evicted.",
    ),
    table(
        "subscribe_to_user_personal_channel",
        &[PERSONAL_CHANNEL],
        "Subscribe each user to a personal channel such as `#42`.",
    ),
    table(
        "connect_code_to_unidirectional_disconnect",
        &[UNIDIRECTIONAL_DISCONNECT],
        "Disconnect codes for errors at connect, for unidirectional transports.",
    ),
];

const TOKEN: &[Key] = &[
    yes("hmac_secret_key", Secret, "", "The secret key that signs HS256, HS384 and HS512 tokens. At least 32 bytes."),
    yes(
        "hmac_previous_secret_key",
        Secret,
        "",
        "The previous HMAC key. Tokens signed with it stay valid during a key change.",
    ),
    yes(
        "hmac_previous_secret_key_valid_until",
        Int(0, i64::MAX),
        "0",
        "Unix time in seconds until which the previous key is accepted. 0: no end.",
    ),
    own(
        "allow_short_hmac_keys",
        Bool,
        "false",
        "Accept HMAC keys of less than 32 bytes, with a warning. Anyone who has one token can find a short key by trying. Only for a migration, until the key is changed.",
    ),
    yes(
        "rsa_public_key",
        Text,
        "",
        "The public key that verifies RS256, RS384 and RS512 tokens, as PEM text. 2048 to 8192 bits.",
    ),
    yes(
        "ecdsa_public_key",
        Text,
        "",
        "The public key that verifies ES256, ES384 or ES512 tokens, as PEM text. The curve of the key determines the algorithm.",
    ),
    yes(
        "jwks_public_endpoint",
        Url,
        "",
        "URL of a JSON Web Key Set (JWKS) for RS*, ES* and EdDSA tokens. A token selects its key by `kid`. All other keys of the table are then ignored. `{{name}}` is replaced by the named group of `issuer_regex` or `audience_regex`.",
    ),
    yes("audience", Text, "", "Required audience: the `aud` claim must be equal to it or contain it."),
    yes(
        "audience_regex",
        Text,
        "",
        "Regular expression that the `aud` claim, or one of its entries, must match. Anchor it with `^` and `$`.",
    ),
    yes("issuer", Text, "", "Required issuer: the `iss` claim must be equal to it."),
    yes("issuer_regex", Text, "", "Regular expression that the `iss` claim must match. Anchor it with `^` and `$`."),
    yes("user_id_claim", Text, "", "The claim that holds the user ID, instead of `sub`. Letters, digits and `_`."),
    yes(
        "insecure_skip_jwks_endpoint_safety_check",
        Bool,
        "false",
        "Allow plain HTTP, private networks, and URLs that depend on unverified claims for `jwks_public_endpoint`. For development only.",
    ),
    own("jwks_timeout", Duration, "2s", "Timeout of one fetch of the key set."),
    own("jwks_size_limit", COUNT, "262144", "Maximum size of a key set in bytes. A larger one is not used."),
    own(
        "jwks_cache_min",
        Duration,
        "10s",
        "Minimum interval between two fetches of the key set, regardless of its `Cache-Control` and of the number of tokens with unknown keys.",
    ),
    own(
        "jwks_cache_max",
        Duration,
        "1h",
        "Maximum age of a key, regardless of `Cache-Control`. An older key is fetched again, and is not used if that fails. Tokens are verified again after this time as well.",
    ),
];
