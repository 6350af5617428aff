//! The rules of a namespace.

/// How tickets are placed. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchRules {
    /// A room is opened for at least this many users.
    pub players_min: u32,
    /// A room gets at most this many users.
    pub players_max: u32,
    /// How long the oldest ticket of a room waits for a full one; then `players_min` users suffice.
    pub fill_wait_ms: u64,
    /// Maximum difference in skill at the beginning; 0: skill does not matter.
    pub skill_window: u32,
    /// How much the window widens per second.
    pub skill_window_per_s: u32,
    /// Maximum width of the window; 0: none.
    pub skill_window_max: u32,
    /// How long a ticket waits for a room of its region; 0: regions do not matter.
    pub region_wait_ms: u64,
    /// How long a ticket waits for a room.
    pub ticket_timeout_ms: u64,
    /// How long a party waits for the confirmation of its users.
    pub confirm_timeout_ms: u64,
    /// How long places in a room are reserved.
    pub reserve_timeout_ms: u64,
    /// Maximum number of tickets that are unconfirmed or wait, and of ended tickets whose status is kept.
    pub tickets_max: usize,
    /// Maximum number of users of a ticket.
    pub party_max: u32,
    /// Maximum number of rooms that are being opened.
    pub rooms_opening_max: usize,
}

impl Default for MatchRules {
    fn default() -> Self {
        Self {
            players_min: 2,
            players_max: 8,
            fill_wait_ms: 5_000,
            skill_window: 0,
            skill_window_per_s: 10,
            skill_window_max: 0,
            region_wait_ms: 10_000,
            ticket_timeout_ms: 60_000,
            confirm_timeout_ms: 15_000,
            reserve_timeout_ms: 15_000,
            tickets_max: 10_000,
            party_max: 8,
            rooms_opening_max: 64,
        }
    }
}

impl MatchRules {
    /// The skill by which tickets are compared.
    pub(crate) fn compared_skill(&self, skill: i32) -> i64 {
        if self.skill_window == 0 { 0 } else { skill.into() }
    }

    /// The maximum difference in skill for a ticket that has waited this long.
    pub(crate) fn skill_window_after(&self, waited_ms: u64) -> i64 {
        let widened = waited_ms.saturating_mul(self.skill_window_per_s.into()) / 1_000;
        let window = widened.saturating_add(self.skill_window.into());
        let bound = if self.skill_window_max == 0 { u32::MAX } else { self.skill_window_max.max(self.skill_window) };
        // Below 2^32, because of the bound.
        i64::try_from(window.min(bound.into())).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_widens_up_to_its_bound() {
        let rules =
            MatchRules { skill_window: 50, skill_window_per_s: 20, skill_window_max: 100, ..MatchRules::default() };
        let cases = [(0, 50), (999, 69), (1_000, 70), (2_500, 100), (u64::MAX, 100)];
        for (waited_ms, window) in cases {
            assert_eq!(rules.skill_window_after(waited_ms), window, "after {waited_ms} ms");
        }
        let unbounded = MatchRules { skill_window_max: 0, ..rules };
        assert_eq!(unbounded.skill_window_after(100_000), 2_050);
        assert_eq!(unbounded.skill_window_after(u64::MAX), i64::from(u32::MAX));
    }
}
