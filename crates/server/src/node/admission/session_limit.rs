//! The number of sessions of a node, and its limit.

use std::sync::atomic::{AtomicU32, Ordering};

/// Counts the sessions of all shards.
#[derive(Debug)]
pub(in crate::node) struct SessionLimit {
    count: AtomicU32,
    /// 0: none.
    max: AtomicU32,
}

impl SessionLimit {
    pub(super) fn new(max: u32) -> Self {
        Self { count: AtomicU32::new(0), max: AtomicU32::new(max) }
    }

    /// Counts a session, if the limit allows one more.
    pub(super) fn admit(&self) -> bool {
        let max = match self.max.load(Ordering::Relaxed) {
            0 => u32::MAX,
            max => max,
        };
        // Shards admit at the same time, so the comparison and the addition are one step.
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count < max).then(|| count + 1)).is_ok()
    }

    /// Counts the end of a session.
    pub(super) fn dismiss(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    pub(in crate::node) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Changes the limit. Sessions above it stay.
    pub(in crate::node) fn set_max(&self, max: u32) {
        self.max.store(max, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_past_the_limit_is_refused() {
        let limit = SessionLimit::new(2);
        assert_eq!([limit.admit(), limit.admit(), limit.admit()], [true, true, false]);
        limit.dismiss();
        assert_eq!([limit.admit(), limit.admit()], [true, false]);
        limit.set_max(1);
        limit.dismiss();
        assert!(!limit.admit(), "the session above the new limit stays");
        limit.set_max(0);
        assert!(limit.admit() && limit.count() == 2, "there is no limit");
    }
}
