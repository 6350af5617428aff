//! Counters of room threads and reports about their rooms.

use std::sync::Arc;

use dunlin_engine::{
    host::{CallCounts, TokensRefused},
    room::{NotJoined, RoomKey},
};
use dunlin_protocol::ErrorCode;
use dunlin_rooms::{ClockRate, Refusal};

use super::system::Granted;
use crate::otlp::Exponential;

/// Upper bounds of the buckets of [`TickHistogram`] in microseconds; the last bucket has none.
pub const TICK_BOUNDS_US: [u64; 16] =
    [10, 25, 50, 100, 200, 300, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 33_000, 100_000, 500_000, 2_000_000];

/// A histogram of the duration or the lateness of ticks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TickHistogram {
    /// Observations per bucket, not cumulative; one more than there are bounds.
    pub buckets: [u64; TICK_BOUNDS_US.len() + 1],
    /// Sum of all observations.
    pub sum_ns: u64,
}

/// Why a room failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureReason {
    /// The simulation could not be created, or has an invalid map.
    Start,
    /// The simulation panicked.
    Panic,
    /// A tick did not end.
    Stuck,
    /// The room exceeded its memory limit.
    Memory,
    /// Too many ticks in a row took longer than their interval.
    Overrun,
    /// Not opened: rooms of its namespace have blocked too many threads.
    Barred,
    /// Not opened: all rooms together exceed the node's memory limit.
    TotalMemory,
    /// Not opened: its checkpoint or its log is unusable. Both are kept.
    Restore,
    /// Its inputs could not be logged. Its checkpoint and its log are kept.
    Storage,
    /// The simulation refused the parameters with which it was opened.
    Params,
    /// Not opened: it was to continue, because its host has died or its players have waited for it, and nothing of it is stored.
    NoState,
}

/// Counters of a room thread. All except the gauges are monotonic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoomCounters {
    /// Rooms opened.
    pub opened: u64,
    /// Rooms closed by their owner.
    pub closed: u64,
    /// Rooms that failed, in the order of [`FailureReason::ALL`].
    pub failed: [u64; FailureReason::ALL.len()],
    /// Ticks that ran.
    pub ticks: u64,
    /// Ticks skipped because they were too late.
    pub skipped: u64,
    /// Ticks skipped because too many messages waited for a shard.
    pub held: u64,
    /// Ticks skipped because too many ticks waited for the log.
    pub held_for_log: u64,
    /// Ticks that took longer than their interval.
    pub overruns: u64,
    /// Ticks that began after the next tick was due.
    pub late: u64,
    /// Players who joined.
    pub joins: u64,
    /// Joins refused by the game or because the room was full.
    pub joins_refused: u64,
    /// Joins refused because all free places were reserved for other users.
    pub joins_reserved: u64,
    /// Joins that resumed a player in the room; included in `joins`.
    pub seats_resumed: u64,
    /// Players that left because their clients did not return in time.
    pub seats_expired: u64,
    /// Players that left because their user had too many players without a client.
    pub seats_displaced: u64,
    /// Seat tokens of joins that had no effect.
    pub tokens_refused: TokensRefused,
    /// Seats that another connection took over, or whose player the game removed.
    pub unseated: u64,
    /// Outcomes of games' calls to the backend.
    pub calls: CallCounts,
    /// Inputs that were applied or whose player had left.
    pub inputs: u64,
    /// Inputs that the game rejected; included in `inputs`.
    pub undecodable_inputs: u64,
    /// Values that were outside of the ranges of their fields.
    pub values_limited: u64,
    /// Events sent to owners.
    pub events: u64,
    /// Publications in other channels.
    pub publications: u64,
    /// Keyframes sent to shards.
    pub keyframes: u64,
    /// Tick updates sent to shards.
    pub updates: u64,
    /// Duration of ticks.
    pub tick_duration: TickHistogram,
    /// The same, for a collector.
    pub tick_duration_fine: FineHistogram,
    /// Lateness of ticks.
    pub tick_lateness: TickHistogram,
    /// Time in which game code ran.
    pub busy_ns: u64,
    /// Number of times that the thread was abandoned and replaced.
    pub replaced: u64,
    /// Number of abandoned threads that returned and ended.
    pub came_back: u64,
}

/// The state of a room thread at one moment.
#[derive(Clone, Debug)]
pub struct ThreadReport {
    /// The index of the thread.
    pub thread: u16,
    /// The scheduling settings that the kernel granted.
    pub granted: Granted,
    /// Number of rooms.
    pub rooms: u32,
    /// Number of rooms whose world is being created.
    pub opening: u32,
    /// Number of players with a client.
    pub players: u64,
    /// Number of spectators.
    pub spectators: u64,
    /// Permille of the last second in which game code ran.
    pub load_permille: u16,
    /// The counters.
    pub counters: RoomCounters,
}

/// Counters of the room builder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuilderReport {
    /// Time spent creating and dropping rooms.
    pub busy_ns: u64,
    /// Number of times that the thread was abandoned.
    pub replaced: u64,
    /// Number of abandoned threads that returned and ended.
    pub came_back: u64,
}

/// The state of a room at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomReport {
    /// Its channel.
    pub channel: Arc<str>,
    /// Its namespace; empty for channels without one.
    pub namespace: Arc<str>,
    /// The index of its thread.
    pub thread: u16,
    /// Number of players with a client.
    pub players: u32,
    /// Number of players without a client, which are not in `players`.
    pub players_away: u32,
    /// Number of spectators.
    pub spectators: u32,
    /// Number of players that have joined since this process opened the room. Returning players are not counted again.
    pub players_joined: u64,
    /// Maximum number of players.
    pub players_max: u32,
    /// Reservations of places: the id of each, and its number of users who have not joined.
    pub reservations: Box<[(u64, u32)]>,
    /// Whether new players and spectators are refused.
    pub is_locked: bool,
    /// Whether lists for players and matchmaking exclude the room.
    pub is_unlisted: bool,
    /// Whether its world has been created. Before that, its listing is unknown.
    pub is_made: bool,
    /// Its unique number on this node.
    pub key: RoomKey,
    /// The seed of its random numbers; 0 until its world has been created.
    pub seed: u64,
    /// Ticks per second.
    pub ticks_per_second: u32,
    /// The metadata as a JSON document; empty if there is none.
    pub metadata: Arc<str>,
    /// The parameters of its simulation as a JSON document; empty until its world has been created.
    pub params: Arc<str>,
    /// Number of objects.
    pub objects: u32,
    /// The last tick.
    pub tick: u32,
    /// Median duration of recent ticks, weighted by [`Recent`].
    pub tick_p50_us: u32,
    /// 99th percentile of the duration of recent ticks.
    pub tick_p99_us: u32,
    /// Ticks that began after the next tick was due.
    pub late: u64,
    /// Ticks that were skipped.
    pub skipped: u64,
    /// Ticks that took longer than their interval.
    pub overruns: u64,
    /// The rate of its clock.
    pub rate: ClockRate,
    /// Estimated size of the world.
    pub world_bytes: u64,
    /// Memory of the world and the simulation, as counted.
    pub memory_bytes: u64,
}

impl RoomReport {
    /// Whether lobbies list it, and matchmaking places users in it.
    pub const fn is_public(&self) -> bool {
        self.is_made && !self.is_locked && !self.is_unlisted
    }

    /// Number of players, including those who are away, because they keep their places.
    pub const fn places_taken(&self) -> u32 {
        self.players.saturating_add(self.players_away)
    }
}

impl TickHistogram {
    /// Adds one observation.
    pub fn observe(&mut self, duration_ns: u64) {
        let bucket = TICK_BOUNDS_US.partition_point(|&bound_us| bound_us * 1_000 < duration_ns);
        self.buckets[bucket] += 1;
        self.sum_ns += duration_ns;
    }

    /// The number of observations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Adds all observations of another histogram.
    pub fn add(&mut self, other: &Self) {
        for (own, others) in self.buckets.iter_mut().zip(other.buckets) {
            *own += others;
        }
        self.sum_ns += other.sum_ns;
    }
}

/// Buckets per power of two of [`FineHistogram`] as a power of two: eight, so that a bucket is at most 9 % wide.
const FINE_SCALE: i32 = 3;

/// The first bucket of [`FineHistogram`] begins at 2^-20 s, about a microsecond; shorter durations are in it as well.
const FINE_OFFSET: i32 = -20 << FINE_SCALE;

/// The last bucket ends at 16 s; longer durations are in it as well.
const FINE_BUCKETS: usize = 24 << FINE_SCALE;

/// A histogram of the duration of ticks whose bounds grow by a factor: the exponential histogram of OpenTelemetry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FineHistogram {
    buckets: Box<[u64; FINE_BUCKETS]>,
    sum_ns: u64,
}

impl Default for FineHistogram {
    fn default() -> Self {
        Self { buckets: Box::new([0; FINE_BUCKETS]), sum_ns: 0 }
    }
}

impl FineHistogram {
    /// Adds one observation.
    pub fn observe(&mut self, duration_ns: u64) {
        let powers = (duration_ns.max(1) as f64 / 1e9).log2();
        // A bucket has its upper bound, and not its lower one.
        let index = (powers * f64::from(1 << FINE_SCALE)).ceil() as i32 - 1;
        let bucket = usize::try_from(index - FINE_OFFSET).unwrap_or(0).min(FINE_BUCKETS - 1);
        self.buckets[bucket] += 1;
        self.sum_ns += duration_ns;
    }

    /// The buckets between the first and the last one with observations.
    pub fn exponential(&self) -> Exponential {
        let is_used = |count: &u64| *count > 0;
        let first = self.buckets.iter().position(is_used).unwrap_or(0);
        let end = self.buckets.iter().rposition(is_used).map_or(first, |last| last + 1);
        Exponential {
            scale: FINE_SCALE,
            offset: FINE_OFFSET + i32::try_from(first).unwrap_or(0),
            counts: self.buckets[first..end].to_vec(),
            zero_count: 0,
            sum: self.sum_ns as f64 / 1e9,
        }
    }
}

impl FailureReason {
    /// All reasons.
    pub const ALL: [Self; 11] = [
        Self::Start,
        Self::Panic,
        Self::Stuck,
        Self::Memory,
        Self::Overrun,
        Self::Barred,
        Self::TotalMemory,
        Self::Restore,
        Self::Storage,
        Self::Params,
        Self::NoState,
    ];

    /// The reason as a metric label and in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Panic => "panic",
            Self::Stuck => "stuck",
            Self::Memory => "memory",
            Self::Overrun => "overrun",
            Self::Barred => "barred",
            Self::TotalMemory => "total_memory",
            Self::Restore => "restore",
            Self::Storage => "storage",
            Self::Params => "params",
            Self::NoState => "no_state",
        }
    }

    /// The reply to a join whose room is not created for this reason: a refusal, so that SDKs do not retry. `None` if
    /// they may retry.
    pub(super) fn refusal(self, detail: &str) -> Option<Refusal> {
        match self {
            Self::Params => Some(Refusal { code: 400, message: detail.into() }),
            Self::Barred => Some(Refusal { code: 400, message: "rooms of this kind have failed too often".into() }),
            Self::TotalMemory => {
                let error = ErrorCode::LimitExceeded;
                Some(Refusal { code: error.code() as u16, message: error.message().into() })
            }
            Self::Restore => Some(Refusal { code: 400, message: "the room cannot be restored".into() }),
            // Without state, the joins of other clients may open a new room.
            Self::NoState | Self::Start | Self::Panic | Self::Stuck | Self::Memory | Self::Overrun | Self::Storage => {
                None
            }
        }
    }

    /// The reply to a request to open the room. That nothing is left to continue is final for who asked for that; other joins may
    /// open a new room.
    pub(super) fn refusal_of_opening(self, detail: &str) -> Option<Refusal> {
        match self {
            Self::NoState => Some(Refusal { code: 400, message: "nothing of the room is stored".into() }),
            _ => self.refusal(detail),
        }
    }

    /// Whether a room that ends for this reason may continue after a restart.
    pub const fn keeps_checkpoint(self) -> bool {
        matches!(self, Self::Restore | Self::Storage)
    }

    /// Why joins that the room has not answered fail. The storage may be back in a moment, or another node may have the room
    /// then; what cannot be restored stays so. Without state, clients may open a new room.
    pub(super) const fn not_joined(self) -> NotJoined {
        match self {
            Self::Storage | Self::NoState => NotJoined::Unavailable,
            _ => NotJoined::Gone,
        }
    }
}

/// A histogram of the duration of one room's ticks: eight buckets per power of two. Older ticks lose weight.
#[derive(Clone, Debug)]
pub(super) struct Recent {
    buckets: [u16; RECENT_BUCKETS],
    count: u32,
}

/// Durations up to 2^24 µs.
const RECENT_BUCKETS: usize = 24 * 8;
/// Number of observations after which the weight of all is halved.
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

    /// The upper bound of the bucket that contains this quantile; 0 without observations.
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
    fn values_at_a_bucket_bound_are_inside() {
        let mut histogram = TickHistogram::default();
        for duration_ns in [0, 10_000, 10_001, 300_000, 2_000_000_001] {
            histogram.observe(duration_ns);
        }
        assert_eq!((histogram.buckets[0], histogram.buckets[1], histogram.buckets[5]), (2, 1, 1));
        assert_eq!(histogram.buckets[TICK_BOUNDS_US.len()], 1);
        assert_eq!((histogram.count(), histogram.sum_ns), (5, 2_000_320_002));
    }

    #[test]
    fn fine_buckets_are_those_of_opentelemetry() {
        let mut histogram = FineHistogram::default();
        assert!(histogram.exponential().counts.is_empty());
        // 2^-10 s is the upper bound of a bucket; a nanosecond more is in the next one.
        for duration_ns in [976_562, 976_563, 1_953_125] {
            histogram.observe(duration_ns);
        }
        let Exponential { scale, offset, counts, zero_count, sum } = histogram.exponential();
        assert_eq!((scale, offset, zero_count), (3, -81, 0));
        assert_eq!(counts, [1, 1, 0, 0, 0, 0, 0, 0, 1]);
        assert!((sum - 0.003_906_25).abs() < 1e-9, "{sum}");
        for duration_ns in [0, u64::MAX / 8] {
            histogram.observe(duration_ns);
        }
        let wide = histogram.exponential();
        assert_eq!((wide.offset, wide.counts.len(), wide.counts.iter().sum::<u64>()), (-160, 192, 5));
    }

    #[test]
    fn the_error_of_quantiles_is_at_most_an_eighth() {
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
    fn old_observations_lose_weight() {
        let mut recent = Recent::default();
        (0..4_000).for_each(|_| recent.observe(5_000_000));
        (0..60_000).for_each(|_| recent.observe(100_000));
        assert!(recent.quantile_us(0.99) < 120, "{}", recent.quantile_us(0.99));
    }
}
