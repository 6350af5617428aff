//! The circuit breaker of a backend. Times are milliseconds on the caller's clock.

/// Maximum number of stored failures.
const FAILURES_MAX: u32 = 10_000;

/// The origin of a request. Equal numbers mean the same session, user or address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProxyCaller {
    pub(super) session: u64,
    /// `None` before the session has a user, and for anonymous users.
    pub(super) user: Option<u64>,
    /// `None` if it is unknown.
    pub(super) address: Option<u64>,
}

/// Admits requests until too many in a row have failed. Then it admits none for a while, and then a single probe; if
/// the probe succeeds, it admits all requests again.
///
/// A client can make a backend fail, for example with requests that take too long. So at most half of the failures that
/// open the breaker may come from one session, one user, or one address.
#[derive(Debug)]
pub(super) struct Breaker {
    /// 0: the breaker never opens.
    failures_max: u32,
    pause_ms: u64,
    /// The counted consecutive failures.
    failures: Vec<ProxyCaller>,
    /// If the breaker is open: the time of the next probe.
    open_until_ms: Option<u64>,
    /// A probe is in progress.
    is_probing: bool,
    /// The origin of the last failed probe.
    failed_probe: Option<ProxyCaller>,
}

impl ProxyCaller {
    /// Whether two requests may come from the same client.
    fn shares(self, other: Self) -> bool {
        let same = |one: Option<u64>, other: Option<u64>| one.is_some() && one == other;
        self.session == other.session || same(self.user, other.user) || same(self.address, other.address)
    }
}

impl Breaker {
    pub(super) fn new(failures_max: u32, pause_ms: u64) -> Self {
        Self {
            failures_max: failures_max.min(FAILURES_MAX),
            pause_ms,
            failures: Vec::new(),
            open_until_ms: None,
            is_probing: false,
            failed_probe: None,
        }
    }

    /// Whether a request may be sent. If so, one of the three methods below must be called when it has ended.
    pub(super) fn try_admit(&mut self, now_ms: u64, questioner: ProxyCaller) -> bool {
        let Some(until_ms) = self.open_until_ms else { return true };
        if now_ms < until_ms || self.is_probing {
            return false;
        }
        // The client of a failed probe must wait for others, so that it cannot keep the breaker open alone.
        let goes_last = self.failed_probe.is_some_and(|failed| failed.shares(questioner));
        if goes_last && now_ms < until_ms.saturating_add(self.pause_ms) {
            return false;
        }
        self.is_probing = true;
        true
    }

    pub(super) fn succeeded(&mut self) {
        self.failures.clear();
        self.open_until_ms = None;
        self.is_probing = false;
        self.failed_probe = None;
    }

    pub(super) fn failed(&mut self, now_ms: u64, questioner: ProxyCaller) {
        if std::mem::take(&mut self.is_probing) {
            self.failed_probe = Some(questioner);
            self.open(now_ms);
        } else if self.failures_max > 0 && self.open_until_ms.is_none() && self.counts(questioner) {
            self.failures.push(questioner);
            // A single failure always comes from one client.
            if self.failures.len() >= self.failures_max.max(2) as usize {
                self.open(now_ms);
            }
        }
    }

    /// Records that the request was not sent.
    pub(super) fn withdrawn(&mut self) {
        self.is_probing = false;
    }

    /// Whether the breaker admits no request, or only a probe.
    pub(super) fn is_open(&self, now_ms: u64) -> bool {
        self.is_probing || self.open_until_ms.is_some_and(|until_ms| now_ms < until_ms)
    }

    fn open(&mut self, now_ms: u64) {
        self.open_until_ms = Some(now_ms.saturating_add(self.pause_ms));
    }

    /// Whether neither the session nor its user or address has used up its share of the failures.
    fn counts(&self, questioner: ProxyCaller) -> bool {
        let share = (self.failures_max / 2).max(1) as usize;
        let (mut of_session, mut of_user, mut of_address) = (0, 0, 0);
        for failure in &self.failures {
            of_session += usize::from(failure.session == questioner.session);
            of_user += usize::from(failure.user.is_some() && failure.user == questioner.user);
            of_address += usize::from(failure.address.is_some() && failure.address == questioner.address);
        }
        of_session < share && of_user < share && of_address < share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session of its own user at its own address.
    fn client(number: u64) -> ProxyCaller {
        ProxyCaller { session: number, user: Some(number), address: Some(number) }
    }

    #[test]
    fn it_opens_after_failures_in_a_row_and_closes_after_a_success() {
        let mut breaker = Breaker::new(3, 100);
        for now_ms in 0..2 {
            assert!(breaker.try_admit(now_ms, client(now_ms)));
            breaker.failed(now_ms, client(now_ms));
        }
        breaker.succeeded();
        for now_ms in 2..5 {
            assert!(breaker.try_admit(now_ms, client(now_ms)) && !breaker.is_open(now_ms));
            breaker.failed(now_ms, client(now_ms));
        }
        assert!(breaker.is_open(103) && !breaker.try_admit(103, client(0)));
        // One probe is admitted, and no other request.
        assert!(breaker.try_admit(104, client(0)) && !breaker.try_admit(104, client(1)) && breaker.is_open(104));
        breaker.failed(110, client(0));
        assert!(!breaker.try_admit(209, client(1)));
        assert!(breaker.try_admit(210, client(1)));
        // After a probe that was not sent, the next request becomes the probe.
        breaker.withdrawn();
        assert!(breaker.try_admit(211, client(2)));
        breaker.succeeded();
        assert!(breaker.try_admit(212, client(0)) && breaker.try_admit(212, client(0)) && !breaker.is_open(212));
    }

    #[test]
    fn a_breaker_with_a_limit_of_0_never_opens() {
        let mut breaker = Breaker::new(0, 100);
        for now_ms in 0..1_000 {
            assert!(breaker.try_admit(now_ms, client(now_ms)));
            breaker.failed(now_ms, client(now_ms));
        }
    }

    #[test]
    fn one_session_user_or_address_alone_cannot_open_it() {
        let alone: [fn(u64) -> ProxyCaller; 4] = [
            |number| ProxyCaller { session: 7, ..client(number) },
            |number| ProxyCaller { user: Some(7), ..client(number) },
            |number| ProxyCaller { address: Some(7), ..client(number) },
            |_| ProxyCaller { session: 7, user: None, address: None },
        ];
        for limit in [1, 2, 3, 20] {
            for questioner in alone {
                let mut breaker = Breaker::new(limit, 100);
                for number in 0..1_000 {
                    breaker.failed(0, questioner(number));
                }
                assert!(!breaker.is_open(0), "{limit} {:?}", questioner(1));
                // One client can cause at most half of the failures; other clients must cause the rest.
                let others = limit.max(2) - (limit / 2).max(1);
                for number in 0..u64::from(others) {
                    assert!(!breaker.is_open(0), "{limit} {number}");
                    breaker.failed(0, client(10_000 + number));
                }
                assert!(breaker.is_open(0), "{limit}");
            }
        }
    }

    #[test]
    fn after_a_failed_probe_other_clients_probe_first() {
        let mut breaker = Breaker::new(2, 100);
        breaker.failed(0, client(1));
        breaker.failed(0, client(2));
        assert!(breaker.try_admit(100, client(1)));
        breaker.failed(100, client(1));
        assert!(!breaker.try_admit(200, client(1)) && !breaker.try_admit(299, client(1)));
        assert!(breaker.try_admit(299, client(3)));
        breaker.withdrawn();
        assert!(breaker.try_admit(300, client(1)), "a withdrawn probe passes the turn on");
    }

    #[test]
    fn stored_failures_are_bounded() {
        let mut breaker = Breaker::new(u32::MAX, 100);
        for number in 0..20_000 {
            breaker.failed(0, client(number));
        }
        assert_eq!(breaker.failures.len(), FAILURES_MAX as usize);
        assert!(breaker.is_open(0));
    }
}
