//! The table of other nodes.

use std::collections::BTreeMap;

use dunlin_engine::Now;

use super::{LiveNode, NodeDescription, PeerChange, PeerCounters, heartbeat_message::Heartbeat};

/// A larger difference between clocks is reported. Streams keep messages for a minute longer than positions are valid.
const CLOCK_OFFSET_MAX_MS: u64 = 60_000;
/// If two heartbeats arrive at the interval at which they were sent, up to this difference, their times reflect the
/// sender's clock.
const STEADY_MS: u64 = 250;

#[derive(Debug)]
struct KnownNode {
    about: NodeDescription,
    seen_us: u64,
    /// The sender's time in the newest heartbeat.
    sent_ms: u64,
    has_other_version: bool,
    is_clock_off: bool,
}

/// The other nodes.
#[derive(Debug, Default)]
pub(super) struct PeerTable {
    by_node: BTreeMap<Box<str>, KnownNode>,
    pub(super) own_version: Box<str>,
    /// When the newest heartbeat of another node with this node's id arrived.
    pub(super) same_id: Option<u64>,
    /// Changes with the set of nodes.
    pub(super) version: u64,
}

impl PeerTable {
    pub(super) fn is_known(&self, node: &str) -> bool {
        self.by_node.contains_key(node)
    }

    /// The ids of the nodes.
    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.by_node.keys().map(|node| &**node)
    }

    pub(super) fn len(&self) -> usize {
        self.by_node.len()
    }

    pub(super) fn about(&self, node: &str) -> Option<&NodeDescription> {
        self.by_node.get(node).map(|known| &known.about)
    }

    pub(super) fn live(&self) -> impl Iterator<Item = LiveNode> {
        self.by_node.iter().map(|(node, known)| LiveNode { node: node.clone(), about: known.about.clone() })
    }

    /// Handles a heartbeat of another node.
    pub(super) fn update(&mut self, heartbeat: Heartbeat, now: Now) -> Vec<PeerChange> {
        let Heartbeat { node, about, time_ms, .. } = heartbeat;
        if let Some(known) = self.by_node.get_mut(&node) {
            let change = known.review_clock(time_ms, now);
            (known.seen_us, known.sent_ms) = (now.mono_us, time_ms);
            return change.into_iter().collect();
        }
        let has_other_version = about.version != self.own_version;
        let known = KnownNode { about, seen_us: now.mono_us, sent_ms: time_ms, has_other_version, is_clock_off: false };
        self.by_node.insert(node, known);
        self.version += 1;
        std::iter::once(PeerChange::Joined).chain(has_other_version.then_some(PeerChange::OtherVersion)).collect()
    }

    /// The nodes of the same version with a heartbeat since then.
    pub(super) fn alike_since(&self, since_us: u64) -> Vec<&str> {
        let is_alike = |known: &KnownNode| known.seen_us >= since_us && !known.has_other_version;
        self.by_node.iter().filter(|(_, known)| is_alike(known)).map(|(node, _)| &**node).collect()
    }

    pub(super) fn remove(&mut self, node: &str) -> Option<LiveNode> {
        let (node, known) = self.by_node.remove_entry(node)?;
        self.version += 1;
        Some(LiveNode { node, about: known.about })
    }

    /// Removes the nodes whose newest heartbeat arrived at `seen_us` or earlier.
    pub(super) fn remove_silent(&mut self, seen_us: u64) -> Vec<LiveNode> {
        self.same_id.take_if(|same_us| *same_us <= seen_us);
        let silent: Vec<Box<str>> =
            self.by_node.iter().filter(|(_, known)| known.seen_us <= seen_us).map(|(node, _)| node.clone()).collect();
        silent.iter().filter_map(|node| self.remove(node)).collect()
    }

    pub(super) fn clear(&mut self) {
        self.by_node.clear();
        self.same_id = None;
        self.version += 1;
    }

    pub(super) fn earliest_seen_us(&self) -> Option<u64> {
        self.by_node.values().map(|known| known.seen_us).chain(self.same_id).min()
    }

    /// Treats all nodes as if their heartbeats had arrived now.
    pub(super) fn mark_all_seen(&mut self, now_us: u64) {
        self.by_node.values_mut().for_each(|known| known.seen_us = now_us);
        if let Some(seen_us) = &mut self.same_id {
            *seen_us = now_us;
        }
    }

    pub(super) fn count(&self, counters: &mut PeerCounters) {
        counters.live = self.by_node.len() as u64;
        counters.other_version = self.by_node.values().filter(|known| known.has_other_version).count() as u64;
        counters.clock_off = self.by_node.values().filter(|known| known.is_clock_off).count() as u64;
    }
}

impl KnownNode {
    /// Compares the sender's clock with this node's, if the heartbeat was not delayed.
    fn review_clock(&mut self, time_ms: u64, now: Now) -> Option<PeerChange> {
        let received_after_ms = now.mono_us.saturating_sub(self.seen_us) / 1_000;
        let sent_after_ms = time_ms.checked_sub(self.sent_ms)?;
        if received_after_ms.abs_diff(sent_after_ms) > STEADY_MS {
            return None;
        }
        let is_off = time_ms.abs_diff(now.unix_ms) > CLOCK_OFFSET_MAX_MS;
        if std::mem::replace(&mut self.is_clock_off, is_off) == is_off {
            return None;
        }
        let offset_ms = i64::try_from(i128::from(time_ms) - i128::from(now.unix_ms)).unwrap_or(i64::MAX);
        Some(if is_off { PeerChange::ClockOff { offset_ms } } else { PeerChange::ClockRight })
    }
}
