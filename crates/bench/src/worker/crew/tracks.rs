//! What one client must receive of each stream: gaps, repetitions and wrong order.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::scenario::streams::Streams;

/// Gaps that one worker remembers, to tell a late publication from a repeated one: some 5 MB.
const GAPS_MAX: usize = 100_000;

/// The state of one stream at one client.
#[derive(Debug, Clone, Copy)]
struct Track {
    stream: u32,
    /// The next expected number; none before the first publication.
    next: Option<u64>,
    /// Publications from this number on were sent after the subscription was confirmed.
    must_from: u64,
    /// The first number of this phase. What was missing before is counted already.
    phase_from: u64,
    /// Publications of this phase that are missing before a later one, without refused ones.
    missing: u64,
    /// Gaps that are not remembered are between these numbers, the second one excluded.
    unclear: Option<(u64, u64)>,
}

/// The tracks of one client, sorted by stream.
#[derive(Debug, Default)]
pub struct Tracks(Vec<Track>);

/// The meaning of a received publication.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It is the first time, and no later one has come.
    New,
    /// It was missing, and comes after a later one.
    Late,
    Repeated,
    /// It is late or repeated: there were too many gaps to remember all.
    Unclear,
    /// The client has no subscription to its channel.
    Stray,
}

/// What is missing at all clients of a worker, and what does not have to come.
#[derive(Debug, Default)]
pub struct Gaps {
    /// Client, stream and first number, and the number after the last.
    ranges: BTreeMap<(u64, u32, u64), u64>,
    /// Publications of this phase that the target refused: stream and number.
    refused: BTreeSet<(u32, u64)>,
    /// Refusals of the run that were read.
    refusals_read: usize,
    /// Gaps of this phase at clients that are gone: stream and numbers.
    of_gone: Vec<(u32, Range<u64>)>,
    /// Publications that clients missed in this phase before they were gone, and that are in no remembered gap.
    lost_by_gone: u64,
    /// Missing publications of this phase that are not remembered.
    unremembered: u64,
}

/// What a phase has lost.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Publications that clients missed before they were gone.
    pub lost_by_gone: u64,
    /// Missing publications that were not remembered, so that it is unknown whether they came late or were refused.
    pub unremembered: u64,
}

impl Tracks {
    /// The subscriptions of a client were confirmed: from now on, nothing of these streams may be missing.
    pub fn begin(streams: impl Iterator<Item = u32>, shared: &Streams) -> Self {
        let track = |stream| {
            let must_from = shared.sent(stream);
            Track { stream, next: None, must_from, phase_from: 0, missing: 0, unclear: None }
        };
        let mut tracks: Vec<Track> = streams.map(track).collect();
        tracks.sort_unstable_by_key(|track| track.stream);
        Tracks(tracks)
    }

    fn find(&mut self, stream: u32) -> Option<&mut Track> {
        let at = self.0.binary_search_by_key(&stream, |track| track.stream).ok()?;
        self.0.get_mut(at)
    }

    /// Records a publication.
    pub fn take(&mut self, client: u64, stream: u32, sequence: u64, gaps: &mut Gaps) -> Arrival {
        let Some(track) = self.find(stream) else { return Arrival::Stray };
        // The first publication may be older than the confirmation, which the client reads later.
        let next = track.next.unwrap_or(track.must_from.min(sequence));
        if sequence < next {
            if !gaps.remove((client, stream), sequence, &mut track.unclear) {
                let is_unclear = track.unclear.is_some_and(|(from, until)| (from..until).contains(&sequence));
                return if is_unclear { Arrival::Unclear } else { Arrival::Repeated };
            }
            if sequence >= track.phase_from && !gaps.refused.contains(&(stream, sequence)) {
                track.missing = track.missing.saturating_sub(1);
            }
            return Arrival::Late;
        }
        track.missing += gaps.add((client, stream), next..sequence, &mut track.unclear);
        track.next = Some(sequence + 1);
        Arrival::New
    }

    /// The target refused a publication.
    fn excuse(&mut self, client: u64, stream: u32, sequence: u64, gaps: &Gaps) {
        let Some(track) = self.find(stream) else { return };
        if sequence >= track.phase_from && gaps.contains((client, stream), sequence) {
            track.missing = track.missing.saturating_sub(1);
        }
    }

    /// The number of publications that are sent, not refused, and have not arrived.
    pub fn behind(&self, shared: &Streams, gaps: &Gaps) -> u64 {
        let behind = |track: &Track| {
            let next = track.next.unwrap_or(track.must_from);
            track.missing + gaps.without_refused(track.stream, &(next..shared.sent(track.stream)))
        };
        self.0.iter().map(behind).sum()
    }

    /// Ends a phase. Returns the number of publications that never came.
    pub fn settle(&mut self, client: u64, shared: &Streams, gaps: &mut Gaps) -> u64 {
        let mut lost = 0;
        for track in &mut self.0 {
            let next = track.next.unwrap_or(track.must_from);
            let sent = shared.sent(track.stream).max(next);
            lost += track.missing + gaps.add((client, track.stream), next..sent, &mut track.unclear);
            *track = Track { next: Some(sent), phase_from: sent, missing: 0, ..*track };
        }
        lost
    }
}

impl Gaps {
    /// Remembers missing numbers, if there is space. Returns how many of them were not refused.
    fn add(&mut self, (client, stream): (u64, u32), sequences: Range<u64>, unclear: &mut Option<(u64, u64)>) -> u64 {
        if sequences.is_empty() {
            return 0;
        }
        let missing = self.without_refused(stream, &sequences);
        if !self.remember((client, stream), &sequences) {
            self.unremembered += missing;
            widen(unclear, &sequences);
        }
        missing
    }

    /// Returns whether there was space.
    fn remember(&mut self, (client, stream): (u64, u32), sequences: &Range<u64>) -> bool {
        let has_space = self.ranges.len() < GAPS_MAX;
        if has_space {
            self.ranges.insert((client, stream, sequences.start), sequences.end);
        }
        has_space
    }

    fn without_refused(&self, stream: u32, sequences: &Range<u64>) -> u64 {
        if sequences.is_empty() {
            return 0;
        }
        let all = sequences.end - sequences.start;
        all - self.refused.range((stream, sequences.start)..(stream, sequences.end)).count() as u64
    }

    /// The remembered gap with this number: its first number, and the one after the last.
    fn around(&self, (client, stream): (u64, u32), sequence: u64) -> Option<Range<u64>> {
        let before = self.ranges.range((client, stream, 0)..=(client, stream, sequence)).next_back();
        before.map(|(&(_, _, from), &until)| from..until).filter(|gap| gap.contains(&sequence))
    }

    fn contains(&self, of: (u64, u32), sequence: u64) -> bool {
        self.around(of, sequence).is_some()
    }

    /// Forgets a missing number that has come. Returns whether it was known.
    fn remove(&mut self, of: (u64, u32), sequence: u64, unclear: &mut Option<(u64, u64)>) -> bool {
        let Some(gap) = self.around(of, sequence) else { return false };
        self.ranges.remove(&(of.0, of.1, gap.start));
        for rest in [gap.start..sequence, sequence + 1..gap.end] {
            if !rest.is_empty() && !self.remember(of, &rest) {
                self.unremembered += self.without_refused(of.1, &rest);
                widen(unclear, &rest);
            }
        }
        true
    }

    /// A client is gone. What it missed in this phase counts, and what was on its way does not.
    pub fn forget(&mut self, client: u64, tracks: &Tracks) {
        let of_client: Vec<_> = self
            .ranges
            .range((client, 0, 0)..=(client, u32::MAX, u64::MAX))
            .map(|(key, until)| (*key, *until))
            .collect();
        let mut remembered = 0;
        for ((client, stream, from), until) in of_client {
            self.ranges.remove(&(client, stream, from));
            let Ok(at) = tracks.0.binary_search_by_key(&stream, |track| track.stream) else { continue };
            let from = from.max(tracks.0[at].phase_from);
            if from >= until {
                continue;
            }
            let missing = self.without_refused(stream, &(from..until));
            if self.of_gone.len() < GAPS_MAX {
                remembered += missing;
                self.of_gone.push((stream, from..until));
            } else {
                self.unremembered += missing;
            }
        }
        let missing: u64 = tracks.0.iter().map(|track| track.missing).sum();
        self.lost_by_gone += missing.saturating_sub(remembered);
    }

    /// Reads which publications the target has refused since the last call. They do not have to come.
    pub fn read_refusals<'a>(&mut self, shared: &Streams, clients: impl Iterator<Item = (u64, &'a mut Tracks)>) {
        let refused: Vec<(u32, u64)> = shared.refused_after(self.refusals_read).collect();
        if refused.is_empty() {
            return;
        }
        self.refusals_read += refused.len();
        for (client, tracks) in clients {
            for &(stream, sequence) in &refused {
                tracks.excuse(client, stream, sequence, self);
            }
        }
        self.refused.extend(refused);
    }

    /// Ends a phase, after its tracks.
    pub fn settle(&mut self) -> Settled {
        let gone = std::mem::take(&mut self.of_gone);
        let of_gone: u64 = gone.iter().map(|(stream, sequences)| self.without_refused(*stream, sequences)).sum();
        self.refused.clear();
        let lost_by_gone = of_gone + std::mem::take(&mut self.lost_by_gone);
        Settled { lost_by_gone, unremembered: std::mem::take(&mut self.unremembered) }
    }
}

fn widen(unclear: &mut Option<(u64, u64)>, sequences: &Range<u64>) {
    let (from, until) = unclear.unwrap_or((sequences.start, sequences.end));
    *unclear = Some((from.min(sequences.start), until.max(sequences.end)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(shared: &Streams, stream: u32, count: u64) {
        for _ in 0..count {
            shared.count_sent(stream);
        }
    }

    #[test]
    fn gaps_repetitions_and_a_wrong_order_are_distinguished() {
        let shared = Streams::create(2).unwrap();
        let (mut tracks, mut gaps) = (Tracks::begin([1, 0].into_iter(), &shared), Gaps::default());
        sent(&shared, 0, 7);
        let mut take = |sequence| tracks.take(5, 0, sequence, &mut gaps);
        assert_eq!(take(0), Arrival::New);
        assert_eq!(take(0), Arrival::Repeated);
        assert_eq!(take(4), Arrival::New, "1, 2 and 3 are missing");
        assert_eq!(take(2), Arrival::Late);
        assert_eq!(take(2), Arrival::Repeated);
        assert_eq!(take(1), Arrival::Late);
        assert_eq!(tracks.take(5, 9, 0, &mut gaps), Arrival::Stray);
        assert_eq!(tracks.behind(&shared, &gaps), 3, "3, 5 and 6");
        assert_eq!(tracks.settle(5, &shared, &mut gaps), 3);
        assert_eq!(tracks.take(5, 0, 3, &mut gaps), Arrival::Late);
        assert_eq!(tracks.settle(5, &shared, &mut gaps), 0, "each is counted once");
    }

    #[test]
    fn a_client_must_receive_what_was_sent_after_its_confirmation() {
        let shared = Streams::create(1).unwrap();
        sent(&shared, 0, 4);
        let (mut tracks, mut gaps) = (Tracks::begin([0].into_iter(), &shared), Gaps::default());
        assert_eq!(tracks.behind(&shared, &gaps), 0, "earlier ones may be missing");
        assert_eq!(tracks.take(1, 0, 2, &mut gaps), Arrival::New, "2 was under way");
        assert_eq!(tracks.take(1, 0, 3, &mut gaps), Arrival::New);
        let mut other = Tracks::begin([0].into_iter(), &shared);
        sent(&shared, 0, 2);
        assert_eq!(other.take(2, 0, 5, &mut gaps), Arrival::New);
        assert_eq!(other.settle(2, &shared, &mut gaps), 1, "4 had to come");
    }

    #[test]
    fn what_comes_late_from_an_earlier_phase_hides_no_loss_of_this_one() {
        let shared = Streams::create(1).unwrap();
        let (mut tracks, mut gaps) = (Tracks::begin([0].into_iter(), &shared), Gaps::default());
        sent(&shared, 0, 2);
        assert_eq!(tracks.take(1, 0, 1, &mut gaps), Arrival::New);
        assert_eq!(tracks.settle(1, &shared, &mut gaps), 1, "0 is missing");
        sent(&shared, 0, 2);
        assert_eq!(tracks.take(1, 0, 3, &mut gaps), Arrival::New, "2 is missing");
        assert_eq!(tracks.take(1, 0, 0, &mut gaps), Arrival::Late);
        assert_eq!(tracks.settle(1, &shared, &mut gaps), 1);
    }

    #[test]
    fn a_refused_publication_is_no_loss_and_hides_none() {
        let shared = Streams::create(1).unwrap();
        let (mut tracks, mut gaps) = (Tracks::begin([0].into_iter(), &shared), Gaps::default());
        sent(&shared, 0, 5);
        assert!(shared.refuse(0, 1) && shared.refuse(0, 4));
        for sequence in [0, 1, 3] {
            assert_eq!(tracks.take(1, 0, sequence, &mut gaps), Arrival::New);
        }
        gaps.read_refusals(&shared, [(1, &mut tracks)].into_iter());
        assert_eq!(tracks.behind(&shared, &gaps), 1, "1 came although it was refused, and 2 is missing");
        assert_eq!(tracks.settle(1, &shared, &mut gaps), 1);
        assert_eq!(gaps.settle(), Settled::default());
        sent(&shared, 0, 3);
        assert_eq!(tracks.take(1, 0, 7, &mut gaps), Arrival::New);
        assert!(shared.refuse(0, 5));
        gaps.read_refusals(&shared, [(1, &mut tracks)].into_iter());
        assert_eq!(tracks.settle(1, &shared, &mut gaps), 1, "6 was not refused");
    }

    #[test]
    fn a_client_that_leaves_has_lost_what_it_missed_before() {
        let shared = Streams::create(1).unwrap();
        let (mut tracks, mut gaps) = (Tracks::begin([0].into_iter(), &shared), Gaps::default());
        sent(&shared, 0, 2);
        assert_eq!(tracks.settle(1, &shared, &mut gaps), 2);
        sent(&shared, 0, 5);
        assert_eq!(tracks.take(1, 0, 5, &mut gaps), Arrival::New, "2, 3 and 4 are missing; 6 is on its way");
        gaps.forget(1, &tracks);
        assert!(shared.refuse(0, 3));
        gaps.read_refusals(&shared, std::iter::empty());
        assert_eq!(gaps.settle(), Settled { lost_by_gone: 2, unremembered: 0 });
        assert_eq!(gaps.settle(), Settled::default());
    }

    /// Gaps of other clients, so that there is space for so many more.
    fn filled(space: usize) -> Gaps {
        let mut gaps = Gaps::default();
        for client in 0..GAPS_MAX - space {
            assert!(gaps.remember((1_000 + client as u64, 0), &(0..1)));
        }
        gaps
    }

    #[test]
    fn beyond_the_gaps_that_are_remembered_nothing_counts_as_repeated_or_twice() {
        let shared = Streams::create(1).unwrap();
        let (mut tracks, mut gaps) = (Tracks::begin([0].into_iter(), &shared), filled(1));
        sent(&shared, 0, 7);
        let mut take = |sequence| tracks.take(1, 0, sequence, &mut gaps);
        assert_eq!(take(2), Arrival::New, "0 and 1 are missing, and remembered: the last space");
        assert_eq!(take(5), Arrival::New, "3 and 4 are missing, and not remembered");
        assert_eq!(take(2), Arrival::Repeated, "it is before the first gap that is not remembered");
        assert_eq!(take(1), Arrival::Late);
        assert_eq!(take(4), Arrival::Unclear, "it may be late");
        assert_eq!(take(5), Arrival::Repeated, "it is after the last gap that is not remembered");
        assert_eq!(take(6), Arrival::New);
        assert_eq!(tracks.settle(1, &shared, &mut gaps), 3, "0 for certain; 3 and 4 may have come");
        assert_eq!(gaps.settle(), Settled { lost_by_gone: 0, unremembered: 2 });
    }

    #[test]
    fn a_gap_that_is_split_takes_no_more_space_than_there_is() {
        let shared = Streams::create(1).unwrap();
        let (mut tracks, mut gaps) = (Tracks::begin([0].into_iter(), &shared), filled(1));
        sent(&shared, 0, 6);
        assert_eq!(tracks.take(1, 0, 5, &mut gaps), Arrival::New, "0 to 4 are missing");
        assert_eq!(tracks.take(1, 0, 2, &mut gaps), Arrival::Late);
        assert_eq!(gaps.ranges.len(), GAPS_MAX);
        assert_eq!(tracks.take(1, 0, 1, &mut gaps), Arrival::Late);
        assert_eq!(tracks.take(1, 0, 4, &mut gaps), Arrival::Unclear);
        assert_eq!(tracks.settle(1, &shared, &mut gaps), 3, "0, 3 and 4");
        assert_eq!(gaps.settle(), Settled { lost_by_gone: 0, unremembered: 2 });
    }

    #[test]
    fn a_client_that_leaves_has_also_lost_what_was_not_remembered() {
        let shared = Streams::create(1).unwrap();
        let (mut tracks, mut gaps) = (Tracks::begin([0].into_iter(), &shared), filled(0));
        sent(&shared, 0, 4);
        assert_eq!(tracks.take(1, 0, 3, &mut gaps), Arrival::New, "0, 1 and 2 are missing");
        gaps.forget(1, &tracks);
        assert_eq!(gaps.settle(), Settled { lost_by_gone: 3, unremembered: 3 });
    }
}
