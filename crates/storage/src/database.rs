//! The storage's use of `RocksDB`: column families, options, opening after a crash.

use std::{
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, CompactionDecision, DB, DBCompressionType,
    DBRecoveryMode, Direction, Env, IteratorMode, Options, ReadOptions, WriteBatch, WriteOptions, properties,
};

use crate::{
    counters::StorageCounters,
    epoch::EpochSource,
    error::{StorageError, StorageFault},
    family::Family,
    files,
    options::{DamagedLogPolicy, StorageOptions},
    records::{ChannelHead, StoredResult, expiry_of},
    report::LastRun,
    state::{self, Eras, FORMAT_VERSION, StorageState, boot_id},
    storage_clock::StorageClock,
    write_stall,
};

/// Keys of the column family `default`.
const CLOCK_KEY: &[u8] = b"clock_ms";
const FORMAT_KEY: &[u8] = b"format";
const ERAS_KEY: &[u8] = b"eras";
const EPOCH_SEED_KEY: &[u8] = b"epoch_seed";

/// Maximum age of the stored time after a crash.
const CLOCK_NOTED_EVERY_MS: u64 = 10_000;

const OPEN: &str = "open the storage";
pub(crate) const READ_ROOM: &str = "read a room";

/// A key and its value.
pub(crate) type Entry = (Box<[u8]>, Box<[u8]>);

/// What opening does where no storage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfAbsent {
    /// Creates one in an empty or missing directory.
    Create,
    Fail,
}

/// An open `RocksDB` with its options, clock and state.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) db: DB,
    pub(crate) path: PathBuf,
    pub(crate) clock: Arc<StorageClock>,
    pub(crate) epochs: EpochSource,
    pub(crate) counters: Arc<StorageCounters>,
    pub(crate) last_run: LastRun,
    /// The error of the failed write.
    poison: OnceLock<StorageError>,
    clock_noted_ms: AtomicU64,
    /// The newest file of the write-ahead log that the state names.
    newest_log: AtomicU64,
    /// The sum of the families' version numbers when the files of the log were listed.
    versions_seen: AtomicU64,
    memtable_bytes: usize,
    state: StorageState,
}

impl Database {
    pub(crate) fn open(
        options: &StorageOptions,
        clock: Arc<StorageClock>,
        counters: Arc<StorageCounters>,
        absent: IfAbsent,
    ) -> Result<Self, StorageError> {
        let path = &options.path;
        check_huge_pages(options)?;
        let mut state = match absent {
            IfAbsent::Create => found_or_new(path)?,
            IfAbsent::Fail => existing(path)?,
        };
        let boot = boot_id();
        let lost_power = state.is_made && !state.is_closed && (state.boot != boot || boot.is_empty());
        let last_run = match () {
            () if !state.is_made => LastRun::None,
            () if state.is_closed => LastRun::Closed,
            () if lost_power => LastRun::LostPower,
            () => LastRun::Cut,
        };
        let mut damage = None;
        if state.is_made {
            files::check_manifest(path, OPEN)?;
            damage = missing_of_log(path, &state)?;
        }
        if damage.is_none() && !state.closed_with.is_empty() {
            // RocksDB replaces these files, also if the rest of this function fails.
            state.closed_with.clear();
            state.write(path)?;
        }
        let db = open_after_crash(options, &clock, &mut state, damage, lost_power)?;
        state.boot = boot;
        state.is_closed = false;
        state.closed_with.clear();
        state.eras.power += u32::from(lost_power);
        let epochs = EpochSource { seed: epoch_seed(&db, path)?, eras: state.eras };
        let database = Self {
            db,
            path: path.clone(),
            clock,
            epochs,
            counters,
            last_run,
            poison: OnceLock::new(),
            clock_noted_ms: AtomicU64::new(0),
            newest_log: AtomicU64::new(0),
            versions_seen: AtomicU64::new(0),
            memtable_bytes: options.memtable_bytes,
            state: StorageState { is_made: true, ..state },
        };
        database.resume_clock(options.clock_ahead_ms_max)?;
        // Synced, so that the newest file of the log is on the disk before it is noted.
        database.note_state().map_err(|error| StorageError::rocksdb(OPEN, path, &error))?;
        let newest_log = files::newest_log(path).unwrap_or(0);
        StorageState { newest_log, ..database.state.clone() }.write(path)?;
        database.newest_log.store(newest_log, Ordering::Relaxed);
        Ok(database)
    }

    /// Opens a storage to read it. Nothing in the directory is changed.
    pub(crate) fn open_to_read(options: &StorageOptions, clock: Arc<StorageClock>) -> Result<Self, StorageError> {
        const ACTION: &str = "read the storage";
        let path = &options.path;
        let state = existing(path)?;
        if is_in_use(path) {
            return Err(StorageError::new(ACTION, path, StorageFault::Locked));
        }
        files::check_manifest(path, ACTION)?;
        if let Some(missing) = missing_of_log(path, &state)? {
            return Err(StorageError::new(ACTION, path, StorageFault::DamagedLog(missing)));
        }
        let of_db = options_of_db(options, DBRecoveryMode::TolerateCorruptedTailRecords, true)
            .map_err(|error| StorageError::rocksdb(ACTION, path, &error))?;
        let db = DB::open_cf_descriptors_read_only(&of_db, path, families(options, &clock), false)
            .map_err(|error| StorageError::new(ACTION, path, fault_of_open(&error)))?;
        let mut database = Self {
            epochs: EpochSource { seed: 0, eras: state.eras },
            db,
            path: path.clone(),
            clock,
            counters: Arc::default(),
            last_run: if state.is_closed { LastRun::Closed } else { LastRun::Cut },
            poison: OnceLock::new(),
            clock_noted_ms: AtomicU64::new(0),
            newest_log: AtomicU64::new(0),
            versions_seen: AtomicU64::new(0),
            memtable_bytes: options.memtable_bytes,
            state,
        };
        if let Err(error) = database.resume_clock(options.clock_ahead_ms_max) {
            let (StorageFault::ClockAhead { .. }, Some(last_ms)) = (&error.fault, database.last_ms()?) else {
                return Err(error);
            };
            // By a clock that cannot be right, everything would have expired.
            database.clock = Arc::new(StorageClock::stopped_at(last_ms));
        }
        Ok(database)
    }

    pub(crate) fn family(&self, family: Family) -> &ColumnFamily {
        self.db.cf_handle(family.name()).expect("it was opened with all column families")
    }

    /// Commits a batch: writes it to the write-ahead log, and syncs it if `is_synced`. No write follows the first
    /// failed one, because the content of the write-ahead log is unknown after a failure.
    pub(crate) fn commit(&self, mut batch: WriteBatch, is_synced: bool) -> Result<(), StorageError> {
        const ACTION: &str = "write to the storage";
        if self.poison().is_some() {
            return Err(StorageError::new(ACTION, &self.path, StorageFault::Poisoned));
        }
        let now_ms = self.clock.now_ms();
        if now_ms >= self.clock_noted_ms.load(Ordering::Relaxed).saturating_add(CLOCK_NOTED_EVERY_MS) {
            self.clock_noted_ms.store(now_ms, Ordering::Relaxed);
            batch.put(CLOCK_KEY, now_ms.to_be_bytes());
        }
        let written = write_stall::write(&self.db, &self.path, &batch, is_synced, self.memtable_bytes);
        written.map_err(|fault| self.poison.get_or_init(|| StorageError::new(ACTION, &self.path, fault)).clone())?;
        // If this fails, the state names an earlier file, which is safe. The batch is written in any case.
        let _ = self.note_newest_log();
        Ok(())
    }

    /// Notes the newest file of the write-ahead log in the state, if a new one has been begun.
    fn note_newest_log(&self) -> Result<(), StorageError> {
        // A new file is begun with a new memtable of a family, and those are cheaper to ask for.
        let versions = Family::ALL.map(|family| {
            let name = properties::CURRENT_SUPER_VERSION_NUMBER;
            self.db.property_int_value_cf(self.family(family), name).ok().flatten().unwrap_or(0)
        });
        // The first family is that of RocksDB, which has the clock.
        let of_default = self.db.property_int_value(properties::CURRENT_SUPER_VERSION_NUMBER).ok().flatten();
        let versions = versions.iter().sum::<u64>() + of_default.unwrap_or(0);
        if self.versions_seen.load(Ordering::Relaxed) == versions {
            return Ok(());
        }
        let newest = files::newest_log(&self.path).unwrap_or(0);
        if newest > self.newest_log.load(Ordering::Relaxed) {
            StorageState { newest_log: newest, ..self.state.clone() }.write(&self.path)?;
            self.newest_log.store(newest, Ordering::Relaxed);
        }
        self.versions_seen.store(versions, Ordering::Relaxed);
        Ok(())
    }

    /// The error of the failed write, after which nothing is written.
    pub(crate) fn poison(&self) -> Option<&StorageError> {
        self.poison.get()
    }

    /// The stored head of a channel, if it has not expired.
    pub(crate) fn head(&self, key: &[u8]) -> Result<Option<ChannelHead>, StorageError> {
        const ACTION: &str = "read a channel's head";
        let bytes = self.db.get_pinned_cf(self.family(Family::Heads), key);
        let Some(bytes) = bytes.map_err(|error| self.read_failed(ACTION, &error))? else { return Ok(None) };
        match ChannelHead::decode(&bytes) {
            Some(head) => Ok(Some(head).filter(|head| head.expires_ms > self.clock.now_ms())),
            None => Err(self.unreadable(ACTION)),
        }
    }

    /// The stored result of an idempotency key, if it has not expired.
    pub(crate) fn result(&self, key: &[u8]) -> Result<Option<StoredResult>, StorageError> {
        const ACTION: &str = "read an idempotency key";
        let bytes = self.db.get_pinned_cf(self.family(Family::Idempotency), key);
        let Some(bytes) = bytes.map_err(|error| self.read_failed(ACTION, &error))? else { return Ok(None) };
        match StoredResult::decode(&bytes) {
            Some(result) => Ok(Some(result).filter(|result| result.expires_ms > self.clock.now_ms())),
            None => Err(self.unreadable(ACTION)),
        }
    }

    /// The last entry of a room up to `last` that begins with `prefix`.
    pub(crate) fn last_up_to(&self, family: Family, prefix: &[u8], last: &[u8]) -> Result<Option<Entry>, StorageError> {
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(prefix);
        let mode = IteratorMode::From(last, Direction::Reverse);
        let entry = self.db.iterator_cf_opt(self.family(family), options, mode).next();
        entry.transpose().map_err(|error| self.read_failed(READ_ROOM, &error))
    }

    /// The entries of rooms from `begin` to before `end`.
    pub(crate) fn entries(
        &self,
        family: Family,
        begin: &[u8],
        end: Vec<u8>,
    ) -> impl Iterator<Item = Result<Entry, StorageError>> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(end);
        let mode = IteratorMode::From(begin, Direction::Forward);
        let entries = self.db.iterator_cf_opt(self.family(family), options, mode);
        entries.map(|entry| entry.map_err(|error| self.read_failed(READ_ROOM, &error)))
    }

    /// Begins a new epoch if clients may have received publications of this one that the storage has lost.
    pub(crate) fn renew(&self, channel: &str, head: &mut ChannelHead) {
        let eras = self.epochs.eras;
        if head.damage_era < eras.damage || !head.is_synced && head.power_era < eras.power {
            head.epoch = self.epochs.after_loss(channel, head);
            (head.power_era, head.damage_era) = (eras.power, eras.damage);
        }
    }

    pub(crate) fn read_failed(&self, action: &'static str, error: &rocksdb::Error) -> StorageError {
        self.counters.note_read_fault(StorageError::rocksdb(action, &self.path, error))
    }

    /// The error for bytes that have a correct checksum but an unknown format.
    pub(crate) fn unreadable(&self, action: &'static str) -> StorageError {
        let fault = StorageFault::Corruption("a record that nothing known has written".to_owned());
        self.counters.note_read_fault(StorageError::new(action, &self.path, fault))
    }

    /// Syncs everything and records that nothing is lost. Nothing is written afterwards.
    pub(crate) fn close(&self) {
        let is_synced = self.poison().is_none()
            && self.db.put(CLOCK_KEY, self.clock.now_ms().to_be_bytes()).is_ok()
            && self.db.flush_wal(true).is_ok();
        if !is_synced {
            return;
        }
        // A flush could delete a file of the log after it was noted.
        self.db.cancel_all_background_work(true);
        let needed_from = self.db.property_int_value(properties::MIN_LOG_NUMBER_TO_KEEP).ok().flatten();
        let (Some(needed_from), Ok(mut logs)) = (needed_from, files::logs(&self.path)) else { return };
        logs.retain(|log| log.number >= needed_from);
        let newest_log = logs.last().map_or(0, |log| log.number);
        let state = StorageState { is_closed: true, newest_log, closed_with: logs, ..self.state.clone() };
        // If this fails, the next start treats the storage as not closed, which is safe.
        let _ = state.write(&self.path);
    }

    /// The time that was noted last.
    fn last_ms(&self) -> Result<Option<u64>, StorageError> {
        let last = self.db.get(CLOCK_KEY).map_err(|error| StorageError::rocksdb(OPEN, &self.path, &error))?;
        Ok(last.and_then(|bytes| Some(u64::from_be_bytes(bytes.try_into().ok()?))))
    }

    fn resume_clock(&self, ahead_ms_max: u64) -> Result<(), StorageError> {
        const ACTION: &str = "open the storage";
        let Some(last_ms) = self.last_ms()? else { return Ok(()) };
        let ahead_ms = self.clock.resume(last_ms);
        if ahead_ms > ahead_ms_max {
            return Err(StorageError::new(ACTION, &self.path, StorageFault::ClockAhead { ahead_ms }));
        }
        Ok(())
    }

    /// Stores the format, the eras and the seed of epochs in the database, because a backup does not include the file `STORAGE`.
    fn note_state(&self) -> Result<(), rocksdb::Error> {
        let mut batch = WriteBatch::new();
        batch.put(FORMAT_KEY, FORMAT_VERSION.to_be_bytes());
        let EpochSource { seed, eras: Eras { power, damage } } = self.epochs;
        batch.put(EPOCH_SEED_KEY, seed.to_be_bytes());
        batch.put(ERAS_KEY, [power.to_be_bytes(), damage.to_be_bytes()].concat());
        let now_ms = self.clock.now_ms();
        self.clock_noted_ms.store(now_ms, Ordering::Relaxed);
        batch.put(CLOCK_KEY, now_ms.to_be_bytes());
        let mut options = WriteOptions::default();
        options.set_sync(true);
        self.db.write_opt(batch, &options)
    }
}

/// The stored number from which epochs are computed, or a new one.
fn epoch_seed(db: &DB, path: &Path) -> Result<u64, StorageError> {
    const ACTION: &str = "open the storage";
    let stored = db.get(EPOCH_SEED_KEY).map_err(|error| StorageError::rocksdb(ACTION, path, &error))?;
    if let Some(seed) = stored.and_then(|bytes| Some(u64::from_be_bytes(bytes.try_into().ok()?))) {
        return Ok(seed);
    }
    let mut bytes = [0; 8];
    let no_random = |error| StorageError::new(ACTION, path, StorageFault::Io(format!("no random bytes: {error}")));
    getrandom::fill(&mut bytes).map_err(no_random)?;
    Ok(u64::from_be_bytes(bytes))
}

/// Reads the format and the eras of a restored directory.
pub(crate) fn read_noted(path: &Path) -> Result<(u32, Eras), StorageError> {
    const ACTION: &str = "read a restored storage";
    let failed = |error: &rocksdb::Error| StorageError::rocksdb(ACTION, path, error);
    let families = Family::ALL.map(Family::name);
    let mut options = Options::default();
    // Without it, RocksDB would record that it tracks none, which it cannot when it only reads.
    options.set_track_and_verify_wals_in_manifest(true);
    let db = DB::open_cf_for_read_only(&options, path, families, false).map_err(|error| failed(&error))?;
    let get = |key| db.get(key).map_err(|error| failed(&error)).map(Option::unwrap_or_default);
    let number = |bytes: &[u8]| bytes.first_chunk().map(|chunk| u32::from_be_bytes(*chunk));
    let (format, eras) = (get(FORMAT_KEY)?, get(ERAS_KEY)?);
    let noted = || {
        let eras = Eras { power: number(&eras)?, damage: number(eras.get(4..)?)? };
        Some((number(&format)?, eras))
    };
    noted().ok_or_else(|| StorageError::new(ACTION, path, StorageFault::NotStorage))
}

/// Checks for enough huge pages, because `RocksDB` silently falls back to pages of the default size.
fn check_huge_pages(options: &StorageOptions) -> Result<(), StorageError> {
    let page_bytes = options.huge_page_bytes;
    if page_bytes == 0 {
        return Ok(());
    }
    let file = format!("/sys/kernel/mm/hugepages/hugepages-{}kB/free_hugepages", page_bytes >> 10);
    let free = std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let needed = options.memtable_bytes.div_ceil(page_bytes) as u64;
    if free >= needed {
        return Ok(());
    }
    let fault = StorageFault::FewHugePages { page_bytes, free, needed };
    Err(StorageError::new("use huge pages for the storage", &options.path, fault))
}

/// The state of a storage, or of a new one in an empty or missing directory.
fn found_or_new(path: &Path) -> Result<StorageState, StorageError> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(StorageError::io("create the storage's directory", path, &error));
        }
        _ => {}
    }
    if let Some(state) = StorageState::read(path)? {
        return Ok(state);
    }
    let state = StorageState { format: FORMAT_VERSION, ..StorageState::default() };
    state.write(path)?;
    Ok(state)
}

fn existing(path: &Path) -> Result<StorageState, StorageError> {
    let absent = || StorageError::new(OPEN, path, StorageFault::MissingFile(state::FILE_NAME.to_owned()));
    StorageState::read(path)?.ok_or_else(absent)
}

fn missing_of_log(path: &Path, state: &StorageState) -> Result<Option<String>, StorageError> {
    let found = files::logs(path).map_err(|error| StorageError::io(OPEN, path, &error))?;
    let closed_with = if state.is_closed { &*state.closed_with } else { &[] };
    Ok(files::missing_of_log(&found, state.newest_log, closed_with))
}

/// Whether another process holds the lock of `RocksDB`, which reading does not take.
fn is_in_use(path: &Path) -> bool {
    let Ok(file) = std::fs::File::open(path.join("LOCK")) else { return false };
    // SAFETY: all bytes of the structure may be zero.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    // SAFETY: the descriptor is open, and the kernel writes the structure.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) };
    asked == 0 && lock.l_type != libc::F_UNLCK as libc::c_short
}

/// Opens the files. Where it is permitted, the part of the log after a damage is discarded, and the state gets a new
/// era. `missing` is what is known to be missing of the log.
///
/// The end of a log that a crash has truncated was never synced or acknowledged as synced, so it is dropped. Any other
/// unreadable part was once complete, and `RocksDB` must report it (`TolerateCorruptedTailRecords`). With the default
/// of `RocksDB`, the part after the damage would be lost silently.
fn open_after_crash(
    options: &StorageOptions,
    clock: &Arc<StorageClock>,
    state: &mut StorageState,
    missing: Option<String>,
    lost_power: bool,
) -> Result<DB, StorageError> {
    let path = &options.path;
    let fault = if let Some(missing) = missing {
        StorageFault::DamagedLog(missing)
    } else {
        let mode = DBRecoveryMode::TolerateCorruptedTailRecords;
        match open_files(options, clock, mode, state.is_made) {
            Ok(db) => return Ok(db),
            Err(error) => fault_of_open(&error),
        }
    };
    let is_permitted = match &fault {
        // A power loss damages the unsynced end, and no more.
        StorageFault::DamagedLog(text) => {
            options.damaged_log == DamagedLogPolicy::KeepUntilDamage || lost_power && !is_missing(text)
        }
        _ => false,
    };
    if !is_permitted {
        return Err(StorageError::new(OPEN, path, fault));
    }
    // Write the state first, because the next start no longer finds the damage, even if this one ends before another
    // write.
    state.eras.damage += 1;
    state.write(path)?;
    open_files(options, clock, DBRecoveryMode::PointInTime, state.is_made)
        .map_err(|error| StorageError::new(OPEN, path, fault_of_open(&error)))
}

fn is_missing(text: &str) -> bool {
    text.ends_with("is missing")
}

/// Why the files cannot be opened.
fn fault_of_open(error: &rocksdb::Error) -> StorageFault {
    let text = error.to_string();
    let is_of_log = text.contains(".log") || text.contains("WAL") || text.contains("checksum mismatch");
    if let Some((_, number)) = text.trim_end_matches('.').rsplit_once("Missing WAL with log number: ")
        && let Ok(number) = number.parse()
    {
        return StorageFault::DamagedLog(files::missing_log(number));
    }
    match StorageFault::of_rocksdb(error) {
        StorageFault::Corruption(text) if is_of_log => StorageFault::DamagedLog(text),
        fault => fault,
    }
}

fn open_files(
    options: &StorageOptions,
    clock: &Arc<StorageClock>,
    recovery: DBRecoveryMode,
    is_made: bool,
) -> Result<DB, rocksdb::Error> {
    let of_db = options_of_db(options, recovery, is_made)?;
    DB::open_cf_descriptors(&of_db, &options.path, families(options, clock))
}

fn options_of_db(options: &StorageOptions, recovery: DBRecoveryMode, is_made: bool) -> Result<Options, rocksdb::Error> {
    let mut of_db = Options::default();
    // Compactions have a lower priority than shards. Flushes do not, because publications wait for them.
    let mut env = Env::new()?;
    env.lower_thread_pool_cpu_priority();
    of_db.set_env(&env);
    of_db.create_if_missing(!is_made);
    of_db.create_missing_column_families(true);
    // After a permitted damage, files of the log may be missing.
    of_db.set_track_and_verify_wals_in_manifest(!matches!(recovery, DBRecoveryMode::PointInTime));
    of_db.set_paranoid_checks(true);
    of_db.set_wal_recovery_mode(recovery);
    of_db.set_max_total_wal_size(options.wal_bytes_max);
    of_db.set_wal_bytes_per_sync(options.wal_writeback_bytes);
    of_db.set_bytes_per_sync(1 << 20);
    of_db.set_db_write_buffer_size(options.memtable_bytes);
    of_db.set_max_open_files(i32::from(options.open_files_max));
    of_db.increase_parallelism(2);
    of_db.set_keep_log_file_num(4);
    of_db.set_max_log_file_size(1 << 20);
    Ok(of_db)
}

fn families(options: &StorageOptions, clock: &Arc<StorageClock>) -> Vec<ColumnFamilyDescriptor> {
    let cache = Cache::new_lru_cache(options.block_cache_bytes);
    let descriptor =
        |family: Family| ColumnFamilyDescriptor::new(family.name(), family_options(family, options, &cache, clock));
    Family::ALL.map(descriptor).into()
}

fn family_options(family: Family, options: &StorageOptions, cache: &Cache, clock: &Arc<StorageClock>) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    table.set_block_size(if family == Family::Publications { 16 << 10 } else { 4 << 10 });
    // Memory must not grow with the data on disk, so indexes and filters are in the cache, too.
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_format_version(6);
    if matches!(family, Family::Heads | Family::Idempotency) {
        table.set_bloom_filter(10.0, false);
    }
    let mut of_family = Options::default();
    of_family.set_block_based_table_factory(&table);
    of_family.set_write_buffer_size((options.memtable_bytes / 2).max(64 << 10));
    of_family.set_memtable_huge_page_size(options.huge_page_bytes);
    of_family.set_level_compaction_dynamic_level_bytes(true);
    // Young data is rewritten soon or expires before that, so compressing it would only slow flushes down.
    let (young, old) = (DBCompressionType::None, DBCompressionType::Zstd);
    of_family.set_compression_per_level(&[young, young, old, old, old, old, old]);
    of_family.set_bottommost_compression_type(old);
    of_family.set_compression_options(-14, 3, 0, 0);
    if family.expires() {
        let clock = Arc::clone(clock);
        // A file that is not merged with others is compacted once per day to remove expired entries.
        of_family.set_periodic_compaction_seconds(24 * 60 * 60);
        of_family.set_compaction_filter("dunlin.expiry", move |_level, _key, value| {
            let is_expired = expiry_of(value).is_some_and(|expires_ms| expires_ms <= clock.now_ms());
            if is_expired { CompactionDecision::Remove } else { CompactionDecision::Keep }
        });
    }
    of_family
}
