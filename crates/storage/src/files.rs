//! The files that a storage must have. They are checked before `RocksDB` opens it, which accepts a write-ahead log of
//! which files are missing.
//!
//! `RocksDB` always has a newest file of the log, and deletes only older ones. So the file `STORAGE` states the newest
//! one, and after a clean end all files with their sizes. Of older files, `RocksDB` itself tracks those that are synced.

use std::{fs, io, path::Path};

use crate::error::{StorageError, StorageFault};

const CURRENT: &str = "CURRENT";
const MANIFEST: &str = "MANIFEST-";

/// A file of the write-ahead log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogFile {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
}

/// The text of a damage.
pub(crate) fn missing_log(number: u64) -> String {
    format!("{} is missing", name_of_log(number))
}

/// The name that `RocksDB` gives it.
fn name_of_log(number: u64) -> String {
    format!("{number:06}.log")
}

/// The files of the write-ahead log in a directory, in the order of their numbers.
pub(crate) fn logs(directory: &Path) -> io::Result<Vec<LogFile>> {
    let mut logs = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".log")).and_then(|name| name.parse().ok());
        if let Some(number) = number {
            match entry.metadata() {
                Ok(metadata) => logs.push(LogFile { number, bytes: metadata.len() }),
                // `RocksDB` has deleted it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    logs.sort_unstable();
    Ok(logs)
}

/// The number of the newest file of the write-ahead log; `None` if it cannot be determined.
pub(crate) fn newest_log(directory: &Path) -> Option<u64> {
    let entries = fs::read_dir(directory).ok()?;
    let number = |name: &str| name.strip_suffix(".log")?.parse().ok();
    entries.filter_map(|entry| number(entry.ok()?.file_name().to_str()?)).max()
}

/// Whether the directory has files of a database, although the file `STORAGE` may be missing.
pub(crate) fn has_database(directory: &Path) -> bool {
    directory.join(CURRENT).exists() || fs::read_dir(directory).is_ok_and(|mut entries| entries.any(is_manifest))
}

fn is_manifest(entry: io::Result<fs::DirEntry>) -> bool {
    entry.is_ok_and(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(MANIFEST)))
}

/// Checks that the database has the files from which `RocksDB` learns about all others.
///
/// # Errors
/// The missing or damaged file.
pub(crate) fn check_manifest(directory: &Path, action: &'static str) -> Result<(), StorageError> {
    let fault = |fault| StorageError::new(action, directory, fault);
    let current = match fs::read_to_string(directory.join(CURRENT)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(fault(StorageFault::MissingFile(CURRENT.to_owned())));
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => String::new(),
        Err(error) => return Err(StorageError::io(action, &directory.join(CURRENT), &error)),
    };
    let Some(manifest) = current.strip_suffix('\n').filter(|name| name.starts_with(MANIFEST) && !name.contains('/'))
    else {
        return Err(fault(StorageFault::Corruption(format!("{CURRENT} names no manifest"))));
    };
    match fs::metadata(directory.join(manifest)) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(fault(StorageFault::MissingFile(manifest.to_owned())))
        }
        Err(error) => Err(StorageError::io(action, &directory.join(manifest), &error)),
    }
}

/// What is missing of the write-ahead log: the newest file of the last run is gone, or after a clean end any file, or its
/// end. `None` if nothing is missing.
pub(crate) fn missing_of_log(found: &[LogFile], newest: u64, closed_with: &[LogFile]) -> Option<String> {
    for expected in closed_with {
        match found.iter().find(|log| log.number == expected.number) {
            None => return Some(missing_log(expected.number)),
            Some(log) if log.bytes < expected.bytes => {
                let (name, has, had) = (name_of_log(log.number), log.bytes, expected.bytes);
                return Some(format!("{name} has {has} bytes, and had {had} when the storage was closed"));
            }
            Some(_) => {}
        }
    }
    // A later file may have been begun that the state does not state yet.
    let is_there = newest == 0 || found.iter().any(|log| log.number >= newest);
    (!is_there).then(|| missing_log(newest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn log(number: u64, bytes: u64) -> LogFile {
        LogFile { number, bytes }
    }

    #[test]
    fn a_missing_or_shorter_log_is_named() {
        let closed = [log(9, 100), log(12, 50)];
        assert_eq!(missing_of_log(&closed, 12, &closed), None);
        assert_eq!(missing_of_log(&[log(9, 101), log(12, 50), log(15, 0)], 12, &closed), None);
        let missing = |found: &[LogFile]| missing_of_log(found, 12, &closed).unwrap_or_default();
        assert_eq!(missing(&[log(12, 50)]), "000009.log is missing");
        assert_eq!(missing(&[log(9, 100)]), "000012.log is missing");
        assert_eq!(missing(&[]), "000009.log is missing");
        assert_eq!(
            missing(&[log(9, 99), log(12, 50)]),
            "000009.log has 99 bytes, and had 100 when the storage was closed"
        );
    }

    #[test]
    fn after_a_crash_the_newest_log_or_a_later_one_must_be_there() {
        assert_eq!(missing_of_log(&[log(11, 1), log(12, 1)], 12, &[]), None);
        assert_eq!(missing_of_log(&[log(13, 0)], 12, &[]), None);
        assert_eq!(missing_of_log(&[log(11, 1)], 12, &[]).as_deref(), Some("000012.log is missing"));
        assert_eq!(missing_of_log(&[], 12, &[]).as_deref(), Some("000012.log is missing"));
        assert_eq!(missing_of_log(&[], 0, &[]), None, "an earlier version of Dunlin has not noted it");
    }
}
