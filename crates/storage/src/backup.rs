//! Backups of an open storage, and their restore.

use std::{collections::HashSet, fs, io, path::Path, thread};

use rocksdb::{
    Env,
    backup::{BackupEngine, BackupEngineOptions, RestoreOptions},
};

use crate::{
    checksum::crc32c_of,
    database::read_noted,
    error::{StorageError, StorageFault},
    report::BackupInfo,
    shared_database::SharedDatabase,
    state::{FORMAT_VERSION, StorageState, is_empty},
};

/// See [`crate::Storage::back_up`].
pub(crate) fn back_up(shared: &SharedDatabase, directory: &Path) -> Result<BackupInfo, StorageError> {
    let failed = |error: &io::Error| StorageError::io("start a thread for a backup in", directory, error);
    thread::scope(|scope| {
        let back_up = || {
            // The threads of RocksDB's backup engine inherit the priority.
            lower_priority();
            copy_to(shared, directory)
        };
        let thread = thread::Builder::new().name("storage-backup".to_owned()).spawn_scoped(scope, back_up);
        let ended = thread.map_err(|error| failed(&error))?.join();
        ended.unwrap_or_else(|_| Err(failed(&io::Error::other("it has ended early"))))
    })
}

fn copy_to(shared: &SharedDatabase, directory: &Path) -> Result<BackupInfo, StorageError> {
    const ACTION: &str = "make a backup in";
    let failed = |error: &rocksdb::Error| StorageError::rocksdb(ACTION, directory, error);
    fs::create_dir_all(directory).map_err(|error| StorageError::io(ACTION, directory, &error))?;
    let mut engine = engine(directory, ACTION)?;
    engine.create_new_backup_flush(&shared.get()?.db, true).map_err(|error| failed(&error))?;
    let made = infos(&engine).into_iter().next_back();
    made.ok_or_else(|| StorageError::new(ACTION, directory, StorageFault::NoBackup))
}

/// Lowers the priority of the calling thread by as much as `RocksDB` lowers that of compactions.
fn lower_priority() {
    const NICE: libc::c_int = 19;
    // A thread without the permission copies at normal priority.
    // SAFETY: the call takes numbers; 0 stands for the calling thread.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

/// The backups in a directory, the oldest first.
///
/// # Errors
/// The directory cannot be read.
pub fn backups(directory: &Path) -> Result<Vec<BackupInfo>, StorageError> {
    const ACTION: &str = "list the backups in";
    Ok(infos(&engine_of_existing(directory, ACTION)?))
}

/// Deletes all backups except the newest ones.
///
/// # Errors
/// The directory cannot be written.
pub fn keep_backups(directory: &Path, backups_max: usize) -> Result<(), StorageError> {
    const ACTION: &str = "delete old backups in";
    let purged = engine_of_existing(directory, ACTION)?.purge_old_backups(backups_max);
    purged.map_err(|error| StorageError::rocksdb(ACTION, directory, &error))
}

/// Checks that the files of all backups exist, and have the right size and checksum. Reads each file once.
///
/// # Errors
/// A file is missing or damaged.
pub fn verify_backups(directory: &Path) -> Result<Vec<BackupInfo>, StorageError> {
    const ACTION: &str = "verify the backups in";
    let engine = engine_of_existing(directory, ACTION)?;
    let backups = infos(&engine);
    for backup in &backups {
        let verified = engine.verify_backup(backup.number);
        verified.map_err(|error| StorageError::rocksdb(ACTION, directory, &error))?;
    }
    let mut compared = HashSet::new();
    for backup in &backups {
        compare_checksums(directory, backup.number, &mut compared)?;
    }
    Ok(backups)
}

/// Compares the files of a backup with the list that was written with it. Backups share files; `compared` contains the
/// files that were already read.
fn compare_checksums(directory: &Path, number: u32, compared: &mut HashSet<(String, u32)>) -> Result<(), StorageError> {
    const ACTION: &str = "verify the backup file";
    let list = directory.join("meta").join(number.to_string());
    let text = fs::read_to_string(&list).map_err(|error| StorageError::io(ACTION, &list, &error))?;
    let damaged = |path: &Path, why: &str| StorageError::new(ACTION, path, StorageFault::Corruption(why.to_owned()));
    let files = listed_files(&text).ok_or_else(|| damaged(&list, "it is no list of files"))?;
    for (name, sum) in files {
        if !compared.insert((name.to_owned(), sum)) {
            continue;
        }
        let path = directory.join(name);
        let found = fs::File::open(&path).and_then(crc32c_of);
        if found.map_err(|error| StorageError::io(ACTION, &path, &error))? != sum {
            return Err(damaged(&path, "its checksum is not that of the backup"));
        }
    }
    Ok(())
}

/// Parses the list of a backup's files: a line with their number, and for each a line with its name, the word `crc32`,
/// and its checksum (a CRC-32C). `None` if the text has another format.
fn listed_files(text: &str) -> Option<Vec<(&str, u32)>> {
    let is_file = |line: &&str| line.contains(" crc32 ");
    let count: usize = text.lines().take_while(|line| !is_file(line)).last()?.parse().ok()?;
    let files = text.lines().filter(is_file).map(|line| {
        let (name, sum) = line.split_once(" crc32 ")?;
        Some((name, sum.split(' ').next()?.parse().ok()?))
    });
    let files: Vec<(&str, u32)> = files.collect::<Option<_>>()?;
    (files.len() == count).then_some(files)
}

/// Restores a backup, by default the newest one, into a directory that is empty or missing, and compares the checksums
/// of all files. Channels get new epochs, because clients may have received publications that the backup does not
/// contain.
///
/// # Errors
/// The directory is not empty, the backup is missing or damaged, or a disk fails.
pub fn restore(backups: &Path, number: Option<u32>, into: &Path) -> Result<BackupInfo, StorageError> {
    const ACTION: &str = "restore a backup into";
    fs::create_dir_all(into).map_err(|error| StorageError::io(ACTION, into, &error))?;
    if !is_empty(into, ACTION)? {
        return Err(StorageError::new(ACTION, into, StorageFault::NotEmpty));
    }
    let mut engine = engine_of_existing(backups, "restore a backup from")?;
    let known = infos(&engine);
    let wanted = known.iter().rev().find(|backup| number.is_none_or(|number| number == backup.number));
    let Some(backup) = wanted.copied() else {
        return Err(StorageError::new("restore a backup from", backups, StorageFault::NoBackup));
    };
    let restored = engine.restore_from_backup(into, into, &RestoreOptions::default(), backup.number);
    restored.map_err(|error| StorageError::rocksdb("restore a backup from", backups, &error))?;
    let (format, mut eras) = read_noted(into)?;
    if format > FORMAT_VERSION {
        let fault = StorageFault::NewerFormat { found: format, known: FORMAT_VERSION };
        return Err(StorageError::new(ACTION, into, fault));
    }
    eras.damage += 1;
    // Written last: without this file, the directory is not a storage, so an interrupted restore cannot be opened.
    StorageState { format, is_closed: true, is_made: true, eras, ..StorageState::default() }.write(into)?;
    Ok(backup)
}

fn engine_of_existing(directory: &Path, action: &'static str) -> Result<BackupEngine, StorageError> {
    // RocksDB would create the directory.
    if !directory.join("meta").is_dir() {
        return Err(StorageError::new(action, directory, StorageFault::NoBackup));
    }
    engine(directory, action)
}

fn engine(directory: &Path, action: &'static str) -> Result<BackupEngine, StorageError> {
    let failed = |error: &rocksdb::Error| StorageError::rocksdb(action, directory, error);
    let options = BackupEngineOptions::new(directory).map_err(|error| failed(&error))?;
    let env = Env::new().map_err(|error| failed(&error))?;
    BackupEngine::open(&options, &env).map_err(|error| failed(&error))
}

fn infos(engine: &BackupEngine) -> Vec<BackupInfo> {
    let of = |info: rocksdb::backup::BackupEngineInfo| BackupInfo {
        number: info.backup_id,
        made_s: info.timestamp,
        bytes: info.size,
        files: info.num_files,
    };
    engine.get_backup_info().into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_a_backup_names_its_files() {
        let list =
            "1795374274\n12\nmetadata 00\n2\nprivate/1/CURRENT crc32 7\nshared_checksum/9_a_b.sst crc32 4294967295\n";
        let files = [("private/1/CURRENT", 7), ("shared_checksum/9_a_b.sst", u32::MAX)];
        assert_eq!(listed_files(list).as_deref(), Some(&files[..]));
        let later = "schema_version 2.0\n1\n2\n1\nprivate/1/CURRENT crc32 7 size 16\n";
        assert_eq!(listed_files(later).as_deref(), Some(&files[..1]));
        let cut = list.trim_end().rsplit_once('\n').map(|(lines, _)| lines).expect("it has lines");
        for text in [cut, "", "1\n2\n0\n x crc32 7\n", "1\n2\n1\nx crc32 y\n"] {
            assert_eq!(listed_files(text), None, "{text}");
        }
    }
}
