//! The interface of the storage in a program that is built without `RocksDB`.

#![cfg_attr(test, allow(dead_code, reason = "tests compile it in programs with a storage as well"))]

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fs,
    io::Write,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc::SyncSender},
    thread::JoinHandle,
};

use dunlin_engine::log::{LogBusy, LogError};
use dunlin_queues::declared::STORAGE_WRITES;

use crate::{
    counters::StorageCounts,
    disk_limits::DiskLimits,
    entries::{AccessEntry, EntryBatch, EntryChange, RoomCheckpoint},
    error::{StorageError, StorageFault},
    family::Family,
    free_space::SpaceShortage,
    keys,
    options::StorageOptions,
    paths::{PathQuery, PathsRead},
    report::{BackupInfo, FamilySize, LastRun, StorageReport},
    request::{Completions, Done, EntriesDone, LoadRequest, StoreRequest},
    threads,
};

/// The file with the rooms, in the directory of the storage.
const FILE: &str = "rooms";

/// Maximum size of all rooms. What would exceed it is refused, as by a full queue.
const BYTES_MAX: usize = 256 << 20;

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// An open storage. One exists only for `dunlin dev`: [`UnbuiltStorage::open`] fails without
/// [`StorageOptions::is_development`]. It has the checkpoints of rooms, in memory while it is open.
///
/// Nothing else of a storage is of use between two runs of a game that is being written, and this needs neither a
/// write-ahead log nor tables: a process that is killed loses its rooms, as one without a storage does.
#[derive(Debug)]
pub struct UnbuiltStorage {
    path: PathBuf,
    rooms: Mutex<Rooms>,
    /// The thread that answers; `None` when the storage is closed.
    answering: Mutex<Option<JoinHandle<()>>>,
    /// Why the file could not be written, if so.
    fault: OnceLock<StorageError>,
}

#[derive(Debug)]
struct Rooms {
    checkpoints: Entries,
    bytes: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    Open {
        /// Results on their way to the thread that answers.
        answers: SyncSender<Done>,
    },
    /// Nothing is taken any more.
    Closed,
}

/// A storage that is only read. No value exists.
#[derive(Debug)]
pub struct UnbuiltInspection(Infallible);

fn not_built<T>(action: &'static str, path: &Path) -> Result<T, StorageError> {
    Err(StorageError::new(action, path, StorageFault::NotBuilt))
}

fn failed(action: &'static str, path: &Path, error: &std::io::Error) -> StorageError {
    StorageError::new(action, path, StorageFault::Io(error.to_string()))
}

#[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "callers see the interface of the other storage")]
#[allow(missing_docs, clippy::missing_errors_doc, reason = "storage.rs and its neighbours document these methods")]
impl UnbuiltStorage {
    pub fn open(options: &StorageOptions, _: Arc<dyn Completions>) -> Result<Self, StorageError> {
        const ACTION: &str = "open the storage";
        let path = options.path.clone();
        if !options.is_development {
            return not_built(ACTION, &path);
        }
        fs::create_dir_all(&path).map_err(|error| failed(ACTION, &path, &error))?;
        // The rooms go on from here; after a crash, those of the run before must not come back.
        let file = path.join(FILE);
        let checkpoints = match fs::read(&file) {
            Ok(bytes) => read(&bytes).unwrap_or_default(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Entries::new(),
            // The rooms may still be in it, so it stays.
            Err(error) => return Err(failed(ACTION, &file, &error)),
        };
        let _ = fs::remove_file(file);
        let bytes = checkpoints.iter().map(|(key, value)| key.len() + value.len()).sum();
        // A batch is written at once, but whoever writes it may hold locks that its result needs.
        let (answers, waiting) = STORAGE_WRITES.with_messages(options.queues.writes_max).std_channel();
        let answer = move || waiting.into_iter().for_each(|Done(done)| done(Ok(())));
        let answering = threads::start("storage-answer".to_owned(), &path, answer)?;
        Ok(Self {
            path,
            rooms: Mutex::new(Rooms { checkpoints, bytes, state: State::Open { answers } }),
            answering: Mutex::new(Some(answering)),
            fault: OnceLock::new(),
        })
    }

    /// Publications are not stored.
    pub fn store(&self, _: StoreRequest) -> Result<(), LogError> {
        Err(LogError::Broken)
    }

    pub fn load(&self, _: LoadRequest) -> Result<(), LogError> {
        Err(LogError::Broken)
    }

    pub fn trim(&self, _: Arc<str>, _: u64, done: Option<EntriesDone>) {
        if let Some(done) = done {
            done(Ok(()));
        }
    }

    pub fn remove(&self, _: Arc<str>) {}

    pub fn poison(&self) -> Option<StorageError> {
        self.fault.get().cloned()
    }

    pub fn last_read_fault(&self) -> Option<StorageError> {
        None
    }

    pub fn set_disk_limits(&self, _: DiskLimits) {}

    pub fn history_bytes(&self) -> Vec<(Option<u16>, u64)> {
        Vec::new()
    }

    pub fn space_shortage(&self) -> Option<SpaceShortage> {
        None
    }

    pub fn free_bytes(&self) -> Option<u64> {
        None
    }

    pub fn counts(&self) -> StorageCounts {
        StorageCounts::default()
    }

    /// Gives the answers that wait, and writes the rooms to their file. [`Self::poison`] has the error, if it fails.
    pub fn close(&self) {
        let answering = self.answering.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(answering) = answering else { return };
        self.rooms().state = State::Closed;
        // A thread that panics ends the process.
        let _ = answering.join();
        // A reader finds a whole file or none. Without one, rooms begin anew.
        let new = self.path.join("rooms.new");
        let bytes = written(&self.rooms().checkpoints);
        if let Err(error) = fs::write(&new, bytes).and_then(|()| fs::rename(&new, self.path.join(FILE))) {
            let _ = self.fault.set(StorageError::io("write the rooms to", &self.path, &error));
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub const fn is_development(&self) -> bool {
        true
    }

    pub fn write_entries(&self, batch: EntryBatch, done: EntriesDone) -> Result<(), LogError> {
        let bytes_of = |change: &EntryChange| match change {
            EntryChange::Put { key, value, .. } => key.len() + value.len(),
            EntryChange::DeleteRange { .. } => 0,
        };
        let bytes: usize = batch.changes.iter().map(bytes_of).sum();
        let mut rooms = self.rooms();
        let State::Open { answers } = &rooms.state else { return Err(LogError::Busy(LogBusy::StorageWrites)) };
        if rooms.bytes.saturating_add(bytes) > BYTES_MAX {
            return Err(LogError::Busy(LogBusy::StorageWrites));
        }
        // First, because it may not fit. What the result leads to sees the batch, because it waits for the lock.
        answers.try_send(Done(done)).map_err(|_| LogError::Busy(LogBusy::StorageWrites))?;
        batch.changes.into_iter().for_each(|change| rooms.apply(change));
        Ok(())
    }

    pub fn newest_checkpoint(
        &self,
        room: &str,
        kind: u8,
        up_to_tick: u64,
    ) -> Result<Option<RoomCheckpoint>, StorageError> {
        let (first, last) = (keys::checkpoint_key(room, kind, 0), keys::checkpoint_key(room, kind, up_to_tick));
        let rooms = self.rooms();
        Ok(rooms.checkpoints.range(first..=last).next_back().and_then(checkpoint))
    }

    pub fn checkpoints(
        &self,
        room: &str,
        kind: u8,
        ticks: RangeInclusive<u64>,
        bytes_max: usize,
    ) -> Result<Vec<RoomCheckpoint>, StorageError> {
        if ticks.is_empty() {
            return Ok(Vec::new());
        }
        let [first, last] = [ticks.start(), ticks.end()].map(|tick| keys::checkpoint_key(room, kind, *tick));
        let mut bytes = 0;
        let fits = |(_, value): &(&Vec<u8>, &Vec<u8>)| {
            bytes += value.len();
            bytes <= bytes_max
        };
        Ok(self.rooms().checkpoints.range(first..=last).take_while(fits).filter_map(checkpoint).collect())
    }

    #[allow(clippy::unnecessary_wraps, reason = "as the storage that is built")]
    pub fn access_entries(&self) -> Result<Vec<AccessEntry>, StorageError> {
        // Rules about who may not connect are not kept.
        Ok(Vec::new())
    }

    pub fn rooms_with_checkpoints(&self, after: Option<&str>, rooms_max: usize) -> Result<Vec<Box<str>>, StorageError> {
        let from = after.map_or_else(Vec::new, |room| keys::behind(&keys::channel_key(room)));
        let rooms = self.rooms();
        let mut found: Vec<Box<str>> = Vec::new();
        for key in rooms.checkpoints.range(from..).map(|(key, _)| key) {
            let Some((room, _, _)) = keys::read_checkpoint_key(key) else { continue };
            if found.last().is_some_and(|last| **last == *room) {
                continue;
            }
            if found.len() == rooms_max {
                break;
            }
            found.push(room.into());
        }
        Ok(found)
    }

    pub fn read_paths(&self, _: PathQuery, _: PathsRead) -> Result<(), LogError> {
        Err(LogError::Broken)
    }

    pub fn inspect(&self) -> Result<UnbuiltInspection, StorageError> {
        not_built("read the storage", &self.path)
    }

    pub fn compact(&self) {}

    pub fn back_up(&self, _: &Path) -> Result<BackupInfo, StorageError> {
        not_built("back up the storage", &self.path)
    }

    fn rooms(&self) -> MutexGuard<'_, Rooms> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for UnbuiltStorage {
    fn drop(&mut self) {
        self.close();
    }
}

impl Rooms {
    fn apply(&mut self, change: EntryChange) {
        match change {
            EntryChange::Put { family: Family::Checkpoints, key, value } => {
                self.bytes += key.len() + value.len();
                let key_bytes = key.len();
                if let Some(before) = self.checkpoints.insert(key, value) {
                    self.bytes -= key_bytes + before.len();
                }
            }
            EntryChange::DeleteRange { family: Family::Checkpoints, begin, end } if begin < end => {
                let mut deleted = self.checkpoints.split_off(&begin);
                self.checkpoints.append(&mut deleted.split_off(&end));
                self.bytes -= deleted.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
            }
            // Paths of players and rules about who may not connect are not kept.
            EntryChange::Put { .. } | EntryChange::DeleteRange { .. } => {}
        }
    }
}

fn checkpoint((key, bytes): (&Vec<u8>, &Vec<u8>)) -> Option<RoomCheckpoint> {
    let (_, _, tick) = keys::read_checkpoint_key(key)?;
    Some(RoomCheckpoint { tick, bytes: bytes.as_slice().into() })
}

/// The file: for each entry the length of its key, the key, the length of its value, the value. Lengths have 8 bytes.
/// The content of a checkpoint has a hash of its own.
fn written(entries: &Entries) -> Vec<u8> {
    let mut out = Vec::new();
    for part in entries.iter().flat_map(|(key, value)| [key, value]) {
        out.extend_from_slice(&(part.len() as u64).to_le_bytes());
        out.extend_from_slice(part);
    }
    out
}

fn read(mut bytes: &[u8]) -> Option<Entries> {
    let mut entries = Entries::new();
    while !bytes.is_empty() {
        let key = part(&mut bytes)?.to_vec();
        entries.insert(key, part(&mut bytes)?.to_vec());
    }
    Some(entries)
}

fn part<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let (part, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    *bytes = rest;
    Some(part)
}

#[allow(missing_docs, clippy::missing_errors_doc, reason = "inspect.rs documents these methods")]
impl UnbuiltInspection {
    pub fn open(options: &StorageOptions) -> Result<Self, StorageError> {
        not_built("read the storage", &options.path)
    }

    pub fn last_run(&self) -> LastRun {
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
    use std::{sync::mpsc, thread, time::Duration};

    use dunlin_engine::{Event, ShardIndex, event::ShardEvents};

    use super::*;

    const TIMEOUT: Duration = Duration::from_mins(1);

    struct NoShards;

    impl ShardEvents for NoShards {
        fn send(&self, _: ShardIndex, _: Event<'static>) -> bool {
            true
        }
    }

    impl Completions for NoShards {}

    fn open(path: &Path) -> UnbuiltStorage {
        let options = StorageOptions { is_development: true, ..StorageOptions::at(path) };
        UnbuiltStorage::open(&options, Arc::new(NoShards)).expect("a storage")
    }

    fn put(storage: &UnbuiltStorage, room: &str, tick: u64, bytes: Vec<u8>) -> Result<(), LogError> {
        let mut batch = EntryBatch::new(false);
        batch.put_checkpoint(room, 1, tick, bytes);
        storage.write_entries(batch, Box::new(|outcome| outcome.expect("it is written")))
    }

    fn found(storage: &UnbuiltStorage, room: &str) -> Option<(u64, Vec<u8>)> {
        let newest = storage.newest_checkpoint(room, 1, u64::MAX).expect("it is read");
        newest.map(|found| (found.tick, found.bytes.into_vec()))
    }

    #[test]
    fn a_file_that_cannot_be_read_stays_and_is_named() {
        let path = std::env::temp_dir().join(format!("dunlin-unreadable-{}", std::process::id()));
        fs::create_dir_all(path.join(FILE)).expect("a directory where the file should be");
        let options = StorageOptions { is_development: true, ..StorageOptions::at(&path) };
        let error = UnbuiltStorage::open(&options, Arc::new(NoShards)).expect_err("it cannot be read").to_string();
        assert!(error.contains(path.join(FILE).to_str().expect("it is text")), "{error}");
        assert!(path.join(FILE).exists());
        fs::remove_dir_all(path).expect("it exists");
    }

    #[test]
    fn rooms_are_there_after_a_clean_end_and_not_after_another() {
        let path = std::env::temp_dir().join(format!("dunlin-unbuilt-{}", std::process::id()));
        let storage = open(&path);
        for (room, tick) in [("b", 1), ("a", 2), ("a", 3), ("c", 4)] {
            put(&storage, room, tick, vec![tick as u8; 3]).expect("there is room");
        }
        let mut batch = EntryBatch::new(false);
        batch.delete_checkpoints("a", 1, 3);
        batch.delete_all_checkpoints("c");
        storage.write_entries(batch, Box::new(|_| {})).expect("there is room");
        storage.close();
        assert!(put(&storage, "a", 9, Vec::new()).is_err(), "it is closed");
        drop(storage);

        let storage = open(&path);
        assert_eq!((found(&storage, "a"), found(&storage, "b")), (Some((3, vec![3; 3])), Some((1, vec![1; 3]))));
        let rooms = |after, max| storage.rooms_with_checkpoints(after, max).expect("they are listed");
        assert_eq!(
            (rooms(None, 9), rooms(None, 1), rooms(Some("a"), 9)),
            (vec!["a".into(), "b".into()], vec!["a".into()], vec!["b".into()])
        );
        let ticks = |bytes_max| storage.checkpoints("a", 1, 0..=u64::MAX, bytes_max).expect("they are read").len();
        assert_eq!((ticks(3), ticks(2)), (1, 0));
        // A process that is killed runs no destructor.
        std::mem::forget(storage);
        assert_eq!(found(&open(&path), "a"), None);
        fs::remove_dir_all(path).expect("it is removed");
    }

    /// Writes the parts of a checkpoint, each when the one before it is written, as rooms do. Passes the thread of each
    /// result on.
    fn write_parts(storage: &Arc<UnbuiltStorage>, parts: u64, threads: mpsc::Sender<thread::ThreadId>) {
        let mut batch = EntryBatch::new(false);
        batch.put_checkpoint("a", 1, parts, vec![0; 3]);
        let again = Arc::clone(storage);
        let done = Box::new(move |outcome: Result<(), StorageError>| {
            outcome.expect("it is written");
            threads.send(thread::current().id()).expect("the test reads it");
            if parts > 1 {
                write_parts(&again, parts - 1, threads);
            }
        });
        storage.write_entries(batch, done).expect("there is room");
    }

    #[test]
    fn a_result_comes_on_another_thread_and_may_lead_to_the_next_write() {
        let path = std::env::temp_dir().join(format!("dunlin-unbuilt-parts-{}", std::process::id()));
        let storage = Arc::new(open(&path));
        let (sender, threads) = mpsc::channel();
        write_parts(&storage, 300, sender);
        for _ in 0..300 {
            let thread = threads.recv_timeout(TIMEOUT).expect("a result");
            assert_ne!(thread, thread::current().id(), "a writer may hold a lock that the result needs");
        }
        assert_eq!(storage.checkpoints("a", 1, 0..=u64::MAX, usize::MAX).map(|found| found.len()), Ok(300));
        storage.close();
        fs::remove_dir_all(path).expect("it is removed");
    }

    #[test]
    fn results_wait_up_to_a_limit_and_a_storage_that_closes_gives_them() {
        let path = std::env::temp_dir().join(format!("dunlin-unbuilt-results-{}", std::process::id()));
        let queues = crate::QueueLimits { writes_max: 1, ..crate::QueueLimits::default() };
        let options = StorageOptions { is_development: true, queues, ..StorageOptions::at(&path) };
        let storage = UnbuiltStorage::open(&options, Arc::new(NoShards)).expect("a storage");
        let (begun, has_begun) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let slow = Box::new(move |_| {
            begun.send(()).expect("the test reads it");
            may_go_on.recv_timeout(TIMEOUT).expect("the test lets it go on");
        });
        storage.write_entries(EntryBatch::new(false), slow).expect("there is room");
        has_begun.recv_timeout(TIMEOUT).expect("its result comes");
        put(&storage, "a", 1, vec![1]).expect("at the limit");
        assert_eq!(put(&storage, "b", 1, vec![1]), Err(LogError::Busy(LogBusy::StorageWrites)));
        go_on.send(()).expect("it waits");
        storage.close();
        assert_eq!(
            (found(&storage, "a"), found(&storage, "b")),
            (Some((1, vec![1])), None),
            "a refused batch is not written"
        );
        fs::remove_dir_all(path).expect("it is removed");
    }

    #[test]
    fn rooms_that_cannot_be_written_are_an_error() {
        let path = std::env::temp_dir().join(format!("dunlin-unbuilt-fault-{}", std::process::id()));
        let storage = open(&path);
        fs::create_dir(path.join("rooms.new")).expect("a folder where the file is to be");
        assert_eq!(storage.poison(), None);
        storage.close();
        let error = storage.poison().expect("an error").to_string();
        assert!(error.starts_with(&format!("cannot write the rooms to {}: ", path.display())), "{error}");
        fs::remove_dir_all(path).expect("it is removed");
    }

    #[test]
    fn rooms_are_kept_up_to_a_limit() {
        let path = std::env::temp_dir().join(format!("dunlin-unbuilt-limit-{}", std::process::id()));
        let storage = open(&path);
        let key_bytes = keys::checkpoint_key("a", 1, 1).len();
        put(&storage, "a", 1, vec![0; BYTES_MAX - key_bytes]).expect("at the limit");
        assert_eq!(put(&storage, "b", 1, Vec::new()), Err(LogError::Busy(LogBusy::StorageWrites)));
        let mut batch = EntryBatch::new(false);
        batch.delete_all_checkpoints("a");
        storage.write_entries(batch, Box::new(|_| {})).expect("a deletion takes no space");
        put(&storage, "b", 1, Vec::new()).expect("there is room again");
        drop(storage);
        fs::remove_dir_all(path).expect("it is removed");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_no_rooms() {
        for bytes in [&[1][..], &[9, 0, 0, 0, 0, 0, 0, 0, 1], &[0; 8], &[0xff; 16]] {
            assert_eq!(read(bytes), None, "{bytes:?}");
        }
        assert_eq!(read(&[]), Some(Entries::new()));
    }

    #[test]
    fn without_rocksdb_opening_a_storage_is_an_error() {
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
