//! The newest publication of each conflation key of a channel, for new subscribers.

mod peers;

use std::{collections::BTreeMap, sync::Arc};

use dunlin_protocol::{Publication, TagsFilter};
use hashbrown::HashMap;

use crate::{history_stream::encoded_bytes_max, log::LoadNumber};

use peers::SharedKeys;

pub(crate) use peers::{FoundKey, KeyTimes, REMOVAL_KEPT_MS};

/// The newest publications of a channel, one per key. Publications without a key share one entry.
///
/// A channel may have older publications in a log or on other nodes. Until these are added, the cache is not whole: it
/// keeps removals as well, because they apply to older publications of their keys.
#[derive(Debug)]
pub(crate) struct KeyCache {
    newest: KeyTable,
    coverage: Coverage,
    /// Whether a publication was evicted while the cache was not whole. All older ones would have been evicted before.
    has_evicted: bool,
    /// Whether the answer cache may hold its publications.
    has_answers: bool,
    /// Present if other nodes may have publications that the cache lacks, and no log has them.
    shared: Option<Box<SharedKeys>>,
}

/// What a cache covers.
#[derive(Debug)]
enum Coverage {
    /// Each key that the limits allow.
    Whole,
    /// Publications since the cache was created.
    Partial,
    /// The same, and older ones are being read.
    Restoring(Box<KeyRestore>),
}

/// Older publications that are being read, oldest first.
#[derive(Debug)]
struct KeyRestore {
    load: LoadNumber,
    /// The offset up to which they were read.
    read_through: u64,
    /// The offset up to which they are to be read. Later ones are in the cache already.
    through: u64,
    older: KeyTable,
}

/// The state of a restore after a page of older publications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestoreProgress {
    /// All older publications were read.
    Complete,
    /// Those after this offset are missing.
    More(u64),
    /// The page has reached no further than the one before it.
    Stuck,
}

/// Publications in the order of arrival, one per key.
#[derive(Debug)]
struct KeyTable {
    /// The number of each key's publication.
    numbers: HashMap<Option<Arc<str>>, u64, foldhash::quality::FixedState>,
    cached: BTreeMap<u64, CachedPublication>,
    /// The number of publications ever added or removed.
    put_count: u64,
    bytes: usize,
    /// The expiry of the newest publication that was evicted or has expired.
    evicted_until_us: u64,
}

#[derive(Debug)]
struct CachedPublication {
    key: Option<Arc<str>>,
    publication: Arc<Publication>,
    until_us: u64,
    bytes: usize,
    is_removal: bool,
}

/// A publication for a cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyedPublication<'a> {
    pub(crate) key: Option<&'a str>,
    pub(crate) publication: &'a Arc<Publication>,
    /// Whether it removes its key.
    pub(crate) is_removal: bool,
}

/// The limits of a cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyCacheLimits {
    pub(crate) keys_max: usize,
    pub(crate) bytes_max: usize,
}

impl KeyCache {
    /// An empty cache of a channel. `is_whole` states that the channel has no older publications elsewhere.
    pub(crate) fn new(seed: u64, is_whole: bool) -> Self {
        let coverage = if is_whole { Coverage::Whole } else { Coverage::Partial };
        Self { newest: KeyTable::new(seed), coverage, has_evicted: false, has_answers: false, shared: None }
    }

    /// Whether it has each key that the limits allow.
    pub(crate) const fn is_whole(&self) -> bool {
        matches!(self.coverage, Coverage::Whole)
    }

    /// Replaces the newest publication of a key. Beyond the limits, the keys with the oldest publications are evicted;
    /// returns their number.
    pub(crate) fn put(&mut self, new: KeyedPublication<'_>, until_us: u64, limits: KeyCacheLimits) -> u64 {
        if new.is_removal && self.is_shared() {
            self.remove_shared(new, until_us, limits);
            return 0;
        }
        if new.is_removal && self.is_whole() {
            self.newest.remove_key(new.key);
            return 0;
        }
        let evicted = self.newest.put(new, until_us, limits);
        self.has_evicted |= evicted > 0 && !self.is_whole();
        if let Some(shared) = &mut self.shared {
            shared.forget_removal(new.key);
            shared.shrink(limits, self.newest.bytes);
        }
        evicted + self.shrink_older(limits)
    }

    /// Begins to add older publications, which `load` reads from `after` to `through`.
    pub(crate) fn begin_restore(&mut self, seed: u64, load: LoadNumber, after: u64, through: u64) {
        let restore = KeyRestore { load, read_through: after, through, older: KeyTable::new(seed) };
        self.coverage = Coverage::Restoring(Box::new(restore));
    }

    /// The load that reads older publications, if there is one.
    pub(crate) fn restoring_load(&self) -> Option<LoadNumber> {
        match &self.coverage {
            Coverage::Restoring(restore) => Some(restore.load),
            Coverage::Whole | Coverage::Partial => None,
        }
    }

    /// Adds a publication that is older than those added with [`Self::put`]. The caller adds the oldest first. Returns
    /// the number of evicted keys.
    pub(crate) fn put_older(
        &mut self,
        offset: u64,
        old: KeyedPublication<'_>,
        until_us: u64,
        limits: KeyCacheLimits,
    ) -> u64 {
        let Coverage::Restoring(restore) = &mut self.coverage else { return 0 };
        if offset > restore.through {
            return 0;
        }
        // It must expire before the newer ones.
        let until_us = self.newest.next_us().map_or(until_us, |next_us| next_us.min(until_us));
        if old.is_removal {
            restore.older.remove_key(old.key);
        } else {
            restore.older.put(old, until_us, limits);
        }
        self.shrink_older(limits)
    }

    /// A page with the older publications above `floor` follows. If the log has deleted some since the page before, newer
    /// ones of the same keys may be among them: what was added is dropped.
    pub(crate) fn begin_page(&mut self, floor: u64) {
        if let Coverage::Restoring(restore) = &mut self.coverage
            && floor > restore.read_through
        {
            restore.older.clear();
        }
    }

    /// The older publications up to this offset were added.
    pub(crate) fn restored_through(&mut self, through: u64) -> RestoreProgress {
        match &mut self.coverage {
            Coverage::Restoring(restore) if through < restore.through => {
                let has_progress = through > restore.read_through;
                restore.read_through = through;
                if has_progress { RestoreProgress::More(through) } else { RestoreProgress::Stuck }
            }
            Coverage::Restoring(_) | Coverage::Whole | Coverage::Partial => RestoreProgress::Complete,
        }
    }

    /// All older publications are added. Returns the number of evicted keys.
    pub(crate) fn end_restore(&mut self, limits: KeyCacheLimits) -> u64 {
        let Coverage::Restoring(restore) = std::mem::replace(&mut self.coverage, Coverage::Whole) else { return 0 };
        let KeyRestore { mut older, .. } = *restore;
        if self.has_evicted {
            older.clear();
        }
        let newer = std::mem::take(&mut self.newest.cached);
        self.has_evicted = false;
        self.newest = older;
        newer.into_values().map(|cached| self.newest.put_cached(cached, limits)).sum()
    }

    /// The older publications could not be read.
    pub(crate) fn abandon_restore(&mut self) {
        if matches!(self.coverage, Coverage::Restoring(_)) {
            self.coverage = Coverage::Partial;
        }
    }

    /// Removes expired publications; returns whether there were any.
    pub(crate) fn forget_old(&mut self, now_us: u64) -> bool {
        let has_old = self.newest.forget_old(now_us);
        // Those that expire before they are added are older than an evicted one.
        self.has_evicted |= has_old && !self.is_whole();
        if let Some(shared) = &mut self.shared {
            shared.forget_old(now_us);
        }
        has_old
    }

    /// When the oldest publication expires; `None` without publications.
    pub(crate) fn next_us(&self) -> Option<u64> {
        let of_removals = self.shared.as_ref().and_then(|shared| shared.next_us());
        self.newest.next_us().into_iter().chain(of_removals).min()
    }

    /// The newest publication of each key that passes the filter, in the order of arrival.
    pub(crate) fn publications(&self, filter: Option<&TagsFilter>) -> Vec<Arc<Publication>> {
        let passes = |publication: &Publication| filter.is_none_or(|filter| filter.passes(&publication.tags));
        let cached = self.newest.cached.values().filter(|cached| !cached.is_removal);
        cached.map(|cached| &cached.publication).filter(|publication| passes(publication)).cloned().collect()
    }

    /// A number that changes with each publication added or removed.
    pub(crate) const fn state(&self) -> u64 {
        self.newest.put_count
    }

    /// The bytes that count against the limit.
    pub(crate) fn bytes(&self) -> usize {
        self.newest.bytes + self.older_bytes() + self.shared.as_ref().map_or(0, |shared| shared.bytes())
    }

    /// Whether it has no key, remembers no removal that other nodes may need, and reads none.
    pub(crate) fn is_empty(&self) -> bool {
        let has_removals = self.shared.as_ref().is_some_and(|shared| !shared.is_empty());
        self.newest.cached.is_empty() && self.restoring_load().is_none() && !has_removals
    }

    /// Notes that the answer cache holds its publications.
    pub(crate) const fn mark_answer_kept(&mut self) {
        self.has_answers = true;
    }

    /// Whether the answer cache may hold its publications; resets the flag.
    pub(crate) const fn take_answers(&mut self) -> bool {
        std::mem::replace(&mut self.has_answers, false)
    }

    fn older_bytes(&self) -> usize {
        match &self.coverage {
            Coverage::Restoring(restore) => restore.older.bytes,
            Coverage::Whole | Coverage::Partial => 0,
        }
    }

    /// Evicts older publications while both tables together exceed the limit on bytes.
    fn shrink_older(&mut self, limits: KeyCacheLimits) -> u64 {
        let Coverage::Restoring(restore) = &mut self.coverage else { return 0 };
        let bytes_max = limits.bytes_max.saturating_sub(self.newest.bytes);
        restore.older.shrink(KeyCacheLimits { bytes_max, ..limits })
    }
}

impl KeyTable {
    fn new(seed: u64) -> Self {
        let numbers = HashMap::with_hasher(foldhash::quality::FixedState::with_seed(seed));
        Self { numbers, cached: BTreeMap::new(), put_count: 0, bytes: 0, evicted_until_us: 0 }
    }

    fn put(&mut self, new: KeyedPublication<'_>, until_us: u64, limits: KeyCacheLimits) -> u64 {
        let KeyedPublication { key, publication, is_removal } = new;
        let key: Option<Arc<str>> = key.map(Arc::from);
        self.insert(CachedPublication::new(key, Arc::clone(publication), until_us, is_removal));
        self.shrink(limits)
    }

    /// Adds a publication of another table, or applies its removal.
    fn put_cached(&mut self, cached: CachedPublication, limits: KeyCacheLimits) -> u64 {
        if cached.is_removal {
            self.remove_key(cached.key.as_deref());
            return 0;
        }
        self.insert(cached);
        self.shrink(limits)
    }

    fn insert(&mut self, cached: CachedPublication) {
        self.put_count += 1;
        if let Some(older) = self.numbers.insert(cached.key.clone(), self.put_count) {
            self.remove(older);
        }
        self.bytes += cached.bytes;
        self.cached.insert(self.put_count, cached);
    }

    /// Evicts the keys with the oldest publications; returns their number.
    fn shrink(&mut self, limits: KeyCacheLimits) -> u64 {
        let mut evicted = 0;
        while self.cached.len() > limits.keys_max || self.bytes > limits.bytes_max {
            self.forget_first();
            evicted += 1;
        }
        evicted
    }

    fn remove_key(&mut self, key: Option<&str>) {
        self.put_count += 1;
        let key: Option<Arc<str>> = key.map(Arc::from);
        if let Some(number) = self.numbers.remove(&key) {
            self.remove(number);
        }
    }

    fn forget_old(&mut self, now_us: u64) -> bool {
        let before = self.cached.len();
        while self.next_us().is_some_and(|until_us| until_us <= now_us) {
            self.forget_first();
        }
        self.cached.len() < before
    }

    fn next_us(&self) -> Option<u64> {
        self.cached.first_key_value().map(|(_, oldest)| oldest.until_us)
    }

    fn clear(&mut self) {
        self.numbers.clear();
        self.cached.clear();
        self.bytes = 0;
    }

    /// Removes all publications, the oldest first.
    fn take_all(&mut self) -> impl Iterator<Item = CachedPublication> + use<> {
        let cached = std::mem::take(&mut self.cached);
        self.clear();
        cached.into_values()
    }

    /// Lets no publication expire after a newer one.
    fn order_expiry(&mut self) {
        let mut next_us = u64::MAX;
        for cached in self.cached.values_mut().rev() {
            cached.until_us = cached.until_us.min(next_us);
            next_us = cached.until_us;
        }
    }

    fn forget_first(&mut self) {
        let Some((_, oldest)) = self.cached.pop_first() else { return };
        self.bytes -= oldest.bytes;
        self.evicted_until_us = self.evicted_until_us.max(oldest.until_us);
        self.numbers.remove(&oldest.key);
    }

    fn remove(&mut self, number: u64) {
        if let Some(removed) = self.cached.remove(&number) {
            self.bytes -= removed.bytes;
        }
    }
}

impl CachedPublication {
    fn new(key: Option<Arc<str>>, publication: Arc<Publication>, until_us: u64, is_removal: bool) -> Self {
        let bytes = encoded_bytes_max(&publication) + key.as_ref().map_or(0, |key| key.len());
        Self { key, publication, until_us, bytes, is_removal }
    }
}

#[cfg(test)]
mod tests {
    use dunlin_protocol::Payload;

    use super::*;

    fn publication(offset: u64, bytes: usize) -> Arc<Publication> {
        let data = Payload::from_opaque(vec![b'x'; bytes].into());
        Arc::new(Publication {
            data,
            info: None,
            offset,
            tags: Vec::default(),
            time_ms: 0,
            epoch: Box::default(),
            version: 0,
        })
    }

    fn cache() -> KeyCache {
        KeyCache::new(7, true)
    }

    fn put(
        cache: &mut KeyCache,
        key: Option<&str>,
        of: &Arc<Publication>,
        until_us: u64,
        limits: KeyCacheLimits,
    ) -> u64 {
        cache.put(KeyedPublication { key, publication: of, is_removal: false }, until_us, limits)
    }

    fn remove(cache: &mut KeyCache, key: &str, limits: KeyCacheLimits) {
        let removal = KeyedPublication { key: Some(key), publication: &publication(9, 10), is_removal: true };
        cache.put(removal, 9, limits);
    }

    fn put_older(cache: &mut KeyCache, offset: u64, key: &str, is_removal: bool, limits: KeyCacheLimits) {
        let old = KeyedPublication { key: Some(key), publication: &publication(offset, 10), is_removal };
        cache.put_older(offset, old, 1_000, limits);
    }

    fn offsets(cache: &KeyCache) -> Vec<u64> {
        cache.publications(None).iter().map(|publication| publication.offset).collect()
    }

    #[test]
    fn the_newest_per_key_is_kept_up_to_the_key_limit() {
        let limits = KeyCacheLimits { keys_max: 2, bytes_max: usize::MAX };
        let mut cache = cache();
        let keys = [Some("a"), Some("b"), Some("a"), None];
        let evicted: Vec<u64> = (1..)
            .zip(keys)
            .map(|(offset, key)| put(&mut cache, key, &publication(offset, 10), offset, limits))
            .collect();
        assert_eq!((evicted, offsets(&cache)), (vec![0, 0, 0, 1], vec![3, 4]), "the oldest publication is evicted");
        assert_eq!((cache.newest.cached.len(), cache.bytes()), (2, 2 * encoded_bytes_max(&publication(1, 10)) + 1));
        assert!(cache.forget_old(3) && !cache.forget_old(3));
        assert_eq!((offsets(&cache), cache.next_us()), (vec![4], Some(4)));
        assert!(cache.forget_old(4) && cache.bytes() == 0 && cache.newest.numbers.is_empty());
    }

    #[test]
    fn a_removed_key_frees_its_entry() {
        let limits = KeyCacheLimits { keys_max: 2, bytes_max: usize::MAX };
        let mut cache = cache();
        for (offset, key) in [(1, "a"), (2, "b")] {
            put(&mut cache, Some(key), &publication(offset, 10), 9, limits);
        }
        let state = cache.state();
        remove(&mut cache, "a", limits);
        remove(&mut cache, "unknown", limits);
        assert_eq!((offsets(&cache), cache.newest.cached.len()), (vec![2], 1));
        assert!(cache.state() > state, "cached answers are no longer used");
        assert_eq!(put(&mut cache, Some("c"), &publication(3, 10), 9, limits), 0, "the entry is free");
        remove(&mut cache, "b", limits);
        remove(&mut cache, "c", limits);
        assert_eq!((cache.newest.cached.len(), cache.bytes()), (0, 0));
    }

    #[test]
    fn cached_bytes_are_limited() {
        let one = encoded_bytes_max(&publication(1, 10)) + 1;
        let mut cache = cache();
        let at_limit = KeyCacheLimits { keys_max: 100, bytes_max: 2 * one };
        assert_eq!(put(&mut cache, Some("a"), &publication(1, 10), 9, at_limit), 0);
        assert_eq!(put(&mut cache, Some("b"), &publication(2, 10), 9, at_limit), 0);
        assert_eq!(put(&mut cache, Some("b"), &publication(3, 11), 9, at_limit), 1, "one byte past the limit");
        assert_eq!(offsets(&cache), [3]);
        let none = KeyCacheLimits { keys_max: 100, bytes_max: one - 1 };
        assert_eq!(
            put(&mut cache, Some("c"), &publication(4, 10), 9, none),
            2,
            "a publication above the limit is not kept"
        );
        assert_eq!((cache.newest.cached.len(), cache.bytes()), (0, 0));
    }

    const ANY: KeyCacheLimits = KeyCacheLimits { keys_max: 100, bytes_max: usize::MAX };

    fn partial(seen: &[(u64, &str)], limits: KeyCacheLimits) -> KeyCache {
        let mut cache = KeyCache::new(7, false);
        for (offset, key) in seen {
            put(&mut cache, Some(key), &publication(*offset, 10), 1_000, limits);
        }
        cache
    }

    #[test]
    fn older_publications_are_added_below_newer_ones() {
        let mut cache = partial(&[(8, "b"), (9, "c")], ANY);
        assert!(!cache.is_whole());
        cache.begin_restore(7, LoadNumber(1), 0, 7);
        let progress = [3, 3, 7].map(|through| cache.restored_through(through));
        assert_eq!(progress, [RestoreProgress::More(3), RestoreProgress::Stuck, RestoreProgress::Complete]);
        for (offset, key) in [(1, "a"), (2, "b"), (3, "d"), (7, "a"), (8, "a")] {
            put_older(&mut cache, offset, key, false, ANY);
        }
        put(&mut cache, Some("d"), &publication(10, 10), 1_000, ANY);
        assert_eq!(cache.end_restore(ANY), 0);
        assert_eq!((offsets(&cache), cache.is_whole()), (vec![7, 8, 9, 10], true));
        assert_eq!(cache.bytes(), 4 * (encoded_bytes_max(&publication(1, 10)) + 1));
    }

    #[test]
    fn what_the_log_deletes_during_the_restore_does_not_come_back() {
        let mut cache = partial(&[(9, "x")], ANY);
        cache.begin_restore(7, LoadNumber(1), 0, 8);
        cache.begin_page(0);
        put_older(&mut cache, 1, "a", false, ANY);
        assert_eq!(cache.restored_through(2), RestoreProgress::More(2));
        // The log has deleted 3 to 5, which may be newer publications of `a`.
        cache.begin_page(5);
        put_older(&mut cache, 6, "b", false, ANY);
        assert_eq!(cache.restored_through(8), RestoreProgress::Complete);
        cache.end_restore(ANY);
        assert_eq!(offsets(&cache), [6, 9]);
    }

    #[test]
    fn removals_apply_to_older_publications() {
        let mut cache = partial(&[(8, "b")], ANY);
        remove(&mut cache, "a", ANY);
        cache.begin_restore(7, LoadNumber(1), 0, 7);
        put_older(&mut cache, 1, "a", false, ANY);
        put_older(&mut cache, 2, "c", false, ANY);
        put_older(&mut cache, 3, "d", false, ANY);
        put_older(&mut cache, 4, "c", true, ANY);
        cache.end_restore(ANY);
        assert_eq!(offsets(&cache), [3, 8]);
    }

    #[test]
    fn nothing_older_than_an_evicted_publication_is_added() {
        let limits = KeyCacheLimits { keys_max: 2, bytes_max: usize::MAX };
        let mut cache = partial(&[(7, "a"), (8, "b"), (9, "c")], limits);
        cache.begin_restore(7, LoadNumber(1), 0, 6);
        put_older(&mut cache, 1, "a", false, limits);
        remove(&mut cache, "b", limits);
        cache.end_restore(limits);
        assert_eq!(offsets(&cache), [9], "the publication of `a` in the log is not its newest one");
    }

    #[test]
    fn both_tables_together_stay_within_the_bytes() {
        let one = encoded_bytes_max(&publication(1, 10)) + 1;
        let limits = KeyCacheLimits { keys_max: 100, bytes_max: 3 * one };
        let mut cache = partial(&[(8, "x")], limits);
        cache.begin_restore(7, LoadNumber(1), 0, 7);
        for (offset, key) in [(1, "a"), (2, "b"), (3, "c")] {
            put_older(&mut cache, offset, key, false, limits);
        }
        assert_eq!(cache.bytes(), 3 * one);
        put(&mut cache, Some("y"), &publication(9, 10), 1_000, limits);
        assert_eq!(cache.bytes(), 3 * one);
        cache.end_restore(limits);
        assert_eq!(offsets(&cache), [3, 8, 9]);
    }

    #[test]
    fn an_abandoned_restore_begins_anew() {
        let mut cache = partial(&[(8, "x")], ANY);
        cache.begin_restore(7, LoadNumber(1), 0, 7);
        put_older(&mut cache, 1, "a", false, ANY);
        cache.abandon_restore();
        assert_eq!((cache.restoring_load(), cache.is_whole()), (None, false));
        cache.begin_restore(7, LoadNumber(2), 0, 7);
        cache.end_restore(ANY);
        assert_eq!(offsets(&cache), [8]);
    }
}
