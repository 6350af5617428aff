//! Goals: figures that a run should reach.

use serde::Serialize;

use crate::report::Line;

/// A figure and its limit.
#[derive(Debug, Clone, Serialize)]
pub struct Goal {
    name: &'static str,
    /// None if it could not be measured.
    found: Option<f64>,
    bound: f64,
    unit: &'static str,
    /// Whether `bound` is the maximum of `found`, or else the minimum.
    at_most: bool,
    met: bool,
}

impl Goal {
    /// `found` must be at most `bound`.
    pub fn at_most(name: &'static str, found: Option<f64>, bound: f64, unit: &'static str) -> Self {
        Goal { name, found, bound, unit, at_most: true, met: found.is_some_and(|found| found <= bound) }
    }

    /// `found` must be at least `bound`.
    pub fn at_least(name: &'static str, found: Option<f64>, bound: f64, unit: &'static str) -> Self {
        Goal { name, found, bound, unit, at_most: false, met: found.is_some_and(|found| found >= bound) }
    }

    pub fn line(&self) -> Line {
        let found = self.found.map_or("not measured".into(), |found| format!("{} {}", short(found), self.unit));
        let (bound, relation) = (short(self.bound), if self.at_most { "at most" } else { "at least" });
        let verdict = if self.met { "met" } else { "not met" };
        Line::new(self.name, format!("{} (goal: {relation} {bound}): {verdict}", found.trim_end()))
    }
}

/// Rounds to the significant digits.
fn short(value: f64) -> String {
    match value.abs() {
        0.0..10.0 if value.fract() != 0.0 => format!("{value:.3}"),
        10.0..100.0 if value.fract() != 0.0 => format!("{value:.1}"),
        _ => crate::report::grouped(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_at_its_limit_and_missed_past_it() {
        assert!(Goal::at_most("g", Some(0.3), 0.3, "ms").met);
        assert!(!Goal::at_most("g", Some(0.31), 0.3, "ms").met);
        assert!(Goal::at_least("g", Some(500.0), 500.0, "rooms").met);
        assert!(!Goal::at_least("g", Some(499.0), 500.0, "rooms").met);
        assert!(!Goal::at_most("g", None, 1.0, "").met, "what was not measured is not met");
    }

    #[test]
    fn values_are_rounded_to_significant_digits() {
        assert_eq!(
            (short(0.318_7), short(12.34), short(5.0), short(12_345.6)),
            ("0.319".into(), "12.3".into(), "5".into(), "12,346".into())
        );
    }
}
