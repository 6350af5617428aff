//! The readers: threads that load parts of channels, so that no shard waits for a disk.

use std::sync::{Arc, Mutex, PoisonError, atomic::Ordering, mpsc::Receiver};

use dunlin_engine::{
    Event,
    log::{LogError, LogPage},
};
use rocksdb::{Direction, IteratorMode, ReadOptions};

use crate::{
    counters::StorageCounters,
    database::Database,
    error::StorageError,
    family::Family,
    keys,
    options::PageLimits,
    read_paths::PathTask,
    records::{ChannelHead, StoredPublication},
    request::{Completions, LoadRequest},
    shared_database::SharedDatabase,
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
}

impl ReadTask {
    pub(crate) fn new(request: LoadRequest, queue: &WriteQueue) -> Self {
        Self::Load(LoadTask { request, trims: queue.trims.requested.load(Ordering::SeqCst) })
    }
}

/// A reader's thread.
pub(crate) struct Reader {
    pub(crate) shared: Arc<SharedDatabase>,
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
                ReadTask::Paths(task) => task.serve(self.shared.get()),
            }
        }
    }

    fn serve(&self, task: LoadTask) {
        let LoadTask { request, trims } = task;
        self.queue.trims.wait_for(trims);
        let database = self.shared.get();
        let outcome = match database.and_then(|database| load(&database, &self.limits, &request)) {
            Ok(Loaded { page, outdated_ms }) => {
                if outdated_ms > request.terms.meta_ttl_ms / 2 {
                    let (channel, terms) = (Arc::clone(&request.channel), request.terms);
                    // If the queue is full, a later load extends the lifetime.
                    let _ = self.queue.push(WriteTask::Touch { channel, terms });
                }
                Ok(Box::new(page))
            }
            Err(_) => Err(LogError::Unavailable),
        };
        let LoadRequest { shard, channel, load, .. } = request;
        if let Ok(page) = &outcome {
            StorageCounters::add(&self.shared.counters.pages, 1);
            StorageCounters::add(&self.shared.counters.page_publications, page.records.len() as u64);
        }
        self.completions.send(shard, Event::Loaded { channel, load, outcome });
        self.completions.flush();
    }
}

struct Loaded {
    page: LogPage,
    /// The time for which the lifetime of the head has not been extended; 0 without a head.
    outdated_ms: u64,
}

/// Reads the requested part of a channel. Without a head, the channel is empty, and nothing is stored for it.
fn load(database: &Database, limits: &PageLimits, request: &LoadRequest) -> Result<Loaded, StorageError> {
    let LoadRequest { channel, query, terms, .. } = request;
    let Some(mut head) = database.head(&keys::channel_key(channel))? else {
        let epoch = database.epochs.of_empty(channel, terms, database.clock.now_ms());
        let page = LogPage { epoch, floor: query.after.unwrap_or(0), ..LogPage::default() };
        return Ok(Loaded { page, outdated_ms: 0 });
    };
    database.renew(channel, &mut head);
    // The limit may have been lowered since the newest publication.
    head.floor = head.floor.max(head.top.saturating_sub(terms.retention.publications_max as u64));
    let bounds = PageBounds {
        publications_max: query.publications_max.min(limits.publications_max),
        bytes_max: query.bytes_max.min(limits.bytes_max),
    };
    let page = match query.after {
        Some(after) => page_after(database, channel, &head, after, bounds)?,
        None => newest_page(database, channel, &head, query.below, bounds)?,
    };
    let ChannelHead { expires_ms, version, version_epoch, .. } = head;
    let outdated_ms = head_expiry_ms(database.clock.now_ms(), terms).saturating_sub(expires_ms);
    Ok(Loaded { page: LogPage { version, version_epoch, ..page }, outdated_ms })
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

/// The newest publications below an offset.
fn newest_page(
    database: &Database,
    channel: &str,
    head: &ChannelHead,
    below: u64,
    bounds: PageBounds,
) -> Result<LogPage, StorageError> {
    let now_ms = database.clock.now_ms();
    let (top, through) = (head.top, head.top.min(below.saturating_sub(1)));
    let (mut records, mut bytes, mut is_cut) = (Vec::new(), 0, false);
    let mut next = newest_below(database, channel, head, below)?;
    if head.floor < through {
        for entry in publications(database, channel, head.floor, through, Direction::Reverse) {
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
        floor: next.max(head.floor).min(through),
        through,
        records,
        has_more_below: is_cut && next > head.floor,
        ..LogPage::default()
    })
}

/// The offset of the newest publication below an offset, which may have expired: the publication after it contains it.
fn newest_below(database: &Database, channel: &str, head: &ChannelHead, below: u64) -> Result<u64, StorageError> {
    if below > head.top {
        return Ok(head.top);
    }
    let floor = head.floor.max(below.saturating_sub(1));
    let next = publications(database, channel, floor, head.top, Direction::Forward).next().transpose()?;
    // If that one is missing, this one has expired as well.
    Ok(next.map_or(head.top, |(_, stored, _)| stored.previous))
}

/// The publications above `floor`, up to `top`: offset, record, bytes.
pub(crate) fn publications<'a>(
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
