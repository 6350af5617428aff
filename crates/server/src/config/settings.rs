//! Settings: the typed values of known keys, each with the place where it was set. Layers (file, environment variables,
//! flags) are put on top of one another; then each key's support is judged.

use std::collections::BTreeMap;

use super::{
    keys::{self, Groups, Key, Kind, Support},
    nearest,
    problem::{Problems, Source},
    tree::Tree,
    value::Value,
};

/// What was set, by path.
#[derive(Debug, Default)]
pub(super) struct Settings {
    set: BTreeMap<String, (Value, Source)>,
    /// Tables in each list that was set.
    lists: BTreeMap<String, (usize, Source)>,
}

impl Settings {
    /// Puts a whole document on top.
    pub(super) fn set_document(&mut self, document: &Tree, source: &Source, problems: &mut Problems) {
        match document {
            Tree::Null => {}
            Tree::Table(entries) => self.set_table(keys::ROOT, "", entries, source, problems),
            other => problems.error(source, "", format!("holds {}; write a table of settings", other.describe())),
        }
    }

    /// Puts one setting on top, given as text: from an environment variable or a flag.
    pub(super) fn set_text(&mut self, path: &str, text: &str, source: &Source, problems: &mut Problems) {
        let key = known(path);
        let tree = match key.kind {
            Kind::Any if text.is_empty() => Tree::Null,
            Kind::Tables(_) | Kind::Table(_) | Kind::Any => match serde_json::from_str(text) {
                Ok(tree) => tree,
                Err(error) => return problems.error(source, path, format!("is not JSON: {error}")),
            },
            Kind::Texts => Tree::List(text.split_ascii_whitespace().map(|item| Tree::Text(item.to_owned())).collect()),
            _ => Tree::Text(text.to_owned()),
        };
        self.set_one(key, path, &tree, source, problems);
    }

    /// The value at `path`, or its default. The path is one of ours: a wrong one is a mistake in this crate.
    pub(super) fn value(&self, path: &str) -> Value {
        self.set.get(path).map_or_else(|| Value::default_of(known(path)), |(value, _)| value.clone())
    }

    /// The text that was set at `path`.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        match self.set.get(path)? {
            (Value::Text(text), _) => Some(text),
            _ => None,
        }
    }

    /// Where the value at `path` was set; for one that was not, where the list that it would be in was.
    pub(super) fn source(&self, path: &str) -> Source {
        let list = path.split('[').next().and_then(|list| self.lists.get(list));
        match (self.set.get(path), list) {
            (Some((_, source)), _) | (None, Some((_, source))) => source.clone(),
            (None, None) => Source::Default,
        }
    }

    /// The first key that was set in the table at `path`.
    pub(super) fn first_set_in(&self, path: &str) -> Option<String> {
        let inside = format!("{path}.");
        self.set.keys().find(|set| set.starts_with(&inside)).cloned()
    }

    /// How many tables the list at `path` holds.
    pub(super) fn len(&self, path: &str) -> usize {
        self.lists.get(path).map_or(0, |(len, _)| *len)
    }

    /// Warns about what has no effect, and refuses what must not be ignored.
    pub(super) fn judge_support(&self, problems: &mut Problems) {
        self.judge(keys::ROOT, "", problems);
    }

    fn set_table(
        &mut self,
        groups: Groups,
        prefix: &str,
        entries: &[(String, Tree)],
        source: &Source,
        problems: &mut Problems,
    ) {
        for (name, tree) in entries {
            let path = join(prefix, name);
            match keys::find(groups, name) {
                Some(key) => self.set_one(key, &path, tree, source, problems),
                None => problems.error(source, &path, nearest::unknown_key(&path, problems.is_full())),
            }
        }
    }

    fn set_one(&mut self, key: &'static Key, path: &str, tree: &Tree, source: &Source, problems: &mut Problems) {
        match (key.kind, tree) {
            // An empty entry of a YAML file.
            (_, Tree::Null) => {}
            (Kind::Table(groups), Tree::Table(entries)) => self.set_table(groups, path, entries, source, problems),
            (Kind::Table(_), other) => {
                problems.error(source, path, format!("is {}; write a table of settings", other.describe()));
            }
            (Kind::Tables(groups), Tree::List(items)) => {
                self.set_tables(groups, path, items, source, problems);
            }
            (Kind::Tables(_), other) => {
                problems.error(source, path, format!("is {}; write a list of tables", other.describe()));
            }
            _ => match Value::read(key, tree) {
                Ok(value) => {
                    self.set.insert(path.to_owned(), (value, source.clone()));
                }
                Err(text) => problems.error(source, path, text),
            },
        }
    }

    /// A list replaces the one of the layers below.
    fn set_tables(&mut self, groups: Groups, path: &str, items: &[Tree], source: &Source, problems: &mut Problems) {
        let inside = format!("{path}[");
        self.set.retain(|set, _| !set.starts_with(&inside));
        self.lists.retain(|list, _| !list.starts_with(&inside));
        self.lists.insert(path.to_owned(), (items.len(), source.clone()));
        for (index, item) in items.iter().enumerate() {
            let path = format!("{path}[{index}]");
            match item {
                Tree::Table(entries) => self.set_table(groups, &path, entries, source, problems),
                other => problems.error(source, &path, format!("is {}; write a table of settings", other.describe())),
            }
        }
    }

    fn judge(&self, groups: Groups, prefix: &str, problems: &mut Problems) {
        for key in keys::names(groups) {
            let path = join(prefix, key.name);
            match (key.support, key.kind) {
                (Support::Yes | Support::Own, Kind::Table(inner)) => self.judge(inner, &path, problems),
                (Support::Yes | Support::Own, Kind::Tables(inner)) => {
                    for index in 0..self.len(&path) {
                        self.judge(inner, &format!("{path}[{index}]"), problems);
                    }
                }
                (Support::Warned(why), _) => {
                    for (source, path) in self.where_on(key, &path) {
                        problems.warning(&source, &path, format!("is ignored: {why}"));
                    }
                }
                (Support::Refused(why), _) => {
                    for (source, path) in self.where_on(key, &path) {
                        let text = format!("is not supported yet, and ignoring it is not safe: {why}. {}", remedy(key));
                        problems.error(&source, &path, text);
                    }
                }
                (Support::Yes | Support::Own | Support::Needless(_) | Support::Inherited, _) => {}
            }
        }
    }

    /// The places where an unsupported key is set to other than its default, or where a table of such keys is on.
    fn where_on(&self, key: &'static Key, path: &str) -> Vec<(Source, String)> {
        match key.kind {
            Kind::Table(groups) => {
                self.switched_on_at(groups, path).map(|source| (source, path.to_owned())).into_iter().collect()
            }
            Kind::Tables(groups) => (0..self.len(path))
                .filter_map(|index| {
                    let path = format!("{path}[{index}]");
                    self.switched_on_at(groups, &path).map(|source| (source, path))
                })
                .collect(),
            _ => self.differs_at(key, path).map(|source| (source, path.to_owned())).into_iter().collect(),
        }
    }

    /// A table with a key `enabled` is on when that says so; another one when anything in it is not at its default.
    fn switched_on_at(&self, groups: Groups, prefix: &str) -> Option<Source> {
        if let Some(enabled) = keys::find(groups, "enabled") {
            return self.differs_at(enabled, &join(prefix, "enabled"));
        }
        keys::names(groups).find_map(|key| {
            let path = join(prefix, key.name);
            match key.kind {
                Kind::Table(inner) => self.switched_on_at(inner, &path),
                _ => self.differs_at(key, &path),
            }
        })
    }

    fn differs_at(&self, key: &'static Key, path: &str) -> Option<Source> {
        let (value, source) = self.set.get(path)?;
        (*value != Value::default_of(key) && !value.is_blank()).then(|| source.clone())
    }
}

/// The key at a path that is written in this crate.
fn known(path: &str) -> &'static Key {
    keys::at(path).unwrap_or_else(|| unreachable!("{path} is in the table of keys"))
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

fn remedy(key: &Key) -> String {
    match key.kind {
        Kind::Table(groups) if keys::find(groups, "enabled").is_some() => "Set its `enabled` to false".to_owned(),
        Kind::Tables(_) => "Remove it".to_owned(),
        _ if key.default.is_empty() => "Remove it".to_owned(),
        _ => format!("Remove it, or set it to {}", key.default),
    }
}
