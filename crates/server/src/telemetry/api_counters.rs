//! What the control thread counts: requests of the server API and HTTP connections.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::http::api::{ApiError, Method};

/// Counts of the control thread.
#[derive(Default)]
pub struct ControlCounters {
    requests: [AtomicU64; Method::ALL.len()],
    /// By method and place of the code in [`ApiError::CODES`].
    errors: [[AtomicU64; ApiError::CODES.len()]; Method::ALL.len()],
    refused: [AtomicU64; HttpRefusal::ALL.len()],
    connections: AtomicU64,
    /// Certificates that were read again, and those that could not be.
    certificates: [AtomicU64; 2],
}

/// Why an HTTP connection or request was refused before anyone looked into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpRefusal {
    /// The server has all the HTTP connections that it may have.
    Connections,
    /// The API answers as many requests as it may at a time.
    Busy,
    /// No API key, or not the right one.
    Unauthorized,
    /// The body is too large.
    BodyTooLarge,
    /// The body did not come in time.
    BodyTimeout,
    /// The body is not JSON, or not of the method's form.
    Malformed,
    /// A WebSocket handshake on a kept-alive connection that breaks a rule.
    Handshake,
    /// A WebSocket handshake of a page that may not.
    Origin,
    /// No further session is let in, or none from there.
    Admission,
    /// The connection said nothing for too long.
    Idle,
    /// A begun request did not come in time.
    HeadTimeout,
}

impl HttpRefusal {
    /// Every reason, in the order of the counts.
    pub const ALL: [Self; 11] = [
        Self::Connections,
        Self::Busy,
        Self::Unauthorized,
        Self::BodyTooLarge,
        Self::BodyTimeout,
        Self::Malformed,
        Self::Handshake,
        Self::Origin,
        Self::Admission,
        Self::Idle,
        Self::HeadTimeout,
    ];

    /// The reason as metrics and logs write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Busy => "busy",
            Self::Unauthorized => "unauthorized",
            Self::BodyTooLarge => "body_too_large",
            Self::BodyTimeout => "body_timeout",
            Self::Malformed => "malformed",
            Self::Handshake => "handshake",
            Self::Origin => "origin",
            Self::Admission => "admission",
            Self::Idle => "idle",
            Self::HeadTimeout => "head_timeout",
        }
    }
}

impl ControlCounters {
    /// Counts a request, and the error it was answered with.
    pub fn count_request(&self, method: Method, error: Option<&ApiError>) {
        add(self.requests.get(method as usize));
        if let Some(error) = error {
            add(self.errors.get(method as usize).and_then(|codes| codes.get(error.index())));
        }
    }

    /// Counts a refusal.
    pub fn count_refusal(&self, reason: HttpRefusal) {
        add(self.refused.get(reason as usize));
    }

    /// Certificates were read again, or could not be.
    pub fn count_certificates(&self, is_renewed: bool) {
        add(self.certificates.get(usize::from(!is_renewed)));
    }

    /// How often certificates were read again, or could not be.
    pub fn certificates(&self, is_renewed: bool) -> u64 {
        load(self.certificates.get(usize::from(!is_renewed)))
    }

    /// A connection was opened.
    pub fn connection_opened(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection was closed.
    pub fn connection_closed(&self) {
        let before = self.connections.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a connection is closed once");
    }

    /// Open connections.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Requests of a method.
    pub fn requests(&self, method: Method) -> u64 {
        load(self.requests.get(method as usize))
    }

    /// Errors of a method, with their codes; codes that never came are left out.
    pub fn errors(&self, method: Method) -> impl Iterator<Item = (u32, u64)> + '_ {
        let counts = self.errors.get(method as usize).into_iter().flatten();
        let counts = counts.map(|count| count.load(Ordering::Relaxed));
        ApiError::CODES.iter().copied().zip(counts).filter(|(_, count)| *count > 0)
    }

    /// Refusals for a reason.
    pub fn refused(&self, reason: HttpRefusal) -> u64 {
        load(self.refused.get(reason as usize))
    }
}

fn add(count: Option<&AtomicU64>) {
    if let Some(count) = count {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

fn load(count: Option<&AtomicU64>) -> u64 {
    count.map_or(0, |count| count.load(Ordering::Relaxed))
}
