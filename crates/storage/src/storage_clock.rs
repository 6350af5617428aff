//! The time of a storage. It never decreases, even across a restart, and does not follow jumps of the wall clock.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use crate::options::ClockSource;

/// A monotonic clock of Unix time in milliseconds.
#[derive(Debug)]
pub(crate) struct StorageClock {
    source: ClockSource,
    began: Instant,
    began_ms: AtomicU64,
    /// The highest time that was read, or the time of the last run.
    newest_ms: AtomicU64,
    /// It does not go on.
    is_stopped: bool,
}

impl StorageClock {
    pub(crate) fn new(source: ClockSource) -> Self {
        let (began_ms, newest_ms) = (AtomicU64::new(0), AtomicU64::new(0));
        let clock = Self { source, began: Instant::now(), began_ms, newest_ms, is_stopped: false };
        let now_ms = match source {
            ClockSource::System => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |elapsed| u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)),
            ClockSource::Given(now_ms) => now_ms(),
        };
        clock.began_ms.store(now_ms, Ordering::Relaxed);
        clock
    }

    /// A clock that stands at a time.
    pub(crate) fn stopped_at(now_ms: u64) -> Self {
        let newest_ms = AtomicU64::new(now_ms);
        Self { newest_ms, is_stopped: true, ..Self::new(ClockSource::Given(|| 0)) }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        if self.is_stopped {
            return self.newest_ms.load(Ordering::Relaxed);
        }
        let now_ms = match self.source {
            ClockSource::System => {
                let elapsed_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
                self.began_ms.load(Ordering::Relaxed).saturating_add(elapsed_ms)
            }
            ClockSource::Given(now_ms) => now_ms(),
        };
        self.newest_ms.fetch_max(now_ms, Ordering::Relaxed).max(now_ms)
    }

    /// Continues from the last time of an earlier run, if that is later. Returns the time by which the clock is ahead
    /// of it.
    pub(crate) fn resume(&self, last_ms: u64) -> u64 {
        let ahead_ms = self.began_ms.load(Ordering::Relaxed).saturating_sub(last_ms);
        self.began_ms.fetch_max(last_ms, Ordering::Relaxed);
        self.newest_ms.fetch_max(last_ms, Ordering::Relaxed);
        ahead_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_clock_does_not_go_on() {
        assert_eq!(StorageClock::stopped_at(7).now_ms(), 7);
    }

    #[test]
    fn time_never_goes_below_the_last_run() {
        let clock = StorageClock::new(ClockSource::Given(|| 1_000));
        assert_eq!(clock.now_ms(), 1_000);
        assert_eq!(clock.resume(400), 600);
        assert_eq!(clock.resume(5_000), 0);
        assert_eq!(clock.now_ms(), 5_000);
    }
}
