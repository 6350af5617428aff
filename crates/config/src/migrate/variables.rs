//! Environment variables of Centrifugo, for a conversion.

use super::{
    super::{
        input::{FORMER_PREFIX, PREFIX, setting_of},
        keys::{self, ValueKind},
        tree::Tree,
        variables::{NAMED_LISTS, is_of_kubernetes, variables_of_keys},
    },
    Entry, Fate, Migration, ROWS, is_current,
};

impl Migration {
    /// The entries of the file with those of the variables. A variable overrides the key of the file.
    pub(super) fn with_variables(&mut self, file: Vec<(String, Tree)>, variables: &[(String, String)]) -> Vec<Entry> {
        let of_keys = variables_of_keys();
        let mut entries: Vec<_> =
            file.into_iter().map(|(name, tree)| Entry { label: name.clone(), name, tree }).collect();
        for (variable, value) in variables {
            // Neither version reads those that Kubernetes sets for a service named `centrifugo`.
            let is_meant = !value.is_empty() && !is_of_kubernetes(variable, value);
            let Some(set) = setting_of(variable, FORMER_PREFIX).filter(|_| is_meant) else { continue };
            if super::is_placeholder(variable) {
                self.tell(variable, Fate::Needless("it stays a variable, for header fields".to_owned()));
                continue;
            }
            let former = set.to_ascii_lowercase();
            let current = of_keys.iter().find(|(known, _)| known.strip_prefix(PREFIX) == Some(set));
            if let Some((_, list)) = current
                && adds_tables(list, value)
            {
                let what = format!("it adds tables by their names: keep the variable, or write them into `{list}`");
                self.tell(variable, Fate::Decision(what));
                continue;
            }
            let known = match current {
                Some((_, path)) => Some(path.clone()),
                None if ROWS.has(&former) => Some(former.clone()),
                None => path_in_former_table(&former),
            };
            let Some(name) = known else {
                self.tell(variable, fate_of_unknown(&former));
                continue;
            };
            // A table of v6 and a switch of v5 may have the same name, such as `health`.
            let is_of_v6 = is_current(&name, &Tree::Text(value.clone()));
            let sets_the_same = |entry: &Entry| {
                (entry.name == name && is_current(&entry.name, &entry.tree) == is_of_v6)
                    || super::successor(&entry.name) == Some(&name) && !is_current(&entry.name, &entry.tree)
            };
            if let Some(at) = entries.iter().position(sets_the_same) {
                let entry = entries.remove(at);
                self.tell(&entry.label, Fate::Needless(format!("{variable} overrides it")));
            }
            entries.push(Entry { label: variable.clone(), name, tree: Tree::Text(value.clone()) });
        }
        entries
    }
}

/// Whether a variable has names, which are added to those of the file, and not a list that overrides it.
fn adds_tables(list: &str, value: &str) -> bool {
    matches!(keys::at(list).map(|key| key.kind), Some(ValueKind::Tables(_))) && !value.starts_with(['[', '{'])
}

/// The path of a key in a table of v5: `nats_tls_server_name` is `broker.nats.tls.server_name`.
fn path_in_former_table(former: &str) -> Option<String> {
    let in_table = |(table, path): (&String, &String)| {
        let ValueKind::Table(groups) = keys::at(path)?.kind else { return None };
        let name = former.strip_prefix(table.as_str())?.strip_prefix('_')?;
        super::name_in_table(groups, name).map(|name| format!("{path}.{name}"))
    };
    ROWS.keys.iter().find_map(in_table)
}

fn fate_of_unknown(former: &str) -> Fate {
    let is_in = |list: &str| former.strip_prefix(&list.replace('.', "_")).is_some_and(|rest| rest.starts_with('_'));
    let is_of_table = |table: &String| former.strip_prefix(table.as_str()).is_some_and(|rest| rest.starts_with('_'));
    if ROWS.common_proxy_keys.keys().any(is_of_table) {
        return Fate::Decision("it sets a key in a table of a backend: write it into the file".to_owned());
    }
    match (NAMED_LISTS.iter().find(|list| is_in(list)), ROWS.nearest(former)) {
        (Some(list), _) => Fate::Decision(format!(
            "it sets a key of one table of `{list}`: keep the variable, or write the key into the table"
        )),
        (None, Some(near)) => Fate::Ignored(format!("it sets no key that Dunlin knows; was {near} meant?")),
        (None, None) => Fate::Ignored("it sets no key that Dunlin knows".to_owned()),
    }
}
