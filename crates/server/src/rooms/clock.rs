//! The clock of a room. With `overrun: dilate` it runs slower while the room is overloaded: ticks are further apart instead
//! of being skipped. The rate is no input of the simulation, which advances by the same step in each tick.

use dunlin_config::OverrunPolicy;
use dunlin_rooms::ClockRate;

/// A room alone on its thread gets this share of its interval for a tick, in millionths. The rest is for messages, and for
/// ticks that take longer than usual.
pub(super) const SHARE_MAX_PPM: u32 = 900_000;

/// The rate falls when ticks take more than this many thousandths of their share: 19 twentieths of the interval of a room
/// alone on its thread. In between it stays as it is, so that noise does not change it. It does not stay up to the whole
/// interval: with messages and wake-ups, which are not measured, each tick would then begin later than the one before.
const OVERLOAD_PERMILLE: u64 = 1_055;

/// Real time in which the rate rises by a thousandth: from a tenth to real time in 9 s.
const RAISE_STEP_NS: u64 = 10_000_000;

/// Maximum number of thousandths by which the rate rises in one tick, so that it rises evenly in rooms with few ticks.
const RAISE_STEPS_MAX: u64 = 50;

/// The rate of a room's clock, and the load that it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    /// The time that a tick advances the world by.
    step_ns: u64,
    policy: OverrunPolicy,
    rate: ClockRate,
    load: TickLoad,
    /// Real time since the rate last rose or could not rise.
    unraised_ns: u64,
}

/// The share of its thread that a room needs, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Demand {
    /// At full rate.
    pub(super) full_ppm: u32,
    /// At the lowest rate of its clock.
    pub(super) least_ppm: u32,
}

/// The smoothed duration of a room's ticks. It rises quickly and falls slowly. A single long tick does not change it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TickLoad {
    last_ns: [u64; 3],
    smoothed_ns: u64,
}

impl Clock {
    /// A clock at full rate of a room whose ticks advance the world by `step_ns`.
    pub(super) fn new(step_ns: u64, policy: OverrunPolicy) -> Self {
        Self { step_ns, policy, rate: ClockRate::FULL, load: TickLoad::default(), unraised_ns: 0 }
    }

    /// The current rate.
    pub(super) fn rate(&self) -> ClockRate {
        self.rate
    }

    /// Real time between two ticks.
    pub(super) fn interval_ns(&self) -> u64 {
        self.step_ns * 1_000 / u64::from(self.rate.permille())
    }

    /// Whether the clock can become slower.
    pub(super) fn can_slow(&self) -> bool {
        matches!(self.policy, OverrunPolicy::Dilate { rate_min } if self.rate > rate_min)
    }

    /// The share of its thread that the room needs.
    pub(super) fn demand(&self) -> Demand {
        let ppm = self.load.smoothed_ns.saturating_mul(1_000_000) / self.step_ns.max(1);
        let full_ppm = u32::try_from(ppm).unwrap_or(u32::MAX);
        let least_ppm = match self.policy {
            OverrunPolicy::Skip => full_ppm,
            OverrunPolicy::Dilate { rate_min } => {
                let least = u64::from(full_ppm) * u64::from(rate_min.permille()) / 1_000;
                u32::try_from(least).unwrap_or(u32::MAX)
            }
        };
        Demand { full_ppm, least_ppm }
    }

    /// Processes the duration of a tick. `share_ppm` is the share of its thread that the room may use. Returns whether the
    /// rate has fallen.
    pub(super) fn observe(&mut self, took_ns: u64, share_ppm: u32) -> bool {
        self.load.observe(took_ns);
        let OverrunPolicy::Dilate { rate_min } = self.policy else { return false };
        let rate = u64::from(self.rate.permille());
        // Millionths of the time times thousandths of the rate.
        let fitting = self.step_ns.saturating_mul(share_ppm.into()) / 1_000 / self.load.smoothed_ns.max(1);
        if rate > fitting.saturating_mul(OVERLOAD_PERMILLE) / 1_000 {
            self.unraised_ns = 0;
            return self.set(fitting.max(rate_min.permille().into()));
        }
        // Short ticks in a row do not save up a step upwards.
        self.unraised_ns = if rate < fitting.min(1_000) { self.unraised_ns + self.interval_ns() } else { 0 };
        let steps = (self.unraised_ns / RAISE_STEP_NS).min(RAISE_STEPS_MAX);
        self.unraised_ns %= RAISE_STEP_NS;
        self.set((rate + steps).min(fitting.max(rate)));
        false
    }

    /// Returns whether the new rate is lower than the previous one.
    fn set(&mut self, permille: u64) -> bool {
        let before = self.rate;
        let permille = u32::try_from(permille).unwrap_or(u32::MAX);
        self.rate = ClockRate::from_permille(permille.max(1)).unwrap_or(ClockRate::FULL);
        self.rate < before
    }
}

impl TickLoad {
    fn observe(&mut self, took_ns: u64) {
        let [_, second, third] = self.last_ns;
        self.last_ns = [second, third, took_ns];
        let mut sorted = self.last_ns;
        sorted.sort_unstable();
        let median_ns = sorted[1];
        self.smoothed_ns = if median_ns > self.smoothed_ns {
            self.smoothed_ns + (median_ns - self.smoothed_ns).div_ceil(2)
        } else {
            self.smoothed_ns - (self.smoothed_ns - median_ns).div_ceil(8)
        };
    }
}

/// The share of a thread that each of its rooms may use, in millionths. Rooms that need less get all they need, and the others
/// share the rest equally. Rooms that need more even at their lowest rate take that, and the others get less, but never less than
/// an equal part of the thread: rooms that need no more keep their rate.
pub(super) fn share_ppm(demands: &[Demand]) -> u32 {
    let taken_ppm = |share_ppm: u32| -> u64 {
        let taken = |demand: &Demand| u64::from(demand.full_ppm.min(demand.least_ppm.max(share_ppm)));
        demands.iter().map(taken).sum()
    };
    let rooms = u32::try_from(demands.len()).unwrap_or(u32::MAX).max(1);
    // The largest share with which all fit. They take no less of a larger one.
    let (mut share_ppm, mut above_ppm) = ((SHARE_MAX_PPM / rooms).max(1), SHARE_MAX_PPM + 1);
    while above_ppm - share_ppm > 1 {
        let middle_ppm = share_ppm.midpoint(above_ppm);
        if taken_ppm(middle_ppm) <= SHARE_MAX_PPM.into() {
            share_ppm = middle_ppm;
        } else {
            above_ppm = middle_ppm;
        }
    }
    share_ppm
}

#[cfg(test)]
mod tests;
