//! The bytes of a shard's publications, and the channels with the most bytes.

use std::{collections::BTreeMap, sync::Arc};

use crate::channel::ChannelKey;

/// The bytes in the histories of a shard.
#[derive(Debug, Default)]
pub(crate) struct KeptBytes {
    total: usize,
    /// Channels whose publications may be evicted, by the magnitude of their bytes.
    evictable: BTreeMap<(u32, Arc<str>), ChannelKey>,
}

impl KeptBytes {
    /// The bytes of all publications.
    pub(crate) const fn total(&self) -> usize {
        self.total
    }

    /// Updates the bytes of `channel` from `counted` to `bytes`.
    pub(crate) fn count(
        &mut self,
        (name, channel): (&Arc<str>, ChannelKey),
        counted: &mut usize,
        bytes: usize,
        may_evict: bool,
    ) {
        self.total = self.total - *counted + bytes;
        let (before, after) = (magnitude(*counted), magnitude(bytes));
        *counted = bytes;
        if before > 0 && (before != after || !may_evict) {
            self.evictable.remove(&(before, Arc::clone(name)));
        }
        if before != after && after > 0 && may_evict {
            self.evictable.insert((after, Arc::clone(name)), channel);
        }
    }

    /// A channel with the largest magnitude of bytes.
    pub(crate) fn largest(&self) -> Option<ChannelKey> {
        self.evictable.last_key_value().map(|(_, channel)| *channel)
    }
}

/// The number's bit length. It changes rarely, so a channel seldom moves in the index.
const fn magnitude(bytes: usize) -> u32 {
    usize::BITS - bytes.leading_zeros()
}
