//! Counters of what is sent to a collector.

use std::sync::atomic::{AtomicU64, Ordering};

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Spans.
    Traces,
    /// The values of all metrics.
    Metrics,
}

impl Signal {
    /// All, in the order of the counters.
    pub const ALL: [Self; 2] = [Self::Traces, Self::Metrics];

    /// The name as a metric label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
        }
    }
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportOutcome {
    /// A status from 200 to 299.
    Accepted,
    /// Another status below 500, or the collector has said that it did not take it.
    Rejected,
    /// A status of 500 or above.
    ServerError,
    /// The connection failed.
    Unreachable,
    /// No response in time.
    Timeout,
    /// It was not sent: the queue was full, too many recoveries came, newer metrics came, or the node ended.
    Dropped,
}

impl ExportOutcome {
    /// All outcomes, in the order of the counters.
    pub const ALL: [Self; 6] =
        [Self::Accepted, Self::Rejected, Self::ServerError, Self::Unreachable, Self::Timeout, Self::Dropped];

    /// The outcome of a response.
    pub const fn of_status(status: u16) -> Self {
        match status {
            200..=299 => Self::Accepted,
            500.. => Self::ServerError,
            _ => Self::Rejected,
        }
    }

    /// The outcome as a metric label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
            Self::ServerError => "server_error",
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Dropped => "dropped",
        }
    }
}

const OUTCOMES: usize = ExportOutcome::ALL.len();
const SIGNALS: usize = Signal::ALL.len();

/// The counters at one moment, in the orders of [`ExportOutcome::ALL`] and [`Signal::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtlpCounts {
    /// Spans by what became of them.
    pub spans: [u64; OUTCOMES],
    /// Requests of each kind by their outcome.
    pub pushes: [[u64; OUTCOMES]; SIGNALS],
    /// Spans that wait.
    pub spans_waiting: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    spans: [AtomicU64; OUTCOMES],
    pushes: [[AtomicU64; OUTCOMES]; SIGNALS],
}

impl Counters {
    pub(super) fn count_spans(&self, outcome: ExportOutcome, spans: u64) {
        if let Some(count) = self.spans.get(outcome as usize) {
            count.fetch_add(spans, Ordering::Relaxed);
        }
    }

    pub(super) fn count_push(&self, signal: Signal, outcome: ExportOutcome) {
        if let Some(count) = self.pushes.get(signal as usize).and_then(|counts| counts.get(outcome as usize)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn now(&self, spans_waiting: u64) -> OtlpCounts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        OtlpCounts {
            spans: self.spans.each_ref().map(load),
            pushes: self.pushes.each_ref().map(|counts| counts.each_ref().map(load)),
            spans_waiting,
        }
    }
}
