//! Log events of profiles that are pushed.

use tracing::warn;

use super::{events::now_s, log::Outside, throttle::Throttle};

/// A profile is not on the server.
pub struct ProfileLost<'a> {
    /// What it is about.
    pub kind: &'static str,
    /// The outcome, as in the metric.
    pub outcome: &'static str,
    /// The error, unescaped.
    pub why: &'a str,
}

impl ProfileLost<'_> {
    /// Logs it, at most once a second.
    pub fn emit(&self) {
        static THROTTLE: Throttle = Throttle::new();
        let Some(suppressed) = THROTTLE.admit(now_s()) else { return };
        warn!(kind = self.kind, outcome = self.outcome, why = %Outside(self.why), suppressed, "profile not pushed");
    }
}
