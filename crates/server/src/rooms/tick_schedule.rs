//! The schedule of ticks: absolute times, with the rooms spread over the tick interval.

use std::collections::BTreeSet;

use dunlin_config::OverrunPolicy;

use super::clock::Clock;

/// Number of offsets within a tick interval. Rooms are spread over them, so that not all tick at once.
const PHASES: u64 = 16;

const NS_PER_SECOND: u64 = 1_000_000_000;

/// The rooms of one thread, by the time of their next action.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// Time in nanoseconds, and the room's index.
    due: BTreeSet<(u64, usize)>,
    /// Number of rooms in each phase.
    phases: [u32; PHASES as usize],
}

/// The times of one room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timing {
    pub(super) clock: Clock,
    phase: usize,
    /// When its next tick should begin.
    pub(super) tick_due_ns: u64,
    /// Its time in the schedule: later than its tick if other rooms are due before it.
    slot_ns: u64,
}

impl Schedule {
    /// Selects the times of a room with this tick rate, which is not in the schedule yet.
    pub(super) fn timing(&mut self, now_ns: u64, ticks_per_second: u32, overrun: OverrunPolicy) -> Timing {
        let interval_ns = NS_PER_SECOND / u64::from(ticks_per_second.max(1));
        let (phase, rooms) = (0..).zip(&mut self.phases).min_by_key(|(_, rooms)| **rooms).expect("there are phases");
        *rooms += 1;
        let offset_ns = interval_ns * phase as u64 / PHASES;
        let tick_due_ns = (now_ns / interval_ns + 1) * interval_ns + offset_ns;
        Timing { clock: Clock::new(interval_ns, overrun), phase, tick_due_ns, slot_ns: tick_due_ns }
    }

    /// Adds the room at `place` with `timing`.
    pub(super) fn insert(&mut self, place: usize, timing: &Timing) {
        self.due.insert((timing.slot_ns, place));
    }

    /// Removes a room.
    pub(super) fn forget(&mut self, place: usize, timing: &Timing) {
        self.due.remove(&(timing.slot_ns, place));
        if let Some(rooms) = self.phases.get_mut(timing.phase) {
            *rooms -= 1;
        }
    }

    /// Removes and returns a room that is due, if any.
    pub(super) fn take_due(&mut self, now_ns: u64) -> Option<usize> {
        let first = *self.due.first().filter(|(due_ns, _)| *due_ns <= now_ns)?;
        self.due.remove(&first);
        Some(first.1)
    }

    /// When the next room is due.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.due.first().map(|(due_ns, _)| *due_ns)
    }
}

impl Timing {
    /// Time between two ticks.
    pub(super) fn interval_ns(&self) -> u64 {
        self.clock.interval_ns()
    }

    /// Skips the ticks that are more than `catch_up_ticks` behind. Returns their number.
    pub(super) fn skip_behind(&mut self, now_ns: u64, catch_up_ticks: u32) -> u64 {
        let behind = now_ns.saturating_sub(self.tick_due_ns) / self.interval_ns();
        let skipped = behind.saturating_sub(u64::from(catch_up_ticks));
        self.tick_due_ns += skipped * self.interval_ns();
        skipped
    }

    /// Adjusts the clock after a tick that began at `began_ns`, before [`Timing::advance`]. If the clock becomes slower, it
    /// was too fast before, so the next tick is due an interval after this one began: ticks are not made up for.
    pub(super) fn observe(&mut self, began_ns: u64, took_ns: u64, share_ppm: u32) {
        if self.clock.observe(took_ns, share_ppm) {
            self.tick_due_ns = self.tick_due_ns.max(began_ns);
        }
    }

    /// Moves to the next tick after one has run or was skipped. If the next one is due already, it is scheduled behind
    /// other due rooms, so that a late room does not delay them.
    pub(super) fn advance(&mut self, now_ns: u64) {
        self.tick_due_ns += self.interval_ns();
        self.slot_ns = self.tick_due_ns.max(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_absolute_and_do_not_drift() {
        let mut schedule = Schedule::default();
        let mut timing = schedule.timing(1_000, 100, OverrunPolicy::Skip);
        let first_ns = timing.tick_due_ns;
        for tick in 1..=1_000 {
            // Each tick runs slightly late.
            let now_ns = timing.tick_due_ns + 3_000_000;
            assert_eq!(timing.skip_behind(now_ns, 5), 0);
            timing.advance(now_ns);
            assert_eq!(timing.tick_due_ns, first_ns + tick * 10_000_000);
        }
    }

    #[test]
    fn rooms_are_spread_over_the_interval() {
        let mut schedule = Schedule::default();
        let mut timings: Vec<Timing> = (0..32).map(|_| schedule.timing(0, 50, OverrunPolicy::Skip)).collect();
        timings.sort_unstable_by_key(|timing| timing.tick_due_ns);
        let mut times: Vec<u64> = timings.iter().map(|timing| timing.tick_due_ns).collect();
        times.dedup();
        assert_eq!(times.len(), 16, "two at each of sixteen times");
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 20_000_000 / 16));
        // The next room gets the phase of a removed one.
        let gone = timings[7];
        schedule.forget(0, &gone);
        assert_eq!(schedule.timing(0, 50, OverrunPolicy::Skip).phase, gone.phase);
    }

    #[test]
    fn catch_up_ticks_are_limited() {
        let mut schedule = Schedule::default();
        let due_ns = schedule.timing(0, 100, OverrunPolicy::Skip).tick_due_ns;
        for (behind, skipped) in [(0, 0), (5, 0), (6, 1), (50, 45)] {
            let mut timing = schedule.timing(0, 100, OverrunPolicy::Skip);
            timing.tick_due_ns = due_ns;
            let now_ns = due_ns + behind * 10_000_000 + 9_999_999;
            assert_eq!(timing.skip_behind(now_ns, 5), skipped, "{behind} behind");
            assert_eq!(timing.tick_due_ns, due_ns + skipped * 10_000_000);
        }
    }

    #[test]
    fn a_late_room_does_not_preempt_punctual_ones() {
        let mut schedule = Schedule::default();
        let (mut late, mut other) =
            (schedule.timing(0, 100, OverrunPolicy::Skip), schedule.timing(0, 100, OverrunPolicy::Skip));
        let now_ns = late.tick_due_ns + 30_000_000;
        late.advance(now_ns);
        other.tick_due_ns = now_ns - 5;
        other.slot_ns = now_ns - 5;
        schedule.insert(0, &late);
        schedule.insert(1, &other);
        assert_eq!(schedule.take_due(now_ns), Some(1));
        assert_eq!(schedule.take_due(now_ns), Some(0));
        assert_eq!(schedule.take_due(now_ns), None);
    }

    #[test]
    fn no_room_ticks_early() {
        let mut schedule = Schedule::default();
        let timing = schedule.timing(0, 60, OverrunPolicy::Skip);
        schedule.insert(3, &timing);
        assert_eq!(schedule.next_ns(), Some(timing.tick_due_ns));
        assert_eq!(schedule.take_due(timing.tick_due_ns - 1), None);
        assert_eq!(schedule.take_due(timing.tick_due_ns), Some(3));
        assert_eq!(schedule.next_ns(), None);
    }
}
