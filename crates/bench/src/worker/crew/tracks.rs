//! What one client must receive of each stream: gaps, repetitions and wrong order.

use std::collections::BTreeSet;

use crate::scenario::streams::Streams;

/// Missing numbers that one worker remembers, to tell a late publication from a repeated one.
const MISSING_MAX: usize = 100_000;

/// The state of one stream at one client.
#[derive(Debug, Clone, Copy)]
pub struct Track {
    pub stream: u32,
    /// The next expected number; none before the first publication.
    next: Option<u64>,
    /// Publications from this number on were sent after the subscription was confirmed.
    must_from: u64,
    /// Publications of this phase that are missing before a later one.
    gaps: u64,
    /// Refused publications of the stream at the end of the last phase.
    refused: u64,
}

/// The tracks of one client, sorted by stream.
#[derive(Debug, Default)]
pub struct Tracks(Vec<Track>);

/// The meaning of a received publication.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It is the first time, after this number of missing publications.
    New {
        missing: u64,
    },
    /// It was missing, and comes after a later one.
    Late,
    Repeated,
    /// The client has no subscription to its channel.
    Stray,
}

/// The publications that are missing at all clients of a worker: client, stream and number.
#[derive(Debug, Default)]
pub struct Missing(BTreeSet<(u64, u32, u64)>);

impl Tracks {
    /// The subscriptions of a client were confirmed: from now on, nothing of these streams may be missing.
    pub fn begin(streams: impl Iterator<Item = u32>, shared: &Streams) -> Self {
        let track = |stream| Track {
            stream,
            next: None,
            must_from: shared.sent(stream),
            gaps: 0,
            refused: shared.refused(stream),
        };
        let mut tracks: Vec<Track> = streams.map(track).collect();
        tracks.sort_unstable_by_key(|track| track.stream);
        Tracks(tracks)
    }

    /// Records a publication.
    pub fn take(&mut self, client: u64, stream: u32, sequence: u64, missing: &mut Missing) -> Arrival {
        let Ok(at) = self.0.binary_search_by_key(&stream, |track| track.stream) else { return Arrival::Stray };
        let track = &mut self.0[at];
        // The first publication may be older than the confirmation, which the client reads later.
        let next = track.next.unwrap_or(track.must_from.min(sequence));
        if sequence < next {
            if !missing.0.remove(&(client, stream, sequence)) {
                return Arrival::Repeated;
            }
            track.gaps = track.gaps.saturating_sub(1);
            return Arrival::Late;
        }
        missing.add(client, stream, next..sequence);
        track.next = Some(sequence + 1);
        track.gaps += sequence - next;
        Arrival::New { missing: sequence - next }
    }

    /// The number of publications that are sent, not refused, and have not arrived.
    pub fn behind(&self, shared: &Streams) -> u64 {
        let behind = |track: &Track| {
            let at_end = shared.sent(track.stream).saturating_sub(track.next.unwrap_or(track.must_from));
            (track.gaps + at_end).saturating_sub(shared.refused(track.stream) - track.refused)
        };
        self.0.iter().map(behind).sum()
    }

    /// Ends a phase. Returns the number of publications at the end that never came, and the number of refused ones,
    /// which leave gaps and are no losses.
    pub fn settle(&mut self, client: u64, shared: &Streams, missing: &mut Missing) -> (u64, u64) {
        let (mut never_came, mut refused) = (0, 0);
        for track in &mut self.0 {
            let (sent, refused_now) = (shared.sent(track.stream), shared.refused(track.stream));
            let next = track.next.unwrap_or(track.must_from);
            never_came += sent.saturating_sub(next);
            missing.add(client, track.stream, next..sent);
            refused += refused_now - track.refused;
            *track = Track { next: Some(sent.max(next)), refused: refused_now, gaps: 0, ..*track };
        }
        (never_came, refused)
    }
}

impl Missing {
    fn add(&mut self, client: u64, stream: u32, sequences: std::ops::Range<u64>) {
        let space = MISSING_MAX.saturating_sub(self.0.len());
        self.0.extend(sequences.take(space).map(|sequence| (client, stream, sequence)));
    }

    /// Forgets a client that is gone.
    pub fn forget(&mut self, client: u64) {
        if !self.0.is_empty() {
            self.0.retain(|(of, _, _)| *of != client);
        }
    }
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
        let (mut tracks, mut missing) = (Tracks::begin([1, 0].into_iter(), &shared), Missing::default());
        sent(&shared, 0, 7);
        let mut take = |sequence| tracks.take(5, 0, sequence, &mut missing);
        assert_eq!(take(0), Arrival::New { missing: 0 });
        assert_eq!(take(0), Arrival::Repeated);
        assert_eq!(take(3), Arrival::New { missing: 2 }, "1 and 2 are missing");
        assert_eq!(take(1), Arrival::Late);
        assert_eq!(take(1), Arrival::Repeated);
        assert_eq!(tracks.take(5, 9, 0, &mut missing), Arrival::Stray);
        assert_eq!(tracks.behind(&shared), 4, "2, 4, 5 and 6");
        assert_eq!(tracks.settle(5, &shared, &mut missing), (3, 0));
        assert_eq!(tracks.take(5, 0, 2, &mut missing), Arrival::Late);
        assert_eq!(tracks.settle(5, &shared, &mut missing), (0, 0), "each is counted once");
    }

    #[test]
    fn a_client_must_receive_what_was_sent_after_its_confirmation() {
        let shared = Streams::create(1).unwrap();
        sent(&shared, 0, 4);
        let (mut tracks, mut missing) = (Tracks::begin([0].into_iter(), &shared), Missing::default());
        assert_eq!(tracks.behind(&shared), 0, "earlier ones may be missing");
        assert_eq!(tracks.take(1, 0, 2, &mut missing), Arrival::New { missing: 0 }, "2 was under way");
        assert_eq!(tracks.take(1, 0, 3, &mut missing), Arrival::New { missing: 0 });
        let mut other = Tracks::begin([0].into_iter(), &shared);
        sent(&shared, 0, 2);
        assert_eq!(other.take(2, 0, 5, &mut missing), Arrival::New { missing: 1 }, "4 had to come");
    }

    #[test]
    fn refused_publications_are_no_losses() {
        let shared = Streams::create(1).unwrap();
        let (mut tracks, mut missing) = (Tracks::begin([0].into_iter(), &shared), Missing::default());
        sent(&shared, 0, 3);
        shared.count_refused(0);
        assert_eq!(tracks.take(1, 0, 0, &mut missing), Arrival::New { missing: 0 });
        assert_eq!(tracks.behind(&shared), 1);
        assert_eq!(tracks.settle(1, &shared, &mut missing), (2, 1));
    }
}
