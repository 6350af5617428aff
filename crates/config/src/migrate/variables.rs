//! Environment variables of Centrifugo, for a conversion.

use super::{
    super::{
        input::{FORMER_PREFIX, PREFIX, setting_of},
        tree::Tree,
        variables::{PLACEHOLDERS, variables_of_keys},
    },
    Entry, Fate, Migration, ROWS,
};

impl Migration {
    /// The entries of the file with those of the variables. A variable overrides the key of the file.
    pub(super) fn with_variables(&mut self, file: Vec<(String, Tree)>, variables: &[(String, String)]) -> Vec<Entry> {
        let of_keys = variables_of_keys();
        let mut entries: Vec<_> =
            file.into_iter().map(|(name, tree)| Entry { label: name.clone(), name, tree }).collect();
        for (variable, value) in variables {
            let Some(set) = setting_of(variable, FORMER_PREFIX).filter(|_| !value.is_empty()) else { continue };
            if PLACEHOLDERS.iter().any(|prefix| variable.starts_with(prefix)) {
                self.tell(variable, Fate::Needless("it stays a variable, for header fields".to_owned()));
                continue;
            }
            let former = set.to_ascii_lowercase();
            let current = of_keys.iter().find(|(known, _)| known.strip_prefix(PREFIX) == Some(set));
            let name = match current {
                Some((_, path)) => path.clone(),
                None if ROWS.has(&former) => former,
                None => {
                    self.tell(variable, Fate::Needless(super::unknown(&former)));
                    continue;
                }
            };
            let sets_the_same = |entry: &Entry| entry.name == name || super::successor(&entry.name) == Some(&name);
            if let Some(at) = entries.iter().position(sets_the_same) {
                let entry = entries.remove(at);
                self.tell(&entry.label, Fate::Needless(format!("{variable} overrides it")));
            }
            entries.push(Entry { label: variable.clone(), name, tree: Tree::Text(value.clone()) });
        }
        entries
    }
}
