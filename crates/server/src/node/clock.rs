//! The monotonic and the Unix clock, the same for all shards of a process.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dunlin_engine::Now;

/// A clock with an origin that all shards share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    origin: Instant,
    /// The Unix time of the origin.
    origin_unix_us: u64,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { origin: Instant::now(), origin_unix_us: as_u64(unix_time().as_micros()) }
    }

    /// The Unix time of a monotonic time; `u64::MAX` stays. The same time always has the same result, even if the system's
    /// clock was set since.
    pub(super) fn unix_us_of(self, mono_us: u64) -> u64 {
        mono_us.saturating_add(self.origin_unix_us)
    }

    /// The reverse of [`Clock::unix_us_of`]; 0 for a time before the origin.
    pub(super) fn mono_us_of(self, unix_us: u64) -> u64 {
        if unix_us == u64::MAX { u64::MAX } else { unix_us.saturating_sub(self.origin_unix_us) }
    }

    /// Reads both clocks. Called once or twice per turn.
    pub(super) fn now(self) -> Now {
        Now { mono_us: as_u64(self.origin.elapsed().as_micros()), unix_ms: as_u64(unix_time().as_millis()) }
    }
}

fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
}

fn as_u64(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
