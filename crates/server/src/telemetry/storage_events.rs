//! Log events of the storage and of its backups.

use std::path::Path;

use dunlin_storage::StorageError;
use tracing::{error, info, warn};

use super::log::Outside;
use crate::serve::MadeBackup;

/// A write to the storage failed, and nothing is stored until the cause has passed.
pub struct StorageFailed<'a> {
    /// The error.
    pub error: &'a StorageError,
    /// The namespaces with `durability`, which refuse publications from now on.
    pub namespaces: &'a [String],
}

impl StorageFailed<'_> {
    /// Logs it.
    pub fn emit(&self) {
        let (path, why) = (self.error.path.to_string_lossy(), self.error.to_string());
        let namespaces = self.namespaces.join(", ");
        error!(path = %Outside(&path), fault = self.error.fault.label(), why = %Outside(&why),
            namespaces = %Outside(&namespaces), remedy = self.error.fault.remedy(),
            "the storage failed; these namespaces refuse publications until the cause has passed");
    }
}

/// The cause of a failed write has passed.
pub struct StorageResumed<'a> {
    /// The namespaces with `durability`, which accept publications again.
    pub namespaces: &'a [String],
}

impl StorageResumed<'_> {
    /// Logs it.
    pub fn emit(&self) {
        let namespaces = self.namespaces.join(", ");
        warn!(namespaces = %Outside(&namespaces), "the storage writes again; these namespaces accept publications");
    }
}

/// A backup was made.
pub struct BackupMade<'a> {
    /// The backup.
    pub made: &'a MadeBackup,
}

impl BackupMade<'_> {
    /// Logs it.
    pub fn emit(&self) {
        let MadeBackup { directory, number, files, bytes, duration_ms, .. } = self.made;
        info!(directory = %Outside(directory), number, files, bytes, duration_ms, "backup made");
    }
}

/// A backup failed.
pub struct BackupFailed<'a> {
    /// The directory of the backups.
    pub directory: &'a Path,
    /// The error.
    pub error: &'a StorageError,
}

impl BackupFailed<'_> {
    /// Logs it.
    pub fn emit(&self) {
        let (directory, why) = (self.directory.to_string_lossy(), self.error.to_string());
        error!(directory = %Outside(&directory), why = %Outside(&why), remedy = self.error.fault.remedy(), "backup failed");
    }
}

/// A backup was made, but older ones than `storage.backup.keep` could not be deleted.
pub struct OldBackupsKept<'a> {
    /// The directory of the backups.
    pub directory: &'a Path,
    /// The error.
    pub error: &'a StorageError,
}

impl OldBackupsKept<'_> {
    /// Logs it.
    pub fn emit(&self) {
        let (directory, why) = (self.directory.to_string_lossy(), self.error.to_string());
        error!(directory = %Outside(&directory), why = %Outside(&why), remedy = self.error.fault.remedy(),
            "old backups could not be deleted");
    }
}
