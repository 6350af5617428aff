//! Publications and rooms on disk: `RocksDB` behind one writer and bounded readers.
//!
//! - Shards queue publications with [`Storage::store`]. The writer's thread takes all queued publications, writes them
//!   as one batch, and answers through [`Completions`]. It answers when the batch is in the write-ahead log, and synced
//!   if one of its publications requires that.
//! - [`Storage::load`] reads a part of a channel on a reader's thread.
//! - After a failed write, the storage is *poisoned*: it answers all further writes with
//!   [`dunlin_engine::log::LogError::Broken`]. Reads continue to work, and acknowledged publications remain. If the
//!   cause can pass, such as a full disk, the writer opens the database again when it has passed.
//! - A publication contains its expiry and the offset of the previous publication. So a page shows which publications
//!   are missing, regardless of what compactions have removed.
//! - A channel gets a new epoch when clients may have received publications that the storage has lost: after a power
//!   loss if its last write was not synced, after a damage, and after a restore.
//!
//! Keys and records are laid out in `keys.rs` and `records.rs`. `RocksDB` occurs in no other crate.
//!
//! Without the feature `rocksdb`, the same types exist, and every function that would open a directory fails with
//! [`StorageFault::NotBuilt`]. So a game that stores nothing need not compile `RocksDB`, which takes longer than the rest.
//! The exception is [`StorageOptions::is_development`]: such a [`Storage`] hands rooms from one run of a game to the next.

#![cfg_attr(not(feature = "rocksdb"), allow(dead_code, reason = "what reads and writes the directory is not compiled"))]

#[cfg(feature = "rocksdb")]
mod backup;
#[cfg(feature = "rocksdb")]
mod checksum;
mod counters;
#[cfg(feature = "rocksdb")]
mod database;
mod disk_limits;
mod entries;
#[cfg(feature = "rocksdb")]
mod epoch;
mod error;
#[cfg(feature = "rocksdb")]
mod failed_commit;
mod family;
#[cfg_attr(not(feature = "rocksdb"), allow(dead_code, reason = "only a directory that is opened is checked"))]
mod files;
mod free_space;
#[cfg(feature = "rocksdb")]
mod heads;
#[cfg(feature = "rocksdb")]
mod inspect;
#[cfg(feature = "rocksdb")]
mod kept_bytes;
mod keys;
mod options;
mod paths;
#[cfg(feature = "rocksdb")]
mod read_access;
#[cfg(feature = "rocksdb")]
mod read_checkpoints;
#[cfg(feature = "rocksdb")]
mod read_paths;
#[cfg(feature = "rocksdb")]
mod reader;
mod records;
mod report;
mod request;
#[cfg(feature = "rocksdb")]
mod shared_database;
mod state;
#[cfg(feature = "rocksdb")]
mod storage;
#[cfg(feature = "rocksdb")]
mod storage_clock;
mod threads;
#[cfg(any(test, not(feature = "rocksdb")))]
mod without_rocksdb;
#[cfg(feature = "rocksdb")]
mod write_stall;
#[cfg(feature = "rocksdb")]
mod writer;

/// Whether this program can open a storage.
pub const IS_BUILT: bool = cfg!(feature = "rocksdb");

#[cfg(feature = "rocksdb")]
pub use backup::{backups, keep_backups, restore, verify_backups};
pub use counters::StorageCounts;
pub use disk_limits::{DiskLimits, NamespaceDiskLimits, NamespaceOf};
pub use entries::{AccessEntry, EntryBatch, RoomCheckpoint};
pub use error::{StorageError, StorageFault};
pub use free_space::SpaceShortage;
#[cfg(feature = "rocksdb")]
pub use inspect::{Inspection, encoded_again};
pub use options::{ClockSource, DamagedLogPolicy, PageLimits, QueueLimits, StartPolicy, StorageOptions};
pub use paths::{PathBlock, PathCompressor, PathOwner, PathPage, PathPlace, PathQuery, PathsRead};
pub use report::{BackupInfo, FamilySize, LastRun, StorageReport};
pub use request::{Completions, EntriesDone, LoadRequest, StoreRequest};
pub use state::{FORMAT_VERSION, is_storage};
#[cfg(feature = "rocksdb")]
pub use storage::Storage;
#[cfg(not(feature = "rocksdb"))]
pub use without_rocksdb::{
    UnbuiltInspection as Inspection, UnbuiltStorage as Storage, backups, keep_backups, restore, verify_backups,
};
