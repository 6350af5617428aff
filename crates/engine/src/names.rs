//! Resolves a channel's name to its namespace.

use hashbrown::HashMap;

use dunlin_protocol::ErrorCode;
use regex::Regex;

use crate::{
    Options,
    options::{ChannelOptions, NamespaceOptions},
};

/// A namespace's number: 0 for channels outside all namespaces, then in the order of the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NamespaceIndex(pub(crate) u16);

/// Finds namespaces by channel name.
pub(crate) struct Names {
    by_name: HashMap<Box<str>, NamespaceIndex, foldhash::quality::FixedState>,
    boundary: char,
    private_prefix: Box<str>,
    user_boundary: char,
    user_separator: char,
    name_bytes_max: usize,
    /// The pattern of the rest of a name, by namespace; `None` allows any ASCII.
    regexes: Vec<Option<Regex>>,
}

/// Finds namespaces by channel name, outside of shards.
pub struct NamespaceNames(Names);

impl NamespaceNames {
    /// Finds the namespaces in `options`.
    pub fn new(options: &Options) -> Self {
        Self(Names::new(options, 0))
    }

    /// The number of the namespace of `channel`: 0 for channels outside all namespaces, then in the order of the
    /// options.
    ///
    /// # Errors
    /// The error of a subscription to the channel.
    pub fn index_of(&self, channel: &str) -> Result<u16, ErrorCode> {
        self.0.resolve(channel).map(|index| index.0)
    }
}

impl Names {
    /// Finds the namespaces in `options`.
    pub(crate) fn new(options: &Options, node_seed: u64) -> Self {
        let ChannelOptions {
            namespace_boundary, private_prefix, name_bytes_max, user_boundary, user_separator, ..
        } = &options.channel;
        let mut by_name = HashMap::with_hasher(foldhash::quality::FixedState::with_seed(node_seed));
        for (index, namespace) in options.namespaces.iter().enumerate() {
            if namespace.is_retired {
                continue;
            }
            let index = u16::try_from(index + 1).expect("the configuration holds fewer than 65,535 namespaces");
            by_name.insert(namespace.name.as_str().into(), NamespaceIndex(index));
        }
        Self {
            by_name,
            boundary: *namespace_boundary,
            private_prefix: private_prefix.as_str().into(),
            user_boundary: *user_boundary,
            user_separator: *user_separator,
            name_bytes_max: *name_bytes_max,
            regexes: std::iter::once(&options.without_namespace)
                .chain(&options.namespaces)
                .map(|namespace| namespace.channel_regex.clone())
                .collect(),
        }
    }

    /// Resolves `channel` to its namespace.
    ///
    /// # Errors
    /// 107 for a name that is too long, 102 for an unknown namespace, 107 for a name that does not match the
    /// namespace's pattern or, without one, is not ASCII.
    pub(crate) fn resolve(&self, channel: &str) -> Result<NamespaceIndex, ErrorCode> {
        if channel.len() > self.name_bytes_max {
            return Err(ErrorCode::BadRequest);
        }
        let name = if self.private_prefix.is_empty() {
            channel
        } else {
            channel.strip_prefix(&*self.private_prefix).unwrap_or(channel)
        };
        let (namespace, rest) = match name.split_once(self.boundary) {
            None | Some(("", _)) => (NamespaceIndex(0), channel),
            Some((namespace, rest)) => (*self.by_name.get(namespace).ok_or(ErrorCode::UnknownChannel)?, rest),
        };
        let is_good = match &self.regexes[usize::from(namespace.0)] {
            Some(regex) => regex.is_match(rest),
            None => channel.is_ascii(),
        };
        if is_good { Ok(namespace) } else { Err(ErrorCode::BadRequest) }
    }

    /// The users that the name of `channel` lists after its last boundary; `None` without a boundary.
    pub(crate) fn listed_users<'a>(&self, channel: &'a str) -> Option<impl Iterator<Item = &'a str> + use<'a>> {
        let separator = self.user_separator;
        channel.rsplit_once(self.user_boundary).map(|(_, users)| users.split(separator))
    }

    /// Whether `channel` requires a subscription token.
    pub(crate) fn is_private(&self, channel: &str) -> bool {
        !self.private_prefix.is_empty() && channel.starts_with(&*self.private_prefix)
    }
}

/// The options of a namespace returned by [`Names::resolve`].
pub(crate) fn namespace_options(options: &Options, namespace: NamespaceIndex) -> &NamespaceOptions {
    match namespace.0 {
        0 => &options.without_namespace,
        index => &options.namespaces[usize::from(index) - 1],
    }
}
