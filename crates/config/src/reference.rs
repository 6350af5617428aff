//! Generates the reference page and the JSON Schema from the table of keys.

use std::{collections::BTreeSet, fmt::Write as _};

use serde_json::{Map, Value as Json, json};

use super::{
    keys::{self, Groups, Key, SHARED, Support, ValueKind},
    reload::{Applies, applies},
    value::Value,
};

const INTRODUCTION: &str = "\
# Configuration

<!-- Written by `dunlin config-reference markdown`. A test compares this page with the table of keys in the program. -->

`dunlin serve -c FILE` reads one file: JSON, YAML or TOML, depending on the extension of its name. Without `-c`, Dunlin reads
the first of these files that the working directory holds: `config.json`, `config.yaml`, `config.yml`, `config.toml`. The log
names the file at start. `dunlin gen-config` writes a file to start with, and `dunlin check-config -c FILE` checks one.

Examples on this page are whole lines of TOML, and defaults are TOML values, so that both can be pasted into a file. The same
configuration in the three formats:

```toml
client.ping_interval = \"30s\"
client.allowed_origins = [\"https://example.com\"]

[[channel.namespaces]]
name = \"chat\"
presence = true
```

```yaml
client:
  ping_interval: 30s
  allowed_origins: [\"https://example.com\"]
channel:
  namespaces:
    - name: chat
      presence: true
```

```json
{
  \"client\": { \"ping_interval\": \"30s\", \"allowed_origins\": [\"https://example.com\"] },
  \"channel\": { \"namespaces\": [{ \"name\": \"chat\", \"presence\": true }] }
}
```

Durations are text with a unit: `25s`, `250ms`, `1h30m`. Sizes are in bytes. Keys marked with ◆ do not exist in Centrifugo. Keys marked with ↻ are
applied while the node runs, by `dunlin reload` or SIGHUP; all others at the next start. See [operating](operating.md#reloading).

## Environment variables

Environment variables override the file, and flags override both.

- `DUNLIN_CLIENT_PING_INTERVAL` sets `client.ping_interval`; every key that is not in a list has such a variable.
- A variable that is set to nothing counts as not set.
- Lists of text are separated by spaces: `DUNLIN_CLIENT_ALLOWED_ORIGINS=\"https://a.example https://b.example\"`.
- `DUNLIN_CHANNEL_NAMESPACES=\"chat news\"` adds namespaces with these names, and `DUNLIN_CHANNEL_NAMESPACES_CHAT_PRESENCE=true` sets
  a key of one of them. The value can also be JSON, which replaces the list: `'[{\"name\": \"chat\"}]'`.
  `DUNLIN_RPC_NAMESPACES` and `DUNLIN_PROXIES` work in the same way.
- `DUNLIN_HTTP_API_KEY_FILE=/run/secrets/api-key` reads `http_api.key` from a file, without one newline at its end. Every secret and
  every URL has such a variable. It is an error to set both a variable and its `_FILE`.
- Variables that begin with `CENTRIFUGO_` work as in Centrifugo; `DUNLIN_` variables override them.
- Variables that Kubernetes sets for services, such as `DUNLIN_HTTP_SERVER_PORT=tcp://10.0.0.1:8000` for a service `dunlin-http-server`, are
  ignored, with one log line at `debug`.

## Values

- A file without content is an error in every format, because it is more likely unfinished than intended. `{}` starts a node with the defaults.
- In YAML, tags (`!word`), anchors (`&word`) and aliases (`*word`) are refused: a key that begins with one of these signs would be cut
  silently. Write it in quotes.
- Dunlin fills in no placeholders. A secret or a URL that contains `${NAME}` or `$(NAME)`, or is `$NAME`, is refused, because everybody who has
  seen the template could guess it. Set the environment variable of the key instead.
- Messages and logs show URLs without their user information and without the values of their query.

## Configurations of Centrifugo

A key that exists in Centrifugo v6 has the same name and meaning in Dunlin. [compatibility.md](compatibility.md) lists all of them. A
Centrifugo key that Dunlin does not support is [ignored with a warning](#ignored-with-a-warning). It is [refused](#refused) if
ignoring it would change permissions or what is delivered. At its default it is neither. An unknown key is an error.
";

/// `docs/configuration.md`.
pub fn markdown() -> String {
    let mut page = INTRODUCTION.to_owned();
    let mut top = Vec::new();
    for key in keys::names(keys::root()) {
        match (key.support, key.kind) {
            (Support::Yes | Support::Own, ValueKind::Table(inner)) => {
                let rows = supported(inner, key.name);
                if !rows.is_empty() {
                    push_section(&mut page, &format!("`{}`", key.name), key.doc, &rows);
                }
            }
            (Support::Yes | Support::Own, _) => top.push((key.name.to_owned(), key)),
            _ => {}
        }
    }
    push_section(&mut page, "Other keys", "", &top);
    for (heading, paths) in SHARED {
        push_section(&mut page, heading, &places(paths), &shared_rows(paths));
    }
    push_unsupported(&mut page);
    page
}

/// `schema/config.json`: a JSON Schema for editors. `dunlin check-config` checks more.
pub fn json_schema() -> String {
    let mut schema = table_schema(keys::root());
    if let Some(object) = schema.as_object_mut() {
        object.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
        object.insert("title".to_owned(), json!("Dunlin's configuration"));
        object.insert("$comment".to_owned(), json!("Written by `dunlin config-reference json-schema`."));
    }
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_else(|error| unreachable!("it is JSON: {error}"));
    text.push('\n');
    text
}

/// The supported keys of these groups and their tables, except shared tables.
fn supported(groups: Groups, prefix: &str) -> Vec<(String, &'static Key)> {
    let mut rows = Vec::new();
    for key in keys::names(groups) {
        let path = format!("{prefix}.{}", key.name);
        match (key.support, key.kind) {
            (Support::Yes | Support::Own, ValueKind::Table(inner)) if !is_shared(&path) => {
                rows.extend(supported(inner, &path));
            }
            (Support::Yes | Support::Own, ValueKind::Tables(inner)) if !is_shared(&format!("{path}[]")) => {
                rows.extend(supported(inner, &format!("{path}[]")));
            }
            (Support::Yes | Support::Own, _) => rows.push((path, key)),
            _ => {}
        }
    }
    rows
}

/// The keys of tables that share most of them, each with the first path that has it.
fn shared_rows(paths: &[&str]) -> Vec<(String, &'static Key)> {
    let mut rows = Vec::new();
    let mut seen = BTreeSet::new();
    for path in paths {
        let Some(groups) = groups_at(path) else { continue };
        for (whole, key) in supported(groups, path) {
            if seen.insert(whole.strip_prefix(path).unwrap_or_default().to_owned()) {
                rows.push((whole, key));
            }
        }
    }
    rows
}

fn places(paths: &[&str]) -> String {
    let [first, others @ ..] = paths else { return String::new() };
    let list = first.strip_suffix("[]").map(|list| format!(" `{first}` is one table of the list `{list}`."));
    let others: Vec<_> = others.iter().map(|path| format!("`{path}`")).collect();
    format!(
        "These keys of `{first}` are also keys of {}, with the same meaning.{}",
        others.join(", "),
        list.unwrap_or_default()
    )
}

fn push_section(page: &mut String, heading: &str, doc: &str, rows: &[(String, &'static Key)]) {
    let _ = write!(page, "\n## {heading}\n\n");
    if !doc.is_empty() {
        let _ = write!(page, "{doc}\n\n");
    }
    page.push_str("| key | value | default | example | |\n|---|---|---|---|---|\n");
    for (path, key) in rows {
        let own = if matches!(key.support, Support::Own) { " ◆" } else { "" };
        let live = if applies(path) == Applies::Live { " ↻" } else { "" };
        let default = default_toml(key).map(|default| format!("`{default}`")).unwrap_or_default();
        let example: Vec<_> = keys::examples::of(path).into_iter().flat_map(str::lines).collect();
        let example: Vec<_> = example.iter().map(|line| format!("`{line}`")).collect();
        let (value, example) = (value_words(key.kind), example.join("<br>"));
        let _ = writeln!(page, "| `{path}`{own}{live} | {value} | {default} | {example} | {} |", key.doc);
    }
}

fn default_toml(key: &Key) -> Option<String> {
    let default = default_json(key).filter(|_| !key.default.is_empty())?;
    // Text and numbers have the same form in TOML as in JSON.
    Some(match default.as_array() {
        Some(items) => format!("[{}]", items.iter().map(Json::to_string).collect::<Vec<_>>().join(", ")),
        None => default.to_string(),
    })
}

fn push_unsupported(page: &mut String) {
    let mut listed = [Vec::new(), Vec::new(), Vec::new()];
    collect_unsupported(keys::root(), "", &mut listed);
    let [warned, refused, needless] = listed;
    let shared = "Keys of `channel.namespaces[]` also mean those of `channel.without_namespace`, and keys of \
        `client.token` those of `client.subscription_token`.";
    for (heading, doc, rows) in [
        (
            "Ignored with a warning",
            format!("{shared} A table with a key `enabled` causes no warning while `enabled` is false."),
            warned,
        ),
        ("Refused", format!("{shared} A table with a key `enabled` is refused only if `enabled` is true."), refused),
        ("Accepted", "These keys have no effect, because Dunlin does not need them.".to_owned(), needless),
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
            (_, ValueKind::Table(inner)) if !is_shared_again(&path) => {
                collect_unsupported(inner, &path, listed);
                continue;
            }
            (_, ValueKind::Tables(inner)) => {
                collect_unsupported(inner, &format!("{path}[]"), listed);
                continue;
            }
            _ => continue,
        };
        list.push((path, why, names_inside(key.kind)));
    }
}

/// The paths of all keys in an unsupported table, relative to it.
fn names_inside(kind: ValueKind) -> String {
    fn collect(groups: Groups, prefix: &str, names: &mut Vec<String>) {
        for key in keys::names(groups) {
            match key.kind {
                ValueKind::Table(inner) | ValueKind::Tables(inner) => {
                    collect(inner, &format!("{prefix}{}.", key.name), names);
                }
                _ => names.push(format!("`{prefix}{}`", key.name)),
            }
        }
    }
    let mut names = Vec::new();
    if let ValueKind::Table(groups) | ValueKind::Tables(groups) = kind {
        collect(groups, "", &mut names);
    }
    names.join(" ")
}

fn is_shared(path: &str) -> bool {
    SHARED.iter().any(|(_, paths)| paths.contains(&path))
}

/// Whether a shared table is at another path than the one whose keys are listed.
fn is_shared_again(path: &str) -> bool {
    SHARED.iter().any(|(_, paths)| paths.iter().skip(1).any(|again| *again == path))
}

fn groups_at(path: &str) -> Option<Groups> {
    match keys::at(path)?.kind {
        ValueKind::Table(groups) | ValueKind::Tables(groups) => Some(groups),
        _ => None,
    }
}

fn value_words(kind: ValueKind) -> String {
    match kind {
        ValueKind::Bool => "boolean".to_owned(),
        ValueKind::Int(min, max) if max >= 1 << 40 => format!("integer from {min}"),
        ValueKind::Int(min, max) => format!("integer from {min} to {max}"),
        ValueKind::Duration | ValueKind::DurationOrOff => "duration".to_owned(),
        ValueKind::Text => "text".to_owned(),
        ValueKind::Secret => "secret".to_owned(),
        ValueKind::Url => "URL".to_owned(),
        ValueKind::Choice(words) => {
            let words: Vec<_> = words.iter().filter(|word| !word.is_empty()).map(|word| format!("`{word}`")).collect();
            words.join(", ")
        }
        ValueKind::Texts => "list of text".to_owned(),
        ValueKind::Any => "any value".to_owned(),
        ValueKind::Table(_) => "table".to_owned(),
        ValueKind::Tables(_) => "list of tables".to_owned(),
    }
}

fn table_schema(groups: Groups) -> Json {
    let properties: Map<_, _> = keys::names(groups).map(|key| (key.name.to_owned(), key_schema(key))).collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn key_schema(key: &'static Key) -> Json {
    let mut schema = match key.kind {
        ValueKind::Bool => json!({ "type": "boolean" }),
        ValueKind::Int(i64::MIN, _) => json!({ "type": "integer" }),
        ValueKind::Int(min, max) => json!({ "type": "integer", "minimum": min, "maximum": max }),
        ValueKind::Duration => json!({ "type": "string", "pattern": "^(0|([0-9]+(\\.[0-9]*)?(ns|us|µs|ms|s|m|h))+)$" }),
        ValueKind::DurationOrOff => {
            json!({ "type": "string", "pattern": "^(0|-1|-?([0-9]+(\\.[0-9]*)?(ns|us|µs|ms|s|m|h))+)$" })
        }
        ValueKind::Text => json!({ "type": "string" }),
        ValueKind::Secret => json!({ "type": "string", "writeOnly": true }),
        ValueKind::Url => json!({ "type": "string", "format": "uri", "writeOnly": true }),
        ValueKind::Choice(words) => json!({ "enum": words }),
        ValueKind::Texts => json!({ "type": "array", "items": { "type": "string" } }),
        ValueKind::Any => json!({}),
        // Tables that are treated as a whole are described as a whole.
        ValueKind::Table(_) if !matches!(key.support, Support::Yes | Support::Own) => json!({ "type": "object" }),
        ValueKind::Tables(_) if !matches!(key.support, Support::Yes | Support::Own) => json!({ "type": "array" }),
        ValueKind::Table(groups) => table_schema(groups),
        ValueKind::Tables(groups) => json!({ "type": "array", "items": table_schema(groups) }),
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
    if matches!(key.kind, ValueKind::Table(_) | ValueKind::Tables(_) | ValueKind::Any | ValueKind::Secret) {
        return None;
    }
    Some(match Value::default_of(key) {
        Value::Bool(value) => json!(value),
        Value::Int(value) => json!(value),
        // As in the table of keys: 720h, not 30 days in another unit.
        Value::Millis(_) => json!(key.default),
        Value::Text(value) => json!(value),
        Value::Texts(value) => json!(value),
        Value::Any { .. } => return None,
    })
}
