//! Limits on the bytes of stored publications: per channel, per namespace and for the whole storage.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};
#[cfg(feature = "rocksdb")]
use std::{
    sync::MutexGuard,
    time::{Duration, Instant},
};

#[cfg(feature = "rocksdb")]
use dunlin_engine::log::LogError;
#[cfg(feature = "rocksdb")]
use rocksdb::{Direction, IteratorMode, ReadOptions, WriteBatch};

#[cfg(feature = "rocksdb")]
use crate::{
    counters::StorageCounters,
    database::Database,
    error::StorageError,
    family::Family,
    heads::{ChannelSet, HeadCache},
    kept_bytes::KeptBytes,
    keys, reader,
    request::StoreRequest,
    writer::GroupCommit,
};

/// Minimum time between two scans for the totals, unless twenty times the duration of a scan is longer.
#[cfg(feature = "rocksdb")]
const SCAN_PAUSE_MIN: Duration = Duration::from_secs(10);
/// The accounts of changed channels are written at most this often, except when there are many, or after trims.
#[cfg(feature = "rocksdb")]
const ACCOUNTS_WRITTEN_EVERY: Duration = Duration::from_secs(1);
#[cfg(feature = "rocksdb")]
const SCAN_PAUSE_FACTOR: u32 = 20;
/// Pauses between two scans while no total refuses a publication.
#[cfg(feature = "rocksdb")]
const IDLE_PAUSES: u32 = 6;

/// The limits. 0 means no limit.
#[derive(Clone, Default)]
pub struct DiskLimits {
    /// Maximum bytes of all stored publications.
    pub bytes_max: u64,
    /// The limits of each namespace, by its number.
    pub namespaces: Vec<NamespaceDiskLimits>,
    /// Finds the number of a channel's namespace; `None` for channels of no namespace in the list, and for all channels
    /// without the function.
    pub namespace_of: Option<NamespaceOf>,
}

/// Finds the number of a channel's namespace.
pub type NamespaceOf = Arc<dyn Fn(&str) -> Option<u16> + Send + Sync>;

/// The limits of a namespace. 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceDiskLimits {
    /// Maximum bytes of the publications of one channel.
    pub channel_bytes_max: u64,
    /// Beyond `channel_bytes_max`, the oldest publications are evicted. Otherwise, the publication is refused.
    pub evicts: bool,
    /// Maximum bytes of the publications of all channels.
    pub bytes_max: u64,
}

impl DiskLimits {
    fn namespace_of(&self, channel: &str) -> Option<u16> {
        self.namespace_of.as_ref()?(channel).filter(|index| usize::from(*index) < self.namespaces.len())
    }

    fn of(&self, namespace: Option<u16>) -> NamespaceDiskLimits {
        namespace.and_then(|index| self.namespaces.get(usize::from(index))).copied().unwrap_or_default()
    }
}

impl fmt::Debug for DiskLimits {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes_max, namespaces, .. } = self;
        write!(text, "DiskLimits {{ bytes_max: {bytes_max}, namespaces: {namespaces:?} }}")
    }
}

/// The limits that apply now; replaced by a reload.
#[derive(Debug, Default)]
pub(crate) struct CurrentLimits(RwLock<Arc<DiskLimits>>);

impl CurrentLimits {
    pub(crate) fn set(&self, limits: DiskLimits) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(limits);
    }

    #[cfg(feature = "rocksdb")]
    pub(crate) fn get(&self) -> Arc<DiskLimits> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Bytes of stored publications, by the number of the namespace.
pub(crate) type Totals = BTreeMap<Option<u16>, u64>;

/// The writer's account of stored bytes.
#[cfg(feature = "rocksdb")]
pub(crate) struct ByteAccount {
    counters: Arc<StorageCounters>,
    limits: Arc<DiskLimits>,
    /// The channels that were used recently.
    channels: HeadCache<KeptBytes>,
    /// When the totals were last determined, and the pause after that. `None` before the first time.
    scanned: Option<(Instant, Duration)>,
    /// The storage's time of that. The totals have all publications that had not expired then.
    scanned_ms: u64,
    /// A total has refused a publication since then.
    has_refused: bool,
    /// The channels that have changed since their accounts were written.
    unwritten: ChannelSet,
    written: Instant,
}

/// What a publication that is within the limits changes.
#[cfg(feature = "rocksdb")]
pub(crate) struct Fit {
    /// The account of the channel, if it is not in memory.
    loaded: Option<KeptBytes>,
    namespace: Option<u16>,
    bytes: u64,
    /// The bytes of the channel in the totals.
    before: u64,
    channel_bytes_max: u64,
    /// Publications up to this offset leave the history, because of their number or their bytes.
    floor: u64,
    /// Publications up to this offset are evicted because of their bytes; 0 for none.
    pub(crate) evicted_through: u64,
}

#[cfg(feature = "rocksdb")]
impl ByteAccount {
    pub(crate) fn new(channels_max: usize, counters: Arc<StorageCounters>) -> Self {
        Self {
            counters,
            limits: Arc::default(),
            channels: HeadCache::new(channels_max),
            scanned: None,
            scanned_ms: 0,
            has_refused: false,
            unwritten: ChannelSet::default(),
            written: Instant::now(),
        }
    }

    /// Forgets what was counted, because a commit may have failed.
    pub(crate) fn reset(&mut self) {
        let counters = Arc::clone(&self.counters);
        *self = Self { limits: Arc::clone(&self.limits), ..Self::new(self.channels.heads_max(), counters) };
    }

    /// Takes over the limits. Returns whether the totals have to be determined anew.
    pub(crate) fn begin(&mut self, limits: Arc<DiskLimits>) -> bool {
        let is_changed = !Arc::ptr_eq(&limits, &self.limits);
        self.limits = limits;
        let is_due = self.scanned.is_none_or(|(scanned, pause)| {
            let pauses = if self.has_refused { 1 } else { IDLE_PAUSES };
            scanned.elapsed() >= pause * pauses
        });
        is_changed || is_due
    }

    /// Determines the totals anew. Publications that have expired leave them in this way only, because compactions
    /// remove those without a notice.
    pub(crate) fn scan_totals(&mut self, database: &Database) {
        let (began, now_ms) = (Instant::now(), database.clock.now_ms());
        // If the scan fails, the totals stay as they are, and the error is counted.
        if let Ok(totals) = stored_totals(database, &self.limits, now_ms) {
            *self.totals() = totals;
            // What is in memory has publications that have expired.
            self.reset();
            self.scanned_ms = now_ms;
        }
        let pause = SCAN_PAUSE_MIN.max(began.elapsed() * SCAN_PAUSE_FACTOR);
        (self.scanned, self.has_refused) = (Some((began, pause)), false);
    }

    /// Checks the limits for a publication. Changes nothing, because it may still be refused. `head` is the top and the floor
    /// of its channel, if that has publications.
    ///
    /// # Errors
    /// The publication is beyond a limit.
    pub(crate) fn fit(
        &mut self,
        database: &Database,
        request: &StoreRequest,
        head: Option<(u64, u64)>,
        now_ms: u64,
    ) -> Result<Fit, LogError> {
        let channel = &request.channel;
        // This is the lowest offset that the publication may get.
        let (top, at_floor) = head.unwrap_or_default();
        let publications_max = request.terms.retention.publications_max as u64;
        let floor = at_floor.max((top + 1).saturating_sub(publications_max));
        let namespace = self.limits.namespace_of(channel);
        let limits = self.limits.of(namespace);
        let channel_bytes_max = limit(limits.channel_bytes_max).unwrap_or(u64::MAX);
        let bytes = request.record.kept_bytes() as u64;
        let Some(others_max) = channel_bytes_max.checked_sub(bytes) else {
            return Err(self.refuse(LogError::ChannelFull));
        };
        let measure = |kept: &KeptBytes| kept.left_after(floor, now_ms, others_max);
        let in_memory = head.and_then(|(top, _)| self.in_memory(channel, top));
        let (loaded, left, before) = if let Some(kept) = in_memory {
            (None, measure(kept), kept.total())
        } else {
            let loaded = self.load(database, channel, head);
            let (kept, counted) = loaded.map_err(|_| LogError::Unavailable)?;
            let left = measure(&kept);
            (Some(kept), left, counted)
        };
        let evicted_through = left.evicted_through;
        if evicted_through > 0 && !limits.evicts {
            return Err(self.refuse(LogError::ChannelFull));
        }
        if let Err(error) = self.is_within_totals(namespace, before, left.bytes + bytes) {
            self.has_refused = true;
            return Err(self.refuse(error));
        }
        StorageCounters::add(&self.counters.evictions, u64::from(evicted_through > 0));
        let floor = floor.max(evicted_through);
        Ok(Fit { loaded, namespace, bytes, before, channel_bytes_max, floor, evicted_through })
    }

    /// Counts a publication that is in the batch.
    pub(crate) fn count_publication(
        &mut self,
        channel: &Arc<str>,
        fit: Fit,
        offset: u64,
        (now_ms, expires_ms): (u64, u64),
    ) {
        let Fit { loaded, namespace, bytes, before, channel_bytes_max, floor, .. } = fit;
        if let Some(loaded) = loaded {
            self.channels.insert(Arc::clone(channel), loaded);
        }
        let kept = self.channels.get_mut(channel).expect("it was in memory, or has just been loaded");
        kept.forget(floor, now_ms);
        kept.add(offset, bytes, expires_ms, channel_bytes_max);
        let after = kept.total();
        self.change_total(namespace, before, after);
    }

    /// Adds the accounts of changed channels to a commit, if that is due. As one more record for each changed channel of
    /// each commit, they would cost a quarter of the rate of small publications. What they lack after a crash is counted
    /// when the channel is used.
    pub(crate) fn add_accounts(&mut self, database: &Database, group: &mut GroupCommit, heads: &mut HeadCache) {
        let Self { channels, unwritten, written, .. } = self;
        unwritten.extend(group.changed.iter().map(Arc::clone));
        // An account that left the cache unwritten would leave the totals wrong until the next scan.
        let is_due = unwritten.len() >= channels.heads_max() / 2 || written.elapsed() >= ACCOUNTS_WRITTEN_EVERY;
        if is_due || group.writes_accounts {
            *written = Instant::now();
            let unwritten = std::mem::take(unwritten);
            self.write_accounts(database, &mut group.batch, &unwritten, heads);
        }
    }

    fn totals(&self) -> MutexGuard<'_, Totals> {
        self.counters.history_bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the limits of the namespace and of the storage for a change of a channel's bytes.
    fn is_within_totals(&self, namespace: Option<u16>, before: u64, after: u64) -> Result<(), LogError> {
        let totals = self.totals();
        let exceeds = |total: u64, bytes_max: u64| {
            limit(bytes_max).is_some_and(|bytes_max| total.saturating_sub(before) + after > bytes_max)
        };
        // A channel that shrinks is within all limits.
        if after <= before {
            Ok(())
        } else if exceeds(totals.get(&namespace).copied().unwrap_or(0), self.limits.of(namespace).bytes_max) {
            Err(LogError::NamespaceFull)
        } else if exceeds(totals.values().sum(), self.limits.bytes_max) {
            Err(LogError::NodeFull)
        } else {
            Ok(())
        }
    }

    fn refuse(&self, error: LogError) -> LogError {
        let counters = &self.counters;
        StorageCounters::add(
            match error {
                LogError::ChannelFull => &counters.refused_channel_full,
                LogError::NamespaceFull => &counters.refused_namespace_full,
                _ => &counters.refused_node_full,
            },
            1,
        );
        error
    }

    fn change_total(&self, namespace: Option<u16>, before: u64, after: u64) {
        if before != after {
            let mut totals = self.totals();
            let total = totals.entry(namespace).or_default();
            *total = total.saturating_sub(before) + after;
        }
    }

    fn write_accounts(
        &mut self,
        database: &Database,
        batch: &mut WriteBatch,
        changed: &ChannelSet,
        heads: &mut HeadCache,
    ) {
        let (family, now_ms) = (database.family(Family::Idempotency), database.clock.now_ms());
        for channel in changed {
            let Some(head) = heads.get_mut(channel) else { continue };
            let (top, floor, head_expires_ms) = (head.top, head.floor, head.expires_ms);
            let before = if let Some(kept) = self.in_memory(channel, top) {
                kept.total()
            } else {
                // Without its account, the channel is counted anew later, because the account has another top.
                let Ok((kept, counted)) = self.load(database, channel, Some((top, floor))) else { continue };
                self.channels.insert(Arc::clone(channel), kept);
                counted
            };
            let Some(kept) = self.in_memory(channel, top) else { continue };
            kept.forget(floor, now_ms);
            let (key, after) = (keys::kept_bytes_key(channel), kept.total());
            if floor < top {
                batch.put_cf(family, key, kept.encode(head_expires_ms));
            } else {
                batch.delete_cf(family, key);
            }
            self.change_total(self.limits.namespace_of(channel), before, after);
        }
    }

    /// The account of a channel in memory. It belongs to this top of the channel's head.
    fn in_memory(&mut self, channel: &Arc<str>, top: u64) -> Option<&mut KeptBytes> {
        self.channels.get_mut(channel).filter(|kept| kept.top == top)
    }

    /// The bytes of a channel from the storage, or counted anew; and those that the totals have of it. `head` is the top and
    /// the floor of the channel, if it has publications.
    fn load(
        &mut self,
        database: &Database,
        channel: &Arc<str>,
        head: Option<(u64, u64)>,
    ) -> Result<(KeptBytes, u64), StorageError> {
        let now_ms = database.clock.now_ms();
        let (known, counted) = if let Some(kept) = self.channels.get_mut(channel) {
            (None, kept.total())
        } else {
            let stored = stored_account(database, channel)?;
            let counted = stored.as_ref().map_or(0, |kept| kept.total_at(self.scanned_ms));
            (stored, counted)
        };
        let Some((top, floor)) = head else { return Ok((KeptBytes::default(), counted)) };
        // An account is written later than its publications. One without publications that are kept, or of a higher top,
        // may be that of a channel that had expired before it was used again.
        let is_earlier = |kept: &KeptBytes| kept.top == top || kept.top < top && kept.total_at(now_ms) > 0;
        let mut kept = known.filter(is_earlier).unwrap_or_default();
        let counted_through = kept.top.max(floor);
        if counted_through < top {
            for entry in reader::publications(database, channel, counted_through, top, Direction::Forward) {
                let (offset, stored, _) = entry?;
                kept.add(offset, stored.record.kept_bytes() as u64, stored.expires_ms, u64::MAX);
            }
        }
        kept.top = top;
        Ok((kept, counted))
    }
}

/// The stored account of a channel, if it has one.
#[cfg(feature = "rocksdb")]
fn stored_account(database: &Database, channel: &str) -> Result<Option<KeptBytes>, StorageError> {
    const ACTION: &str = "read the bytes of a channel";
    let bytes = database.db.get_pinned_cf(database.family(Family::Idempotency), keys::kept_bytes_key(channel));
    let bytes = bytes.map_err(|error| database.read_failed(ACTION, &error))?;
    Ok(bytes.and_then(|bytes| KeptBytes::decode(&bytes)))
}

/// The bytes of all channels.
#[cfg(feature = "rocksdb")]
fn stored_totals(database: &Database, limits: &DiskLimits, now_ms: u64) -> Result<Totals, StorageError> {
    const ACTION: &str = "count the bytes of all channels";
    let mut options = ReadOptions::default();
    options.fill_cache(false);
    let mut totals = Totals::default();
    let entries = database.db.iterator_cf_opt(database.family(Family::Idempotency), options, IteratorMode::Start);
    for entry in entries {
        let (key, value) = entry.map_err(|error| database.read_failed(ACTION, &error))?;
        if let Some(channel) = keys::read_kept_bytes_key(&key)
            && let Some(kept) = KeptBytes::decode(&value)
        {
            *totals.entry(limits.namespace_of(channel)).or_default() += kept.total_at(now_ms);
        }
    }
    Ok(totals)
}

#[cfg(feature = "rocksdb")]
const fn limit(bytes_max: u64) -> Option<u64> {
    if bytes_max == 0 { None } else { Some(bytes_max) }
}
