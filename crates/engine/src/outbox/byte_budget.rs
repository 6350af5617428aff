//! The bytes that a session with a pace may be sent: a token bucket of one second.
//!
//! While it is empty, the latest lane and the frames of rooms are *held*: they are not offered, and newer ones replace them.
//! The reliable lane is always offered, and counts. A frame is written whole, so the credit can become negative.

use crate::pace::BytePace;

const ONE: i64 = 1_000_000;
/// Maximum debt, in seconds of the pace. The reliable lane is written in any case: a reply of a megabyte would otherwise hold the
/// newest values of a slow session for a quarter of an hour.
const DEBT_S_MAX: i64 = 10;
/// The share of a second's bytes that ends a hold. A session at its pace is written ten times a second, not once for each
/// frame.
const HOLD_SHARE: i64 = 10;

/// The bytes that a session may be sent now.
#[derive(Debug)]
pub(super) struct ByteBudget {
    pub(super) pace: BytePace,
    /// In millionths of a byte.
    credit_millionths: i64,
    refilled_us: u64,
    pub(super) is_held: bool,
}

impl ByteBudget {
    pub(super) fn new(pace: BytePace, now_us: u64) -> Self {
        let credit_millionths = i64::from(pace.bytes_per_second()) * ONE;
        Self { pace, credit_millionths, refilled_us: now_us, is_held: false }
    }

    /// Changes the pace. What was spent stays spent: a client that states its pace again and again does not get around it.
    pub(super) fn set_pace(&mut self, pace: BytePace, now_us: u64) {
        self.refill(now_us);
        self.pace = pace;
        let second = i64::from(pace.bytes_per_second()) * ONE;
        self.credit_millionths = self.credit_millionths.clamp(-DEBT_S_MAX * second, second);
    }

    /// Adds what the time since the last call allows. Ends a hold that is over.
    pub(super) fn refill(&mut self, now_us: u64) {
        let per_second = i64::from(self.pace.bytes_per_second());
        let elapsed_us = i64::try_from(now_us.saturating_sub(self.refilled_us)).unwrap_or(i64::MAX);
        let refilled = self.credit_millionths.saturating_add(elapsed_us.saturating_mul(per_second));
        self.credit_millionths = refilled.min(per_second * ONE);
        self.refilled_us = self.refilled_us.max(now_us);
        self.is_held &= self.credit_millionths < per_second * ONE / HOLD_SHARE;
    }

    /// Subtracts bytes that were written; without credit, a hold begins.
    pub(super) fn spend(&mut self, bytes: usize) {
        let spent = i64::try_from(bytes).unwrap_or(i64::MAX).saturating_mul(ONE);
        let second = i64::from(self.pace.bytes_per_second()) * ONE;
        self.credit_millionths = self.credit_millionths.saturating_sub(spent).max(-DEBT_S_MAX * second);
        self.is_held |= self.credit_millionths <= 0;
    }

    /// When a hold ends; `None` without one.
    pub(super) fn held_until_us(&self) -> Option<u64> {
        let per_second = i64::from(self.pace.bytes_per_second());
        let missing = per_second * ONE / HOLD_SHARE - self.credit_millionths;
        let wait_us = u64::try_from(missing.max(0)).unwrap_or(0).div_ceil(per_second.unsigned_abs());
        self.is_held.then(|| self.refilled_us.saturating_add(wait_us))
    }

    /// Bytes after which a write includes no further frame.
    pub(super) fn bytes_left(&self) -> usize {
        usize::try_from(self.credit_millionths / ONE).unwrap_or(0).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> ByteBudget {
        ByteBudget::new(BytePace::from_bytes_per_second(10_000.0).expect("in its range"), 5)
    }

    #[test]
    fn a_hold_begins_without_credit_and_ends_with_a_tenth_of_a_second() {
        let mut budget = budget();
        budget.spend(9_999);
        assert_eq!(budget.held_until_us(), None);
        budget.spend(1);
        assert_eq!(budget.held_until_us(), Some(5 + 100_000));
        budget.refill(5 + 99_999);
        assert!(budget.is_held);
        budget.refill(5 + 100_000);
        assert!(!budget.is_held);
        assert_eq!(budget.bytes_left(), 1_000);
    }

    #[test]
    fn debt_is_paid_and_credit_is_limited_to_a_second() {
        let mut budget = budget();
        budget.spend(20_000);
        assert_eq!(budget.held_until_us(), Some(5 + 1_100_000));
        budget.refill(5 + 1_100_000);
        assert!(!budget.is_held);
        budget.refill(u64::MAX);
        assert_eq!(budget.bytes_left(), 10_000);
    }

    #[test]
    fn a_hold_ends_ten_seconds_after_any_write() {
        let mut budget = budget();
        budget.spend(110_000);
        assert_eq!(budget.held_until_us(), Some(5 + 10_100_000), "at the limit");
        budget.spend(1);
        assert_eq!(budget.held_until_us(), Some(5 + 10_100_000), "one past it");
        for _ in 0..3 {
            budget.spend(usize::MAX);
        }
        assert_eq!(budget.held_until_us(), Some(5 + 10_100_000));
    }

    #[test]
    fn a_pace_that_is_stated_again_gives_no_bytes() {
        let pace = |bytes| BytePace::from_bytes_per_second(bytes).expect("in its range");
        let mut budget = budget();
        budget.spend(15_000);
        budget.set_pace(pace(10_000.0), 5);
        assert_eq!(budget.held_until_us(), Some(5 + 600_000));
        budget.set_pace(pace(20_000.0), 5);
        assert_eq!(budget.held_until_us(), Some(5 + 350_000), "a higher pace pays sooner");
        let mut full = ByteBudget::new(pace(20_000.0), 5);
        full.set_pace(pace(1_000.0), 5);
        assert_eq!((full.bytes_left(), full.is_held), (1_000, false), "at most a second of the new pace");
    }
}
