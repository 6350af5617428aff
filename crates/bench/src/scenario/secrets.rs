//! Results are published, so they have no secrets: not those in a profile's table `[server]`, not what clients join rooms with,
//! and not those of the command line.

use std::sync::LazyLock;

use serde_json::Value;

/// What stands for a secret.
const HIDDEN: &str = "…";
/// The server's configuration, which says of each key whether its value is a secret.
static SCHEMA: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../../../schema/config.json")).expect("the schema is JSON"));
/// Parts of the paths of secrets that the schema does not know: keys of a program of the user, and fields of headers.
const NAMES: [&str; 11] =
    ["key", "secret", "password", "token", "credential", "pem", "url", "dsn", "endpoint", "header", "authorization"];
/// The data of a join, which may have a token.
const JOIN: &str = "join";
/// Arguments whose value is a secret.
const SECRET_ARGUMENTS: [&str; 1] = ["--api-key"];
/// Arguments whose value sets a key of a profile, and arguments whose value is a URL.
const SET_ARGUMENTS: [&str; 1] = ["--set"];
const URL_ARGUMENTS: [&str; 1] = ["--target"];

/// A profile's document without the secrets of its server.
pub fn without_secrets(mut document: Value) -> Value {
    if let Some(server) = document.get_mut("server") {
        hide(server, Some(&*SCHEMA), "");
    }
    let crews = document.get_mut("crew").and_then(Value::as_array_mut);
    for join in crews.into_iter().flatten().filter_map(|crew| crew.get_mut(JOIN)) {
        *join = Value::String(HIDDEN.to_owned());
    }
    document
}

/// The arguments of a command without secrets.
pub fn shown_flags(args: impl Iterator<Item = String>) -> Vec<String> {
    let mut before = String::new();
    let shown = args.map(|arg| {
        let name = std::mem::take(&mut before);
        if !name.is_empty() {
            return shown_value(&name, &arg);
        }
        match arg.split_once('=') {
            Some((name, value)) if takes_value(name) => format!("{name}={}", shown_value(name, value)),
            _ => {
                before = if takes_value(&arg) { arg.clone() } else { String::new() };
                arg
            }
        }
    });
    shown.collect()
}

fn takes_value(name: &str) -> bool {
    [&SECRET_ARGUMENTS, &SET_ARGUMENTS, &URL_ARGUMENTS].iter().any(|names| names.contains(&name))
}

fn shown_value(name: &str, value: &str) -> String {
    if SECRET_ARGUMENTS.contains(&name) {
        HIDDEN.to_owned()
    } else if URL_ARGUMENTS.contains(&name) {
        shown_url(value)
    } else {
        shown_setting(value)
    }
}

/// The URL of a target without its query, which may have a token.
pub fn shown_url(url: &str) -> String {
    url.split_once('?').map_or_else(|| url.to_owned(), |(place, _)| format!("{place}?{HIDDEN}"))
}

/// `KEY=VALUE` without the value, if that is a secret.
fn shown_setting(setting: &str) -> String {
    let Some((path, text)) = setting.split_once('=') else { return setting.to_owned() };
    // A table or a list has its secrets inside.
    let has_parts = text.trim_start().starts_with(['{', '[']);
    let key = path.trim();
    if key == "crew" || key.starts_with("crew.") {
        // A key in a table may be written with escapes.
        let may_join = has_parts && (text.contains(JOIN) || text.contains('\\'));
        let is_secret = may_join || key.split('.').any(|part| part == JOIN);
        return if is_secret { format!("{path}={HIDDEN}") } else { setting.to_owned() };
    }
    let Some(in_server) = path.trim().strip_prefix("server") else { return setting.to_owned() };
    let mut parts = in_server.split('.').filter(|part| !part.is_empty());
    let schema = parts.try_fold(&*SCHEMA, child);
    if is_secret(schema, in_server) || (has_parts && holds_secrets(schema)) {
        format!("{path}={HIDDEN}")
    } else {
        setting.to_owned()
    }
}

fn hide(value: &mut Value, schema: Option<&Value>, path: &str) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                hide(field, schema.and_then(|schema| child(schema, key)), &format!("{path}.{key}"));
            }
        }
        Value::Array(items) => {
            for item in items {
                hide(item, schema.and_then(|schema| schema.get("items")), path);
            }
        }
        leaf if is_secret(schema, path) => *leaf = Value::String(HIDDEN.to_owned()),
        _ => {}
    }
}

/// The schema of a key. A key with dots is a path. In a list, a part of a path is the name or the number of an item.
fn child<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    key.split('.').try_fold(schema, |schema, part| match schema.get("items") {
        Some(items) => Some(items),
        None => schema.get("properties")?.get(part),
    })
}

fn is_secret(schema: Option<&Value>, path: &str) -> bool {
    match schema {
        Some(schema) => schema.get("writeOnly") == Some(&Value::Bool(true)),
        None => NAMES.iter().any(|part| path.to_lowercase().contains(part)),
    }
}

/// Whether a secret may be somewhere below. It is unknown without a schema, and in a table of any keys.
fn holds_secrets(schema: Option<&Value>) -> bool {
    let Some(schema) = schema else { return true };
    let fields = schema.get("properties").and_then(Value::as_object);
    let is_any = fields.is_none() && schema.get("type").is_none_or(|kind| kind == "object");
    let mut fields = fields.into_iter().flat_map(serde_json::Map::values).chain(schema.get("items"));
    is_any || is_secret(Some(schema), "") || fields.any(|field| holds_secrets(Some(field)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_has_the_settings_of_its_server_but_no_secrets() {
        let document = json!({
            "about": "a key",
            "server": {
                "shards": 2,
                "http_api": { "key": "s3cret" },
                "client": { "token": { "hmac_secret_key": "s3cret", "audience": "all" } },
                "broker.nats.url": "nats://user:s3cret@host",
                "proxies": [{
                    "name": "one",
                    "endpoint": "http://user:s3cret@host",
                    "http": { "static_headers": { "X-Way": "s3cret" } },
                }],
                "my_game": { "login_token": "s3cret", "map": "large" },
            },
            "crew": [{ "name": "key", "room": "game:1" }],
        });
        let shown = without_secrets(document.clone());
        assert!(!shown.to_string().contains("s3cret"), "{shown:#}");
        assert_eq!(shown["server"]["shards"], 2);
        assert_eq!(shown["server"]["http_api"]["key"], HIDDEN);
        assert_eq!(shown["server"]["client"]["token"]["audience"], "all");
        assert_eq!(shown["server"]["proxies"][0]["name"], "one");
        assert_eq!(shown["server"]["my_game"]["map"], "large");
        assert_eq!((&shown["about"], &shown["crew"]), (&document["about"], &document["crew"]));
        assert_eq!(without_secrets(shown.clone()), shown, "a page hides once more what a result has hidden");
    }

    #[test]
    fn every_secret_of_the_schema_is_hidden() {
        fn walk(schema: &Value, path: &str, found: &mut Vec<String>) {
            if schema.get("writeOnly").is_some() {
                found.push(path.to_owned());
            }
            for (key, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                walk(field, &format!("{path}.{key}"), found);
            }
            if let Some(items) = schema.get("items") {
                walk(items, &format!("{path}.0"), found);
            }
        }
        let mut secrets = Vec::new();
        walk(&SCHEMA, "server", &mut secrets);
        assert!(secrets.len() > 20, "{secrets:?}");
        for path in secrets {
            assert_eq!(shown_setting(&format!("{path}=s3cret")), format!("{path}=…"));
        }
    }

    #[test]
    fn arguments_have_no_secrets() {
        let shown = |args: &str| shown_flags(args.split(' ').map(str::to_owned)).join(" ");
        for (args, expected) in [
            ("run idle --api-key s3cret --quiet", "run idle --api-key … --quiet"),
            ("run idle --api-key=s3cret --quiet", "run idle --api-key=… --quiet"),
            ("run idle --api-keys s3cret", "run idle --api-keys s3cret"),
            ("run idle --set server.http_api.key=s3cret --short", "run idle --set server.http_api.key=… --short"),
            ("run idle --set=server.http_api.key=s3cret", "run idle --set=server.http_api.key=…"),
            ("run idle --set server.http_api={key=\"s3cret\"}", "run idle --set server.http_api=…"),
            ("run idle --set server={x=1}", "run idle --set server=…"),
            (
                "run idle --set server.rpc.proxy.http.static_headers={a=1}",
                "run idle --set server.rpc.proxy.http.static_headers=…",
            ),
            ("run idle --set server.shards=2", "run idle --set server.shards=2"),
            ("run idle --set crew.clients.connections=5", "run idle --set crew.clients.connections=5"),
            ("run idle --target ws://h:1/p?token=s3cret", "run idle --target ws://h:1/p?…"),
            ("run idle --target=ws://h:1/p", "run idle --target=ws://h:1/p"),
        ] {
            assert_eq!(shown(args), expected);
        }
    }

    #[test]
    fn the_data_of_joins_is_hidden() {
        let document = json!({ "crew": [{ "role": "player", "join": "{\"token\":\"t\"}" }, { "role": "subscriber" }] });
        let shown = json!({ "crew": [{ "role": "player", "join": HIDDEN }, { "role": "subscriber" }] });
        assert_eq!(without_secrets(document), shown);
        for (setting, expected) in [
            ("crew.0.join={\"token\":\"t\"}", "crew.0.join=…"),
            ("crew.players.join=t", "crew.players.join=…"),
            ("crew=[{name=\"a\",join=\"t\"}]", "crew=…"),
            ("crew = [ { \"join\" = 't' } ]", "crew =…"),
            ("crew=[{\"jo\\u0069n\"=\"t\"}]", "crew=…"),
            ("crew.0={role=\"player\",join=\"t\"}", "crew.0=…"),
            ("crew=[{name=\"a\",connections=5}]", "crew=[{name=\"a\",connections=5}]"),
            ("crew.joiners.connections=5", "crew.joiners.connections=5"),
        ] {
            assert_eq!(shown_setting(setting), expected);
        }
    }
}
