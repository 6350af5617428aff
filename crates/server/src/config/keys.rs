//! Every key: those that Dunlin reads, those that Centrifugo v6 reads and Dunlin does not yet, and those that only Dunlin
//! has. Reading, checking, environment variables, the reference page and the JSON Schema all follow this one table.

mod backend;
mod channel;
mod client;
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
    /// What its value may be.
    pub kind: Kind,
    /// Its value when it is not set, as one would type it.
    pub default: &'static str,
    /// What Dunlin does with it.
    pub support: Support,
    /// What it is for, in a sentence or two; empty for keys that are only known.
    pub doc: &'static str,
}

/// What a value may be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number between two bounds, both included.
    Int(i64, i64),
    /// A Go duration such as `1h30m` or `250ms`.
    Duration,
    /// A Go duration; a negative one and zero mean off.
    DurationOrOff,
    /// Text.
    Text,
    /// Text that no message may show.
    Secret,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A list of texts; in an environment variable separated by spaces.
    Texts,
    /// Anything at all: inside of it nothing is looked at.
    Any,
    /// A table with the keys of all these groups.
    Table(Groups),
    /// A list of tables with the keys of all these groups.
    Tables(Groups),
}

/// Groups of keys, put together.
pub type Groups = &'static [&'static [Key]];

/// What Dunlin does with a key.
#[derive(Clone, Copy, Debug)]
pub enum Support {
    /// What Centrifugo does.
    Yes,
    /// Centrifugo has no such key.
    Own,
    /// Nothing, and nothing is missing, for this reason.
    Needless(&'static str),
    /// Nothing, and says so with this reason when it is set to other than its default.
    Warned(&'static str),
    /// Does not start when it is set to other than its default, for this reason.
    Refused(&'static str),
    /// What holds for the table that it is in.
    Inherited,
}

/// The keys at the top.
pub const ROOT: Groups = &[server::TOP, client::TOP, channel::TOP, room::TOP, transport::TOP, backend::TOP];

/// All names that a table of these groups may hold.
pub fn names(groups: Groups) -> impl Iterator<Item = &'static Key> {
    groups.iter().flat_map(|group| group.iter())
}

/// The key of this name.
pub fn find(groups: Groups, name: &str) -> Option<&'static Key> {
    names(groups).find(|key| key.name == name)
}

/// The key at a path such as `channel.namespaces[0].presence`; the number in brackets is not looked at.
pub fn at(path: &str) -> Option<&'static Key> {
    let mut groups = ROOT;
    let mut found = None;
    for part in path.split('.') {
        let key = find(groups, part.split('[').next()?)?;
        groups = match key.kind {
            Kind::Table(groups) | Kind::Tables(groups) => groups,
            _ => &[],
        };
        found = Some(key);
    }
    found
}

/// Any number.
const NUMBER: Kind = Kind::Int(i64::MIN, i64::MAX);
/// A number of things that has to be at least one.
const COUNT: Kind = Kind::Int(1, 1 << 40);
/// A number of things for which zero has a meaning.
const COUNT_OR_ZERO: Kind = Kind::Int(0, 1 << 40);
/// A TCP port.
const PORT: Kind = Kind::Int(0, 65_535);

const fn yes(name: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Key {
    Key { name, kind, default, support: Support::Yes, doc }
}

const fn own(name: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Key {
    Key { name, kind, default, support: Support::Own, doc }
}

const fn needless(name: &'static str, kind: Kind, default: &'static str, why: &'static str) -> Key {
    Key { name, kind, default, support: Support::Needless(why), doc: "" }
}

const fn warned(name: &'static str, kind: Kind, default: &'static str, why: &'static str) -> Key {
    Key { name, kind, default, support: Support::Warned(why), doc: "" }
}

const fn refused(name: &'static str, kind: Kind, default: &'static str, why: &'static str) -> Key {
    Key { name, kind, default, support: Support::Refused(why), doc: "" }
}

/// A key inside of a table that is judged as a whole.
const fn part(name: &'static str, kind: Kind, default: &'static str) -> Key {
    Key { name, kind, default, support: Support::Inherited, doc: "" }
}

/// A table whose keys are judged one by one.
const fn table(name: &'static str, groups: Groups, doc: &'static str) -> Key {
    Key { name, kind: Kind::Table(groups), default: "", support: Support::Yes, doc }
}

/// A table inside of one that is judged as a whole.
const fn part_table(name: &'static str, groups: Groups) -> Key {
    part(name, Kind::Table(groups), "")
}

/// A table that is warned about as a whole, when it is on.
const fn warned_table(name: &'static str, groups: Groups, why: &'static str) -> Key {
    warned(name, Kind::Table(groups), "", why)
}

/// A table that is refused as a whole, when it is on.
const fn refused_table(name: &'static str, groups: Groups, why: &'static str) -> Key {
    refused(name, Kind::Table(groups), "", why)
}

/// `enabled`: what decides whether a table is on.
const ENABLED: &[Key] = &[part("enabled", Kind::Bool, "false")];

/// A client's side of TLS, or a server's.
const TLS: Groups = &[&[
    part("enabled", Kind::Bool, "false"),
    part("cert_pem", Kind::Text, ""),
    part("key_pem", Kind::Secret, ""),
    part("server_ca_pem", Kind::Text, ""),
    part("client_ca_pem", Kind::Text, ""),
    part("insecure_skip_verify", Kind::Bool, "false"),
    part("server_name", Kind::Text, ""),
]];

/// How Redis is reached.
const REDIS: &[Key] = &[
    part("address", Kind::Texts, "redis://127.0.0.1:6379"),
    part("prefix", Kind::Text, "centrifugo"),
    part("connect_timeout", Kind::Duration, "1s"),
    part("io_timeout", Kind::Duration, "4s"),
    part("db", NUMBER, "0"),
    part("user", Kind::Text, ""),
    part("password", Kind::Secret, ""),
    part("client_name", Kind::Text, ""),
    part("force_resp2", Kind::Bool, "false"),
    part("cluster_address", Kind::Texts, ""),
    part("sentinel_address", Kind::Texts, ""),
    part("sentinel_user", Kind::Text, ""),
    part("sentinel_password", Kind::Secret, ""),
    part("sentinel_master_name", Kind::Text, ""),
    part("sentinel_client_name", Kind::Text, ""),
    part_table("sentinel_tls", TLS),
    part_table("replica_client", &[ENABLED]),
    part_table("tls", TLS),
];
