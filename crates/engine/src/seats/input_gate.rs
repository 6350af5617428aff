//! Limits how fast a seat's inputs come.

/// How fast a seat's inputs came, and which was the last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InputGate {
    /// The last number that was taken.
    pub(crate) last_number: u32,
    /// What may still come at once, in millionths of an input.
    pub(super) credit_millionths: u64,
    pub(super) refilled_us: u64,
}

impl InputGate {
    /// Takes one of `per_second` inputs a second, with as many at once; returns whether there was one to take.
    pub(crate) fn try_take(&mut self, now_us: u64, per_second: u32) -> bool {
        const ONE: u64 = 1_000_000;
        let most = u64::from(per_second) * ONE;
        let elapsed_us = now_us.saturating_sub(self.refilled_us);
        let refill = elapsed_us.saturating_mul(per_second.into());
        self.credit_millionths = self.credit_millionths.saturating_add(refill).min(most);
        self.refilled_us = now_us;
        let Some(left) = self.credit_millionths.checked_sub(ONE) else { return false };
        self.credit_millionths = left;
        true
    }
}
