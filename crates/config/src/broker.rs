//! The options of a cluster: `broker`.

use std::sync::Arc;

use dunlin_cluster::core::{CoreLimits, peers::PeerLimits};
use dunlin_engine::{
    log::{LogLimits, PublicationLog},
    options::NamespaceOptions,
};
use dunlin_net::ClientTls;
use dunlin_token::SecretUrl;

use super::{duration::format_ms, problem::SettingSource, proxies, reader::Reader, redis};

/// How a node reaches the cluster's NATS servers, and what its streams are like.
#[derive(Clone, Debug)]
pub struct BrokerSettings {
    /// Addresses, with commas between them. They may contain credentials. Not `None` in a valid configuration.
    pub url: Option<SecretUrl>,
    /// Begins all names.
    pub prefix: String,
    /// For opening a connection.
    pub dial_timeout_ms: u64,
    /// TLS to the servers; `None` if they decide.
    pub tls: Option<Arc<ClientTls>>,
    /// Copies of a publication.
    pub replicas: u16,
    /// Whether the servers' memory alone keeps publications.
    pub is_in_memory: bool,
    /// Streams of a namespace.
    pub partitions: u16,
    /// Limits and times of the protocol. The bound of the publications in memory follows from the engine's options.
    pub limits: CoreLimits,
    /// Requests of emulated sessions that are being forwarded to other nodes.
    pub forwards_max: usize,
    /// How long servers may be out of reach at the start.
    pub start_timeout_ms: u64,
    /// Requests that wait for the cluster thread.
    pub requests_max: usize,
    /// Their bytes.
    pub requests_bytes_max: usize,
    /// Messages of NATS that wait for it.
    pub messages_max: usize,
    /// Their bytes.
    pub messages_bytes_max: usize,
}

const TYPE: &str = "broker.type";
const PREFIX: &str = "broker.nats.prefix";

/// Whether the namespaces' channels are in a cluster.
pub(super) fn is_on(r: &mut Reader<'_>) -> bool {
    let (is_enabled, kind) = (r.bool("broker.enabled"), r.text(TYPE));
    is_enabled && kind == "nats"
}

/// What may wait for the cluster. A node on its own asks nobody about presence.
pub(super) fn log_limits(r: &mut Reader<'_>) -> LogLimits {
    let peer_queries_max = r.count("broker.nats.peers.presence_limit");
    LogLimits {
        peer_queries_max: if is_on(r) { peer_queries_max } else { 0 },
        parked_max: r.count("channel.waiting_requests_limit"),
        parked_bytes_max: r.count("channel.waiting_requests_size_limit"),
        ..LogLimits::default()
    }
}

/// What orders a namespace's publications.
pub(super) fn log_of(r: &mut Reader<'_>, durability: &str, has_stream: bool, has_room: bool) -> PublicationLog {
    if durability != "memory" {
        PublicationLog::OrderedByOwner
    } else if is_on(r) && has_stream && !has_room {
        PublicationLog::OrderedByLog
    } else {
        PublicationLog::Memory
    }
}

pub(super) fn settings(r: &mut Reader<'_>) -> Option<BrokerSettings> {
    let tls = proxies::client_tls(r, "broker.nats.tls", String::new());
    let at = |key: &str| format!("broker.nats.jetstream.{key}");
    let settings = BrokerSettings {
        url: r.url("broker.nats.url"),
        prefix: r.text(PREFIX),
        dial_timeout_ms: r.ms_above_zero("broker.nats.dial_timeout"),
        tls,
        replicas: r.narrow(&at("replicas")),
        is_in_memory: r.text(&at("storage")) == "memory",
        partitions: r.narrow(&at("partitions")),
        limits: core_limits(r),
        forwards_max: forwards_max(r),
        start_timeout_ms: r.ms(&at("start_timeout")),
        requests_max: r.count(&at("requests_limit")),
        requests_bytes_max: r.count(&at("requests_size_limit")),
        messages_max: r.count(&at("messages_limit")),
        messages_bytes_max: r.count(&at("messages_size_limit")),
    };
    let (is_enabled, kind) = (r.bool("broker.enabled"), r.text(TYPE));
    // An explicit `false` is meant.
    if kind == "nats" && r.settings.source("broker.enabled") == SettingSource::Default {
        r.warning(TYPE, "has no effect, and this node stays alone: set `broker.enabled` to true");
    }
    if is_enabled && !["memory", "nats"].contains(&kind.as_str()) {
        let text = redis::refusal(TYPE, r.settings).unwrap_or_else(|| format!(
            "{kind:?} is not supported: nodes would not receive each other's publications. Set it to \"nats\", and see \
             docs/clustering.md, or disable `broker.enabled`"
        ));
        r.error(TYPE, text);
    }
    if !is_on(r) {
        return None;
    }
    if settings.url.is_none() {
        r.error("broker.nats.url", "is empty: write an address such as \"nats://localhost:4222\"");
    }
    check_prefix(r, &settings.prefix);
    check_silence(r, &settings.limits.peers);
    Some(settings)
}

const HEARTBEAT: &str = "broker.nats.peers.heartbeat_interval";
const SILENCE: &str = "broker.nats.peers.silence_timeout";

fn core_limits(r: &mut Reader<'_>) -> CoreLimits {
    let at = |key: &str| format!("broker.nats.jetstream.{key}");
    CoreLimits {
        publish_window_max: r.count(&at("publish_window")),
        publish_timeout_ms: r.ms_above_zero(&at("publish_timeout")),
        linger_ms: r.ms(&at("linger")),
        lingering_max: r.count(&at("linger_limit")),
        follow_timeout_ms: r.ms_above_zero(&at("follow_timeout")),
        audit_interval_ms: r.ms_above_zero(&at("audit_interval")),
        gap_timeout_ms: r.ms_above_zero(&at("gap_timeout")),
        silence_timeout_ms: r.ms_above_zero(&at("silence_timeout")),
        shared_reads_min: r.count(&at("shared_reads_min")),
        seen_keys_bytes_max: r.count(&at("keys_size_limit")),
        peers: peer_limits(r),
        window_timeout_ms: r.ms_above_zero("broker.nats.peers.window_timeout"),
        windows_max: r.count("broker.nats.peers.windows_limit"),
        ..CoreLimits::default()
    }
}

fn peer_limits(r: &mut Reader<'_>) -> PeerLimits {
    let at = |key: &str| format!("broker.nats.peers.{key}");
    PeerLimits {
        heartbeat_interval_ms: r.ms_above_zero(HEARTBEAT),
        silence_timeout_ms: r.ms_above_zero(SILENCE),
        survey_timeout_ms: r.ms_above_zero(&at("survey_timeout")),
        nodes_max: r.count(&at("nodes_limit")),
        surveys_max: r.count(&at("surveys_limit")),
        survey_bytes_max: r.count(&at("survey_bytes_limit")),
        queries_max: r.count(&at("queries_limit")),
        users_max: r.count(&at("users_limit")),
    }
}

/// Forwards are surveys. Clients cause them, so they leave half of the surveys to the server API and to other questions.
fn forwards_max(r: &mut Reader<'_>) -> usize {
    let surveys_max = r.count("broker.nats.peers.surveys_limit");
    r.count("broker.nats.peers.forwards_limit").min(surveys_max / 2).max(1)
}

fn check_silence(r: &mut Reader<'_>, limits: &PeerLimits) {
    if limits.silence_timeout_ms < 2 * limits.heartbeat_interval_ms {
        let text = format!(
            "is less than two heartbeats, so that one that is late makes a node look dead: set it to at least {}",
            format_ms(2 * limits.heartbeat_interval_ms)
        );
        r.error(SILENCE, text);
    }
}

fn check_prefix(r: &mut Reader<'_>, prefix: &str) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if prefix.is_empty() || prefix.len() > 64 || !prefix.bytes().all(is_plain) {
        r.error(PREFIX, "is not one token of a subject: use up to 64 of the characters a-z A-Z 0-9 - _");
    }
}

/// Warns of limits that each node applies by itself.
pub(super) fn check_user_limits(r: &mut Reader<'_>) {
    if !is_on(r) {
        return;
    }
    let single = "client.subscribe_to_user_personal_channel.single_connection";
    if r.bool(single) {
        r.warning(single, "is applied by each node to its own sessions: a user may have one on every node");
    }
}

/// Checks one namespace of a node that is in a cluster.
pub(super) fn check(r: &mut Reader<'_>, table: &str, namespace: &NamespaceOptions) {
    if !is_on(r) {
        return;
    }
    if namespace.log == PublicationLog::OrderedByOwner {
        let text =
            "is for a node on its own, but `broker` is enabled, and NATS stores the publications: set it to \"memory\"";
        r.error(&format!("{table}.durability"), text);
    }
}
