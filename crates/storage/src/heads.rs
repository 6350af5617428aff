//! The writer's caches of channel heads, and of what belongs to them.

use std::sync::Arc;

use foldhash::quality::RandomState;
use hashbrown::{HashMap, HashSet};

use crate::records::ChannelHead;

/// Names of channels. The hash is random, because clients choose them.
pub(crate) type ChannelSet = HashSet<Arc<str>, RandomState>;
type ByChannel<V> = HashMap<Arc<str>, V, RandomState>;

/// The most recently used heads: at least `heads_max`, and at most twice that number.
#[derive(Debug)]
pub(crate) struct HeadCache<V = ChannelHead> {
    heads_max: usize,
    /// The heads that were used in this generation.
    young: ByChannel<V>,
    /// The heads of the previous generation. Heads that are not used again are evicted with it.
    old: ByChannel<V>,
}

impl<V> HeadCache<V> {
    pub(crate) fn new(heads_max: usize) -> Self {
        Self { heads_max: heads_max.max(1), young: ByChannel::default(), old: ByChannel::default() }
    }

    pub(crate) const fn heads_max(&self) -> usize {
        self.heads_max
    }

    pub(crate) fn get_mut(&mut self, channel: &Arc<str>) -> Option<&mut V> {
        if !self.old.is_empty()
            && let Some((channel, head)) = self.old.remove_entry(channel)
        {
            self.insert(channel, head);
        }
        self.young.get_mut(channel)
    }

    pub(crate) fn insert(&mut self, channel: Arc<str>, head: V) {
        if self.young.len() >= self.heads_max && !self.young.contains_key(&channel) {
            self.old = std::mem::take(&mut self.young);
        }
        if !self.old.is_empty() {
            self.old.remove(&channel);
        }
        self.young.insert(channel, head);
    }

    pub(crate) fn remove(&mut self, channel: &str) {
        self.young.remove(channel);
        self.old.remove(channel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(top: u64) -> ChannelHead {
        ChannelHead {
            expires_ms: u64::MAX,
            is_synced: false,
            power_era: 0,
            damage_era: 0,
            top,
            floor: 0,
            deleted_through: 0,
            activity_ms: 0,
            version: 0,
            version_epoch: Box::default(),
            epoch: "e".into(),
        }
    }

    #[test]
    fn used_heads_stay_cached_and_others_are_evicted() {
        let mut heads = HeadCache::new(4);
        let name = |number: u64| Arc::<str>::from(number.to_string());
        for number in 0..100 {
            heads.insert(name(number), head(number));
            assert_eq!(heads.get_mut(&name(0)).map(|head| head.top), Some(0), "used each time");
        }
        assert!(heads.young.len() + heads.old.len() <= 8);
        assert_eq!(heads.get_mut(&name(99)).map(|head| head.top), Some(99));
        assert_eq!(heads.get_mut(&name(50)), None);
        heads.remove("99");
        assert_eq!(heads.get_mut(&name(99)), None);
    }
}
