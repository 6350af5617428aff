//! How much the skill of users who play together may differ. The window widens while a ticket waits.

/// The maximum difference in skill, and how it grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkillWindow {
    /// The difference at the beginning; 0: skill does not matter.
    pub width: u32,
    /// How much it widens per second of waiting.
    pub growth_per_s: u32,
    /// Maximum width; 0: none.
    pub width_max: u32,
}

impl Default for SkillWindow {
    fn default() -> Self {
        Self { width: 0, growth_per_s: 10, width_max: 0 }
    }
}

impl SkillWindow {
    pub(crate) const fn is_on(self) -> bool {
        self.width > 0
    }

    /// The skill by which tickets are compared.
    pub(crate) fn compared(self, skill: i32) -> i64 {
        if self.is_on() { skill.into() } else { 0 }
    }

    /// The maximum difference in skill for a ticket that has waited this long.
    pub(crate) fn width_after(self, waited_ms: u64) -> i64 {
        let widened = waited_ms.saturating_mul(self.growth_per_s.into()) / 1_000;
        let width = widened.saturating_add(self.width.into());
        let bound = if self.width_max == 0 { u32::MAX } else { self.width_max.max(self.width) };
        // Below 2^32, because of the bound.
        i64::try_from(width.min(bound.into())).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_widens_up_to_its_bound() {
        let window = SkillWindow { width: 50, growth_per_s: 20, width_max: 100 };
        let cases = [(0, 50), (999, 69), (1_000, 70), (2_500, 100), (u64::MAX, 100)];
        for (waited_ms, width) in cases {
            assert_eq!(window.width_after(waited_ms), width, "after {waited_ms} ms");
        }
        let unbounded = SkillWindow { width_max: 0, ..window };
        assert_eq!(unbounded.width_after(100_000), 2_050);
        assert_eq!(unbounded.width_after(u64::MAX), i64::from(u32::MAX));
    }
}
