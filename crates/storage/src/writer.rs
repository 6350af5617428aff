//! The writer: one thread that takes the queued requests of all shards, writes them as one batch, and answers.

use std::{
    collections::HashMap,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender},
    },
    time::Instant,
};

use dunlin_engine::{
    Event,
    log::{LogError, LogTerms},
};
use rocksdb::{Direction, IteratorMode, ReadOptions, WriteBatch};

use crate::{
    counters::StorageCounters,
    database::Database,
    disk_limits::{ByteAccount, CurrentLimits, Fit},
    entries::{EntryBatch, EntryChange},
    epoch::new_epoch,
    error::{StorageError, StorageFault},
    failed_commit::FailedCommit,
    family::Family,
    free_space::FreeSpace,
    heads::{ChannelSet, HeadCache},
    keys,
    options::{QueueLimits, StorageOptions},
    records::{ChannelHead, StoredPublication, StoredResult},
    request::{Completions, Done, EntriesDone, StoreRequest},
    shared_database::SharedDatabase,
};

/// Minimum number of publications per deletion, unless a quarter of the channel's limit is more.
const DELETED_AT_ONCE_MIN: u64 = 64;

/// Minimum time for which a head is kept beyond its channel's lifetime, unless an eighth of the lifetime is more.
const HEAD_MARGIN_MS: u64 = 60_000;

/// A task of the writer.
#[derive(Debug)]
pub(crate) enum WriteTask {
    Store(StoreRequest),
    /// Extend the lifetime of a channel that is in use.
    Touch {
        channel: Arc<str>,
        terms: LogTerms,
    },
    Entries {
        batch: EntryBatch,
        done: Done,
    },
    /// Apply trims, and take over changed limits.
    Trim,
    Stop,
}

/// Pending trims and removals. Each channel has at most one entry, so they need no separate limit. As many wait for them
/// as requests of the server API are in progress.
#[derive(Debug, Default)]
pub(crate) struct Trims {
    pending: Mutex<PendingTrims>,
    /// Total number of requested trims.
    pub(crate) requested: AtomicU64,
    /// Number of trims that are written to the storage.
    applied: Mutex<u64>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct PendingTrims {
    extents: HashMap<Arc<str>, TrimTo>,
    waiting: Vec<(Arc<str>, Done)>,
}

/// The extent of a trim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TrimTo {
    Offset(u64),
    /// The whole channel with its head.
    Removed,
}

impl Trims {
    pub(crate) fn request(&self, channel: Arc<str>, to: TrimTo, done: Option<Done>) {
        let mut pending = lock(&self.pending);
        pending.waiting.extend(done.map(|done| (Arc::clone(&channel), done)));
        let known = pending.extents.entry(channel).or_insert(to);
        *known = (*known).max(to);
        self.requested.fetch_add(1, Ordering::SeqCst);
    }

    /// Waits until this number of trims is applied.
    pub(crate) fn wait_for(&self, requested: u64) {
        let applied = lock(&self.applied);
        let waited = self.changed.wait_while(applied, |applied| *applied < requested);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn take(&self) -> (PendingTrims, u64) {
        let mut pending = lock(&self.pending);
        (std::mem::take(&mut *pending), self.requested.load(Ordering::SeqCst))
    }

    /// Takes back trims that were not written. Later ones take precedence.
    fn put_back(&self, trims: HashMap<Arc<str>, TrimTo>) {
        let mut pending = lock(&self.pending);
        for (channel, to) in trims {
            let known = pending.extents.entry(channel).or_insert(to);
            *known = (*known).max(to);
        }
    }

    fn note_applied(&self, requested: u64) {
        *lock(&self.applied) = requested;
        self.changed.notify_all();
    }
}

/// The sending end of the queue, with its limits.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    sender: SyncSender<WriteTask>,
    queued_bytes: AtomicUsize,
    limits: QueueLimits,
    pub(crate) trims: Trims,
    pub(crate) disk_limits: CurrentLimits,
}

impl WriteQueue {
    pub(crate) fn new(sender: SyncSender<WriteTask>, limits: QueueLimits) -> Self {
        Self {
            sender,
            queued_bytes: AtomicUsize::new(0),
            limits,
            trims: Trims::default(),
            disk_limits: CurrentLimits::default(),
        }
    }

    /// Queues a task, or returns it if the queue is full.
    pub(crate) fn push(&self, task: WriteTask) -> Result<(), WriteTask> {
        let bytes = bytes_of(&task);
        if self.queued_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > self.limits.write_bytes_max {
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(task);
        }
        self.sender.try_send(task).map_err(|error| {
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            match error {
                std::sync::mpsc::TrySendError::Full(task) | std::sync::mpsc::TrySendError::Disconnected(task) => task,
            }
        })
    }

    pub(crate) fn stop(&self) {
        // The writer subtracts it, as for all tasks.
        self.queued_bytes.fetch_add(bytes_of(&WriteTask::Stop), Ordering::Relaxed);
        // The writer reads from the queue until it receives this task, so the send succeeds.
        let _ = self.sender.send(WriteTask::Stop);
    }
}

/// The writer's thread.
pub(crate) struct Writer {
    /// `None` while it is closed after a failed write.
    database: Option<Arc<Database>>,
    shared: Arc<SharedDatabase>,
    queue: Arc<WriteQueue>,
    tasks: Receiver<WriteTask>,
    completions: Arc<dyn Completions>,
    heads: HeadCache,
    /// By channel, the offsets of its owner that were not used.
    unused_offsets: HashMap<Arc<str>, u64>,
    /// Number of trims that the writer has read.
    trims_taken: u64,
    /// Set while nothing is written.
    failed: Option<FailedCommit>,
    space: FreeSpace,
    account: ByteAccount,
}

/// A batch under construction.
#[derive(Default)]
pub(crate) struct GroupCommit {
    pub(crate) batch: WriteBatch,
    is_synced: bool,
    pub(crate) changed: ChannelSet,
    answers: Vec<PendingAnswer>,
    publications: u64,
    publication_bytes: u64,
    trims: Option<u64>,
    /// Write the accounts of bytes of all channels that have changed.
    pub(crate) writes_accounts: bool,
}

impl GroupCommit {
    /// A commit of nothing but the accounts of bytes that are not written yet.
    pub(crate) fn of_accounts() -> Self {
        Self { writes_accounts: true, ..Self::default() }
    }
}

/// An answer that is sent after the commit, with its outcome.
pub(crate) enum PendingAnswer {
    /// With the offset of the publication, or why it was refused before the commit.
    Stored {
        request: StoreRequest,
        outcome: Result<u64, LogError>,
    },
    Entries(EntriesDone),
    Trimmed {
        done: EntriesDone,
        outcome: Result<(), StorageError>,
    },
}

impl Writer {
    pub(crate) fn new(
        options: &StorageOptions,
        shared: Arc<SharedDatabase>,
        queue: Arc<WriteQueue>,
        tasks: Receiver<WriteTask>,
        completions: Arc<dyn Completions>,
    ) -> Self {
        let batch_writes_max = options.queues.batch_writes_max;
        // All heads of a batch must stay in the cache until it is written.
        let heads_max = options.cached_heads_max.max(batch_writes_max);
        let accounts_max = (heads_max / 4).max(2 * batch_writes_max);
        let (database, counters) = (shared.get().ok(), Arc::clone(&shared.counters));
        Self {
            failed: database.is_none().then(FailedCommit::at_start),
            database,
            space: FreeSpace::new(options.free_space_min_bytes),
            account: ByteAccount::new(accounts_max, counters),
            heads: HeadCache::new(heads_max),
            unused_offsets: HashMap::new(),
            trims_taken: 0,
            shared,
            queue,
            tasks,
            completions,
        }
    }

    pub(crate) fn run(mut self) {
        let limits = self.queue.limits;
        while let Some(first) = self.next_task() {
            self.space.measure(&self.shared, &*self.completions);
            self.begin_account();
            let mut group = GroupCommit::default();
            let (mut tasks, mut bytes, mut next) = (0, 0, Some(first));
            let mut stops = false;
            while let Some(task) = next.take() {
                let of_task = bytes_of(&task);
                self.queue.queued_bytes.fetch_sub(of_task, Ordering::Relaxed);
                (tasks, bytes) = (tasks + 1, bytes + of_task);
                stops |= matches!(task, WriteTask::Stop);
                if self.queue.trims.requested.load(Ordering::SeqCst) != self.trims_taken {
                    // Trims have a separate commit, because later tasks must read the channel after the trim.
                    self.commit(std::mem::take(&mut group));
                    self.apply_trims();
                }
                self.add(&mut group, task);
                if !stops && tasks < limits.batch_writes_max && bytes < limits.batch_bytes_max {
                    next = self.tasks.try_recv().ok();
                }
            }
            group.writes_accounts |= stops;
            self.commit(group);
            if stops {
                break;
            }
        }
        self.queue.trims.note_applied(u64::MAX);
        if let Some(database) = self.database.take() {
            database.close();
        }
    }

    /// The next task. While nothing is written, tries to write again in between. `None` when the storage is dropped.
    fn next_task(&mut self) -> Option<WriteTask> {
        loop {
            let Some(failed) = &self.failed else { return self.tasks.recv().ok() };
            let left = failed.time_left();
            if left.is_zero() {
                self.try_to_resume();
                continue;
            }
            match self.tasks.recv_timeout(left) {
                Ok(task) => return Some(task),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn try_to_resume(&mut self) {
        let Some(mut failed) = self.failed.take() else { return };
        if !failed.try_to_undo(&self.shared, &mut self.database) {
            self.failed = Some(failed);
            return;
        }
        // It has heads of the failed commit.
        self.heads = HeadCache::new(self.heads.heads_max());
        self.account.reset();
        StorageCounters::add(&self.shared.counters.resumed, 1);
        self.completions.resumed();
        self.apply_trims();
    }

    /// Takes over changed limits on bytes, and determines the totals if that is due. Called when nothing is waiting to be
    /// written.
    fn begin_account(&mut self) {
        if !self.account.begin(self.queue.disk_limits.get()) {
            return;
        }
        // The totals are those of the written accounts.
        self.commit(GroupCommit::of_accounts());
        if let Some(database) = &self.database {
            self.account.scan_totals(database);
        }
    }

    fn opened(&self) -> Result<Arc<Database>, LogError> {
        self.database.clone().ok_or(LogError::Broken)
    }

    fn add(&mut self, group: &mut GroupCommit, task: WriteTask) {
        match task {
            WriteTask::Store(request) => {
                let outcome = self.add_publication(group, &request);
                group.answers.push(PendingAnswer::Stored { request, outcome });
            }
            WriteTask::Touch { channel, terms } => {
                let now_ms = self.shared.now_ms();
                if let Ok(Some(head)) = self.head(&channel) {
                    note_use(head, now_ms, &terms);
                    group.changed.insert(channel);
                }
            }
            WriteTask::Entries { batch, done: Done(done) } => {
                group.is_synced |= batch.is_synced;
                for change in batch.changes {
                    self.add_entry(group, change);
                }
                group.answers.push(PendingAnswer::Entries(done));
            }
            WriteTask::Trim | WriteTask::Stop => {}
        }
    }

    /// Returns the offset of the publication, or of an earlier one with the same idempotency key.
    fn add_publication(&mut self, group: &mut GroupCommit, request: &StoreRequest) -> Result<u64, LogError> {
        let StoreRequest { channel, record, terms, .. } = request;
        let database = self.opened()?;
        let now_ms = database.clock.now_ms();
        if let Some(earlier) = earlier_with_key(&database, request)? {
            self.note_unused_offset(channel);
            return Ok(earlier);
        }
        let fit = self.fit(&database, request, now_ms)?;
        let unused = self.unused_offsets.get(channel).copied().unwrap_or_default();
        let head = self.head_or_new(group, request)?;
        if record.publication.offset <= head.top {
            // The publication would replace an acknowledged one.
            return Err(LogError::Unavailable);
        }
        // The owner numbers what it proposes before it knows that an earlier proposal had a key that is stored. Such a
        // proposal must leave no gap. An owner that has read the channel again has left none.
        let owners = record.publication.offset;
        let offset = owners.checked_sub(unused).filter(|offset| *offset > head.top).unwrap_or(owners);
        let mut record = (**record).clone();
        if record.publication.offset != offset {
            Arc::make_mut(&mut record.publication).offset = offset;
        }
        // If all earlier writes of the channel were synced, sync this one, too, because its head records that a power
        // loss may now lose publications.
        group.is_synced |= terms.is_synced || head.is_synced;
        let keeps_until_ms = terms.retention.ttl_ms.min(terms.meta_ttl_ms);
        let stored = StoredPublication {
            expires_ms: now_ms.saturating_add(keeps_until_ms),
            written_ms: now_ms,
            previous: head.top,
            record,
        };
        let bytes = stored.encode();
        let record = &stored.record;
        group.publications += 1;
        group.publication_bytes += bytes.len() as u64;
        group.batch.put_cf(database.family(Family::Publications), keys::publication_key(channel, offset), bytes);
        if let Some(key) = &record.idempotency_key {
            let expires_ms = now_ms.saturating_add(terms.result_ttl_ms);
            let result = StoredResult { expires_ms, offset, epoch: head.epoch.clone() };
            group.batch.put_cf(database.family(Family::Idempotency), keys::result_key(channel, key), result.encode());
        }
        head.top = offset;
        head.is_synced = terms.is_synced;
        (head.power_era, head.damage_era) = (database.epochs.eras.power, database.epochs.eras.damage);
        head.version = record.publication.version;
        head.version_epoch.clone_from(&record.version_epoch);
        note_use(head, now_ms, terms);
        let publications_max = terms.retention.publications_max as u64;
        head.floor = head.floor.max(offset.saturating_sub(publications_max)).max(fit.evicted_through);
        let is_worth_deleting = head.floor - head.deleted_through >= DELETED_AT_ONCE_MIN.max(publications_max / 4);
        if is_worth_deleting || fit.evicted_through > 0 {
            delete_through(&database, &mut group.batch, channel, head);
        }
        group.changed.insert(Arc::clone(channel));
        self.account.count_publication(channel, fit, offset, (now_ms, stored.expires_ms));
        Ok(offset)
    }

    /// Checks the free space and the limits on bytes for a publication.
    ///
    /// # Errors
    /// The publication is beyond one of them, or the channel could not be read.
    fn fit(&mut self, database: &Database, request: &StoreRequest, now_ms: u64) -> Result<Fit, LogError> {
        let channel = &request.channel;
        let taken = self.space.take(request.bytes() as u64, &self.shared, &*self.completions);
        let fit = taken.and_then(|()| {
            let head = self.head(channel)?.map(|head| (head.top, head.floor));
            self.account.fit(database, request, head, now_ms)
        });
        if let Err(LogError::LowSpace | LogError::ChannelFull | LogError::NamespaceFull | LogError::NodeFull) = fit {
            // The next publication must leave no gap, which would count as stored publications.
            self.note_unused_offset(channel);
        }
        fit
    }

    /// Counts an offset that the owner has given to a publication that is not stored.
    fn note_unused_offset(&mut self, channel: &Arc<str>) {
        // A channel that is forgotten here gets a gap in its offsets, and loses nothing.
        if self.unused_offsets.len() >= self.heads.heads_max() {
            self.unused_offsets.clear();
        }
        *self.unused_offsets.entry(Arc::clone(channel)).or_default() += 1;
    }

    fn add_entry(&self, group: &mut GroupCommit, change: EntryChange) {
        let Some(database) = &self.database else { return };
        match change {
            EntryChange::Put { family, key, value } => group.batch.put_cf(database.family(family), key, value),
            EntryChange::DeleteRange { family, begin, end } => {
                group.batch.delete_range_cf(database.family(family), begin, end);
            }
        }
    }

    /// Applies the requested trims. Those that cannot be written are applied when the storage writes again.
    fn apply_trims(&mut self) {
        let (trims, requested) = self.queue.trims.take();
        self.trims_taken = requested;
        let mut group = GroupCommit { trims: Some(requested), ..GroupCommit::of_accounts() };
        let unread = self.add_trims(&mut group, &trims.extents);
        for (channel, Done(done)) in trims.waiting {
            let outcome = unread.get(&channel).cloned().map_or(Ok(()), Err);
            group.answers.push(PendingAnswer::Trimmed { done, outcome });
        }
        self.commit(group);
        if self.failed.is_some() {
            self.queue.trims.put_back(trims.extents);
        }
    }

    /// Returns the channels that could not be read.
    fn add_trims(
        &mut self,
        group: &mut GroupCommit,
        trims: &HashMap<Arc<str>, TrimTo>,
    ) -> HashMap<Arc<str>, StorageError> {
        let mut unread = HashMap::new();
        // The commit fails as well.
        let Ok(database) = self.opened() else { return unread };
        for (channel, to) in trims {
            match (*to, self.head(channel)) {
                (TrimTo::Offset(through), Ok(Some(head))) => {
                    head.floor = head.floor.max(through.min(head.top));
                    group.is_synced |= head.is_synced;
                    delete_through(&database, &mut group.batch, channel, head);
                    group.changed.insert(Arc::clone(channel));
                }
                (TrimTo::Removed, Ok(Some(head))) => {
                    let begin = keys::channel_key(channel);
                    let end = keys::behind(&begin);
                    for family in [Family::Publications, Family::Idempotency] {
                        group.batch.delete_range_cf(database.family(family), &*begin, &*end);
                    }
                    // The head stays until it expires, because a computed epoch could be that of the removed channel.
                    // Without random bytes, the computed epoch after a loss is a new one as well.
                    head.epoch = new_epoch().unwrap_or_else(|| database.epochs.after_loss(channel, head));
                    (head.top, head.floor, head.deleted_through, head.version) = (0, 0, 0, 0);
                    head.version_epoch = Box::default();
                    group.changed.insert(Arc::clone(channel));
                }
                // Nothing is stored for the channel.
                (_, Ok(None)) => {}
                (_, Err(_)) => {
                    let fault = StorageFault::Io("the head of the channel could not be read".to_owned());
                    unread.insert(Arc::clone(channel), StorageError::new("trim in", &database.path, fault));
                }
            }
        }
        unread
    }

    /// A channel's head. Creates it if it is missing, and begins a new epoch if clients may have received lost
    /// publications.
    fn head_or_new(&mut self, group: &mut GroupCommit, request: &StoreRequest) -> Result<&mut ChannelHead, LogError> {
        let StoreRequest { channel, begins, terms, .. } = request;
        let database = self.opened()?;
        let (now_ms, eras) = (database.clock.now_ms(), database.epochs.eras);
        if self.head(channel)?.is_none() {
            // The owner may have told clients an epoch that would be computed differently now.
            let epoch = begins.clone().unwrap_or_else(|| database.epochs.of_empty(channel, terms, now_ms));
            delete_leftovers(&database, &mut group.batch, channel);
            let mut head = ChannelHead {
                expires_ms: 0,
                is_synced: terms.is_synced,
                power_era: eras.power,
                damage_era: eras.damage,
                top: 0,
                floor: 0,
                deleted_through: 0,
                activity_ms: now_ms,
                version: 0,
                version_epoch: Box::default(),
                epoch,
            };
            note_use(&mut head, now_ms, terms);
            self.heads.insert(Arc::clone(channel), head);
        }
        let head = self.heads.get_mut(channel).ok_or(LogError::Unavailable)?;
        database.renew(channel, head);
        Ok(head)
    }

    /// A channel's head, from memory or from the storage.
    fn head(&mut self, channel: &Arc<str>) -> Result<Option<&mut ChannelHead>, LogError> {
        let database = self.opened()?;
        let now_ms = database.clock.now_ms();
        if self.heads.get_mut(channel).is_none_or(|head| head.expires_ms <= now_ms) {
            self.heads.remove(channel);
            let key = keys::channel_key(channel);
            match database.head(&key) {
                Ok(Some(head)) => self.heads.insert(Arc::clone(channel), head),
                Ok(None) => return Ok(None),
                Err(_) => return Err(LogError::Unavailable),
            }
        }
        Ok(self.heads.get_mut(channel))
    }

    fn commit(&mut self, mut group: GroupCommit) {
        let outcome = self.write(&mut group);
        if let Some(requested) = group.trims {
            // Also after a failure, because readers wait for the trims.
            self.queue.trims.note_applied(requested);
        }
        for answer in group.answers {
            self.answer(answer, &outcome);
        }
        self.completions.flush();
    }

    fn write(&mut self, group: &mut GroupCommit) -> Result<(), StorageError> {
        let database = self.shared.get()?;
        for channel in &group.changed {
            if let Some(head) = self.heads.get_mut(channel) {
                let key = keys::channel_key(channel);
                group.batch.put_cf(database.family(Family::Heads), key, head.encode());
            }
        }
        self.account.add_accounts(&database, group, &mut self.heads);
        if group.batch.is_empty() {
            return Ok(());
        }
        let (counters, began) = (&database.counters, Instant::now());
        if let Err(error) = database.commit(std::mem::take(&mut group.batch), group.is_synced) {
            if error.fault != StorageFault::Poisoned {
                self.completions.poisoned(&error);
                self.failed = Some(FailedCommit::new(&database, &group.changed, &group.answers));
            }
            return Err(error);
        }
        let took_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        StorageCounters::add(&counters.commits, 1);
        StorageCounters::add(&counters.syncs, u64::from(group.is_synced));
        StorageCounters::add(&counters.commit_us, took_us);
        counters.commit_us_max.fetch_max(took_us, Ordering::Relaxed);
        StorageCounters::add(&counters.publications, group.publications);
        StorageCounters::add(&counters.publication_bytes, group.publication_bytes);
        Ok(())
    }

    fn answer(&self, answer: PendingAnswer, outcome: &Result<(), StorageError>) {
        match answer {
            PendingAnswer::Stored { request, outcome: of_request } => {
                let StoreRequest { shard, channel, proposal, .. } = request;
                let outcome = outcome.as_ref().map_err(|_| LogError::Broken).and(of_request);
                self.completions.send(shard, Event::Committed { channel, proposal, outcome });
            }
            PendingAnswer::Entries(done) => done(outcome.clone()),
            PendingAnswer::Trimmed { done, outcome: of_trim } => done(outcome.clone().and(of_trim)),
        }
    }
}

/// The offset of an earlier publication with the same idempotency key. The owner answers a key that is in flight itself,
/// so the earlier publication is in no batch that is not written.
fn earlier_with_key(database: &Database, request: &StoreRequest) -> Result<Option<u64>, LogError> {
    let Some(key) = &request.record.idempotency_key else { return Ok(None) };
    let stored = database.result(&keys::result_key(&request.channel, key));
    Ok(stored.map_err(|_| LogError::Unavailable)?.map(|result| result.offset))
}

/// The time at which a channel that is used now expires in the storage. Results of idempotency keys do not outlive it,
/// because their offsets would belong to another epoch.
pub(crate) fn head_expiry_ms(now_ms: u64, terms: &LogTerms) -> u64 {
    let margin_ms = HEAD_MARGIN_MS.max(terms.meta_ttl_ms / 8).max(terms.result_ttl_ms);
    now_ms.saturating_add(terms.meta_ttl_ms).saturating_add(margin_ms)
}

fn note_use(head: &mut ChannelHead, now_ms: u64, terms: &LogTerms) {
    head.activity_ms = now_ms;
    head.expires_ms = head.expires_ms.max(head_expiry_ms(now_ms, terms));
}

/// Deletes the entries of an expired head, because its offsets will be assigned again.
fn delete_leftovers(database: &Database, batch: &mut WriteBatch, channel: &str) {
    let begin = keys::channel_key(channel);
    let end = keys::behind(&begin);
    let family = database.family(Family::Publications);
    let mut options = ReadOptions::default();
    options.set_iterate_upper_bound(&*end);
    let mode = IteratorMode::From(&begin, Direction::Forward);
    // Nearly all new channels have no such entries, and each deleted range slows down reads slightly.
    if database.db.iterator_cf_opt(family, options, mode).next().is_some() {
        batch.delete_range_cf(family, begin, end);
    }
}

fn delete_through(database: &Database, batch: &mut WriteBatch, channel: &str, head: &mut ChannelHead) {
    if head.floor > head.deleted_through {
        let begin = keys::publication_key(channel, head.deleted_through + 1);
        let end = keys::publication_key(channel, head.floor.saturating_add(1));
        batch.delete_range_cf(database.family(Family::Publications), begin, end);
        head.deleted_through = head.floor;
    }
}

fn bytes_of(task: &WriteTask) -> usize {
    const FIXED_BYTES: usize = 256;
    match task {
        WriteTask::Store(request) => request.bytes(),
        WriteTask::Entries { batch, .. } => FIXED_BYTES + batch.bytes,
        WriteTask::Touch { .. } | WriteTask::Trim | WriteTask::Stop => FIXED_BYTES,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
