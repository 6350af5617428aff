//! Settings: typed values of known keys with their sources. Layers (file, environment variables, flags) are merged;
//! then unsupported keys are reported.

use std::collections::BTreeMap;

use super::{
    keys::{self, Groups, Key, Support, ValueKind},
    migrate, nearest,
    problem::{Problems, SettingSource},
    redis,
    tree::Tree,
    value::{Value, has_placeholder, is_bracketed, shortened},
};

/// What is wrong with a document without content.
const NO_CONTENT: &str = "has no content: write at least one setting into it. To start with the defaults, start without a \
                          file, or write {} into a JSON or YAML file";

/// Values that were set, by path.
#[derive(Debug, Default)]
pub(super) struct Settings {
    set: BTreeMap<String, (Value, SettingSource)>,
    /// The number of tables in each list that was set.
    lists: BTreeMap<String, (usize, SettingSource)>,
    /// Variables that header fields may refer to.
    placeholders: BTreeMap<String, String>,
    /// Environment variables that Kubernetes sets for services, and that set no key.
    pub(super) of_services: Vec<String>,
    /// Whether there is a document, and it sets at least one key.
    pub(super) has_document_settings: bool,
}

impl Settings {
    /// Applies a document as the next layer.
    pub(super) fn set_document(&mut self, document: &Tree, source: &SettingSource, problems: &mut Problems) {
        self.has_document_settings = !document.sets_nothing();
        match document {
            // Most likely the file is being written, or its template was filled with nothing.
            Tree::Null => problems.error(source, "", NO_CONTENT),
            Tree::Table(entries) => {
                let former = migrate::former_keys(entries);
                if former.is_empty() {
                    self.set_table(keys::root(), "", entries, source, problems);
                } else {
                    problems.error(source, "", former_version(&former));
                }
            }
            other => problems.error(source, "", format!("contains {}; write a table of settings", other.describe())),
        }
    }

    /// Applies a setting from an environment variable or a flag.
    pub(super) fn set_text(&mut self, path: &str, text: &str, source: &SettingSource, problems: &mut Problems) {
        let key = known(path);
        let tree = match key.kind {
            ValueKind::Any if text.is_empty() => Tree::Null,
            ValueKind::Tables(groups) if keys::find(groups, "name").is_some() && !text.starts_with(['[', '{']) => {
                return self.add_tables(path, text, source);
            }
            ValueKind::Tables(_) | ValueKind::Table(_) | ValueKind::Any => match serde_json::from_str(text) {
                Ok(tree) => tree,
                Err(error) => return problems.error(source, path, format!("is not JSON: {error}")),
            },
            ValueKind::Texts if is_bracketed(text) => {
                return problems.error(source, path, "is a list in brackets: separate by spaces, as in \"one two\"");
            }
            ValueKind::Texts => {
                Tree::List(text.split_ascii_whitespace().map(|item| Tree::Text(item.to_owned())).collect())
            }
            _ => Tree::Text(text.to_owned()),
        };
        self.set_one(key, path, &tree, source, problems);
    }

    /// The value at `path`, or its default. An unknown path is a bug in this crate.
    pub(super) fn value(&self, path: &str) -> Value {
        self.set.get(path).map_or_else(|| Value::default_of(known(path)), |(value, _)| value.clone())
    }

    /// The text at `path`, if it was set.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        match self.set.get(path)? {
            (Value::Text(text), _) => Some(text),
            _ => None,
        }
    }

    /// Whether a value was set at `path`, also an empty one.
    pub(super) fn has_value(&self, path: &str) -> bool {
        self.set.contains_key(path)
    }

    /// Whether a value that is neither empty nor 0 was set at `path`.
    pub(super) fn is_set(&self, path: &str) -> bool {
        self.set.get(path).is_some_and(|(value, _)| !value.is_blank() && *value != Value::Int(0))
    }

    /// Whether the switch at `path` is on.
    pub(super) fn is_on(&self, path: &str) -> bool {
        self.value(path) == Value::Bool(true)
    }

    /// The number of texts in the list at `path`.
    pub(super) fn texts_len(&self, path: &str) -> usize {
        match self.set.get(path) {
            Some((Value::Texts(texts), _)) => texts.len(),
            _ => 0,
        }
    }

    /// The source of the value at `path`. If it was not set, the source of the list that contains it.
    pub(super) fn source(&self, path: &str) -> SettingSource {
        let list = path.split('[').next().and_then(|list| self.lists.get(list));
        match (self.set.get(path), list) {
            (Some((_, source)), _) | (None, Some((_, source))) => source.clone(),
            (None, None) => SettingSource::Default,
        }
    }

    /// All values that were set, by path.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.set.iter().map(|(path, (value, _))| (path.as_str(), value))
    }

    /// The first key in the table at `path` whose value is not the default.
    pub(super) fn first_set_in(&self, path: &str) -> Option<String> {
        let inside = format!("{path}.");
        let mut set = self.set.iter().filter(|(path, _)| path.starts_with(&inside));
        set.find(|(path, (value, _))| *value != Value::default_of(known(path)) && !value.is_blank())
            .map(|(path, _)| path.clone())
    }

    /// The value of `CENTRIFUGO_VAR_…` or `DUNLIN_VAR_…`, for header fields.
    pub(super) fn placeholder(&self, variable: &str) -> Option<&str> {
        self.placeholders.get(variable).map(String::as_str)
    }

    pub(super) fn set_placeholder(&mut self, variable: &str, value: &str) {
        self.placeholders.insert(variable.to_owned(), value.to_owned());
    }

    /// The number of tables in the list at `path`.
    pub(super) fn len(&self, path: &str) -> usize {
        self.lists.get(path).map_or(0, |(len, _)| *len)
    }

    /// Warns of keys without effect, and refuses keys that must not be ignored.
    pub(super) fn judge_support(&self, problems: &mut Problems) {
        self.judge(keys::root(), "", problems);
    }

    fn set_table(
        &mut self,
        groups: Groups,
        prefix: &str,
        entries: &[(String, Tree)],
        source: &SettingSource,
        problems: &mut Problems,
    ) {
        for (name, tree) in entries.iter().filter(|(name, _)| !is_comment(name)) {
            let path = join(prefix, name);
            match keys::find(groups, name) {
                Some(key) => self.set_one(key, &path, tree, source, problems),
                None => problems.error(source, &path, nearest::unknown_key(&path, problems.is_full())),
            }
        }
    }

    fn set_one(&mut self, key: &'static Key, path: &str, tree: &Tree, source: &SettingSource, problems: &mut Problems) {
        match (key.kind, tree) {
            // An empty entry of a YAML file.
            (_, Tree::Null) => {}
            (ValueKind::Table(groups), Tree::Table(entries)) => self.set_table(groups, path, entries, source, problems),
            (ValueKind::Table(_), other) => {
                problems.error(source, path, format!("is {}; write a table of settings", other.describe()));
            }
            (ValueKind::Tables(groups), Tree::List(items)) => {
                self.set_tables(groups, path, items, source, problems);
            }
            (ValueKind::Tables(_), other) => {
                problems.error(source, path, format!("is {}; write a list of tables", other.describe()));
            }
            _ => match Value::read(key, tree) {
                Ok(value) => {
                    judge_placeholder(key, path, &value, source, problems);
                    self.set.insert(path.to_owned(), (value, source.clone()));
                }
                Err(text) => problems.error(source, path, text),
            },
        }
    }

    /// Replaces the list of the lower layers.
    fn set_tables(
        &mut self,
        groups: Groups,
        path: &str,
        items: &[Tree],
        source: &SettingSource,
        problems: &mut Problems,
    ) {
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

    /// Adds an otherwise empty table for each name that is not in the list.
    fn add_tables(&mut self, path: &str, names: &str, source: &SettingSource) {
        for name in names.split_ascii_whitespace() {
            let len = self.len(path);
            if (0..len).any(|index| self.text(&format!("{path}[{index}].name")) == Some(name)) {
                continue;
            }
            self.lists.insert(path.to_owned(), (len + 1, source.clone()));
            self.set.insert(format!("{path}[{len}].name"), (Value::Text(name.to_owned()), source.clone()));
        }
    }

    fn judge(&self, groups: Groups, prefix: &str, problems: &mut Problems) {
        for key in keys::names(groups) {
            let path = join(prefix, key.name);
            match (key.support, key.kind) {
                (Support::Yes | Support::Own, ValueKind::Table(inner)) => self.judge(inner, &path, problems),
                (Support::Yes | Support::Own, ValueKind::Tables(inner)) => {
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
                        let text = redis::refusal(&path, self).unwrap_or_else(|| {
                            format!("is not supported yet, and ignoring it would not be safe: {why}. {}", remedy(key))
                        });
                        problems.error(&source, &path, text);
                    }
                }
                (Support::Yes | Support::Own | Support::Needless(_) | Support::Inherited, _) => {}
            }
        }
    }

    /// The places where an unsupported key is not at its default, or where a table of such keys is switched on.
    fn where_on(&self, key: &'static Key, path: &str) -> Vec<(SettingSource, String)> {
        match key.kind {
            ValueKind::Table(groups) => {
                self.switched_on_at(groups, path).map(|source| (source, path.to_owned())).into_iter().collect()
            }
            ValueKind::Tables(groups) => (0..self.len(path))
                .filter_map(|index| {
                    let path = format!("{path}[{index}]");
                    self.switched_on_at(groups, &path).map(|source| (source, path))
                })
                .collect(),
            _ => self.differs_at(key, path).map(|source| (source, path.to_owned())).into_iter().collect(),
        }
    }

    /// Whether a table is switched on. If it has a key `enabled`, that decides; otherwise any non-default value in it
    /// does.
    fn switched_on_at(&self, groups: Groups, prefix: &str) -> Option<SettingSource> {
        if let Some(enabled) = keys::find(groups, "enabled") {
            return self.differs_at(enabled, &join(prefix, "enabled"));
        }
        keys::names(groups).find_map(|key| {
            let path = join(prefix, key.name);
            match key.kind {
                ValueKind::Table(inner) => self.switched_on_at(inner, &path),
                _ => self.differs_at(key, &path),
            }
        })
    }

    fn differs_at(&self, key: &'static Key, path: &str) -> Option<SettingSource> {
        let (value, source) = self.set.get(path)?;
        (*value != Value::default_of(key) && !value.is_blank()).then(|| source.clone())
    }
}

/// Refuses a secret with a placeholder that nothing has filled in. A node that took it would have a key that everybody
/// can guess who has seen the template. No generated secret looks like that, so the text is not meant.
fn judge_placeholder(key: &Key, path: &str, value: &Value, source: &SettingSource, problems: &mut Problems) {
    let is_secret = matches!(key.kind, ValueKind::Secret | ValueKind::Url);
    let is_supported = matches!(key.support, Support::Yes | Support::Own);
    if let Value::Text(text) = value
        && is_secret
        && is_supported
        && has_placeholder(text)
    {
        let variable = super::variable_of(path);
        let remedy = variable.map_or_else(
            || "write the value itself, or have the placeholder filled in before Dunlin reads the file".to_owned(),
            |variable| format!("set the environment variable {variable} or {variable}_FILE instead"),
        );
        // The text is not quoted, because it may be a secret after all.
        problems.error(
            source,
            path,
            format!("contains a placeholder such as ${{NAME}}, which Dunlin does not fill in: {remedy}"),
        );
    }
}

/// Whether an entry of a file is a comment, as JSON has no other.
pub(super) fn is_comment(name: &str) -> bool {
    name.starts_with('_') || name.starts_with("//")
}

/// The message about a file with keys of Centrifugo v5. One line, because every other message would follow from it.
fn former_version(former: &[&str]) -> String {
    let shown = former.iter().take(3).map(|name| format!("`{}`", shortened(name))).collect::<Vec<_>>().join(", ");
    let more = if former.len() > 3 { ", …" } else { "" };
    format!(
        "has keys of Centrifugo 5 ({shown}{more}), and Dunlin reads those of Centrifugo 6: convert it with \
         `dunlin migrate-config FILE --output NEW_FILE`"
    )
}

/// The key at a path in this crate's code.
fn known(path: &str) -> &'static Key {
    keys::at(path).unwrap_or_else(|| unreachable!("{path} is in the table of keys"))
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

fn remedy(key: &Key) -> String {
    match key.kind {
        ValueKind::Table(groups) if keys::find(groups, "enabled").is_some() => "Set its `enabled` to false".to_owned(),
        ValueKind::Tables(_) => "Remove it".to_owned(),
        _ if key.default.is_empty() => "Remove it".to_owned(),
        _ => format!("Remove it, or set it to {}", key.default),
    }
}
