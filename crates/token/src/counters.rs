//! Counters about tokens.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use dunlin_queues::Queue;

use super::TokenFault;

/// Counters for the metrics page. All are monotonic except the gauge `waiting`.
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
    waiting_bytes: AtomicUsize,
    fetches: AtomicU64,
    fetches_failed: AtomicU64,
}

/// A snapshot of the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCounts {
    /// Valid tokens.
    pub accepted: u64,
    /// Expired tokens, and tokens that are not valid yet.
    pub expired: u64,
    /// Invalid tokens.
    pub refused: u64,
    /// Tokens that could not be verified, because a key set could not be fetched or the queue was full.
    pub unavailable: u64,
    /// Tokens with public-key signatures that were found in the cache.
    pub cache_hits: u64,
    /// Tokens with public-key signatures that were not found in the cache.
    pub cache_misses: u64,
    /// Verified public-key signatures.
    pub signatures: u64,
    /// Tokens that wait for verification or for a key set.
    pub waiting: u64,
    /// Fetched key sets.
    pub fetches: u64,
    /// Failed fetches of key sets.
    pub fetches_failed: u64,
}

impl TokenCounters {
    /// The current values.
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

    pub(super) fn count_outcome<T>(&self, outcome: &Result<T, TokenFault>) {
        add(match outcome {
            Ok(_) => &self.accepted,
            Err(TokenFault::Time) => &self.expired,
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

    /// Counts one more waiting token, unless a bound of the queue is reached.
    pub(super) fn admit(&self, bytes: usize, queue: &Queue) -> bool {
        let admit = |waiting| (waiting < queue.messages.max as u64).then_some(waiting + 1);
        if self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, admit).is_err() {
            return false;
        }
        let fits = self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= queue.bytes_max();
        if !fits {
            self.dismiss(bytes);
        }
        fits
    }

    pub(super) fn dismiss(&self, bytes: usize) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use dunlin_queues::declared::TOKENS;

    use super::*;

    #[test]
    fn waiting_tokens_are_bounded_in_number_and_bytes() {
        let (counters, queue) = (TokenCounters::default(), TOKENS.with_messages(2));
        assert!(counters.admit(1, &queue) && counters.admit(1, &queue), "at the limit");
        assert!(!counters.admit(1, &queue), "past it");
        counters.dismiss(1);
        assert!(!counters.admit(queue.bytes_max(), &queue), "past the bytes");
        assert!(counters.admit(queue.bytes_max() - 1, &queue), "at the limit");
    }
}
