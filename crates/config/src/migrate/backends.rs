//! Backends of v5: one address for each event and keys for all of them, or, with `granular_proxy_mode`, named ones.

use super::{super::tree::Tree, Entry, Fate, Migration, ROWS, is_on};

const NOT_GRANULAR: &str = "`granular_proxy_mode` was off, so it had no effect";
const GRANULAR: &str = "`granular_proxy_mode` was on, so it had no effect";

/// The keys at the top that concern backends.
pub(super) struct Named {
    /// `granular_proxy_mode`.
    is_granular: bool,
    /// The keys for all backends: label, path in the table of a backend, value.
    common: Vec<(String, &'static str, Tree)>,
    /// Keys that name a backend: label, table, name.
    used: Vec<(String, &'static str, Tree)>,
    /// Whether RPCs go to a backend.
    has_rpc: bool,
}

impl Named {
    pub(super) fn of(entries: &[Entry]) -> Self {
        let is_set = |name: &str| entries.iter().any(|entry| entry.name == name && !entry.tree.is_blank());
        let is_granular = entries.iter().any(|entry| entry.name == "granular_proxy_mode" && is_on(&entry.tree));
        let of_rows = |rows: &'static super::Names| {
            let found = |entry: &Entry| {
                let path = rows.get(&entry.name)?;
                Some((entry.label.clone(), path.as_str(), entry.tree.clone()))
            };
            entries.iter().filter_map(found).collect::<Vec<_>>()
        };
        Self {
            is_granular,
            common: of_rows(&ROWS.common_proxy_keys),
            used: of_rows(&ROWS.used_proxies),
            has_rpc: if is_granular { is_set("rpc_proxy_name") } else { is_set("proxy_rpc_endpoint") },
        }
    }

    /// Why v5 ignored a key about backends.
    pub(super) fn overrides(&self, name: &str) -> Option<&'static str> {
        let is_of_event = name.starts_with("proxy_") && (name.ends_with("_endpoint") || name.ends_with("_timeout"));
        let is_flat = is_of_event || ROWS.common_proxy_keys.contains_key(name);
        match self.is_granular {
            true if is_flat => Some(GRANULAR),
            false if ROWS.used_proxies.contains_key(name) || name == "rpc_proxy_name" => Some(NOT_GRANULAR),
            _ => None,
        }
    }

    /// Without `granular_proxy_mode`, v5 has one backend for each event. There too, a name switches it on: v5 asks the
    /// backend, or refuses. So the name goes, and the switch stays.
    pub(super) fn drop_names(&self, table: &mut Tree, label: &str, told: &mut Vec<(String, Fate)>) {
        let Tree::Table(entries) = table else { return };
        let is_name = |(key, value): &mut (String, Tree)| key.ends_with("_proxy_name") && !value.is_blank();
        let names: Vec<_> = if self.is_granular { Vec::new() } else { entries.extract_if(.., is_name).collect() };
        for (name, _) in names {
            let switch = name.replace("_proxy_name", "_proxy_enabled");
            // The name counts in v5, whatever the switch says.
            table.set(&switch, Tree::Bool(true));
            told.push((format!("{label}.{name}"), Fate::Renamed(format!("{label}.{switch}"))));
        }
    }

    /// In v5 a name of a backend switches it on; v6 has a switch beside it.
    pub(super) fn switch_on(&self, table: &mut Tree) {
        let Tree::Table(entries) = table else { return };
        let names: Vec<_> = entries
            .iter()
            .filter(|(_, value)| self.is_granular && !value.is_blank())
            .filter_map(|(key, _)| key.strip_suffix("proxy_name"))
            .map(|event| format!("{event}proxy_enabled"))
            .collect();
        for switch in names {
            table.set_absent(&switch, Tree::Bool(true));
        }
    }
}

/// The tables of backends.
pub(super) const TABLES: [&str; 7] = [
    "client.proxy.connect",
    "client.proxy.refresh",
    "channel.proxy.subscribe",
    "channel.proxy.publish",
    "channel.proxy.sub_refresh",
    "channel.proxy.subscribe_stream",
    "rpc.proxy",
];

impl Migration {
    /// Puts the keys for all backends into each of them, and switches on those that v5 calls.
    pub(super) fn use_backends(&mut self, named: &Named) {
        if !self.is_former {
            return;
        }
        if named.is_granular {
            self.copy_named(named);
        } else {
            self.fill_tables(named);
        }
        if named.has_rpc {
            self.out.set_absent("rpc.without_namespace.proxy_enabled", Tree::Bool(true));
            // With named backends, v5 sends only the RPCs of namespaces that name one.
            if !named.is_granular
                && let Some(Tree::List(namespaces)) = self.out.get_mut("rpc.namespaces")
            {
                for namespace in namespaces {
                    namespace.set_absent("proxy_enabled", Tree::Bool(true));
                }
            }
        }
    }

    fn fill_tables(&mut self, named: &Named) {
        let tables: Vec<_> = TABLES.into_iter().filter(|table| self.has_address(table)).collect();
        for (label, key, value) in &named.common {
            let mut placed = Vec::new();
            for table in &tables {
                let path = format!("{table}.{key}");
                if !self.out.has(&path) {
                    self.out.set(&path, super::fitted(&path, value.clone()));
                    placed.push(path);
                }
            }
            let fate = if placed.is_empty() {
                Fate::Needless("no backend is called".to_owned())
            } else {
                Fate::Renamed(placed.join(", "))
            };
            self.tell(label, fate);
        }
    }

    fn has_address(&self, table: &str) -> bool {
        self.out.get(&format!("{table}.endpoint")).is_some_and(|address| !address.is_blank())
    }

    /// v6 has no names for the backends of connections: the table has the keys themselves.
    fn copy_named(&mut self, named: &Named) {
        for (label, table, name) in &named.used {
            let fate = match self.backend(name) {
                _ if name.is_blank() => Fate::Needless(super::EMPTY.to_owned()),
                // The keys of the named one are for its own address: header fields may be secrets.
                _ if self.has_address(table) => {
                    Fate::Needless(format!("{table}.endpoint is set as well, and that one counts"))
                }
                Some(Tree::Table(keys)) => {
                    for (key, value) in keys.into_iter().filter(|(key, _)| key != "name") {
                        self.out.set_absent(&format!("{table}.{key}"), value);
                    }
                    self.out.set_absent(&format!("{table}.enabled"), Tree::Bool(true));
                    Fate::Renamed((*table).to_owned())
                }
                _ => Fate::Decision("`proxies` has no backend of this name".to_owned()),
            };
            self.tell(label, fate);
        }
    }

    fn backend(&self, name: &Tree) -> Option<Tree> {
        let Some(Tree::List(proxies)) = self.out.get("proxies") else { return None };
        proxies.iter().find(|proxy| proxy.get("name") == Some(name)).cloned()
    }
}
