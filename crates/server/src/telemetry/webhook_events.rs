//! Log events of webhooks.

use tracing::warn;

use super::{events::now_s, log::Outside, throttle::Throttle};

/// A request with events failed.
pub struct WebhookFailed<'a> {
    /// The outcome.
    pub outcome: &'a str,
    /// The error, unescaped.
    pub why: &'a str,
    /// The number of its events.
    pub events: u64,
}

impl WebhookFailed<'_> {
    /// Logs it, at most once a second.
    pub fn emit(&self) {
        static THROTTLE: Throttle = Throttle::new();
        let Some(suppressed) = THROTTLE.admit(now_s()) else { return };
        warn!(outcome = self.outcome, why = %Outside(self.why), events = self.events, suppressed, "webhook failed");
    }
}

/// Events for the backend are lost.
pub struct WebhookEventsLost {
    /// The reason, as in the metric.
    pub reason: &'static str,
    /// Their number.
    pub events: u64,
}

impl WebhookEventsLost {
    /// Logs it, at most once a second.
    pub fn emit(&self) {
        static THROTTLE: Throttle = Throttle::new();
        let Some(suppressed) = THROTTLE.admit(now_s()) else { return };
        warn!(reason = self.reason, events = self.events, suppressed, "webhook events lost");
    }
}

/// Events do not fit into the queue.
pub struct WebhookQueueFull;

impl WebhookQueueFull {
    /// Logs it, at most once a second.
    pub fn emit(&self) {
        static THROTTLE: Throttle = Throttle::new();
        let Some(suppressed) = THROTTLE.admit(now_s()) else { return };
        warn!(suppressed, "the queue of webhooks is full; events are lost");
    }
}
