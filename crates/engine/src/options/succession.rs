//! The change from the current options to new ones after a reload of the configuration.
//!
//! Channels, frames and messages in flight refer to namespaces by number, so a number never changes its meaning while a
//! node runs. A new namespace gets the next number. A removed namespace keeps its number, is marked as retired, and is
//! active again if it comes back.

use super::{ChannelOptions, ClientOptions, NamespaceOptions, Options};
use crate::{log::PublicationLog, record::RecordOptions};

/// Maximum number of namespaces of a running node, including retired ones. The engine numbers them with 16 bits; each
/// costs a shard less than a kibibyte of counters.
pub const NAMESPACES_MAX: usize = 4_096;

/// A namespace with a change that a running node does not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldNamespace {
    /// The namespace's name; empty for channels outside all namespaces.
    pub name: String,
    /// Why a restart is needed.
    pub why: &'static str,
}

impl Options {
    /// The options of a running node after a reload with the configuration `wanted`: everything that can change at run
    /// time is taken from `wanted`, everything else from `self`. Also returns the namespaces with changes that were not
    /// applied.
    pub fn succeeded_by(&self, wanted: &Self) -> (Self, Vec<HeldNamespace>) {
        let mut next = Self {
            client: self.client.succeeded_by(&wanted.client),
            channel: self.channel.succeeded_by(&wanted.channel),
            rooms_max: wanted.rooms_max,
            room_openings: wanted.room_openings,
            records: RecordOptions { level: wanted.records.level, ..self.records },
            ..self.clone()
        };
        let mut kept = Vec::new();
        let mut hold = |name: &str, why: &'static str| kept.push(HeldNamespace { name: name.to_owned(), why });
        match self.without_namespace.succeeded_by(&wanted.without_namespace) {
            Ok(options) => next.without_namespace = options,
            Err(why) => hold("", why),
        }
        for known in &mut next.namespaces {
            match wanted.namespaces.iter().find(|namespace| namespace.name == known.name) {
                // A retired namespace has no state that could conflict with other options.
                Some(namespace) if known.is_retired && namespace.room.is_none() => *known = namespace.clone(),
                Some(namespace) => match known.succeeded_by(namespace) {
                    Ok(options) => *known = options,
                    Err(why) => hold(&known.name, why),
                },
                None if known.is_retired => {}
                None if known.room.is_some() => hold(&known.name, "it has rooms"),
                None => known.is_retired = true,
            }
        }
        for namespace in &wanted.namespaces {
            if next.namespaces.iter().any(|known| known.name == namespace.name) {
                continue;
            }
            if namespace.room.is_some() {
                hold(&namespace.name, "it has rooms");
            } else if namespace.is_clustered {
                hold(&namespace.name, "nodes of a cluster share it");
            } else if next.namespaces.len() >= NAMESPACES_MAX {
                hold(&namespace.name, "the node has had too many namespaces since its start");
            } else {
                next.namespaces.push(namespace.clone());
            }
        }
        (next, kept)
    }
}

impl ClientOptions {
    /// These two stay, because connect replies contain the ping interval and whether to answer pings.
    fn succeeded_by(&self, wanted: &Self) -> Self {
        Self {
            ping_interval_ms: self.ping_interval_ms,
            pong_timeout_ms: self.pong_timeout_ms,
            compression: self.compression,
            ..wanted.clone()
        }
    }
}

impl ChannelOptions {
    /// The options that map a name to its namespace and users stay, because channels in memory depend on them.
    fn succeeded_by(&self, wanted: &Self) -> Self {
        Self {
            namespace_boundary: self.namespace_boundary,
            private_prefix: self.private_prefix.clone(),
            user_boundary: self.user_boundary,
            user_separator: self.user_separator,
            ..wanted.clone()
        }
    }
}

impl NamespaceOptions {
    /// The lane and its key stay, because existing subscriptions depend on them.
    fn succeeded_by(&self, wanted: &Self) -> Result<Self, &'static str> {
        if self.is_retired || self.room.is_some() != wanted.room.is_some() {
            return Err("channels become rooms, or rooms channels");
        }
        if self.log != wanted.log
            || self.is_log_synced != wanted.is_log_synced
            || self.log != PublicationLog::Memory && self.has_stream() != wanted.has_stream()
        {
            return Err("its log");
        }
        Ok(Self {
            delivery: self.delivery,
            conflation_key: self.conflation_key.clone(),
            removal_tag: self.removal_tag.clone(),
            room: self.room.clone(),
            is_clustered: self.is_clustered,
            ..wanted.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Lane, RoomLimits};

    fn namespace(name: &str) -> NamespaceOptions {
        NamespaceOptions { name: name.to_owned(), ..NamespaceOptions::default() }
    }

    fn options(namespaces: &[NamespaceOptions]) -> Options {
        Options { namespaces: namespaces.to_vec(), ..Options::default() }
    }

    fn names(options: &Options) -> Vec<(&str, bool)> {
        options.namespaces.iter().map(|namespace| (&*namespace.name, namespace.is_retired)).collect()
    }

    #[test]
    fn a_namespace_keeps_its_number() {
        let first = options(&[namespace("a"), namespace("b")]);
        let (second, held) = first.succeeded_by(&options(&[namespace("c"), namespace("b")]));
        assert_eq!((names(&second), held), (vec![("a", true), ("b", false), ("c", false)], Vec::new()));
        let revived = NamespaceOptions { delivery: Lane::Latest, ..namespace("a") };
        let (third, held) = second.succeeded_by(&options(&[revived]));
        assert_eq!((names(&third), held), (vec![("a", false), ("b", true), ("c", true)], Vec::new()));
        assert_eq!(third.namespaces[0].delivery, Lane::Latest);
    }

    #[test]
    fn a_reload_does_not_turn_channels_into_rooms_or_back() {
        let room = |name: &str| NamespaceOptions { room: Some(RoomLimits::default()), ..namespace(name) };
        let running = options(&[room("arena"), namespace("chat")]);
        let (next, held) = running.succeeded_by(&options(&[namespace("arena"), room("chat"), room("late")]));
        let held: Vec<_> = held.iter().map(|held| &*held.name).collect();
        assert_eq!((names(&next), held), (vec![("arena", false), ("chat", false)], vec!["arena", "chat", "late"]));
        assert!(next.namespaces[0].room.is_some() && next.namespaces[1].room.is_none());
        let (next, held) = running.succeeded_by(&options(&[]));
        assert_eq!((names(&next), held.len()), (vec![("arena", false), ("chat", true)], 1));
        // This also applies to a retired namespace that comes back as rooms.
        let (next, held) = next.succeeded_by(&options(&[room("arena"), room("chat")]));
        assert_eq!((names(&next), held.len()), (vec![("arena", false), ("chat", true)], 1));
    }

    #[test]
    fn the_number_of_namespaces_is_limited() {
        let many = |from: usize| options(&(from..from + 3_000).map(|n| namespace(&n.to_string())).collect::<Vec<_>>());
        let (next, held) = many(0).succeeded_by(&many(3_000));
        assert_eq!((next.namespaces.len(), held.len()), (NAMESPACES_MAX, 6_000 - NAMESPACES_MAX));
    }

    #[test]
    fn options_that_clients_depend_on_do_not_change() {
        let running = Options::default();
        let mut wanted = Options::default();
        wanted.client.ping_interval_ms += 1;
        wanted.client.pong_timeout_ms += 1;
        wanted.client.channel_limit += 1;
        wanted.channel.namespace_boundary = '/';
        wanted.channel.name_bytes_max += 1;
        let (next, _) = running.succeeded_by(&wanted);
        assert_eq!(next.client.ping_interval_ms, running.client.ping_interval_ms);
        assert_eq!(next.client.pong_timeout_ms, running.client.pong_timeout_ms);
        assert_eq!(next.client.channel_limit, wanted.client.channel_limit);
        assert_eq!(next.channel.namespace_boundary, ':');
        assert_eq!(next.channel.name_bytes_max, wanted.channel.name_bytes_max);
    }
}
