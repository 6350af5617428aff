//! The bound on wrong passwords, per address and of all addresses together. An address that has signed in has a bound of its
//! own only, so strangers cannot keep it from signing in again.

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Instant,
};

use crate::node::SourceNetwork;

/// Maximum number of addresses whose wrong passwords are counted separately.
pub const SOURCES_MAX: usize = 1_024;

/// Maximum number of addresses that are known because somebody has signed in from them.
pub const KNOWN_MAX: usize = 256;

/// How many times as many wrong passwords all addresses together may send.
const ALL_SOURCES_FACTOR: u32 = 10;

/// Judges passwords at a limited rate.
pub struct Attempts {
    per_minute: AtomicU32,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    all: Wrong,
    by_source: HashMap<SourceNetwork, Wrong>,
    /// When somebody has last signed in from an address.
    known: HashMap<SourceNetwork, Instant>,
}

/// Recent wrong passwords: the number decreases evenly, so that the limit is reached again after a minute.
#[derive(Clone, Copy, Debug, Default)]
struct Wrong {
    number: f64,
    at: Option<Instant>,
}

/// The password was not judged, because too many have been wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

impl Attempts {
    /// No wrong passwords yet. `per_minute` is the limit of an address.
    pub fn new(per_minute: u32) -> Self {
        Self { per_minute: per_minute.into(), counts: Mutex::default() }
    }

    /// Changes the limit of an address. What was counted stays.
    pub fn set_limit(&self, per_minute: u32) {
        self.per_minute.store(per_minute, Ordering::Relaxed);
    }

    /// Judges a password, unless the address, or all addresses if it is not known, have sent too many wrong ones. A wrong one,
    /// for which `judge` returns `None`, counts. The lock is held meanwhile, so that concurrent attempts cannot exceed the
    /// limit.
    ///
    /// # Errors
    /// [`TooMany`]
    pub fn judge<T>(
        &self,
        source: Option<SourceNetwork>,
        now: Instant,
        judge: impl FnOnce() -> Option<T>,
    ) -> Result<Option<T>, TooMany> {
        let per_minute = self.per_minute.load(Ordering::Relaxed);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let of_all = per_minute.saturating_mul(ALL_SOURCES_FACTOR);
        let own = source.and_then(|source| counts.by_source.get(&source)).copied().unwrap_or_default();
        let is_known = source.is_some_and(|source| counts.known.contains_key(&source));
        if own.is_full(per_minute, now) || (!is_known && counts.all.is_full(of_all, now)) {
            return Err(TooMany);
        }
        let judged = judge();
        match (source, judged.is_some()) {
            (Some(source), true) => counts.know(source, now),
            (None, true) => {}
            (_, false) => {
                if !is_known {
                    counts.all = counts.all.one_more(of_all, now);
                }
                if let Some(source) = source {
                    counts.make_space(per_minute, now);
                    counts.by_source.insert(source, own.one_more(per_minute, now));
                }
            }
        }
        Ok(judged)
    }

    /// Notes that a request with a valid sign-in has come from an address.
    pub fn know(&self, source: SourceNetwork, now: Instant) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).know(source, now);
    }
}

impl Counts {
    fn know(&mut self, source: SourceNetwork, now: Instant) {
        if self.known.len() >= KNOWN_MAX
            && !self.known.contains_key(&source)
            && let Some(oldest) = self.known.iter().min_by_key(|(_, at)| **at).map(|(source, _)| *source)
        {
            self.known.remove(&oldest);
        }
        self.known.insert(source, now);
    }

    /// Forgets addresses whose limit is whole again, and otherwise the one that has been quiet for longest.
    fn make_space(&mut self, per_minute: u32, now: Instant) {
        if self.by_source.len() < SOURCES_MAX {
            return;
        }
        self.by_source.retain(|_, wrong| wrong.number_at(per_minute, now) > 0.0);
        if self.by_source.len() >= SOURCES_MAX
            && let Some(oldest) = self.by_source.iter().min_by_key(|(_, wrong)| wrong.at).map(|(source, _)| *source)
        {
            self.by_source.remove(&oldest);
        }
    }
}

impl Wrong {
    fn number_at(self, per_minute: u32, now: Instant) -> f64 {
        let passed_s = self.at.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        (self.number - passed_s * f64::from(per_minute) / 60.0).max(0.0)
    }

    fn is_full(self, per_minute: u32, now: Instant) -> bool {
        self.number_at(per_minute, now) + 1.0 > f64::from(per_minute)
    }

    fn one_more(self, per_minute: u32, now: Instant) -> Self {
        Self { number: self.number_at(per_minute, now) + 1.0, at: Some(now) }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{IpAddr, Ipv4Addr},
        time::Duration,
    };

    use super::*;

    fn network(number: u32) -> SourceNetwork {
        SourceNetwork::of(IpAddr::V4(Ipv4Addr::from_bits(number)))
    }

    fn wrong() -> Option<()> {
        None
    }

    #[test]
    fn wrong_passwords_of_an_address_are_bounded_and_come_back_evenly() {
        let (attempts, now) = (Attempts::new(3), Instant::now());
        for _ in 0..3 {
            assert_eq!(attempts.judge(Some(network(1)), now, wrong), Ok(None));
        }
        assert_eq!(attempts.judge(Some(network(1)), now, || Some(())), Err(TooMany), "also the right one");
        assert_eq!(attempts.judge(Some(network(2)), now, || Some(())), Ok(Some(())), "another address");
        let later = now + Duration::from_secs(19);
        assert_eq!(attempts.judge(Some(network(1)), later, wrong), Err(TooMany));
        let later = now + Duration::from_secs(20);
        assert_eq!(attempts.judge(Some(network(1)), later, wrong), Ok(None));
        assert_eq!(attempts.judge(Some(network(1)), later, wrong), Err(TooMany));
    }

    #[test]
    fn a_new_limit_counts_what_was_wrong_before() {
        let (attempts, now) = (Attempts::new(3), Instant::now());
        for _ in 0..3 {
            assert_eq!(attempts.judge(Some(network(1)), now, wrong), Ok(None));
        }
        attempts.set_limit(4);
        assert_eq!(attempts.judge(Some(network(1)), now, wrong), Ok(None));
        assert_eq!(attempts.judge(Some(network(1)), now, wrong), Err(TooMany));
    }

    #[test]
    fn right_passwords_do_not_count() {
        let (attempts, now) = (Attempts::new(1), Instant::now());
        for _ in 0..100 {
            assert_eq!(attempts.judge(Some(network(1)), now, || Some(7)), Ok(Some(7)));
        }
    }

    #[test]
    fn all_addresses_together_are_bounded() {
        let (attempts, now) = (Attempts::new(2), Instant::now());
        for number in 0..20 {
            assert_eq!(attempts.judge(Some(network(number)), now, wrong), Ok(None), "{number}");
        }
        assert_eq!(attempts.judge(Some(network(20)), now, wrong), Err(TooMany));
        assert_eq!(attempts.judge(None, now, wrong), Err(TooMany));
    }

    #[test]
    fn strangers_do_not_keep_out_an_address_that_has_signed_in() {
        let (attempts, now) = (Attempts::new(2), Instant::now());
        let (known, returned) = (network(1_000), network(1_001));
        assert_eq!(attempts.judge(Some(known), now, || Some(())), Ok(Some(())));
        attempts.know(returned, now);
        for number in 0..20 {
            assert_eq!(attempts.judge(Some(network(number)), now, wrong), Ok(None), "{number}");
        }
        assert_eq!(attempts.judge(Some(network(20)), now, || Some(())), Err(TooMany), "a stranger");
        for known in [known, returned] {
            assert_eq!(attempts.judge(Some(known), now, || Some(())), Ok(Some(())));
            // Its own bound remains.
            assert_eq!(attempts.judge(Some(known), now, wrong), Ok(None));
            assert_eq!(attempts.judge(Some(known), now, wrong), Ok(None));
            assert_eq!(attempts.judge(Some(known), now, || Some(())), Err(TooMany));
        }
    }

    #[test]
    fn wrong_passwords_of_a_known_address_do_not_keep_out_strangers() {
        let (attempts, now) = (Attempts::new(2), Instant::now());
        for number in 0..20 {
            attempts.know(network(number), now);
            assert_eq!(attempts.judge(Some(network(number)), now, wrong), Ok(None));
        }
        assert_eq!(attempts.judge(Some(network(20)), now, || Some(())), Ok(Some(())));
    }

    #[test]
    fn known_addresses_are_bounded_and_the_one_that_signed_in_first_is_forgotten() {
        let (attempts, now) = (Attempts::new(1), Instant::now());
        for number in 0..=KNOWN_MAX as u32 {
            attempts.know(network(number), now + Duration::from_micros(u64::from(number)));
        }
        attempts.know(network(1), now + Duration::from_secs(1));
        let counts = attempts.counts.lock().unwrap();
        assert_eq!(counts.known.len(), KNOWN_MAX);
        assert!(!counts.known.contains_key(&network(0)) && counts.known.contains_key(&network(1)));
    }

    #[test]
    fn addresses_are_remembered_up_to_a_bound_the_quietest_is_forgotten() {
        let (attempts, now) = (Attempts::new(1_000), Instant::now());
        for number in 0..=SOURCES_MAX as u32 {
            let at = now + Duration::from_micros(u64::from(number));
            assert_eq!(attempts.judge(Some(network(number)), at, wrong), Ok(None));
        }
        let counts = attempts.counts.lock().unwrap();
        assert_eq!(counts.by_source.len(), SOURCES_MAX);
        assert!(!counts.by_source.contains_key(&network(0)) && counts.by_source.contains_key(&network(1)));
    }
}
