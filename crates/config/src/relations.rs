//! Checks relations between settings.

use std::collections::BTreeMap;

use dunlin_engine::{
    log::PublicationLog,
    options::{Lane, NamespaceOptions, RecoveryMode},
};
use dunlin_net::Transport;

use super::{
    ApiAccess, Config, broker, duration::format_ms, publications, resolve::Reader, rooms, tokens, value::shortened,
};

/// The engine identifies namespaces by 16-bit numbers.
const NAMESPACES_MAX: usize = 65_000;

pub(super) fn check(r: &mut Reader<'_>, config: &Config) {
    check_pings(r, config);
    check_boundaries(r, config);
    check_namespaces(r, config);
    check_backups(r, config);
    check_endpoints(r, config);
    tokens::check(r, config);
    check_switches(r, config);
    if config.net.request_line_bytes_max > config.net.head_bytes_max {
        r.error(
            "net.request_line_bytes_limit",
            "is above `net.head_bytes_limit`, which includes the request line: lower it, or raise \
                 `net.head_bytes_limit`",
        );
    }
}

fn check_pings(r: &mut Reader<'_>, config: &Config) {
    let (interval_ms, timeout_ms) = (config.engine.client.ping_interval_ms, config.engine.client.pong_timeout_ms);
    if interval_ms == 0 {
        return;
    }
    if interval_ms < 1_000 {
        r.error("client.ping_interval", "is below 1s, but clients receive it in whole seconds: set at least \"1s\"");
    }
    if timeout_ms >= interval_ms {
        let text = format!(
            "{} is not below `client.ping_interval` ({}): lower it, because a pong must arrive before the next ping",
            format_ms(timeout_ms),
            format_ms(interval_ms)
        );
        r.error("client.pong_timeout", text);
    }
}

fn check_boundaries(r: &mut Reader<'_>, config: &Config) {
    let channel = &config.engine.channel;
    let (namespace, user, separator) = (channel.namespace_boundary, channel.user_boundary, channel.user_separator);
    if user == namespace {
        r.error(
            "channel.user_boundary",
            format!("{user:?} is also `channel.namespace_boundary`: choose a different character"),
        );
    }
    if separator == user || separator == namespace {
        r.error(
            "channel.user_separator",
            format!("{separator:?} is already used as another boundary: choose a different character"),
        );
    }
}

fn check_namespaces(r: &mut Reader<'_>, config: &Config) {
    let engine = &config.engine;
    check_namespace(r, "channel.without_namespace", &engine.without_namespace);
    check_durability(r, "channel.without_namespace", &engine.without_namespace, config.storage.is_some());
    broker::check(r, "channel.without_namespace", &engine.without_namespace);
    check_room_paths(r, config);
    if engine.namespaces.len() > NAMESPACES_MAX {
        r.error("channel.namespaces", format!("contains more than {NAMESPACES_MAX} namespaces: remove some"));
    }
    rooms::check_survival(r, config);
    broker::check_user_limits(r);
    let mut first_index = BTreeMap::new();
    for (index, namespace) in engine.namespaces.iter().enumerate() {
        let table = format!("channel.namespaces[{index}]");
        let name_path = format!("{table}.name");
        let name = namespace.name.as_str();
        if !is_namespace_name(name) {
            let text = format!(
                "{:?} is not a valid name: use at least two of the characters a-z A-Z 0-9 - _ .",
                shortened(name)
            );
            r.error(&name_path, text);
        } else if name.contains(engine.channel.namespace_boundary) {
            let text = format!(
                "{:?} contains `channel.namespace_boundary` ({:?}), so no channel name could select it: \
                         rename the namespace, or choose a different boundary",
                shortened(name),
                engine.channel.namespace_boundary
            );
            r.error(&name_path, text);
        } else if let Some(first) = first_index.insert(name, index) {
            r.error(
                &name_path,
                format!("{:?} is already the name of channel.namespaces[{first}]: rename one of them", shortened(name)),
            );
        }
        check_namespace(r, &table, namespace);
        check_durability(r, &table, namespace, config.storage.is_some());
        broker::check(r, &table, namespace);
    }
}

fn check_namespace(r: &mut Reader<'_>, table: &str, namespace: &NamespaceOptions) {
    let at = |key: &str| format!("{table}.{key}");
    let has_stream = namespace.has_stream();
    if (namespace.history_size > 0) != (namespace.history_ttl_ms > 0) {
        let (set, missing) =
            if namespace.history_size > 0 { ("history_size", "history_ttl") } else { ("history_ttl", "history_size") };
        r.error(&at(set), format!("needs `{missing}`: set both, or neither"));
    }
    if has_stream && namespace.history_meta_ttl_ms < namespace.history_ttl_ms {
        let text = format!(
            "{} is above the history's metadata TTL ({}): raise `history_meta_ttl`",
            format_ms(namespace.history_ttl_ms),
            format_ms(namespace.history_meta_ttl_ms)
        );
        r.error(&at("history_ttl"), text);
    }
    for (key, set) in [
        ("force_recovery", namespace.force_recovery),
        ("allow_recovery", namespace.allow_recovery),
        ("force_positioning", namespace.force_positioning),
        ("allow_positioning", namespace.allow_positioning),
    ] {
        if set && !has_stream {
            r.error(&at(key), "needs history: set `history_size` and `history_ttl` as well");
        }
    }
    let latest = namespace.delivery == Lane::Latest;
    let recovers = namespace.force_recovery || namespace.allow_recovery;
    if latest && recovers && namespace.recovery_mode == RecoveryMode::Stream {
        let text = "\"latest\" skips publications, and recovery would bring them back: set `force_recovery_mode` to \
                    \"cache\", or disable `force_recovery` and `allow_recovery`";
        r.error(&at("delivery"), text);
    }
    let caches_keys = namespace.cache_keys_max > 0;
    if namespace.conflation_key.is_some() && !latest && !caches_keys {
        let text = "has no effect without `delivery: latest` or `cache_keys`: set one of them, or remove this key";
        r.error(&at("conflation_key"), text);
    }
    if caches_keys {
        check_cached_keys(r, table, namespace);
    }
    let has_positions = recovers || namespace.force_positioning || namespace.allow_positioning;
    if namespace.conflation_key.is_some() && latest && has_positions {
        let text = "reorders publications of different keys, so an offset no longer describes what a client has \
            received: remove it, or disable recovery and positioning";
        r.error(&at("conflation_key"), text);
    }
    rooms::check_namespace(r, table, namespace);
    publications::check(r, table, namespace);
    if namespace.force_push_join_leave && !namespace.join_leave {
        r.warning(
            &at("force_push_join_leave"),
            "has no effect without `join_leave`: set it as well, or remove this key",
        );
    }
}

/// Checks that backups have a storage to copy, and a directory outside of it.
fn check_backups(r: &mut Reader<'_>, config: &Config) {
    const PATH: &str = "storage.backup.path";
    let path = r.path(PATH);
    let Some(storage) = &config.storage else {
        if path.is_some() {
            r.error(PATH, "there is no storage to back up: set `storage.path` as well, or remove this key");
        }
        return;
    };
    match path {
        Some(path) if path.starts_with(&storage.path) || storage.path.starts_with(&path) => {
            r.error(PATH, "one of this directory and `storage.path` contains the other: set a separate directory");
        }
        None if r.ms("storage.backup.interval") > 0 => {
            r.error("storage.backup.interval", "needs a directory: set `storage.backup.path` as well");
        }
        _ => {}
    }
}

/// Checks that the channels have something to store, and a storage.
fn check_durability(r: &mut Reader<'_>, table: &str, namespace: &NamespaceOptions, has_storage: bool) {
    if namespace.log != PublicationLog::OrderedByOwner {
        return;
    }
    let at = format!("{table}.durability");
    let value = if namespace.is_log_synced { "disk_sync" } else { "disk" };
    if !namespace.has_stream() {
        r.error(&at, format!("{value:?} needs history: set `history_size` and `history_ttl` as well"));
    }
    if namespace.room.is_some() {
        r.error(&at, format!("{value:?} has no effect in rooms, which are not stored: set it to \"memory\""));
    }
    if !has_storage {
        r.error(&at, format!("{value:?} needs a storage: set `storage.path` to a directory"));
    }
}

fn check_room_paths(r: &mut Reader<'_>, config: &Config) {
    for (index, settings) in config.rooms.namespaces.iter().enumerate() {
        let table = match index.checked_sub(1) {
            None => "channel.without_namespace".to_owned(),
            Some(index) => format!("channel.namespaces[{index}]"),
        };
        rooms::check_paths(r, &table, settings.as_deref(), config.storage.is_some());
    }
}

/// Checks the options for cached keys (`cache_keys`).
fn check_cached_keys(r: &mut Reader<'_>, table: &str, namespace: &NamespaceOptions) {
    let at = |key: &str| format!("{table}.{key}");
    if namespace.conflation_key.is_none() {
        r.error(&at("cache_keys"), "needs `conflation_key`: set it, or set `cache_keys` to 0");
    }
    if namespace.cache_keys_ttl_ms == 0 {
        r.error(&at("cache_keys_ttl"), "must not be zero: set a duration such as \"1h\", or set `cache_keys` to 0");
    }
    if namespace.room.is_some() {
        r.error(&at("cache_keys"), "has no effect in a room: set it to 0");
    }
    let recovers = namespace.force_recovery || namespace.allow_recovery;
    if recovers && namespace.recovery_mode == RecoveryMode::Cache {
        let text =
            "conflicts with `force_recovery_mode: cache`, which sends only one publication: remove one of the two";
        r.error(&at("cache_keys"), text);
    }
}

/// Centrifugo's rule for names: `^[-a-zA-Z0-9_.]{2,}$`.
pub(super) fn is_namespace_name(name: &str) -> bool {
    name.len() >= 2 && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Checks that endpoints of the same port have different paths.
fn check_endpoints(r: &mut Reader<'_>, config: &Config) {
    let api = ("http_api.handler_prefix", config.http_api.handler_prefix.as_deref());
    let emulation = config.transports.emulation.as_ref().map(|emulation| emulation.handler_prefix.as_str());
    let transports =
        config.transports.places.iter().map(|place| (transport_key(place.transport), Some(place.path.as_str())));
    let public = [
        ("websocket.handler_prefix", config.websocket.handler_prefix.as_deref()),
        ("emulation.handler_prefix", emulation),
        ("init.handler_prefix", config.transports.init_prefix.as_deref()),
    ]
    .into_iter()
    .chain(transports);
    let internal = [
        ("health.handler_prefix", config.health_prefix.as_deref()),
        ("prometheus.handler_prefix", config.prometheus_prefix.as_deref()),
        ("debug.handler_prefix", config.debug_prefix.as_deref().filter(|_| config.http_server.internal.is_some())),
        ("swagger.handler_prefix", config.swagger_prefix.as_deref()),
    ];
    let admin = config.admin.as_ref().map(|admin| ("admin.handler_prefix", Some(admin.handler_prefix.as_str())));
    let is_internal = config.admin.as_ref().is_some_and(|admin| !admin.external);
    let (admin_inside, admin_outside) = if is_internal { (admin, None) } else { (None, admin) };
    let internal = internal.into_iter().chain(admin_inside);
    let public = public.into_iter().chain(admin_outside);
    let no_api = ("http_api.handler_prefix", None);
    if config.http_server.internal.is_none() {
        check_port(r, public.chain(internal), api);
    } else if config.http_api.external {
        check_port(r, public, api);
        check_port(r, internal, no_api);
    } else {
        check_port(r, public, no_api);
        check_port(r, internal, api);
    }
    if config.debug_prefix.is_some() && config.http_server.internal.is_none() {
        let text = "is ignored: the debug page shows channel names and is served only on the internal port. Set \
                    `http_server.internal_port`";
        r.warning("debug.enabled", text);
    }
}

type Endpoint<'c> = (&'static str, Option<&'c str>);

fn check_port<'c>(r: &mut Reader<'_>, endpoints: impl Iterator<Item = Endpoint<'c>>, (api_key, api): Endpoint<'c>) {
    let endpoints = endpoints.chain([(api_key, api)]);
    let served: Vec<_> = endpoints.filter_map(|(key, prefix)| prefix.map(|prefix| (key, prefix))).collect();
    for (index, (key, prefix)) in served.iter().enumerate() {
        if let Some((other, _)) = served.iter().take(index).find(|(_, earlier)| earlier == prefix) {
            r.error(key, format!("{prefix:?} is also the path of `{other}`: set different paths"));
        } else if api.is_some_and(|api| *prefix != api && is_below(prefix, api)) {
            r.error(
                key,
                format!(
                    "{prefix:?} is below `http_api.handler_prefix` and would hide API methods: choose a different \
                     path"
                ),
            );
        }
    }
}

fn transport_key(transport: Transport) -> &'static str {
    match transport {
        Transport::WebSocket { .. } => "websocket.handler_prefix",
        Transport::HttpStream { .. } => "http_stream.handler_prefix",
        Transport::Sse { .. } => "sse.handler_prefix",
        Transport::UniWebSocket { .. } => "uni_websocket.handler_prefix",
        Transport::UniHttpStream { .. } => "uni_http_stream.handler_prefix",
        Transport::UniSse { .. } => "uni_sse.handler_prefix",
    }
}

fn is_below(path: &str, parent: &str) -> bool {
    let parent = parent.trim_end_matches('/');
    path.strip_prefix(parent).is_some_and(|rest| rest.starts_with('/'))
}

fn check_switches(r: &mut Reader<'_>, config: &Config) {
    if config.engine.client.insecure {
        r.warning("client.insecure", "is enabled: clients have all permissions. Use it only for development");
    }
    if config.http_api.handler_prefix.is_some() && matches!(config.http_api.access, ApiAccess::Everyone) {
        r.warning(
            "http_api.insecure",
            "is enabled: anyone who can reach the port can use the API. Use it only for development",
        );
    }
    if config.allowed_origins.allows_everything() {
        r.warning(
            "client.allowed_origins",
            "contains \"*\": pages of any site can connect. List your own origins instead",
        );
    }
}
