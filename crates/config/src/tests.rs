//! Checks the table of keys, the names of environment variables, and the defaults.

use std::collections::BTreeMap;

use super::{
    keys::{Groups, Key, Support, ValueKind},
    value::Value,
    *,
};

/// Every key that is judged by itself, with its path, and then the others if asked for.
fn each(groups: Groups, prefix: &str, inherited_too: bool, visit: &mut dyn FnMut(&str, &'static Key)) {
    let mut seen = BTreeSet::new();
    for key in keys::names(groups) {
        let path = if prefix.is_empty() { key.name.to_owned() } else { format!("{prefix}.{}", key.name) };
        assert!(seen.insert(key.name), "{path} is there twice");
        let judged = matches!(key.support, Support::Yes | Support::Own) || inherited_too;
        match key.kind {
            ValueKind::Table(inner) if judged => each(inner, &path, inherited_too, visit),
            ValueKind::Tables(inner) if judged => each(inner, &format!("{path}[]"), inherited_too, visit),
            _ => {}
        }
        visit(&path, key);
    }
}

#[test]
fn exactly_the_supported_keys_are_read() {
    let input = ConfigInput {
        document: Some(Document {
            name: "test.json".to_owned(),
            format: Format::Json,
            text: r#"{"channel": {"namespaces": [{"name": "chat"}]}, "rpc": {"namespaces": [{"name": "app"}]},
                    "proxies": [{"name": "main", "endpoint": "http://127.0.0.1/"}],
                    "client": {"connect_code_to_unidirectional_disconnect": {"transforms": [{"code": 100}]}}}"#
                .to_owned(),
        }),
        ..ConfigInput::default()
    };
    let mut problems = Problems::default();
    let settings = input.settings(&mut problems);
    let (registry, read) = (Registry::built_in(), BTreeSet::new());
    let mut reader = resolve::Reader { settings: &settings, problems: &mut problems, registry: &registry, read };
    resolve::config(&mut reader);
    let mut read = reader.read;
    each(keys::root(), "", false, &mut |path, key| {
        let supported = matches!(key.support, Support::Yes | Support::Own);
        if supported && !matches!(key.kind, ValueKind::Table(_) | ValueKind::Tables(_)) {
            assert!(read.remove(path), "{path} is called supported and read by nobody");
        }
    });
    assert!(read.is_empty(), "read, but not called supported: {read:?}");
}

#[test]
fn every_key_has_a_default_and_a_description() {
    each(keys::root(), "", true, &mut |path, key| {
        match key.kind {
            ValueKind::Table(_) | ValueKind::Tables(_) => assert_eq!(key.default, "", "{path}"),
            _ => drop(Value::default_of(key)),
        }
        let own_words = matches!(key.support, Support::Yes | Support::Own);
        assert_eq!(own_words, !key.doc.is_empty(), "{path}");
        assert!(!own_words || key.doc.ends_with('.'), "{path}");
    });
}

#[test]
fn every_variable_sets_one_key() {
    let mut by_name = BTreeMap::new();
    for (name, path) in variables::variables_of_keys() {
        assert_eq!(by_name.insert(name.clone(), path.clone()), None, "{name}: {path}");
    }
    assert_eq!(by_name["DUNLIN_CLIENT_TOKEN_HMAC_SECRET_KEY"], "client.token.hmac_secret_key");
    assert_eq!(by_name["DUNLIN_CHANNEL_NAMESPACES"], "channel.namespaces");
}

#[test]
fn the_defaults_are_those_of_the_engine() {
    let config = Config::default();
    let engine = dunlin_engine::Options::default();
    assert_eq!(format!("{:?}", config.engine.client), format!("{:?}", engine.client));
    assert_eq!(format!("{:?}", config.engine.channel), format!("{:?}", engine.channel));
    let without_namespace = dunlin_engine::options::NamespaceOptions {
        history_meta_ttl_ms: 720 * 3_600_000,
        history_bytes_max: 16 << 20,
        history_disk_bytes_max: 256 << 20,
        cache_keys_ttl_ms: 3_600_000,
        ..engine.without_namespace
    };
    assert_eq!(format!("{:?}", config.engine.without_namespace), format!("{without_namespace:?}"));
    assert_eq!(config.websocket.limits, dunlin_websocket::WebSocketLimits::default());
    assert!(matches!(config.http_api.access, ApiAccess::Nobody));
    assert!(config.token.connection.hmac.is_none());
    assert!((1..=256).contains(&config.shards));
}

/// What the keys of a namespace's rooms say about overload; `None` if the configuration has a problem.
fn overrun_of(keys: &str) -> Option<OverrunPolicy> {
    let text = format!(
        r#"{{"channel": {{"namespaces": [{{"name": "field", "history_size": 100, "history_ttl": "1m",
            "room": {{"simulation": "tag"{keys}}}}}]}}}}"#
    );
    let document = Document { name: "test.json".to_owned(), format: Format::Json, text };
    let (config, _) = Config::from_input(&ConfigInput { document: Some(document), ..ConfigInput::default() }).ok()?;
    config.rooms.namespaces.iter().flatten().map(|room| room.overrun).next()
}

#[test]
fn the_lowest_rate_of_a_slowed_clock_is_above_zero_and_at_most_real_time() {
    let dilate = |permille| {
        let rate_min = dunlin_rooms::ClockRate::from_permille(permille).expect("a rate");
        Some(OverrunPolicy::Dilate { rate_min })
    };
    let with_rate = |permille: i64| overrun_of(&format!(r#", "overrun": "dilate", "min_rate_permille": {permille}"#));
    assert_eq!([overrun_of(""), overrun_of(r#", "overrun": "skip""#)], [Some(OverrunPolicy::Skip); 2]);
    assert_eq!(overrun_of(r#", "overrun": "dilate""#), dilate(100));
    assert_eq!([1, 250, 1_000].map(with_rate), [1, 250, 1_000].map(dilate), "at the limits");
    assert_eq!([0, 1_001, -1, 66_536].map(with_rate), [None; 4], "past them");
    assert_eq!(overrun_of(r#", "overrun": "slow""#), None);
}
