//! The bytes of a shard's publications, and the channels with the most bytes.

use std::{collections::BTreeSet, sync::Arc};

/// The bytes in the histories of a shard.
#[derive(Debug, Default)]
pub(crate) struct KeptBytes {
    total: usize,
    /// Channels whose publications may be evicted, by the magnitude of their bytes.
    evictable: BTreeSet<(u32, Arc<str>)>,
}

impl KeptBytes {
    /// The bytes of all publications.
    pub(crate) const fn total(&self) -> usize {
        self.total
    }

    /// Updates the bytes of `channel` from `counted` to `bytes`.
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

    /// A channel with the largest magnitude of bytes.
    pub(crate) fn largest(&self) -> Option<Arc<str>> {
        self.evictable.last().map(|(_, channel)| Arc::clone(channel))
    }
}

/// The number's bit length. It changes rarely, so a channel seldom moves in the index.
const fn magnitude(bytes: usize) -> u32 {
    usize::BITS - bytes.leading_zeros()
}
