//! The table of all keys: those that Dunlin supports, those that only Centrifugo v6 supports, and those that only
//! Dunlin has. The parser, the checks, the environment variables, the reference page and the JSON Schema are derived
//! from this table.

mod backend;
mod channel;
mod client;
pub mod examples;
mod proxy;
mod room;
mod server;
mod transport;

use proxy::PROXY;

/// One key of a table.
#[derive(Debug)]
pub struct Key {
    /// The last part of its path.
    pub name: &'static str,
    /// The type of its value.
    pub kind: ValueKind,
    /// The default, as text.
    pub default: &'static str,
    /// How Dunlin treats it.
    pub support: Support,
    /// A description of one or two sentences; empty for unsupported keys.
    pub doc: &'static str,
}

/// The type of a value.
#[derive(Clone, Copy, Debug)]
pub enum ValueKind {
    /// `true` or `false`.
    Bool,
    /// An integer between two bounds, inclusive.
    Int(i64, i64),
    /// A Go duration such as `1h30m` or `250ms`.
    Duration,
    /// A Go duration; zero and negative values mean off.
    DurationOrOff,
    /// Text.
    Text,
    /// Text that messages must not contain.
    Secret,
    /// A URL, or several with commas between them. Messages must not contain its user information and query values.
    Url,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A list of texts; separated by spaces in an environment variable.
    Texts,
    /// Any value, which is not checked.
    Any,
    /// A table with the keys of these groups.
    Table(Groups),
    /// A list of tables with the keys of these groups.
    Tables(Groups),
}

/// Groups of keys that form a table.
pub type Groups = &'static [&'static [Key]];

/// How Dunlin treats a key.
#[derive(Clone, Copy, Debug)]
pub enum Support {
    /// As Centrifugo does.
    Yes,
    /// The key exists only in Dunlin.
    Own,
    /// The key has no effect and needs none, for this reason.
    Needless(&'static str),
    /// Ignored, with a warning that contains this reason if the value is not the default.
    Warned(&'static str),
    /// The node does not start if the value is not the default, for this reason.
    Refused(&'static str),
    /// As its table.
    Inherited,
}

/// The keys at the top level.
pub const ROOT: Groups = &[server::TOP, client::TOP, channel::TOP, room::TOP, transport::TOP, backend::TOP];

/// All keys of a table with these groups.
pub fn names(groups: Groups) -> impl Iterator<Item = &'static Key> {
    groups.iter().flat_map(|group| group.iter())
}

/// The key with this name.
pub fn find(groups: Groups, name: &str) -> Option<&'static Key> {
    names(groups).find(|key| key.name == name)
}

/// The key at a path such as `channel.namespaces[0].presence`; the index is ignored.
pub fn at(path: &str) -> Option<&'static Key> {
    let mut groups = ROOT;
    let mut found = None;
    for part in path.split('.') {
        let key = find(groups, part.split('[').next()?)?;
        groups = match key.kind {
            ValueKind::Table(groups) | ValueKind::Tables(groups) => groups,
            _ => &[],
        };
        found = Some(key);
    }
    found
}

/// Any number.
const NUMBER: ValueKind = ValueKind::Int(i64::MIN, i64::MAX);
/// A number of at least 1.
const COUNT: ValueKind = ValueKind::Int(1, 1 << 40);
/// A number that may be 0.
const COUNT_OR_ZERO: ValueKind = ValueKind::Int(0, 1 << 40);
/// A TCP port.
const PORT: ValueKind = ValueKind::Int(0, 65_535);

const fn yes(name: &'static str, kind: ValueKind, default: &'static str, doc: &'static str) -> Key {
    Key { name, kind, default, support: Support::Yes, doc }
}

const fn own(name: &'static str, kind: ValueKind, default: &'static str, doc: &'static str) -> Key {
    Key { name, kind, default, support: Support::Own, doc }
}

const fn needless(name: &'static str, kind: ValueKind, default: &'static str, why: &'static str) -> Key {
    Key { name, kind, default, support: Support::Needless(why), doc: "" }
}

const fn warned(name: &'static str, kind: ValueKind, default: &'static str, why: &'static str) -> Key {
    Key { name, kind, default, support: Support::Warned(why), doc: "" }
}

const fn refused(name: &'static str, kind: ValueKind, default: &'static str, why: &'static str) -> Key {
    Key { name, kind, default, support: Support::Refused(why), doc: "" }
}

/// A key in a table that is treated as a whole.
const fn part(name: &'static str, kind: ValueKind, default: &'static str) -> Key {
    Key { name, kind, default, support: Support::Inherited, doc: "" }
}

/// A table whose keys are treated individually.
const fn table(name: &'static str, groups: Groups, doc: &'static str) -> Key {
    Key { name, kind: ValueKind::Table(groups), default: "", support: Support::Yes, doc }
}

/// A table in a table that is treated as a whole.
const fn part_table(name: &'static str, groups: Groups) -> Key {
    part(name, ValueKind::Table(groups), "")
}

/// A table that causes one warning if it is switched on.
const fn warned_table(name: &'static str, groups: Groups, why: &'static str) -> Key {
    warned(name, ValueKind::Table(groups), "", why)
}

/// A table that is refused as a whole if it is switched on.
const fn refused_table(name: &'static str, groups: Groups, why: &'static str) -> Key {
    refused(name, ValueKind::Table(groups), "", why)
}

/// The key `enabled`, which switches a table on.
const ENABLED: &[Key] = &[part("enabled", ValueKind::Bool, "false")];

/// TLS options of a client or a server.
const TLS: Groups = &[&[
    part("enabled", ValueKind::Bool, "false"),
    part("cert_pem", ValueKind::Text, ""),
    part("key_pem", ValueKind::Secret, ""),
    part("server_ca_pem", ValueKind::Text, ""),
    part("client_ca_pem", ValueKind::Text, ""),
    part("insecure_skip_verify", ValueKind::Bool, "false"),
    part("server_name", ValueKind::Text, ""),
]];

/// Options of a Redis connection.
const REDIS: &[Key] = &[
    part("address", ValueKind::Texts, "redis://127.0.0.1:6379"),
    part("prefix", ValueKind::Text, "centrifugo"),
    part("connect_timeout", ValueKind::Duration, "1s"),
    part("io_timeout", ValueKind::Duration, "4s"),
    part("db", NUMBER, "0"),
    part("user", ValueKind::Text, ""),
    part("password", ValueKind::Secret, ""),
    part("client_name", ValueKind::Text, ""),
    part("force_resp2", ValueKind::Bool, "false"),
    part("cluster_address", ValueKind::Texts, ""),
    part("sentinel_address", ValueKind::Texts, ""),
    part("sentinel_user", ValueKind::Text, ""),
    part("sentinel_password", ValueKind::Secret, ""),
    part("sentinel_master_name", ValueKind::Text, ""),
    part("sentinel_client_name", ValueKind::Text, ""),
    part_table("sentinel_tls", TLS),
    part_table("replica_client", &[ENABLED]),
    part_table("tls", TLS),
];
