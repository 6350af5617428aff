//! The storage's use of `RocksDB`: column families, options, opening after a crash.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, CompactionDecision, DB, DBCompressionType,
    DBRecoveryMode, Env, ErrorKind, Options, WriteBatch, WriteOptions,
};

use crate::{
    counters::StorageCounters,
    epoch::EpochSource,
    error::{StorageError, StorageFault},
    family::Family,
    options::{DamagedLogPolicy, StorageOptions},
    records::{ChannelHead, StoredResult, expiry_of},
    state::{Eras, FORMAT_VERSION, StorageState, boot_id, is_empty},
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

/// An open `RocksDB` with its options, clock and state.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) db: DB,
    pub(crate) path: PathBuf,
    pub(crate) clock: Arc<StorageClock>,
    pub(crate) epochs: EpochSource,
    pub(crate) counters: Arc<StorageCounters>,
    /// The error of the failed write.
    poison: OnceLock<StorageError>,
    clock_noted_ms: AtomicU64,
    memtable_bytes: usize,
    state: StorageState,
}

impl Database {
    pub(crate) fn open(
        options: &StorageOptions,
        clock: Arc<StorageClock>,
        counters: Arc<StorageCounters>,
    ) -> Result<Self, StorageError> {
        const ACTION: &str = "open the storage";
        let path = &options.path;
        match std::fs::create_dir(path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(StorageError::io("create the storage's directory", path, &error));
            }
            _ => {}
        }
        check_huge_pages(options)?;
        let found = StorageState::read(path)?;
        let boot = boot_id();
        let lost_power =
            found.as_ref().is_some_and(|state| !state.is_closed && (state.boot != boot || boot.is_empty()));
        let mut state = found.unwrap_or_default();
        if state.format == 0 {
            debug_assert!(is_empty(path, ACTION)?);
            state.format = FORMAT_VERSION;
            state.write(path)?;
        }
        let keeps_until_damage = lost_power || options.damaged_log == DamagedLogPolicy::KeepUntilDamage;
        let db = open_after_crash(options, &clock, keeps_until_damage.then_some(&mut state))?;
        state.boot = boot;
        state.is_closed = false;
        state.eras.power += u32::from(lost_power);
        let epochs = EpochSource { seed: epoch_seed(&db, path)?, eras: state.eras };
        let database = Self {
            db,
            path: path.clone(),
            clock,
            epochs,
            counters,
            poison: OnceLock::new(),
            clock_noted_ms: AtomicU64::new(0),
            memtable_bytes: options.memtable_bytes,
            state,
        };
        database.resume_clock(options.clock_ahead_ms_max)?;
        database.state.write(path)?;
        database.note_state().map_err(|error| StorageError::rocksdb(ACTION, path, &error))?;
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
        written.map_err(|fault| self.poison.get_or_init(|| StorageError::new(ACTION, &self.path, fault)).clone())
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
        if is_synced {
            let state = StorageState { is_closed: true, ..self.state.clone() };
            // If this fails, the next start treats the storage as not closed, which is safe.
            let _ = state.write(&self.path);
        }
    }

    fn resume_clock(&self, ahead_ms_max: u64) -> Result<(), StorageError> {
        const ACTION: &str = "open the storage";
        let last = self.db.get(CLOCK_KEY).map_err(|error| StorageError::rocksdb(ACTION, &self.path, &error))?;
        let Some(last_ms) = last.and_then(|bytes| Some(u64::from_be_bytes(bytes.try_into().ok()?))) else {
            return Ok(());
        };
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
    let db = DB::open_cf_for_read_only(&Options::default(), path, families, false).map_err(|error| failed(&error))?;
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

/// Opens the files. With a state, the part of the log after a damage is discarded, and the state gets a new era.
///
/// The end of a log that a crash has truncated was never synced or acknowledged as synced, so it is dropped. Any other
/// unreadable part was once complete, and `RocksDB` must report it (`TolerateCorruptedTailRecords`). With the default
/// of `RocksDB`, the part after the damage would be lost silently.
fn open_after_crash(
    options: &StorageOptions,
    clock: &Arc<StorageClock>,
    keeps_until_damage: Option<&mut StorageState>,
) -> Result<DB, StorageError> {
    const ACTION: &str = "open the storage";
    let path = &options.path;
    let error = match open_files(options, clock, DBRecoveryMode::TolerateCorruptedTailRecords) {
        Ok(db) => return Ok(db),
        Err(error) => error,
    };
    if error.kind() != ErrorKind::Corruption {
        return Err(StorageError::rocksdb(ACTION, path, &error));
    }
    if let Some(state) = keeps_until_damage {
        // Write the state first, because the next start no longer finds the damage, even if this one ends before
        // another write.
        state.eras.damage += 1;
        state.write(path)?;
        return open_files(options, clock, DBRecoveryMode::PointInTime)
            .map_err(|error| StorageError::rocksdb(ACTION, path, &error));
    }
    let text = error.to_string();
    let is_of_log = text.contains(".log") || text.contains("WAL") || text.contains("checksum mismatch");
    let fault = if is_of_log { StorageFault::DamagedLog(text) } else { StorageFault::Corruption(text) };
    Err(StorageError::new(ACTION, path, fault))
}

fn open_files(
    options: &StorageOptions,
    clock: &Arc<StorageClock>,
    recovery: DBRecoveryMode,
) -> Result<DB, rocksdb::Error> {
    let cache = Cache::new_lru_cache(options.block_cache_bytes);
    let mut of_db = Options::default();
    // Compactions have a lower priority than shards. Flushes do not, because publications wait for them.
    let mut env = Env::new()?;
    env.lower_thread_pool_cpu_priority();
    of_db.set_env(&env);
    of_db.create_if_missing(true);
    of_db.create_missing_column_families(true);
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
    let families = Family::ALL
        .map(|family| ColumnFamilyDescriptor::new(family.name(), family_options(family, options, &cache, clock)));
    DB::open_cf_descriptors(&of_db, &options.path, families)
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
