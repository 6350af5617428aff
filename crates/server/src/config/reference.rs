//! The reference page and the JSON Schema, written from the table of keys.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json, json};

use super::{
    keys::{self, Groups, Key, Kind, Support},
    value::Value,
};

/// Tables with the same keys: described once, under this heading. The first path is the one whose keys are listed.
const SHARED: &[(&str, &[&str])] = &[
    ("Channel options", &["channel.namespaces[]", "channel.without_namespace"]),
    ("Token keys", &["client.subscription_token", "client.token"]),
    (
        "Proxy keys",
        &[
            "proxies[]",
            "client.proxy.connect",
            "client.proxy.refresh",
            "channel.proxy.subscribe",
            "channel.proxy.publish",
            "channel.proxy.sub_refresh",
            "rpc.proxy",
        ],
    ),
];

const INTRODUCTION: &str = "\
# Configuration

<!-- Written by `dunlin config-reference markdown`. A test compares this page with the table of keys in the program. -->

`dunlin serve -c FILE` reads one file: JSON, YAML or TOML, as its name ends. Every key that is in no list can be set by an
environment variable as well: `client.ping_interval` is `DUNLIN_CLIENT_PING_INTERVAL`. Lists of texts are separated by
spaces there, and lists of tables are JSON (`DUNLIN_CHANNEL_NAMESPACES='[{\"name\": \"chat\"}]'`); a key of the namespace `chat` is
`DUNLIN_CHANNEL_NAMESPACES_CHAT_HISTORY_SIZE`. Flags win over variables, variables over the file, and the file over the
defaults. Variables that begin with `CENTRIFUGO_` count as well, below those that begin with `DUNLIN_`. `dunlin gen-config` writes a file to start with, and `dunlin check-config -c FILE` tells what is wrong with one.

Durations are text with a unit: `25s`, `250ms`, `1h30m`. Sizes are in bytes.

Where an option exists in Centrifugo v6, it has the same name and meaning here, so a file made for Centrifugo can be tried as it is.
Option by option: [compatibility](compatibility.md). A key that Centrifugo knows and Dunlin does not support yet is [ignored with a warning](#ignored-with-a-warning), or, where ignoring it
would change who may do what or what arrives, [refused](#refused); at its default it is neither. A key that
nobody knows is an error. Dunlin's own keys are marked with ◆.
";

/// `docs/configuration.md`.
pub fn markdown() -> String {
    let mut page = INTRODUCTION.to_owned();
    let mut top = Vec::new();
    for key in keys::names(keys::ROOT) {
        match (key.support, key.kind) {
            (Support::Yes | Support::Own, Kind::Table(inner)) => {
                let rows = supported(inner, key.name);
                if !rows.is_empty() {
                    push_section(&mut page, &format!("`{}`", key.name), key.doc, &rows);
                }
            }
            (Support::Yes | Support::Own, _) => top.push((key.name.to_owned(), key)),
            _ => {}
        }
    }
    push_section(&mut page, "Keys outside of tables", "", &top);
    for (heading, paths) in SHARED {
        if let Some((first, Some(groups))) = paths.first().map(|path| (*path, groups_at(path))) {
            let rows: Vec<_> =
                supported(groups, first).into_iter().map(|(_, key)| (key.name.to_owned(), key)).collect();
            let places: Vec<_> = paths.iter().map(|path| format!("`{path}`")).collect();
            push_section(&mut page, heading, &format!("The keys of {}.", places.join(" and of ")), &rows);
        }
    }
    push_unsupported(&mut page);
    page
}

/// `schema/config.json`: a JSON Schema for editors. It knows less than `dunlin check-config` does.
pub fn json_schema() -> String {
    let mut schema = table_schema(keys::ROOT);
    if let Some(object) = schema.as_object_mut() {
        object.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
        object.insert("title".to_owned(), json!("Dunlin's configuration"));
        object.insert("$comment".to_owned(), json!("Written by `dunlin config-reference json-schema`."));
    }
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_else(|error| unreachable!("it is JSON: {error}"));
    text.push('\n');
    text
}

/// The supported keys in these groups and in the tables in them, but for shared tables.
fn supported(groups: Groups, prefix: &str) -> Vec<(String, &'static Key)> {
    let mut rows = Vec::new();
    for key in keys::names(groups) {
        let path = format!("{prefix}.{}", key.name);
        match (key.support, key.kind) {
            (Support::Yes | Support::Own, Kind::Table(inner)) if !is_shared(&path) => {
                rows.extend(supported(inner, &path));
            }
            (Support::Yes | Support::Own, Kind::Tables(inner)) if !is_shared(&format!("{path}[]")) => {
                rows.extend(supported(inner, &format!("{path}[]")));
            }
            (Support::Yes | Support::Own, _) => rows.push((path, key)),
            _ => {}
        }
    }
    rows
}

fn push_section(page: &mut String, heading: &str, doc: &str, rows: &[(String, &'static Key)]) {
    let _ = write!(page, "\n## {heading}\n\n");
    if !doc.is_empty() {
        let _ = write!(page, "{doc}\n\n");
    }
    page.push_str("| key | value | default | |\n|---|---|---|---|\n");
    for (path, key) in rows {
        let own = if matches!(key.support, Support::Own) { " ◆" } else { "" };
        let default = if key.default.is_empty() { String::new() } else { format!("`{}`", key.default) };
        let _ = writeln!(page, "| `{path}`{own} | {} | {default} | {} |", value_words(key.kind), key.doc);
    }
}

fn push_unsupported(page: &mut String) {
    let mut listed = [Vec::new(), Vec::new(), Vec::new()];
    collect_unsupported(keys::ROOT, "", &mut listed);
    let [warned, refused, needless] = listed;
    let shared = "What is said of `channel.namespaces[]` holds for `channel.without_namespace` as well, and what is said of \
                  `client.subscription_token` for `client.token`.";
    for (heading, doc, rows) in [
        (
            "Ignored with a warning",
            format!("{shared} A table with a key `enabled` is ignored silently while it is off."),
            warned,
        ),
        ("Refused", format!("{shared} A table with a key `enabled` is refused only while it is on."), refused),
        ("Accepted", "With nothing to do.".to_owned(), needless),
    ] {
        let _ = write!(page, "\n## {heading}\n\n{doc}\n\n| key | why | keys inside |\n|---|---|---|\n");
        for (path, why, inside) in rows {
            let _ = writeln!(page, "| `{path}` | {why} | {inside} |");
        }
    }
}

fn collect_unsupported(groups: Groups, prefix: &str, listed: &mut [Vec<(String, &'static str, String)>; 3]) {
    for key in keys::names(groups) {
        let path = if prefix.is_empty() { key.name.to_owned() } else { format!("{prefix}.{}", key.name) };
        let [warned, refused, needless] = &mut *listed;
        let (list, why) = match (key.support, key.kind) {
            (Support::Warned(why), _) => (warned, why),
            (Support::Refused(why), _) => (refused, why),
            (Support::Needless(why), _) => (needless, why),
            (_, Kind::Table(inner)) if !is_shared_again(&path) => {
                collect_unsupported(inner, &path, listed);
                continue;
            }
            (_, Kind::Tables(inner)) => {
                collect_unsupported(inner, &format!("{path}[]"), listed);
                continue;
            }
            _ => continue,
        };
        list.push((path, why, names_inside(key.kind)));
    }
}

/// The paths of all keys in an unsupported table, relative to it.
fn names_inside(kind: Kind) -> String {
    fn collect(groups: Groups, prefix: &str, names: &mut Vec<String>) {
        for key in keys::names(groups) {
            match key.kind {
                Kind::Table(inner) | Kind::Tables(inner) => collect(inner, &format!("{prefix}{}.", key.name), names),
                _ => names.push(format!("`{prefix}{}`", key.name)),
            }
        }
    }
    let mut names = Vec::new();
    if let Kind::Table(groups) | Kind::Tables(groups) = kind {
        collect(groups, "", &mut names);
    }
    names.join(" ")
}

fn is_shared(path: &str) -> bool {
    SHARED.iter().any(|(_, paths)| paths.contains(&path))
}

/// Shared, and not the one place whose keys are listed.
fn is_shared_again(path: &str) -> bool {
    SHARED.iter().any(|(_, paths)| paths.iter().skip(1).any(|again| *again == path))
}

fn groups_at(path: &str) -> Option<Groups> {
    match keys::at(path)?.kind {
        Kind::Table(groups) | Kind::Tables(groups) => Some(groups),
        _ => None,
    }
}

fn value_words(kind: Kind) -> String {
    match kind {
        Kind::Bool => "true or false".to_owned(),
        Kind::Int(min, max) if max >= 1 << 40 => format!("number from {min}"),
        Kind::Int(min, max) => format!("number from {min} to {max}"),
        Kind::Duration | Kind::DurationOrOff => "duration".to_owned(),
        Kind::Text => "text".to_owned(),
        Kind::Secret => "secret text".to_owned(),
        Kind::Choice(words) => {
            let words: Vec<_> = words.iter().filter(|word| !word.is_empty()).map(|word| format!("`{word}`")).collect();
            words.join(", ")
        }
        Kind::Texts => "list of texts".to_owned(),
        Kind::Any => "anything".to_owned(),
        Kind::Table(_) => "table".to_owned(),
        Kind::Tables(_) => "list of tables".to_owned(),
    }
}

fn table_schema(groups: Groups) -> Json {
    let properties: Map<_, _> = keys::names(groups).map(|key| (key.name.to_owned(), key_schema(key))).collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn key_schema(key: &'static Key) -> Json {
    let mut schema = match key.kind {
        Kind::Bool => json!({ "type": "boolean" }),
        Kind::Int(i64::MIN, _) => json!({ "type": "integer" }),
        Kind::Int(min, max) => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::Duration => json!({ "type": "string", "pattern": "^(0|([0-9]+(\\.[0-9]*)?(ns|us|µs|ms|s|m|h))+)$" }),
        Kind::DurationOrOff => {
            json!({ "type": "string", "pattern": "^(0|-1|-?([0-9]+(\\.[0-9]*)?(ns|us|µs|ms|s|m|h))+)$" })
        }
        Kind::Text => json!({ "type": "string" }),
        Kind::Secret => json!({ "type": "string", "writeOnly": true }),
        Kind::Choice(words) => json!({ "enum": words }),
        Kind::Texts => json!({ "type": "array", "items": { "type": "string" } }),
        Kind::Any => json!({}),
        // What is judged as a whole is described as a whole.
        Kind::Table(_) if !matches!(key.support, Support::Yes | Support::Own) => json!({ "type": "object" }),
        Kind::Tables(_) if !matches!(key.support, Support::Yes | Support::Own) => json!({ "type": "array" }),
        Kind::Table(groups) => table_schema(groups),
        Kind::Tables(groups) => json!({ "type": "array", "items": table_schema(groups) }),
    };
    let (description, deprecated) = match key.support {
        Support::Yes | Support::Own => (key.doc.to_owned(), false),
        Support::Needless(why) => (format!("Nothing to do: {why}."), true),
        Support::Warned(why) => (format!("Ignored by Dunlin: {why}."), true),
        Support::Refused(why) => (format!("Not supported by Dunlin yet, and refused: {why}."), true),
        Support::Inherited => (String::new(), true),
    };
    if let Some(object) = schema.as_object_mut() {
        object.insert("description".to_owned(), json!(description));
        if deprecated {
            object.insert("deprecated".to_owned(), json!(true));
        }
        if let Some(default) = default_json(key) {
            object.insert("default".to_owned(), default);
        }
    }
    schema
}

fn default_json(key: &Key) -> Option<Json> {
    if matches!(key.kind, Kind::Table(_) | Kind::Tables(_) | Kind::Any | Kind::Secret) {
        return None;
    }
    Some(match Value::default_of(key) {
        Value::Bool(value) => json!(value),
        Value::Int(value) => json!(value),
        // As it is typed there: 720h, not 30 days in other words.
        Value::Millis(_) => json!(key.default),
        Value::Text(value) => json!(value),
        Value::Texts(value) => json!(value),
        Value::Any { .. } => return None,
    })
}
