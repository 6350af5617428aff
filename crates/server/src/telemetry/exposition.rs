//! The Prometheus text format, version 0.0.4: families of samples, each under its `HELP` and `TYPE`.

use std::fmt::{Display, Write as _};

use super::metrics::{Family, MetricKind};

/// The content type of the metrics page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A metrics page in progress.
#[derive(Default)]
pub struct Page {
    text: String,
}

impl Page {
    /// Writes a family; `samples` writes any number of samples.
    pub fn family(&mut self, family: &'static Family, samples: impl FnOnce(&mut Samples<'_>)) {
        let _ = writeln!(self.text, "# HELP {} {}\n# TYPE {0} {}", family.name, family.help, family.kind.name());
        samples(&mut Samples { text: &mut self.text, family });
    }

    /// Writes a family with one sample without labels.
    pub fn single(&mut self, family: &'static Family, value: impl Display) {
        self.family(family, |samples| samples.add(&[], value));
    }

    /// The text of the page.
    pub fn into_text(self) -> String {
        self.text
    }
}

/// The samples of one family.
pub struct Samples<'a> {
    text: &'a mut String,
    family: &'static Family,
}

impl Samples<'_> {
    /// Adds a sample. `label_values` are in the order of the family's labels.
    pub fn add(&mut self, label_values: &[&str], value: impl Display) {
        assert!(self.family.kind != MetricKind::Histogram, "{} is a histogram", self.family.name);
        self.line("", label_values, None, value);
    }

    /// Adds a histogram. `buckets` contains upper bounds in seconds and counts, not cumulative; `beyond` is the count
    /// above the last bound.
    pub fn add_histogram(&mut self, label_values: &[&str], buckets: &[(f64, u64)], beyond: u64, sum_s: f64) {
        assert!(self.family.kind == MetricKind::Histogram, "{} is no histogram", self.family.name);
        let mut count = 0;
        for (bound_s, observations) in buckets {
            count += observations;
            self.line("_bucket", label_values, Some(&bound_s.to_string()), count);
        }
        count += beyond;
        self.line("_bucket", label_values, Some("+Inf"), count);
        self.line("_sum", label_values, None, sum_s);
        self.line("_count", label_values, None, count);
    }

    fn line(&mut self, suffix: &str, label_values: &[&str], upper_bound: Option<&str>, value: impl Display) {
        assert_eq!(label_values.len(), self.family.labels.len(), "labels of {}", self.family.name);
        self.text.push_str(self.family.name);
        self.text.push_str(suffix);
        let labels = self.family.labels.iter().copied().zip(label_values.iter().copied());
        let mut opening = '{';
        for (name, value) in labels.chain(upper_bound.map(|bound| ("le", bound))) {
            let _ = write!(self.text, "{opening}{name}=\"");
            escape_into(value, self.text);
            self.text.push('"');
            opening = ',';
        }
        if opening == ',' {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

fn escape_into(value: &str, text: &mut String) {
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static PLAIN: Family = Family { name: "t_plain", kind: MetricKind::Gauge, labels: &[], help: "Plain." };
    static LABELLED: Family = Family { name: "t_total", kind: MetricKind::Counter, labels: &["a", "b"], help: "Two." };
    static TIMED: Family = Family { name: "t_seconds", kind: MetricKind::Histogram, labels: &["a"], help: "Time." };

    #[test]
    fn each_sample_type_is_written() {
        let mut page = Page::default();
        page.single(&PLAIN, 1.5);
        page.family(&LABELLED, |samples| samples.add(&["x\"\\\n", ""], 7));
        page.family(&TIMED, |samples| samples.add_histogram(&["y"], &[(0.001, 2), (0.01, 0), (2.5, 1)], 4, 12.25));
        let expected = "\
# HELP t_plain Plain.
# TYPE t_plain gauge
t_plain 1.5
# HELP t_total Two.
# TYPE t_total counter
t_total{a=\"x\\\"\\\\\\n\",b=\"\"} 7
# HELP t_seconds Time.
# TYPE t_seconds histogram
t_seconds_bucket{a=\"y\",le=\"0.001\"} 2
t_seconds_bucket{a=\"y\",le=\"0.01\"} 2
t_seconds_bucket{a=\"y\",le=\"2.5\"} 3
t_seconds_bucket{a=\"y\",le=\"+Inf\"} 7
t_seconds_sum{a=\"y\"} 12.25
t_seconds_count{a=\"y\"} 7
";
        assert_eq!(page.into_text(), expected);
    }
}
