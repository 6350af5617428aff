//! Channels whose newest state the backend may not know, the oldest change first.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::node_channels::ChannelLimits;

/// See the module. Only the newest change of a channel counts.
#[derive(Debug, Default)]
pub(super) struct Untold {
    pub(super) limits: ChannelLimits,
    /// By the time of the change and its number.
    changes: BTreeMap<(u64, u64), Arc<str>>,
    places: HashMap<Arc<str>, (u64, u64)>,
    numbered: u64,
    bytes: usize,
    dropped: u64,
}

impl Untold {
    /// A channel has changed at a time, or was told in vain since then. Beyond the limits, the oldest changes are dropped.
    pub(super) fn push(&mut self, time_ms: u64, channel: Arc<str>) {
        self.remove(&channel);
        self.numbered += 1;
        self.bytes += channel.len();
        self.places.insert(Arc::clone(&channel), (time_ms, self.numbered));
        self.changes.insert((time_ms, self.numbered), channel);
        let ChannelLimits { channels_max, bytes_max } = self.limits;
        while self.changes.len() > channels_max || self.bytes > bytes_max {
            self.dropped += u64::from(self.pop().is_some());
        }
    }

    /// Removes the oldest change. Returns its time.
    pub(super) fn pop(&mut self) -> Option<(u64, Arc<str>)> {
        let ((time_ms, _), channel) = self.changes.pop_first()?;
        self.bytes -= channel.len();
        self.places.remove(&channel);
        Some((time_ms, channel))
    }

    /// Removes the changes that are older than this.
    pub(super) fn forget_until(&mut self, time_ms: u64) {
        while self.oldest_ms().is_some_and(|oldest_ms| oldest_ms < time_ms) {
            self.pop();
        }
    }

    /// The time of the oldest change.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        self.changes.first_key_value().map(|((time_ms, _), _)| *time_ms)
    }

    pub(super) fn contains(&self, channel: &str) -> bool {
        self.places.contains_key(channel)
    }

    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    /// The number of changes that were dropped since the last call.
    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    fn remove(&mut self, channel: &Arc<str>) {
        if let Some(place) = self.places.remove(channel) {
            self.changes.remove(&place);
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
        assert_eq!([(); 3].map(|()| untold.pop()), [Some((3, "a".into())), Some((4, "c".into())), None]);
        assert_eq!((untold.len(), untold.bytes, untold.take_dropped()), (0, 0, 0));
    }

    #[test]
    fn what_was_told_in_vain_is_as_old_as_it_was() {
        let mut untold = Untold::default();
        for (time_ms, channel) in [(5, "a"), (6, "b"), (2, "c"), (1, "b")] {
            untold.push(time_ms, channel.into());
        }
        assert_eq!((untold.len(), untold.oldest_ms(), untold.bytes), (3, Some(1), 3));
        let all = [Some((1, "b".into())), Some((2, "c".into())), Some((5, "a".into()))];
        assert_eq!([(); 3].map(|()| untold.pop()), all);
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
            assert_eq!(untold.pop(), Some((1, "aa".into())));
        }
    }
}
