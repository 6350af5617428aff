//! Counters of a storage, for metrics and `/health`.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use dunlin_engine::counters::CounterMetric;

use crate::{disk_limits::Totals, error::StorageError};

/// Declares the counters once: as they are counted, as they are read, and as metrics. A counter of `metrics` is a metric
/// by itself; the `others` are parts of metrics with labels, or times.
macro_rules! counters {
    (
        metrics { $($metric:ident = $name:literal $help:literal;)* }
        others { $($(#[$doc:meta])* $other:ident,)* }
    ) => {
        /// Counters since the start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct StorageCounts {
            $(
                #[doc = $help]
                #[allow(clippy::doc_markdown, reason = "the same words stand in the exposition")]
                pub $metric: u64,
            )*
            $($(#[$doc])* pub $other: u64,)*
        }

        impl StorageCounts {
            /// The counters that are metrics by themselves.
            pub const METRICS: [CounterMetric<Self>; [$($name),*].len()] = [$(
                CounterMetric {
                    field: stringify!($metric),
                    name: $name,
                    help: $help,
                    value: |counts| counts.$metric,
                },
            )*];
        }

        #[derive(Debug, Default)]
        pub(crate) struct StorageCounters {
            $(pub(crate) $metric: AtomicU64,)*
            $(pub(crate) $other: AtomicU64,)*
            pub(crate) history_bytes: Mutex<Totals>,
            /// The free space that ends a shortage; 0 without one.
            pub(crate) space_needed: AtomicU64,
            last_read_fault: Mutex<Option<StorageError>>,
        }

        impl StorageCounters {
            pub(crate) fn counts(&self) -> StorageCounts {
                StorageCounts {
                    $($metric: self.$metric.load(Ordering::Relaxed),)*
                    $($other: self.$other.load(Ordering::Relaxed),)*
                }
            }
        }
    };
}

counters! {
    metrics {
        publications = "dunlin_storage_publications_total" "Publications committed to the storage.";
        publication_bytes = "dunlin_storage_publication_bytes_total" "Bytes of the records of these publications.";
        commits = "dunlin_storage_commits_total" "Group commits. Each writes the publications that all shards have queued.";
        syncs = "dunlin_storage_syncs_total" "Group commits that were synced, because one of their publications is of a namespace with disk_sync.";
        pages = "dunlin_storage_pages_total" "Pages of history loaded from the storage.";
        page_publications = "dunlin_storage_page_publications_total" "Publications in these pages.";
        refused = "dunlin_storage_refused_total" "Publications and loads refused with error 111, because a queue of the storage was full.";
        read_faults = "dunlin_storage_read_faults_total" "Reads from the storage that failed.";
        evictions = "dunlin_storage_history_evictions_total" "How often the oldest part of a stored history was evicted because of history_disk_limit.";
        resumed = "dunlin_storage_resumed_total" "How often the storage wrote again after a failed write, because the cause had passed.";
    }
    others {
        /// Time that the writer spent in group commits.
        commit_us,
        /// Duration of the longest group commit.
        commit_us_max,
        /// Publications that were refused because they would have left less free space than the reserve.
        refused_low_space,
        /// Publications that were refused because of the limit of their channel.
        refused_channel_full,
        /// Publications that were refused because of the limit of their namespace.
        refused_namespace_full,
        /// Publications that were refused because of the limit of the storage.
        refused_node_full,
    }
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
}
