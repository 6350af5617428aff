//! A token bucket. The caller provides the time.

/// A rate. The burst size is the number per second, but at least one.
///
/// The caller stores a bucket's state as one number: the time at which the bucket is full again (nanoseconds of the
/// caller's clock; initially 0). So a bucket fits into an atomic, and the caller can drop a bucket that has been idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefillRate {
    /// Time in which one token is refilled.
    interval_ns: u64,
    /// Time in which an empty bucket is refilled.
    all_ns: u64,
}

const SECOND_NS: u64 = 1_000_000_000;

impl RefillRate {
    /// `None` for a rate of 0, which means no limit.
    pub fn new(per_second: u32) -> Option<Self> {
        Self::share(per_second, 1)
    }

    /// One of `shares` equal parts of a rate.
    pub fn share(per_second: u32, shares: u16) -> Option<Self> {
        let shares = u64::from(shares.max(1));
        let interval_ns = (SECOND_NS * shares).div_ceil(u64::from(Some(per_second).filter(|rate| *rate > 0)?));
        let at_once = (u64::from(per_second) / shares).max(1);
        Some(Self { interval_ns, all_ns: interval_ns * at_once })
    }

    /// Takes one token from a bucket that is full at `full_at_ns`. Returns when the bucket is full after that, or
    /// `None` if it is empty.
    pub fn take(self, full_at_ns: u64, now_us: u64) -> Option<u64> {
        let reading_ns = now_us.saturating_mul(1_000);
        let then_ns = full_at_ns.max(reading_ns).saturating_add(self.interval_ns);
        (then_ns - reading_ns <= self.all_ns).then_some(then_ns)
    }

    /// Returns one token to a bucket that is full at `full_at_ns`. Returns when the bucket is full after that.
    pub fn put_back(self, full_at_ns: u64) -> u64 {
        full_at_ns.saturating_sub(self.interval_ns)
    }
}

/// A bucket with its rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    /// `None` for no limit.
    rate: Option<RefillRate>,
    full_at_ns: u64,
}

impl Bucket {
    pub(crate) fn full(rate: Option<RefillRate>) -> Self {
        Self { rate, full_at_ns: 0 }
    }

    /// Changes the rate. Tokens that were taken stay taken.
    pub(crate) fn set_rate(&mut self, rate: Option<RefillRate>) {
        self.rate = rate;
    }

    /// Takes one token, if there is one.
    pub(crate) fn try_take(&mut self, now_us: u64) -> bool {
        let Some(rate) = self.rate else { return true };
        let then_ns = rate.take(self.full_at_ns, now_us);
        self.full_at_ns = then_ns.unwrap_or(self.full_at_ns);
        then_ns.is_some()
    }

    /// Takes one token, which may be the one that comes next.
    pub(crate) fn take_ahead(&mut self, now_us: u64) {
        let Some(rate) = self.rate else { return };
        self.full_at_ns = self.full_at_ns.max(now_us.saturating_mul(1_000)).saturating_add(rate.interval_ns);
    }

    /// Returns a token that was taken.
    pub(crate) fn put_back(&mut self) {
        self.full_at_ns = self.rate.map_or(self.full_at_ns, |rate| rate.put_back(self.full_at_ns));
    }

    /// When there is a token, if none is taken until then.
    pub(crate) fn next_us(&self, now_us: u64) -> u64 {
        let Some(rate) = self.rate else { return now_us };
        let next_ns = self.full_at_ns.saturating_sub(rate.all_ns - rate.interval_ns);
        next_ns.div_ceil(1_000).max(now_us)
    }
}

#[cfg(test)]
mod tests;
