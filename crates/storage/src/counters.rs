//! Counters of a storage, for metrics and `/health`.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use crate::{disk_limits::Totals, error::StorageError};

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageCounts {
    /// Committed publications.
    pub publications: u64,
    /// Bytes of their records.
    pub publication_bytes: u64,
    /// Group commits.
    pub commits: u64,
    /// Synced group commits.
    pub syncs: u64,
    /// Time that the writer spent in group commits.
    pub commit_us: u64,
    /// Duration of the longest group commit.
    pub commit_us_max: u64,
    /// Loaded pages.
    pub pages: u64,
    /// Publications in loaded pages.
    pub page_publications: u64,
    /// Requests that were refused because a queue was full.
    pub refused: u64,
    /// Reads that failed.
    pub read_faults: u64,
    /// How often the storage wrote again after a failed write.
    pub resumed: u64,
    /// Publications that were refused because they would have left less free space than the reserve.
    pub refused_low_space: u64,
    /// Publications that were refused because of the limit of their channel.
    pub refused_channel_full: u64,
    /// Publications that were refused because of the limit of their namespace.
    pub refused_namespace_full: u64,
    /// Publications that were refused because of the limit of the storage.
    pub refused_node_full: u64,
    /// How often the oldest part of a history was evicted because of the limit of its channel.
    pub evictions: u64,
}

#[derive(Debug, Default)]
pub(crate) struct StorageCounters {
    pub(crate) publications: AtomicU64,
    pub(crate) publication_bytes: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) commit_us: AtomicU64,
    pub(crate) commit_us_max: AtomicU64,
    pub(crate) pages: AtomicU64,
    pub(crate) page_publications: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) resumed: AtomicU64,
    pub(crate) refused_low_space: AtomicU64,
    pub(crate) refused_channel_full: AtomicU64,
    pub(crate) refused_namespace_full: AtomicU64,
    pub(crate) refused_node_full: AtomicU64,
    pub(crate) evictions: AtomicU64,
    pub(crate) history_bytes: Mutex<Totals>,
    /// The free space that ends a shortage; 0 without one.
    pub(crate) space_needed: AtomicU64,
    read_faults: AtomicU64,
    last_read_fault: Mutex<Option<StorageError>>,
}

impl StorageCounters {
    pub(crate) fn add(counter: &AtomicU64, number: u64) {
        counter.fetch_add(number, Ordering::Relaxed);
    }

    pub(crate) fn note_read_fault(&self, error: StorageError) -> StorageError {
        Self::add(&self.read_faults, 1);
        *self.last_read_fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
        error
    }

    pub(crate) fn last_read_fault(&self) -> Option<StorageError> {
        self.last_read_fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn counts(&self) -> StorageCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StorageCounts {
            publications: get(&self.publications),
            publication_bytes: get(&self.publication_bytes),
            commits: get(&self.commits),
            syncs: get(&self.syncs),
            commit_us: get(&self.commit_us),
            commit_us_max: get(&self.commit_us_max),
            pages: get(&self.pages),
            page_publications: get(&self.page_publications),
            refused: get(&self.refused),
            read_faults: get(&self.read_faults),
            resumed: get(&self.resumed),
            refused_low_space: get(&self.refused_low_space),
            refused_channel_full: get(&self.refused_channel_full),
            refused_namespace_full: get(&self.refused_namespace_full),
            refused_node_full: get(&self.refused_node_full),
            evictions: get(&self.evictions),
        }
    }
}
