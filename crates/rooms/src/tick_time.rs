//! The time of a tick as clients learn it.

/// How fast the clock of a room runs, in thousandths of real time. An overloaded room runs slower: its ticks are further
/// apart, and each advances the world by as much as ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClockRate(u16);

/// When a tick was, for clients. The world does not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TickTime {
    /// Unix time in microseconds.
    pub unix_us: u64,
    /// The rate of the room's clock in the interval before this tick. It is set when the tick before has run.
    pub rate: ClockRate,
}

impl ClockRate {
    /// Real time.
    pub const FULL: Self = Self(1_000);

    /// A rate of 1 to 1,000 thousandths; `None` for other numbers.
    pub fn from_permille(permille: u32) -> Option<Self> {
        u16::try_from(permille).ok().filter(|permille| (1..=Self::FULL.0).contains(permille)).map(Self)
    }

    /// The rate in thousandths.
    pub fn permille(self) -> u16 {
        self.0
    }

    /// Whether the clock runs in real time.
    pub fn is_full(self) -> bool {
        self == Self::FULL
    }
}

impl Default for ClockRate {
    fn default() -> Self {
        Self::FULL
    }
}

/// A time at full rate.
impl From<u64> for TickTime {
    fn from(unix_us: u64) -> Self {
        Self { unix_us, rate: ClockRate::FULL }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_above_zero_and_at_most_real_time() {
        for (permille, rate) in [(0, None), (1, Some(1)), (999, Some(999)), (1_000, Some(1_000)), (1_001, None)] {
            assert_eq!(ClockRate::from_permille(permille).map(ClockRate::permille), rate, "{permille}");
        }
        // Not cut to 16 bits.
        assert_eq!(ClockRate::from_permille(65_536 + 1_000), None);
        assert!(ClockRate::default().is_full() && TickTime::from(7).rate.is_full());
    }
}
