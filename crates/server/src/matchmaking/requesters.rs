//! Rate limit of each user's requests for tickets (`room.match.user_rate_limit`).

use std::{collections::BTreeMap, sync::Arc};

use dunlin_engine::Pace;

/// Maximum number of users with a bucket that is not full. A bucket fills up within a second or little more.
const USERS_MAX: usize = 65_536;

/// The users of a namespace that requested tickets lately.
#[derive(Debug)]
pub(super) struct Requesters {
    pace: Option<Pace>,
    /// When the bucket of each is full again. What is not here is full.
    full_at_ns: BTreeMap<Arc<str>, u64>,
    /// Requests that were refused.
    refused: u64,
}

impl Requesters {
    /// A rate of 0 stands for no limit.
    pub(super) fn new(per_second: u32) -> Self {
        Self { pace: Pace::new(per_second), full_at_ns: BTreeMap::new(), refused: 0 }
    }

    pub(super) const fn refused(&self) -> u64 {
        self.refused
    }

    /// Takes a token from the bucket of the user. Returns `false`, and counts it, if the bucket is empty or the table is full.
    pub(super) fn try_take(&mut self, user: &Arc<str>, now_us: u64) -> bool {
        let Some(pace) = self.pace else { return true };
        let before_ns = self.full_at_ns.get(user).copied();
        let has_room = before_ns.is_some() || self.full_at_ns.len() < USERS_MAX;
        let Some(full_at_ns) = pace.take(before_ns.unwrap_or(0), now_us).filter(|_| has_room) else {
            self.refused += 1;
            return false;
        };
        self.full_at_ns.insert(Arc::clone(user), full_at_ns);
        true
    }

    /// Drops the buckets that are full again.
    pub(super) fn sweep(&mut self, now_us: u64) {
        self.full_at_ns.retain(|_, full_at_ns| *full_at_ns / 1_000 > now_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_more_than_the_rate_is_refused() {
        let mut requesters = Requesters::new(2);
        let (ada, bob) = ("ada".into(), "bob".into());
        assert!(requesters.try_take(&ada, 0) && requesters.try_take(&ada, 0));
        assert!(!requesters.try_take(&ada, 499_999), "the third");
        assert!(requesters.try_take(&bob, 499_999), "another user");
        assert!(requesters.try_take(&ada, 500_000), "half a second later");
        assert!(!requesters.try_take(&ada, 500_000));
        assert_eq!(requesters.refused(), 2);
        let mut unlimited = Requesters::new(0);
        assert!((0..1_000).all(|_| unlimited.try_take(&ada, 0)));
    }

    #[test]
    fn the_table_is_bounded_and_its_memory_returned() {
        let mut requesters = Requesters::new(1);
        let user = |index: usize| Arc::from(index.to_string());
        assert!((0..USERS_MAX).all(|index| requesters.try_take(&user(index), 0)));
        assert!(!requesters.try_take(&user(USERS_MAX), 0), "one user too many");
        requesters.sweep(999_999);
        assert_eq!(requesters.full_at_ns.len(), USERS_MAX);
        requesters.sweep(1_000_000);
        assert!(requesters.full_at_ns.is_empty());
        assert!(requesters.try_take(&user(USERS_MAX), 1_000_000));
    }
}
