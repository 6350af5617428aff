//! Errors of a storage, and their remedies.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// The C library's text for `EMFILE`.
const NO_DESCRIPTORS: &str = "Too many open files";
/// The C library's text for `ENOMEM`.
const NO_MEMORY: &str = "Cannot allocate memory";
/// A background job of `RocksDB` has failed.
pub(crate) const FAILED_FLUSH: &str = "a flush or a compaction has failed";

/// An operation of a storage failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageError {
    /// The operation, such as "open the storage".
    pub action: &'static str,
    /// The directory or file of the operation.
    pub path: PathBuf,
    /// Why it failed.
    pub fault: StorageFault,
}

/// Why a storage failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageFault {
    /// Another process has the directory open.
    Locked,
    /// A newer version of Dunlin has written the storage.
    NewerFormat {
        /// The version of the storage's format.
        found: u32,
        /// The newest version that this version of Dunlin reads.
        known: u32,
    },
    /// The directory contains files, but not the file that marks a storage.
    NotStorage,
    /// A file without which nothing can be read is missing.
    MissingFile(String),
    /// A part of the write-ahead log that was once complete is missing, or cannot be read.
    DamagedLog(String),
    /// Stored bytes differ from the written ones.
    Corruption(String),
    /// No space on the device.
    DiskFull(String),
    /// The file system is read-only, or the process has no permission to write.
    NotWritable(String),
    /// The device or the file system failed.
    Io(String),
    /// The wall clock is far ahead of the end of the last run.
    ClockAhead {
        /// The difference.
        ahead_ms: u64,
    },
    /// The kernel has reserved fewer huge pages than the options require.
    FewHugePages {
        /// The size of a page.
        page_bytes: usize,
        /// Number of free pages.
        free: u64,
        /// Number of required pages.
        needed: u64,
    },
    /// An earlier write failed, so no further writes are attempted.
    Poisoned,
    /// The directory is not empty.
    NotEmpty,
    /// The backup does not exist.
    NoBackup,
    /// This program is built without the storage.
    NotBuilt,
}

impl StorageFault {
    /// The remedy, for the error message.
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Locked => "stop the process that uses it, or give this one another directory",
            Self::NewerFormat { .. } => "run the newer version of Dunlin, or restore a backup that this version made",
            Self::NotStorage => "give an empty directory, or one that Dunlin has written",
            Self::MissingFile(_) => {
                "put the file back, or restore a backup into another directory; nothing was changed"
            }
            Self::DamagedLog(_) => {
                "restore a backup, or keep what stands before the damage by opening it once with `storage.damaged_log` \
                 keep_until_damage"
            }
            Self::Corruption(_) => "check the disk, then restore a backup",
            Self::DiskFull(_) => {
                "free space on the file system, more than the storage has in its write-ahead log; then it writes again"
            }
            Self::NotWritable(_) => {
                "mount the file system for writing and check the directory's owner; then it writes again"
            }
            Self::Io(_) => {
                "check the disk, the kernel's log and the limit on open files; restart after a fault of the disk"
            }
            Self::ClockAhead { .. } => {
                "check the clock; if it is right, start once with --accept-clock, or with a higher \
                 `storage.clock_ahead_limit`: what has expired by this clock is removed, and `dunlin storage export` \
                 prints it before"
            }
            Self::FewHugePages { .. } => {
                "reserve more, with the sysctl vm.nr_hugepages for pages of 2 MiB, or set `storage.huge_page_size` to 0"
            }
            Self::Poisoned => "see the first failure, remove its cause, then restart",
            Self::NotEmpty => "give an empty directory",
            Self::NoBackup => "list the backups in the directory, and check its path",
            Self::NotBuilt => {
                "build it with the feature `storage` of dunlin-game (or of dunlin), or remove `storage.path` and the namespace \
                 options that need it: `durability`, `room.survival` and `room.paths`"
            }
        }
    }

    /// Whether it ends without a repair of what is stored. The storage then writes again.
    pub(crate) fn can_pass(&self) -> bool {
        match self {
            Self::DiskFull(_) | Self::NotWritable(_) => true,
            // RocksDB does not tell the error of a flush. What it has not flushed is in the write-ahead log.
            Self::Io(text) => [NO_DESCRIPTORS, NO_MEMORY, FAILED_FLUSH].iter().any(|part| text.contains(part)),
            _ => false,
        }
    }

    /// As [`StorageFault::can_pass`], at a start. A directory that cannot be written then is an error of the operator.
    pub(crate) fn can_pass_at_start(&self) -> bool {
        self.can_pass() && !matches!(self, Self::NotWritable(_))
    }

    /// The label in metrics.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Locked => "locked",
            Self::NewerFormat { .. } => "newer_format",
            Self::NotStorage => "not_storage",
            Self::MissingFile(_) => "missing_file",
            Self::DamagedLog(_) => "damaged_log",
            Self::Corruption(_) => "corruption",
            Self::DiskFull(_) => "disk_full",
            Self::NotWritable(_) => "not_writable",
            Self::Io(_) => "io",
            Self::ClockAhead { .. } => "clock_ahead",
            Self::FewHugePages { .. } => "few_huge_pages",
            Self::Poisoned => "poisoned",
            Self::NotEmpty => "not_empty",
            Self::NoBackup => "no_backup",
            Self::NotBuilt => "not_built",
        }
    }

    /// Converts an error of `RocksDB`. Its interface provides the kind of an error and a text, which ends with the C
    /// library's text for `errno`.
    #[cfg(feature = "rocksdb")]
    pub(crate) fn of_rocksdb(error: &rocksdb::Error) -> Self {
        let text = error.to_string();
        let mentions = |part: &str| text.contains(part);
        if mentions("No space left on device") || mentions("Disk quota exceeded") || mentions("NoSpace") {
            Self::DiskFull(text)
        } else if mentions("Read-only file system")
            || mentions("Permission denied")
            || mentions("Operation not permitted")
        {
            Self::NotWritable(text)
        } else if mentions("lock ") && mentions("LOCK") || mentions("lock hold by current process") {
            Self::Locked
        } else if error.kind() == rocksdb::ErrorKind::Corruption {
            Self::Corruption(text)
        } else {
            Self::Io(text)
        }
    }

    pub(crate) fn of_io(error: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        let text = error.to_string();
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::DiskFull(text),
            ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => Self::NotWritable(text),
            _ => Self::Io(text),
        }
    }
}

impl StorageError {
    pub(crate) fn new(action: &'static str, path: &Path, fault: StorageFault) -> Self {
        Self { action, path: path.to_path_buf(), fault }
    }

    #[cfg(feature = "rocksdb")]
    pub(crate) fn rocksdb(action: &'static str, path: &Path, error: &rocksdb::Error) -> Self {
        Self::new(action, path, StorageFault::of_rocksdb(error))
    }

    pub(crate) fn io(action: &'static str, path: &Path, error: &std::io::Error) -> Self {
        Self::new(action, path, StorageFault::of_io(error))
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(text, "cannot {} {}: {}; {}", self.action, self.path.display(), self.fault, self.fault.remedy())
    }
}

impl fmt::Display for StorageFault {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked => write!(text, "another process has it open"),
            Self::NewerFormat { found, known } => {
                write!(text, "its format has version {found}, and this Dunlin reads versions up to {known}")
            }
            Self::NotStorage => write!(text, "the directory has files that are no storage of Dunlin"),
            Self::MissingFile(name) => write!(text, "the file {name} of the storage is missing"),
            Self::DamagedLog(why) => write!(text, "the write-ahead log is damaged ({why})"),
            Self::Corruption(why) => write!(text, "stored bytes are damaged ({why})"),
            Self::DiskFull(why) => write!(text, "the disk is full ({why})"),
            Self::NotWritable(why) => write!(text, "it cannot be written ({why})"),
            Self::Io(why) => write!(text, "{why}"),
            Self::ClockAhead { ahead_ms } => {
                write!(text, "the clock is {} days after the end of the last run", ahead_ms / 86_400_000)
            }
            Self::FewHugePages { page_bytes, free, needed } => {
                write!(text, "{needed} huge pages of {page_bytes} bytes are needed, and {free} are free")
            }
            Self::Poisoned => write!(text, "a write failed before"),
            Self::NotEmpty => write!(text, "the directory is not empty"),
            Self::NoBackup => write!(text, "there is no backup"),
            Self::NotBuilt => write!(text, "this program is built without the storage"),
        }
    }
}

impl std::error::Error for StorageError {}
