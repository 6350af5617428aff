//! The options of the nodes of a simulated cluster.

use dunlin_engine::{
    Options,
    log::{LogLimits, PublicationLog},
    options::{ClientOptions, NamespaceOptions},
};

use crate::{
    chance::Chance,
    logged::{KEY_TAG, REMOVAL_TAG},
};

/// The options of all nodes. The namespace `log` has a stream, and `live` and `kept` have no history; `kept` keeps the
/// newest publication of each key. Without broadcasts, nodes
/// only share publications with an offset. If `sessions_max` is not 0, nodes limit the sessions of each user.
pub fn options(chance: &mut Chance, has_broadcasts: bool, sessions_max: usize) -> Options {
    let open = NamespaceOptions {
        is_clustered: has_broadcasts,
        presence: true,
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
    let kept = NamespaceOptions {
        name: "kept".to_owned(),
        conflation_key: Some(KEY_TAG.to_owned()),
        cache_keys_max: 100,
        cache_keys_ttl_ms: 60_000,
        removal_tag: Some(REMOVAL_TAG.into()),
        ..open.clone()
    };
    let live = NamespaceOptions { name: "live".to_owned(), join_leave: true, force_push_join_leave: true, ..open };
    let client = ClientOptions {
        allow_anonymous_connect_without_token: true,
        ping_interval_ms: 0,
        user_sessions_max: sessions_max,
        shares_user_sessions: sessions_max > 0,
        ..ClientOptions::default()
    };
    let limits = LogLimits {
        tail_publications_max: *chance.pick(&[1, 4, 10, 1_000]),
        peer_queries_max: if has_broadcasts { 100 } else { 0 },
        ..LogLimits::default()
    };
    Options { client, namespaces: vec![log, live, kept], log: limits, ..Options::default() }
}
