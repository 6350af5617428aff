//! What the nodes of a simulated cluster are configured with.

use dunlin_engine::{
    Options,
    log::{LogLimits, PublicationLog},
    options::{ClientOptions, NamespaceOptions},
};

use crate::chance::Chance;

/// Options of all nodes: the namespace `log` has a stream, and `live` has no history. Without
/// broadcasts, nodes share what has an offset alone.
pub fn options(chance: &mut Chance, has_broadcasts: bool) -> Options {
    let open = NamespaceOptions {
        is_clustered: has_broadcasts,
        allow_subscribe_for_client: true,
        allow_subscribe_for_anonymous: true,
        allow_publish_for_client: true,
        allow_publish_for_anonymous: true,
        ..NamespaceOptions::default()
    };
    let log = NamespaceOptions {
        name: "log".to_owned(),
        log: PublicationLog::OrderedByLog,
        history_size: chance.between(5, 40) as usize,
        history_ttl_ms: 60_000,
        history_meta_ttl_ms: 120_000,
        force_recovery: true,
        allow_history_for_client: true,
        allow_history_for_anonymous: true,
        ..open.clone()
    };
    let live = NamespaceOptions { name: "live".to_owned(), join_leave: true, force_push_join_leave: true, ..open };
    let client =
        ClientOptions { allow_anonymous_connect_without_token: true, ping_interval_ms: 0, ..ClientOptions::default() };
    let limits = LogLimits { tail_publications_max: *chance.pick(&[1, 4, 10, 1_000]), ..LogLimits::default() };
    Options { client, namespaces: vec![log, live], log: limits, ..Options::default() }
}
