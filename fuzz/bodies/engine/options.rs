//! The configuration of the node: every feature is enabled in some namespace, and limits are low.

use dunlin_engine::{
    Options,
    backend::ProxyIndex,
    options::{
        BackendOptions, ChannelOptions, ClientOptions, DataFormat, Lane, NamespaceOptions, PersonalChannel,
        RecoveryMode, RoomLimits,
    },
};

use super::{QUEUE_BYTES_MAX, QUEUE_FRAMES_MAX};

/// A channel of each namespace, and what is a channel only for some, or for nobody.
pub(super) const CHANNELS: [&str; 16] = [
    "a",
    "b",
    "keyed:a",
    "keyed:b",
    "cache:a",
    "$a",
    "nowhere:a",
    "\u{fc}",
    "asked:a",
    "asked:b",
    "thrifty:a",
    "thrifty:b",
    "own:#ann",
    "a#ann,bob",
    "arena:a",
    "arena:b",
];
/// Channels with rooms.
pub(super) const ROOMS: [&str; 2] = ["arena:a", "arena:b"];
/// Channels that one session may be subscribed to on its own behalf.
pub(super) const CHANNEL_LIMIT: usize = 3;

pub(super) fn options(seed: u8) -> Options {
    let open = open();
    let has = |bit: u8| seed & bit != 0;
    let client = ClientOptions {
        channel_limit: CHANNEL_LIMIT,
        queue_bytes_max: QUEUE_BYTES_MAX,
        queue_frames_max: QUEUE_FRAMES_MAX,
        commands_per_frame_max: 8,
        expired_close_delay_ms: 1_000,
        expired_sub_close_delay_ms: 1_000,
        user_sessions_max: if has(1) { 2 } else { 0 },
        allow_anonymous_connect_without_token: true,
        insecure: has(2),
        personal_channel: has(4).then(|| PersonalChannel { namespace: "own".to_owned(), single_connection: has(8) }),
        connects_per_second: if has(16) { 4 } else { 0 },
        recoveries_per_second: if has(16) { 4 } else { 0 },
        ..ClientOptions::default()
    };
    let proxy = Some(ProxyIndex(0));
    let backend = BackendOptions {
        connect: proxy.filter(|_| has(32)),
        refresh: proxy.filter(|_| has(64)),
        rpc_without_namespace: proxy,
        rpc_namespace_boundary: ':',
        ..BackendOptions::default()
    };
    let namespaces = namespaces(&open);
    Options {
        client,
        channel: ChannelOptions {
            channels_max: 8,
            idempotent_results_max: 2,
            tags_filters_max: 2,
            ..ChannelOptions::default()
        },
        without_namespace: open,
        namespaces,
        backend,
        room_threads: 1,
        rooms_max: 2,
        ..Options::default()
    }
}

fn open() -> NamespaceOptions {
    NamespaceOptions {
        allow_subscribe_for_client: true,
        allow_publish_for_subscriber: true,
        allow_presence_for_client: true,
        allow_history_for_client: true,
        allow_subscribe_for_anonymous: true,
        allow_user_limited_channels: true,
        presence: true,
        join_leave: true,
        force_recovery: true,
        history_size: 3,
        history_ttl_ms: 20_000,
        history_meta_ttl_ms: 60_000,
        ..NamespaceOptions::default()
    }
}

fn namespaces(open: &NamespaceOptions) -> Vec<NamespaceOptions> {
    let named = |name: &str| NamespaceOptions { name: name.to_owned(), ..open.clone() };
    let keyed = NamespaceOptions {
        delivery: Lane::Latest,
        conflation_key: Some("k".to_owned()),
        cache_keys_max: 2,
        cache_keys_ttl_ms: 10_000,
        force_push_join_leave: true,
        ..named("keyed")
    };
    let cache = NamespaceOptions {
        recovery_mode: RecoveryMode::Cache,
        auto_cache_recover: true,
        publication_data_format: DataFormat::Json,
        ..named("cache")
    };
    let (proxy, other) = (Some(ProxyIndex(0)), Some(ProxyIndex(1)));
    let asked = NamespaceOptions {
        subscribe_proxy: proxy,
        publish_proxy: other,
        sub_refresh_proxy: proxy,
        force_recovery: false,
        allow_recovery: true,
        allow_positioning: true,
        ..named("asked")
    };
    let thrifty = NamespaceOptions {
        allow_delta: true,
        delta_publish: true,
        allow_tags_filter: true,
        allow_channel_compaction: true,
        publication_data_format: DataFormat::Binary,
        ..named("thrifty")
    };
    let arena = NamespaceOptions {
        room: Some(RoomLimits {
            inputs_per_second: 10,
            input_bytes_max: 16,
            inbox_inputs_max: 6,
            gives_seat_tokens: true,
            moves: true,
            is_one_seat_per_user: false,
            shows_address: true,
            frame_bytes_per_second: None,
            messages_max: 2,
            message_bytes_max: 16,
            players_max: 8,
            metadata_bytes_max: 64,
            join_params: vec!["map".into()],
            params_bytes_max: 16,
        }),
        ..named("arena")
    };
    vec![keyed, cache, asked, thrifty, named("own"), arena]
}
