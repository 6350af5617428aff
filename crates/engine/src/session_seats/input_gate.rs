//! The rate limit on a seat's inputs.

/// The rate limit on a seat's inputs, and the last input's number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InputGate {
    /// The number of the last accepted input.
    pub(crate) last_number: u32,
    /// The burst still allowed, in millionths of an input.
    pub(super) credit_millionths: u64,
    pub(super) refilled_us: u64,
}

impl InputGate {
    /// Takes one of `per_second` tokens per second, with a burst of the same number; returns whether there was one.
    pub(crate) fn try_take(&mut self, now_us: u64, per_second: u32) -> bool {
        const ONE: u64 = 1_000_000;
        let credit_max = u64::from(per_second) * ONE;
        let elapsed_us = now_us.saturating_sub(self.refilled_us);
        let refill = elapsed_us.saturating_mul(per_second.into());
        self.credit_millionths = self.credit_millionths.saturating_add(refill).min(credit_max);
        self.refilled_us = now_us;
        let Some(left) = self.credit_millionths.checked_sub(ONE) else { return false };
        self.credit_millionths = left;
        true
    }
}
