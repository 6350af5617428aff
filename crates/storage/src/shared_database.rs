//! The database that the threads of a storage share. After a failed write it is opened again when the cause has passed.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{
    counters::StorageCounters,
    database::{Database, IfAbsent},
    error::StorageError,
    options::{StartPolicy, StorageOptions},
    storage_clock::StorageClock,
    write_stall::free_bytes,
};

/// Maximum time for reads that have begun before the database is closed.
const READS_MAX: Duration = Duration::from_millis(200);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

const PROBE_FILE: &str = "PROBE";
const PROBE_BYTES: usize = 64 << 10;
/// Number of files that a flush or a compaction may open at once.
const PROBE_FILES: usize = 32;

/// The database, or why there is none.
#[derive(Debug)]
pub(crate) struct SharedDatabase {
    options: StorageOptions,
    clock: Arc<StorageClock>,
    pub(crate) counters: Arc<StorageCounters>,
    state: RwLock<DatabaseState>,
    /// What was there once must not begin again with nothing, such as after a file system was unmounted.
    was_open: AtomicBool,
}

#[derive(Debug)]
enum DatabaseState {
    Open(Arc<Database>),
    /// It is being opened again, or could not be opened.
    Closed(StorageError),
}

impl SharedDatabase {
    pub(crate) fn open(options: &StorageOptions) -> Result<Self, StorageError> {
        let clock = Arc::new(StorageClock::new(options.clock));
        let counters = Arc::new(StorageCounters::default());
        let opened = Database::open(options, Arc::clone(&clock), Arc::clone(&counters), IfAbsent::Create);
        let was_open = AtomicBool::new(opened.is_ok());
        let state = match opened {
            Ok(database) => DatabaseState::Open(Arc::new(database)),
            Err(error) if options.start == StartPolicy::OpenLater && error.fault.can_pass_at_start() => {
                DatabaseState::Closed(error)
            }
            Err(error) => return Err(error),
        };
        Ok(Self { options: options.clone(), clock, counters, state: RwLock::new(state), was_open })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.options.path
    }

    pub(crate) const fn is_development(&self) -> bool {
        self.options.is_development
    }

    pub(crate) const fn free_space_min_bytes(&self) -> u64 {
        self.options.free_space_min_bytes
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// The open database.
    ///
    /// # Errors
    /// It is being opened again after a failed write, or that has failed.
    pub(crate) fn get(&self) -> Result<Arc<Database>, StorageError> {
        match &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            DatabaseState::Open(database) => Ok(Arc::clone(database)),
            DatabaseState::Closed(error) => Err(error.clone()),
        }
    }

    /// The error of the failed write, while nothing is written.
    pub(crate) fn fault(&self) -> Option<StorageError> {
        match &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            DatabaseState::Open(database) => database.poison().cloned(),
            DatabaseState::Closed(error) => Some(error.clone()),
        }
    }

    /// Whether files can be written again, and the log of the database fits on the disk once more, as its replay
    /// requires.
    pub(crate) fn can_write(&self) -> bool {
        let path = self.path();
        let has_space = free_bytes(path).is_none_or(|free| free > log_bytes(path) + PROBE_BYTES as u64);
        has_space && probe(path).is_ok()
    }

    /// Closes the database and opens it again. Called by the writer only, which holds no reference.
    ///
    /// # Errors
    /// A read takes long, or the database cannot be opened.
    pub(crate) fn reopen(&self) -> Result<Arc<Database>, StorageError> {
        let Some(fault) = self.fault() else { return self.get() };
        if let DatabaseState::Open(database) = self.replace(DatabaseState::Closed(fault.clone()))
            && let Err(in_use) = close(database)
        {
            self.replace(DatabaseState::Open(in_use));
            return Err(fault);
        }
        let absent = if self.was_open.load(Ordering::Relaxed) { IfAbsent::Fail } else { IfAbsent::Create };
        match Database::open(&self.options, Arc::clone(&self.clock), Arc::clone(&self.counters), absent) {
            Ok(database) => {
                self.was_open.store(true, Ordering::Relaxed);
                let database = Arc::new(database);
                self.replace(DatabaseState::Open(Arc::clone(&database)));
                Ok(database)
            }
            Err(error) => {
                self.replace(DatabaseState::Closed(error.clone()));
                Err(error)
            }
        }
    }

    fn replace(&self, state: DatabaseState) -> DatabaseState {
        std::mem::replace(&mut *self.state.write().unwrap_or_else(PoisonError::into_inner), state)
    }
}

/// Closes a database when no read uses it any more; returns it if reads take too long.
fn close(mut database: Arc<Database>) -> Result<(), Arc<Database>> {
    for _ in 0..READS_MAX.as_millis() / POLL_INTERVAL.as_millis() {
        match Arc::try_unwrap(database) {
            Ok(database) => {
                drop(database);
                return Ok(());
            }
            Err(in_use) => database = in_use,
        }
        thread::sleep(POLL_INTERVAL);
    }
    Err(database)
}

/// The bytes of the write-ahead log.
fn log_bytes(path: &Path) -> u64 {
    let files = fs::read_dir(path).into_iter().flatten().flatten();
    let logs = files.filter(|file| file.path().extension().is_some_and(|extension| extension == "log"));
    logs.filter_map(|log| log.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// Writes and removes a file, and opens as many as the database may need.
fn probe(path: &Path) -> std::io::Result<()> {
    let file = path.join(PROBE_FILE);
    let write = || {
        let mut writer = File::create(&file)?;
        writer.write_all(&vec![0; PROBE_BYTES])?;
        writer.sync_all()?;
        (0..PROBE_FILES).map(|_| File::open(&file)).collect::<Result<Vec<File>, _>>().map(drop)
    };
    let written = write();
    let removed = fs::remove_file(&file);
    written.and(removed)
}
