//! The interface of the storage in a program that is built without `RocksDB`.

#![cfg_attr(test, allow(dead_code, reason = "tests compile it in programs with a storage as well"))]

use std::{convert::Infallible, io::Write, ops::RangeInclusive, path::Path, sync::Arc};

use dunlin_engine::log::LogError;

use crate::{
    counters::StorageCounts,
    disk_limits::DiskLimits,
    entries::RoomCheckpoint,
    error::{StorageError, StorageFault},
    free_space::SpaceShortage,
    options::StorageOptions,
    paths::{PathQuery, PathsRead},
    report::{BackupInfo, FamilySize, StorageReport},
    request::{Completions, EntriesDone, EntryBatch, LoadRequest, StoreRequest},
};

/// An open storage. No value exists, because [`UnbuiltStorage::open`] always fails.
#[derive(Debug)]
pub struct UnbuiltStorage(Infallible);

/// A storage that is only read. No value exists.
#[derive(Debug)]
pub struct UnbuiltInspection(Infallible);

fn not_built<T>(action: &'static str, path: &Path) -> Result<T, StorageError> {
    Err(StorageError::new(action, path, StorageFault::NotBuilt))
}

#[allow(missing_docs, clippy::missing_errors_doc, reason = "storage.rs and its neighbours document these methods")]
impl UnbuiltStorage {
    pub fn open(options: &StorageOptions, _: Arc<dyn Completions>) -> Result<Self, StorageError> {
        not_built("open the storage", &options.path)
    }

    pub fn store(&self, _: StoreRequest) -> Result<(), LogError> {
        match self.0 {}
    }

    pub fn load(&self, _: LoadRequest) -> Result<(), LogError> {
        match self.0 {}
    }

    pub fn trim(&self, _: Arc<str>, _: u64, _: Option<EntriesDone>) {
        match self.0 {}
    }

    pub fn remove(&self, _: Arc<str>) {
        match self.0 {}
    }

    pub fn poison(&self) -> Option<StorageError> {
        match self.0 {}
    }

    pub fn last_read_fault(&self) -> Option<StorageError> {
        match self.0 {}
    }

    pub fn set_disk_limits(&self, _: DiskLimits) {
        match self.0 {}
    }

    pub fn history_bytes(&self) -> Vec<(Option<u16>, u64)> {
        match self.0 {}
    }

    pub fn space_shortage(&self) -> Option<SpaceShortage> {
        match self.0 {}
    }

    pub fn free_bytes(&self) -> Option<u64> {
        match self.0 {}
    }

    pub fn counts(&self) -> StorageCounts {
        match self.0 {}
    }

    pub fn close(&self) {
        match self.0 {}
    }

    pub fn path(&self) -> &Path {
        match self.0 {}
    }

    pub fn write_entries(&self, _: EntryBatch, _: EntriesDone) -> Result<(), LogError> {
        match self.0 {}
    }

    pub fn newest_checkpoint(&self, _: &str, _: u8, _: u64) -> Result<Option<RoomCheckpoint>, StorageError> {
        match self.0 {}
    }

    pub fn checkpoints(
        &self,
        _: &str,
        _: u8,
        _: RangeInclusive<u64>,
        _: usize,
    ) -> Result<Vec<RoomCheckpoint>, StorageError> {
        match self.0 {}
    }

    pub fn rooms_with_checkpoints(&self, _: Option<&str>, _: usize) -> Result<Vec<Box<str>>, StorageError> {
        match self.0 {}
    }

    pub fn read_paths(&self, _: PathQuery, _: PathsRead) -> Result<(), LogError> {
        match self.0 {}
    }

    pub fn check(&self) -> Result<StorageReport, StorageError> {
        match self.0 {}
    }

    pub fn sizes(&self) -> Vec<FamilySize> {
        match self.0 {}
    }

    pub fn each_entry(&self, _: &mut dyn FnMut(&'static str, &str, u64)) -> Result<(), StorageError> {
        match self.0 {}
    }

    pub fn compact(&self) {
        match self.0 {}
    }

    pub fn export(&self, _: Option<&str>, _: &mut dyn Write) -> Result<u64, StorageError> {
        match self.0 {}
    }

    pub fn back_up(&self, _: &Path) -> Result<BackupInfo, StorageError> {
        match self.0 {}
    }
}

#[allow(missing_docs, clippy::missing_errors_doc, reason = "inspect.rs documents these methods")]
impl UnbuiltInspection {
    pub fn open(options: &StorageOptions) -> Result<Self, StorageError> {
        not_built("read the storage", &options.path)
    }

    pub fn check(&self) -> Result<StorageReport, StorageError> {
        match self.0 {}
    }

    pub fn sizes(&self) -> Vec<FamilySize> {
        match self.0 {}
    }

    pub fn each_entry(&self, _: &mut dyn FnMut(&'static str, &str, u64)) -> Result<(), StorageError> {
        match self.0 {}
    }

    pub fn export(&self, _: Option<&str>, _: &mut dyn Write) -> Result<u64, StorageError> {
        match self.0 {}
    }
}

/// Fails: [`StorageFault::NotBuilt`].
///
/// # Errors
/// Always.
pub fn backups(directory: &Path) -> Result<Vec<BackupInfo>, StorageError> {
    not_built("list the backups in", directory)
}

/// Fails: [`StorageFault::NotBuilt`].
///
/// # Errors
/// Always.
pub fn keep_backups(directory: &Path, _: usize) -> Result<(), StorageError> {
    not_built("delete old backups in", directory)
}

/// Fails: [`StorageFault::NotBuilt`].
///
/// # Errors
/// Always.
pub fn verify_backups(directory: &Path) -> Result<Vec<BackupInfo>, StorageError> {
    not_built("verify the backups in", directory)
}

/// Fails: [`StorageFault::NotBuilt`].
///
/// # Errors
/// Always.
pub fn restore(_: &Path, _: Option<u32>, into: &Path) -> Result<BackupInfo, StorageError> {
    not_built("restore a backup into", into)
}

#[cfg(test)]
mod tests {
    use dunlin_engine::{Event, ShardIndex, event::ShardEvents};

    use super::*;

    #[test]
    fn without_rocksdb_opening_a_storage_is_an_error() {
        struct NoShards;
        impl ShardEvents for NoShards {
            fn send(&self, _: ShardIndex, _: Event<'static>) -> bool {
                true
            }
        }
        impl Completions for NoShards {}
        let path = Path::new("/var/lib/game");
        let errors = [
            UnbuiltStorage::open(&StorageOptions::at(path), Arc::new(NoShards)).expect_err("no storage"),
            UnbuiltInspection::open(&StorageOptions::at(path)).expect_err("no storage"),
            backups(path).expect_err("no storage"),
            keep_backups(path, 1).expect_err("no storage"),
            verify_backups(path).expect_err("no storage"),
            restore(path, None, path).expect_err("no storage"),
        ];
        for error in errors {
            assert_eq!((&error.fault, &*error.path), (&StorageFault::NotBuilt, path));
            assert!(
                error.to_string().contains("built without the storage; build it with the feature `storage`"),
                "{error}"
            );
        }
    }
}
