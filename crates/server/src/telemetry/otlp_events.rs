//! Log events of traces and metrics that are sent to a collector.

use tracing::warn;

use super::{events::now_s, log::Outside, throttle::Throttle};

/// A collector has not taken spans or metrics.
pub struct OtlpFailed<'a> {
    /// What was sent.
    pub signal: &'static str,
    /// The outcome, as in the metric.
    pub outcome: &'static str,
    /// How much the collector has left out of a request that it took.
    pub rejected: u64,
    /// The error, unescaped.
    pub why: &'a str,
}

impl OtlpFailed<'_> {
    /// Logs it, at most once a second.
    pub fn emit(&self) {
        static THROTTLE: Throttle = Throttle::new();
        let Some(suppressed) = THROTTLE.admit(now_s()) else { return };
        let Self { signal, outcome, rejected, why } = *self;
        warn!(signal, outcome, rejected, why = %Outside(why), suppressed, "the collector did not take everything");
    }
}
