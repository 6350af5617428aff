//! Converts configurations of Centrifugo v5, and half-converted ones, to the form of v6.

mod backends;
mod rows;
#[cfg(test)]
mod tests;
mod variables;

use std::fmt;

use rows::ROWS;

use super::{
    input::Document,
    keys::{self, Groups, ValueKind},
    settings::is_comment,
    tree::Tree,
    tree_text,
    value::{is_bracketed, read_bool},
    variables::PLACEHOLDERS,
};

/// A converted configuration.
#[derive(Debug)]
pub struct Migrated {
    tree: Tree,
    /// What became of each key, in the order of the file.
    pub fates: Vec<(String, Fate)>,
}

/// What became of a key of v5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is in the result unchanged.
    Kept,
    /// It is in the result at this path.
    Renamed(String),
    /// It is not in the result, for this reason.
    Needless(String),
    /// A variable that sets nothing, for this reason.
    Ignored(String),
    /// It is not in the result, and a person has to decide this.
    Decision(String),
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept => f.write_str("kept"),
            Self::Renamed(path) => write!(f, "renamed to {path}"),
            Self::Needless(why) => write!(f, "no longer needed: {why}"),
            Self::Ignored(why) => write!(f, "ignored: {why}"),
            Self::Decision(what) => write!(f, "needs a decision: {what}"),
        }
    }
}

impl Migrated {
    /// The configuration as a file.
    pub fn text(&self, format: super::Format) -> String {
        tree_text::write(&self.tree, format)
    }

    /// The number of keys that need a decision.
    pub fn decisions(&self) -> usize {
        self.fates.iter().filter(|(_, fate)| matches!(fate, Fate::Decision(_))).count()
    }
}

/// The keys at the top of a document that v5 has and v6 does not.
pub(super) fn former_keys(entries: &[(String, Tree)]) -> Vec<&str> {
    entries.iter().filter(|(name, tree)| is_former(name, tree)).map(|(name, _)| name.as_str()).collect()
}

/// The path in v6 of a key at the top of v5.
pub fn successor(name: &str) -> Option<&'static str> {
    ROWS.keys.get(name).map(String::as_str)
}

/// The variables that do what a key at the top of v5 does: one for its value, and one that has to be `true`.
pub fn variables_of(name: &str) -> Option<(String, Option<String>)> {
    let path = successor(name)?;
    Some((super::variable_of(path)?, switch_of(path).as_deref().and_then(super::variable_of)))
}

/// Whether a variable is for header fields, and stays a variable.
pub fn is_placeholder(variable: &str) -> bool {
    PLACEHOLDERS.iter().any(|prefix| variable.starts_with(prefix))
}

/// What replaces a key at the top of v5 that has no path in v6.
pub fn without_successor(name: &str) -> Option<&'static str> {
    [&ROWS.needless, &ROWS.decisions].iter().find_map(|rows| rows.get(name)).map(String::as_str)
}

/// The key of v6 without which the one at `path` does nothing. v5 had no such switches: an address or a name was enough.
fn switch_of(path: &str) -> Option<String> {
    match path {
        "broker.type" => Some("broker.enabled".to_owned()),
        "rpc.proxy.endpoint" => Some("rpc.without_namespace.proxy_enabled".to_owned()),
        _ => path.strip_suffix(".endpoint").filter(|at| at.starts_with("client.")).map(|at| format!("{at}.enabled")),
    }
}

/// Converts a file and environment variables, which override the file.
///
/// # Errors
/// The file is no table in its format.
pub fn migrate(document: Option<&Document>, variables: &[(String, String)]) -> Result<Migrated, String> {
    let entries = match document.map(|document| Tree::parse(document.format, &document.text)).transpose()? {
        None | Some(Tree::Null) => Vec::new(),
        Some(Tree::Table(entries)) => entries,
        Some(other) => return Err(format!("contains {}; a configuration is a table of settings", other.describe())),
    };
    let mut migration = Migration { out: Tree::Table(Vec::new()), fates: Vec::new(), is_former: false };
    let entries = migration.with_variables(entries, variables);
    migration.is_former = entries.iter().any(|entry| is_former(&entry.name, &entry.tree));
    migration.keep_current(&entries);
    let named = backends::Named::of(&entries);
    for entry in entries.into_iter().filter(|entry| !is_current(&entry.name, &entry.tree)) {
        migration.convert(entry, &named);
    }
    migration.convert_lists(&named);
    migration.use_backends(&named);
    Ok(Migrated { tree: migration.out, fates: migration.fates })
}

/// A setting of the file or of a variable.
struct Entry {
    /// What messages call it: the key or the variable.
    label: String,
    /// The key at the top, or for a variable of v6 its path.
    name: String,
    tree: Tree,
}

struct Migration {
    out: Tree,
    fates: Vec<(String, Fate)>,
    /// Whether a key of v5 was seen.
    is_former: bool,
}

impl Migration {
    fn tell(&mut self, label: &str, fate: Fate) {
        self.fates.push((label.to_owned(), fate));
    }

    /// Takes the keys of v6 first: where a file has a value in both forms, v6 reads its own.
    fn keep_current(&mut self, entries: &[Entry]) {
        for entry in entries.iter().filter(|entry| is_current(&entry.name, &entry.tree)) {
            self.out.set_entry(&entry.name, fitted(&entry.name, entry.tree.clone()));
            self.tell(&entry.label, Fate::Kept);
        }
    }

    fn convert(&mut self, entry: Entry, named: &backends::Named) {
        let Entry { label, name, tree } = entry;
        let name = name.as_str();
        if let Some(why) = named.overrides(name) {
            return self.tell(&label, Fate::Needless(why.to_owned()));
        }
        if let Some(path) = ROWS.keys.get(name) {
            return self.place(&label, path, tree);
        }
        if ROWS.common_proxy_keys.contains_key(name) || ROWS.used_proxies.contains_key(name) {
            // `use_backends` puts them where they are used, when all backends are known.
            return;
        }
        let fate = if let Some(why) = ROWS.needless.get(name) {
            Fate::Needless(why.clone())
        } else if let Some(what) = ROWS.decisions.get(name).or_else(|| ROWS.pro.get(name)) {
            if is_off(&tree) { Fate::Needless("it is off or empty".to_owned()) } else { Fate::Decision(what.clone()) }
        } else if keys::at(name).is_some() {
            // A variable of v6, or a value that does not fit its key: the check of the result has the message.
            self.out.set(name, fitted(name, tree));
            if name.contains('.') { Fate::Renamed(name.to_owned()) } else { Fate::Kept }
        } else {
            Fate::Decision(unknown(name))
        };
        self.tell(&label, fate);
    }

    fn place(&mut self, label: &str, path: &str, tree: Tree) {
        if is_unset(path, &tree) {
            return self.tell(label, Fate::Needless(EMPTY.to_owned()));
        }
        if self.out.has(path) {
            return self.tell(label, Fate::Needless(format!("{path} is set as well, and that one counts")));
        }
        self.out.set(path, fitted(path, without_forms(path, tree)));
        if let Some(switch) = switch_of(path) {
            self.out.set_absent(&switch, Tree::Bool(true));
        }
        self.tell(label, Fate::Renamed(path.to_owned()));
    }

    /// Converts the tables of lists, whose keys have other names as well.
    fn convert_lists(&mut self, named: &backends::Named) {
        let is_former = self.is_former;
        for (list, renamed) in [
            ("channel.namespaces", &ROWS.namespace_keys),
            ("rpc.namespaces", &ROWS.rpc_namespace_keys),
            ("proxies", &ROWS.proxy_keys),
        ] {
            let Some(ValueKind::Tables(groups)) = keys::at(list).map(|key| key.kind) else { continue };
            let Some(Tree::List(items)) = self.out.get_mut(list) else { continue };
            let mut told = Vec::new();
            for (index, item) in items.iter_mut().enumerate() {
                let Tree::Table(entries) = item else { continue };
                let name = entries.iter().find_map(|(key, name)| match name {
                    Tree::Text(name) if key == "name" => Some(format!("{name:?}")),
                    _ => None,
                });
                let table = format!("{list}[{}]", name.unwrap_or_else(|| index.to_string()));
                let mut entries = std::mem::take(entries);
                if is_former {
                    drop_empty_names(&mut entries, &table, &mut told);
                }
                *item = converted_table(entries, &table, (renamed, groups), &mut told);
                if is_former && list == "channel.namespaces" {
                    named.drop_names(item, &table, &mut told);
                }
                named.switch_on(item);
            }
            self.fates.append(&mut told);
        }
        if let Some(table) = self.out.get_mut("channel.without_namespace") {
            let mut told = Vec::new();
            if is_former {
                named.drop_names(table, "channel.without_namespace", &mut told);
            }
            named.switch_on(table);
            self.fates.append(&mut told);
        }
        if self.is_former {
            self.enable_consumers();
        }
    }

    /// In v5 a consumer is on unless it has `disabled`; in v6 it has `enabled`.
    fn enable_consumers(&mut self) {
        let Some(Tree::List(consumers)) = self.out.get_mut("consumers") else { return };
        for consumer in consumers.iter_mut() {
            let Tree::Table(entries) = consumer else { continue };
            let is_disabled = entries.iter().any(|(key, value)| key == "disabled" && !value.is_blank());
            entries.retain(|(key, _)| key != "disabled");
            if !entries.iter().any(|(key, _)| key == "enabled") {
                entries.push(("enabled".to_owned(), Tree::Bool(!is_disabled)));
            }
        }
    }
}

type Names = std::collections::BTreeMap<String, String>;

/// In v5 an empty name of a backend is the default; v6 looks for a backend with an empty name.
fn drop_empty_names(entries: &mut Vec<(String, Tree)>, table: &str, told: &mut Vec<(String, Fate)>) {
    entries.retain(|(name, tree)| {
        let is_dropped = is_unset(name, tree) && name.ends_with("proxy_name");
        if is_dropped {
            told.push((format!("{table}.{name}"), Fate::Needless(EMPTY.to_owned())));
        }
        !is_dropped
    });
}

/// A table of a list with the keys of v6. Those of v6 count, so they come first.
fn converted_table(
    entries: Vec<(String, Tree)>,
    table: &str,
    (renamed, groups): (&Names, Groups),
    told: &mut Vec<(String, Fate)>,
) -> Tree {
    let is_current = |name: &str| keys::find(groups, name).is_some() || is_comment(name);
    let (current, former): (Vec<_>, Vec<_>) = entries.into_iter().partition(|(name, _)| is_current(name));
    let mut out = Tree::Table(current);
    for (name, tree) in former {
        let fate = if let Some(path) = renamed.get(&name) {
            if out.has(path) {
                Fate::Needless(format!("{path} is set as well, and that one counts"))
            } else {
                out.set(path, tree);
                Fate::Renamed(format!("{table}.{path}"))
            }
        } else if let Some(what) = ROWS.decisions.get(&name).or_else(|| ROWS.pro.get(&name)) {
            if is_off(&tree) { Fate::Needless("it is off or empty".to_owned()) } else { Fate::Decision(what.clone()) }
        } else {
            Fate::Decision(unknown(&name))
        };
        told.push((format!("{table}.{name}"), fate));
    }
    out
}

/// Whether an entry at the top is in the form of v5, and shows that the file is.
fn is_former(name: &str, tree: &Tree) -> bool {
    ROWS.has_former(name) && !is_current(name, tree)
}

/// Whether an entry at the top is in the form of v6.
fn is_current(name: &str, tree: &Tree) -> bool {
    if is_comment(name) {
        return true;
    }
    match keys::find(keys::root(), name).map(|key| key.kind) {
        None => false,
        Some(ValueKind::Table(_)) => matches!(tree, Tree::Table(_) | Tree::Null),
        Some(_) => true,
    }
}

fn unknown(name: &str) -> String {
    let near = ROWS.nearest(name).map_or_else(String::new, |near| format!("; was {near} meant?"));
    format!("Dunlin does not know this key: if it had an effect, decide what replaces it{near}")
}

/// Whether v5 took the value of a switch for true. Values of variables are texts.
fn is_on(tree: &Tree) -> bool {
    matches!(tree, Tree::Int(number) if *number != 0) || read_bool(tree) == Some(true)
}

/// Whether the value of a key without a successor has no effect.
fn is_off(tree: &Tree) -> bool {
    tree.is_blank() || read_bool(tree) == Some(false)
}

/// What v5 adds to the names of its TLS keys; v6 sees by the value whether it is a file, base64 or PEM.
const FORMS_OF_PEM: [&str; 2] = ["_file", "_b64"];

/// The name of a key of a table as v6 has it; `None` if the table has no such key.
fn name_in_table(groups: Groups, name: &str) -> Option<&str> {
    let plain = FORMS_OF_PEM.iter().find_map(|form| name.strip_suffix(form)).unwrap_or(name);
    [name, plain].into_iter().find(|name| keys::find(groups, name).is_some())
}

/// A table of v5 with the names of v6. What v6 does not know stays as it is: the check of the result names it.
fn without_forms(path: &str, tree: Tree) -> Tree {
    let (Some(ValueKind::Table(groups)), Tree::Table(entries)) = (keys::at(path).map(|key| key.kind), &tree) else {
        return tree;
    };
    let renamed = |(name, value): &(String, Tree)| {
        let name = name_in_table(groups, name).unwrap_or(name);
        (name.to_owned(), value.clone())
    };
    Tree::Table(entries.iter().map(renamed).collect())
}

/// Why an empty value is left out.
const EMPTY: &str = "it is empty";

/// Whether a value of v5 stands for the default. Templates of v5 have all keys, and half of the defaults are empty texts.
/// Where the default of v6 is something else, as for `channel.private_prefix`, an empty text means something.
fn is_unset(path: &str, tree: &Tree) -> bool {
    let is_empty_default = || {
        path.ends_with("proxy_name")
            || keys::at(path).is_some_and(|key| key.default.is_empty() || matches!(key.kind, ValueKind::Choice(_)))
    };
    *tree == Tree::Null || (*tree == Tree::Text(String::new()) && is_empty_default())
}

/// A value in the type of the key at `path`: Centrifugo v5 took numbers for text, and variables are text.
fn fitted(path: &str, tree: Tree) -> Tree {
    let Some(key) = keys::at(path) else { return tree };
    match (key.kind, tree) {
        (ValueKind::Text | ValueKind::Secret | ValueKind::Url, Tree::Int(number)) => Tree::Text(number.to_string()),
        (ValueKind::Bool, Tree::Text(text)) => text.parse().map_or(Tree::Text(text), Tree::Bool),
        (ValueKind::Int(..), Tree::Text(text)) => text.parse().map_or(Tree::Text(text), Tree::Int),
        (ValueKind::Texts, Tree::Text(text)) if is_bracketed(&text) => {
            serde_json::from_str(&text).unwrap_or(Tree::Text(text))
        }
        (ValueKind::Texts, Tree::Text(text)) => {
            Tree::List(text.split_ascii_whitespace().map(|item| Tree::Text(item.to_owned())).collect())
        }
        (ValueKind::Table(_) | ValueKind::Tables(_) | ValueKind::Any, Tree::Text(text)) => {
            serde_json::from_str(&text).unwrap_or(Tree::Text(text))
        }
        (_, tree) => tree,
    }
}
