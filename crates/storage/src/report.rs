//! Reports about a storage and its backups.

/// The size of a column family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilySize {
    /// Its name.
    pub name: &'static str,
    /// Estimated number of entries.
    pub entries: u64,
    /// Bytes of its tables.
    pub table_bytes: u64,
    /// Bytes of its memtables.
    pub memtable_bytes: u64,
}

/// How the last run of a storage ended, as opening it has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastRun {
    /// There was none: the storage is new.
    None,
    /// It was closed.
    Closed,
    /// Its process ended without closing it.
    Cut,
    /// So did the machine: writes that were not synced may be lost.
    LostPower,
}

impl LastRun {
    /// The ending in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::None => "it is new",
            Self::Closed => "the last run closed it",
            Self::Cut => "the last run was killed",
            Self::LostPower => "the machine stopped during the last run",
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageReport {
    /// Channels with a head.
    pub channels: u64,
    /// Stored publications.
    pub publications: u64,
    /// Results of idempotency keys.
    pub results: u64,
    /// Blocks of players' paths.
    pub blocks: u64,
    /// Checkpoints of rooms.
    pub checkpoints: u64,
    /// Rules about who may not connect.
    pub access_rules: u64,
    /// Entries of an unknown format.
    pub unreadable: u64,
}

/// A backup in a directory of backups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupInfo {
    /// Its number in the directory.
    pub number: u32,
    /// When it was made: Unix time in seconds.
    pub made_s: i64,
    /// Bytes of its files. Other backups may share some of them.
    pub bytes: u64,
    /// Its files.
    pub files: u32,
}
