//! Environment variables that set keys.

use super::{
    input::{FORMER_PREFIX, PREFIX, setting_of},
    keys::{self, Groups, ValueKind},
    nearest,
    problem::{Problems, SettingSource},
    secret_files,
    settings::Settings,
};

/// The suffix of a variable whose value is the path of a file with the secret.
const FILE_SUFFIX: &str = "_FILE";

/// Variables for header fields: `${CENTRIFUGO_VAR_NAME}` is replaced by the variable's value. They set no key.
pub(super) const PLACEHOLDERS: [&str; 2] = ["CENTRIFUGO_VAR_", "DUNLIN_VAR_"];

/// Lists whose tables have names, so that a variable can set a key of a single table.
pub(super) const NAMED_LISTS: [&str; 4] = ["channel.namespaces", "rpc.namespaces", "proxies", "consumers"];

/// Applies environment variables: first `CENTRIFUGO_`, then `DUNLIN_`. An empty variable sets nothing, and neither does
/// one that Kubernetes sets for a service.
pub(super) fn set(variables: &[(String, String)], settings: &mut Settings, problems: &mut Problems) {
    let (of_services, variables): (Vec<_>, Vec<_>) =
        variables.iter().partition(|(name, value)| is_of_kubernetes(name, value));
    settings.of_services = of_services.into_iter().map(|(name, _)| name.clone()).collect();
    for (name, value) in &variables {
        if PLACEHOLDERS.iter().any(|prefix| name.starts_with(prefix)) {
            settings.set_placeholder(name, value);
        }
    }
    let of_keys = variables_of_keys();
    let path_of = |set: &str| of_keys.iter().find(|(known, _)| known.strip_prefix(PREFIX) == Some(set));
    let mut rest = Vec::new();
    // Complete lists first, because other variables set keys of their tables.
    for prefix in [FORMER_PREFIX, PREFIX] {
        for (name, value) in variables.iter().filter(|(_, value)| !value.is_empty()) {
            let Some(set) = setting_of(name, prefix) else { continue };
            match path_of(set) {
                Some((_, path)) => settings.set_text(path, value, &SettingSource::Variable(name.clone()), problems),
                None => rest.push((name, set, value)),
            }
        }
    }
    if rest.is_empty() {
        return;
    }
    let tables = NamedTables::of(settings);
    for (name, set, value) in rest {
        let source = SettingSource::Variable(name.clone());
        let path_of = |set: &str| path_of(set).map(|(_, path)| path.clone()).or_else(|| tables.path_of(set));
        let of_file = || path_of(set.strip_suffix(FILE_SUFFIX)?);
        if let Some(path) = path_of(set) {
            settings.set_text(&path, value, &source, problems);
        } else if PLACEHOLDERS.iter().any(|prefix| name.starts_with(prefix)) {
            // It was read above.
        } else if !name.starts_with(PREFIX) {
            // A pod has variables of other programs and versions, so this is not an error.
            let former = super::migrate::variables_of(&set.to_ascii_lowercase());
            problems.warning(
                &source,
                "",
                match former {
                    Some((variable, None)) => format!("is ignored: it is of Centrifugo 5; set {variable} instead"),
                    Some((variable, Some(switch))) => {
                        format!("is ignored: it is of Centrifugo 5; set {variable} and {switch}=true instead")
                    }
                    None => "is ignored: it sets no key".to_owned(),
                },
            );
        } else if let Some(path) = of_file() {
            let twin = name.strip_suffix(FILE_SUFFIX).unwrap_or(name);
            let has_twin = variables.iter().any(|(name, value)| name == twin && !value.is_empty());
            match secret_files::read(&path, value, has_twin.then_some(twin)) {
                Ok(secret) => settings.set_text(&path, &secret, &source, problems),
                Err(why) => problems.error(&source, &path, why),
            }
        } else {
            let known: Vec<_> = of_keys.iter().map(|(name, _)| name.clone()).chain(tables.variables()).collect();
            problems.error(&source, "", nearest::unknown_variable(name, &known));
        }
    }
}

/// Whether Kubernetes has set the variable for a service. It sets, in every pod of the namespace, for a service `dunlin-api`
/// with the port 8000 named `http`: `DUNLIN_API_SERVICE_HOST`, `…_SERVICE_PORT`, `…_SERVICE_PORT_HTTP`,
/// `…_PORT=tcp://ADDRESS:8000`, and `…_PORT_8000_TCP` without and with `_PROTO`, `_PORT` and `_ADDR`. So a service
/// `dunlin-http-server` would set `http_server.port`.
pub(super) fn is_of_kubernetes(name: &str, value: &str) -> bool {
    let is_prefixed = [FORMER_PREFIX, PREFIX].iter().any(|prefix| setting_of(name, prefix).is_some());
    let is_placeholder = PLACEHOLDERS.iter().any(|prefix| name.starts_with(prefix));
    is_prefixed && !is_placeholder && (is_of_service(name, value) || is_of_service_port(name))
}

fn is_of_service(name: &str, value: &str) -> bool {
    let is_address = ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    let is_named_port = |port: &str| !port.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.rsplit_once("_SERVICE_PORT_").is_some_and(|(_, port)| is_named_port(port))
        || (name.ends_with("_PORT") && is_address)
}

/// `…_PORT_8000_TCP`, `…_PORT_8000_TCP_PROTO`, `…_PORT_8000_TCP_PORT`, `…_PORT_8000_TCP_ADDR`
fn is_of_service_port(name: &str) -> bool {
    let name = ["_PROTO", "_PORT", "_ADDR"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
    let before = ["_TCP", "_UDP", "_SCTP"].iter().find_map(|protocol| name.strip_suffix(protocol));
    before
        .and_then(|before| before.rsplit_once("_PORT_"))
        .is_some_and(|(_, number)| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The tables of all lists whose tables have names.
struct NamedTables {
    lists: Vec<NamedList>,
}

struct NamedList {
    /// `MAX_SIZE` and `max.size` for each key of the list's tables.
    keys: Vec<(String, String)>,
    /// `CHANNEL_NAMESPACES_CHAT_` and `channel.namespaces[0]` for each table.
    tables: Vec<(String, String)>,
}

impl NamedTables {
    fn of(settings: &Settings) -> Self {
        let lists = NAMED_LISTS.iter().filter_map(|list| {
            let ValueKind::Tables(groups) = keys::at(list)?.kind else { return None };
            let mut keys = Vec::new();
            collect(groups, "", &mut keys);
            let tables = (0..settings.len(list)).filter_map(|index| {
                let table = format!("{list}[{index}]");
                let name = settings.text(&format!("{table}.name"))?;
                Some((format!("{}_", bare_name(&format!("{list}.{name}"))), table))
            });
            Some(NamedList { keys, tables: tables.collect() })
        });
        Self { lists: lists.collect() }
    }

    /// The path of the key that a variable sets in one of these tables.
    fn path_of(&self, set: &str) -> Option<String> {
        self.lists.iter().find_map(|list| {
            list.tables.iter().find_map(|(prefix, table)| {
                let inside = set.strip_prefix(prefix.as_str())?;
                let (_, key) = list.keys.iter().find(|(known, _)| known == inside)?;
                Some(format!("{table}.{key}"))
            })
        })
    }

    /// The names of all variables that set keys.
    fn variables(&self) -> impl Iterator<Item = String> {
        self.lists.iter().flat_map(|list| {
            let of_table = |(prefix, _): &(String, String)| {
                let prefix = format!("{PREFIX}{prefix}");
                list.keys.iter().map(move |(key, _)| format!("{prefix}{key}"))
            };
            list.tables.iter().flat_map(of_table)
        })
    }
}

/// The variable of every key that is in no list, and the key's path.
pub(super) fn variables_of_keys() -> Vec<(String, String)> {
    let mut variables = Vec::new();
    collect(keys::root(), "", &mut variables);
    variables.into_iter().map(|(name, path)| (format!("{PREFIX}{name}"), path)).collect()
}

/// `client.ping_interval` is `CLIENT_PING_INTERVAL`.
fn bare_name(path: &str) -> String {
    path.to_ascii_uppercase().replace(['.', '-'], "_")
}

fn collect(groups: Groups, prefix: &str, variables: &mut Vec<(String, String)>) {
    for key in keys::names(groups) {
        let path = if prefix.is_empty() { key.name.to_owned() } else { format!("{prefix}.{}", key.name) };
        match key.kind {
            ValueKind::Table(inner) => collect(inner, &path, variables),
            _ => variables.push((bare_name(&path), path)),
        }
    }
}
