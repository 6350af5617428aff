//! Counters of webhooks.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// A status from 200 to 299: the backend has the events.
    Taken,
    /// Status 400 or 422: the backend does not accept these events, and would not the next time.
    Refused,
    /// Status 413: the backend does not accept as many events at once.
    TooLarge,
    /// Another status below 500, also a redirect. Sent again.
    Status,
    /// A status of 500 or above. Sent again.
    ServerError,
    /// The connection failed. Sent again.
    Unreachable,
    /// No response in time. Sent again.
    Timeout,
}

impl RequestOutcome {
    /// All outcomes, in the order of the counters.
    pub const ALL: [Self; 7] =
        [Self::Taken, Self::Refused, Self::TooLarge, Self::Status, Self::ServerError, Self::Unreachable, Self::Timeout];

    /// The outcome of a response.
    pub const fn of_status(status: u16) -> Self {
        match status {
            200..=299 => Self::Taken,
            400 | 422 => Self::Refused,
            413 => Self::TooLarge,
            500.. => Self::ServerError,
            _ => Self::Status,
        }
    }

    /// The outcome as a metric label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Refused => "refused",
            Self::TooLarge => "too_large",
            Self::Status => "status",
            Self::ServerError => "server_error",
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
        }
    }
}

/// Why an event was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventLoss {
    /// The queue was full.
    QueueFull,
    /// The backend refused it.
    Refused,
    /// It was not taken within `webhooks.retry_timeout`.
    Expired,
    /// It was not taken before the node ended.
    Shutdown,
    /// The cluster has more occupied channels than its nodes can add up.
    ChannelLimit,
}

impl EventLoss {
    /// All reasons, in the order of the counters.
    pub const ALL: [Self; 5] = [Self::QueueFull, Self::Refused, Self::Expired, Self::Shutdown, Self::ChannelLimit];

    /// The reason as a metric label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Refused => "refused",
            Self::Expired => "retry_timeout",
            Self::Shutdown => "shutdown",
            Self::ChannelLimit => "channel_limit",
        }
    }
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WebhookCounts {
    /// Events that the backend has taken.
    pub taken: u64,
    /// Lost events, in the order of [`EventLoss::ALL`].
    pub lost: [u64; EventLoss::ALL.len()],
    /// Requests, in the order of [`RequestOutcome::ALL`].
    pub requests: [u64; RequestOutcome::ALL.len()],
    /// Events that wait, with those of the request in progress.
    pub waiting: u64,
    /// Bytes of the events in the queue.
    pub waiting_bytes: u64,
    /// Age of the oldest event of the request in progress; 0 without one.
    pub oldest_age_ms: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    taken: AtomicU64,
    lost: [AtomicU64; EventLoss::ALL.len()],
    requests: [AtomicU64; RequestOutcome::ALL.len()],
    /// Events of the request in progress.
    in_flight: AtomicU64,
    /// Unix time of the oldest one; 0 for none. Those in the queue have come later, unless they are of the cluster.
    oldest_unix_ms: AtomicU64,
}

impl Counters {
    pub(super) fn count_lost(&self, why: EventLoss, events: u64) {
        if let Some(count) = self.lost.get(why as usize) {
            count.fetch_add(events, Ordering::Relaxed);
        }
    }

    pub(super) fn count_request(&self, outcome: RequestOutcome) {
        if let Some(count) = self.requests.get(outcome as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn count_taken(&self, events: u64) {
        self.taken.fetch_add(events, Ordering::Relaxed);
    }

    /// One more event has left the queue for the next request.
    pub(super) fn add_in_flight(&self, unix_ms: u64) {
        if self.in_flight.fetch_add(1, Ordering::Relaxed) == 0 {
            self.oldest_unix_ms.store(unix_ms, Ordering::Relaxed);
        } else {
            // An event of the cluster may have waited before it came into the queue.
            self.oldest_unix_ms.fetch_min(unix_ms, Ordering::Relaxed);
        }
    }

    /// Some of the events in progress are taken or lost. The others are sent again in another request.
    pub(super) fn remove_in_flight(&self, events: u64) {
        self.in_flight.fetch_sub(events, Ordering::Relaxed);
    }

    /// The request is over, whatever became of its events.
    pub(super) fn clear_in_flight(&self) {
        self.oldest_unix_ms.store(0, Ordering::Relaxed);
        self.in_flight.store(0, Ordering::Relaxed);
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Unix time of the oldest event of the request in progress.
    fn oldest_unix_ms(&self) -> Option<u64> {
        Some(self.oldest_unix_ms.load(Ordering::Relaxed)).filter(|oldest_unix_ms| *oldest_unix_ms > 0)
    }

    /// All events that were lost so far.
    pub(super) fn lost(&self) -> u64 {
        self.lost.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    pub(super) fn now(&self, waiting: u64, waiting_bytes: u64) -> WebhookCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        WebhookCounts {
            taken: read(&self.taken),
            lost: self.lost.each_ref().map(read),
            requests: self.requests.each_ref().map(read),
            waiting,
            waiting_bytes,
            oldest_age_ms: self.oldest_unix_ms().map_or(0, |oldest_unix_ms| unix_ms().saturating_sub(oldest_unix_ms)),
        }
    }
}

/// The time now.
pub(super) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
