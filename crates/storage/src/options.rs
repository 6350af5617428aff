//! Options of a storage.

use std::path::PathBuf;

use dunlin_queues::declared::{STORAGE_READS, STORAGE_WRITES};

/// The options with which a storage is opened.
#[derive(Clone, Debug)]
pub struct StorageOptions {
    /// The directory. It is created if it is missing; its parent must exist.
    pub path: PathBuf,
    /// Cache of uncompressed blocks, indexes and filters. 64 MiB by default.
    pub block_cache_bytes: usize,
    /// Memory for writes that are in the write-ahead log and not yet in a table, over all column families. 64 MiB by
    /// default.
    pub memtable_bytes: usize,
    /// Maximum size of the write-ahead log, which bounds the duration of a start after a crash. 256 MiB by default.
    pub wal_bytes_max: u64,
    /// Memtables are allocated from pages of this size, which the kernel must have reserved. 0, the default: from the
    /// heap.
    pub huge_page_bytes: usize,
    /// The kernel writes back unsynced bytes of the write-ahead log in steps of this size, so that no step is long.
    /// 1 MiB by default.
    pub wal_writeback_bytes: u64,
    /// Free space of the file system, in bytes, that publications must leave: a publication that would leave less is
    /// refused. 256 MiB by default; 0: no reserve.
    pub free_space_min_bytes: u64,
    /// Maximum number of open files. 512 by default.
    pub open_files_max: u16,
    /// Number of reader threads. 2 by default.
    pub readers: u8,
    /// See [`QueueLimits`].
    pub queues: QueueLimits,
    /// See [`PageLimits`].
    pub pages: PageLimits,
    /// Number of channel heads that the writer caches; at least those of one group commit. 65,536 by default.
    pub cached_heads_max: usize,
    /// The reaction to a part of the write-ahead log that cannot be read.
    pub damaged_log: DamagedLogPolicy,
    /// Maximum time by which the wall clock may be ahead of the end of the last run at a start. With a wrong clock,
    /// entries with a time to live would expire at once. 400 days by default.
    pub clock_ahead_ms_max: u64,
    /// What happens if the files cannot be opened for a reason that can pass.
    pub start: StartPolicy,
    /// The source of the time.
    pub clock: ClockSource,
    /// Whether the storage is one of `dunlin dev`: a room whose checkpoint cannot be used begins anew. Without `RocksDB`,
    /// such a storage has only rooms, and writes them to a file when it is closed. `false` by default.
    pub is_development: bool,
}

/// Limits on queued requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Maximum number of requests that wait for the writer. 65,536 by default.
    pub writes_max: usize,
    /// Maximum number of bytes of requests that wait for the writer. 64 MiB by default.
    pub write_bytes_max: usize,
    /// Maximum number of requests that wait for a reader. 16,384 by default.
    pub reads_max: usize,
    /// Maximum number of requests in one group commit. 4,096 by default.
    pub batch_writes_max: usize,
    /// Maximum number of bytes of the requests in one group commit. 4 MiB by default.
    pub batch_bytes_max: usize,
}

/// Limits on the result of a load. Longer parts take several loads, so that loads of other channels need not wait for
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimits {
    /// Maximum number of publications. 1,000 by default.
    pub publications_max: usize,
    /// Maximum number of bytes of the publications' records; a page always contains at least one publication. 1 MiB by
    /// default.
    pub bytes_max: usize,
}

/// The reaction to a part of the write-ahead log that was once complete and cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DamagedLogPolicy {
    /// The storage is not opened, except after a power loss. Then the unsynced end of the log may be damaged, and
    /// [`DamagedLogPolicy::KeepUntilDamage`] applies.
    #[default]
    Refuse,
    /// The part of the log before the damage is kept. All channels get a new epoch, so that clients that have received
    /// later publications detect the loss.
    KeepUntilDamage,
}

/// What happens if the files cannot be opened for a reason that can pass: a full disk, no file descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartPolicy {
    /// The storage is not opened.
    #[default]
    Fail,
    /// The storage refuses all requests until the reason has passed, as after a failed write.
    OpenLater,
}

/// The source of the time.
#[derive(Clone, Copy, Debug, Default)]
pub enum ClockSource {
    /// The wall clock at the start, and the monotonic clock afterwards, so that a jump of the wall clock expires
    /// nothing.
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
            free_space_min_bytes: 256 << 20,
            open_files_max: 512,
            readers: 2,
            queues: QueueLimits::default(),
            pages: PageLimits::default(),
            cached_heads_max: 65_536,
            damaged_log: DamagedLogPolicy::default(),
            clock_ahead_ms_max: 400 * 24 * 60 * 60 * 1_000,
            start: StartPolicy::default(),
            clock: ClockSource::default(),
            is_development: false,
        }
    }
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self {
            writes_max: STORAGE_WRITES.messages.max,
            write_bytes_max: STORAGE_WRITES.bytes_max(),
            reads_max: STORAGE_READS.messages.max,
            batch_writes_max: 4_096,
            batch_bytes_max: 4 << 20,
        }
    }
}

impl Default for PageLimits {
    fn default() -> Self {
        Self { publications_max: 1_000, bytes_max: 1 << 20 }
    }
}
