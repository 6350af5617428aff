//! Nodes whose channels have a log: a disk or a broker, simulated as an actor with delays, failures and crashes. Only
//! the simulator configures such namespaces this way. Clients and publishers are checked against what the log has
//! committed.

mod actor;
mod client;
mod world;

pub use client::{BroadcastKind, LogClient, SeenBroadcast, is_without_history};
pub use world::LoggedWorld;

use std::collections::{BTreeMap, BTreeSet};

/// What a log has committed in one channel, by offset. Nothing ever leaves it.
#[derive(Debug, Default)]
pub struct ChannelTruth {
    pub data: BTreeMap<u64, Vec<u8>>,
    /// Publications by idempotency key, the oldest first.
    pub keys: BTreeMap<String, Vec<KeyUse>>,
    /// What was committed, and what a stream has lost with its end.
    pub lost: Vec<(u64, Vec<u8>)>,
    /// Epochs of which something was lost. Their positions must not be continued.
    pub void_epochs: BTreeSet<String>,
}

/// A publication with an idempotency key.
#[derive(Clone, Copy, Debug)]
pub struct KeyUse {
    pub offset: u64,
    /// Until then, nothing else is published with the key.
    pub until_us: u64,
    /// How often the node had crashed before.
    pub crashes: u32,
}

impl ChannelTruth {
    /// Publications with an idempotency key.
    pub fn uses_of(&self, key: &str) -> &[KeyUse] {
        self.keys.get(key).map_or(&[], Vec::as_slice)
    }

    /// The newest offset.
    pub fn top(&self) -> u64 {
        self.data.last_key_value().map_or(0, |(offset, _)| *offset)
    }

    /// The first offset behind `offset`.
    pub fn next(&self, offset: u64) -> Option<u64> {
        self.data.range(offset + 1..).next().map(|(next, _)| *next)
    }

    /// Loses everything behind an offset, and with it an epoch.
    pub fn lose_behind(&mut self, offset: u64, epoch: &str) {
        self.lost.extend(self.data.split_off(&(offset + 1)));
        self.void_epochs.insert(epoch.to_owned());
    }

    /// Whether a publication is what was committed at its offset.
    ///
    /// # Errors
    /// If it is not.
    pub fn check(&self, channel: &str, offset: u64, data: &[u8]) -> Result<(), String> {
        match self.data.get(&offset) {
            Some(known) if *known == data => Ok(()),
            known => Err(format!(
                "{channel}: {offset} is seen, and {} committed there",
                known.map_or("nothing is", |_| "something else is")
            )),
        }
    }
}

/// All channels.
pub type Truth = BTreeMap<String, ChannelTruth>;
