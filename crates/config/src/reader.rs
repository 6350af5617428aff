//! Reads typed settings by path.

use std::{collections::BTreeSet, path::PathBuf};

use dunlin_games::Registry;
use dunlin_token::{Secret, SecretUrl};

use super::{problem::Problems, settings::Settings, value::Value};

/// The settings, and the problems found so far.
pub(super) struct Reader<'a> {
    pub(super) settings: &'a Settings,
    pub(super) problems: &'a mut Problems,
    /// The known simulations.
    pub(super) registry: &'a Registry,
    /// The keys that were read, without list indices.
    pub(super) read: BTreeSet<String>,
}

/// The type that each method requires must match the table of keys. A mismatch is a bug in this crate, which the first
/// test that loads a configuration finds.
impl Reader<'_> {
    pub(super) fn error(&mut self, path: &str, text: impl Into<String>) {
        self.problems.error(&self.settings.source(path), path, text);
    }

    pub(super) fn warning(&mut self, path: &str, text: impl Into<String>) {
        self.problems.warning(&self.settings.source(path), path, text);
    }

    fn value(&mut self, path: &str) -> Value {
        self.read.insert(super::nearest::without_indices(path));
        self.settings.value(path)
    }

    pub(super) fn bool(&mut self, path: &str) -> bool {
        match self.value(path) {
            Value::Bool(value) => value,
            other => unreachable!("{path} is {other:?}"),
        }
    }

    pub(super) fn int(&mut self, path: &str) -> i64 {
        match self.value(path) {
            Value::Int(value) => value,
            other => unreachable!("{path} is {other:?}"),
        }
    }

    /// A number whose bounds in the table of keys fit its type.
    pub(super) fn narrow<N: TryFrom<i64>>(&mut self, path: &str) -> N {
        N::try_from(self.int(path)).unwrap_or_else(|_| unreachable!("the bounds of {path} fit its type"))
    }

    pub(super) fn count(&mut self, path: &str) -> usize {
        self.narrow(path)
    }

    /// A duration in milliseconds; 0 for off.
    pub(super) fn ms(&mut self, path: &str) -> u64 {
        match self.value(path) {
            Value::Millis(ms) => u64::try_from(ms).unwrap_or(0),
            other => unreachable!("{path} is {other:?}"),
        }
    }

    pub(super) fn ms_above_zero(&mut self, path: &str) -> u64 {
        let ms = self.ms(path);
        if ms == 0 {
            self.error(path, "must not be zero: set a duration such as \"5s\"");
        }
        ms
    }

    pub(super) fn text(&mut self, path: &str) -> String {
        match self.value(path) {
            Value::Text(text) => text,
            other => unreachable!("{path} is {other:?}"),
        }
    }

    pub(super) fn texts(&mut self, path: &str) -> Vec<String> {
        match self.value(path) {
            Value::Texts(texts) => texts,
            other => unreachable!("{path} is {other:?}"),
        }
    }

    /// Any value; `null` if it is not set.
    pub(super) fn json(&mut self, path: &str) -> serde_json::Value {
        match self.value(path) {
            Value::Any { blank: true, .. } => serde_json::Value::Null,
            Value::Any { json, .. } => json,
            other => unreachable!("{path} is {other:?}"),
        }
    }

    pub(super) fn secret(&mut self, path: &str) -> Option<Secret> {
        Secret::new(self.text(path))
    }

    /// `None` if it is empty.
    pub(super) fn url(&mut self, path: &str) -> Option<SecretUrl> {
        Some(self.text(path)).filter(|text| !text.is_empty()).map(SecretUrl::new)
    }

    pub(super) fn path(&mut self, path: &str) -> Option<PathBuf> {
        Some(self.text(path)).filter(|text| !text.is_empty()).map(PathBuf::from)
    }

    /// The path of an endpoint if its switch equals `on`.
    pub(super) fn prefix_if(&mut self, switch: &str, on: bool, path: &str) -> Option<String> {
        let prefix = self.text(path);
        (self.bool(switch) == on).then(|| self.checked_prefix(path, prefix))
    }

    /// The path of an endpoint.
    pub(super) fn prefix(&mut self, path: &str) -> String {
        let prefix = self.text(path);
        self.checked_prefix(path, prefix)
    }

    fn checked_prefix(&mut self, path: &str, prefix: String) -> String {
        let plain = |b: u8| b.is_ascii_graphic() && !matches!(b, b'?' | b'#' | b'%' | b'"' | b'\\');
        let ends_well = prefix == "/" || !prefix.ends_with('/');
        if !(prefix.starts_with('/') && ends_well && prefix.bytes().all(plain)) {
            self.error(path, format!("{prefix:?} is not a valid path: write one such as \"/connection/websocket\""));
        }
        prefix
    }
}
