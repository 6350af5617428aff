//! The options of a cluster: `broker`.

use std::sync::Arc;

use dunlin_engine::{log::PublicationLog, options::NamespaceOptions};
use dunlin_net::ClientTls;
use dunlin_token::Secret;

use super::{proxies, reader::Reader};

/// How a node reaches the cluster's NATS servers, and what its streams are like.
#[derive(Clone, Debug)]
pub struct BrokerSettings {
    /// Addresses, with commas between them. They may contain credentials. Not `None` in a valid configuration.
    pub url: Option<Secret>,
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
    /// Publications that are sent and not acknowledged.
    pub publish_window_max: usize,
    /// How long a publication is tried.
    pub publish_timeout_ms: u64,
    /// How long a channel is followed without subscribers.
    pub linger_ms: u64,
    /// Time between audits.
    pub audit_interval_ms: u64,
    /// How long a gap may stay open.
    pub gap_timeout_ms: u64,
    /// How long servers may be out of reach at the start.
    pub start_timeout_ms: u64,
    /// Requests that wait for the cluster thread.
    pub requests_max: usize,
    /// Messages of one subscription that wait for it.
    pub subscription_messages_max: usize,
}

const TYPE: &str = "broker.type";
const PREFIX: &str = "broker.nats.prefix";

/// Whether the namespaces' channels are in a cluster.
pub(super) fn is_on(r: &mut Reader<'_>) -> bool {
    let (is_enabled, kind) = (r.bool("broker.enabled"), r.text(TYPE));
    is_enabled && kind == "nats"
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
        url: r.secret("broker.nats.url"),
        prefix: r.text(PREFIX),
        dial_timeout_ms: r.ms_above_zero("broker.nats.dial_timeout"),
        tls,
        replicas: r.narrow(&at("replicas")),
        is_in_memory: r.text(&at("storage")) == "memory",
        partitions: r.narrow(&at("partitions")),
        publish_window_max: r.count(&at("publish_window")),
        publish_timeout_ms: r.ms_above_zero(&at("publish_timeout")),
        linger_ms: r.ms(&at("linger")),
        audit_interval_ms: r.ms_above_zero(&at("audit_interval")),
        gap_timeout_ms: r.ms_above_zero(&at("gap_timeout")),
        start_timeout_ms: r.ms(&at("start_timeout")),
        requests_max: r.count(&at("requests_limit")),
        subscription_messages_max: r.count(&at("messages_limit")),
    };
    let (is_enabled, kind) = (r.bool("broker.enabled"), r.text(TYPE));
    if is_enabled && !["memory", "nats"].contains(&kind.as_str()) {
        let text = format!(
            "{kind:?} is not supported: nodes would not receive each other's publications. Set it to \"nats\", and see \
             docs/clustering.md, or disable `broker.enabled`"
        );
        r.error(TYPE, text);
    }
    if !is_on(r) {
        return None;
    }
    if settings.url.is_none() {
        r.error("broker.nats.url", "is empty: write an address such as \"nats://localhost:4222\"");
    }
    check_prefix(r, &settings.prefix);
    Some(settings)
}

fn check_prefix(r: &mut Reader<'_>, prefix: &str) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if prefix.is_empty() || prefix.len() > 64 || !prefix.bytes().all(is_plain) {
        r.error(PREFIX, "is not one token of a subject: use up to 64 of the characters a-z A-Z 0-9 - _");
    }
}

/// Warns of what nodes do not share.
pub(super) fn check_sharing(r: &mut Reader<'_>, namespaces: &[NamespaceOptions]) {
    if !is_on(r) {
        return;
    }
    let names = |is_meant: fn(&NamespaceOptions) -> bool| -> Vec<&str> {
        namespaces.iter().filter(|namespace| is_meant(namespace)).map(|namespace| namespace.name.as_str()).collect()
    };
    let unshared = names(|namespace| namespace.room.is_some());
    if !unshared.is_empty() {
        let text =
            format!("nodes do not share rooms: each node has its own in these namespaces: {}", unshared.join(", "));
        r.warning(TYPE, text);
    }
    let present = names(|namespace| namespace.presence);
    if !present.is_empty() {
        let text = format!("presence is of each node alone in these namespaces: {}", present.join(", "));
        r.warning(TYPE, text);
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
