//! Lists how Dunlin treats each key, including inherited treatment of its table, for `docs/compatibility.md`.

pub use super::keys::unsupported::{UnsupportedKey, rows as unsupported};

use super::keys::{self, Groups, Support, ValueKind};

/// How Dunlin treats a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// As Centrifugo does.
    Holds,
    /// The key exists only in Dunlin.
    Own,
    /// The key has no effect and needs none, for this reason.
    Needless(&'static str),
    /// The key is ignored with a warning, for this reason.
    Ignored(&'static str),
    /// The node does not start, for this reason.
    Refused(&'static str),
}

/// A key that is not a table.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// The path; `[]` follows the name of a list.
    pub path: String,
    /// How Dunlin treats it.
    pub holding: Holding,
}

/// All keys that are not tables, in the order of the table of keys.
pub fn leaves() -> Vec<Leaf> {
    let mut leaves = Vec::new();
    collect(keys::root(), "", Holding::Holds, &mut leaves);
    leaves
}

fn collect(groups: Groups, prefix: &str, around: Holding, leaves: &mut Vec<Leaf>) {
    for key in keys::names(groups) {
        let path = if prefix.is_empty() { key.name.to_owned() } else { format!("{prefix}.{}", key.name) };
        let holding = match (around, key.support) {
            // The treatment of a table as a whole applies to all its keys.
            (Holding::Needless(_) | Holding::Ignored(_) | Holding::Refused(_), _)
            // A table that only Dunlin has may share keys with one of Centrifugo.
            | (Holding::Own, Support::Yes)
            | (_, Support::Inherited) => around,
            (_, Support::Yes) => Holding::Holds,
            (_, Support::Own) => Holding::Own,
            (_, Support::Needless(why)) => Holding::Needless(why),
            (_, Support::Warned(why)) => Holding::Ignored(why),
            (_, Support::Refused(why)) => Holding::Refused(why),
        };
        match key.kind {
            ValueKind::Table(inner) => collect(inner, &path, holding, leaves),
            ValueKind::Tables(inner) => collect(inner, &format!("{path}[]"), holding, leaves),
            _ => leaves.push(Leaf { path, holding }),
        }
    }
}
