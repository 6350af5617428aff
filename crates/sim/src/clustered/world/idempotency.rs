//! Where the publications with idempotency keys are, as the clients were told.

use std::collections::{BTreeMap, BTreeSet};

use super::ClusteredWorld;

type ChannelKey = (String, &'static str);

#[derive(Default)]
pub(super) struct IdempotencyKeys {
    offsets: BTreeMap<ChannelKey, u64>,
    /// Keys that may be published again: one was in flight while a question for keys was not answered.
    excused: BTreeSet<ChannelKey>,
    /// By node, the questions that were not answered.
    unanswered: Vec<u64>,
}

impl IdempotencyKeys {
    /// Records an acknowledgement. Returns the offset that was acknowledged before, unless that may be another one.
    pub(super) fn record(&mut self, key: ChannelKey, offset: u64) -> Option<u64> {
        let is_excused = self.excused.contains(&key);
        self.offsets.insert(key, offset).filter(|_| !is_excused)
    }

    /// The stream has lost the publications of a channel after an offset.
    pub(super) fn truncate_after(&mut self, channel: &str, kept: u64) {
        self.offsets.retain(|(of, _), offset| of != channel || *offset <= kept);
    }

    pub(super) fn clear(&mut self) {
        self.offsets.clear();
    }
}

impl ClusteredWorld {
    /// Excuses the keys in flight if a node could not ask all others. Which of them it asked for is not known here.
    pub(super) fn review_unanswered_keys(&mut self) {
        let unanswered: Vec<u64> = self.nodes.iter().map(|node| node.core.counters().keys_unanswered).collect();
        let before = std::mem::replace(&mut self.idempotency.unanswered, unanswered);
        // A node that has started again counts from zero.
        let is_more = |(node, now): (usize, &u64)| {
            let was = before.get(node).copied().unwrap_or(0);
            *now > if *now < was { 0 } else { was }
        };
        let has_more = self.idempotency.unanswered.iter().enumerate().any(is_more);
        // Without leases, a node that starts while another one is silent does not know of it, and cannot ask it.
        let has_unknown = !self.peers.is_on && self.links.iter().any(|links| links.may_be_unknown(self.harness.now_us));
        // Servers that do not restart remember the keys themselves.
        if self.restarts.is_some() && (has_more || has_unknown) {
            let publishes = self.requests.values().filter_map(|(_, publish)| publish.as_ref());
            let in_flight = publishes.filter_map(|publish| Some((publish.channel.clone(), publish.key?)));
            self.idempotency.excused.extend(in_flight);
        }
    }
}
