//! Latencies by interval of the run. Only the current interval has a histogram; the earlier ones keep what occurred.

use std::collections::BTreeMap;
use std::mem;

use crate::latency::Latency;
use crate::scenario::crew_commands::CountByUs;

pub struct Intervals {
    run_start_ns: u64,
    length_ns: u64,
    current: u64,
    latency: Latency,
    ended: BTreeMap<u64, CountByUs>,
}

impl Intervals {
    pub fn new(run_start_ns: u64, length_ns: u64) -> Self {
        Intervals { run_start_ns, length_ns, current: 0, latency: Latency::default(), ended: BTreeMap::new() }
    }

    /// Records a latency. Times never go back.
    pub fn record(&mut self, now_ns: u64, latency_ns: u64) {
        let interval = now_ns.saturating_sub(self.run_start_ns) / self.length_ns;
        if interval != self.current {
            self.end_current();
            self.current = interval;
        }
        self.latency.record_ns(latency_ns);
    }

    fn end_current(&mut self) {
        let counts = self.ended.entry(self.current).or_default();
        for (us, count) in mem::take(&mut self.latency).counts() {
            *counts.entry(us).or_default() += count;
        }
    }

    /// All intervals since the last call.
    pub fn take(&mut self) -> BTreeMap<u64, CountByUs> {
        self.end_current();
        let mut ended = mem::take(&mut self.ended);
        ended.retain(|_, counts| !counts.is_empty());
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_collected_by_interval() {
        let mut intervals = Intervals::new(1_000, 100);
        for (now_ns, latency_us) in [(1_000, 5), (1_099, 5), (1_100, 7), (1_350, 9)] {
            intervals.record(now_ns, latency_us * 1000);
        }
        let expected = [(0, CountByUs::from([(5, 2)])), (1, CountByUs::from([(7, 1)])), (3, CountByUs::from([(9, 1)]))];
        assert_eq!(intervals.take(), BTreeMap::from(expected));
        intervals.record(1_360, 9_000);
        assert_eq!(intervals.take(), BTreeMap::from([(3, CountByUs::from([(9, 1)]))]), "the rest of the same interval");
        assert!(intervals.take().is_empty());
    }
}
