//! Limits a kind of warning to one per second.

use std::sync::atomic::{AtomicU64, Ordering};

/// Admits one event per second and counts the others. Intended for a `static`.
pub struct Throttle {
    /// The second of the last admitted event on the caller's clock, plus 1; 0 before the first.
    last_s: AtomicU64,
    suppressed: AtomicU64,
}

impl Throttle {
    /// A throttle without events.
    pub const fn new() -> Self {
        Self { last_s: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }

    /// Whether to log an event at second `now_s`: `Some` with the number of suppressed events since the last logged
    /// one.
    pub fn admit(&self, now_s: u64) -> Option<u64> {
        let this = now_s.saturating_add(1);
        if self.last_s.swap(this, Ordering::Relaxed) == this {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.suppressed.swap(0, Ordering::Relaxed))
    }
}

/// Admits a number of lines per second and counts the others. Intended for a `static`.
pub struct LineRate {
    per_second: u64,
    /// The current second of the caller's clock, and the number of lines admitted in it.
    second: AtomicU64,
    admitted: AtomicU64,
    suppressed: AtomicU64,
}

impl LineRate {
    /// A rate without events.
    pub const fn new(per_second: u64) -> Self {
        let (second, admitted, suppressed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Self { per_second, second, admitted, suppressed }
    }

    /// Whether to write a line at second `now_s`: `Some` with the number of suppressed lines since the last written
    /// one. At the begin of a second, concurrent threads may admit a few more.
    pub fn admit(&self, now_s: u64) -> Option<u64> {
        if self.second.swap(now_s, Ordering::Relaxed) != now_s {
            self.admitted.store(0, Ordering::Relaxed);
        }
        if self.admitted.fetch_add(1, Ordering::Relaxed) >= self.per_second {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.suppressed.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_per_second_are_limited() {
        let rate = LineRate::new(2);
        assert_eq!([0, 0, 0, 0].map(|now_s| rate.admit(now_s)), [Some(0), Some(0), None, None]);
        assert_eq!([1, 1, 1].map(|now_s| rate.admit(now_s)), [Some(2), Some(0), None]);
    }

    #[test]
    fn suppressed_lines_are_counted() {
        let throttle = Throttle::new();
        assert_eq!(throttle.admit(0), Some(0));
        assert_eq!(throttle.admit(0), None);
        assert_eq!(throttle.admit(0), None);
        assert_eq!(throttle.admit(1), Some(2));
        assert_eq!(throttle.admit(1), None);
        assert_eq!(throttle.admit(9), Some(1));
    }
}
