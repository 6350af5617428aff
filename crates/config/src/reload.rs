//! Compares a reloaded configuration with the running one: which settings change at once, and which need a restart.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write},
};

use dunlin_engine::{
    backend::ProxyIndex,
    log::PublicationLog,
    options::{HeldNamespace, NamespaceOptions, Options},
};
use dunlin_token::{Secret, TokenOptions};
use serde::Serialize;

use super::{
    AdmissionOptions, Config, HttpApiOptions, HttpServerOptions, LogOptions, NetOptions,
    keys::{self, Support},
    problem::Problem,
    redacted_settings::ShownSetting,
    settings::Settings,
    value::Value,
};

/// When a changed key is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applies {
    /// At a reload.
    Live,
    /// At the next start.
    Restart,
}

/// Keys and tables that a reload applies. `[]` follows the name of a list. A test compares this list with the effect of
/// [`Config::succeeded_by`].
const LIVE: &[&str] = &[
    "admin.insecure",
    "admin.password",
    "admin.read_only_password",
    "admin.secret",
    "admin.sign_in_lifetime",
    "admin.sign_in_limit",
    "channel.history_disk_limit",
    "channel.history_memory_limit",
    "channel.cache_size_limit",
    "channel.history_meta_ttl",
    "channel.idempotency_keys_limit",
    "channel.max_channels",
    "channel.max_channels_per_address",
    "channel.max_channels_per_session",
    "channel.max_channels_per_user",
    "channel.max_length",
    "channel.namespaces[]",
    "channel.publication_data_format",
    "channel.tags_filter_max_depth",
    "channel.tags_filter_max_nodes",
    "channel.tags_filter_max_size",
    "channel.tags_filters_limit",
    "channel.without_namespace",
    "client.allow_anonymous_connect_without_token",
    "client.allowed_origins",
    "client.channel_limit",
    "client.close_timeout",
    "client.command_rate_limit",
    "client.commands_per_frame_limit",
    "client.connect_code_to_unidirectional_disconnect",
    "client.connect_include_server_time",
    "client.connect_rate_limit",
    "client.connection_limit",
    "client.connection_rate_limit",
    "client.disallow_anonymous_connection_tokens",
    "client.expired_close_delay",
    "client.expired_sub_close_delay",
    "client.history_max_publication_limit",
    "client.history_reply_size_limit",
    "client.insecure",
    "client.json_depth_limit",
    "client.object_keys_limit",
    "client.presence_reply_size_limit",
    "client.queue_max_frames",
    "client.queue_max_size",
    "client.recovery_max_publication_limit",
    "client.recovery_rate_limit",
    "client.stale_close_delay",
    "client.subscribe_to_user_personal_channel",
    "client.subscription_token",
    "client.token",
    "client.user_connection_limit",
    "http_api.batch_commands_limit",
    "http_api.broadcast_channels_limit",
    "http_api.error_mode",
    "http_api.insecure",
    "http_api.key",
    "http_api.previous_key",
    "http_api.request_size_limit",
    "http_api.timeout",
    "http_server.tls.cert_pem",
    "http_server.tls.client_ca_pem",
    "http_server.tls.key_pem",
    "log.level",
    "log.library_level",
    "net.memory_limit",
    "room.address_open_rate_limit",
    "room.max_rooms",
    "room.open_rate_limit",
    "room.opening_limit",
    "room.session_open_rate_limit",
    "shutdown",
    "uni_websocket.disable_closing_handshake",
    "uni_websocket.disable_disconnect_push",
];

/// Exceptions in the tables of [`LIVE`].
const RESTART: &[&str] = &[
    "channel.namespaces[].conflation_key",
    "channel.namespaces[].delivery",
    "channel.namespaces[].durability",
    "channel.namespaces[].room",
    "channel.without_namespace.conflation_key",
    "channel.without_namespace.delivery",
    "channel.without_namespace.durability",
    "channel.without_namespace.room",
];

/// When a change of the key at `path` is applied; list indices and names are ignored.
pub fn applies(path: &str) -> Applies {
    let path = without_names(path);
    let is_in = |list: &[&str]| {
        list.iter().any(|key| path.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
    };
    if is_in(LIVE) && !is_in(RESTART) { Applies::Live } else { Applies::Restart }
}

/// Turns `a[b].c` into `a[].c`.
pub(super) fn without_names(path: &str) -> String {
    let mut plain = String::with_capacity(path.len());
    let mut depth = 0_u32;
    for c in path.chars() {
        depth = if c == ']' { depth.saturating_sub(1) } else { depth };
        if depth == 0 {
            plain.push(c);
        }
        depth += u32::from(c == '[');
    }
    plain
}

/// The settings that are not at their defaults, by path. Tables in lists are identified by their names.
#[derive(Clone, Default, PartialEq)]
pub struct Values(BTreeMap<String, Value>);

/// A changed key that waits for a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NeedsRestart {
    /// The key.
    pub key: String,
    /// The reason, if it does not follow from the key.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub why: &'static str,
}

/// The changes of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    /// Keys with new values.
    pub changed: Vec<String>,
    /// Keys whose new values apply after a restart.
    pub needs_restart: Vec<NeedsRestart>,
}

/// A configuration with the values that were set.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The options.
    pub config: Config,
    /// The warnings.
    pub warnings: Vec<Problem>,
    /// The values that were set.
    pub values: Values,
    /// Environment variables that Kubernetes sets for services, and that were ignored.
    pub service_variables: Vec<String>,
    /// Whether the file, if there is one, sets at least one key.
    pub has_document_settings: bool,
}

/// The keys that verify tokens, in both tables of tokens.
const TOKEN_KEYS: [&str; 4] = ["hmac_secret_key", "rsa_public_key", "ecdsa_public_key", "jwks_public_endpoint"];

/// Maximum number of namespaces that a message names.
const NAMED_MAX: usize = 5;

impl Values {
    /// All values that are set in `settings`.
    pub(super) fn of(settings: &Settings) -> Self {
        let mut values = Self::default();
        for (path, value) in settings.all() {
            let Some(key) = keys::at(path) else { continue };
            if !matches!(key.support, Support::Yes | Support::Own) || *value == Value::default_of(key) {
                continue;
            }
            match label(settings, path) {
                Label::Key(label) => drop(values.0.insert(label, value.clone())),
                // A list whose tables have no names is treated as one value.
                Label::InList(label) => {
                    let list_value = values.0.entry(label).or_insert_with(|| Value::Text(String::new()));
                    if let Value::Text(text) = list_value {
                        let _ = write!(text, "{path}={};", value.to_json());
                    }
                }
            }
        }
        values
    }

    /// Takes over those options of `wanted` that can change at run time, except options of the `held` namespaces.
    /// Returns the differences.
    pub fn take_over(&mut self, wanted: &Self, held: &[HeldNamespace]) -> Changes {
        let mut changes = Changes::default();
        let mut paths: Vec<String> = self.0.keys().chain(wanted.0.keys()).cloned().collect();
        paths.sort();
        paths.dedup();
        let is_new = |values: &Self, path: &str| table_of(path).is_some_and(|table| !values.has_table(table));
        let before = self.clone();
        for path in paths.iter().filter(|path| before.0.get(*path) != wanted.0.get(*path)) {
            let (comes, goes) = (is_new(&before, path), is_new(wanted, path));
            let held = held.iter().find(|held| is_of(path, &held.name));
            // A table that is added or removed is reported as a whole.
            let key = table_of(path).filter(|_| comes || goes).unwrap_or(path);
            let is_live = match applies(key) {
                Applies::Live => held.is_none(),
                Applies::Restart => false,
            };
            if is_live {
                match wanted.0.get(path) {
                    Some(value) => drop(self.0.insert(path.clone(), value.clone())),
                    None => drop(self.0.remove(path)),
                }
                if !changes.changed.iter().any(|known| known == key) {
                    changes.changed.push(key.to_owned());
                }
            } else if !changes.needs_restart.iter().any(|known| known.key == key) {
                let why = held.map_or("", |held| held.why);
                changes.needs_restart.push(NeedsRestart { key: key.to_owned(), why });
            }
        }
        changes
    }

    /// What a reload of `wanted` would take away as a whole: all namespaces, all keys of one kind, the storage. Such a
    /// file is more often a wrong or unfinished one than intended.
    pub fn losses(&self, wanted: &Self) -> Vec<String> {
        let mut losses = Vec::new();
        let (running, kept) = (self.namespaces(), wanted.namespaces());
        if !running.is_empty() && running.is_disjoint(&kept) {
            let named: Vec<&str> = running.iter().take(NAMED_MAX).copied().collect();
            let more = if running.len() > NAMED_MAX { ", …" } else { "" };
            losses.push(format!(
                "channel.namespaces: every namespace of the node ({}{more}) would be removed: its subscriptions would end, \
                 and histories in memory would be deleted",
                named.join(", ")
            ));
        }
        let is_lost = |keys: &[String]| {
            let has_one = |values: &Self| keys.iter().any(|key| values.0.contains_key(key));
            has_one(self) && !has_one(wanted)
        };
        if is_lost(&["http_api.key".to_owned()]) {
            losses.push("http_api.key: the server API would lose its only key".to_owned());
        }
        for table in ["client.token", "client.subscription_token"] {
            if is_lost(&TOKEN_KEYS.map(|key| format!("{table}.{key}"))) {
                losses.push(format!("{table}: every key that verifies tokens would be removed"));
            }
        }
        if is_lost(&["admin.password".to_owned(), "admin.read_only_password".to_owned()]) {
            losses.push("admin.password: every password of the console would be removed".to_owned());
        }
        if is_lost(&["storage.path".to_owned()]) {
            losses.push("storage.path: the storage would be removed at the next start".to_owned());
        }
        losses
    }

    /// The settings as people may see them.
    pub fn shown(&self) -> Vec<ShownSetting> {
        self.0.iter().map(|(path, value)| ShownSetting::new(path, value)).collect()
    }

    /// The names of the namespaces.
    fn namespaces(&self) -> BTreeSet<&str> {
        let tables = self.0.keys().filter_map(|path| path.strip_prefix("channel.namespaces["));
        tables.filter_map(|path| path.split_once("].").map(|(name, _)| name)).collect()
    }

    fn has_table(&self, table: &str) -> bool {
        let mut from = self.0.range(table.to_owned()..);
        from.next().is_some_and(|(path, _)| path.starts_with(table))
    }
}

/// The list entry that contains a path: `channel.namespaces[chat]`.
fn table_of(path: &str) -> Option<&str> {
    path.find(']').and_then(|end| path.get(..=end))
}

fn is_of(path: &str, namespace: &str) -> bool {
    if namespace.is_empty() {
        path.starts_with("channel.without_namespace.")
    } else {
        table_of(path) == Some(&format!("channel.namespaces[{namespace}]"))
    }
}

enum Label {
    Key(String),
    InList(String),
}

/// Replaces list indices in a path by the names of the tables, if they have names.
fn label(settings: &Settings, path: &str) -> Label {
    let (mut label, mut prefix) = (String::new(), String::new());
    for (place, part) in path.split('.').enumerate() {
        if place > 0 {
            label.push('.');
            prefix.push('.');
        }
        prefix.push_str(part);
        let Some((list, _)) = part.split_once('[') else {
            label.push_str(part);
            continue;
        };
        label.push_str(list);
        match settings.text(&format!("{prefix}.name")) {
            Some(name) => {
                let _ = write!(label, "[{name}]");
            }
            None => return Label::InList(label),
        }
    }
    Label::Key(label)
}

impl Config {
    /// The configuration after a reload of `wanted`: options that can change at run time have the new values, the
    /// others the old ones. Also returns the namespaces that keep their old options.
    pub fn succeeded_by(&self, wanted: &Self) -> (Self, Vec<HeldNamespace>) {
        let (engine, held) = self.engine_succeeded_by(wanted);
        let next = Self {
            engine: engine.into(),
            net: NetOptions {
                connections_max: wanted.net.connections_max,
                memory_bytes_max: wanted.net.memory_bytes_max,
                ..self.net.clone()
            },
            admission: AdmissionOptions {
                handshakes_per_second: wanted.admission.handshakes_per_second,
                ..self.admission.clone()
            },
            http_server: HttpServerOptions {
                tls: self
                    .http_server
                    .tls
                    .as_ref()
                    .and(wanted.http_server.tls.as_ref())
                    .or(self.http_server.tls.as_ref())
                    .cloned(),
                ..self.http_server.clone()
            },
            allowed_origins: wanted.allowed_origins.clone(),
            http_api: HttpApiOptions {
                handler_prefix: self.http_api.handler_prefix.clone(),
                external: self.http_api.external,
                requests_max: self.http_api.requests_max,
                ..wanted.http_api.clone()
            },
            token: TokenOptions {
                waiting_max: self.token.waiting_max,
                cache_bytes_max: self.token.cache_bytes_max,
                ..wanted.token.clone()
            },
            log: LogOptions { level: wanted.log.level, library_level: wanted.log.library_level, ..self.log.clone() },
            shutdown: wanted.shutdown,
            admin: self.admin.as_ref().map(|running| running.succeeded_by(wanted.admin.as_ref())),
            ..self.clone()
        };
        (next, held)
    }

    fn engine_succeeded_by(&self, wanted: &Self) -> (Options, Vec<HeldNamespace>) {
        let mut engine = (*wanted.engine).clone();
        let mut unmet = Vec::new();
        let mut translate = |namespace: &mut NamespaceOptions| {
            if self.translate_proxies(wanted, namespace).is_err() {
                let why = "it uses a backend that was not configured at start";
                unmet.push(HeldNamespace { name: namespace.name.clone(), why });
            } else if namespace.log != PublicationLog::Memory && self.storage.is_none() {
                let why = "it needs `storage.path`, which was not configured at start";
                unmet.push(HeldNamespace { name: namespace.name.clone(), why });
            }
        };
        translate(&mut engine.without_namespace);
        engine.namespaces.iter_mut().for_each(&mut translate);
        // Without its backend, a namespace would permit what the backend should decide. So it keeps its old options, or
        // is not added.
        for HeldNamespace { name, .. } in &unmet {
            let running = self.engine.namespaces.iter().find(|running| running.name == *name && !running.is_retired);
            match (name.is_empty(), running) {
                (true, _) => engine.without_namespace = self.engine.without_namespace.clone(),
                (false, Some(running)) => {
                    let held = engine.namespaces.iter_mut().find(|namespace| namespace.name == *name);
                    if let Some(held) = held {
                        *held = running.clone();
                    }
                }
                (false, None) => engine.namespaces.retain(|namespace| namespace.name != *name),
            }
        }
        let (next, mut held) = self.engine.succeeded_by(&engine);
        held.extend(unmet);
        (next, held)
    }

    /// Backends have the indices of the configuration at the start.
    fn translate_proxies(&self, wanted: &Self, namespace: &mut NamespaceOptions) -> Result<(), ()> {
        let proxies = [&mut namespace.subscribe_proxy, &mut namespace.publish_proxy, &mut namespace.sub_refresh_proxy];
        for proxy in proxies.into_iter().flatten() {
            let label = wanted.backends.get(usize::from(proxy.0)).map(|backend| backend.label.as_str());
            let place = self.backends.iter().position(|backend| Some(backend.label.as_str()) == label).ok_or(())?;
            *proxy = ProxyIndex(u16::try_from(place).map_err(drop)?);
        }
        Ok(())
    }
}

impl Loaded {
    /// The keys of the server API, the current one first.
    pub fn api_keys(&self) -> Vec<Secret> {
        let key = |path: &str| match self.values.0.get(path) {
            Some(Value::Text(text)) => Secret::new(text.clone()),
            _ => None,
        };
        ["http_api.key", "http_api.previous_key"].into_iter().filter_map(key).collect()
    }
}

impl Changes {
    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.needs_restart.is_empty()
    }

    /// Whether a key in one of these tables has changed.
    pub fn has_changed(&self, tables: &[&str]) -> bool {
        self.changed.iter().any(|key| tables.iter().any(|table| key.starts_with(table)))
    }
}

impl fmt::Display for NeedsRestart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why {
            "" => f.write_str(&self.key),
            why => write!(f, "{} ({why})", self.key),
        }
    }
}

/// Omits the values, because some are secrets.
impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests;
