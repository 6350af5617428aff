//! `channel.*`, `rpc.*`, `shared_poll.*`, `proxies`.

use super::{
    COUNT, COUNT_OR_ZERO, Key,
    Kind::{Bool, Choice, Duration, Int, Secret, Table, Tables, Text, Texts},
    NUMBER, PROXY, own, part, refused, table, warned, warned_table, yes,
};

const NO_STREAM: &str = "Dunlin asks backends over HTTP, and these answer over gRPC alone";
const NOT_TOLD: &str = "Dunlin does not tell a backend of it, so nobody would hear";
const NOT_TOLD_YET: &str = "Dunlin does not tell a backend of it";
const NO_MAP: &str = "Dunlin knows no map subscriptions yet";
const NO_SHARED_POLL: &str = "Dunlin knows no shared poll subscriptions yet";
const NO_CEL: &str = "Dunlin evaluates no expressions, so the permission that it gives or takes would be missing";
const NO_BATCH: &str = "Dunlin coalesces writes by itself, once per turn of a shard";

pub(super) const TOP: &[Key] = &[
    table("channel", &[CHANNEL], "Channels."),
    table("rpc", &[RPC], "Remote procedure calls of clients, which a backend answers."),
    warned_table(
        "shared_poll",
        &[&[
            part("hmac_secret_key", Secret, ""),
            part("hmac_previous_secret_key", Secret, ""),
            part("hmac_previous_secret_key_valid_until", NUMBER, "0"),
            part("concurrency_limit", NUMBER, "0"),
        ]],
        NO_SHARED_POLL,
    ),
    Key {
        name: "proxies",
        kind: Tables(&[PROXY_NAME, PROXY]),
        default: "",
        support: super::Support::Yes,
        doc: "Backends that namespaces refer to by name. [Proxy keys](#proxy-keys).",
    },
];

const CHANNEL: &[Key] = &[
    table(
        "without_namespace",
        &[OPTIONS, super::room::OPTIONS],
        "Options of channels whose name has no namespace. [Channel options](#channel-options).",
    ),
    Key {
        name: "namespaces",
        kind: Tables(&[NAMESPACE_NAME, OPTIONS, super::room::OPTIONS]),
        default: "",
        support: super::Support::Yes,
        doc: "Options of channels by namespace: the part of a channel's name before the first `:`. [Channel options](#channel-options).",
    },
    yes(
        "history_meta_ttl",
        Duration,
        "720h",
        "How long a channel's epoch and top offset outlive its last use, so that clients can tell a gap from silence.",
    ),
    yes("max_length", COUNT, "255", "Bytes of a channel's name. A longer name is answered with error 107."),
    yes("private_prefix", Text, "$", "Channels whose name begins with it need a subscription token."),
    yes("namespace_boundary", Text, ":", "The one character that ends the namespace in a channel's name."),
    own(
        "max_channels",
        COUNT,
        "1000000",
        "Channels that the node remembers, by their subscribers or by their history. Past it a new channel is answered with error 106.",
    ),
    yes(
        "publication_data_format",
        Choice(&["", "json", "json_object", "binary"]),
        "",
        "What publications have to be: anything but nothing, JSON, a JSON object, or anything. Another one is answered with error 107.",
    ),
    own(
        "idempotency_keys_limit",
        COUNT,
        "1000",
        "Idempotency keys that a channel remembers, each for five minutes. Past it the oldest is forgotten.",
    ),
    own(
        "tags_filter_max_size",
        COUNT,
        "4096",
        "Bytes of a subscription's tags filter. A longer one is answered with error 107.",
    ),
    own("tags_filter_max_nodes", COUNT, "64", "Nodes of a tags filter. A larger one is answered with error 107."),
    own("tags_filter_max_depth", Int(1, 32), "8", "Levels of a tags filter. A deeper one is answered with error 107."),
    own(
        "tags_filters_limit",
        Int(1, 65_535),
        "1000",
        "Different tags filters in one channel, of the sessions of one shard. One more is answered with error 106.",
    ),
    yes("user_boundary", Text, "#", "The one character that begins the list of users in a channel's name."),
    yes("user_separator", Text, ",", "The one character that separates users in a channel's name."),
    table(
        "proxy",
        &[&[
            table(
                "subscribe",
                &[PROXY],
                "The backend that namespaces with `subscribe_proxy_enabled` ask. [Proxy keys](#proxy-keys).",
            ),
            table(
                "publish",
                &[PROXY],
                "The backend that namespaces with `publish_proxy_enabled` ask. [Proxy keys](#proxy-keys).",
            ),
            table(
                "sub_refresh",
                &[PROXY],
                "The backend that namespaces with `sub_refresh_proxy_enabled` ask. [Proxy keys](#proxy-keys).",
            ),
            warned_table("subscribe_stream", &[PROXY], NO_STREAM),
            warned_table("map_publish", &[PROXY], NO_MAP),
            warned_table("map_remove", &[PROXY], NO_MAP),
            warned_table("shared_poll_refresh", &[PROXY], NO_SHARED_POLL),
        ]],
        "Backends that are asked about channels.",
    ),
];

const PROXY_NAME: &[Key] = &[yes(
    "name",
    Text,
    "",
    "The name that namespaces refer to (in `proxies` only): at least two of `a-z A-Z 0-9 - _ .`, and given once.",
)];

const NAMESPACE_NAME: &[Key] = &[yes(
    "name",
    Text,
    "",
    "The namespace's name (in `channel.namespaces` only): at least two of `a-z A-Z 0-9 - _ .`, and given once.",
)];

const OPTIONS: &[Key] = &[
    yes("presence", Bool, "false", "Keep who is in the channel."),
    yes("join_leave", Bool, "false", "Produce join and leave pushes."),
    yes("force_push_join_leave", Bool, "false", "Send joins and leaves also to subscribers that did not ask for them."),
    yes("history_size", Int(0, 1 << 24), "0", "Publications kept per channel; 0 for no history. Needs `history_ttl`."),
    yes(
        "history_ttl",
        Duration,
        "0s",
        "How long they are kept after the newest; 0 for no history. Needs `history_size`.",
    ),
    yes(
        "history_meta_ttl",
        Duration,
        "0s",
        "Overrides `channel.history_meta_ttl`; 0 does not. At least `history_ttl`.",
    ),
    yes(
        "force_positioning",
        Bool,
        "false",
        "Watch every subscriber's position, so that a lost publication is noticed. Needs history.",
    ),
    yes("allow_positioning", Bool, "false", "Watch the position of subscribers that ask for it. Needs history."),
    yes("force_recovery", Bool, "false", "Every subscriber recovers what it missed when it comes back. Needs history."),
    yes("allow_recovery", Bool, "false", "Subscribers that ask for it recover what they missed. Needs history."),
    yes(
        "force_recovery_mode",
        Choice(&["", "stream", "cache"]),
        "stream",
        "`stream` brings back everything missed, `cache` the newest publication alone.",
    ),
    own(
        "delivery",
        Choice(&["reliable", "latest"]),
        "reliable",
        "`reliable` delivers every publication in order, and closes a session that falls too far behind. `latest` keeps at most one waiting publication per key, always the newest. Recovery then needs the mode `cache`.",
    ),
    own(
        "conflation_key",
        Text,
        "",
        "With `delivery: latest`: the tag whose value is the key. Without it, or on publications without the tag, the channel is.",
    ),
    yes("allow_subscribe_for_client", Bool, "false", "Clients with a user id may subscribe without a token."),
    yes("allow_subscribe_for_anonymous", Bool, "false", "Anonymous clients may subscribe where clients may."),
    yes("allow_publish_for_client", Bool, "false", "Clients with a user id may publish."),
    yes("allow_publish_for_subscriber", Bool, "false", "Subscribers with a user id may publish."),
    yes("allow_publish_for_anonymous", Bool, "false", "Anonymous clients may publish where others may."),
    yes("allow_presence_for_client", Bool, "false", "Clients with a user id may read presence."),
    yes("allow_presence_for_subscriber", Bool, "false", "Subscribers with a user id may read presence."),
    yes("allow_presence_for_anonymous", Bool, "false", "Anonymous clients may read presence where others may."),
    yes("allow_history_for_client", Bool, "false", "Clients with a user id may read history."),
    yes("allow_history_for_subscriber", Bool, "false", "Subscribers with a user id may read history."),
    yes("allow_history_for_anonymous", Bool, "false", "Anonymous clients may read history where others may."),
    yes(
        "allow_user_limited_channels",
        Bool,
        "false",
        "Channels such as `dialog#4,7` are open to the users 4 and 7, and to nobody else without a token.",
    ),
    yes(
        "allow_channel_compaction",
        Bool,
        "false",
        "Pushes carry a number instead of the channel's name, to clients that ask for it. The official SDKs do.",
    ),
    yes(
        "channel_regex",
        Text,
        "",
        "What names look like behind the namespace and its boundary, as a regular expression. With it names may leave ASCII.",
    ),
    yes(
        "publication_data_format",
        Choice(&["", "json", "json_object", "binary"]),
        "",
        "What publications have to be; empty for what `channel.publication_data_format` says.",
    ),
    yes("allow_tags_filter", Bool, "false", "Subscribers may have publications filtered by their tags."),
    yes(
        "auto_cache_recover",
        Bool,
        "false",
        "Subscribers are sent the newest publication when they come, asked for or not. Needs `force_recovery` with the mode `cache`.",
    ),
    yes(
        "allowed_delta_types",
        Texts,
        "",
        "`[\"fossil\"]` lets subscribers have publications as differences to the one before. Needs history.",
    ),
    yes(
        "delta_publish",
        Bool,
        "false",
        "Every publication may be sent as a difference, not only those published with `delta`.",
    ),
    refused("map_clients_presence_channel_prefix", Text, "", "the channels that it fills would stay empty"),
    refused("map_users_presence_channel_prefix", Text, "", "the channels that it fills would stay empty"),
    refused(
        "subscription_type",
        Choice(&["", "stream", "map", "map_clients", "map_users", "shared_poll"]),
        "stream",
        "Dunlin knows only subscriptions of type `stream`",
    ),
    yes("subscribe_proxy_enabled", Bool, "false", "Ask a backend whether a client may subscribe."),
    yes(
        "subscribe_proxy_name",
        Text,
        "default",
        "Which backend: a name out of `proxies`, or `default` for `channel.proxy.subscribe`.",
    ),
    yes("publish_proxy_enabled", Bool, "false", "Ask a backend whether, and what, a client may publish."),
    yes(
        "publish_proxy_name",
        Text,
        "default",
        "Which backend: a name out of `proxies`, or `default` for `channel.proxy.publish`.",
    ),
    yes("sub_refresh_proxy_enabled", Bool, "false", "Ask a backend whether a subscription goes on when it expires."),
    yes(
        "sub_refresh_proxy_name",
        Text,
        "default",
        "Which backend: a name out of `proxies`, or `default` for `channel.proxy.sub_refresh`.",
    ),
    refused("subscribe_stream_proxy_enabled", Bool, "false", NO_STREAM),
    refused("cache_empty_proxy_enabled", Bool, "false", NOT_TOLD),
    refused("state_proxy_enabled", Bool, "false", NOT_TOLD),
    refused("subscribe_cel", Text, "", NO_CEL),
    refused("publish_cel", Text, "", NO_CEL),
    refused("history_cel", Text, "", NO_CEL),
    refused("presence_cel", Text, "", NO_CEL),
    refused("batch_flush_latest", Bool, "false", "it drops publications; in Dunlin set `delivery: latest` instead"),
    warned("subscribe_stream_proxy_name", Text, "default", NO_STREAM),
    warned("subscribe_stream_proxy_bidirectional", Bool, "false", NO_STREAM),
    warned("cache_empty_proxy_name", Text, "default", NOT_TOLD_YET),
    warned("state_events", Texts, "", NOT_TOLD_YET),
    warned("keep_latest_publication", Bool, "false", "publications are sent whole, which takes more bytes"),
    warned("shared_position_sync", Bool, "false", "positions cost nothing to check in Dunlin"),
    warned("batch_max_size", COUNT_OR_ZERO, "0", NO_BATCH),
    warned("batch_max_delay", Duration, "0s", NO_BATCH),
    warned("client_publish_debounce_interval", Duration, "0s", "clients publish as often as they like"),
    warned("map", Table(&[MAP]), "", NO_MAP),
    warned("shared_poll", Table(&[SHARED_POLL]), "", NO_SHARED_POLL),
];

const MAP: &[Key] = &[
    part("mode", Text, ""),
    part("key_ttl", Duration, "0s"),
    part("stream_size", NUMBER, "0"),
    part("stream_ttl", Duration, "0s"),
    part("meta_ttl", Duration, "0s"),
    part("remove_client_on_unsubscribe", Bool, "false"),
    part("client_key", Text, ""),
    part("allow_publish_for_client", Bool, "false"),
    part("allow_publish_for_subscriber", Bool, "false"),
    part("allow_publish_for_anonymous", Bool, "false"),
    part("allow_remove_for_client", Bool, "false"),
    part("allow_remove_for_subscriber", Bool, "false"),
    part("allow_remove_for_anonymous", Bool, "false"),
    part("publish_proxy_enabled", Bool, "false"),
    part("publish_proxy_name", Text, "default"),
    part("remove_proxy_enabled", Bool, "false"),
    part("remove_proxy_name", Text, "default"),
    part("default_page_size", NUMBER, "0"),
    part("min_page_size", NUMBER, "0"),
    part("max_page_size", NUMBER, "0"),
    part("live_transition_max_publication_limit", NUMBER, "0"),
    part("subscribe_catch_up_timeout", Duration, "0s"),
];

const SHARED_POLL: &[Key] = &[
    part("proxy_name", Text, ""),
    part("refresh_interval", Duration, "0s"),
    part("refresh_batch_size", NUMBER, "0"),
    part("max_keys_per_connection", NUMBER, "0"),
    part("mode", Text, ""),
    part("channel_shutdown_delay", Duration, "0s"),
    part("track_expired_extra_delay", Duration, "0s"),
    part("publish_enabled", Bool, "false"),
];

const RPC: &[Key] = &[
    table("proxy", &[PROXY], "The backend that methods with `proxy_enabled` call. [Proxy keys](#proxy-keys)."),
    table("without_namespace", &[RPC_OPTIONS], "Methods without a namespace."),
    Key {
        name: "namespaces",
        kind: Tables(&[RPC_NAMESPACE_NAME, RPC_OPTIONS]),
        default: "",
        support: super::Support::Yes,
        doc: "Methods by namespace: the part of a method's name before the first `:`.",
    },
    table(
        "ping",
        &[&[
            yes("enabled", Bool, "false", "Answer the method at once, without a backend."),
            yes("method", Text, "ping", "Its name."),
        ]],
        "A method that Dunlin itself answers.",
    ),
    yes("namespace_boundary", Text, ":", "The one character that ends the namespace in a method's name."),
];

const RPC_NAMESPACE_NAME: &[Key] =
    &[yes("name", Text, "", "The namespace's name: at least two of `a-z A-Z 0-9 - _ .`, and given once.")];

const RPC_OPTIONS: &[Key] = &[
    yes("proxy_enabled", Bool, "false", "Call a backend. Without it, a method is answered with error 108."),
    yes("proxy_name", Text, "default", "Which backend: a name out of `proxies`, or `default` for `rpc.proxy`."),
];
