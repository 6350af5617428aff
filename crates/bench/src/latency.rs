//! A histogram of latencies that can be merged across processes.

use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The upper end of the histogram; longer latencies are recorded as this value.
const US_MAX: u64 = 120_000_000;

/// Latencies in microseconds, three significant digits, up to two minutes.
#[derive(Debug, Clone)]
pub struct Latency(Histogram<u64>);

impl Default for Latency {
    fn default() -> Self {
        Latency(Histogram::new_with_bounds(1, US_MAX, 3).expect("these bounds are valid"))
    }
}

impl Latency {
    /// The latencies that these counts describe.
    pub fn of_counts<'a>(counts: impl IntoIterator<Item = (&'a u64, &'a u64)>) -> Self {
        let mut latency = Latency::default();
        for (us, count) in counts {
            latency.0.saturating_record_n(*us, *count);
        }
        latency
    }

    /// Adds a latency in nanoseconds.
    pub fn record_ns(&mut self, ns: u64) {
        self.0.saturating_record(ns / 1000);
    }

    /// Adds all latencies of another histogram.
    pub fn add(&mut self, other: &Latency) {
        self.0.add(&other.0).expect("all have the same bounds");
    }

    /// The latency that this percentage of all does not exceed.
    pub fn percentile_us(&self, percentage: f64) -> u64 {
        self.0.value_at_percentile(percentage)
    }

    /// Each latency in microseconds that occurs, and how often, in order.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()))
    }

    /// The figures of a report.
    pub fn summary(&self) -> Summary {
        let at = |percentile| self.0.value_at_percentile(percentile);
        Summary {
            count: self.0.len(),
            p50_us: at(50.0),
            p90_us: at(90.0),
            p99_us: at(99.0),
            p999_us: at(99.9),
            max_us: self.0.max(),
        }
    }
}

/// Percentiles of latencies, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Latencies recorded.
    pub count: u64,
    /// The median.
    pub p50_us: u64,
    /// The 90th percentile.
    pub p90_us: u64,
    /// The 99th percentile.
    pub p99_us: u64,
    /// The 99.9th percentile.
    pub p999_us: u64,
    /// The maximum.
    pub max_us: u64,
}

/// Serializes pairs of value and count. The list is short, because most values do not occur.
impl Serialize for Latency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.counts())
    }
}

impl<'de> Deserialize<'de> for Latency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let counts = Vec::<(u64, u64)>::deserialize(deserializer)?;
        Ok(Latency::of_counts(counts.iter().map(|(us, count)| (us, count))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_round_trip_and_merge() {
        let mut one = Latency::default();
        for us in 1..=1000_u64 {
            one.record_ns(us * 1000);
        }
        one.record_ns(u64::MAX);
        let text = serde_json::to_string(&one).unwrap();
        let mut two: Latency = serde_json::from_str(&text).unwrap();
        assert_eq!(two.summary(), one.summary());
        two.add(&one);
        let summary = two.summary();
        assert_eq!(summary.count, 2002);
        assert_eq!(summary.p50_us, 501);
        assert_eq!(summary.p99_us, 991);
        assert!(summary.max_us >= US_MAX);
    }
}
