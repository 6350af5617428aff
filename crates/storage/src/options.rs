//! What a storage is opened with.

use std::path::PathBuf;

/// How a storage is opened.
#[derive(Clone, Debug)]
pub struct StorageOptions {
    /// The directory. It is created if it is missing; its parent must exist.
    pub path: PathBuf,
    /// Cache of uncompressed blocks, indexes and filters. 64 MiB by default.
    pub block_cache_bytes: usize,
    /// Memory for writes that are in the write-ahead log and not yet in a table, over all column families. 64 MiB by
    /// default.
    pub memtable_bytes: usize,
    /// The write-ahead log grows to this size at most, which bounds the time of a start after a crash. 256 MiB by default.
    pub wal_bytes_max: u64,
    /// Memtables are allocated from pages of this size, which the kernel must have reserved. 0, the default: from the heap.
    pub huge_page_bytes: usize,
    /// The kernel writes back unsynced bytes of the write-ahead log in steps of this size, so that no step is long.
    /// 1 MiB by default.
    pub wal_writeback_bytes: u64,
    /// Files that are open at a time. 512 by default.
    pub open_files_max: u16,
    /// Threads that read. 2 by default.
    pub readers: u8,
    /// See [`QueueLimits`].
    pub queues: QueueLimits,
    /// See [`PageLimits`].
    pub pages: PageLimits,
    /// Heads of channels that the writer keeps in memory; at least those of one group commit. 65,536 by default.
    pub cached_heads_max: usize,
    /// What happens when a part of the write-ahead log cannot be read.
    pub damaged_log: DamagedLogPolicy,
    /// The wall clock may be ahead of the last run's end by so much at a start. What has a time to live would expire at
    /// once if the clock were wrong. 400 days by default.
    pub clock_ahead_ms_max: u64,
    /// Where the time comes from.
    pub clock: ClockSource,
}

/// Bounds on what waits for a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Requests that wait for the writer. 65,536 by default.
    pub writes_max: usize,
    /// Their bytes. 64 MiB by default.
    pub write_bytes_max: usize,
    /// Requests that wait for a reader. 16,384 by default.
    pub reads_max: usize,
    /// Requests of one group commit. 4,096 by default.
    pub batch_writes_max: usize,
    /// Their bytes. 4 MiB by default.
    pub batch_bytes_max: usize,
}

/// Bounds on what a load answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimits {
    /// Publications. 10,000 by default.
    pub publications_max: usize,
    /// Bytes of their records, but always at least one publication. 16 MiB by default.
    pub bytes_max: usize,
    /// Results of idempotency keys that come with a channel's newest publications. 1,000 by default.
    pub results_max: usize,
}

/// What happens when a part of the write-ahead log cannot be read that was complete once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DamagedLogPolicy {
    /// The storage is not opened, unless the machine lost power: then the end of the log may be damaged where nothing was
    /// synced, and [`DamagedLogPolicy::KeepUntilDamage`] applies.
    #[default]
    Refuse,
    /// What stands before the damage is kept. All channels get a new epoch, so that clients which have seen more notice it.
    KeepUntilDamage,
}

/// Where the time comes from.
#[derive(Clone, Copy, Debug, Default)]
pub enum ClockSource {
    /// The wall clock at the start, the monotonic clock from then on: a wall clock that jumps expires nothing.
    #[default]
    System,
    /// A function that returns Unix time in milliseconds.
    Given(fn() -> u64),
}

impl StorageOptions {
    /// The defaults, with the storage in `path`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            block_cache_bytes: 64 << 20,
            memtable_bytes: 64 << 20,
            wal_bytes_max: 256 << 20,
            huge_page_bytes: 0,
            wal_writeback_bytes: 1 << 20,
            open_files_max: 512,
            readers: 2,
            queues: QueueLimits::default(),
            pages: PageLimits::default(),
            cached_heads_max: 65_536,
            damaged_log: DamagedLogPolicy::default(),
            clock_ahead_ms_max: 400 * 24 * 60 * 60 * 1_000,
            clock: ClockSource::default(),
        }
    }
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self {
            writes_max: 65_536,
            write_bytes_max: 64 << 20,
            reads_max: 16_384,
            batch_writes_max: 4_096,
            batch_bytes_max: 4 << 20,
        }
    }
}

impl Default for PageLimits {
    fn default() -> Self {
        Self { publications_max: 10_000, bytes_max: 16 << 20, results_max: 1_000 }
    }
}
