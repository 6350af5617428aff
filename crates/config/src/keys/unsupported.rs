//! The keys of Centrifugo that Dunlin refuses, ignores, or needs not have: `schema/unsupported_keys.json`. A row has the
//! path of a key in its first table of [`SHARED`], and stands for all of them.
//!
//! A row for a table stands for all keys of the table, which have neither a treatment nor a reason of their own.

use std::{collections::BTreeMap, sync::LazyLock};

use serde::Deserialize;

use super::{Groups, Key, SHARED, SUPPORTED, Support, ValueKind, at_in, names};

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    /// Keys of several tables, by the name that these tables refer to.
    groups: BTreeMap<String, Vec<Inside>>,
    /// In the order in which they are listed and reported.
    keys: Vec<Row>,
}

/// A key, or a key in a table that is treated as a whole.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// The path, or the name of a key in a table.
    key: String,
    #[serde(rename = "type")]
    value_type: ValueType,
    /// Centrifugo's default, as text.
    #[serde(default)]
    default: String,
    /// Bounds of an integer, inclusive.
    min: Option<i64>,
    max: Option<i64>,
    /// The values of a choice.
    #[serde(default)]
    words: Vec<String>,
    /// The keys of a table.
    #[serde(default)]
    keys: Vec<Inside>,
    /// The key behind which the row stands in its table. By default it stands at the end.
    after: Option<String>,
    treatment: Option<Treatment>,
    #[serde(default)]
    why: String,
    /// Only Centrifugo PRO has it.
    #[serde(default)]
    pro: bool,
    /// Dunlin will not support it.
    #[serde(default)]
    never: bool,
    /// Whether `docs/compatibility.md` has a line for each key of the table.
    #[serde(default)]
    line_per_key: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ValueType {
    Boolean,
    Integer,
    Duration,
    Text,
    Secret,
    Choice,
    Texts,
    Any,
    Table,
    /// A list of tables.
    Tables,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Treatment {
    /// See [`Support::Needless`].
    Needless,
    /// See [`Support::Warned`].
    Ignored,
    /// See [`Support::Refused`].
    Refused,
}

/// One key of a table, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Inside {
    /// A name in `groups`, or the path of a supported table with these keys.
    Group(String),
    Key(Box<Row>),
}

static ROWS: LazyLock<Rows> = LazyLock::new(|| {
    let read = serde_json::from_str(include_str!("../../../../schema/unsupported_keys.json"));
    read.unwrap_or_else(|error| unreachable!("schema/unsupported_keys.json is valid: {error}"))
});

/// A row for `docs/compatibility.md`.
#[derive(Clone, Debug)]
pub struct UnsupportedKey {
    /// The path; `[]` follows the name of a list.
    pub path: String,
    /// Only Centrifugo PRO has it.
    pub is_pro: bool,
    /// Dunlin will not support it.
    pub is_never: bool,
    /// The paths that have a line of their own: those of the table's keys, or that of the row.
    pub lines: Vec<String>,
}

/// All rows, in the order of the file.
pub fn rows() -> Vec<UnsupportedKey> {
    let listed = ROWS.keys.iter().map(|row| {
        let path = if row.value_type == ValueType::Tables { format!("{}[]", row.key) } else { row.key.clone() };
        let lines = if row.line_per_key {
            keys_of(&row.keys).iter().map(|key| format!("{path}.{}", key.name)).collect()
        } else {
            vec![path.clone()]
        };
        UnsupportedKey { path, is_pro: row.pro, is_never: row.never, lines }
    });
    listed.collect()
}

/// The supported keys of the table at `path`, and the rows of this table; likewise in all tables inside. The slices live
/// as long as the process, which needs them once.
pub(super) fn added_to(supported: Groups, path: &str) -> Groups {
    one_group(all_keys(supported, path))
}

fn all_keys(supported: Groups, path: &str) -> Vec<Key> {
    let place = first_of_shared(path);
    let rows: Vec<_> = ROWS.keys.iter().filter(|row| row.table() == place).collect();
    let behind = |name: Option<&'static str>| {
        rows.iter().filter(move |row| row.after.as_deref() == name).map(|row| row.to_key())
    };
    let mut keys = Vec::new();
    for key in names(supported) {
        let inside = if path.is_empty() { key.name.to_owned() } else { format!("{path}.{}", key.name) };
        let kind = match key.kind {
            ValueKind::Table(groups) => ValueKind::Table(added_to(groups, &inside)),
            ValueKind::Tables(groups) => ValueKind::Tables(added_to(groups, &format!("{inside}[]"))),
            other => other,
        };
        keys.push(Key { kind, ..*key });
        keys.extend(behind(Some(key.name)));
    }
    keys.extend(behind(None));
    keys
}

/// The path in the first of the tables that share their keys.
fn first_of_shared(path: &str) -> String {
    for (_, tables) in SHARED {
        let [first, others @ ..] = tables else { continue };
        let inside = others.iter().find_map(|other| path.strip_prefix(other));
        if let Some(inside) = inside.filter(|inside| inside.is_empty() || inside.starts_with('.')) {
            return format!("{first}{inside}");
        }
    }
    path.to_owned()
}

impl Row {
    /// The path of its table.
    fn table(&self) -> &str {
        self.key.rsplit_once('.').map_or("", |(table, _)| table)
    }

    fn to_key(&'static self) -> Key {
        let support = match self.treatment {
            None => Support::Inherited,
            Some(Treatment::Needless) => Support::Needless(&self.why),
            Some(Treatment::Ignored) => Support::Warned(&self.why),
            Some(Treatment::Refused) => Support::Refused(&self.why),
        };
        let name = self.key.rsplit('.').next().unwrap_or_default();
        Key { name, kind: self.kind(), default: &self.default, support, doc: "" }
    }

    fn kind(&'static self) -> ValueKind {
        match self.value_type {
            ValueType::Boolean => ValueKind::Bool,
            ValueType::Integer => ValueKind::Int(self.min.unwrap_or(i64::MIN), self.max.unwrap_or(i64::MAX)),
            ValueType::Duration => ValueKind::Duration,
            ValueType::Text => ValueKind::Text,
            ValueType::Secret => ValueKind::Secret,
            ValueType::Choice => ValueKind::Choice(self.words.iter().map(String::as_str).collect::<Vec<_>>().leak()),
            ValueType::Texts => ValueKind::Texts,
            ValueType::Any => ValueKind::Any,
            ValueType::Table => ValueKind::Table(one_group(keys_of(&self.keys))),
            ValueType::Tables => ValueKind::Tables(one_group(keys_of(&self.keys))),
        }
    }
}

fn keys_of(inside: &'static [Inside]) -> Vec<Key> {
    let mut keys = Vec::new();
    for inside in inside {
        match inside {
            Inside::Key(row) => keys.push(row.to_key()),
            Inside::Group(name) => match ROWS.groups.get(name) {
                Some(group) => keys.extend(keys_of(group)),
                None => keys.extend(keys_of_supported(name)),
            },
        }
    }
    keys
}

/// Copies of the keys, for another table.
fn keys_of_supported(path: &str) -> Vec<Key> {
    match at_in(SUPPORTED, path).map(|key| key.kind) {
        Some(ValueKind::Table(groups)) => all_keys(groups, path),
        _ => unreachable!("schema/unsupported_keys.json: {path} is neither a group nor a supported table"),
    }
}

fn one_group(keys: Vec<Key>) -> Groups {
    let group: &'static [Key] = keys.leak();
    vec![group].leak()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{super::at, *};

    /// The key at `path` in the table of keys.
    fn known(path: &str) -> &'static Key {
        at(path).unwrap_or_else(|| panic!("{path} is in no table of keys"))
    }

    #[test]
    fn each_row_is_a_key_of_its_own_with_a_reason() {
        let mut seen = BTreeSet::new();
        for row in &ROWS.keys {
            let path = &row.key;
            assert!(seen.insert(path), "{path} has two rows");
            assert!(at_in(SUPPORTED, path).is_none(), "{path} is supported; remove its row");
            assert_eq!(
                first_of_shared(path),
                *path,
                "the row of {path} is about several tables, of which it is not the first"
            );
            let why = match known(path).support {
                Support::Needless(why) | Support::Warned(why) | Support::Refused(why) => why,
                other => panic!("{path}: {other:?}"),
            };
            assert!(!why.is_empty() && !why.ends_with('.'), "{path}: {why:?} ends a sentence");
            assert!(!row.never || row.treatment != Some(Treatment::Needless), "{path}: there is nothing to support");
            let after =
                row.after.as_ref().map(|after| [row.table(), after].join(".").trim_start_matches('.').to_owned());
            assert!(
                after.is_none_or(|after| at_in(SUPPORTED, &after).is_some()),
                "{path}: stands behind an unknown key"
            );
        }
    }

    #[test]
    fn the_keys_of_a_table_have_no_treatment_of_their_own() {
        fn check(inside: &[Inside], path: &str, used: &mut BTreeSet<String>) {
            for inside in inside {
                match inside {
                    Inside::Group(name) => drop(used.insert(name.clone())),
                    Inside::Key(row) => {
                        let path = format!("{path}.{}", row.key);
                        assert!(row.treatment.is_none() && row.why.is_empty() && row.after.is_none(), "{path}");
                        assert!(!row.pro && !row.never && !row.line_per_key, "{path}");
                        check(&row.keys, &path, used);
                    }
                }
            }
        }
        let mut used = BTreeSet::new();
        for row in &ROWS.keys {
            check(&row.keys, &row.key, &mut used);
        }
        for (name, group) in &ROWS.groups {
            check(group, name, &mut used);
        }
        let unused: Vec<_> = ROWS.groups.keys().filter(|name| !used.contains(*name)).collect();
        assert!(unused.is_empty(), "no table has the keys of {unused:?}");
    }

    #[test]
    fn a_row_stands_for_all_tables_with_its_keys() {
        for path in [
            "channel.without_namespace.subscribe_cel",
            "rpc.proxy.emulated_headers",
            "proxies[0].http.tls.client_ca_pem",
        ] {
            assert!(!matches!(known(path).support, Support::Yes | Support::Own | Support::Inherited), "{path}");
        }
        // With the keys of a supported table.
        assert!(matches!(known("channel.proxy.map_publish").support, Support::Warned(_)));
        assert!(
            at("channel.proxy.map_publish.endpoint").is_some()
                && at("channel.proxy.map_publish.grpc_metadata").is_some()
        );
        assert!(matches!(known("consumers[0].kafka.tls.key_pem").kind, ValueKind::Secret));
    }
}
