//! The values of all metrics, as text in Prometheus's format, version 0.0.4 (families of samples, each under its `HELP` and
//! `TYPE`), or as points for a collector.

use std::fmt::{Display, Write as _};

use super::metrics::{Family, MetricKind};
use crate::otlp::{Exponential, FamilyPoints, Number, Point, PointValue};

/// The content type of the metrics page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A metrics page in progress.
pub struct Page {
    form: Form,
}

enum Form {
    Text(String),
    Points(Vec<FamilyPoints>),
}

impl Page {
    /// A page of text.
    pub fn of_text() -> Self {
        Self { form: Form::Text(String::new()) }
    }

    /// A page of points.
    pub fn of_points() -> Self {
        Self { form: Form::Points(Vec::new()) }
    }

    /// Writes a family; `samples` writes any number of samples.
    pub fn family(&mut self, family: &'static Family, samples: impl FnOnce(&mut Samples<'_>)) {
        let out = match &mut self.form {
            Form::Text(text) => {
                let _ = writeln!(text, "# HELP {} {}\n# TYPE {0} {}", family.name, family.help, family.kind.name());
                Out::Text(text)
            }
            Form::Points(families) => {
                families.push(FamilyPoints { family, points: Vec::new() });
                let Some(FamilyPoints { points, .. }) = families.last_mut() else { return };
                Out::Points(points)
            }
        };
        samples(&mut Samples { out, family });
    }

    /// Writes a family with one sample without labels.
    pub fn single(&mut self, family: &'static Family, value: impl Into<Number>) {
        self.family(family, |samples| samples.add(&[], value));
    }

    /// The text of the page; empty for a page of points.
    pub fn into_text(self) -> String {
        match self.form {
            Form::Text(text) => text,
            Form::Points(_) => String::new(),
        }
    }

    /// The points of the page; none for a page of text.
    pub fn into_points(self) -> Vec<FamilyPoints> {
        match self.form {
            Form::Text(_) => Vec::new(),
            Form::Points(families) => families,
        }
    }
}

/// The samples of one family.
pub struct Samples<'a> {
    out: Out<'a>,
    family: &'static Family,
}

enum Out<'a> {
    Text(&'a mut String),
    Points(&'a mut Vec<Point>),
}

impl Samples<'_> {
    /// Adds a sample. `label_values` are in the order of the family's labels.
    pub fn add(&mut self, label_values: &[&str], value: impl Into<Number>) {
        assert!(self.family.kind != MetricKind::Histogram, "{} is a histogram", self.family.name);
        let value = value.into();
        match &mut self.out {
            Out::Text(text) => line(text, self.family, label_values, ("", None), value),
            Out::Points(_) => self.point(label_values, PointValue::Number(value)),
        }
    }

    /// Adds a histogram. `buckets` contains upper bounds in seconds and counts, not cumulative; `beyond` is the count
    /// above the last bound.
    pub fn add_histogram(&mut self, label_values: &[&str], buckets: &[(f64, u64)], beyond: u64, sum_s: f64) {
        assert!(self.family.kind == MetricKind::Histogram, "{} is no histogram", self.family.name);
        let Out::Text(text) = &mut self.out else {
            let bounds = buckets.iter().map(|(bound_s, _)| *bound_s).collect();
            let counts = buckets.iter().map(|(_, count)| *count).chain([beyond]).collect();
            return self.point(label_values, PointValue::Histogram { bounds, counts, sum: sum_s });
        };
        let mut count = 0;
        for (bound_s, observations) in buckets {
            count += observations;
            line(text, self.family, label_values, ("_bucket", Some(&bound_s.to_string())), count);
        }
        count += beyond;
        line(text, self.family, label_values, ("_bucket", Some("+Inf")), count);
        line(text, self.family, label_values, ("_sum", None), sum_s);
        line(text, self.family, label_values, ("_count", None), count);
    }

    /// Adds a histogram whose bounds grow by a factor. Returns whether the page can have it; text cannot.
    pub fn add_exponential(&mut self, label_values: &[&str], histogram: impl FnOnce() -> Exponential) -> bool {
        let is_possible = matches!(self.out, Out::Points(_));
        if is_possible {
            self.point(label_values, PointValue::Exponential(histogram()));
        }
        is_possible
    }

    fn point(&mut self, label_values: &[&str], value: PointValue) {
        assert_eq!(label_values.len(), self.family.labels.len(), "labels of {}", self.family.name);
        if let Out::Points(points) = &mut self.out {
            points.push(Point { label_values: label_values.iter().map(|value| Box::from(*value)).collect(), value });
        }
    }
}

/// Writes a line with this suffix of the name, and this upper bound.
fn line(
    text: &mut String,
    family: &'static Family,
    label_values: &[&str],
    (suffix, upper_bound): (&str, Option<&str>),
    value: impl Display,
) {
    assert_eq!(label_values.len(), family.labels.len(), "labels of {}", family.name);
    text.push_str(family.name);
    text.push_str(suffix);
    let labels = family.labels.iter().copied().zip(label_values.iter().copied());
    let mut opening = '{';
    for (name, value) in labels.chain(upper_bound.map(|bound| ("le", bound))) {
        let _ = write!(text, "{opening}{name}=\"");
        escape_into(value, text);
        text.push('"');
        opening = ',';
    }
    if opening == ',' {
        text.push('}');
    }
    let _ = writeln!(text, " {value}");
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
        let mut page = Page::of_text();
        page.single(&PLAIN, 1.5);
        page.family(&LABELLED, |samples| samples.add(&["x\"\\\n", ""], 7_u64));
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

    #[test]
    fn each_sample_type_is_a_point() {
        let exponential = || Exponential { scale: 3, offset: -5, counts: vec![1, 2], zero_count: 0, sum: 0.5 };
        let mut text = Page::of_text();
        text.family(&TIMED, |samples| assert!(!samples.add_exponential(&["y"], exponential)));
        let mut page = Page::of_points();
        page.single(&PLAIN, 1.5);
        page.family(&LABELLED, |samples| samples.add(&["x", ""], 7_u64));
        page.family(&TIMED, |samples| {
            samples.add_histogram(&["y"], &[(0.001, 2), (2.5, 1)], 4, 12.25);
            assert!(samples.add_exponential(&["z"], exponential));
        });
        let families = page.into_points();
        let names: Vec<_> = families.iter().map(|of| of.family.name).collect();
        assert_eq!(names, ["t_plain", "t_total", "t_seconds"]);
        assert!(matches!(families[0].points[0].value, PointValue::Number(Number::Fraction(1.5))));
        assert!(matches!(families[1].points[0].value, PointValue::Number(Number::Whole(7))));
        assert_eq!(*families[1].points[0].label_values, ["x".into(), "".into()]);
        let PointValue::Histogram { bounds, counts, sum } = &families[2].points[0].value else {
            panic!("{families:?}")
        };
        assert_eq!((&**bounds, &**counts, *sum), (&[0.001, 2.5][..], &[2, 1, 4][..], 12.25));
        assert!(matches!(&families[2].points[1].value, PointValue::Exponential(of) if *of == exponential()));
    }
}
