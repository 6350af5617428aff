//! `client.*`.

use super::{
    COUNT, COUNT_OR_ZERO, Key,
    Kind::{Any, Bool, Duration, DurationOrOff, Int, Secret, Tables, Text, Texts},
    NUMBER, PROXY, Support, own, refused, table, warned, yes,
};

/// So many in a second, or so many at a time, for a 32-bit counter; zero for no bound.
const RATE: super::Kind = Int(0, 1 << 30);

const WRITES: &str = "Dunlin writes each session once per turn of its shard, as much as is ready";
const POSITIONS: &str = "positions cannot drift apart on one node, so there is nothing to poll";

pub(super) const TOP: &[Key] = &[table("client", &[CLIENT], "Sessions.")];

const PERSONAL_CHANNEL: &[Key] = &[
    yes("enabled", Bool, "false", "Subscribe them."),
    yes("personal_channel_namespace", Text, "", "The namespace of these channels; none without it."),
    yes("single_connection", Bool, "false", "A user's older connections end with 3504 when a newer one comes."),
];

const UNIDIRECTIONAL_DISCONNECT: &[Key] = &[
    yes("enabled", Bool, "false", "Use the transforms."),
    Key {
        name: "transforms",
        kind: Tables(&[TRANSFORM]),
        default: "",
        support: Support::Yes,
        doc: "Each of one code. Codes without one become 3005 (109, 110), 3013 (111), 3507 (103), and 3004 otherwise.",
    },
];

const TRANSFORM: &[Key] = &[
    yes("code", Int(0, 65_535), "0", "The code of the error."),
    table(
        "to",
        &[&[
            yes("code", Int(0, 4_999), "0", "The code of the disconnect, 3000 to 4999."),
            yes("reason", Text, "", "Its reason."),
        ]],
        "The disconnect.",
    ),
];

const PROXY_ENABLED: &[Key] = &[yes("enabled", Bool, "false", "Ask it (in `client.proxy` only).")];

const CLIENT: &[Key] = &[
    yes(
        "allowed_origins",
        Texts,
        "",
        "Origins whose pages may connect: `https://example.com`, `https://*.example.com`, or `*` for every page of the web. Requests without an `Origin` header, which no browser sends, are always allowed; with an empty list only they are.",
    ),
    table(
        "token",
        &[TOKEN],
        "Keys of connection tokens, and of subscription tokens unless `client.subscription_token` is enabled. [Token keys](#token-keys).",
    ),
    table(
        "subscription_token",
        &[
            &[yes(
                "enabled",
                Bool,
                "false",
                "Use these keys for subscription tokens (in `client.subscription_token` only).",
            )],
            TOKEN,
        ],
        "Keys of subscription tokens. [Token keys](#token-keys).",
    ),
    own(
        "token_queue_limit",
        COUNT,
        "65536",
        "Tokens signed for public keys that may wait to be verified, or for keys to be fetched. One more is answered with error 100, and the client tries again.",
    ),
    own(
        "token_cache_size",
        COUNT_OR_ZERO,
        "67108864",
        "Bytes of verified tokens that are remembered, so that reconnects need no signature to be checked again. Tokens signed with HMAC need no memory.",
    ),
    yes(
        "allow_anonymous_connect_without_token",
        Bool,
        "false",
        "A client without a token becomes the anonymous user, with an empty user id.",
    ),
    yes("disallow_anonymous_connection_tokens", Bool, "false", "Refuse connection tokens with an empty user id."),
    yes("ping_interval", DurationOrOff, "25s", "Time between pings; 0 or a negative duration switches them off."),
    yes(
        "pong_timeout",
        DurationOrOff,
        "8s",
        "Time for a pong to come, or the session ends with 3012. Below `ping_interval`.",
    ),
    yes(
        "expired_close_delay",
        Duration,
        "25s",
        "Time to refresh an expired connection, or the session ends with 3005.",
    ),
    yes("expired_sub_close_delay", Duration, "25s", "Time to refresh an expired subscription, or it ends with 2501."),
    yes("stale_close_delay", Duration, "10s", "Time to authenticate, or the session ends with 3502."),
    own("close_timeout", Duration, "5s", "Time for a closing session to take its last frames and hang up."),
    yes("channel_limit", COUNT, "128", "Subscriptions of one session. One more is answered with error 106."),
    yes(
        "queue_max_size",
        COUNT,
        "1048576",
        "Bytes that may wait for one session. Past it the session ends with 3008 (slow).",
    ),
    own(
        "queue_max_frames",
        COUNT,
        "16384",
        "Frames that may wait for one session. Past it the session ends with 3008 (slow).",
    ),
    own(
        "commands_per_frame_limit",
        COUNT,
        "1024",
        "Commands in one WebSocket message. Past it the session ends with 3501.",
    ),
    own(
        "json_depth_limit",
        Int(1, 256),
        "32",
        "Objects and lists in one another in a client's JSON, the command among them. Past it the session ends with 3501.",
    ),
    own(
        "object_keys_limit",
        Int(1, 1_000_000),
        "1000",
        "Fields of an object in a client's JSON, and subscriptions in a connect. Past it the session ends with 3501.",
    ),
    yes(
        "connection_limit",
        COUNT_OR_ZERO,
        "0",
        "WebSockets of the node at a time. One more is answered with 503. 0 leaves it to the limit of open files.",
    ),
    yes("history_max_publication_limit", COUNT, "300", "Publications in one history reply."),
    own(
        "history_reply_size_limit",
        COUNT,
        "524288",
        "Bytes, about, of the publications in one history reply, at most `queue_max_size`. The page ends before it gets longer, and the client goes on behind its last publication; a single publication is never left out. The API has no such bound.",
    ),
    own(
        "presence_reply_size_limit",
        COUNT,
        "524288",
        "Bytes, about, of one presence reply, at most `queue_max_size`. Past it the command is answered with error 106; `presence_stats` still counts. The API has no such bound.",
    ),
    yes(
        "recovery_max_publication_limit",
        COUNT,
        "300",
        "Publications in one recovery. Who missed more, or more than `queue_max_size` holds, is told that it could not recover.",
    ),
    yes("connect_include_server_time", Bool, "false", "Tell the server's time in the connect reply."),
    yes("insecure", Bool, "false", "Check no permission, and need no token. For development alone."),
    table(
        "proxy",
        &[&[
            table(
                "connect",
                &[PROXY_ENABLED, PROXY],
                "The backend that is asked who a client is that comes without a token. [Proxy keys](#proxy-keys).",
            ),
            table(
                "refresh",
                &[PROXY_ENABLED, PROXY],
                "The backend that is asked whether a connection goes on when it expires. [Proxy keys](#proxy-keys).",
            ),
        ]],
        "Backends that are asked about connections.",
    ),
    yes(
        "user_connection_limit",
        COUNT_OR_ZERO,
        "0",
        "Connections of one user on the node, of users with a name. One more ends with 3504. 0 for any number.",
    ),
    yes(
        "connection_rate_limit",
        RATE,
        "0",
        "Handshakes of the node in a second, and as many at once. One more is answered with 503. 0 for any number.",
    ),
    own(
        "connect_rate_limit",
        RATE,
        "0",
        "`connect` commands of the node in a second, each shard its share. One more is answered with error 111, and the client comes back later. 0 for any number.",
    ),
    own(
        "recovery_rate_limit",
        RATE,
        "0",
        "Recoveries of the node in a second, each shard its share. One more is answered with error 111, and the client asks again later from the same position. 0 for any number.",
    ),
    own(
        "command_rate_limit",
        RATE,
        "0",
        "Commands of one session in a second, and as many at once. One more is answered with error 111, which the SDKs take for a reason to try again later. `connect`, `unsubscribe` and `send` do not count. 0 for any number.",
    ),
    own(
        "address_connection_limit",
        RATE,
        "0",
        "Sessions of one IPv4 address, or of one IPv6 /64, at a time. One more is answered with 429. 0 for any number.",
    ),
    own(
        "address_connection_rate_limit",
        RATE,
        "0",
        "Handshakes of one IPv4 address, or of one IPv6 /64, in a second. One more is answered with 429. 0 for any number.",
    ),
    own(
        "address_table_limit",
        Int(1_000, 1 << 24),
        "65536",
        "Addresses without a session that are remembered for their rate. When there are more, the oldest is forgotten.",
    ),
    refused(
        "insecure_skip_token_signature_verify",
        Bool,
        "false",
        "Dunlin has no way to trust tokens that nobody signed; use `client.insecure` in development",
    ),
    refused("user_id_http_header", Text, "", "users would not be known by that header, and be refused or anonymous"),
    table(
        "subscribe_to_user_personal_channel",
        &[PERSONAL_CHANNEL],
        "Subscribes each user to a channel of its own, such as `#42`.",
    ),
    table(
        "connect_code_to_unidirectional_disconnect",
        &[UNIDIRECTIONAL_DISCONNECT],
        "Which disconnect an error of connecting becomes where only the server speaks.",
    ),
    warned("presence_update_interval", Duration, "27s", "presence is kept by the session itself and needs no updates"),
    warned("concurrency", NUMBER, "0", "a session's commands are answered one after another"),
    warned("channel_position_check_delay", Duration, "40s", POSITIONS),
    warned("channel_position_max_time_lag", Duration, "0s", POSITIONS),
    warned("write_delay", Duration, "0s", WRITES),
    warned("write_with_timer", Bool, "false", WRITES),
    warned("max_messages_in_frame", NUMBER, "0", WRITES),
    warned("reply_without_queue", Bool, "false", WRITES),
    warned("queue_shrink_delay", Duration, "0s", WRITES),
    warned("batch_periodic_events", Any, "", WRITES),
];

const TOKEN: &[Key] = &[
    yes(
        "hmac_secret_key",
        Secret,
        "",
        "The key that tokens are signed with (HS256, HS384 or HS512). Without it no token is valid. At least 32 bytes.",
    ),
    yes("hmac_previous_secret_key", Secret, "", "A key that tokens may still be signed with, while keys are changed."),
    yes(
        "hmac_previous_secret_key_valid_until",
        Int(0, i64::MAX),
        "0",
        "Unix time in seconds until which the previous key counts; 0 for without end.",
    ),
    yes(
        "rsa_public_key",
        Text,
        "",
        "The public key of tokens signed with RS256, RS384 or RS512, as PEM text. 2048 to 8192 bits.",
    ),
    yes(
        "ecdsa_public_key",
        Text,
        "",
        "The public key of tokens signed with ES256, ES384 or ES512, as PEM text. Its curve says with which of them.",
    ),
    yes(
        "jwks_public_endpoint",
        Text,
        "",
        "Where a set of public keys (JWKS) is fetched, for RS*, ES* and EdDSA; a token names its key by `kid`. With it no other key counts. Named groups of `issuer_regex` and `audience_regex` can stand in it as `{{name}}`.",
    ),
    yes("audience", Text, "", "What `aud` of a token has to be, or to hold."),
    yes(
        "audience_regex",
        Text,
        "",
        "What `aud` of a token, or one of its entries, has to match. Anchor it with `^` and `$`.",
    ),
    yes("issuer", Text, "", "What `iss` of a token has to be."),
    yes("issuer_regex", Text, "", "What `iss` of a token has to match. Anchor it with `^` and `$`."),
    yes(
        "user_id_claim",
        Text,
        "",
        "The claim that names the user, instead of `sub`: a name of letters, digits and `_`.",
    ),
    yes(
        "insecure_skip_jwks_endpoint_safety_check",
        Bool,
        "false",
        "Fetch keys from plain HTTP, from private networks, and from addresses that a token chooses. For development alone.",
    ),
    own("jwks_timeout", Duration, "2s", "Time for one fetch of the set of keys."),
    own("jwks_size_limit", COUNT, "262144", "Bytes of a set of keys. A longer one is not used."),
    own(
        "jwks_cache_min",
        Duration,
        "10s",
        "Time between two fetches, however many tokens name keys that nobody knows, and however short the answer says that it holds.",
    ),
    own(
        "jwks_cache_max",
        Duration,
        "1h",
        "Time after which a key is fetched again, however long the answer says that it holds, and no longer used when that fails. A token is verified again after it, too.",
    ),
];
