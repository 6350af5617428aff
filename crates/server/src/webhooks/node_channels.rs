//! Which channels of this node have subscribers, as other nodes learn it: the changes in their order, and pages of them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use crate::peers::json_bytes;

/// Maximum number of channels that are remembered because they were vacated. A node that has not asked for longer gets all
/// occupied channels.
pub(super) const VACATED_MAX: usize = 100_000;

/// Bytes of the names in one answer, so that shards do not wait for it.
pub(super) const CHANGES_BYTES_MAX: usize = 64 * 1024;

/// Limits on channels that the webhooks of a cluster know. Further ones are not told.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChannelLimits {
    /// Maximum number of occupied channels. Those of the cluster count once for each node.
    pub(super) channels_max: usize,
    /// Maximum bytes of their names.
    pub(super) bytes_max: usize,
}

impl Default for ChannelLimits {
    fn default() -> Self {
        Self { channels_max: 1_000_000, bytes_max: 64 << 20 }
    }
}

/// Whether a channel has subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelState {
    /// It has some.
    Occupied,
    /// It has none any more.
    Vacated,
}

/// How far a node knows the channels of another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The version of the last answer.
    pub version: u64,
    /// The version at which a full report began, if its last page has not come yet; otherwise 0.
    pub begun: u64,
}

/// The changes of a node's channels since a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// This is the first page of a full report: what was known before is void, because the changes since then are not
    /// known any more. It holds until the last page has come.
    pub is_reset: bool,
    /// The version at which this full report began; 0 on other pages.
    pub begun: u64,
    /// The version after these changes.
    pub version: u64,
    /// Channels with subscribers.
    pub occupied: Vec<Arc<str>>,
    /// Channels without subscribers.
    pub vacated: Vec<Arc<str>>,
    /// Whether there are more changes.
    pub has_more: bool,
}

/// The channels of this node: the last change of each, by version. Each change takes logarithmic time, because shards wait
/// for it.
#[derive(Debug, Default)]
pub struct NodeChannels {
    pub(super) limits: ChannelLimits,
    versions: HashMap<Arc<str>, u64>,
    log: BTreeMap<u64, (Arc<str>, ChannelState)>,
    version: u64,
    /// The versions of the vacated channels.
    vacated: BTreeSet<u64>,
    /// Vacated channels up to this version are forgotten.
    forgotten: u64,
    /// Bytes of all names.
    bytes: usize,
}

impl NodeChannels {
    /// This node has its first subscriber of a channel, or has lost its last one. Returns whether there was space for it.
    pub fn set(&mut self, channel: &Arc<str>, state: ChannelState) -> bool {
        let before = self.versions.get(channel).copied();
        match (before, state) {
            (None, ChannelState::Occupied) if self.is_full(channel) => return false,
            // Nobody has heard of it.
            (None, ChannelState::Vacated) => return true,
            _ => {}
        }
        if let Some(version) = before {
            self.log.remove(&version);
            self.vacated.remove(&version);
        } else {
            self.bytes += channel.len();
        }
        self.version += 1;
        self.versions.insert(Arc::clone(channel), self.version);
        self.log.insert(self.version, (Arc::clone(channel), state));
        if state == ChannelState::Vacated {
            self.vacated.insert(self.version);
        }
        if self.vacated.len() > VACATED_MAX
            && let Some(oldest) = self.vacated.pop_first()
            && let Some((channel, _)) = self.log.remove(&oldest)
        {
            self.versions.remove(&channel);
            self.bytes -= channel.len();
            self.forgotten = oldest;
        }
        true
    }

    /// The changes after a cursor, as many as fit into `bytes_max` bytes of names in JSON, and at least one.
    pub fn since(&self, cursor: Cursor, bytes_max: usize) -> Changes {
        // What was vacated since a full report began is remembered, or the report begins again.
        let is_reset = cursor.version.max(cursor.begun) < self.forgotten;
        let Cursor { version: from, begun } =
            if is_reset { Cursor { version: 0, begun: self.version } } else { cursor };
        let mut changes = Changes { is_reset, version: from, ..Changes::default() };
        if is_reset {
            changes.begun = begun;
        }
        let mut bytes = 0;
        for (version, (channel, state)) in self.log.range(from + 1..) {
            // What a full report does not name is vacated.
            if *state == ChannelState::Vacated && *version <= begun {
                changes.version = *version;
                continue;
            }
            // With a comma.
            let more_bytes = json_bytes(channel) + 1;
            if bytes > 0 && bytes + more_bytes > bytes_max {
                changes.has_more = true;
                break;
            }
            bytes += more_bytes;
            changes.version = *version;
            match state {
                ChannelState::Occupied => changes.occupied.push(Arc::clone(channel)),
                ChannelState::Vacated => changes.vacated.push(Arc::clone(channel)),
            }
        }
        changes
    }

    /// The version of the newest change.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// The version at which a channel got the subscribers that it has; `None` if it has none on this node.
    pub fn occupied_at(&self, channel: &str) -> Option<u64> {
        let version = *self.versions.get(channel)?;
        (!self.vacated.contains(&version)).then_some(version)
    }

    fn is_full(&self, channel: &str) -> bool {
        let ChannelLimits { channels_max, bytes_max } = self.limits;
        self.versions.len() - self.vacated.len() >= channels_max || self.bytes + channel.len() > bytes_max
    }

    #[cfg(test)]
    pub(super) fn vacated(&self) -> usize {
        self.vacated.len()
    }
}

#[cfg(test)]
mod tests {
    use ChannelState::{Occupied, Vacated};

    use super::*;

    fn names(channels: &[Arc<str>]) -> Vec<&str> {
        channels.iter().map(|channel| &**channel).collect()
    }

    fn at(version: u64) -> Cursor {
        Cursor { version, begun: 0 }
    }

    #[test]
    fn a_node_answers_with_the_last_change_of_each_channel() {
        let mut node = NodeChannels::default();
        let mut set = |name: &str, state| assert!(node.set(&name.into(), state));
        set("a", Occupied);
        set("b", Occupied);
        set("a", Vacated);
        set("c", Occupied);
        set("c", Vacated);
        set("c", Occupied);
        // Nobody has heard of it.
        set("d", Vacated);
        let all = node.since(at(0), 1_000);
        assert_eq!((names(&all.occupied), names(&all.vacated)), (vec!["b", "c"], vec!["a"]));
        assert!(!all.is_reset && !all.has_more);
        assert_eq!(node.since(at(all.version), 1_000), Changes { version: all.version, ..Changes::default() });
        let first = node.since(at(0), 4);
        assert_eq!((names(&first.occupied), first.has_more), (vec!["b"], true), "one at least");
        let second = node.since(at(first.version), 4);
        assert_eq!((names(&second.vacated), second.has_more), (vec!["a"], true));
        assert_eq!(node.since(at(second.version), 4).version, all.version);
    }

    #[test]
    fn a_page_has_as_many_bytes_of_json_as_it_may() {
        let mut node = NodeChannels::default();
        for number in 0..10 {
            node.set(&format!("\u{1}\"{number}").into(), Occupied);
        }
        let all = node.since(at(0), usize::MAX);
        let bytes = serde_json::to_vec(&names(&all.occupied)).expect("JSON").len() - 1;
        assert_eq!(node.since(at(0), bytes).occupied.len(), 10, "at the limit");
        assert_eq!(node.since(at(0), bytes - 1).occupied.len(), 9, "one past it");
    }

    #[test]
    fn occupied_channels_are_limited_in_number_and_in_bytes_of_their_names() {
        for limits in [
            ChannelLimits { channels_max: 2, bytes_max: usize::MAX },
            ChannelLimits { channels_max: usize::MAX, bytes_max: 4 },
        ] {
            let mut node = NodeChannels { limits, ..NodeChannels::default() };
            assert!(["aa", "bb"].iter().all(|name| node.set(&(*name).into(), Occupied)), "at the limit");
            assert!(!node.set(&"cc".into(), Occupied), "one past it");
            assert!(node.set(&"aa".into(), Vacated) && node.set(&"aa".into(), Occupied), "a known one needs no space");
            assert!(node.set(&"cc".into(), Vacated), "nobody has heard of it");
        }
    }
}
