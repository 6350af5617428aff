//! The time that a shard is busy, and its share over a fixed window, independent of how often it is read.

use super::{NetCounters, TurnShares};

/// Minimum length of a window. A long turn extends it.
const WINDOW_US: u64 = 5_000_000;

/// The turns of a shard and their time.
#[derive(Debug)]
pub(super) struct TurnTimes {
    turns: u64,
    busy_us: u64,
    idle_us: u64,
    /// When the last turn began or ended.
    last_us: u64,
    window: BusyWindow,
    longest: LongestTurns,
}

/// The longest turn of this window and of the one before, so that a new window does not forget a long turn at once.
#[derive(Clone, Copy, Debug, Default)]
struct LongestTurns {
    began_us: u64,
    this_us: u64,
    before_us: u64,
}

/// The busy share of a shard; see the module's documentation.
#[derive(Debug)]
struct BusyWindow {
    began_us: u64,
    /// The shard's busy time at the begin of the window.
    busy_before_us: u64,
    /// The share in the last complete window, in parts per million.
    last_ppm: Option<u32>,
}

impl TurnTimes {
    pub(super) fn new(now_us: u64) -> Self {
        Self {
            turns: 0,
            busy_us: 0,
            idle_us: 0,
            last_us: now_us,
            window: BusyWindow::new(now_us),
            longest: LongestTurns { began_us: now_us, ..LongestTurns::default() },
        }
    }

    pub(super) fn turn_began(&mut self, now_us: u64) {
        self.turns += 1;
        self.idle_us += now_us - self.last_us;
        self.last_us = now_us;
    }

    pub(super) fn turn_ended(&mut self, now_us: u64) {
        self.busy_us += now_us - self.last_us;
        self.longest.turn_ended(now_us, now_us - self.last_us);
        self.last_us = now_us;
        self.window.turn_ended(now_us, self.busy_us);
    }

    /// The turns of the last window and of the current one, without the current turn.
    pub(super) fn shares(&self, now_us: u64) -> TurnShares {
        TurnShares { busy_ppm: self.window.busy_ppm(now_us, self.busy_us), longest_us: self.longest.longest_us(now_us) }
    }

    pub(super) fn count_into(&self, net: &mut NetCounters, now_us: u64) {
        (net.turns, net.busy_us, net.idle_us) = (self.turns, self.busy_us, self.idle_us);
        net.busy_ppm = self.window.busy_ppm(now_us, self.busy_us);
    }
}

impl LongestTurns {
    fn turn_ended(&mut self, now_us: u64, turn_us: u64) {
        if now_us.saturating_sub(self.began_us) >= WINDOW_US {
            *self = Self { began_us: now_us, this_us: turn_us, before_us: self.this_us };
        }
        self.this_us = self.this_us.max(turn_us);
    }

    fn longest_us(self, now_us: u64) -> u64 {
        // No turn has ended for longer than a window, so there were none.
        let is_over = now_us.saturating_sub(self.began_us) >= 2 * WINDOW_US;
        if is_over { 0 } else { self.this_us.max(self.before_us) }
    }
}

impl BusyWindow {
    fn new(now_us: u64) -> Self {
        Self { began_us: now_us, busy_before_us: 0, last_ppm: None }
    }

    /// Records the end of a turn. `busy_us` is the shard's busy time since its start.
    fn turn_ended(&mut self, now_us: u64, busy_us: u64) {
        if now_us.saturating_sub(self.began_us) >= WINDOW_US {
            self.last_ppm = Some(self.current_ppm(now_us, busy_us));
            (self.began_us, self.busy_before_us) = (now_us, busy_us);
        }
    }

    /// The share in the last complete window, in parts per million. Before the first one is complete: the share since
    /// the start.
    fn busy_ppm(&self, now_us: u64, busy_us: u64) -> u32 {
        // If no turn has ended since the window's end, the shard was idle.
        let is_over = now_us.saturating_sub(self.began_us) >= WINDOW_US;
        self.last_ppm.filter(|_| !is_over).unwrap_or_else(|| self.current_ppm(now_us, busy_us))
    }

    fn current_ppm(&self, now_us: u64, busy_us: u64) -> u32 {
        let whole_us = now_us.saturating_sub(self.began_us);
        let busy_us = busy_us.saturating_sub(self.busy_before_us).min(whole_us);
        busy_us.saturating_mul(1_000_000).checked_div(whole_us).map_or(0, |ppm| ppm as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_reads_return_the_share_of_the_last_window() {
        let mut window = BusyWindow::new(0);
        assert_eq!(window.busy_ppm(0, 0), 0);
        window.turn_ended(1_000_000, 250_000);
        assert_eq!(window.busy_ppm(1_000_000, 250_000), 250_000, "since the start");
        window.turn_ended(WINDOW_US, WINDOW_US / 2);
        for _ in 0..10 {
            assert_eq!(window.busy_ppm(WINDOW_US + 1, WINDOW_US / 2), 500_000);
        }
        window.turn_ended(2 * WINDOW_US - 1, WINDOW_US / 2);
        assert_eq!(window.busy_ppm(2 * WINDOW_US - 1, WINDOW_US / 2), 500_000, "the next window is not over");
        window.turn_ended(2 * WINDOW_US, WINDOW_US / 2 + WINDOW_US / 10);
        assert_eq!(window.busy_ppm(2 * WINDOW_US, WINDOW_US / 2 + WINDOW_US / 10), 100_000);
    }

    #[test]
    fn a_long_turn_is_known_for_a_window_and_not_for_three() {
        let mut times = TurnTimes::new(0);
        let mut turn = |began_us: u64, ended_us: u64| {
            times.turn_began(began_us);
            times.turn_ended(ended_us);
            times.shares(ended_us).longest_us
        };
        assert_eq!(turn(0, 100), 100);
        assert_eq!(turn(1_000, 201_000), 200_000);
        assert_eq!(turn(WINDOW_US - 1, WINDOW_US), 200_000, "the next window begins");
        assert_eq!(turn(2 * WINDOW_US - 2, 2 * WINDOW_US - 1), 200_000);
        assert_eq!(turn(2 * WINDOW_US, 2 * WINDOW_US + 7), 7);
        assert_eq!(times.shares(4 * WINDOW_US).longest_us, 7);
        assert_eq!(times.shares(4 * WINDOW_US + 7).longest_us, 0, "no turn has ended for two windows");
    }

    #[test]
    fn a_shard_that_waits_longer_than_a_window_is_idle() {
        let mut window = BusyWindow::new(0);
        window.turn_ended(WINDOW_US, WINDOW_US);
        assert_eq!(window.busy_ppm(101 * WINDOW_US, WINDOW_US), 0);
    }
}
