//! Latencies by interval of the run. Only the current interval has a histogram; the earlier ones keep what occurred.

use std::mem;

use crate::latency::Latency;

pub struct Intervals {
    run_start_ns: u64,
    length_ns: u64,
    current: u64,
    latency: Latency,
    /// The interval, and how often each latency in microseconds occurred.
    ended: Vec<(u64, Vec<(u64, u64)>)>,
}

impl Intervals {
    pub fn new(run_start_ns: u64, length_ns: u64) -> Self {
        Intervals { run_start_ns, length_ns, current: 0, latency: Latency::default(), ended: Vec::new() }
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
        let counts: Vec<_> = mem::take(&mut self.latency).counts().collect();
        if !counts.is_empty() {
            self.ended.push((self.current, counts));
        }
    }

    /// All intervals since the last call.
    pub fn take(&mut self) -> Vec<(u64, Vec<(u64, u64)>)> {
        self.end_current();
        mem::take(&mut self.ended)
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
        assert_eq!(intervals.take(), [(0, vec![(5, 2)]), (1, vec![(7, 1)]), (3, vec![(9, 1)])]);
        intervals.record(1_360, 9_000);
        assert_eq!(intervals.take(), [(3, vec![(9, 1)])], "the rest of the same interval");
        assert!(intervals.take().is_empty());
    }
}
