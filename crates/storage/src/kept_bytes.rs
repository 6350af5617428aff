//! The bytes of the publications that a channel keeps, in a few segments, so that the oldest can be evicted by bytes.

use std::{collections::VecDeque, fmt::Write as _};

use crate::records::StoredResult;

/// Maximum number of segments. More make evictions and expiries more precise, and the stored value larger.
const SEGMENTS_MAX: usize = 10;
/// A segment ends when it has this part of the channel's bytes, and the minimum; or this part of the channel's limit.
const SEGMENT_PART: u64 = 6;
const SEGMENT_PART_OF_LIMIT: u64 = 8;
const SEGMENT_BYTES_MIN: u64 = 4 << 10;

/// The bytes of a channel's publications, oldest first. Bytes of a segment count until its newest publication leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptBytes {
    /// The offset of the newest publication. If the channel's head has another one, another release has written to the
    /// channel, and the segments are unknown.
    pub(crate) top: u64,
    segments: VecDeque<Segment>,
}

/// See [`KeptBytes::left_after`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeftBytes {
    pub(crate) bytes: u64,
    /// The offset of the last evicted publication; 0 if none is evicted.
    pub(crate) evicted_through: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    last: u64,
    bytes: u64,
    /// When the newest publication expires.
    expires_ms: u64,
}

impl KeptBytes {
    pub(crate) fn total(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// The bytes of the segments that have not expired.
    pub(crate) fn total_at(&self, now_ms: u64) -> u64 {
        self.segments.iter().filter(|segment| segment.expires_ms > now_ms).map(|segment| segment.bytes).sum()
    }

    /// Adds a publication of a channel with this limit.
    pub(crate) fn add(&mut self, offset: u64, bytes: u64, expires_ms: u64, bytes_max: u64) {
        let part = (self.total() / SEGMENT_PART).max(SEGMENT_BYTES_MIN).min(bytes_max / SEGMENT_PART_OF_LIMIT);
        self.top = offset;
        match self.segments.back_mut() {
            Some(newest) if newest.bytes.saturating_add(bytes) <= part => {
                newest.last = offset;
                newest.bytes += bytes;
                newest.expires_ms = newest.expires_ms.max(expires_ms);
            }
            _ => self.segments.push_back(Segment { last: offset, bytes, expires_ms }),
        }
        if self.segments.len() > SEGMENTS_MAX
            && let Some(oldest) = self.segments.pop_front()
            && let Some(next) = self.segments.front_mut()
        {
            next.bytes += oldest.bytes;
            next.expires_ms = next.expires_ms.max(oldest.expires_ms);
        }
    }

    /// Forgets segments without a publication above an offset, and expired ones.
    pub(crate) fn forget(&mut self, floor: u64, now_ms: u64) {
        self.segments.retain(|segment| segment.last > floor && segment.expires_ms > now_ms);
    }

    /// What is left without the segments that [`Self::forget`] would drop, and without as many of the oldest as must be
    /// evicted so that at most `bytes_max` is left.
    pub(crate) fn left_after(&self, floor: u64, now_ms: u64, bytes_max: u64) -> LeftBytes {
        let kept = || self.segments.iter().filter(|segment| segment.last > floor && segment.expires_ms > now_ms);
        let mut left = LeftBytes { bytes: kept().map(|segment| segment.bytes).sum(), evicted_through: 0 };
        for oldest in kept() {
            if left.bytes <= bytes_max {
                break;
            }
            left = LeftBytes { bytes: left.bytes - oldest.bytes, evicted_through: oldest.last };
        }
        left
    }

    /// The stored value. It has the form of a result of an idempotency key, so that earlier releases can read it: the
    /// offset is the top, and the text has the numbers of the segments. Offsets and times are differences to the segment
    /// before, which are short.
    pub(crate) fn encode(&self, expires_ms: u64) -> Vec<u8> {
        let mut text = String::with_capacity(3 * SEGMENTS_MAX * 8);
        let (mut last_before, mut expires_before) = (0, 0);
        for &Segment { last, bytes, expires_ms } in &self.segments {
            let differences = [last.wrapping_sub(last_before), bytes, expires_ms.wrapping_sub(expires_before)];
            for number in differences {
                let space = if text.is_empty() { "" } else { " " };
                write!(text, "{space}{}", number.cast_signed()).expect("a string takes everything");
            }
            (last_before, expires_before) = (last, expires_ms);
        }
        StoredResult { expires_ms, offset: self.top, epoch: text.into() }.encode()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let StoredResult { offset: top, epoch: text, .. } = StoredResult::decode(bytes)?;
        let numbers: Vec<i64> = text.split_ascii_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        let (differences, []) = numbers.as_chunks::<3>() else { return None };
        let (mut last, mut expires_ms) = (0_u64, 0_u64);
        let segment = |&[offsets, bytes, ms]: &[i64; 3]| {
            last = last.wrapping_add(offsets.cast_unsigned());
            expires_ms = expires_ms.wrapping_add(ms.cast_unsigned());
            // A larger number of bytes would overflow the total.
            Some(Segment { last, bytes: u64::try_from(bytes).ok().filter(|bytes| *bytes < 1 << 56)?, expires_ms })
        };
        let segments = differences.iter().map(segment).collect::<Option<VecDeque<_>>>()?;
        (segments.len() <= SEGMENTS_MAX).then_some(Self { top, segments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER_MS: u64 = u64::MAX;

    #[test]
    fn the_total_is_exact_and_the_segments_are_few() {
        let mut kept = KeptBytes::default();
        let mut total = 0;
        for offset in 1..10_000 {
            let bytes = 1 + offset * 7_919 % 5_000;
            kept.add(offset, bytes, NEVER_MS, u64::MAX);
            total += bytes;
            assert_eq!((kept.total(), kept.top), (total, offset));
            assert!(kept.segments.len() <= SEGMENTS_MAX);
        }
        let largest = kept.segments.iter().map(|segment| segment.bytes).max().expect("there are some");
        assert!(largest < total / 3, "{kept:?}");
    }

    #[test]
    fn evictions_end_at_the_limit() {
        let mut kept = KeptBytes::default();
        for offset in 1..=5 {
            kept.add(offset, 100_000, NEVER_MS, u64::MAX);
        }
        let left = |floor, bytes_max| {
            let LeftBytes { bytes, evicted_through } = kept.left_after(floor, 0, bytes_max);
            (bytes, evicted_through)
        };
        assert_eq!(left(0, 500_000), (500_000, 0), "at the limit");
        assert_eq!(left(0, 499_999), (400_000, 1), "one past it");
        assert_eq!(left(0, 0), (0, 5));
        assert_eq!(left(2, 300_000), (300_000, 0), "what is below the floor is gone already");
        assert_eq!(left(2, 299_999), (200_000, 3));
        assert_eq!(left(5, 0), (0, 0));
    }

    #[test]
    fn an_eviction_is_a_small_part_of_a_small_limit_as_well() {
        const BYTES_MAX: u64 = 3_000;
        let mut kept = KeptBytes::default();
        for offset in 1..1_000 {
            let before = kept.total();
            kept.forget(kept.left_after(0, 0, BYTES_MAX - 270).evicted_through, 0);
            assert!(before - kept.total() <= BYTES_MAX / 4, "{kept:?}");
            kept.add(offset, 270, NEVER_MS, BYTES_MAX);
        }
    }

    #[test]
    fn trimmed_and_expired_segments_are_forgotten() {
        let mut kept = KeptBytes::default();
        for offset in 1..=4 {
            kept.add(offset, 100_000, 1_000 * offset, u64::MAX);
        }
        assert_eq!((kept.total_at(999), kept.total_at(1_000)), (400_000, 300_000));
        assert_eq!(kept.left_after(2, 3_000, u64::MAX).bytes, 100_000);
        kept.forget(2, 0);
        assert_eq!(kept.total(), 200_000);
        kept.forget(0, 3_000);
        assert_eq!(kept.total(), 100_000);
    }

    #[test]
    fn values_round_trip_and_others_are_none() {
        let mut kept = KeptBytes::default();
        for offset in [3, 9, 27] {
            assert_eq!(KeptBytes::decode(&kept.encode(5)), Some(kept.clone()));
            kept.add(offset, 1 << 40, NEVER_MS, u64::MAX);
        }
        for text in ["1", "1 2", "1 2 x", "1 2 3 4", "1 -2 3", &"1 2 3 ".repeat(11)] {
            let bytes = StoredResult { expires_ms: 1, offset: 1, epoch: text.into() }.encode();
            assert_eq!(KeptBytes::decode(&bytes), None, "{text}");
        }
        assert_eq!(KeptBytes::decode(b""), None);
    }
}
