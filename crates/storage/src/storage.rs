//! An open storage: its threads and their queues.

use std::{
    ops::RangeInclusive,
    path::Path,
    sync::{Arc, Mutex, PoisonError, mpsc::SyncSender},
    thread::JoinHandle,
};

use dunlin_engine::log::{LogBusy, LogError};
use dunlin_queues::declared::{STORAGE_READS, STORAGE_WRITES};

use crate::{
    backup,
    counters::{StorageCounters, StorageCounts},
    disk_limits::DiskLimits,
    entries::{AccessEntry, EntryBatch, RoomCheckpoint},
    error::StorageError,
    family::Family,
    free_space::{self, SpaceShortage},
    inspect::Inspection,
    keys,
    options::{QueueLimits, StorageOptions},
    paths::{PathQuery, PathsRead},
    read_access, read_checkpoints,
    read_paths::PathTask,
    reader::{ReadTask, Reader},
    report::BackupInfo,
    request::{Completions, Done, EntriesDone, LoadRequest, StoreRequest},
    shared_database::SharedDatabase,
    threads, write_stall,
    writer::{TrimTo, WriteQueue, WriteTask, Writer},
};

/// An open storage, which shards share. Dropping it writes the queued requests, and ends its threads.
#[derive(Debug)]
pub struct Storage {
    shared: Arc<SharedDatabase>,
    queue: Arc<WriteQueue>,
    readers: Option<SyncSender<ReadTask>>,
    reader_threads: Vec<JoinHandle<()>>,
    writer_thread: Mutex<Option<JoinHandle<()>>>,
}

impl Storage {
    /// Opens or creates a storage in a directory, and starts the threads. With [`StartPolicy::OpenLater`](crate::StartPolicy),
    /// the storage may be poisoned at first.
    ///
    /// # Errors
    /// See [`StorageFault`].
    pub fn open(options: &StorageOptions, completions: Arc<dyn Completions>) -> Result<Self, StorageError> {
        let shared = Arc::new(SharedDatabase::open(options)?);
        let QueueLimits { writes_max, reads_max, .. } = options.queues;
        let (write_sender, write_tasks) = STORAGE_WRITES.with_messages(writes_max).std_channel();
        let (readers, read_tasks) = STORAGE_READS.with_messages(reads_max).std_channel();
        let queue = Arc::new(WriteQueue::new(write_sender, options.queues));
        let mut storage = Self {
            shared: Arc::clone(&shared),
            queue: Arc::clone(&queue),
            readers: None,
            reader_threads: Vec::new(),
            writer_thread: Mutex::default(),
        };
        let tasks = Arc::new(Mutex::new(read_tasks));
        for number in 0..options.readers.max(1) {
            let reader = Reader {
                shared: Arc::clone(&shared),
                queue: Arc::clone(&queue),
                tasks: Arc::clone(&tasks),
                completions: Arc::clone(&completions),
                limits: options.pages,
            };
            let thread = threads::start(format!("storage-read-{number}"), &options.path, move || reader.run())?;
            storage.reader_threads.push(thread);
        }
        let writer = Writer::new(options, shared, queue, write_tasks, completions);
        let thread = threads::start("storage-write".to_owned(), &options.path, move || writer.run())?;
        storage.writer_thread = Mutex::new(Some(thread));
        storage.readers = Some(readers);
        Ok(storage)
    }

    /// Queues a publication to be stored.
    ///
    /// # Errors
    /// The queue is full, or the storage is poisoned. In this case, no answer follows.
    pub fn store(&self, request: StoreRequest) -> Result<(), LogError> {
        if !keys::fits(&request.channel) {
            return Err(LogError::Unavailable);
        }
        self.push(WriteTask::Store(request))
    }

    /// Queues a load of a part of a channel.
    ///
    /// # Errors
    /// The queue is full. In this case, no answer follows.
    pub fn load(&self, request: LoadRequest) -> Result<(), LogError> {
        if !keys::fits(&request.channel) {
            return Err(LogError::Unavailable);
        }
        self.push_read(ReadTask::new(request, &self.queue))
    }

    /// Deletes a channel's committed publications up to this offset. Later loads do not return them. `done` receives the
    /// result when the deletion is written, or could not be. After a failed write it is written when the storage writes
    /// again.
    pub fn trim(&self, channel: Arc<str>, through: u64, done: Option<EntriesDone>) {
        self.request_trim(channel, TrimTo::Offset(through), done);
    }

    /// Deletes a channel with its epoch, its offsets and its idempotency keys. Publications that are still queued are
    /// stored in its next epoch.
    pub fn remove(&self, channel: Arc<str>) {
        self.request_trim(channel, TrimTo::Removed, None);
    }

    /// Queues a batch of entries. `done` is called on the writer's thread, unless this function returns an error.
    ///
    /// # Errors
    /// The queue is full, or the storage is poisoned.
    pub fn write_entries(&self, batch: EntryBatch, done: EntriesDone) -> Result<(), LogError> {
        self.push(WriteTask::Entries { batch, done: Done(done) })
    }

    /// The newest checkpoint of a kind up to a tick.
    ///
    /// # Errors
    /// The disk fails, or stored bytes are damaged.
    pub fn newest_checkpoint(
        &self,
        room: &str,
        kind: u8,
        up_to_tick: u64,
    ) -> Result<Option<RoomCheckpoint>, StorageError> {
        let database = self.shared.get()?;
        read_checkpoints::newest_checkpoint(&database, room, kind, up_to_tick)
    }

    /// The checkpoints of a kind at these ticks, in ascending order, up to a total of `bytes_max`.
    ///
    /// # Errors
    /// As [`Storage::newest_checkpoint`].
    pub fn checkpoints(
        &self,
        room: &str,
        kind: u8,
        ticks: RangeInclusive<u64>,
        bytes_max: usize,
    ) -> Result<Vec<RoomCheckpoint>, StorageError> {
        let database = self.shared.get()?;
        read_checkpoints::checkpoints(&database, room, kind, ticks, bytes_max)
    }

    /// Rooms after `after` that have checkpoints, in the order of their keys.
    ///
    /// # Errors
    /// As [`Storage::newest_checkpoint`].
    pub fn rooms_with_checkpoints(&self, after: Option<&str>, rooms_max: usize) -> Result<Vec<Box<str>>, StorageError> {
        let database = self.shared.get()?;
        read_checkpoints::rooms_with_checkpoints(&database, after, rooms_max)
    }

    /// The rules about who may not connect that have not expired.
    ///
    /// # Errors
    /// As [`Storage::newest_checkpoint`].
    pub fn access_entries(&self) -> Result<Vec<AccessEntry>, StorageError> {
        let database = self.shared.get()?;
        read_access::access_entries(&database)
    }

    /// Queues a query for blocks of players' paths. `done` is called on a reader's thread, unless this function returns
    /// an error.
    ///
    /// # Errors
    /// The queue of the readers is full.
    pub fn read_paths(&self, query: PathQuery, done: PathsRead) -> Result<(), LogError> {
        if !keys::fits(&query.room) {
            return Err(LogError::Unavailable);
        }
        self.push_read(ReadTask::Paths(PathTask { query, done }))
    }

    /// Makes a backup in `directory`, which is created if it is missing. Files that are part of an earlier backup there
    /// are not copied again. The backup contains everything that was acknowledged before. Blocks only the caller;
    /// threads of low priority do the work.
    ///
    /// # Errors
    /// A disk fails.
    pub fn back_up(&self, directory: &Path) -> Result<BackupInfo, StorageError> {
        backup::back_up(&self.shared, directory)
    }

    /// What operators read of the storage. Drop it soon: after a failed write, the storage is opened again only when
    /// nobody reads.
    ///
    /// # Errors
    /// The database is closed after a failed write.
    pub fn inspect(&self) -> Result<Inspection, StorageError> {
        self.shared.get().map(Inspection::of)
    }

    /// Compacts everything, so that deleted and expired entries free their space. Takes a while; requests are served in
    /// the meantime. Does nothing while the database is closed after a failed write.
    pub fn compact(&self) {
        let Ok(database) = self.shared.get() else { return };
        for family in Family::ALL {
            database.db.compact_range_cf(database.family(family), None::<&[u8]>, None::<&[u8]>);
        }
    }

    /// The error of the failed write, while nothing is written.
    pub fn poison(&self) -> Option<StorageError> {
        self.shared.fault()
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.shared.path()
    }

    /// Whether a room whose checkpoint cannot be used begins anew.
    pub fn is_development(&self) -> bool {
        self.shared.is_development()
    }

    /// The error of the last failed read.
    pub fn last_read_fault(&self) -> Option<StorageError> {
        self.shared.counters.last_read_fault()
    }

    /// Replaces the limits on the bytes of stored publications; without a call, there are none. They apply to later
    /// publications.
    pub fn set_disk_limits(&self, limits: DiskLimits) {
        self.queue.disk_limits.set(limits);
        // The writer counts anew, also if nothing is published. If the queue is full, it does so with the next commit.
        let _ = self.queue.push(WriteTask::Trim);
    }

    /// The bytes of stored publications, by the number of the namespace; `None` for channels of no namespace.
    pub fn history_bytes(&self) -> Vec<(Option<u16>, u64)> {
        let totals = self.shared.counters.history_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        totals.iter().map(|(namespace, bytes)| (*namespace, *bytes)).collect()
    }

    /// The shortage of free space for which publications are refused; `None` if there is enough.
    pub fn space_shortage(&self) -> Option<SpaceShortage> {
        free_space::shortage(self.path(), self.shared.free_space_min_bytes(), &self.shared.counters)
    }

    /// Free bytes of the file system; `None` if they are unknown.
    pub fn free_bytes(&self) -> Option<u64> {
        write_stall::free_bytes(self.path())
    }

    /// The counters since the storage was opened.
    pub fn counts(&self) -> StorageCounts {
        self.shared.counters.counts()
    }

    /// Writes and syncs the queued requests, and records that nothing is lost. Returns when this is done. Nothing is
    /// stored afterwards; reads continue to work until the storage is dropped.
    pub fn close(&self) {
        let thread = self.writer_thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            self.queue.stop();
            // A thread that panics ends the process.
            let _ = thread.join();
        }
    }

    fn request_trim(&self, channel: Arc<str>, to: TrimTo, done: Option<EntriesDone>) {
        if keys::fits(&channel) {
            self.queue.trims.request(channel, to, done.map(Done));
            // If the queue is full, the writer is awake and needs no task.
            let _ = self.queue.push(WriteTask::Trim);
        } else if let Some(done) = done {
            // No such channel is stored.
            done(Ok(()));
        }
    }

    fn push(&self, task: WriteTask) -> Result<(), LogError> {
        if self.poison().is_some() {
            return Err(LogError::Broken);
        }
        self.queue.push(task).map_err(|_| self.refuse(LogBusy::StorageWrites))
    }

    fn push_read(&self, task: ReadTask) -> Result<(), LogError> {
        let Some(readers) = &self.readers else { return Err(LogError::Unavailable) };
        readers.try_send(task).map_err(|_| self.refuse(LogBusy::StorageReads))
    }

    fn refuse(&self, queue: LogBusy) -> LogError {
        StorageCounters::add(&self.shared.counters.refused, 1);
        LogError::Busy(queue)
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.close();
        self.readers = None;
        for thread in self.reader_threads.drain(..) {
            // A thread that panics ends the process.
            let _ = thread.join();
        }
    }
}
