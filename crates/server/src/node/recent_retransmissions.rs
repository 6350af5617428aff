//! How the networks of a shard's sessions were a moment ago: the kernel's counts of a connection say how it was since its
//! beginning, so a network that has become slow, or has recovered, shows only in their differences.

use dunlin_engine::counters::Histogram;
use dunlin_net::{ConnectionKey, SegmentCounts, SocketFacts};

use super::RecentSegments;

/// Minimum time between two samples of a session.
const SAMPLE_EVERY_S: u32 = 10;

/// Samples of the sessions' sockets. A session is sampled when its client sends something, which every client does that
/// answers pings.
#[derive(Debug, Default)]
pub(super) struct RecentRetransmissions {
    /// By the connection's index, in pages. A page without samples is not there, so that a crowd that has left takes no memory.
    pages: Vec<Option<Box<Page>>>,
    round_trip: Histogram,
}

/// Connections of a page.
const PAGE: usize = 64;

#[derive(Debug)]
struct Page {
    /// `None` before the connection's first sample.
    samples: [Option<Samples>; PAGE],
    /// How many are there.
    count: usize,
}

/// The last two samples of a connection.
#[derive(Clone, Copy, Debug)]
struct Samples {
    /// The connection's generation: the index may be that of another one.
    generation: u32,
    last: Sample,
    before: Sample,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    at_s: u32,
    segments: SegmentCounts,
}

impl RecentRetransmissions {
    /// Whether to call [`RecentRetransmissions::note`].
    #[inline]
    pub(super) fn is_due(&self, connection: ConnectionKey, now_us: u64) -> bool {
        self.of(connection).is_none_or(|samples| seconds(now_us).saturating_sub(samples.last.at_s) >= SAMPLE_EVERY_S)
    }

    /// Adds a sample.
    pub(super) fn note(&mut self, connection: ConnectionKey, kernel: &SocketFacts, now_us: u64) {
        // The kernel has not measured a round trip yet.
        if kernel.rtt_us > 0 {
            self.round_trip.observe(kernel.rtt_us.into());
        }
        let last = Sample { at_s: seconds(now_us), segments: kernel.segments };
        let before = self.of(connection).map_or(last, |samples| samples.last);
        let samples = Samples { generation: connection.generation, last, before };
        let (page, place) = page_of(connection);
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let page = self.pages[page].get_or_insert_with(|| Box::new(Page { samples: [None; PAGE], count: 0 }));
        if page.samples[place].replace(samples).is_none() {
            page.count += 1;
        }
    }

    /// Forgets a connection that has ended.
    pub(super) fn forget(&mut self, connection: ConnectionKey) {
        let (page, place) = page_of(connection);
        let Some(kept) = self.pages.get_mut(page) else { return };
        let Some(samples) = kept else { return };
        if samples.samples[place].take_if(|samples| samples.generation == connection.generation).is_some() {
            samples.count -= 1;
            if samples.count == 0 {
                *kept = None;
            }
        }
    }

    /// What was sent in the last seconds: since the newest sample that is at least [`SAMPLE_EVERY_S`] old, or since the
    /// first. `kernel` is what the kernel counts now.
    pub(super) fn recent(&self, connection: ConnectionKey, kernel: &SocketFacts, now_us: u64) -> RecentSegments {
        let Some(Samples { last, before, .. }) = self.of(connection) else {
            return RecentSegments { over_s: None, segments: kernel.segments };
        };
        let age_s = |sample: &Sample| seconds(now_us).saturating_sub(sample.at_s);
        let since = if age_s(last) >= SAMPLE_EVERY_S { last } else { before };
        let over_s = Some(age_s(since));
        RecentSegments { over_s, segments: kernel.segments.since(since.segments) }
    }

    /// The smoothed round-trip times of all samples.
    pub(super) const fn round_trip(&self) -> &Histogram {
        &self.round_trip
    }

    fn of(&self, connection: ConnectionKey) -> Option<&Samples> {
        let (page, place) = page_of(connection);
        let samples = self.pages.get(page)?.as_ref()?.samples[place].as_ref()?;
        (samples.generation == connection.generation).then_some(samples)
    }
}

/// The page of a connection, and its place there.
const fn page_of(connection: ConnectionKey) -> (usize, usize) {
    (connection.index as usize / PAGE, connection.index as usize % PAGE)
}

/// Of a clock that has counted for less than a century.
const fn seconds(now_us: u64) -> u32 {
    (now_us / 1_000_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: u64 = 1_000_000;

    fn counted(sent: u32, retransmitted: u32) -> SocketFacts {
        SocketFacts { rtt_us: 1_000, segments: SegmentCounts { sent, retransmitted }, ..SocketFacts::default() }
    }

    fn recent(over_s: Option<u32>, sent: u32, retransmitted: u32) -> RecentSegments {
        RecentSegments { over_s, segments: SegmentCounts { sent, retransmitted } }
    }

    #[test]
    fn recent_counts_begin_at_least_ten_seconds_ago() {
        let (key, mut retransmissions) = (ConnectionKey { index: 3, generation: 7 }, RecentRetransmissions::default());
        assert_eq!(retransmissions.recent(key, &counted(5, 1), 0), recent(None, 5, 1), "no sample yet");
        for (at_s, sent, retransmitted) in [(100, 10, 5), (110, 1_000, 5), (121, 2_000, 6)] {
            assert!(!retransmissions.is_due(key, at_s * SECOND_US - SECOND_US) || at_s != 110);
            assert!(retransmissions.is_due(key, at_s * SECOND_US));
            retransmissions.note(key, &counted(sent, retransmitted), at_s * SECOND_US);
        }
        let now = counted(2_100, 36);
        assert_eq!(
            retransmissions.recent(key, &now, 125 * SECOND_US),
            recent(Some(15), 1_100, 31),
            "since the one before"
        );
        assert_eq!(retransmissions.recent(key, &now, 131 * SECOND_US), recent(Some(10), 100, 30), "since the last one");
        assert_eq!(retransmissions.recent(key, &now, 500 * SECOND_US), recent(Some(379), 100, 30));
        assert_eq!(retransmissions.round_trip().count(), 3);
    }

    #[test]
    fn another_connection_with_the_same_index_begins_anew() {
        let mut retransmissions = RecentRetransmissions::default();
        let [old, new] = [0, 1].map(|generation| ConnectionKey { index: 0, generation });
        // The index before it has no sample.
        retransmissions.note(ConnectionKey { index: 1, generation: 0 }, &counted(1, 0), SECOND_US);
        assert!(retransmissions.is_due(old, SECOND_US));
        assert_eq!(retransmissions.recent(old, &counted(7, 7), SECOND_US), recent(None, 7, 7));
        retransmissions.note(old, &counted(1_000, 900), SECOND_US);
        assert!(retransmissions.is_due(new, SECOND_US) && !retransmissions.is_due(old, SECOND_US));
        retransmissions.note(new, &counted(1, 0), SECOND_US);
        assert_eq!(retransmissions.recent(new, &counted(11, 1), 2 * SECOND_US), recent(Some(1), 10, 1));
        assert_eq!(retransmissions.recent(old, &counted(7, 7), SECOND_US), recent(None, 7, 7), "its samples are gone");
    }

    #[test]
    fn connections_that_have_ended_take_no_memory() {
        const CROWD: u32 = 10 * PAGE as u32;
        let mut retransmissions = RecentRetransmissions::default();
        let key = |index| ConnectionKey { index, generation: 0 };
        let pages = |retransmissions: &RecentRetransmissions| retransmissions.pages.iter().flatten().count();
        (0..CROWD).for_each(|index| retransmissions.note(key(index), &counted(1, 0), SECOND_US));
        assert_eq!(pages(&retransmissions), 10);
        // Of the last page, one stays.
        for index in 0..CROWD - 1 {
            retransmissions.forget(key(index));
            retransmissions.forget(key(index));
        }
        assert_eq!(pages(&retransmissions), 1);
        retransmissions.forget(ConnectionKey { index: CROWD - 1, generation: 1 });
        assert!(!retransmissions.is_due(key(CROWD - 1), SECOND_US), "another one with its index has ended");
        retransmissions.forget(key(CROWD - 1));
        retransmissions.forget(key(u32::MAX));
        assert_eq!(pages(&retransmissions), 0);
    }
}
