//! Counters of requests to backends.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use dunlin_engine::{
    backend::{ProxyError, ProxyRequestKind},
    counters::Histogram,
};

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyKind {
    /// Authenticate a session.
    Connect,
    /// Extend a session.
    Refresh,
    /// Authorize a subscription.
    Subscribe,
    /// Authorize a publication.
    Publish,
    /// Extend a subscription.
    SubRefresh,
    /// Call a method.
    Rpc,
    /// Call a method for the game of a room.
    RoomCall,
}

impl ProxyKind {
    /// All kinds, in the order of the counters.
    pub const ALL: [Self; 7] =
        [Self::Connect, Self::Refresh, Self::Subscribe, Self::Publish, Self::SubRefresh, Self::Rpc, Self::RoomCall];

    /// The kind of a request.
    pub const fn of(ask: &ProxyRequestKind) -> Self {
        match ask {
            ProxyRequestKind::Connect { .. } => Self::Connect,
            ProxyRequestKind::Refresh => Self::Refresh,
            ProxyRequestKind::Subscribe { .. } => Self::Subscribe,
            ProxyRequestKind::Publish { .. } => Self::Publish,
            ProxyRequestKind::SubRefresh { .. } => Self::SubRefresh,
            ProxyRequestKind::Rpc { .. } => Self::Rpc,
            ProxyRequestKind::RoomCall { .. } => Self::RoomCall,
        }
    }

    /// The kind as a metric label and in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Refresh => "refresh",
            Self::Subscribe => "subscribe",
            Self::Publish => "publish",
            Self::SubRefresh => "sub_refresh",
            Self::Rpc => "rpc",
            Self::RoomCall => "room_call",
        }
    }
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// The response contained `result`.
    Result,
    /// The backend returned an error.
    Error,
    /// The backend requested the end of the session.
    Disconnect,
    /// Not sent, because the session's data is not JSON.
    NotAsked,
    /// Not sent, because of the limit on concurrent requests.
    Busy,
    /// Not sent, because the circuit breaker is open.
    Open,
    /// The connection failed.
    Unreachable,
    /// The response did not arrive in time.
    Timeout,
    /// A status other than 200, below 500.
    Status,
    /// A status of 500 or above.
    ServerError,
    /// The response was too long.
    TooLong,
    /// The response did not have the documented format.
    NotOurs,
}

impl CallOutcome {
    /// All results, in the order of the counters.
    pub const ALL: [Self; 12] = [
        Self::Result,
        Self::Error,
        Self::Disconnect,
        Self::NotAsked,
        Self::Busy,
        Self::Open,
        Self::Unreachable,
        Self::Timeout,
        Self::Status,
        Self::ServerError,
        Self::TooLong,
        Self::NotOurs,
    ];

    /// The result as a metric label.
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
            Self::ServerError => "server_error",
            Self::TooLong => "too_long",
            Self::NotOurs => "malformed",
        }
    }

    /// Whether the backend may be down. Any other response proves that it is running.
    pub const fn is_outage(self) -> bool {
        matches!(self, Self::Unreachable | Self::Timeout | Self::ServerError)
    }
}

/// The counters of all proxies at one moment.
#[derive(Clone, Debug, Default)]
pub struct BackendCounts {
    /// In the order of the configuration.
    pub proxies: Vec<ProxyCounts>,
}

/// The counters of one proxy at one moment.
#[derive(Clone, Debug)]
pub struct ProxyCounts {
    /// The proxy's name in the configuration.
    pub label: String,
    /// By kind and outcome, in the orders of [`ProxyKind::ALL`] and [`CallOutcome::ALL`].
    pub outcomes: [[u64; CallOutcome::ALL.len()]; ProxyKind::ALL.len()],
    /// The codes of errors and disconnects from the backend.
    pub codes: Vec<CodeCount>,
    /// The duration of requests by kind.
    pub durations: [Histogram; ProxyKind::ALL.len()],
    /// Number of requests in progress.
    pub waiting: u64,
    /// Whether the circuit breaker is open.
    pub is_open: bool,
}

/// How often a backend returned a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeCount {
    /// The kind of request.
    pub kind: ProxyKind,
    /// The code of an error or a disconnect; `None` for all codes that are not counted individually.
    pub code: Option<u16>,
    /// The number of responses.
    pub count: u64,
}

/// Maximum number of codes per proxy that are counted individually. The limit is necessary because backends choose the
/// codes.
pub(super) const CODES_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct ProxyCounters {
    codes: std::sync::Mutex<Vec<CodeCount>>,
    outcomes: [[AtomicU64; CallOutcome::ALL.len()]; ProxyKind::ALL.len()],
    durations: [std::sync::Mutex<Histogram>; ProxyKind::ALL.len()],
    waiting: AtomicU64,
}

impl ProxyCounters {
    /// Counts a request, unless the limit is reached.
    pub(super) fn admit(&self, waiting_max: usize) -> bool {
        let admit = |waiting| (waiting < waiting_max as u64).then_some(waiting + 1);
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, admit).is_ok()
    }

    pub(super) fn dismiss(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn count(&self, kind: ProxyKind, outcome: CallOutcome) {
        if let Some(count) = self.outcomes.get(kind as usize).and_then(|counts| counts.get(outcome as usize)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts the code of an error or a disconnect from the backend.
    pub(super) fn count_code(&self, kind: ProxyKind, outcome: CallOutcome, refusal: &ProxyError) {
        let code = match (outcome, refusal) {
            (CallOutcome::Error, ProxyError::Error { code, .. }) => *code,
            (CallOutcome::Disconnect, ProxyError::Disconnect(disconnect)) => disconnect.code,
            _ => return,
        };
        let mut codes = self.codes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let is_known = codes.len() < CODES_MAX || codes.iter().any(|one| one.kind == kind && one.code == Some(code));
        let code = is_known.then_some(code);
        match codes.iter_mut().find(|one| one.kind == kind && one.code == code) {
            Some(one) => one.count += 1,
            None => codes.push(CodeCount { kind, code, count: 1 }),
        }
    }

    pub(super) fn observe(&self, kind: ProxyKind, took: Duration) {
        if let Some(durations) = self.durations.get(kind as usize) {
            let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            durations.lock().unwrap_or_else(std::sync::PoisonError::into_inner).observe(us);
        }
    }

    pub(super) fn now(&self, label: &str, is_open: bool) -> ProxyCounts {
        let durations = std::array::from_fn(|kind| {
            let durations = self.durations.get(kind);
            durations.map_or_else(Histogram::default, |durations| {
                *durations.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
            })
        });
        ProxyCounts {
            label: label.to_owned(),
            outcomes: self.outcomes.each_ref().map(|kind| kind.each_ref().map(|count| count.load(Ordering::Relaxed))),
            codes: self.codes.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone(),
            durations,
            waiting: self.waiting.load(Ordering::Relaxed),
            is_open,
        }
    }
}
