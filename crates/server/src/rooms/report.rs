//! What room threads count, and what they tell about their rooms.

use std::sync::Arc;

use super::system::Granted;

/// Upper bounds in microseconds of the buckets of [`TickHistogram`]; the last bucket has none.
pub const TICK_BOUNDS_US: [u64; 16] =
    [10, 25, 50, 100, 200, 300, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 33_000, 100_000, 500_000, 2_000_000];

/// A histogram of durations of ticks, or of how late they begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TickHistogram {
    /// Observations per bucket, not cumulated; one more than there are bounds.
    pub buckets: [u64; TICK_BOUNDS_US.len() + 1],
    /// Sum of all observations.
    pub sum_ns: u64,
}

/// Why rooms end that nobody closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureReason {
    /// The simulation could not be made, or has an impossible map.
    Start,
    /// It panicked.
    Panic,
    /// A tick did not end.
    Stuck,
    /// It took more memory than it may.
    Memory,
    /// Its ticks took longer than their interval, too many in a row.
    Overrun,
    /// It was not opened: rooms of its namespace have cost as many threads as they may.
    Barred,
}

/// What a room thread counts. Everything but the gauges only grows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoomCounters {
    /// Rooms opened.
    pub opened: u64,
    /// Rooms closed by their owner.
    pub closed: u64,
    /// Rooms that failed, in the order of [`FailureReason::ALL`].
    pub failed: [u64; FailureReason::ALL.len()],
    /// Ticks carried out.
    pub ticks: u64,
    /// Ticks passed over because their time was too long ago.
    pub skipped: u64,
    /// Ticks passed over because too much waited for a shard.
    pub held: u64,
    /// Ticks that took longer than their interval.
    pub overruns: u64,
    /// Ticks that began when the next one was due already.
    pub late: u64,
    /// Players let in.
    pub joins: u64,
    /// Players whom the game, or a full room, did not let in.
    pub joins_refused: u64,
    /// Inputs applied, or found to be of somebody who had left.
    pub inputs: u64,
    /// Of these, those that the game could make nothing of.
    pub inputs_senseless: u64,
    /// Events sent to owners.
    pub events: u64,
    /// Publications in other channels.
    pub publications: u64,
    /// Whole worlds sent to shards.
    pub keyframes: u64,
    /// Changes of worlds sent to shards.
    pub updates: u64,
    /// How long ticks took.
    pub tick_duration: TickHistogram,
    /// How late they began.
    pub tick_lateness: TickHistogram,
    /// Time that games' code ran.
    pub busy_ns: u64,
    /// Recordings that ended because the disk was slower than the room, or failed.
    pub recordings_cut: u64,
    /// Times that the thread was given up, and another took its place.
    pub replaced: u64,
    /// Of the threads that were given up, those that came back, and ended.
    pub came_back: u64,
}

/// A room thread, as of one moment.
#[derive(Clone, Debug)]
pub struct ThreadReport {
    /// Its number.
    pub thread: u16,
    /// What the kernel granted it.
    pub granted: Granted,
    /// Rooms that it has.
    pub rooms: u32,
    /// Players in them.
    pub players: u64,
    /// Thousandths of the last second that games' code ran.
    pub load_permille: u16,
    /// What it counted.
    pub counters: RoomCounters,
}

/// A room, as of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomReport {
    /// Its channel.
    pub channel: Arc<str>,
    /// The number of its thread.
    pub thread: u16,
    /// How many players it has.
    pub players: u32,
    /// How many objects.
    pub objects: u32,
    /// Its last tick.
    pub tick: u32,
    /// How long the median of the last ticks took, and the longest of a hundred.
    pub tick_p50_us: u32,
    /// See `tick_p50_us`.
    pub tick_p99_us: u32,
    /// Ticks that began when the next one was due already.
    pub late: u64,
    /// Ticks passed over.
    pub skipped: u64,
    /// Ticks that took longer than their interval.
    pub overruns: u64,
    /// About what its world takes.
    pub world_bytes: u64,
    /// What its world and its game take, as counted.
    pub memory_bytes: u64,
}

impl TickHistogram {
    /// Adds one observation.
    pub fn observe(&mut self, duration_ns: u64) {
        let bucket = TICK_BOUNDS_US.partition_point(|&bound_us| bound_us * 1_000 < duration_ns);
        self.buckets[bucket] += 1;
        self.sum_ns += duration_ns;
    }

    /// How many observations there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Adds all observations of another.
    pub fn add(&mut self, other: &Self) {
        for (own, others) in self.buckets.iter_mut().zip(other.buckets) {
            *own += others;
        }
        self.sum_ns += other.sum_ns;
    }
}

impl FailureReason {
    /// Every reason.
    pub const ALL: [Self; 6] = [Self::Start, Self::Panic, Self::Stuck, Self::Memory, Self::Overrun, Self::Barred];

    /// As metrics and logs write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Panic => "panic",
            Self::Stuck => "stuck",
            Self::Memory => "memory",
            Self::Overrun => "overrun",
            Self::Barred => "barred",
        }
    }
}

/// How long the last ticks of one room took: a histogram of eight buckets for each doubling, of which older ticks fade.
#[derive(Clone, Debug)]
pub(super) struct Recent {
    buckets: [u16; RECENT_BUCKETS],
    count: u32,
}

/// Up to 2^24 µs.
const RECENT_BUCKETS: usize = 24 * 8;
/// When there are so many observations, each is worth half.
const RECENT_COUNT_MAX: u32 = 4_096;

impl Default for Recent {
    fn default() -> Self {
        Self { buckets: [0; RECENT_BUCKETS], count: 0 }
    }
}

impl Recent {
    pub(super) fn observe(&mut self, duration_ns: u64) {
        let us = (duration_ns / 1_000).max(1);
        let doubling = us.ilog2();
        let eighth = (us << 3 >> doubling) & 7;
        let bucket = (doubling as usize * 8 + eighth as usize).min(RECENT_BUCKETS - 1);
        self.buckets[bucket] += 1;
        self.count += 1;
        if self.count >= RECENT_COUNT_MAX {
            self.buckets.iter_mut().for_each(|count| *count /= 2);
            self.count = self.buckets.iter().map(|&count| u32::from(count)).sum();
        }
    }

    /// The upper bound of the bucket in which this share of the observations is reached; 0 without any.
    pub(super) fn quantile_us(&self, share: f64) -> u32 {
        if self.count == 0 {
            return 0;
        }
        let rank = (f64::from(self.count) * share).ceil();
        let mut sum = 0.0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            sum += f64::from(*count);
            if sum >= rank {
                let (doubling, eighth) = (bucket / 8, bucket as u32 % 8);
                return ((9 + eighth) << doubling) >> 3;
            }
        }
        u32::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_is_at_their_bound() {
        let mut histogram = TickHistogram::default();
        for duration_ns in [0, 10_000, 10_001, 300_000, 2_000_000_001] {
            histogram.observe(duration_ns);
        }
        assert_eq!((histogram.buckets[0], histogram.buckets[1], histogram.buckets[5]), (2, 1, 1));
        assert_eq!(histogram.buckets[TICK_BOUNDS_US.len()], 1);
        assert_eq!((histogram.count(), histogram.sum_ns), (5, 2_000_320_002));
    }

    #[test]
    fn quantiles_are_an_eighth_off_at_most() {
        let mut recent = Recent::default();
        for us in 1..=1_000_u64 {
            recent.observe(us * 1_000);
        }
        for (share, us) in [(0.5, 500.0), (0.99, 990.0)] {
            let found = f64::from(recent.quantile_us(share));
            assert!((us..=us * 1.13).contains(&found), "{share}: {found}");
        }
        assert_eq!(Recent::default().quantile_us(0.5), 0);
    }

    #[test]
    fn what_is_long_ago_fades() {
        let mut recent = Recent::default();
        (0..4_000).for_each(|_| recent.observe(5_000_000));
        (0..60_000).for_each(|_| recent.observe(100_000));
        assert!(recent.quantile_us(0.99) < 120, "{}", recent.quantile_us(0.99));
    }
}
