//! What becomes of each key, the word of the tables around it included: for `docs/compatibility.md`.

use super::keys::{self, Groups, Kind, Support};

/// What becomes of a key that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// What Centrifugo does.
    Holds,
    /// It is Dunlin's own.
    Own,
    /// Nothing, and nothing is missing, for this reason.
    Needless(&'static str),
    /// It is ignored with a warning, for this reason.
    Ignored(&'static str),
    /// The node does not start, for this reason.
    Refused(&'static str),
}

/// A key that is no table.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// Its path; `[]` stands behind the name of a list.
    pub path: String,
    /// What becomes of it.
    pub holding: Holding,
}

/// All keys that are no tables, in the order of the table of keys.
pub fn leaves() -> Vec<Leaf> {
    let mut leaves = Vec::new();
    collect(keys::ROOT, "", Holding::Holds, &mut leaves);
    leaves
}

fn collect(groups: Groups, prefix: &str, around: Holding, leaves: &mut Vec<Leaf>) {
    for key in keys::names(groups) {
        let path = if prefix.is_empty() { key.name.to_owned() } else { format!("{prefix}.{}", key.name) };
        let holding = match (around, key.support) {
            // A table that is judged as a whole is judged with all that is in it.
            (Holding::Needless(_) | Holding::Ignored(_) | Holding::Refused(_), _) | (_, Support::Inherited) => around,
            (_, Support::Yes) => Holding::Holds,
            (_, Support::Own) => Holding::Own,
            (_, Support::Needless(why)) => Holding::Needless(why),
            (_, Support::Warned(why)) => Holding::Ignored(why),
            (_, Support::Refused(why)) => Holding::Refused(why),
        };
        match key.kind {
            Kind::Table(inner) => collect(inner, &path, holding, leaves),
            Kind::Tables(inner) => collect(inner, &format!("{path}[]"), holding, leaves),
            _ => leaves.push(Leaf { path, holding }),
        }
    }
}
