//! The key cache of a channel that several nodes share without a log. Each node keeps what it receives, so a node that
//! begins to follow the channel lacks older keys until other nodes have sent theirs.
//!
//! What a node has received since other nodes' messages are known to arrive is newer than all that they send. Before,
//! the younger publication is the newer one, by the age that each node states: clocks of nodes differ. A removal is
//! remembered for a while, because a node that it has not reached yet still sends the key.

use std::sync::Arc;

use dunlin_protocol::Publication;

use crate::event::PeerKey;

use super::{CachedPublication, Coverage, KeyCache, KeyCacheLimits, KeyTable, KeyedPublication};

/// How long a removal is remembered: longer than a broadcast and an answer take together.
pub(crate) const REMOVAL_KEPT_MS: u64 = 10_000;
const REMOVAL_KEPT_US: u64 = REMOVAL_KEPT_MS * 1_000;

/// What the cache of a shared channel has in addition.
#[derive(Debug)]
pub(super) struct SharedKeys {
    /// The publications that removed keys, which may be newer than what other nodes send.
    removed: KeyTable,
    /// Since when other nodes' messages are known to arrive.
    followed_us: u64,
    /// When other nodes may be asked again, after an incomplete answer.
    retry_us: u64,
}

/// The time, and how long publications are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyTimes {
    pub(crate) now_us: u64,
    pub(crate) ttl_us: u64,
}

/// A publication of another node.
#[derive(Debug)]
pub(crate) struct FoundKey {
    pub(crate) key: Option<Arc<str>>,
    pub(crate) publication: Arc<Publication>,
    pub(crate) age_us: u64,
    pub(crate) is_removal: bool,
}

/// A publication to merge.
struct Candidate {
    /// Whether it is newer than all that other nodes send.
    is_live: bool,
    /// When it would expire if it were no removal: later for younger ones. Unlike the time of its arrival, this is
    /// never before the start of the clock.
    until_us: u64,
    cached: CachedPublication,
}

impl SharedKeys {
    fn new(seed: u64, followed_us: u64) -> Self {
        Self { removed: KeyTable::new(seed), followed_us, retry_us: 0 }
    }

    pub(super) const fn bytes(&self) -> usize {
        self.removed.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.removed.cached.is_empty()
    }

    pub(super) fn next_us(&self) -> Option<u64> {
        self.removed.next_us()
    }

    pub(super) fn forget_old(&mut self, now_us: u64) {
        self.removed.forget_old(now_us);
    }

    pub(super) fn forget_removal(&mut self, key: Option<&str>) {
        self.removed.remove_key(key);
    }

    /// Drops the oldest removals until they fit besides the publications.
    pub(super) fn shrink(&mut self, limits: KeyCacheLimits, newest_bytes: usize) {
        let bytes_max = limits.bytes_max.saturating_sub(newest_bytes);
        self.removed.shrink(KeyCacheLimits { bytes_max, ..limits });
    }
}

impl KeyCache {
    /// An empty cache of a channel that other nodes have publications of. Their messages arrive since `followed_us`;
    /// `u64::MAX` while that is not known.
    pub(crate) fn new_shared(seed: u64, followed_us: u64) -> Self {
        let shared = Some(Box::new(SharedKeys::new(seed, followed_us)));
        Self { shared, coverage: Coverage::Partial, ..Self::new(seed, false) }
    }

    /// Whether other nodes may send it keys.
    pub(crate) const fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Other nodes' messages arrive from now on.
    pub(crate) fn mark_followed(&mut self, now_us: u64) {
        if let Some(shared) = &mut self.shared {
            shared.followed_us = shared.followed_us.min(now_us);
        }
    }

    /// Takes the cache as whole, although other nodes may have keys.
    pub(crate) fn mark_whole(&mut self) {
        self.coverage = Coverage::Whole;
    }

    /// Other nodes have not all answered. They may be asked again at this time.
    pub(crate) fn retry_at(&mut self, retry_us: u64) {
        self.coverage = Coverage::Partial;
        if let Some(shared) = &mut self.shared {
            shared.retry_us = retry_us;
        }
    }

    /// Whether other nodes are to be asked before the next subscription.
    pub(crate) fn should_ask_peers(&self, now_us: u64) -> bool {
        !self.is_whole() && self.shared.as_ref().is_some_and(|shared| shared.retry_us <= now_us)
    }

    /// What another node needs: the newest publications and the removals, the youngest first.
    pub(crate) fn for_peer(&self, times: KeyTimes) -> Vec<PeerKey> {
        let removed = self.shared.iter().flat_map(|shared| shared.removed.cached.values());
        let newest = self.newest.cached.values().map(|cached| (cached, times.ttl_us));
        let all = newest.chain(removed.map(|cached| (cached, REMOVAL_KEPT_US)));
        let mut keys: Vec<PeerKey> = all
            .map(|(cached, kept_us)| {
                let age_us = times.now_us.saturating_add(kept_us).saturating_sub(cached.until_us);
                PeerKey { publication: Arc::clone(&cached.publication), age_us }
            })
            .collect();
        keys.sort_by_key(|key| key.age_us);
        keys
    }

    /// Removes a key, and remembers that.
    pub(super) fn remove_shared(&mut self, removal: KeyedPublication<'_>, until_us: u64, limits: KeyCacheLimits) {
        self.newest.remove_key(removal.key);
        if let Some(shared) = &mut self.shared {
            shared.removed.put(removal, until_us, limits);
            shared.shrink(limits, self.newest.bytes);
        }
    }

    /// Adds what other nodes have. Returns the number of evicted keys.
    pub(crate) fn add_of_peers(&mut self, found: Vec<FoundKey>, times: KeyTimes, limits: KeyCacheLimits) -> u64 {
        let Some(shared) = &mut self.shared else { return 0 };
        let followed_us = shared.followed_us;
        let own = |cached: CachedPublication, kept_us: u64| {
            let is_live = cached.until_us.saturating_sub(kept_us) >= followed_us;
            let until_us = cached.until_us.saturating_add(times.ttl_us).saturating_sub(kept_us);
            Candidate { is_live, until_us, cached }
        };
        // Nothing older than an evicted publication: it may be older than one of the same key that was evicted.
        let oldest_us = times.now_us.max(self.newest.evicted_until_us);
        let mut candidates: Vec<Candidate> = found
            .into_iter()
            .map(|found| found.into_candidate(times))
            .filter(|found| found.cached.is_removal || found.until_us > oldest_us)
            .collect();
        candidates.extend(self.newest.take_all().map(|cached| own(cached, times.ttl_us)));
        candidates.extend(shared.removed.take_all().map(|cached| own(cached, REMOVAL_KEPT_US)));
        candidates.sort_by_key(|candidate| (candidate.is_live, candidate.until_us));
        let evicted = candidates.into_iter().map(|candidate| self.add_newer(candidate, times, limits)).sum();
        self.newest.order_expiry();
        evicted
    }

    fn add_newer(&mut self, candidate: Candidate, times: KeyTimes, limits: KeyCacheLimits) -> u64 {
        let Candidate { cached, until_us, .. } = candidate;
        let Some(shared) = &mut self.shared else { return 0 };
        if cached.is_removal {
            self.newest.remove_key(cached.key.as_deref());
            let until_us = until_us.saturating_add(REMOVAL_KEPT_US).saturating_sub(times.ttl_us);
            if until_us > times.now_us {
                shared.removed.insert(CachedPublication { until_us, ..cached });
            }
        } else {
            shared.removed.remove_key(cached.key.as_deref());
            self.newest.insert(cached);
        }
        let evicted = self.newest.shrink(limits);
        shared.shrink(limits, self.newest.bytes);
        evicted
    }
}

impl FoundKey {
    fn into_candidate(self, times: KeyTimes) -> Candidate {
        let Self { key, publication, age_us, is_removal } = self;
        let until_us = times.now_us.saturating_add(times.ttl_us).saturating_sub(age_us);
        Candidate { is_live: false, until_us, cached: CachedPublication::new(key, publication, until_us, is_removal) }
    }
}

#[cfg(test)]
mod tests {
    use dunlin_protocol::Payload;

    use crate::history_stream::encoded_bytes_max;

    use super::*;

    const ANY: KeyCacheLimits = KeyCacheLimits { keys_max: 100, bytes_max: usize::MAX };
    const TTL_US: u64 = 60_000_000;
    const START_US: u64 = 1_000_000;

    fn publication(version: u64) -> Arc<Publication> {
        let data = Payload::from_opaque(vec![b'x'; 10].into());
        let (info, tags, epoch) = (None, Vec::default(), Box::default());
        Arc::new(Publication { data, info, offset: 0, tags, time_ms: 0, epoch, version })
    }

    fn at(now_us: u64) -> KeyTimes {
        KeyTimes { now_us, ttl_us: TTL_US }
    }

    fn put(cache: &mut KeyCache, key: &str, version: u64, now_us: u64, limits: KeyCacheLimits) {
        let new = KeyedPublication { key: Some(key), publication: &publication(version), is_removal: false };
        cache.put(new, now_us + TTL_US, limits);
    }

    fn remove(cache: &mut KeyCache, key: &str, now_us: u64, limits: KeyCacheLimits) {
        let removal = KeyedPublication { key: Some(key), publication: &publication(0), is_removal: true };
        cache.put(removal, now_us + REMOVAL_KEPT_US, limits);
    }

    fn found(key: &str, version: u64, age_us: u64, is_removal: bool) -> FoundKey {
        FoundKey { key: Some(key.into()), publication: publication(version), age_us, is_removal }
    }

    fn versions(cache: &KeyCache) -> Vec<u64> {
        cache.publications(None).iter().map(|publication| publication.version).collect()
    }

    #[test]
    fn ages_may_be_longer_than_the_clock_has_run() {
        let mut cache = KeyCache::new_shared(7, START_US);
        let keys = vec![found("a", 1, 50_000_000, false), found("a", 2, 40_000_000, false)];
        cache.add_of_peers(keys, at(START_US), ANY);
        assert_eq!((versions(&cache), cache.next_us()), (vec![2], Some(START_US + 20_000_000)));
        assert_eq!(cache.for_peer(at(START_US + 5))[0].age_us, 40_000_005, "the age goes on");
    }

    #[test]
    fn what_came_before_the_node_followed_may_be_older() {
        let mut cache = KeyCache::new_shared(7, u64::MAX);
        put(&mut cache, "a", 1, START_US, ANY);
        put(&mut cache, "b", 2, START_US, ANY);
        remove(&mut cache, "c", START_US, ANY);
        cache.mark_followed(START_US + 10);
        put(&mut cache, "d", 3, START_US + 10, ANY);
        remove(&mut cache, "e", START_US + 10, ANY);
        let keys = [("a", 11, 19), ("b", 12, 21), ("c", 13, 19), ("d", 14, 0), ("e", 15, 0)];
        let keys = keys.map(|(key, version, age_us)| found(key, version, age_us, false));
        cache.add_of_peers(keys.into(), at(START_US + 20), ANY);
        assert_eq!(versions(&cache), [2, 11, 13, 3]);
    }

    #[test]
    fn a_removal_is_newer_than_an_older_publication_of_any_node() {
        let mut cache = KeyCache::new_shared(7, START_US);
        let keys = vec![
            found("a", 1, 20, false),
            found("a", 0, 10, true),
            found("b", 2, 10, false),
            found("b", 0, 20, true),
            found("c", 0, REMOVAL_KEPT_US, true),
        ];
        cache.add_of_peers(keys, at(START_US), ANY);
        assert_eq!(versions(&cache), [2]);
        let sent: Vec<u64> = cache.for_peer(at(START_US)).iter().map(|key| key.age_us).collect();
        assert_eq!(sent, [10, 10], "the removal of `a` is passed on, that of `c` is forgotten");
        assert!(!cache.forget_old(START_US + REMOVAL_KEPT_US - 11) && cache.for_peer(at(START_US)).len() == 2);
        cache.forget_old(START_US + REMOVAL_KEPT_US - 10);
        assert_eq!(cache.for_peer(at(START_US)).len(), 1);
    }

    #[test]
    fn removals_take_no_space_from_publications() {
        let one = encoded_bytes_max(&publication(1)) + 1;
        let limits = KeyCacheLimits { keys_max: 2, bytes_max: 3 * one };
        let mut cache = KeyCache::new_shared(7, START_US);
        for key in ["a", "b", "c"] {
            remove(&mut cache, key, START_US, limits);
        }
        assert_eq!((cache.bytes(), cache.is_empty()), (2 * one, false), "as many removals as keys");
        put(&mut cache, "d", 1, START_US, limits);
        assert_eq!(cache.bytes(), 3 * one);
        put(&mut cache, "e", 2, START_US, limits);
        assert_eq!((versions(&cache), cache.bytes()), (vec![1, 2], 3 * one), "the oldest removal gives way");
        put(&mut cache, "c", 3, START_US, limits);
        assert_eq!((versions(&cache), cache.bytes()), (vec![2, 3], 2 * one), "a key that is back is not removed");
    }

    #[test]
    fn nothing_expires_after_a_newer_publication() {
        let mut cache = KeyCache::new_shared(7, START_US);
        put(&mut cache, "a", 1, START_US, ANY);
        // On the way, the answer has become younger than what arrived before it.
        cache.add_of_peers(vec![found("b", 2, 0, false)], at(START_US + 500), ANY);
        assert_eq!((versions(&cache), cache.next_us()), (vec![2, 1], Some(START_US + TTL_US)));
        assert!(cache.forget_old(START_US + TTL_US) && cache.is_empty());
    }
}
