//! `channel.*`, `rpc.*`, `shared_poll.*`, `proxies`.

use dunlin_engine::options::{KeyOrigin, NamespaceOptions, Switch};

use super::{
    COUNT, COUNT_OR_ZERO, Key, NUMBER, PROXY,
    ValueKind::{Bool, Choice, Duration, Int, Secret, Table, Tables, Text, Texts},
    own, part, refused, table, warned, warned_table, yes,
};

const NO_STREAM: &str = "Dunlin calls backends only over HTTP, and this proxy needs gRPC";
const NOT_TOLD: &str = "Dunlin does not send this event to a backend, so the event would be lost";
const NOT_TOLD_YET: &str = "Dunlin does not send this event to a backend";
const NO_MAP: &str = "Dunlin has no map subscriptions";
const NO_SHARED_POLL: &str = "Dunlin has no shared poll subscriptions";
const NO_CEL: &str = "Dunlin does not evaluate expressions, so this permission rule would be missing";
const NO_BATCH: &str = "Dunlin batches writes automatically, once per turn of a shard";

pub(super) const TOP: &[Key] = &[
    table("channel", &[CHANNEL], "Channels."),
    table("rpc", &[RPC], "Remote procedure calls (RPC) of clients, which Dunlin forwards to a backend."),
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
        doc: "Named backends that namespaces refer to. See [Proxy keys](#proxy-keys).",
    },
];

const CHANNEL: &[Key] = &[
    table(
        "without_namespace",
        &[OPTIONS, super::room::OPTIONS],
        "Options of channels without a namespace. See [Channel options](#channel-options).",
    ),
    Key {
        name: "namespaces",
        kind: Tables(&[NAMESPACE_NAME, OPTIONS, super::room::OPTIONS]),
        default: "",
        support: super::Support::Yes,
        doc: "Options of channels by namespace. The namespace is the part of the channel name before the first `:`. See [Channel options](#channel-options).",
    },
    yes(
        "history_meta_ttl",
        Duration,
        "720h",
        "How long a channel's epoch and last offset are kept after its last use. They let a client detect missed publications.",
    ),
    yes("max_length", COUNT, "255", "Maximum length of a channel name in bytes. A longer name gets error 107."),
    yes("private_prefix", Text, "$", "Channels whose name begins with this prefix require a subscription token."),
    yes("namespace_boundary", Text, ":", "The character that ends the namespace in a channel name."),
    own(
        "max_channels",
        COUNT,
        "1000000",
        "Maximum number of channels with subscribers or history on the node. Beyond it the least recently used channel without subscribers is evicted with its history. If every channel has subscribers or idempotency keys, a new channel gets error 106.",
    ),
    own(
        "max_channels_per_session",
        COUNT_OR_ZERO,
        "1000",
        "Maximum number of channels with history that no other user has used, by the session that published in them first. Beyond it a publication in a new channel gets error 106. A channel no longer counts when another user subscribes or publishes, when the server API publishes, or when its history is forgotten. 0: no limit.",
    ),
    own(
        "max_channels_per_user",
        COUNT_OR_ZERO,
        "10000",
        "As `channel.max_channels_per_session`, for all sessions of a user together. Anonymous sessions are distinguished by address. 0: no limit.",
    ),
    own(
        "max_channels_per_address",
        COUNT_OR_ZERO,
        "100000",
        "As `channel.max_channels_per_session`, for all sessions of an address (IPv6: a /64) together. Behind a proxy set `http_server.trusted_proxies`. 0: no limit.",
    ),
    own(
        "history_memory_limit",
        COUNT_OR_ZERO,
        "1073741824",
        "Maximum bytes of history on the node. A publication counts as its data, tags and info plus 256 bytes. Each shard has an equal share. Beyond it see `history_overflow`. 0: no limit.",
    ),
    own(
        "history_disk_limit",
        COUNT_OR_ZERO,
        "0",
        "Maximum bytes of stored publications of all namespaces with `durability`. A publication counts as its data and tags plus 256 bytes; files may be larger or, compressed, smaller. A publication beyond it gets error 111, which is temporary. 0: no limit but `storage.free_space_min`.",
    ),
    own(
        "waiting_requests_limit",
        COUNT,
        "16384",
        "Requests of a shard that wait for a page of a log, or for the servers of other nodes to know of a first subscription. Further ones get error 111.",
    ),
    own(
        "waiting_requests_size_limit",
        COUNT,
        "16777216",
        "Bytes of these requests, per shard. One session has at most an eighth of it. Further ones get error 111.",
    ),
    own(
        "cache_size_limit",
        Int(0, 1 << 40),
        "268435456",
        "Bytes of the publications that `cache_keys` keeps, over all channels of the node. Past it, a channel evicts its oldest keys.",
    ),
    yes(
        "publication_data_format",
        Choice(&["", "json", "json_object", "binary"]),
        "",
        "Required format of publication data. Empty: any non-empty data. `json`: JSON. `json_object`: a JSON object. `binary`: any data, including empty data. Other data gets error 107.",
    ),
    own(
        "idempotency_keys_limit",
        COUNT,
        "1000",
        "Maximum number of idempotency keys remembered for each channel, for five minutes each. Beyond it the oldest is evicted.",
    ),
    own(
        "tags_filter_max_size",
        COUNT,
        "4096",
        "Maximum size in bytes of the tags filter of a subscription. A larger one gets error 107.",
    ),
    own("tags_filter_max_nodes", COUNT, "64", "Maximum number of nodes of a tags filter. A larger one gets error 107."),
    own("tags_filter_max_depth", Int(1, 32), "8", "Maximum depth of a tags filter. A deeper one gets error 107."),
    own(
        "tags_filters_limit",
        Int(1, 65_535),
        "1000",
        "Maximum number of different tags filters in one channel on one shard. Beyond it the client gets error 106.",
    ),
    yes("user_boundary", Text, "#", "The character that begins the list of users in a channel name."),
    yes("user_separator", Text, ",", "The character that separates users in a channel name."),
    table(
        "proxy",
        &[&[
            table(
                "subscribe",
                &[PROXY],
                "The backend of namespaces with `subscribe_proxy_enabled`. See [Proxy keys](#proxy-keys).",
            ),
            table(
                "publish",
                &[PROXY],
                "The backend of namespaces with `publish_proxy_enabled`. See [Proxy keys](#proxy-keys).",
            ),
            table(
                "sub_refresh",
                &[PROXY],
                "The backend of namespaces with `sub_refresh_proxy_enabled`. See [Proxy keys](#proxy-keys).",
            ),
            warned_table("subscribe_stream", &[PROXY], NO_STREAM),
            warned_table("map_publish", &[PROXY], NO_MAP),
            warned_table("map_remove", &[PROXY], NO_MAP),
            warned_table("shared_poll_refresh", &[PROXY], NO_SHARED_POLL),
        ]],
        "Backends that decide about channels.",
    ),
];

const PROXY_NAME: &[Key] = &[yes(
    "name",
    Text,
    "",
    "The unique name that namespaces refer to. At least two of `a-z A-Z 0-9 - _ .`. Only `proxies` has this key.",
)];

const NAMESPACE_NAME: &[Key] = &[yes(
    "name",
    Text,
    "",
    "The unique name of the namespace. At least two of `a-z A-Z 0-9 - _ .`. Only `channel.namespaces` has this key.",
)];

/// The key of a boolean option that the engine declares.
const fn switch(name: &str) -> Key {
    let mut switches = NamespaceOptions::SWITCHES;
    while let [Switch { key, origin, doc, .. }, rest @ ..] = switches {
        if is_same(key.as_bytes(), name.as_bytes()) {
            return match origin {
                KeyOrigin::Centrifugo => yes(key, Bool, "false", doc),
                KeyOrigin::Dunlin => own(key, Bool, "false", doc),
            };
        }
        switches = rest;
    }
    // The tables are constants, so this ends the build and not the program.
    panic!("the engine has no such switch")
}

/// Trait methods such as `==` cannot be called in a constant.
const fn is_same(mut a: &[u8], mut b: &[u8]) -> bool {
    while let ([first_a, rest_a @ ..], [first_b, rest_b @ ..]) = (a, b) {
        if *first_a != *first_b {
            return false;
        }
        (a, b) = (rest_a, rest_b);
    }
    a.is_empty() && b.is_empty()
}

const OPTIONS: &[Key] = &[
    switch("presence"),
    switch("join_leave"),
    switch("force_push_join_leave"),
    yes(
        "history_size",
        Int(0, 1 << 24),
        "0",
        "Number of publications kept for each channel. 0: no history. Needs `history_ttl`.",
    ),
    yes(
        "history_ttl",
        Duration,
        "0s",
        "How long history is kept after the last publication. 0: no history. Needs `history_size`.",
    ),
    own(
        "history_memory_limit",
        COUNT_OR_ZERO,
        "16777216",
        "Maximum bytes of history of one channel, counted as in `channel.history_memory_limit`. Beyond it see `history_overflow`. 0: no limit.",
    ),
    own(
        "history_disk_limit",
        COUNT_OR_ZERO,
        "268435456",
        "Maximum bytes of stored publications of one channel with `durability`, counted as in `channel.history_disk_limit`. Beyond it see `history_overflow`. The oldest are evicted in parts of up to a third of the history. 0: no limit.",
    ),
    own(
        "history_disk_total_limit",
        COUNT_OR_ZERO,
        "0",
        "Maximum bytes of stored publications of all channels of the namespace, counted as in `channel.history_disk_limit`. A publication beyond it gets error 111, which is temporary; other namespaces are not affected. 0: no limit.",
    ),
    own(
        "history_overflow",
        Choice(&["evict", "refuse"]),
        "evict",
        "What happens when a publication exceeds the history limit of its channel or of the node. `evict`: the oldest publications of the channel are evicted, or the oldest of the largest histories of the node. `refuse`: the publication gets error 111, which is temporary, and history of the namespace is never evicted. A publication that exceeds a limit by itself always gets error 111.",
    ),
    own(
        "durability",
        Choice(&["memory", "disk", "disk_sync"]),
        "memory",
        "Where history is kept. `memory`: it ends with the process. `disk`: a publication is delivered and acknowledged when it is in the write-ahead log of `storage.path`; it survives the end of the process. `disk_sync`: the log is synced first, so a publication also survives a loss of power. Both need history and `storage.path`.",
    ),
    yes(
        "history_meta_ttl",
        Duration,
        "0s",
        "Overrides `channel.history_meta_ttl`. 0: not overridden. At least `history_ttl`.",
    ),
    switch("force_positioning"),
    switch("allow_positioning"),
    switch("force_recovery"),
    switch("allow_recovery"),
    yes(
        "force_recovery_mode",
        Choice(&["", "stream", "cache"]),
        "stream",
        "`stream` recovers all missed publications, `cache` only the newest one.",
    ),
    own(
        "delivery",
        Choice(&["reliable", "latest"]),
        "reliable",
        "`reliable` delivers every publication in order and disconnects a session that is too slow. `latest` queues at most the newest publication for each key; recovery then needs `force_recovery_mode: cache`.",
    ),
    own(
        "conflation_key",
        Text,
        "",
        "With `delivery: latest` or `cache_keys`: the name of the tag whose value is the key. A publication without this tag has the channel as its key.",
    ),
    own(
        "cache_keys",
        Int(0, 10_000),
        "0",
        "With `conflation_key`: the number of keys of a channel whose newest publication the node keeps. A client that subscribes receives all of them with the reply; 0 keeps none. Past the limit, the key with the oldest publication is evicted. The publications of one channel take at most half of `client.queue_max_size`.",
    ),
    own(
        "cache_keys_ttl",
        Duration,
        "1h",
        "With `cache_keys`: how long the node keeps the newest publication of a key.",
    ),
    switch("allow_subscribe_for_client"),
    switch("allow_subscribe_for_anonymous"),
    switch("allow_publish_for_client"),
    switch("allow_publish_for_subscriber"),
    switch("allow_publish_for_anonymous"),
    switch("allow_presence_for_client"),
    switch("allow_presence_for_subscriber"),
    switch("allow_presence_for_anonymous"),
    switch("allow_history_for_client"),
    switch("allow_history_for_subscriber"),
    switch("allow_history_for_anonymous"),
    switch("allow_user_limited_channels"),
    switch("allow_channel_compaction"),
    yes(
        "channel_regex",
        Text,
        "",
        "Regular expression that the channel name after the namespace must match. If set, names may contain non-ASCII characters.",
    ),
    yes(
        "publication_data_format",
        Choice(&["", "json", "json_object", "binary"]),
        "",
        "Required format of publication data. Empty: `channel.publication_data_format`.",
    ),
    switch("hide_publisher_info"),
    switch("allow_tags_filter"),
    switch("auto_cache_recover"),
    yes(
        "allowed_delta_types",
        Texts,
        "",
        "`[\"fossil\"]` lets subscribers receive publications as deltas to the previous publication. Needs history.",
    ),
    switch("delta_publish"),
    refused("map_clients_presence_channel_prefix", Text, "", "the channels for this presence data would stay empty"),
    refused("map_users_presence_channel_prefix", Text, "", "the channels for this presence data would stay empty"),
    refused(
        "subscription_type",
        Choice(&["", "stream", "map", "map_clients", "map_users", "shared_poll"]),
        "stream",
        "Dunlin supports only subscriptions of type `stream`",
    ),
    yes("subscribe_proxy_enabled", Bool, "false", "Call a backend that decides whether a client may subscribe."),
    yes(
        "subscribe_proxy_name",
        Text,
        "default",
        "The backend: a name from `proxies`, or `default` for `channel.proxy.subscribe`.",
    ),
    yes(
        "publish_proxy_enabled",
        Bool,
        "false",
        "Call a backend that accepts, changes or refuses the publications of clients.",
    ),
    yes(
        "publish_proxy_name",
        Text,
        "default",
        "The backend: a name from `proxies`, or `default` for `channel.proxy.publish`.",
    ),
    yes(
        "sub_refresh_proxy_enabled",
        Bool,
        "false",
        "Call a backend that decides whether an expiring subscription continues.",
    ),
    yes(
        "sub_refresh_proxy_name",
        Text,
        "default",
        "The backend: a name from `proxies`, or `default` for `channel.proxy.sub_refresh`.",
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
    warned("keep_latest_publication", Bool, "false", "Dunlin sends full publications, which need more bytes"),
    warned("shared_position_sync", Bool, "false", "Dunlin needs no position checks"),
    warned("batch_max_size", COUNT_OR_ZERO, "0", NO_BATCH),
    warned("batch_max_delay", Duration, "0s", NO_BATCH),
    warned("client_publish_debounce_interval", Duration, "0s", "Dunlin does not debounce publications of clients"),
    refused("map", Table(&[MAP]), "", NO_MAP),
    refused("shared_poll", Table(&[SHARED_POLL]), "", NO_SHARED_POLL),
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
    table("proxy", &[PROXY], "The backend of methods with `proxy_enabled`. See [Proxy keys](#proxy-keys)."),
    table("without_namespace", &[RPC_OPTIONS], "Methods without a namespace."),
    Key {
        name: "namespaces",
        kind: Tables(&[RPC_NAMESPACE_NAME, RPC_OPTIONS]),
        default: "",
        support: super::Support::Yes,
        doc: "Methods by namespace. The namespace is the part of the method name before the first `:`.",
    },
    table(
        "ping",
        &[&[
            yes("enabled", Bool, "false", "Reply to the ping method without calling a backend."),
            yes("method", Text, "ping", "Name of the ping method."),
        ]],
        "A method to which the server itself replies.",
    ),
    yes("namespace_boundary", Text, ":", "The character that ends the namespace in a method name."),
];

const RPC_NAMESPACE_NAME: &[Key] =
    &[yes("name", Text, "", "The unique name of the namespace. At least two of `a-z A-Z 0-9 - _ .`.")];

const RPC_OPTIONS: &[Key] = &[
    yes("proxy_enabled", Bool, "false", "Call a backend. If false, the method gets error 108."),
    yes("proxy_name", Text, "default", "The backend: a name from `proxies`, or `default` for `rpc.proxy`."),
];
