//! What became of the keys of Centrifugo v5: `schema/migration.json`.

use std::{collections::BTreeMap, sync::LazyLock};

use serde::Deserialize;

/// What became of each key of v5. Paths are those of v6.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rows {
    /// Keys at the top, and their paths.
    pub(super) keys: BTreeMap<String, String>,
    /// Keys of a namespace.
    pub(super) namespace_keys: BTreeMap<String, String>,
    /// Keys of a namespace of RPCs.
    pub(super) rpc_namespace_keys: BTreeMap<String, String>,
    /// Keys of a named backend.
    pub(super) proxy_keys: BTreeMap<String, String>,
    /// Keys at the top that apply to every backend, and their paths in the table of a backend.
    pub(super) common_proxy_keys: BTreeMap<String, String>,
    /// Keys at the top that name a backend, and the table that has its keys in v6.
    pub(super) used_proxies: BTreeMap<String, String>,
    /// Keys without a successor that need none, and why.
    pub(super) needless: BTreeMap<String, String>,
    /// Keys without a successor, and what a person has to decide.
    pub(super) decisions: BTreeMap<String, String>,
    /// Tables of Centrifugo PRO, which v6 has under the same name: they do not show the version.
    pub(super) pro: BTreeMap<String, String>,
}

/// The rows of the schema.
pub(super) static ROWS: LazyLock<Rows> = LazyLock::new(|| {
    let read = serde_json::from_str(include_str!("../../../../schema/migration.json"));
    read.unwrap_or_else(|error| unreachable!("schema/migration.json is valid: {error}"))
});

impl Rows {
    /// Whether v5 has the key at the top, or a version before it.
    pub(super) fn has(&self, name: &str) -> bool {
        self.has_former(name) || self.pro.contains_key(name)
    }

    /// Whether such a key is none of v6.
    pub(super) fn has_former(&self, name: &str) -> bool {
        [&self.keys, &self.common_proxy_keys, &self.used_proxies, &self.needless, &self.decisions]
            .iter()
            .any(|rows| rows.contains_key(name))
    }

    /// The key of v5 that is most similar to an unknown one.
    pub(super) fn nearest(&self, name: &str) -> Option<&str> {
        let likeness = |known: &&String| strsim::normalized_damerau_levenshtein(known, name);
        let nearest = self.keys.keys().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
        (name.len() <= 128 && likeness(&nearest) >= 0.8).then_some(nearest)
    }
}
