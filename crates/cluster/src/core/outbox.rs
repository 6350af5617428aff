//! This node's messages to one channel, in the order of proposal, and which of them may be sent next.

use std::collections::{BTreeMap, BTreeSet};

use super::publish::PublishingKey;

/// This node's messages to a channel, in the order of proposal.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Messages that are not committed.
    pub(super) unresolved: BTreeSet<PublishingKey>,
    /// Messages to be sent.
    pub(super) unsent: BTreeSet<PublishingKey>,
    /// Messages to be sent again after a pause.
    pub(super) paused: BTreeSet<PublishingKey>,
    /// A message that depends on the newest one is sent alone, and so is a probe.
    pub(super) alone: Option<PublishingKey>,
    /// The stream has refused a message. Until it accepts one again, only one message is in flight: if the first were
    /// refused again and another one accepted, their order would change.
    pub(super) probes: bool,
    /// Messages whose sequence is known and that have not come back yet, by sequence.
    pub(super) acknowledged: BTreeMap<u64, PublishingKey>,
    /// Whether the channel is in the queue of those that wait for space in the publish window.
    pub(super) is_queued: bool,
}

impl Outbox {
    pub(super) fn push(&mut self, key: PublishingKey) {
        self.unresolved.insert(key);
        self.unsent.insert(key);
    }

    pub(super) fn remove(&mut self, key: PublishingKey) {
        self.unresolved.remove(&key);
        self.unsent.remove(&key);
        self.paused.remove(&key);
        self.alone.take_if(|alone| *alone == key);
    }

    /// The stream has stored a message. After a probe, the messages behind it may be sent.
    pub(super) fn mark_stored(&mut self, key: PublishingKey, is_unconditional: bool) {
        self.unsent.remove(&key);
        self.paused.remove(&key);
        if self.alone == Some(key) {
            self.probes = false;
            self.alone.take_if(|_| is_unconditional);
        }
    }

    /// The message to send next, if any. Messages behind a paused one wait.
    pub(super) fn next(&self) -> Option<PublishingKey> {
        let next = *self.unsent.first()?;
        let is_held = self.alone.is_some() || self.paused.first().is_some_and(|paused| *paused < next);
        (!is_held).then_some(next)
    }

    /// Whether all earlier proposals are committed.
    pub(super) fn is_first(&self, key: PublishingKey) -> bool {
        self.unresolved.first() == Some(&key)
    }

    /// Takes the messages that have come back, because the channel has reached this position.
    pub(super) fn take_returned(&mut self, position: u64) -> Vec<(u64, PublishingKey)> {
        let later = self.acknowledged.split_off(&(position + 1));
        std::mem::replace(&mut self.acknowledged, later).into_iter().collect()
    }
}
