//! Rooms that are stored, and the entries of each: on the disk of the node, or in the cluster.
//!
//! A room with `survival` stores a checkpoint from time to time, and with `exact` a log record for each tick. The
//! entries of a room end with the room: the code that ends it deletes them, unless the room continues later. No entry is
//! written after that, even by a thread that was stuck in the room's game.
//!
//! On disk, the entries are those of one process at a time. In the cluster, another node may take them over, and this one
//! learns of it with its next write ([`cluster_logs`]).

mod checkpoint_parts;
mod cluster_logs;
mod refused_rooms;

use std::{
    collections::HashMap,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dunlin_engine::{host::Runner, log::LogError};
use dunlin_queues::answer_channel;
use dunlin_storage::{EntryBatch, RoomCheckpoint};

use super::{ThreadWaker, restore::MigratedRoom};

use crate::{
    node::{NodeCluster, NodeStorage},
    telemetry::room_events,
};

use checkpoint_parts::PartedWrites;
pub(super) use checkpoint_parts::{CheckpointPieces, PART_BYTES};
use cluster_logs::ClusterLogs;

/// The kinds of a room's entries.
const CHECKPOINT: u8 = 1;
const LOG: u8 = 2;

/// Maximum time that the restore of a room waits for the storage to write its queue.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time that a request waits for the end of the room that it has closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Size of a part of the log that is read at a time.
pub(super) const LOG_PART_BYTES: usize = 8 << 20;

/// Counters of stored rooms. All values are monotonic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SurvivalReport {
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Checkpoints that could not be written, or were too large.
    pub checkpoints_failed: u64,
    /// Bytes of checkpoints.
    pub checkpoint_bytes: u64,
    /// Log records written, one for each tick.
    pub records: u64,
    /// Bytes of log records.
    pub record_bytes: u64,
    /// Rooms that continued from a checkpoint.
    pub restored: u64,
    /// Rooms that continued from a checkpoint with other rules.
    pub migrated: u64,
    /// Rooms whose checkpoint or log was unusable.
    pub not_restored: u64,
    /// Ticks that were replayed from logs.
    pub replayed_ticks: u64,
}

#[derive(Debug, Default)]
struct Counters {
    checkpoints: AtomicU64,
    checkpoints_failed: AtomicU64,
    checkpoint_bytes: AtomicU64,
    records: AtomicU64,
    record_bytes: AtomicU64,
    restored: AtomicU64,
    migrated: AtomicU64,
    not_restored: AtomicU64,
    replayed_ticks: AtomicU64,
}

/// Where the rooms of a node are stored.
#[derive(Debug)]
enum Store {
    /// The column family `checkpoints` of the node's storage.
    Disk(Arc<NodeStorage>),
    /// The stream of rooms' logs, which all nodes share.
    Cluster(Arc<ClusterLogs>),
}

/// The stored rooms of a node.
#[derive(Debug)]
pub(crate) struct KeptRooms {
    store: Store,
    /// Channels whose entries belong to a room of this process, each with the number of its claim.
    open: Mutex<HashMap<Arc<str>, u64>>,
    claims: AtomicU64,
    ended: Condvar,
    counters: Counters,
}

/// Why the entries of a room were not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotRead {
    /// They are not to be had now.
    Unavailable(String),
    /// They stay unusable until somebody does something about it.
    Unusable(String),
}

/// The entries of one room.
#[derive(Debug)]
pub(super) struct RoomEntries {
    rooms: Arc<KeptRooms>,
    channel: Arc<str>,
    /// The number of its claim.
    claim: u64,
    /// In a cluster: the records that were read with the checkpoint, until the room is restored.
    read: Mutex<Vec<RoomCheckpoint>>,
    /// Whether the room has ended. Locked while a write is queued, so that no write follows the deletion.
    has_ended: Mutex<bool>,
    /// The number of ticks whose records are written.
    logged: AtomicU64,
    parting: Mutex<PartedWrites>,
    /// Why records are no longer written, if so.
    fault: OnceLock<String>,
    /// The room's thread.
    waker: Arc<ThreadWaker>,
}

impl KeptRooms {
    pub(super) fn on_disk(storage: Arc<NodeStorage>) -> Self {
        Self::in_store(Store::Disk(storage))
    }

    pub(super) fn in_cluster(cluster: &Arc<NodeCluster>) -> Arc<Self> {
        let logs = Arc::new(ClusterLogs::new(Arc::clone(cluster)));
        let rooms = Arc::new(Self::in_store(Store::Cluster(Arc::clone(&logs))));
        logs.receive_for(&rooms);
        rooms
    }

    fn in_store(store: Store) -> Self {
        let open = Mutex::default();
        Self { store, open, claims: AtomicU64::new(0), ended: Condvar::new(), counters: Counters::default() }
    }

    /// Claims the entries of a channel for a new room. Waits for a previous room that is about to end; `None` if it
    /// does not end.
    pub(super) fn claim(
        self: &Arc<Self>,
        channel: &Arc<str>,
        waker: Arc<ThreadWaker>,
        timeout: Duration,
    ) -> Option<Arc<RoomEntries>> {
        let is_taken = |open: &mut HashMap<Arc<str>, u64>| open.contains_key(channel);
        let waited = self.ended.wait_timeout_while(self.open(), timeout, is_taken);
        let (mut open, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let number = self.claims.fetch_add(1, Ordering::Relaxed);
        (!open.contains_key(channel)).then(|| {
            open.insert(Arc::clone(channel), number);
            let (rooms, channel) = (Arc::clone(self), Arc::clone(channel));
            let has_ended = Mutex::new(false);
            Arc::new(RoomEntries {
                rooms,
                channel,
                claim: number,
                read: Mutex::default(),
                has_ended,
                logged: AtomicU64::new(0),
                parting: Mutex::default(),
                fault: OnceLock::new(),
                waker,
            })
        })
    }

    /// The claim of a channel's room.
    pub(crate) fn claim_of(&self, channel: &str) -> Option<u64> {
        self.open().get(channel).copied()
    }

    /// Deletes the entries of a channel whose room was closed, or which has none: they may be unusable. `closed` is the
    /// claim of the closed room, which may still be about to end. Returns when the deletion is written, so that the room
    /// does not come back after a crash.
    ///
    /// # Errors
    /// The room does not end, or the storage writes nothing.
    pub(crate) fn forget(&self, channel: &str, closed: Option<u64>) -> Result<(), &'static str> {
        let is_ending =
            |open: &mut HashMap<Arc<str>, u64>| open.get(channel).is_some_and(|claim| Some(*claim) == closed);
        let waited = self.ended.wait_timeout_while(self.open(), CLOSE_TIMEOUT, is_ending);
        let (mut open, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return Err("the room has not ended yet");
        }
        let storage = match &self.store {
            Store::Disk(storage) => storage.storage(),
            // A room that is open again is another one. The log of the closed one ended with its mark.
            Store::Cluster(_) if open.contains_key(channel) => return Ok(()),
            Store::Cluster(logs) => {
                // A new room of the channel waits: it would claim the log while it is given up.
                let claim = self.claims.fetch_add(1, Ordering::Relaxed);
                open.insert(channel.into(), claim);
                drop(open);
                return logs.discard(self, claim, channel);
            }
        };
        let mut batch = EntryBatch::new(false);
        if !open.contains_key(channel) {
            batch.delete_all_checkpoints(channel);
        }
        // Behind the deletion that the end of the room has queued; a new room may write again already.
        let (sender, written) = answer_channel();
        let done = Box::new(move |outcome: Result<(), _>| {
            // An error means that the waiter has timed out.
            let _ = sender.send(outcome.is_ok());
        });
        storage.write_entries(batch, done).map_err(not_queued)?;
        drop(open);
        match written.recv_timeout(FLUSH_TIMEOUT) {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(not_queued(LogError::Broken)),
        }
    }

    pub(super) fn report(&self) -> SurvivalReport {
        let counters = &self.counters;
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SurvivalReport {
            checkpoints: of(&counters.checkpoints),
            checkpoints_failed: of(&counters.checkpoints_failed),
            checkpoint_bytes: of(&counters.checkpoint_bytes),
            records: of(&counters.records),
            record_bytes: of(&counters.record_bytes),
            restored: of(&counters.restored),
            migrated: of(&counters.migrated),
            not_restored: of(&counters.not_restored),
            replayed_ticks: of(&counters.replayed_ticks),
        }
    }

    /// The rooms without a node that this one is to open. Waits for some; for ever if rooms are not in the cluster.
    pub(crate) async fn orphans(&self) -> Vec<Box<str>> {
        match &self.store {
            Store::Disk(_) => std::future::pending().await,
            Store::Cluster(logs) => logs.orphans().await,
        }
    }

    /// Whether the game of this node could not go on with the room of a channel a moment ago, so that other nodes of the
    /// cluster are to open it.
    pub(crate) fn leaves_to_others(&self, channel: &str) -> bool {
        match &self.store {
            Store::Disk(_) => false,
            Store::Cluster(logs) => logs.has_refused(channel),
        }
    }

    /// Whether rooms are in the cluster.
    pub(crate) const fn is_in_cluster(&self) -> bool {
        matches!(self.store, Store::Cluster(_))
    }

    /// A claim is over: a new room of its channel may write.
    fn note_over(&self, channel: &str, claim: u64) {
        let mut open = self.open();
        if open.get(channel) == Some(&claim) {
            open.remove(channel);
        }
        drop(open);
        self.ended.notify_all();
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Arc<str>, u64>> {
        lock(&self.open)
    }
}

impl RoomEntries {
    /// The newest checkpoint. On disk, waits until the storage has written its queue; in the cluster, until the room's log
    /// is this node's.
    pub(super) fn newest_checkpoint(self: &Arc<Self>, go_on: &dyn Fn()) -> Result<Option<RoomCheckpoint>, NotRead> {
        let storage = match &self.rooms.store {
            Store::Disk(storage) => storage.storage(),
            Store::Cluster(logs) => return logs.open(self, go_on),
        };
        let (written, is_written) = answer_channel();
        let done = Box::new(move |_| {
            // An error means that the waiter has timed out.
            let _ = written.try_send(());
        });
        // A poisoned storage refuses the batch, and its queue is empty.
        match storage.write_entries(EntryBatch::new(false), done) {
            Ok(()) if is_written.recv_timeout(FLUSH_TIMEOUT).is_err() => {
                return Err(NotRead::Unavailable("the storage is too busy".to_owned()));
            }
            Err(error @ LogError::Busy(_)) => return Err(NotRead::Unavailable(not_queued(error).to_owned())),
            Ok(()) | Err(_) => {}
        }
        self.read_newest(storage).map_err(NotRead::Unusable)
    }

    /// Log records beginning with a tick, up to the limits [`LOG_PART_BYTES`] and `bytes_max`.
    pub(super) fn records(&self, from_tick: u64, bytes_max: usize) -> Result<Vec<RoomCheckpoint>, String> {
        let Store::Disk(storage) = &self.rooms.store else {
            let mut read = std::mem::take(&mut *lock(&self.read));
            read.retain(|record| record.tick >= from_tick);
            return Ok(read);
        };
        let bytes_max = LOG_PART_BYTES.max(bytes_max);
        let read = storage.storage().checkpoints(&self.channel, LOG, from_tick..=u64::MAX, bytes_max);
        read.map_err(|error| error.to_string())
    }

    /// Queues the write of a checkpoint, which replaces older checkpoints and the log up to its tick.
    ///
    /// # Errors
    /// It cannot be queued, which is counted. In parts, the next checkpoint makes up for it.
    pub(super) fn write_checkpoint(
        self: &Arc<Self>,
        tick_count: u64,
        bytes: Vec<u8>,
        pieces: CheckpointPieces,
    ) -> Result<(), &'static str> {
        if let Store::Cluster(logs) = &self.rooms.store {
            let has_ended = self.has_ended();
            let goes_first = pieces == CheckpointPieces::WithoutLog;
            if *has_ended {
                return Ok(());
            }
            let queued = logs.write_checkpoint(self.claim, tick_count, bytes, goes_first);
            return queued.inspect_err(|detail| self.checkpoint_failed(detail));
        }
        if pieces == CheckpointPieces::Parts && bytes.len() > PART_BYTES {
            self.write_parted(tick_count, bytes);
            return Ok(());
        }
        let (entries, size_bytes) = (Arc::clone(self), bytes.len() as u64);
        let mut batch = EntryBatch::new(false);
        checkpoint_parts::replace_older(&mut batch, &self.channel, tick_count);
        if pieces == CheckpointPieces::WithoutLog {
            batch.delete_checkpoints(&self.channel, LOG, u64::MAX);
        }
        batch.put_checkpoint(&self.channel, CHECKPOINT, tick_count, bytes);
        let queued = self.write(batch, move |outcome| match outcome {
            Ok(()) => entries.checkpoint_written(size_bytes),
            Err(detail) => entries.checkpoint_failed(&detail),
        });
        queued.map_err(not_queued).inspect_err(|detail| self.checkpoint_failed(detail))
    }

    fn checkpoint_written(&self, size_bytes: u64) {
        self.count(|counters| &counters.checkpoints, 1);
        self.count(|counters| &counters.checkpoint_bytes, size_bytes);
    }

    /// Counts and logs a checkpoint that could not be written.
    pub(super) fn checkpoint_failed(&self, detail: &str) {
        self.count(|counters| &counters.checkpoints_failed, 1);
        room_events::CheckpointFailed { channel: &self.channel, detail }.emit();
    }

    /// Queues the write of a tick's log record. The room's thread is woken when it is written.
    ///
    /// # Errors
    /// Why the record cannot be queued.
    pub(super) fn write_record(self: &Arc<Self>, tick_count: u64, bytes: Vec<u8>) -> Result<(), &'static str> {
        if let Store::Cluster(logs) = &self.rooms.store {
            let has_ended = self.has_ended();
            if *has_ended {
                return Ok(());
            }
            let size_bytes = bytes.len() as u64;
            logs.write_record(self.claim, tick_count, bytes)?;
            self.count(|counters| &counters.records, 1);
            self.count(|counters| &counters.record_bytes, size_bytes);
            return Ok(());
        }
        let (entries, size_bytes) = (Arc::clone(self), bytes.len() as u64);
        let mut batch = EntryBatch::new(false);
        batch.put_checkpoint(&self.channel, LOG, tick_count, bytes);
        let queued = self.write(batch, move |outcome| match outcome {
            Ok(()) => {
                entries.count(|counters| &counters.records, 1);
                entries.count(|counters| &counters.record_bytes, size_bytes);
                entries.note_logged(tick_count);
            }
            Err(detail) => entries.note_fault(detail),
        });
        queued.map_err(not_queued)
    }

    fn note_logged(&self, tick_count: u64) {
        self.logged.fetch_max(tick_count, Ordering::AcqRel);
        self.waker.call();
    }

    fn note_fault(&self, detail: String) {
        drop(self.fault.set(detail));
        self.waker.call();
    }

    /// The number of ticks whose records are written.
    pub(super) fn logged(&self) -> u64 {
        self.logged.load(Ordering::Acquire)
    }

    /// Why records are no longer written, if so.
    pub(super) fn fault(&self) -> Option<&str> {
        self.fault.get().map(String::as_str)
    }

    /// Counts and logs that the room continues from its checkpoint, after `replayed_ticks` ticks of its log.
    pub(super) fn note_restored(&self, runner: &Runner, replayed_ticks: u64) {
        let (tick, players) = (runner.room().tick_number(), runner.room().player_count());
        room_events::RoomRestored { channel: &self.channel, tick, replayed_ticks, players }.emit();
        self.count(|counters| &counters.restored, 1);
        self.count(|counters| &counters.replayed_ticks, replayed_ticks);
    }

    /// Counts and logs that the room continues from its checkpoint with other rules.
    pub(super) fn note_migrated(&self, runner: &Runner, migrated: MigratedRoom) {
        let MigratedRoom { from_version, lost_ticks } = migrated;
        let (room, channel) = (runner.room(), &*self.channel);
        let (tick, version, players) = (room.tick_number(), room.game_version(), room.player_count());
        room_events::RoomMigrated { channel, tick, from_version, version, lost_ticks, players }.emit();
        self.count(|counters| &counters.migrated, 1);
    }

    /// Counts a room whose checkpoint or log is unusable here. In a cluster, another node may be able to use it.
    pub(super) fn note_not_restored(&self) {
        if let Store::Cluster(logs) = &self.rooms.store {
            logs.refuse(self.claim);
        }
        self.count(|counters| &counters.not_restored, 1);
    }

    /// In a cluster, leaves a room that the game of this node cannot go on with to the others. Returns whether it has.
    pub(super) fn leave_to_others(&self) -> bool {
        let Store::Cluster(logs) = &self.rooms.store else { return false };
        self.note_not_restored();
        logs.remember_refused(&self.channel);
        true
    }

    /// Whether the entries are in the cluster.
    pub(super) fn is_in_cluster(&self) -> bool {
        self.rooms.is_in_cluster()
    }

    /// Whether a room whose checkpoint cannot be used begins anew.
    pub(super) fn is_development(&self) -> bool {
        match &self.rooms.store {
            Store::Disk(storage) => storage.storage().is_development(),
            Store::Cluster(_) => false,
        }
    }

    /// Counts and logs a room whose checkpoint is unusable, and deletes what it has stored.
    pub(super) fn begin_anew(&self, detail: &str) {
        self.note_not_restored();
        room_events::RoomBeginsAnew { channel: &self.channel, detail }.emit();
        self.delete();
    }

    /// Marks the room as ended. Nothing is written afterwards.
    pub(super) fn end(&self, deletes: bool) {
        let mut has_ended = self.has_ended();
        if std::mem::replace(&mut *has_ended, true) {
            return;
        }
        match &self.rooms.store {
            // A new room of the channel queues its writes behind the deletion.
            Store::Disk(_) => {
                if deletes {
                    self.delete();
                }
                self.rooms.note_over(&self.channel, self.claim);
            }
            // A new room of the channel would claim the log before its end is stored.
            Store::Cluster(logs) => logs.end(self.claim, !deletes),
        }
    }

    /// Deletes the entries of a room on disk.
    fn delete(&self) {
        let mut batch = EntryBatch::new(false);
        batch.delete_all_checkpoints(&self.channel);
        let Store::Disk(storage) = &self.rooms.store else { return };
        if storage.storage().write_entries(batch, Box::new(|_| {})).is_err() {
            let channel = &self.channel;
            room_events::CheckpointFailed { channel, detail: "it could not be deleted" }.emit();
        }
    }

    fn write(&self, batch: EntryBatch, done: impl FnOnce(Result<(), String>) + Send + 'static) -> Result<(), LogError> {
        let has_ended = self.has_ended();
        if *has_ended {
            return Ok(());
        }
        let done = Box::new(|outcome: Result<(), dunlin_storage::StorageError>| {
            done(outcome.map_err(|error| error.to_string()));
        });
        match &self.rooms.store {
            Store::Disk(storage) => storage.storage().write_entries(batch, done),
            Store::Cluster(_) => Err(LogError::Broken),
        }
    }

    fn count(&self, counter: fn(&Counters) -> &AtomicU64, by: u64) {
        counter(&self.rooms.counters).fetch_add(by, Ordering::Relaxed);
    }

    fn has_ended(&self) -> MutexGuard<'_, bool> {
        lock(&self.has_ended)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn not_queued(error: LogError) -> &'static str {
    match error {
        LogError::Busy(_) => {
            "the storage has too many writes queued (storage.queue_writes_limit, storage.queue_bytes_limit)"
        }
        _ => "the storage writes nothing any more after a failed write",
    }
}
