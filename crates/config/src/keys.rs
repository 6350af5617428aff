//! The table of all keys: those that Dunlin supports and those that only Dunlin has, which are in the files of this
//! module, and those that only Centrifugo v6 supports, which are in `schema/unsupported_keys.json`. The parser, the
//! checks, the environment variables, the reference page and the JSON Schema are derived from this table.

mod backend;
mod channel;
mod client;
pub mod examples;
mod proxy;
mod room;
mod server;
mod transport;
pub mod unsupported;

use std::sync::LazyLock;

use proxy::PROXY;

/// One key of a table.
#[derive(Clone, Copy, Debug)]
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

/// The supported keys at the top level.
const SUPPORTED: Groups = &[server::TOP, client::TOP, channel::TOP, room::TOP, transport::TOP, backend::TOP];

/// Tables with the same keys. They are described once, under this heading, with the first path that has each key.
pub const SHARED: &[(&str, &[&str])] = &[
    ("Channel options", &["channel.namespaces[]", "channel.without_namespace"]),
    ("Token keys", &["client.token", "client.subscription_token"]),
    (
        "Proxy keys",
        &[
            "proxies[]",
            "client.proxy.connect",
            "client.proxy.refresh",
            "channel.proxy.subscribe",
            "channel.proxy.publish",
            "channel.proxy.sub_refresh",
            "rpc.proxy",
        ],
    ),
];

/// The keys at the top level.
pub fn root() -> Groups {
    static ROOT: LazyLock<Groups> = LazyLock::new(|| unsupported::added_to(SUPPORTED, ""));
    &ROOT
}

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
    at_in(root(), path)
}

fn at_in(mut groups: Groups, path: &str) -> Option<&'static Key> {
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

/// A table whose keys are treated individually.
const fn table(name: &'static str, groups: Groups, doc: &'static str) -> Key {
    Key { name, kind: ValueKind::Table(groups), default: "", support: Support::Yes, doc }
}
