//! The newest publication of each conflation key of a channel, for new subscribers.

use std::{collections::BTreeMap, sync::Arc};

use dunlin_protocol::{Publication, TagsFilter};
use hashbrown::HashMap;

use crate::history_stream::encoded_bytes_max;

/// The newest publications of a channel, one per key. Publications without a key share one entry.
#[derive(Debug)]
pub(crate) struct KeyCache {
    /// The number of each key's publication.
    numbers: HashMap<Option<Arc<str>>, u64, foldhash::quality::FixedState>,
    /// The publications in the order of arrival.
    cached: BTreeMap<u64, CachedPublication>,
    /// The number of publications ever added or removed.
    put_count: u64,
    bytes: usize,
    /// Whether the answer cache may hold its publications.
    has_answers: bool,
}

#[derive(Debug)]
struct CachedPublication {
    key: Option<Arc<str>>,
    publication: Arc<Publication>,
    until_us: u64,
    bytes: usize,
}

/// The limits of a cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyCacheLimits {
    pub(crate) keys_max: usize,
    pub(crate) bytes_max: usize,
}

impl KeyCache {
    /// An empty cache.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            numbers: HashMap::with_hasher(foldhash::quality::FixedState::with_seed(seed)),
            cached: BTreeMap::new(),
            put_count: 0,
            bytes: 0,
            has_answers: false,
        }
    }

    /// Replaces the newest publication of a key. Beyond the limits, the keys with the oldest publications are evicted;
    /// returns their number.
    pub(crate) fn put(
        &mut self,
        key: Option<&str>,
        publication: &Arc<Publication>,
        until_us: u64,
        limits: KeyCacheLimits,
    ) -> u64 {
        let key: Option<Arc<str>> = key.map(Arc::from);
        let bytes = encoded_bytes_max(publication) + key.as_ref().map_or(0, |key| key.len());
        self.put_count += 1;
        if let Some(older) = self.numbers.insert(key.clone(), self.put_count) {
            self.remove(older);
        }
        let publication = Arc::clone(publication);
        self.bytes += bytes;
        self.cached.insert(self.put_count, CachedPublication { key, publication, until_us, bytes });
        let mut evicted = 0;
        while self.cached.len() > limits.keys_max || self.bytes > limits.bytes_max {
            self.forget_first();
            evicted += 1;
        }
        evicted
    }

    /// Removes the publication of a key.
    pub(crate) fn remove_key(&mut self, key: Option<&str>) {
        self.put_count += 1;
        let key: Option<Arc<str>> = key.map(Arc::from);
        if let Some(number) = self.numbers.remove(&key) {
            self.remove(number);
        }
    }

    /// Removes expired publications; returns whether there were any.
    pub(crate) fn forget_old(&mut self, now_us: u64) -> bool {
        let before = self.cached.len();
        while self.next_us().is_some_and(|until_us| until_us <= now_us) {
            self.forget_first();
        }
        self.cached.len() < before
    }

    /// When the oldest publication expires; `None` without publications.
    pub(crate) fn next_us(&self) -> Option<u64> {
        self.cached.first_key_value().map(|(_, oldest)| oldest.until_us)
    }

    /// The newest publication of each key that passes the filter, in the order of arrival.
    pub(crate) fn publications(&self, filter: Option<&TagsFilter>) -> Vec<Arc<Publication>> {
        let passes = |publication: &Publication| filter.is_none_or(|filter| filter.passes(&publication.tags));
        let cached = self.cached.values().map(|cached| &cached.publication);
        cached.filter(|publication| passes(publication)).cloned().collect()
    }

    /// A number that changes with each publication added or removed.
    pub(crate) fn state(&self) -> u64 {
        self.put_count
    }

    /// The bytes that count against the limit.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.cached.len()
    }

    /// Notes that the answer cache holds its publications.
    pub(crate) fn mark_answer_kept(&mut self) {
        self.has_answers = true;
    }

    /// Whether the answer cache may hold its publications; resets the flag.
    pub(crate) fn take_answers(&mut self) -> bool {
        std::mem::take(&mut self.has_answers)
    }

    fn forget_first(&mut self) {
        let Some((_, oldest)) = self.cached.pop_first() else { return };
        self.bytes -= oldest.bytes;
        self.numbers.remove(&oldest.key);
    }

    fn remove(&mut self, number: u64) {
        if let Some(removed) = self.cached.remove(&number) {
            self.bytes -= removed.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use dunlin_protocol::Payload;

    use super::*;

    fn publication(offset: u64, bytes: usize) -> Arc<Publication> {
        let data = Payload::from_opaque(vec![b'x'; bytes].into());
        Arc::new(Publication { data, info: None, offset, tags: Vec::default(), time_ms: 0, epoch: Box::default() })
    }

    fn offsets(cache: &KeyCache) -> Vec<u64> {
        cache.publications(None).iter().map(|publication| publication.offset).collect()
    }

    #[test]
    fn the_newest_per_key_is_kept_up_to_the_key_limit() {
        let limits = KeyCacheLimits { keys_max: 2, bytes_max: usize::MAX };
        let mut cache = KeyCache::new(7);
        let keys = [Some("a"), Some("b"), Some("a"), None];
        let evicted: Vec<u64> =
            (1..).zip(keys).map(|(offset, key)| cache.put(key, &publication(offset, 10), offset, limits)).collect();
        assert_eq!((evicted, offsets(&cache)), (vec![0, 0, 0, 1], vec![3, 4]), "the oldest publication is evicted");
        assert_eq!((cache.len(), cache.bytes()), (2, 2 * encoded_bytes_max(&publication(1, 10)) + 1));
        assert!(cache.forget_old(3) && !cache.forget_old(3));
        assert_eq!((offsets(&cache), cache.next_us()), (vec![4], Some(4)));
        assert!(cache.forget_old(4) && cache.bytes() == 0 && cache.numbers.is_empty());
    }

    #[test]
    fn a_removed_key_frees_its_entry() {
        let limits = KeyCacheLimits { keys_max: 2, bytes_max: usize::MAX };
        let mut cache = KeyCache::new(7);
        for (offset, key) in [(1, "a"), (2, "b")] {
            cache.put(Some(key), &publication(offset, 10), 9, limits);
        }
        let state = cache.state();
        cache.remove_key(Some("a"));
        cache.remove_key(Some("unknown"));
        assert_eq!((offsets(&cache), cache.len()), (vec![2], 1));
        assert!(cache.state() > state, "cached answers are no longer used");
        assert_eq!(cache.put(Some("c"), &publication(3, 10), 9, limits), 0, "the entry is free");
        cache.remove_key(Some("b"));
        cache.remove_key(Some("c"));
        assert_eq!((cache.len(), cache.bytes()), (0, 0));
    }

    #[test]
    fn cached_bytes_are_limited() {
        let one = encoded_bytes_max(&publication(1, 10)) + 1;
        let mut cache = KeyCache::new(7);
        let at_limit = KeyCacheLimits { keys_max: 100, bytes_max: 2 * one };
        assert_eq!(cache.put(Some("a"), &publication(1, 10), 9, at_limit), 0);
        assert_eq!(cache.put(Some("b"), &publication(2, 10), 9, at_limit), 0);
        assert_eq!(cache.put(Some("b"), &publication(3, 11), 9, at_limit), 1, "one byte past the limit");
        assert_eq!(offsets(&cache), [3]);
        let none = KeyCacheLimits { keys_max: 100, bytes_max: one - 1 };
        assert_eq!(cache.put(Some("c"), &publication(4, 10), 9, none), 2, "a publication above the limit is not kept");
        assert_eq!((cache.len(), cache.bytes()), (0, 0));
    }
}
