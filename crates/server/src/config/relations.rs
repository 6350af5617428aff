//! What two settings must be to each other.

use std::collections::BTreeMap;

use dunlin_engine::options::{Lane, NamespaceOptions, RecoveryMode};

use super::{ApiAccess, Config, duration::format_ms, publications, resolve::Reader, rooms, tokens, value::shortened};
use crate::net::Transport;

/// The engine numbers namespaces with 16 bits.
const NAMESPACES_MAX: usize = 65_000;

pub(super) fn check(r: &mut Reader<'_>, config: &Config) {
    check_pings(r, config);
    check_boundaries(r, config);
    check_namespaces(r, config);
    check_endpoints(r, config);
    tokens::check(r, config);
    check_switches(r, config);
    if config.net.request_line_bytes_max > config.net.head_bytes_max {
        r.error("net.request_line_bytes_limit", "is above `net.head_bytes_limit`, of which the line is a part");
    }
}

fn check_pings(r: &mut Reader<'_>, config: &Config) {
    let (interval_ms, timeout_ms) = (config.engine.client.ping_interval_ms, config.engine.client.pong_timeout_ms);
    if interval_ms == 0 {
        return;
    }
    if interval_ms < 1_000 {
        r.error("client.ping_interval", "is below 1s: clients are told whole seconds");
    }
    if timeout_ms >= interval_ms {
        let text = format!(
            "{} is not below `client.ping_interval` ({}): a pong has to come before the next ping",
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
        r.error("channel.user_boundary", format!("{user:?} is `channel.namespace_boundary` as well: write another"));
    }
    if separator == user || separator == namespace {
        r.error("channel.user_separator", format!("{separator:?} is another boundary as well: write another"));
    }
}

fn check_namespaces(r: &mut Reader<'_>, config: &Config) {
    let engine = &config.engine;
    check_namespace(r, "channel.without_namespace", &engine.without_namespace);
    if engine.namespaces.len() > NAMESPACES_MAX {
        r.error("channel.namespaces", format!("holds more than {NAMESPACES_MAX} namespaces"));
    }
    let mut first_index = BTreeMap::new();
    for (index, namespace) in engine.namespaces.iter().enumerate() {
        let table = format!("channel.namespaces[{index}]");
        let name_path = format!("{table}.name");
        let name = namespace.name.as_str();
        if !is_namespace_name(name) {
            let text = format!("{:?} is not a name of at least two of a-z A-Z 0-9 - _ .", shortened(name));
            r.error(&name_path, text);
        } else if name.contains(engine.channel.namespace_boundary) {
            let text = format!(
                "{:?} holds `channel.namespace_boundary` ({:?}), so that no channel could be in it",
                shortened(name),
                engine.channel.namespace_boundary
            );
            r.error(&name_path, text);
        } else if let Some(first) = first_index.insert(name, index) {
            r.error(&name_path, format!("{:?} is the name of channel.namespaces[{first}] already", shortened(name)));
        }
        check_namespace(r, &table, namespace);
    }
}

fn check_namespace(r: &mut Reader<'_>, table: &str, namespace: &NamespaceOptions) {
    let at = |key: &str| format!("{table}.{key}");
    let has_stream = namespace.has_stream();
    if (namespace.history_size > 0) != (namespace.history_ttl_ms > 0) {
        let (set, missing) =
            if namespace.history_size > 0 { ("history_size", "history_ttl") } else { ("history_ttl", "history_size") };
        r.error(&at(set), format!("is set without `{missing}`: history needs both, or neither"));
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
                    \"cache\", or switch `force_recovery` and `allow_recovery` off";
        r.error(&at("delivery"), text);
    }
    if namespace.conflation_key.is_some() && !latest {
        r.error(&at("conflation_key"), "has no meaning without `delivery: latest`: set that, or remove this");
    }
    let has_positions = recovers || namespace.force_positioning || namespace.allow_positioning;
    if namespace.conflation_key.is_some() && has_positions {
        let text = "lets the newest of one key overtake another, so that an offset no longer says what a client has: \
                    remove it, or switch recovery and positioning off";
        r.error(&at("conflation_key"), text);
    }
    rooms::check_namespace(r, table, namespace);
    publications::check(r, table, namespace);
    if namespace.force_push_join_leave && !namespace.join_leave {
        r.warning(&at("force_push_join_leave"), "has no effect without `join_leave`");
    }
}

/// Centrifugo's rule for names: `^[-a-zA-Z0-9_.]{2,}$`.
pub(super) fn is_namespace_name(name: &str) -> bool {
    name.len() >= 2 && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Each path of a port leads to one endpoint.
fn check_endpoints(r: &mut Reader<'_>, config: &Config) {
    let api = ("http_api.handler_prefix", config.http_api.handler_prefix.as_deref());
    let emulation = config.transports.emulation.as_ref().map(|emulation| emulation.handler_prefix.as_str());
    let transports =
        config.transports.places.iter().map(|place| (transport_key(place.transport), Some(place.path.as_str())));
    let public: Vec<Endpoint<'_>> = [
        ("websocket.handler_prefix", config.websocket.handler_prefix.as_deref()),
        ("emulation.handler_prefix", emulation),
        ("init.handler_prefix", config.transports.init_prefix.as_deref()),
    ]
    .into_iter()
    .chain(transports)
    .collect();
    let internal = [
        ("health.handler_prefix", config.health_prefix.as_deref()),
        ("prometheus.handler_prefix", config.prometheus_prefix.as_deref()),
        ("debug.handler_prefix", config.debug_prefix.as_deref().filter(|_| config.http_server.internal.is_some())),
        ("swagger.handler_prefix", config.swagger_prefix.as_deref()),
    ];
    let no_api = ("http_api.handler_prefix", None);
    if config.http_server.internal.is_none() {
        check_port(r, public.into_iter().chain(internal), api);
    } else if config.http_api.external {
        check_port(r, public.into_iter(), api);
        check_port(r, internal.into_iter(), no_api);
    } else {
        check_port(r, public.into_iter(), no_api);
        check_port(r, internal.into_iter(), api);
    }
    if config.debug_prefix.is_some() && config.http_server.internal.is_none() {
        let text = "is ignored: its page shows names of channels and is served on the internal port alone. Set \
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
            r.error(key, format!("{prefix:?} is the path of `{other}` as well: give each its own"));
        } else if api.is_some_and(|api| *prefix != api && is_below(prefix, api)) {
            r.error(key, format!("{prefix:?} lies below `http_api.handler_prefix`, whose methods it would hide"));
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
        r.warning("client.insecure", "is on: every client may do everything. For development alone");
    }
    if config.http_api.handler_prefix.is_some() && matches!(config.http_api.access, ApiAccess::Everyone) {
        r.warning("http_api.insecure", "is on: everyone who reaches the port may use the API");
    }
    if config.allowed_origins.allows_everything() {
        r.warning("client.allowed_origins", "has \"*\": pages of any site may connect. Write the origins of your own");
    }
}
