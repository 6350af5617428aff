//! Results of publications with an idempotency key. A second publication with the same key gets the first one's result.

use std::{collections::VecDeque, sync::Arc};

use hashbrown::HashMap;

use crate::shrink::{shrink_map, shrink_queue};

/// How long a result is stored, as in Centrifugo.
pub(crate) const RESULT_TTL_MS: u64 = 5 * 60 * 1_000;

/// A channel's newest results by key.
#[derive(Debug)]
pub(crate) struct Results {
    by_key: HashMap<Arc<str>, (u64, Box<str>), foldhash::quality::FixedState>,
    /// Keys in insertion order, in which they also expire.
    order: VecDeque<(u64, Arc<str>)>,
}

impl Results {
    pub(crate) fn new(seed: u64) -> Self {
        let by_key = HashMap::with_hasher(foldhash::quality::FixedState::with_seed(seed));
        Self { by_key, order: VecDeque::new() }
    }

    /// Offset and epoch of the publication with this key, if stored.
    pub(crate) fn find(&mut self, now_us: u64, key: &str) -> Option<(u64, Box<str>)> {
        self.forget_old(now_us);
        self.by_key.get(key).cloned()
    }

    /// Stores a publication's result; beyond `results_max`, the oldest result is evicted.
    pub(crate) fn remember(&mut self, now_us: u64, key: &str, position: (u64, Box<str>), results_max: usize) {
        self.insert(now_us.saturating_add(RESULT_TTL_MS * 1_000), key.into(), position, results_max);
    }

    fn insert(&mut self, until_us: u64, key: Arc<str>, position: (u64, Box<str>), results_max: usize) {
        self.order.push_back((until_us, Arc::clone(&key)));
        self.by_key.insert(key, position);
        while self.order.len() > results_max {
            self.forget_first();
        }
    }

    /// Removes expired results.
    pub(crate) fn forget_old(&mut self, now_us: u64) {
        while self.order.front().is_some_and(|(until_us, _)| *until_us <= now_us) {
            self.forget_first();
        }
    }

    /// When the oldest result expires; `None` without results.
    pub(crate) fn next_us(&self) -> Option<u64> {
        self.order.front().map(|(until_us, _)| *until_us)
    }

    fn forget_first(&mut self) {
        if let Some((_, key)) = self.order.pop_front() {
            self.by_key.remove(&key);
            shrink_map(&mut self.by_key);
            shrink_queue(&mut self.order);
        }
    }
}
