//! Log events of the storage and of its backups.

use std::path::Path;

use dunlin_storage::{SpaceShortage, StorageError};
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

/// The storage of `dunlin dev` could not be written at the end.
pub struct RoomsNotHandedOver<'a> {
    /// The error.
    pub error: &'a StorageError,
}

impl RoomsNotHandedOver<'_> {
    /// Logs it.
    pub fn emit(&self) {
        let why = self.error.to_string();
        error!(why = %Outside(&why), remedy = self.error.fault.remedy(), "the next server begins all rooms anew");
    }
}

/// Free space is short, and publications are refused until there is enough.
pub struct SpaceShort<'a> {
    /// The shortage.
    pub shortage: &'a SpaceShortage,
    /// The namespaces with `durability`, which refuse publications from now on.
    pub namespaces: &'a [String],
}

impl SpaceShort<'_> {
    /// Logs it.
    pub fn emit(&self) {
        let SpaceShortage { path, free_bytes, reserve_bytes } = self.shortage;
        let (path, namespaces) = (path.to_string_lossy(), self.namespaces.join(", "));
        warn!(path = %Outside(&path), free_bytes, free_space_min = reserve_bytes, namespaces = %Outside(&namespaces),
            remedy = SpaceShortage::REMEDY,
            "free space is short; these namespaces refuse publications with error 111 until there is enough");
    }
}

/// Free space is not short any more.
pub struct SpaceEnough<'a> {
    /// The namespaces with `durability`, which accept publications again.
    pub namespaces: &'a [String],
}

impl SpaceEnough<'_> {
    /// Logs it.
    pub fn emit(&self) {
        let namespaces = self.namespaces.join(", ");
        info!(namespaces = %Outside(&namespaces), "there is enough free space again; these namespaces accept publications");
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
