//! The readers: threads that load parts of channels, so that no shard waits for a disk.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::Ordering,
        mpsc::{Receiver, TrySendError},
    },
};

use dunlin_engine::log::{LogError, LogPage, LogResult};
use rocksdb::{Direction, IteratorMode, ReadOptions};

use crate::{
    counters::StorageCounters,
    database::Database,
    error::StorageError,
    family::Family,
    keys,
    options::PageLimits,
    read_paths::PathTask,
    records::{ChannelHead, StoredPublication, StoredResult},
    request::{Completions, LoadAnswer, LoadRequest},
    writer::{WriteQueue, WriteTask, head_expiry_ms},
};

const ACTION: &str = "read a channel";

/// A task of a reader.
#[derive(Debug)]
pub(crate) enum ReadTask {
    Load(LoadTask),
    Paths(PathTask),
}

/// A part of a channel to load.
#[derive(Debug)]
pub(crate) struct LoadTask {
    request: LoadRequest,
    /// The number of trims requested before this load. The page must reflect them.
    trims: u64,
    /// Whether the writer has created the head.
    is_opened: bool,
}

impl ReadTask {
    pub(crate) fn new(request: LoadRequest, queue: &WriteQueue) -> Self {
        Self::Load(LoadTask { request, trims: queue.trims.requested.load(Ordering::SeqCst), is_opened: false })
    }

    /// A load for which the writer has created the head.
    pub(crate) fn reload(request: LoadRequest) -> Self {
        Self::Load(LoadTask { request, trims: 0, is_opened: true })
    }

    /// The load request of a task that could not be queued; `None` for other tasks.
    pub(crate) fn into_load(error: TrySendError<Self>) -> Option<LoadRequest> {
        match error {
            TrySendError::Full(task) | TrySendError::Disconnected(task) => match task {
                Self::Load(task) => Some(task.request),
                Self::Paths(_) => None,
            },
        }
    }
}

/// A reader's thread.
pub(crate) struct Reader {
    pub(crate) database: Arc<Database>,
    pub(crate) queue: Arc<WriteQueue>,
    pub(crate) tasks: Arc<Mutex<Receiver<ReadTask>>>,
    pub(crate) completions: Arc<dyn Completions>,
    pub(crate) limits: PageLimits,
}

impl Reader {
    pub(crate) fn run(self) {
        loop {
            let task = self.tasks.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(task) = task else { break };
            match task {
                ReadTask::Load(task) => self.serve(task),
                ReadTask::Paths(task) => task.serve(&self.database),
            }
        }
    }

    fn serve(&self, task: LoadTask) {
        let LoadTask { request, trims, is_opened } = task;
        self.queue.trims.wait_for(trims);
        let outcome = match load(&self.database, &self.limits, &request) {
            Ok(Some(loaded)) => {
                self.touch(&request, loaded.expires_ms);
                Ok(Box::new(loaded.page))
            }
            // Only the writer creates heads.
            Ok(None) if is_opened => Err(LogError::Unavailable),
            Ok(None) if self.database.poison().is_some() => Err(LogError::Broken),
            Ok(None) => match self.queue.push(WriteTask::Open(request)) {
                Err(WriteTask::Open(request)) => return self.answer(request, Err(LogError::Busy)),
                Ok(()) | Err(_) => return,
            },
            Err(_) => Err(LogError::Unavailable),
        };
        self.answer(request, outcome);
    }

    fn answer(&self, request: LoadRequest, outcome: Result<Box<LogPage>, LogError>) {
        let LoadRequest { shard, channel, load, .. } = request;
        if let Ok(page) = &outcome {
            StorageCounters::add(&self.database.counters.pages, 1);
            StorageCounters::add(&self.database.counters.page_publications, page.records.len() as u64);
        }
        self.completions.loaded(shard, LoadAnswer { channel, load, outcome });
        self.completions.flush();
    }

    /// Extends the lifetime of the head when more than half of it has passed.
    fn touch(&self, request: &LoadRequest, expires_ms: u64) {
        let half_ms = request.terms.meta_ttl_ms / 2;
        if head_expiry_ms(self.database.clock.now_ms(), &request.terms) > expires_ms.saturating_add(half_ms) {
            let (channel, terms) = (Arc::clone(&request.channel), request.terms);
            // If the queue is full, a later load extends the lifetime.
            let _ = self.queue.push(WriteTask::Touch { channel, terms });
        }
    }
}

struct Loaded {
    page: LogPage,
    expires_ms: u64,
}

/// Reads the requested part of a channel; `None` if it has no head or needs a new epoch.
fn load(database: &Database, limits: &PageLimits, request: &LoadRequest) -> Result<Option<Loaded>, StorageError> {
    let key = keys::channel_key(&request.channel);
    let Some(head) = database.head(&key)?.filter(|head| !database.is_overtaken(head)) else { return Ok(None) };
    let publications_max = request.query.publications_max.min(limits.publications_max);
    let bounds = PageBounds { publications_max, bytes_max: limits.bytes_max };
    let page = match request.query.after {
        Some(after) => page_after(database, &request.channel, &head, after, bounds)?,
        None => newest_page(database, &request.channel, &head, bounds)?,
    };
    let results = match request.query.after {
        Some(_) => Vec::new(),
        None => known_results(database, &key, limits.results_max)?,
    };
    let ChannelHead { expires_ms, version, version_epoch, .. } = head;
    Ok(Some(Loaded { page: LogPage { version, version_epoch, results, ..page }, expires_ms }))
}

#[derive(Clone, Copy)]
struct PageBounds {
    publications_max: usize,
    bytes_max: usize,
}

/// The publications after an offset. Each publication contains the offset of the previous one; if that one is missing,
/// it has expired.
fn page_after(
    database: &Database,
    channel: &str,
    head: &ChannelHead,
    after: u64,
    bounds: PageBounds,
) -> Result<LogPage, StorageError> {
    let (top, now_ms) = (head.top, database.clock.now_ms());
    let mut floor = after.max(head.floor);
    let (mut records, mut bytes, mut last, mut is_cut) = (Vec::new(), 0, floor, false);
    if floor < top {
        for entry in publications(database, channel, floor, top, Direction::Forward) {
            let (offset, stored, size) = entry?;
            if stored.expires_ms <= now_ms {
                (floor, last, bytes) = (offset, offset, 0);
                records.clear();
                continue;
            }
            if stored.previous > last {
                (floor, bytes) = (stored.previous, 0);
                records.clear();
            }
            (last, bytes) = (offset, bytes + size);
            records.push(stored.record);
            if records.len() >= bounds.publications_max || bytes >= bounds.bytes_max {
                is_cut = true;
                break;
            }
        }
        if !is_cut && last < top {
            // The newest publications have expired.
            floor = top;
            records.clear();
        }
    }
    let through = if is_cut { last } else { top };
    Ok(LogPage { epoch: head.epoch.clone(), top, floor, through, records, ..LogPage::default() })
}

/// The newest publications.
fn newest_page(
    database: &Database,
    channel: &str,
    head: &ChannelHead,
    bounds: PageBounds,
) -> Result<LogPage, StorageError> {
    let (top, now_ms) = (head.top, database.clock.now_ms());
    let (mut records, mut bytes, mut next, mut is_cut) = (Vec::new(), 0, top, false);
    if head.floor < top {
        for entry in publications(database, channel, head.floor, top, Direction::Reverse) {
            let (offset, stored, size) = entry?;
            if offset != next || stored.expires_ms <= now_ms {
                break;
            }
            (next, bytes) = (stored.previous, bytes + size);
            records.push(stored.record);
            if records.len() >= bounds.publications_max || bytes >= bounds.bytes_max {
                is_cut = true;
                break;
            }
        }
    }
    records.reverse();
    Ok(LogPage {
        epoch: head.epoch.clone(),
        top,
        floor: next.max(head.floor),
        through: top,
        records,
        has_more_below: is_cut && next > head.floor,
        ..LogPage::default()
    })
}

/// The publications above `floor`, up to `top`: offset, record, bytes.
fn publications<'a>(
    database: &'a Database,
    channel: &str,
    floor: u64,
    top: u64,
    direction: Direction,
) -> impl Iterator<Item = Result<(u64, StoredPublication, usize), StorageError>> + use<'a> {
    let begin = keys::publication_key(channel, floor.saturating_add(1));
    let last = keys::publication_key(channel, top);
    let mut options = ReadOptions::default();
    options.set_iterate_lower_bound(&*begin);
    options.set_iterate_upper_bound(keys::publication_key(channel, top.saturating_add(1)));
    let from = match direction {
        Direction::Forward => begin,
        Direction::Reverse => last,
    };
    let family = database.family(Family::Publications);
    let entries = database.db.iterator_cf_opt(family, options, IteratorMode::From(&from, direction));
    entries.map(move |entry| {
        let (key, value) = entry.map_err(|error| database.read_failed(ACTION, &error))?;
        let read = || {
            let (_, offset) = keys::read_publication_key(&key)?;
            Some((offset, StoredPublication::decode(offset, &value)?, key.len() + value.len()))
        };
        read().ok_or_else(|| database.unreadable(ACTION))
    })
}

/// The newest results of a channel, sorted by expiry. All results are read, because they are stored by key.
fn known_results(database: &Database, key: &[u8], results_max: usize) -> Result<Vec<LogResult>, StorageError> {
    let now_ms = database.clock.now_ms();
    let mut options = ReadOptions::default();
    options.set_iterate_upper_bound(keys::behind(key));
    let family = database.family(Family::Idempotency);
    let mut newest = BinaryHeap::new();
    for entry in database.db.iterator_cf_opt(family, options, IteratorMode::From(key, Direction::Forward)) {
        let (entry_key, value) = entry.map_err(|error| database.read_failed(ACTION, &error))?;
        let read = || {
            let idempotency_key = std::str::from_utf8(entry_key.get(key.len()..)?).ok()?;
            Some((idempotency_key, StoredResult::decode(&value)?))
        };
        let (name, stored) = read().ok_or_else(|| database.unreadable(ACTION))?;
        if stored.expires_ms > now_ms {
            newest.push(Reverse((stored.expires_ms, stored.offset, Box::<str>::from(name), stored.epoch)));
        }
        if newest.len() > results_max {
            newest.pop();
        }
    }
    // Descending by `Reverse`.
    let in_order = newest.into_sorted_vec().into_iter().rev();
    Ok(in_order
        .map(|Reverse((expires_ms, offset, key, epoch))| {
            let remaining_ms = expires_ms - now_ms;
            LogResult { key, offset, epoch, remaining_ms }
        })
        .collect())
}
