//! When something is due: absolute times that do not depend on the target (open loop).

use crate::report::whole;
use crate::scenario::rate_curve::RateCurve;

const NS: f64 = 1e9;

/// The events of one process at a rate of the whole crew. Process `part` of `parts` takes every `parts`-th event.
#[derive(Debug)]
pub struct Schedule {
    curve: RateCurve,
    start_ns: u64,
    end_ns: u64,
    part: u64,
    parts: u64,
    /// Events taken so far.
    taken: u64,
}

impl Schedule {
    pub fn new(curve: RateCurve, (start_ns, end_ns): (u64, u64), (part, parts): (u64, u64)) -> Self {
        Schedule { curve, start_ns, end_ns, part, parts, taken: 0 }
    }

    /// A constant rate without an end.
    pub fn constant(rate: f64, start_ns: u64, part_of: (u64, u64)) -> Self {
        Schedule::new(RateCurve::constant(rate), (start_ns, u64::MAX), part_of)
    }

    /// The intended time of the next event; none after the end.
    pub fn next_ns(&self) -> Option<u64> {
        let number = (self.taken * self.parts + self.part) as f64;
        let after_ns = whole(self.curve.time_s(number)? * NS);
        self.start_ns.checked_add(after_ns).filter(|&at_ns| at_ns < self.end_ns)
    }

    /// The intended time of the next event, if that time has come.
    pub fn due(&mut self, now_ns: u64) -> Option<u64> {
        let at_ns = self.next_ns().filter(|&at_ns| at_ns <= now_ns)?;
        self.taken += 1;
        Some(at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(mut schedule: Schedule) -> Vec<u64> {
        std::iter::from_fn(|| schedule.due(u64::MAX - 1)).collect()
    }

    #[test]
    fn processes_share_a_constant_rate_and_keep_its_schedule_when_they_are_late() {
        let curve = RateCurve { from: 4.0, to: 4.0, rise_s: 0.0 };
        let part = |part| times(Schedule::new(curve, (1_000, 1_000_001_000), (part, 2)));
        assert_eq!(part(0), [1_000, 500_001_000]);
        assert_eq!(part(1), [250_001_000, 750_001_000]);
        let mut schedule = Schedule::constant(4.0, 1_000, (0, 1));
        assert_eq!(schedule.due(1_000), Some(1_000));
        assert_eq!(schedule.due(250_000_999), None, "it is never early");
    }

    #[test]
    fn a_rising_rate_has_the_events_of_its_integral() {
        // 10/s to 100/s within 0.5 s: 27.5 events, then 100 each second.
        let curve = RateCurve { from: 10.0, to: 100.0, rise_s: 0.5 };
        let events = times(Schedule::new(curve, (0, 1_500_000_000), (0, 1)));
        assert_eq!(events.len(), 128);
        assert_eq!(events.iter().filter(|&&at_ns| at_ns < 500_000_000).count(), 28);
        assert!(events.is_sorted());
        assert!(events[1] > 50_000_000 && events[1] < 100_000_000, "the rate is about 10/s at the beginning");
        let falling = RateCurve { from: 100.0, to: 10.0, rise_s: 0.5 };
        assert_eq!(times(Schedule::new(falling, (0, 500_000_000), (0, 1))).len(), 28);
    }

    #[test]
    fn nothing_is_due_at_rate_zero() {
        assert_eq!(
            times(Schedule::new(RateCurve { from: 0.0, to: 0.0, rise_s: 0.0 }, (0, 1 << 60), (0, 1))),
            [0_u64; 0]
        );
        let ends = RateCurve { from: 10.0, to: 0.0, rise_s: 1.0 };
        assert_eq!(times(Schedule::new(ends, (0, u64::MAX), (0, 1))).len(), 5);
    }
}
