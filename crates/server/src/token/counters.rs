//! What is counted about tokens.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Fault;

/// Counts for the page of metrics. Only grow, but for the gauge.
#[derive(Debug, Default)]
pub struct TokenCounters {
    accepted: AtomicU64,
    expired: AtomicU64,
    refused: AtomicU64,
    unavailable: AtomicU64,
    cache_hits: AtomicU64,
    cache_misses: AtomicU64,
    signatures: AtomicU64,
    waiting: AtomicU64,
    fetches: AtomicU64,
    fetches_failed: AtomicU64,
}

/// The counts at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCounts {
    /// Tokens that count.
    pub accepted: u64,
    /// Tokens past their time, or before it.
    pub expired: u64,
    /// Tokens that do not count.
    pub refused: u64,
    /// Tokens that nobody could judge: keys could not be fetched, or too many waited.
    pub unavailable: u64,
    /// Tokens with signatures by public keys that had been verified before.
    pub cache_hits: u64,
    /// Those that had not.
    pub cache_misses: u64,
    /// Signatures by public keys that were checked.
    pub signatures: u64,
    /// Tokens that wait for their signature to be checked, or for keys.
    pub waiting: u64,
    /// Key sets that were fetched.
    pub fetches: u64,
    /// Key sets that could not be fetched.
    pub fetches_failed: u64,
}

impl TokenCounters {
    /// The counts now.
    pub fn now(&self) -> TokenCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        TokenCounts {
            accepted: read(&self.accepted),
            expired: read(&self.expired),
            refused: read(&self.refused),
            unavailable: read(&self.unavailable),
            cache_hits: read(&self.cache_hits),
            cache_misses: read(&self.cache_misses),
            signatures: read(&self.signatures),
            waiting: read(&self.waiting),
            fetches: read(&self.fetches),
            fetches_failed: read(&self.fetches_failed),
        }
    }

    pub(super) fn count_outcome<T>(&self, outcome: &Result<T, Fault>) {
        add(match outcome {
            Ok(_) => &self.accepted,
            Err(Fault::Time) => &self.expired,
            Err(fault) if fault.is_temporary() => &self.unavailable,
            Err(_) => &self.refused,
        });
    }

    pub(super) fn count_look_up(&self, is_hit: bool) {
        add(if is_hit { &self.cache_hits } else { &self.cache_misses });
    }

    pub(super) fn count_signature(&self) {
        add(&self.signatures);
    }

    pub(super) fn count_fetch(&self, is_good: bool) {
        add(if is_good { &self.fetches } else { &self.fetches_failed });
    }

    /// One more waits, unless as many do as may.
    pub(super) fn admit(&self, waiting_max: usize) -> bool {
        let admit = |waiting| (waiting < waiting_max as u64).then_some(waiting + 1);
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, admit).is_ok()
    }

    pub(super) fn dismiss(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}
