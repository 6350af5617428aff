//! Reads Dunlin's metrics in the Prometheus text format.

use std::collections::BTreeMap;

/// The samples of a scrape.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MetricsSample {
    /// By name, then by labels as in the text, without braces.
    samples: BTreeMap<String, BTreeMap<String, f64>>,
}

impl MetricsSample {
    /// Parses a page. Invalid lines are skipped.
    pub fn parse(text: &str) -> Self {
        let mut scrape = MetricsSample::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse() else { continue };
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let labels = labels.strip_suffix('}').unwrap_or(labels);
            scrape.samples.entry(name.to_owned()).or_default().insert(labels.to_owned(), value);
        }
        scrape
    }

    /// The sum of all series of this name; `None` if there is none.
    pub fn sum(&self, name: &str) -> Option<f64> {
        Some(self.samples.get(name)?.values().sum())
    }

    /// The sums of all counters, by name.
    pub fn sums(&self) -> BTreeMap<String, f64> {
        let counters = self.samples.iter().filter(|(name, _)| name.ends_with("_total"));
        counters.map(|(name, all)| (name.clone(), all.values().sum())).collect()
    }

    /// The sums of the series of this name, by the value of a label.
    pub fn by(&self, name: &str, label: &str) -> BTreeMap<String, f64> {
        let mut by = BTreeMap::new();
        for (labels, value) in self.samples.get(name).into_iter().flatten() {
            if let Some(found) = label_value(labels, label) {
                *by.entry(found.to_owned()).or_default() += value;
            }
        }
        by
    }

    /// The counts since an earlier scrape. Gauges become differences, which are meaningless.
    #[must_use]
    pub fn since(&self, earlier: &MetricsSample) -> MetricsSample {
        let before = |name: &str, labels: &str| earlier.samples.get(name).and_then(|all| all.get(labels));
        let mut since = self.clone();
        for (name, all) in &mut since.samples {
            for (labels, value) in all {
                *value -= before(name, labels).copied().unwrap_or(0.0);
            }
        }
        since
    }

    /// Adds the counts of another server or of a later time.
    pub fn add(&mut self, other: &MetricsSample) {
        for (name, all) in &other.samples {
            let own = self.samples.entry(name.clone()).or_default();
            for (labels, value) in all {
                *own.entry(labels.clone()).or_default() += value;
            }
        }
    }

    /// The histogram of this name, summed over all series; `None` if there is none.
    pub fn histogram(&self, name: &str) -> Option<Buckets> {
        let mut upto: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
        for (labels, count) in self.samples.get(&format!("{name}_bucket"))? {
            let bound: f64 = match label_value(labels, "le")? {
                "+Inf" => f64::INFINITY,
                bound => bound.parse().ok()?,
            };
            // Bounds are not negative, so the order of their bits is the order of the bounds.
            upto.entry(bound.to_bits()).or_insert((bound, 0.0)).1 += count;
        }
        let sum_s = self.sum(&format!("{name}_sum")).unwrap_or(0.0);
        Some(Buckets { upto: upto.into_values().collect(), sum_s })
    }
}

/// A histogram: the number of observations up to each bound in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Buckets {
    upto: Vec<(f64, f64)>,
    sum_s: f64,
}

impl Buckets {
    /// The number of observations.
    pub fn count(&self) -> f64 {
        self.upto.last().map_or(0.0, |(_, count)| *count)
    }

    /// The sum of all observations in seconds.
    pub fn sum_s(&self) -> f64 {
        self.sum_s
    }

    /// The quantile in microseconds, with linear interpolation within a bucket. Observations above the last bound count
    /// as that bound.
    pub fn quantile_us(&self, share: f64) -> f64 {
        let wanted = share * self.count();
        let (mut bound_before, mut count_before) = (0.0, 0.0);
        for (bound, count) in &self.upto {
            if *count >= wanted && *count > count_before {
                if bound.is_infinite() {
                    return bound_before * 1e6;
                }
                let part = (wanted - count_before) / (count - count_before);
                return (bound_before + (bound - bound_before) * part) * 1e6;
            }
            (bound_before, count_before) = (*bound, *count);
        }
        0.0
    }

    /// The number of observations above a bound of the histogram. Another value is rounded up to the next bound.
    pub fn above(&self, bound_s: f64) -> f64 {
        let upto = self.upto.iter().find(|(bound, _)| *bound >= bound_s * 0.999_999).map_or(0.0, |(_, count)| *count);
        self.count() - upto
    }
}

fn label_value<'a>(labels: &'a str, label: &str) -> Option<&'a str> {
    labels.split(',').find_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        (name == label).then(|| value.trim_matches('"'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# HELP t_seconds A time.\n# TYPE t_seconds histogram\n\
        t_seconds_bucket{thread=\"0\",le=\"0.001\"} 50\nt_seconds_bucket{thread=\"0\",le=\"0.01\"} 90\n\
        t_seconds_bucket{thread=\"0\",le=\"+Inf\"} 100\nt_seconds_sum{thread=\"0\"} 1.5\n\
        t_seconds_bucket{thread=\"1\",le=\"0.001\"} 50\nt_seconds_bucket{thread=\"1\",le=\"0.01\"} 100\n\
        t_seconds_bucket{thread=\"1\",le=\"+Inf\"} 100\nt_seconds_sum{thread=\"1\"} 0.5\n\
        plain 3\nc{outcome=\"a\"} 1\nc{outcome=\"b\"} 2\nnot a sample\n";

    #[test]
    fn series_are_summed_and_labels_distinguish_them() {
        let scrape = MetricsSample::parse(PAGE);
        assert_eq!(scrape.sum("plain"), Some(3.0));
        assert_eq!(scrape.sum("c"), Some(3.0));
        assert_eq!(scrape.sum("d"), None);
        assert_eq!(scrape.by("c", "outcome"), BTreeMap::from([("a".into(), 1.0), ("b".into(), 2.0)]));
    }

    #[test]
    fn quantiles_lie_between_bounds() {
        let times = MetricsSample::parse(PAGE).histogram("t_seconds").expect("it is there");
        assert_eq!((times.count(), times.sum_s()), (200.0, 2.0));
        assert!((times.quantile_us(0.25) - 500.0).abs() < 1e-6);
        // 100 up to 1 ms and 190 up to 10 ms: the 145th is halfway.
        assert!((times.quantile_us(0.725) - 5_500.0).abs() < 1e-6);
        assert!((times.quantile_us(0.99) - 10_000.0).abs() < 1e-6, "beyond the last bound");
        assert_eq!((times.above(0.001), times.above(0.01)), (100.0, 10.0));
    }

    #[test]
    fn the_difference_of_samples_has_new_counts_alone() {
        let (before, mut after) = (MetricsSample::parse(PAGE), MetricsSample::parse(PAGE));
        *after.samples.get_mut("plain").and_then(|all| all.get_mut("")).expect("it is there") += 4.0;
        let since = after.since(&before);
        assert_eq!(since.sum("plain"), Some(4.0));
        assert_eq!(since.histogram("t_seconds").map(|times| times.count()), Some(0.0));
    }
}
