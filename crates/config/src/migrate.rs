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
    /// It is not in the result, and a person has to decide this.
    Decision(String),
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept => f.write_str("kept"),
            Self::Renamed(path) => write!(f, "renamed to {path}"),
            Self::Needless(why) => write!(f, "no longer needed: {why}"),
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
    let is_former = |(name, tree): &&(String, Tree)| ROWS.has(name) && !is_current(name, tree);
    entries.iter().filter(is_former).map(|(name, _)| name.as_str()).collect()
}

/// The path in v6 of a key at the top of v5.
pub fn successor(name: &str) -> Option<&'static str> {
    ROWS.keys.get(name).map(String::as_str)
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
    migration.is_former = entries.iter().any(|entry| ROWS.has(&entry.name) && !is_current(&entry.name, &entry.tree));
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
        } else if let Some(what) = ROWS.decisions.get(name) {
            if tree.is_blank() { Fate::Needless("it is off or empty".to_owned()) } else { Fate::Decision(what.clone()) }
        } else if keys::at(name).is_some() {
            // A variable of v6, or a value that does not fit its key: the check of the result has the message.
            self.out.set(name, fitted(name, tree));
            if name.contains('.') { Fate::Renamed(name.to_owned()) } else { Fate::Kept }
        } else {
            Fate::Needless(unknown(name))
        };
        self.tell(&label, fate);
    }

    fn place(&mut self, label: &str, path: &str, tree: Tree) {
        if self.out.get(path).is_some() {
            return self.tell(label, Fate::Needless(format!("{path} is set as well, and that one counts")));
        }
        let is_broker = path == "broker.type" && !tree.is_blank();
        self.out.set(path, fitted(path, tree));
        if is_broker {
            self.out.set("broker.enabled", Tree::Bool(true));
        }
        self.tell(label, Fate::Renamed(path.to_owned()));
    }

    /// Converts the tables of lists, whose keys have other names as well.
    fn convert_lists(&mut self, named: &backends::Named) {
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
                *item = converted_table(std::mem::take(entries), &table, (renamed, groups), &mut told);
                named.switch_on(item);
            }
            self.fates.append(&mut told);
        }
        if let Some(table) = self.out.get_mut("channel.without_namespace") {
            named.switch_on(table);
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

/// A table of a list with the keys of v6.
fn converted_table(
    entries: Vec<(String, Tree)>,
    table: &str,
    (renamed, groups): (&Names, Groups),
    told: &mut Vec<(String, Fate)>,
) -> Tree {
    let mut out = Tree::Table(Vec::new());
    for (name, tree) in entries {
        let label = format!("{table}.{name}");
        if keys::find(groups, &name).is_some() || is_comment(&name) {
            out.set_entry(&name, tree);
        } else if let Some(path) = renamed.get(&name) {
            told.push((label, Fate::Renamed(format!("{table}.{path}"))));
            if out.get(path).is_none() {
                out.set(path, tree);
            }
        } else if let Some(what) = ROWS.decisions.get(&name).filter(|_| !tree.is_blank()) {
            told.push((label, Fate::Decision(what.clone())));
        } else {
            told.push((label, Fate::Needless(unknown(&name))));
        }
    }
    out
}

/// Whether an entry at the top is in the form of v6.
fn is_current(name: &str, tree: &Tree) -> bool {
    if is_comment(name) {
        return true;
    }
    match keys::find(keys::ROOT, name).map(|key| key.kind) {
        None => false,
        Some(ValueKind::Table(_)) => matches!(tree, Tree::Table(_) | Tree::Null),
        Some(_) => true,
    }
}

fn unknown(name: &str) -> String {
    match ROWS.nearest(name) {
        Some(near) => format!("neither version 5 nor 6 has this key, so it had no effect; was {near} meant?"),
        None => "neither version 5 nor 6 has this key, so it had no effect".to_owned(),
    }
}

/// A value in the type of the key at `path`: Centrifugo v5 took numbers for text, and variables are text.
fn fitted(path: &str, tree: Tree) -> Tree {
    let Some(key) = keys::at(path) else { return tree };
    match (key.kind, tree) {
        (ValueKind::Text | ValueKind::Secret | ValueKind::Url, Tree::Int(number)) => Tree::Text(number.to_string()),
        (ValueKind::Bool, Tree::Text(text)) => text.parse().map_or(Tree::Text(text), Tree::Bool),
        (ValueKind::Int(..), Tree::Text(text)) => text.parse().map_or(Tree::Text(text), Tree::Int),
        (ValueKind::Texts, Tree::Text(text)) => {
            Tree::List(text.split_ascii_whitespace().map(|item| Tree::Text(item.to_owned())).collect())
        }
        (ValueKind::Table(_) | ValueKind::Tables(_) | ValueKind::Any, Tree::Text(text)) => {
            serde_json::from_str(&text).unwrap_or(Tree::Text(text))
        }
        (_, tree) => tree,
    }
}
