//! The monotonic and the Unix clock, the same for all shards of a process.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dunlin_engine::Now;

/// A clock with an origin that all shards share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// Reads both clocks. Called once or twice per turn.
    pub(super) fn now(self) -> Now {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Now { mono_us: as_u64(self.origin.elapsed().as_micros()), unix_ms: as_u64(unix.as_millis()) }
    }
}

fn as_u64(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
