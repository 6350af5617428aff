//! A shard.

use std::sync::Arc;

use crate::{Effects, Event, Now, Options, SessionKey, ShardIndex, counters::Counters};

/// Which shard of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardIdentity {
    /// This shard.
    pub index: ShardIndex,
    /// Shards of the node.
    pub count: u16,
}

/// Where chance comes from.
#[derive(Clone, Debug)]
pub struct Seed {
    /// The same on all shards of a node: places channels and hashes names.
    pub node: u64,
    /// The shard's own: session ids, epochs, the first ping's moment. Unpredictable in production.
    pub shard: [u8; 32],
}

/// One I/O thread's share of the node: its sessions, and the channels it owns.
pub struct Shard {}

impl Shard {
    /// An empty shard.
    pub fn new(_identity: ShardIdentity, _options: Arc<Options>, _seed: Seed) -> Self {
        todo!()
    }

    /// Takes in one event. What has to be done about it is appended to `effects`.
    pub fn handle(&mut self, _now: Now, _event: Event<'_>, _effects: &mut Effects) {
        todo!()
    }

    /// What to write to the session's socket now, in order, up to a bound for one write. The caller says how much of it
    /// went with [`Event::Wrote`], before any other event.
    pub fn outgoing(&mut self, _session: SessionKey) -> Outgoing<'_> {
        todo!()
    }

    /// When to send [`Event::Woke`] at the latest, on the clock of [`Now::mono_us`].
    pub fn next_deadline_us(&self) -> Option<u64> {
        todo!()
    }

    /// What the shard has counted.
    pub fn counters(&self) -> &Counters {
        todo!()
    }

    /// Whether no session is left.
    pub fn is_empty(&self) -> bool {
        todo!()
    }
}

/// The slices of one write.
pub struct Outgoing<'a> {
    slices: std::vec::IntoIter<&'a [u8]>,
}

impl<'a> Iterator for Outgoing<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.slices.next()
    }
}

/// The shard that owns `channel`, on a node with `shard_count` shards and the node seed `node_seed`.
pub fn owner_of(_channel: &str, _shard_count: u16, _node_seed: u64) -> ShardIndex {
    todo!()
}
