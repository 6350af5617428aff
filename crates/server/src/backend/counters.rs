//! What is counted about calls to backends.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use dunlin_engine::{backend::Ask, counters::Histogram};

/// What kind a question is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskKind {
    /// Who a session is.
    Connect,
    /// Whether a session goes on.
    Refresh,
    /// Whether a session may subscribe.
    Subscribe,
    /// Whether a session may publish.
    Publish,
    /// Whether a subscription goes on.
    SubRefresh,
    /// A call.
    Rpc,
}

impl AskKind {
    /// Every kind, in the order of the counts.
    pub const ALL: [Self; 6] =
        [Self::Connect, Self::Refresh, Self::Subscribe, Self::Publish, Self::SubRefresh, Self::Rpc];

    /// Of a question.
    pub const fn of(ask: &Ask) -> Self {
        match ask {
            Ask::Connect { .. } => Self::Connect,
            Ask::Refresh => Self::Refresh,
            Ask::Subscribe { .. } => Self::Subscribe,
            Ask::Publish { .. } => Self::Publish,
            Ask::SubRefresh { .. } => Self::SubRefresh,
            Ask::Rpc { .. } => Self::Rpc,
        }
    }

    /// The kind as metrics and the configuration write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Refresh => "refresh",
            Self::Subscribe => "subscribe",
            Self::Publish => "publish",
            Self::SubRefresh => "sub_refresh",
            Self::Rpc => "rpc",
        }
    }
}

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A result.
    Result,
    /// The backend's own error.
    Error,
    /// The backend wants the session closed.
    Disconnect,
    /// It was not asked, since the session's data is not JSON.
    NotAsked,
    /// It was not asked, since as many questions waited as may.
    Busy,
    /// It was not asked, since it had failed too often.
    Open,
    /// It was not reached, or broke off.
    Unreachable,
    /// It did not answer in time.
    Timeout,
    /// It answered with another status than 200.
    Status,
    /// Its answer was too long.
    TooLong,
    /// Its answer was not in the documented form.
    NotOurs,
}

impl Outcome {
    /// Every outcome, in the order of the counts.
    pub const ALL: [Self; 11] = [
        Self::Result,
        Self::Error,
        Self::Disconnect,
        Self::NotAsked,
        Self::Busy,
        Self::Open,
        Self::Unreachable,
        Self::Timeout,
        Self::Status,
        Self::TooLong,
        Self::NotOurs,
    ];

    /// The outcome as metrics write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Result => "result",
            Self::Error => "error",
            Self::Disconnect => "disconnect",
            Self::NotAsked => "not_json",
            Self::Busy => "busy",
            Self::Open => "breaker_open",
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Status => "status",
            Self::TooLong => "too_long",
            Self::NotOurs => "malformed",
        }
    }

    /// Whether the backend is to blame.
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::Unreachable | Self::Timeout | Self::Status | Self::TooLong | Self::NotOurs)
    }
}

/// Counts of all proxies at one moment.
#[derive(Clone, Debug, Default)]
pub struct BackendCounts {
    /// In the order of the configuration.
    pub proxies: Vec<ProxyCounts>,
}

/// Counts of one proxy at one moment.
#[derive(Clone, Debug)]
pub struct ProxyCounts {
    /// Its place in the configuration.
    pub label: String,
    /// By kind and outcome, in the orders of [`AskKind::ALL`] and [`Outcome::ALL`].
    pub outcomes: [[u64; Outcome::ALL.len()]; AskKind::ALL.len()],
    /// How long calls took, by kind.
    pub durations: [Histogram; AskKind::ALL.len()],
    /// Questions that wait for an answer now.
    pub waiting: u64,
    /// Whether it is left alone for its failures.
    pub is_open: bool,
}

#[derive(Debug, Default)]
pub(super) struct ProxyCounters {
    outcomes: [[AtomicU64; Outcome::ALL.len()]; AskKind::ALL.len()],
    durations: [std::sync::Mutex<Histogram>; AskKind::ALL.len()],
    waiting: AtomicU64,
}

impl ProxyCounters {
    /// One more question, unless as many wait as may.
    pub(super) fn admit(&self, waiting_max: usize) -> bool {
        let admit = |waiting| (waiting < waiting_max as u64).then_some(waiting + 1);
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, admit).is_ok()
    }

    pub(super) fn dismiss(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn count(&self, kind: AskKind, outcome: Outcome) {
        if let Some(count) = self.outcomes.get(kind as usize).and_then(|counts| counts.get(outcome as usize)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn observe(&self, kind: AskKind, took: Duration) {
        if let Some(durations) = self.durations.get(kind as usize) {
            let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            durations.lock().unwrap_or_else(std::sync::PoisonError::into_inner).observe(us);
        }
    }

    pub(super) fn now(&self, label: &str, is_open: bool) -> ProxyCounts {
        let durations = std::array::from_fn(|kind| {
            let durations = self.durations.get(kind);
            durations.map_or_else(Histogram::default, |durations| {
                durations.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
            })
        });
        ProxyCounts {
            label: label.to_owned(),
            outcomes: self.outcomes.each_ref().map(|kind| kind.each_ref().map(|count| count.load(Ordering::Relaxed))),
            durations,
            waiting: self.waiting.load(Ordering::Relaxed),
            is_open,
        }
    }
}
