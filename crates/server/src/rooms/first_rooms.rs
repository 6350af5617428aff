//! The first rooms of a list, in the order of their channels. A page of a list has a few of many rooms: the others are compared,
//! and neither copied nor sorted.

use std::{cmp::Ordering, collections::BinaryHeap, ops::Bound};

/// Of rooms with these channels, at most `count` from this one on, in any order.
pub(super) fn first_rooms<'a, R>(rooms: impl Iterator<Item = (&'a str, R)>, from: Bound<&str>, count: usize) -> Vec<R> {
    struct ByChannel<'a, R>(&'a str, R);

    impl<R> PartialEq for ByChannel<'_, R> {
        fn eq(&self, other: &Self) -> bool {
            self.0 == other.0
        }
    }

    impl<R> Eq for ByChannel<'_, R> {}

    impl<R> PartialOrd for ByChannel<'_, R> {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    impl<R> Ord for ByChannel<'_, R> {
        fn cmp(&self, other: &Self) -> Ordering {
            self.0.cmp(other.0)
        }
    }

    // The last one is on top, and gives way to one that comes before it.
    let mut first: BinaryHeap<ByChannel<'a, R>> = BinaryHeap::new();
    for (channel, room) in rooms {
        if !is_from(channel, from) {
            continue;
        }
        if first.len() < count {
            first.push(ByChannel(channel, room));
        } else if let Some(mut last) = first.peek_mut()
            && channel < last.0
        {
            *last = ByChannel(channel, room);
        }
    }
    first.into_iter().map(|ByChannel(_, room)| room).collect()
}

/// Whether a channel comes at this place or after it.
fn is_from(channel: &str, from: Bound<&str>) -> bool {
    match from {
        Bound::Included(first) => channel >= first,
        Bound::Excluded(before) => channel > before,
        Bound::Unbounded => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOMS: usize = 10_000;

    /// Channels in a mixed order: 7,919 and 10,000 have no common divisor.
    fn channels() -> Vec<String> {
        (0..ROOMS).map(|place| format!("arena:{:04}", place * 7_919 % ROOMS)).collect()
    }

    fn first(channels: &[String], from: Bound<&str>, count: usize) -> Vec<usize> {
        let rooms = channels.iter().enumerate().map(|(place, channel)| (channel.as_str(), place));
        let mut places = first_rooms(rooms, from, count);
        places.sort_unstable_by_key(|place| &channels[*place]);
        places
    }

    #[test]
    fn they_are_those_that_sorting_all_finds() {
        let channels = channels();
        let mut sorted: Vec<usize> = (0..ROOMS).collect();
        sorted.sort_unstable_by_key(|place| &channels[*place]);
        for count in [0, 1, 101, ROOMS, ROOMS + 1] {
            assert_eq!(first(&channels, Bound::Unbounded, count), sorted[..count.min(ROOMS)], "{count}");
        }
        let from = channels[sorted[5_000]].as_str();
        assert_eq!(first(&channels, Bound::Included(from), 101), sorted[5_000..5_101]);
        assert_eq!(first(&channels, Bound::Excluded(from), 101), sorted[5_001..5_102]);
        assert_eq!(first(&channels, Bound::Excluded("b"), 101), [0; 0]);
    }
}
