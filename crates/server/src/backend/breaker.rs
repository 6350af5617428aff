//! When a backend that fails is left alone. Times are milliseconds on a clock of the caller's.

/// Lets questions through until too many have failed in a row; then none for a while; then one, and on its success all
/// again.
#[derive(Debug)]
pub(super) struct Breaker {
    /// 0: never left alone.
    failures_max: u32,
    pause_ms: u64,
    failures: u32,
    /// While it is open: when the next one may try.
    open_until_ms: Option<u64>,
    /// One is trying.
    is_probing: bool,
}

impl Breaker {
    pub(super) fn new(failures_max: u32, pause_ms: u64) -> Self {
        Self { failures_max, pause_ms, failures: 0, open_until_ms: None, is_probing: false }
    }

    /// Whether a question may be asked. It has to end with one of the three below.
    pub(super) fn admits(&mut self, now_ms: u64) -> bool {
        match self.open_until_ms {
            None => true,
            Some(until_ms) if now_ms < until_ms || self.is_probing => false,
            Some(_) => {
                self.is_probing = true;
                true
            }
        }
    }

    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
        self.open_until_ms = None;
        self.is_probing = false;
    }

    pub(super) fn failed(&mut self, now_ms: u64) {
        self.is_probing = false;
        self.failures = self.failures.saturating_add(1);
        if self.failures_max > 0 && self.failures >= self.failures_max {
            self.open_until_ms = Some(now_ms.saturating_add(self.pause_ms));
        }
    }

    /// It was not asked after all.
    pub(super) fn withdrawn(&mut self) {
        self.is_probing = false;
    }

    /// Whether nobody, or only one at a time, is let through.
    pub(super) fn is_open(&self, now_ms: u64) -> bool {
        self.is_probing || self.open_until_ms.is_some_and(|until_ms| now_ms < until_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_failures_in_a_row_and_closes_after_a_success() {
        let mut breaker = Breaker::new(3, 100);
        for now_ms in 0..2 {
            assert!(breaker.admits(now_ms));
            breaker.failed(now_ms);
        }
        breaker.succeeded();
        for now_ms in 2..5 {
            assert!(breaker.admits(now_ms) && !breaker.is_open(now_ms));
            breaker.failed(now_ms);
        }
        assert!(breaker.is_open(103) && !breaker.admits(103));
        // One tries, nobody beside it.
        assert!(breaker.admits(104) && !breaker.admits(104) && breaker.is_open(104));
        breaker.failed(110);
        assert!(!breaker.admits(209));
        assert!(breaker.admits(210));
        // Who was not asked after all leaves the try to the next.
        breaker.withdrawn();
        assert!(breaker.admits(211));
        breaker.succeeded();
        assert!(breaker.admits(212) && breaker.admits(212) && !breaker.is_open(212));
    }

    #[test]
    fn one_that_never_opens_lets_all_through() {
        let mut breaker = Breaker::new(0, 100);
        for now_ms in 0..1_000 {
            assert!(breaker.admits(now_ms));
            breaker.failed(now_ms);
        }
    }
}
