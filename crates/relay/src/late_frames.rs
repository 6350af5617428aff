//! How late the frames of another node are.

use std::mem;

/// A frame that took this much longer than others has lost its use: an input or a tick of that age is not to be played.
/// It is less than the silence after which a node counts as gone.
pub(crate) const LATE_US_MAX: i128 = 2_000_000;

/// The clocks of two nodes drift, so the shortest time of a window of this length is forgotten after the next one.
const WINDOW_US: u64 = 60_000_000;

/// The shortest time that frames of a node took lately. The clocks of two nodes begin at different moments, so only the
/// difference between two times says something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LateFrameDetector {
    window_ends_us: u64,
    shortest_us: Option<i128>,
    before_us: Option<i128>,
}

impl LateFrameDetector {
    pub(crate) const fn new(now_us: u64) -> Self {
        Self { window_ends_us: now_us.saturating_add(WINDOW_US), shortest_us: None, before_us: None }
    }

    /// Notes a frame that was sent at `sent_us` by the clock of its node. Returns whether it is late.
    pub(crate) fn is_late(&mut self, now_us: u64, sent_us: u64) -> bool {
        let took_us = i128::from(now_us) - i128::from(sent_us);
        if now_us >= self.window_ends_us {
            self.before_us = mem::take(&mut self.shortest_us);
            self.window_ends_us = now_us.saturating_add(WINDOW_US);
        }
        let shortest_us = self.shortest_us.map_or(took_us, |shortest| shortest.min(took_us));
        self.shortest_us = Some(shortest_us);
        let lately_us = self.before_us.map_or(shortest_us, |before| before.min(shortest_us));
        took_us - lately_us > LATE_US_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: u64 = 1_000_000;

    #[test]
    fn a_frame_is_late_two_seconds_after_the_fastest() {
        for ahead_us in [0, 7_000 * SECOND_US] {
            let mut late_frames = LateFrameDetector::new(10_000 * SECOND_US);
            let mut is_late = |now_s: u64, took_us: u64| {
                let now_us = now_s * SECOND_US;
                late_frames.is_late(now_us, now_us - took_us - ahead_us)
            };
            assert!(!is_late(10_000, 900), "nothing is known of the first one");
            assert!(!is_late(10_001, 300));
            assert!(!is_late(10_004, 2 * SECOND_US + 300), "at the limit");
            assert!(is_late(10_005, 2 * SECOND_US + 301), "past it");
        }
    }

    #[test]
    fn a_clock_that_drifts_makes_no_frame_late() {
        let mut late_frames = LateFrameDetector::new(0);
        for now_s in 0..100_000 {
            // One ten-thousandth: ten seconds in all.
            let now_us = now_s * SECOND_US;
            assert!(!late_frames.is_late(now_us, now_us - now_us / 10_000), "after {now_s} s");
        }
    }
}
