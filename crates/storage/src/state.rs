//! The file `STORAGE` in the directory, which is read before `RocksDB` opens its files.

use std::{
    fs::{self, File},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
};

use crate::{
    error::{StorageError, StorageFault},
    files::{LogFile, has_database},
};

/// The version of the layout of keys and of the set of record versions. A storage with a newer version is not opened.
pub const FORMAT_VERSION: u32 = 1;

pub(crate) const FILE_NAME: &str = "STORAGE";
const FIRST_LINE: &str = "dunlin storage";
const CHECK: &str = "check ";

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StorageState {
    pub(crate) format: u32,
    /// The kernel's id of the boot in which the storage was last opened.
    pub(crate) boot: String,
    /// Whether it was closed with everything synced.
    pub(crate) is_closed: bool,
    pub(crate) eras: Eras,
    /// Whether the database was created. Then its files must be there, and none is created instead.
    pub(crate) is_made: bool,
    /// The newest file of the write-ahead log; 0 if it is not known. See [`crate::files`].
    pub(crate) newest_log: u64,
    /// The needed files of the write-ahead log when it was closed.
    pub(crate) closed_with: Vec<LogFile>,
}

/// Counters of losses. A channel that was last written in an earlier era may have lost publications that clients have
/// received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Eras {
    /// Counts power losses, after which unsynced writes may be lost.
    pub(crate) power: u32,
    /// Counts damages of the log and restores of backups, after which any write may be lost.
    pub(crate) damage: u32,
}

impl StorageState {
    /// Reads the file; `None` in an empty directory.
    pub(crate) fn read(directory: &Path) -> Result<Option<Self>, StorageError> {
        const ACTION: &str = "open the storage";
        let file = file_in(directory);
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let fault = match is_empty(directory, ACTION)? {
                    true => return Ok(None),
                    false if has_database(directory) => StorageFault::MissingFile(FILE_NAME.to_owned()),
                    false => StorageFault::NotStorage,
                };
                return Err(StorageError::new(ACTION, directory, fault));
            }
            Err(error) if error.kind() == ErrorKind::InvalidData => String::new(),
            Err(error) => return Err(StorageError::io(ACTION, &file, &error)),
        };
        let damaged = || StorageError::new(ACTION, &file, StorageFault::Corruption("unknown content".to_owned()));
        let state = Self::parse(&text).ok_or_else(damaged)?;
        if state.format > FORMAT_VERSION {
            let fault = StorageFault::NewerFormat { found: state.format, known: FORMAT_VERSION };
            return Err(StorageError::new(ACTION, directory, fault));
        }
        Ok(Some(state))
    }

    /// Replaces the file atomically.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), StorageError> {
        let (file, new) = (file_in(directory), directory.join("STORAGE.new"));
        let write = || {
            let mut writer = File::create(&new)?;
            writer.write_all(self.text().as_bytes())?;
            writer.sync_all()?;
            fs::rename(&new, &file)?;
            File::open(directory)?.sync_all()
        };
        write().map_err(|error| StorageError::io("write the state of the storage", &file, &error))
    }

    fn text(&self) -> String {
        let Self { format, boot, is_closed, eras, is_made, newest_log, closed_with } = self;
        let Eras { power, damage } = eras;
        let (closed, made) = (u8::from(*is_closed), u8::from(*is_made));
        let mut text = format!(
            "{FIRST_LINE}\nformat {format}\npower_era {power}\ndamage_era {damage}\nclosed {closed}\nboot {boot}\n\
             made {made}\nnewest_log {newest_log}\n"
        );
        text.extend(closed_with.iter().map(|LogFile { number, bytes }| format!("log {number} {bytes}\n")));
        let sum = fnv1a(text.as_bytes());
        format!("{text}{CHECK}{sum:016x}\n")
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != FIRST_LINE {
            return None;
        }
        // Earlier versions of Dunlin did not note it.
        let mut state = Self { is_made: true, ..Self::default() };
        for line in lines {
            let (name, value) = line.split_once(' ').unwrap_or((line, ""));
            match name {
                "format" => state.format = value.parse().ok()?,
                "power_era" => state.eras.power = value.parse().ok()?,
                "damage_era" => state.eras.damage = value.parse().ok()?,
                "closed" => state.is_closed = value == "1",
                "boot" => value.clone_into(&mut state.boot),
                "made" => state.is_made = value == "1",
                "newest_log" => state.newest_log = value.parse().ok()?,
                "log" => {
                    let (number, bytes) = value.split_once(' ')?;
                    state.closed_with.push(LogFile { number: number.parse().ok()?, bytes: bytes.parse().ok()? });
                }
                // A newer format may contain other lines. Its version decides.
                _ => {}
            }
        }
        // The checksum of a newer format is unknown.
        let is_whole = state.format > FORMAT_VERSION || is_whole(text);
        (state.format > 0 && is_whole).then_some(state)
    }
}

/// Whether the last line is the checksum of the lines before it. Without it, a flipped bit could hide a power loss.
fn is_whole(text: &str) -> bool {
    let Some(at) = text.rfind(CHECK) else { return false };
    let (checked, line) = text.split_at(at);
    line == format!("{CHECK}{:016x}\n", fnv1a(checked.as_bytes()))
}

/// The FNV-1a hash.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Whether a directory contains a storage.
///
/// # Errors
/// The directory cannot be read.
pub fn is_storage(directory: &Path) -> std::io::Result<bool> {
    match fs::metadata(file_in(directory)) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The kernel's id of this boot; empty if it is unknown.
pub(crate) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

/// Whether a directory contains only entries that file systems create.
pub(crate) fn is_empty(directory: &Path, action: &'static str) -> Result<bool, StorageError> {
    let failed = |error: &std::io::Error| StorageError::io(action, directory, error);
    for entry in fs::read_dir(directory).map_err(|error| failed(&error))? {
        let name = entry.map_err(|error| failed(&error))?.file_name();
        if name != "lost+found" && name != "STORAGE.new" {
            return Ok(false);
        }
    }
    Ok(true)
}

fn file_in(directory: &Path) -> PathBuf {
    directory.join(FILE_NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_round_trip() {
        let eras = Eras { power: 3, damage: 1 };
        let closed_with = vec![LogFile { number: 12, bytes: 7 }, LogFile { number: 15, bytes: 0 }];
        let state = StorageState {
            format: 1,
            boot: "ab-cd".to_owned(),
            is_closed: true,
            eras,
            is_made: true,
            newest_log: 15,
            closed_with,
        };
        assert_eq!(StorageState::parse(&state.text()), Some(state));
        let unknown = StorageState { format: 1, ..StorageState::default() };
        assert_eq!(StorageState::parse(&unknown.text()), Some(unknown));
    }

    #[test]
    fn a_flipped_bit_is_noticed() {
        let state = StorageState { format: 1, boot: "ab-cd".to_owned(), ..StorageState::default() };
        for position in 0..state.text().len() * 8 {
            let mut bytes = state.text().into_bytes();
            bytes[position / 8] ^= 1 << (position % 8);
            let found = String::from_utf8(bytes).ok().and_then(|text| StorageState::parse(&text));
            assert!(found.is_none_or(|found| found.format > FORMAT_VERSION), "bit {position}");
        }
    }

    #[test]
    fn invalid_state_files_are_refused() {
        for text in ["", "dunlin", "dunlin storage", "dunlin storage\nformat x\n", "dunlin storage\nformat 0\n"] {
            assert_eq!(StorageState::parse(text), None, "{text}");
        }
    }
}
