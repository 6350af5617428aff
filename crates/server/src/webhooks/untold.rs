//! Channels whose newest state the backend may not know, in the order of the changes.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::node_channels::ChannelLimits;

/// See the module. Only the newest change of a channel counts.
#[derive(Debug, Default)]
pub(super) struct Untold {
    pub(super) limits: ChannelLimits,
    /// By the number of the change: its time, and the channel.
    changes: BTreeMap<u64, (u64, Arc<str>)>,
    numbers: HashMap<Arc<str>, u64>,
    numbered: u64,
    bytes: usize,
    dropped: u64,
}

impl Untold {
    /// A channel has changed. Beyond the limits, the oldest changes are dropped.
    pub(super) fn push(&mut self, now_ms: u64, channel: Arc<str>) {
        self.remove(&channel);
        self.numbered += 1;
        self.bytes += channel.len();
        self.numbers.insert(Arc::clone(&channel), self.numbered);
        self.changes.insert(self.numbered, (now_ms, channel));
        let ChannelLimits { channels_max, bytes_max } = self.limits;
        while self.changes.len() > channels_max || self.bytes > bytes_max {
            self.dropped += u64::from(self.pop().is_some());
        }
    }

    /// Removes the oldest change.
    pub(super) fn pop(&mut self) -> Option<Arc<str>> {
        let (_, (_, channel)) = self.changes.pop_first()?;
        self.bytes -= channel.len();
        self.numbers.remove(&channel);
        Some(channel)
    }

    /// Removes the changes that are older than this.
    pub(super) fn forget_until(&mut self, time_ms: u64) {
        while self.oldest_ms().is_some_and(|oldest_ms| oldest_ms < time_ms) {
            self.pop();
        }
    }

    /// The time of the oldest change.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        self.changes.first_key_value().map(|(_, (time_ms, _))| *time_ms)
    }

    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    /// The number of changes that were dropped since the last call.
    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    fn remove(&mut self, channel: &Arc<str>) {
        if let Some(number) = self.numbers.remove(channel) {
            self.changes.remove(&number);
            self.bytes -= channel.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_change_of_a_channel_counts() {
        let mut untold = Untold::default();
        for (now_ms, channel) in [(1, "a"), (2, "b"), (3, "a"), (4, "c")] {
            untold.push(now_ms, channel.into());
        }
        assert_eq!((untold.len(), untold.oldest_ms(), untold.bytes), (3, Some(2), 3));
        untold.forget_until(3);
        assert_eq!([(); 3].map(|()| untold.pop()), [Some("a".into()), Some("c".into()), None]);
        assert_eq!((untold.len(), untold.bytes, untold.take_dropped()), (0, 0, 0));
    }

    #[test]
    fn changes_are_limited_in_number_and_bytes_and_the_oldest_are_dropped() {
        for limits in [
            ChannelLimits { channels_max: 2, bytes_max: usize::MAX },
            ChannelLimits { channels_max: usize::MAX, bytes_max: 4 },
        ] {
            let mut untold = Untold { limits, ..Untold::default() };
            for channel in ["aa", "bb", "aa"] {
                untold.push(1, channel.into());
            }
            assert_eq!((untold.len(), untold.take_dropped()), (2, 0), "at the limit");
            untold.push(2, "cc".into());
            assert_eq!((untold.len(), untold.take_dropped(), untold.take_dropped()), (2, 1, 0), "one past it");
            assert_eq!(untold.pop(), Some("aa".into()));
        }
    }
}
