//! `channel.*`, `rpc.*`, `proxies`.

use dunlin_engine::options::{KeyOrigin, NamespaceOptions, Switch};

use super::{
    COUNT, COUNT_OR_ZERO, Key, PROXY,
    ValueKind::{Bool, Choice, Duration, Int, Table, Tables, Text, Texts},
    own,
    proxy::WEBHOOKS,
    table, yes,
};

pub(super) const TOP: &[Key] = &[
    table("channel", &[CHANNEL], "Channels."),
    table("rpc", &[RPC], "Remote procedure calls (RPC) of clients, which Dunlin forwards to a backend."),
    Key {
        name: "proxies",
        kind: Tables(&[PROXY_NAME, PROXY]),
        default: "",
        support: super::Support::Yes,
        doc: "Named backends that namespaces refer to. See [Proxy keys](#proxy-keys).",
    },
    own(
        "webhooks",
        Table(&[WEBHOOKS]),
        "",
        "Events about sessions, channels and rooms for the backend; see backend-hooks.md. Centrifugo does not have this table.",
    ),
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
        "Maximum bytes of history on the node. A publication counts as its data, tags and info plus 256 bytes, and 64 for each tag. Each shard has an equal share. Beyond it see `history_overflow`. 0: no limit.",
    ),
    own(
        "history_disk_limit",
        COUNT_OR_ZERO,
        "0",
        "Maximum bytes of stored publications of all namespaces with `durability`. A publication counts as in `channel.history_memory_limit`; files may be larger or, compressed, smaller. A publication beyond it gets error 111, which is temporary. 0: no limit but `storage.free_space_min`.",
    ),
    own(
        "waiting_requests_limit",
        COUNT,
        "16384",
        "Requests of a shard that wait for a page of a log, for other nodes to know of a first subscription, for the keys of other nodes, or for a room. Joins whose answers wait for a slow reader have as many in addition. Further ones get error 111.",
    ),
    own(
        "waiting_requests_size_limit",
        COUNT,
        "16777216",
        "Bytes of these requests, per shard; these joins have as many in addition. One session has at most an eighth of it. Further ones get error 111.",
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
    switch("channel_events"),
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
