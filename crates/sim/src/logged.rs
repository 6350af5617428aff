//! A node whose channels have a log. The log, a disk or a broker, is simulated with delays, failures and crashes. Only
//! the simulator configures namespaces this way. Clients and publishers are checked against what the log committed.

mod actor;
mod client;
mod flaw;
mod keys;
mod world;

pub use client::{BroadcastKind, LogClient, SeenBroadcast, check_complete, is_without_history};
pub use flaw::LogFlaw;
pub use keys::{KEY_TAG, REMOVAL_TAG, SeenKeys, data_of_key, is_removal, key_of, keyed_data};
pub use world::LoggedWorld;

use std::collections::{BTreeMap, BTreeSet};

/// The publications that the log committed in one channel, by offset. Expired ones are never removed.
#[derive(Debug, Default)]
pub struct ChannelTruth {
    pub data: BTreeMap<u64, Vec<u8>>,
    /// Publications by idempotency key, oldest first.
    pub keys: BTreeMap<String, Vec<KeyUse>>,
    /// Committed publications that were lost when the stream was truncated.
    pub lost: Vec<(u64, Vec<u8>)>,
    /// Epochs in which publications were lost. Their positions are invalid.
    pub invalid_epochs: BTreeSet<String>,
    /// The keys of publications up to this offset may be gone, because the history was removed or has expired.
    pub keys_gone_through: u64,
    /// The last offset when the stream was emptied.
    pub emptied_through: u64,
}

/// A publication with an idempotency key.
#[derive(Clone, Copy, Debug)]
pub struct KeyUse {
    pub offset: u64,
    /// Until then, no other publication with the key may be committed.
    pub until_us: u64,
    /// The number of crashes of the node before it.
    pub crashes: u32,
}

impl ChannelTruth {
    /// All publications with an idempotency key.
    pub fn uses_of(&self, key: &str) -> &[KeyUse] {
        self.keys.get(key).map_or(&[], Vec::as_slice)
    }

    /// The newest offset.
    pub fn top(&self) -> u64 {
        self.data.last_key_value().map_or(0, |(offset, _)| *offset)
    }

    /// The first committed offset after `offset`.
    pub fn next(&self, offset: u64) -> Option<u64> {
        self.data.range(offset + 1..).next().map(|(next, _)| *next)
    }

    /// Removes everything after an offset, and invalidates epochs.
    pub fn truncate_after(&mut self, offset: u64, epochs: &BTreeSet<String>) {
        self.lost.extend(self.data.split_off(&(offset + 1)));
        self.invalid_epochs.extend(epochs.iter().cloned());
    }

    /// Checks that a publication was committed at its offset.
    ///
    /// # Errors
    /// If it is not.
    pub fn check(&self, channel: &str, offset: u64, data: &[u8]) -> Result<(), String> {
        match self.data.get(&offset) {
            Some(known) if *known == data => Ok(()),
            known => Err(format!(
                "{channel}: {offset} is received, but {} committed there",
                known.map_or("nothing is", |_| "another publication is")
            )),
        }
    }
}

pub type Truth = BTreeMap<String, ChannelTruth>;
