//! Bytes of the publications that a shard keeps, and the channels that keep the most.

use std::{collections::BTreeSet, sync::Arc};

/// What the histories of a shard hold.
#[derive(Debug, Default)]
pub(crate) struct KeptBytes {
    total: usize,
    /// Channels whose publications may be evicted, by the magnitude of what they hold.
    evictable: BTreeSet<(u32, Arc<str>)>,
}

impl KeptBytes {
    /// Bytes of all publications.
    pub(crate) const fn total(&self) -> usize {
        self.total
    }

    /// The publications of `channel`, which were counted as `counted` bytes, have `bytes` bytes now.
    pub(crate) fn count(&mut self, channel: &Arc<str>, counted: &mut usize, bytes: usize, may_evict: bool) {
        self.total = self.total - *counted + bytes;
        let (before, after) = (magnitude(*counted), magnitude(bytes));
        *counted = bytes;
        if before > 0 && (before != after || !may_evict) {
            self.evictable.remove(&(before, Arc::clone(channel)));
        }
        if before != after && after > 0 && may_evict {
            self.evictable.insert((after, Arc::clone(channel)));
        }
    }

    /// A channel of those that hold the most.
    pub(crate) fn largest(&self) -> Option<Arc<str>> {
        self.evictable.last().map(|(_, channel)| Arc::clone(channel))
    }
}

/// How many bits the number has, so that a channel seldom moves.
const fn magnitude(bytes: usize) -> u32 {
    usize::BITS - bytes.leading_zeros()
}
