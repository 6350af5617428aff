//! At most one warning of a kind each second, however often its cause comes.

use std::sync::atomic::{AtomicU64, Ordering};

/// Lets one event of a kind through each second and counts the others. Made to be a `static`.
pub struct Throttle {
    /// The second (of the caller's clock, plus 1) in which the last event was let through; 0 before the first.
    last_s: AtomicU64,
    suppressed: AtomicU64,
}

impl Throttle {
    /// One that has seen nothing yet.
    pub const fn new() -> Self {
        Self { last_s: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }

    /// Whether an event at second `now_s` is to be told: `Some` with the number of those that were not told since the
    /// last one.
    pub fn admit(&self, now_s: u64) -> Option<u64> {
        let this = now_s.saturating_add(1);
        if self.last_s.swap(this, Ordering::Relaxed) == this {
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
    fn one_a_second_and_the_rest_counted() {
        let throttle = Throttle::new();
        assert_eq!(throttle.admit(0), Some(0));
        assert_eq!(throttle.admit(0), None);
        assert_eq!(throttle.admit(0), None);
        assert_eq!(throttle.admit(1), Some(2));
        assert_eq!(throttle.admit(1), None);
        assert_eq!(throttle.admit(9), Some(1));
    }
}
