//! Converts settings to options.

use std::{net::IpAddr, sync::Arc, thread};

use dunlin_engine::{
    access_rules::AccessLimits,
    options::{
        ClientOptions, CompressionOptions, Lane, NamespaceOptions, Options, PersonalChannel, RecoveryMode,
        UniWebSocketOptions,
    },
};
use dunlin_matchmaking::CRITERION_BYTES_MAX;
use dunlin_net::{ReactorOption, TrustedProxies};
use dunlin_protocol::Disconnect;
use dunlin_storage::{DamagedLogPolicy, QueueLimits, StorageOptions};

use super::{
    AdmissionOptions, AllowedOrigins, ApiAccess, ApiKeys, Config, DemoOptions, HttpApiOptions, HttpServerOptions,
    InternalListener, NetOptions, NodeOptions, ShutdownOptions, StorageBackupSettings, WebSocketOptions, admin, broker,
    logging, matchmaking, opentelemetry, profiling, proxies, publications, relations, rooms, tokens,
    tokens::HMAC_KEY_BYTES_MIN, transports, webhooks,
};

pub(super) use super::reader::Reader;

/// Reads every supported key. The result is valid only if there are no problems.
pub(super) fn config(r: &mut Reader<'_>) -> Config {
    r.settings.judge_support(r.problems);
    let backends = proxies::ProxyTable::read(r);
    let mut engine = engine(r);
    proxies::assign(r, &backends, &mut engine);
    let matchmaking = matchmaking::settings(r, &backends, &mut engine);
    let lobbies = matchmaking::lobbies(r, &mut engine);
    let rooms = rooms::rooms(r, &backends);
    let webhooks = webhooks::options(r, &mut engine);
    let opentelemetry = opentelemetry::options(r, &mut engine);
    let config = Config {
        file: None,
        engine: Arc::new(engine),
        backends: backends.proxies,
        webhooks,
        pyroscope: profiling::options(r),
        opentelemetry,
        rooms,
        matchmaking,
        lobbies,
        shards: shards(r),
        reactor: reactor(r),
        node: node(r),
        net: net(r),
        admission: admission(r),
        http_server: http_server(r),
        websocket: websocket(r),
        transports: transports::resolve(r),
        allowed_origins: allowed_origins(r),
        http_api: http_api(r),
        health_prefix: r.prefix_if("health.enabled", true, "health.handler_prefix"),
        health_requires_cluster: r.bool("health.requires_cluster"),
        prometheus_prefix: r.prefix_if("prometheus.enabled", true, "prometheus.handler_prefix"),
        prometheus_survey_age_max_ms: r.ms("prometheus.survey_max_age"),
        debug_prefix: r.prefix_if("debug.enabled", true, "debug.handler_prefix"),
        admin: admin::options(r),
        swagger_prefix: r.prefix_if("swagger.enabled", true, "swagger.handler_prefix"),
        token: tokens::options(r),
        log: logging::options(r),
        shutdown: ShutdownOptions {
            timeout_ms: r.ms("shutdown.timeout"),
            delay_ms: r.ms("shutdown.delay"),
            sessions_per_second: r.narrow("shutdown.sessions_per_second"),
        },
        pid_file: r.path("pid_file"),
        storage: storage(r),
        backup: backup(r),
        broker: broker::settings(r),
        demo: demo(r),
    };
    relations::check(r, &config);
    config
}

fn node(r: &mut Reader<'_>) -> NodeOptions {
    let (name, region) = (r.text("node.name"), r.text("node.region"));
    if region.len() > CRITERION_BYTES_MAX {
        let text = format!(
            "has {} bytes, and regions of tickets have at most {CRITERION_BYTES_MAX}: shorten it",
            region.len()
        );
        r.error("node.region", text);
    }
    NodeOptions { name, region }
}

fn storage(r: &mut Reader<'_>) -> Option<StorageOptions> {
    let path = r.path("storage.path");
    let options = StorageOptions {
        block_cache_bytes: r.count("storage.block_cache_size"),
        memtable_bytes: r.count("storage.memtable_size"),
        wal_bytes_max: r.narrow("storage.wal_size_limit"),
        free_space_min_bytes: r.narrow("storage.free_space_min"),
        huge_page_bytes: r.count("storage.huge_page_size"),
        open_files_max: r.narrow("storage.open_files_limit"),
        readers: r.narrow("storage.readers"),
        queues: QueueLimits {
            writes_max: r.count("storage.queue_writes_limit"),
            write_bytes_max: r.count("storage.queue_bytes_limit"),
            reads_max: r.count("storage.queue_reads_limit"),
            ..QueueLimits::default()
        },
        damaged_log: match r.text("storage.damaged_log").as_str() {
            "keep_until_damage" => DamagedLogPolicy::KeepUntilDamage,
            _ => DamagedLogPolicy::Refuse,
        },
        clock_ahead_ms_max: match r.ms("storage.clock_ahead_limit") {
            0 => u64::MAX,
            limit_ms => limit_ms,
        },
        ..StorageOptions::at(path.clone().unwrap_or_default())
    };
    path.map(|_| options)
}

/// Backups of a storage; `None` without one.
fn backup(r: &mut Reader<'_>) -> Option<StorageBackupSettings> {
    let (interval_ms, backups_max) = (r.ms("storage.backup.interval"), r.count("storage.backup.keep"));
    let (storage, path) = (r.path("storage.path"), r.path("storage.backup.path"));
    storage.and(path).map(|path| StorageBackupSettings { path, interval_ms, backups_max })
}

fn demo(r: &mut Reader<'_>) -> Option<DemoOptions> {
    let (dir, has_guests) = (r.path("demo.dir"), r.bool("demo.guests"));
    if has_guests && r.secret("client.token.hmac_secret_key").is_none() {
        r.error(
            "demo.guests",
            "needs a key for the tokens: set `client.token.hmac_secret_key`, or remove `demo.guests`",
        );
    }
    dir.map(|dir| DemoOptions { dir, has_guests })
}

fn engine(r: &mut Reader<'_>) -> Options {
    let namespaces: Vec<_> = (0..r.settings.len("channel.namespaces"))
        .map(|index| {
            let table = format!("channel.namespaces[{index}]");
            let name = r.text(&format!("{table}.name"));
            namespace(r, &table, name)
        })
        .collect();
    let without_namespace = namespace(r, "channel.without_namespace", String::new());
    let has_rooms = std::iter::once(&without_namespace).chain(&namespaces).any(|namespace| namespace.room.is_some());
    let room_threads = r.narrow("room.threads");
    Options {
        records: logging::records(r),
        room_threads: if has_rooms { room_threads } else { 0 },
        rooms_max: r.count("room.max_rooms"),
        room_openings: rooms::openings(r),
        access: AccessLimits {
            rules_max: r.count("client.access_rules_limit"),
            bytes_max: r.count("client.access_rules_size_limit"),
        },
        version: env!("CARGO_PKG_VERSION"),
        client: client(r),
        channel: publications::channels(r),
        without_namespace,
        namespaces,
        log: broker::log_limits(r),
        ..Options::default()
    }
}

fn client(r: &mut Reader<'_>) -> ClientOptions {
    ClientOptions {
        ping_interval_ms: r.ms("client.ping_interval"),
        pong_timeout_ms: r.ms("client.pong_timeout"),
        expired_close_delay_ms: r.ms("client.expired_close_delay"),
        expired_sub_close_delay_ms: r.ms("client.expired_sub_close_delay"),
        stale_close_delay_ms: r.ms_above_zero("client.stale_close_delay"),
        close_timeout_ms: r.ms_above_zero("client.close_timeout"),
        channel_limit: r.count("client.channel_limit"),
        queue_bytes_max: r.count("client.queue_max_size"),
        queue_frames_max: r.count("client.queue_max_frames"),
        history_publications_max: r.count("client.history_max_publication_limit"),
        history_bytes_max: r.count("client.history_reply_size_limit").min(r.count("client.queue_max_size")),
        presence_bytes_max: r.count("client.presence_reply_size_limit").min(r.count("client.queue_max_size")),
        recovery_publications_max: r.count("client.recovery_max_publication_limit"),
        connects_per_second: r.narrow("client.connect_rate_limit"),
        recoveries_per_second: r.narrow("client.recovery_rate_limit"),
        commands_per_frame_max: r.count("client.commands_per_frame_limit"),
        commands_per_second: r.narrow("client.command_rate_limit"),
        json_depth_max: r.narrow("client.json_depth_limit"),
        object_keys_max: r.narrow("client.object_keys_limit"),
        connect_include_server_time: r.bool("client.connect_include_server_time"),
        allow_anonymous_connect_without_token: r.bool("client.allow_anonymous_connect_without_token"),
        disallow_anonymous_connection_tokens: r.bool("client.disallow_anonymous_connection_tokens"),
        insecure: r.bool("client.insecure"),
        uni_websocket: UniWebSocketOptions {
            no_close_frame: r.bool("uni_websocket.disable_closing_handshake"),
            no_disconnect_push: r.bool("uni_websocket.disable_disconnect_push"),
        },
        compression: CompressionOptions {
            level: r.narrow("websocket.compression_level"),
            message_bytes_min: r.count("websocket.compression_min_size"),
        },
        personal_channel: personal_channel(r),
        user_sessions_max: r.count("client.user_connection_limit"),
        shares_user_sessions: r.count("client.user_connection_limit") > 0 && broker::is_on(r),
        connect_code_to_unidirectional_disconnect: unidirectional_disconnects(r),
    }
}

fn personal_channel(r: &mut Reader<'_>) -> Option<PersonalChannel> {
    let at = |key: &str| format!("client.subscribe_to_user_personal_channel.{key}");
    let personal = PersonalChannel {
        namespace: r.text(&at("personal_channel_namespace")),
        single_connection: r.bool(&at("single_connection")),
    };
    r.bool(&at("enabled")).then_some(personal)
}

fn unidirectional_disconnects(r: &mut Reader<'_>) -> Vec<(u32, Disconnect)> {
    let table = "client.connect_code_to_unidirectional_disconnect";
    let is_on = r.bool(&format!("{table}.enabled"));
    let transforms = (0..r.settings.len(&format!("{table}.transforms"))).map(|index| {
        let at = |key: &str| format!("{table}.transforms[{index}].{key}");
        let (from, code) = (r.narrow(&at("code")), r.narrow(&at("to.code")));
        if is_on && Disconnect::code_for_applications(u32::from(code)).is_none() {
            r.error(&at("to.code"), format!("{code} is not a disconnect code: write a number from 3000 to 4999"));
        }
        (from, Disconnect { code, reason: r.text(&at("to.reason")).into() })
    });
    let transforms: Vec<_> = transforms.collect();
    if is_on { transforms } else { Vec::new() }
}

fn namespace(r: &mut Reader<'_>, table: &str, name: String) -> NamespaceOptions {
    let at = |key: &str| format!("{table}.{key}");
    let own_meta_ttl_ms = r.ms(&at("history_meta_ttl"));
    let meta_ttl_ms = r.ms("channel.history_meta_ttl");
    let durability = r.text(&at("durability"));
    let has_stream = r.count(&at("history_size")) > 0 && r.ms(&at("history_ttl")) > 0;
    let room = rooms::limits(r, table);
    let mut namespace = NamespaceOptions {
        log: broker::log_of(r, &durability, has_stream, room.is_some()),
        is_log_synced: durability == "disk_sync",
        is_clustered: broker::is_on(r) && room.is_none(),
        room,
        name,
        history_size: r.count(&at("history_size")),
        history_ttl_ms: r.ms(&at("history_ttl")),
        history_meta_ttl_ms: if own_meta_ttl_ms > 0 { own_meta_ttl_ms } else { meta_ttl_ms },
        recovery_mode: match r.text(&at("force_recovery_mode")).as_str() {
            "cache" => RecoveryMode::Cache,
            _ => RecoveryMode::Stream,
        },
        delivery: match r.text(&at("delivery")).as_str() {
            "latest" => Lane::Latest,
            _ => Lane::Reliable,
        },
        conflation_key: Some(r.text(&at("conflation_key"))).filter(|tag| !tag.is_empty()),
        cache_keys_max: r.count(&at("cache_keys")),
        cache_keys_ttl_ms: r.ms(&at("cache_keys_ttl")),
        ..NamespaceOptions::default()
    };
    for switch in NamespaceOptions::SWITCHES {
        (switch.set)(&mut namespace, r.bool(&at(switch.key)));
    }
    publications::read(r, table, &mut namespace);
    namespace
}

pub(super) fn one_character(r: &mut Reader<'_>, key: &str, default: char) -> char {
    let text = r.text(key);
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(boundary), None) if boundary.is_ascii_graphic() => boundary,
        _ => {
            r.error(
                key,
                format!(
                    "{text:?} is not a single visible ASCII character: write one such as {:?}",
                    default.to_string()
                ),
            );
            default
        }
    }
}

fn shards(r: &mut Reader<'_>) -> usize {
    match r.count("shards") {
        0 => thread::available_parallelism().map_or(1, usize::from).min(256),
        shards => shards,
    }
}

fn reactor(r: &mut Reader<'_>) -> ReactorOption {
    match r.text("reactor").as_str() {
        "io_uring" => ReactorOption::IoUring,
        "epoll" => ReactorOption::Epoll,
        _ => ReactorOption::Auto,
    }
}

fn net(r: &mut Reader<'_>) -> NetOptions {
    NetOptions {
        connections_max: r.count("client.connection_limit"),
        tcp_notsent_lowat_bytes: r.count("net.tcp_notsent_lowat_bytes"),
        accept_backlog: r.narrow("net.accept_backlog"),
        head_bytes_max: r.count("net.head_bytes_limit"),
        request_line_bytes_max: r.count("net.request_line_bytes_limit"),
        head_timeout_ms: r.ms_above_zero("net.head_timeout"),
        http_connections_max: r.count("net.http_connections_limit"),
        http_address_connections_max: r.count("net.http_address_connections_limit"),
        http_reserved_connections_max: r.count("net.http_reserved_connections"),
        reserved_open_files: r.count("net.reserved_open_files"),
        idle_timeout_ms: r.ms_above_zero("net.idle_timeout"),
        linger_timeout_ms: r.ms_above_zero("net.linger_timeout"),
        pending_address_connections_max: r.narrow("net.pending_address_connections_limit"),
        shard_connections_max: r.narrow("net.shard_connections_limit"),
        shard_imbalance_max: r.narrow("net.shard_imbalance_limit"),
        memory_bytes_max: r.narrow("net.memory_limit"),
        read_bytes_per_turn: r.count("net.read_bytes_per_turn"),
        ring_messages_max: r.count("net.ring_messages_limit"),
        inbox_requests_max: r.count("net.inbox_requests_limit"),
    }
}

fn admission(r: &mut Reader<'_>) -> AdmissionOptions {
    let proxies = r.texts("http_server.trusted_proxies");
    let trusted_proxies = TrustedProxies::parse(proxies.iter().map(String::as_str)).unwrap_or_else(|text| {
        r.error(
            "http_server.trusted_proxies",
            format!("{text:?} is neither an IP address nor a network: write one such as \"10.0.0.0/8\""),
        );
        TrustedProxies::default()
    });
    AdmissionOptions {
        handshakes_per_second: r.narrow("client.connection_rate_limit"),
        source_sessions_max: r.narrow("client.address_connection_limit"),
        source_handshakes_per_second: r.narrow("client.address_connection_rate_limit"),
        idle_sources_max: r.count("client.address_table_limit"),
        trusted_proxies,
    }
}

fn http_server(r: &mut Reader<'_>) -> HttpServerOptions {
    let public = address(r, "http_server.address");
    let port = r.narrow("http_server.port");
    let internal_address = address(r, "http_server.internal_address");
    let has_own_address = !r.text("http_server.internal_address").is_empty();
    let internal_port = internal_port(r);
    let internal = InternalListener {
        address: if has_own_address { internal_address } else { public },
        port: internal_port.unwrap_or(port),
    };
    let is_apart = internal != InternalListener { address: public, port };
    HttpServerOptions { address: public, port, internal: is_apart.then_some(internal), tls: transports::tls(r) }
}

/// The key is text, as in Centrifugo, so that empty text means "not set".
fn internal_port(r: &mut Reader<'_>) -> Option<u16> {
    const KEY: &str = "http_server.internal_port";
    let port = match r.json(KEY) {
        serde_json::Value::Null => return None,
        serde_json::Value::Number(number) => number.as_u64().and_then(|number| u16::try_from(number).ok()),
        serde_json::Value::String(text) if text.is_empty() => return None,
        serde_json::Value::String(text) => text.parse().ok(),
        _ => None,
    };
    let port = port.filter(|port| *port > 0);
    if port.is_none() {
        r.error(KEY, "is not a port: write a number from 1 to 65535");
    }
    port
}

fn address(r: &mut Reader<'_>, key: &str) -> Option<IpAddr> {
    let text = r.text(key);
    match text.as_str() {
        "" => None,
        "localhost" => Some(IpAddr::from([127, 0, 0, 1])),
        _ => {
            let address = text.trim_start_matches('[').trim_end_matches(']').parse();
            if address.is_err() {
                r.error(key, format!("{text:?} is not an address: write an IP address or \"localhost\""));
            }
            address.ok()
        }
    }
}

fn websocket(r: &mut Reader<'_>) -> WebSocketOptions {
    let message_bytes_max = r.count("websocket.message_size_limit");
    let frame_bytes_max = r.count("websocket.frame_size_limit");
    WebSocketOptions {
        handler_prefix: r.prefix_if("websocket.disabled", false, "websocket.handler_prefix"),
        limits: dunlin_websocket::WebSocketLimits {
            frame_bytes_max: if frame_bytes_max == 0 { message_bytes_max } else { frame_bytes_max },
            message_bytes_max,
            fragments_max: r.narrow("websocket.fragments_per_message_limit"),
            unfinished_age_max_ms: r.ms_above_zero("websocket.unfinished_message_timeout"),
            inflated_bytes_max: transports::or_else(
                r.count("websocket.decompressed_message_size_limit"),
                message_bytes_max,
            ),
            inflated_ratio_max: r.count("websocket.decompression_ratio_limit"),
        },
        compression: r.bool("websocket.compression"),
    }
}

fn allowed_origins(r: &mut Reader<'_>) -> AllowedOrigins {
    let patterns = r.texts("client.allowed_origins");
    AllowedOrigins::parse(patterns.iter().map(String::as_str)).unwrap_or_else(|(index, why)| {
        let pattern = patterns.get(index).map_or("", String::as_str);
        r.error("client.allowed_origins", format!("{pattern:?} is not a valid origin pattern: {why}"));
        AllowedOrigins::default()
    })
}

fn http_api(r: &mut Reader<'_>) -> HttpApiOptions {
    let keys = [r.secret("http_api.key"), r.secret("http_api.previous_key")];
    if let [None, Some(_)] = keys {
        r.error("http_api.previous_key", "needs `http_api.key`: set both, or neither");
    }
    // Not refused: finding such a key takes a request for each guess, and not one token. The previous key is about to go.
    if keys[0].as_ref().is_some_and(|key| key.reveal().len() < HMAC_KEY_BYTES_MIN) {
        let text = format!(
            "is shorter than {HMAC_KEY_BYTES_MIN} bytes, so an attacker may guess it: use a key from `dunlin gen-config`, and \
             keep the old one as `http_api.previous_key` for the transition"
        );
        r.warning("http_api.key", text);
    }
    let insecure = r.bool("http_api.insecure");
    HttpApiOptions {
        handler_prefix: r.prefix_if("http_api.disabled", false, "http_api.handler_prefix"),
        external: r.bool("http_api.external"),
        access: match keys.iter().flatten().count() {
            _ if insecure => ApiAccess::Everyone,
            0 => ApiAccess::Nobody,
            _ => ApiAccess::Keys(ApiKeys::new(keys.iter().flatten())),
        },
        request_bytes_max: r.count("http_api.request_size_limit"),
        requests_max: r.count("http_api.requests_limit"),
        timeout_ms: r.ms_above_zero("http_api.timeout"),
        transport_errors: r.text("http_api.error_mode") == "transport",
        broadcast_channels_max: r.count("http_api.broadcast_channels_limit"),
        batch_commands_max: r.count("http_api.batch_commands_limit"),
    }
}
