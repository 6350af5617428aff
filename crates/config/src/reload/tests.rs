//! Compares the list of keys that a reload applies with the effect of changing each key.

use dunlin_games::Registry;

use super::*;
use crate::{ConfigInput, Document, Format, key_support};

/// A configuration in which each key can be seen to change: everything is on that another key would hide.
fn base() -> serde_json::Value {
    serde_json::json!({
        "http_server": { "tls": { "enabled": true, "cert_pem": "a", "key_pem": "b" } },
        "http_api": { "key": "k" },
        "client": {
            "allowed_origins": ["http://a.example"],
            "token": { "hmac_secret_key": "0123456789abcdef0123456789abcdef", "jwks_public_endpoint": "https://keys.example/" },
            "subscription_token": { "enabled": true, "hmac_secret_key": "0123456789abcdef0123456789abcdef",
                "jwks_public_endpoint": "https://keys.example/" },
            "subscribe_to_user_personal_channel": { "enabled": true },
            "connect_code_to_unidirectional_disconnect": {
                "enabled": true, "transforms": [{ "code": 100, "to": { "code": 3100, "reason": "a" } }]
            },
            "proxy": {
                "connect": { "enabled": true, "endpoint": "http://127.0.0.1/" },
                "refresh": { "enabled": true, "endpoint": "http://127.0.0.1/" }
            }
        },
        "channel": {
            "proxy": {
                "subscribe": { "endpoint": "http://127.0.0.1/" },
                "publish": { "endpoint": "http://127.0.0.1/" },
                "sub_refresh": { "endpoint": "http://127.0.0.1/" }
            },
            "without_namespace": { "history_meta_ttl": "1h" },
            "namespaces": [{ "name": "chat" }, { "name": "arena", "room": { "simulation": "crowd" }, "history_size": 9, "history_ttl": "1m" }]
        },
        "rpc": { "proxy": { "endpoint": "http://127.0.0.1/" }, "namespaces": [{ "name": "app" }], "ping": { "enabled": true } },
        "proxies": [{ "name": "main", "endpoint": "http://127.0.0.1/", "http": { "status_to_code_transforms": [{ "status_code": 404 }] } }]
    })
}

fn input(config: &serde_json::Value) -> ConfigInput {
    let document = Document { name: "test.json".to_owned(), format: Format::Json, text: config.to_string() };
    ConfigInput { document: Some(document), ..ConfigInput::default() }
}

#[test]
fn settings_are_shown_without_what_is_secret() {
    let mut config = base();
    config["admin"] = serde_json::json!({ "enabled": true, "password": "hunter2", "sign_in_lifetime": "90m" });
    config["client"]["proxy"]["connect"]["endpoint"] = "http://user:hunter2@backend/path?key=hunter2".into();
    config["client"]["proxy"]["connect"]["http"] =
        serde_json::json!({ "static_headers": { "Authorization": "hunter2" } });
    config["channel"]["namespaces"][0]["history_size"] = 10.into();
    let (_, values) = read(&config);
    let shown = values.shown();
    assert!(!format!("{shown:?}").contains("hunter2"), "{shown:?}");
    let setting = |key: &str| {
        let found = shown.iter().find(|setting| setting.key == key).unwrap_or_else(|| panic!("{key} in {shown:?}"));
        (found.value.clone(), found.hidden)
    };
    assert_eq!(setting("admin.password"), (serde_json::Value::Null, true));
    assert_eq!(setting("admin.sign_in_lifetime"), ("90m".into(), false));
    assert_eq!(setting("client.proxy.connect.endpoint"), ("http://backend/path".into(), true));
    assert_eq!(setting("client.proxy.connect.http.static_headers"), (serde_json::json!(["Authorization"]), true));
    assert_eq!(setting("channel.namespaces[chat].history_size"), (10.into(), false));
    // Its tables have no names, so the list is one value, of which nothing is known.
    assert_eq!(setting("client.connect_code_to_unidirectional_disconnect.transforms"), (serde_json::Value::Null, true));
}

#[test]
fn no_key_of_a_secret_is_shown() {
    for leaf in key_support::leaves() {
        let kind = keys::at(&leaf.path).map(|key| key.kind);
        if matches!(kind, Some(crate::keys::ValueKind::Secret)) {
            let setting = ShownSetting::new(&leaf.path, &Value::Text("hunter2".to_owned()));
            assert_eq!((setting.value, setting.hidden), (serde_json::Value::Null, true), "{}", leaf.path);
        }
    }
}

/// What a configuration means, whether it is good or not, and the values that were set.
fn read(config: &serde_json::Value) -> (Config, Values) {
    let mut problems = crate::Problems::default();
    let settings = input(config).settings(&mut problems);
    assert!(problems.errors.is_empty(), "{problems}");
    let (registry, read) = (Registry::built_in(), std::collections::BTreeSet::new());
    let mut reader = crate::resolve::Reader { settings: &settings, problems: &mut problems, registry: &registry, read };
    (crate::resolve::config(&mut reader), Values::of(&settings))
}

/// All options as text, for comparison. Secrets are omitted.
fn shown(config: &Config) -> String {
    let tls = config.http_server.tls.as_ref().map(|tls| (&tls.certificate, &tls.key, &tls.client_ca));
    let token = [Some(&config.token.connection), config.token.subscription.as_ref()];
    let secrets: Vec<_> = token
        .into_iter()
        .flatten()
        .flat_map(|keys| [keys.hmac.as_ref(), keys.hmac_previous.as_ref()])
        .map(|secret| secret.map(Secret::reveal))
        .collect();
    let key = match &config.http_api.access {
        crate::ApiAccess::Keys(keys) => [b"k".as_slice(), b"other"].map(|key| keys.admit(key)),
        _ => [false; 2],
    };
    format!("{config:?} {tls:?} {secrets:?} {key:?}")
}

/// Other values than `old` for a key.
fn others(key: &keys::Key, path: &str) -> Vec<serde_json::Value> {
    use keys::ValueKind;
    let special = match path {
        path if path.ends_with("jwks_public_endpoint") => vec!["https://other.example/".into()],
        path if path.ends_with("proxy_name") => vec!["main".into()],
        path if path.ends_with("endpoint") => vec!["http://127.0.0.2/".into()],
        path if path.ends_with("http.static_headers") => vec![serde_json::json!({ "x-a": "b" })],
        "http_server.internal_port" => vec![9_000.into()],
        "http_server.trusted_proxies" => vec![serde_json::json!(["10.0.0.0/8"])],
        _ => Vec::new(),
    };
    if !special.is_empty() {
        return special;
    }
    match key.kind {
        ValueKind::Bool => vec![true.into(), false.into()],
        ValueKind::Int(min, max) => {
            [3_100, 77, 5, 1].into_iter().filter(|n| (min..=max).contains(n)).map(Into::into).collect()
        }
        ValueKind::Duration | ValueKind::DurationOrOff => vec!["7s".into(), "77m".into()],
        ValueKind::Text | ValueKind::Secret | ValueKind::Url => {
            ["other", "/other", "127.0.0.3", "/", ";", "other-0123456789abcdef0123456789abcdef"]
                .map(Into::into)
                .to_vec()
        }
        ValueKind::Choice(words) => words.iter().map(|word| (*word).into()).collect(),
        ValueKind::Texts => vec![serde_json::json!(["http://other.example"]), serde_json::json!(["other"])],
        ValueKind::Any => vec![serde_json::json!({ "speed": 2 })],
        ValueKind::Table(_) | ValueKind::Tables(_) => unreachable!("a leaf"),
    }
}

/// Sets the key at a path, in the last table of each list on the way but for the one that has no room.
fn set(config: &mut serde_json::Value, path: &str, value: serde_json::Value) {
    let mut place = config;
    for part in path.split('.') {
        let (name, is_list) = part.strip_suffix("[]").map_or((part, false), |name| (name, true));
        let table = place.as_object_mut().expect("a table");
        place = table.entry(name).or_insert_with(|| serde_json::json!({}));
        if is_list {
            let tables = place.as_array_mut().expect("a list");
            let table = usize::from(path.contains(".room.") && tables.len() > 1);
            place = &mut tables[table];
        }
    }
    *place = value;
}

#[test]
fn every_key_is_applied_as_its_reload_class_states() {
    // A key of what is off makes no difference.
    let mut base = base();
    for leaf in key_support::leaves().iter().filter(|leaf| leaf.path.ends_with(".enabled")) {
        if matches!(leaf.holding, key_support::Holding::Holds | key_support::Holding::Own) {
            set(&mut base, &leaf.path, true.into());
        }
    }
    let mut wrong = Vec::new();
    let (running, values) = read(&base);
    let before = shown(&running);
    for leaf in key_support::leaves() {
        let is_ours = matches!(leaf.holding, key_support::Holding::Holds | key_support::Holding::Own);
        let key = keys::at(&leaf.path.replace("[]", "[0]")).expect("a key");
        // A name makes another table of it, and what is judged as a whole is not looked at.
        if !is_ours || leaf.path.ends_with("].name") || !matches!(key.support, Support::Yes | Support::Own) {
            continue;
        }
        // Text that is no key means nothing, and what permits a short one is no more than a check; they go with the other
        // keys of their table.
        let unseen = ["rsa_public_key", "ecdsa_public_key", "allow_short_hmac_keys"];
        if unseen.iter().any(|name| leaf.path.ends_with(name)) {
            assert_eq!(applies(&leaf.path), Applies::Live);
            continue;
        }
        let mut is_seen = false;
        let mut is_changed = false;
        for other in others(key, &leaf.path) {
            let mut config = base.clone();
            set(&mut config, &leaf.path, other.clone());
            if let Some(kind) = leaf.path.strip_suffix("proxy_name") {
                set(&mut config, &format!("{kind}proxy_enabled"), true.into());
            }
            let (wanted, wanted_values) = read(&config);
            let (next, held) = running.succeeded_by(&wanted);
            let changes = values.clone().take_over(&wanted_values, &held);
            is_seen |= shown(&wanted) != before;
            is_changed |= shown(&next) != before;
            let named = |named: &NeedsRestart| leaf.path.starts_with(&without_names(&named.key));
            let is_new = wanted_values != values;
            if applies(&leaf.path) == Applies::Restart && is_new && !changes.needs_restart.iter().any(named) {
                wrong.push(format!("{} = {other} is not named: {changes:?}", leaf.path));
            }
            if is_seen || is_new && applies(&leaf.path) == Applies::Restart {
                break;
            }
        }
        // Where nothing may change, a value that is wrong in this configuration shows it as well.
        if !is_seen && applies(&leaf.path) == Applies::Live {
            wrong.push(format!("{}: no value makes a difference, so nothing is tested", leaf.path));
        } else if is_changed != (applies(&leaf.path) == Applies::Live) {
            wrong.push(format!("{}: changes at run time: {is_changed}", leaf.path));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_lists_name_keys() {
    for path in LIVE.iter().chain(RESTART) {
        assert!(keys::at(&path.replace("[]", "[0]")).is_some(), "{path}");
    }
}

fn change(from: &mut serde_json::Value, change: impl FnOnce(&mut serde_json::Value)) -> Changes {
    let (running, mut values) = read(from);
    change(from);
    let (wanted, wanted_values) = read(from);
    let (_, held) = running.succeeded_by(&wanted);
    values.take_over(&wanted_values, &held)
}

#[test]
fn tables_are_distinguished_by_their_names() {
    let mut config = base();
    let namespaces = |config: &mut serde_json::Value, list: serde_json::Value| config["channel"]["namespaces"] = list;
    let arena = config["channel"]["namespaces"][1].clone();
    let changes = change(&mut config, |config| {
        namespaces(config, serde_json::json!([arena, { "name": "late", "presence": true }, { "name": "chat" }]));
    });
    assert_eq!((changes.changed, changes.needs_restart), (vec!["channel.namespaces[late]".to_owned()], Vec::new()));
    let changes = change(&mut config, |config| {
        namespaces(config, serde_json::json!([{ "name": "chat", "presence": true, "delivery": "latest" }]));
    });
    assert_eq!(changes.changed, ["channel.namespaces[chat].presence", "channel.namespaces[late]"]);
    let waiting: Vec<_> = changes.needs_restart.iter().map(ToString::to_string).collect();
    assert_eq!(waiting, ["channel.namespaces[arena] (it has rooms)", "channel.namespaces[chat].delivery"]);
}

#[test]
fn a_new_namespace_without_its_backend_is_held_back() {
    let mut config = base();
    let changes = change(&mut config, |config| {
        config["proxies"] = serde_json::json!([
            { "name": "second", "endpoint": "http://127.0.0.1/" }, { "name": "main", "endpoint": "http://127.0.0.1/" },
        ]);
        config["channel"]["namespaces"] = serde_json::json!([
            { "name": "chat", "publish_proxy_enabled": true, "publish_proxy_name": "second" },
            { "name": "asks", "publish_proxy_enabled": true, "publish_proxy_name": "main" },
            { "name": "late", "publish_proxy_enabled": true, "publish_proxy_name": "second" },
        ]);
    });
    assert_eq!(changes.changed, ["channel.namespaces[asks]"]);
    let waiting: Vec<_> = changes.needs_restart.iter().map(|waiting| &*waiting.key).collect();
    assert!(waiting.contains(&"channel.namespaces[late]") && waiting.contains(&"proxies[second]"), "{waiting:?}");
    let (running, wanted) = (read(&base()).0, read(&config).0);
    let (next, _) = running.succeeded_by(&wanted);
    let asks = next.engine.namespaces.iter().find(|namespace| namespace.name == "asks").expect("it is new");
    let label = &running.backends[usize::from(asks.publish_proxy.expect("it asks").0)].label;
    assert_eq!(label, "proxies.main", "by the numbers of the running node");
}

#[test]
fn no_secret_is_shown() {
    let (_, values) = read(&base());
    assert!(!format!("{values:?}").contains("0123456789abcdef"));
}
