//! A rate of events over time.

use serde::{Deserialize, Serialize};

/// A rate that changes linearly from one value to another, and is constant then.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct RateCurve {
    pub from: f64,
    pub to: f64,
    pub rise_s: f64,
}

impl RateCurve {
    pub fn constant(rate: f64) -> Self {
        RateCurve { from: rate, to: rate, rise_s: 0.0 }
    }

    /// The time of the event with this number, which is the inverse of the integral of the rate; none if there is no
    /// such event.
    pub fn time_s(&self, number: f64) -> Option<f64> {
        let in_rise = self.from.midpoint(self.to) * self.rise_s;
        if number >= in_rise {
            return (self.to > 0.0).then(|| self.rise_s + (number - in_rise) / self.to);
        }
        // from·t + (to − from)·t²/(2·rise) = number, in the form that is exact for a small change of the rate.
        let change = (self.to - self.from) / self.rise_s;
        let root = (self.from * self.from + 2.0 * change * number).max(0.0).sqrt();
        Some(if number == 0.0 { 0.0 } else { 2.0 * number / (self.from + root) })
    }
}
