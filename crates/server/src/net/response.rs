//! What a client is told that gets no session.

// Bytes from outside are read here.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::unreachable)
)]

use dunlin_websocket::handshake::Refusal;

/// Why a connection did not become a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// Not HTTP/1.
    Malformed,
    /// The first line is too long.
    RequestLineTooLong,
    /// The head is too long or has too many fields.
    HeadTooLarge,
    /// The head did not come in time.
    HeadTimeout,
    /// The transport has no such method.
    Method,
    /// The body is too long.
    BodyTooLarge,
    /// The body did not come in time.
    BodyTimeout,
    /// The WebSocket handshake breaks a rule of RFC 6455.
    Handshake,
    /// The page's origin is not allowed.
    Origin,
    /// The node has all the sessions it may have.
    SessionLimit,
    /// The node is going away.
    Draining,
    /// The control thread has too much to do.
    ControlBusy,
    /// Handshakes come too fast.
    HandshakeRate,
    /// The address has all the sessions it may have.
    SourceSessions,
    /// Handshakes of the address come too fast.
    SourceRate,
    /// The process has all the memory it may have.
    Memory,
}

impl RefusalReason {
    /// Every reason.
    pub const ALL: [Self; 16] = [
        Self::Malformed,
        Self::RequestLineTooLong,
        Self::HeadTooLarge,
        Self::HeadTimeout,
        Self::Method,
        Self::BodyTooLarge,
        Self::BodyTimeout,
        Self::Handshake,
        Self::Origin,
        Self::SessionLimit,
        Self::Draining,
        Self::ControlBusy,
        Self::HandshakeRate,
        Self::SourceSessions,
        Self::SourceRate,
        Self::Memory,
    ];

    /// The reason as metrics write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::RequestLineTooLong => "request_line_too_long",
            Self::HeadTooLarge => "head_too_large",
            Self::HeadTimeout => "head_timeout",
            Self::Method => "method",
            Self::BodyTooLarge => "body_too_large",
            Self::BodyTimeout => "body_timeout",
            Self::Handshake => "handshake",
            Self::Origin => "origin",
            Self::SessionLimit => "session_limit",
            Self::Draining => "draining",
            Self::ControlBusy => "control_busy",
            Self::HandshakeRate => "handshake_rate",
            Self::SourceSessions => "address_sessions",
            Self::SourceRate => "address_rate",
            Self::Memory => "memory",
        }
    }

    /// Its place among [`RefusalReason::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The status line's end, a further header field where the status wants one, and the words for who writes the client.
    /// The statuses are those of RFC 9110, section 15, and RFC 6585, section 5.
    const fn parts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Malformed | Self::Handshake => ("400 Bad Request", "", "this is not an HTTP/1.1 request"),
            Self::RequestLineTooLong => ("414 URI Too Long", "", "the request line is too long"),
            Self::HeadTooLarge => ("431 Request Header Fields Too Large", "", "the head of the request is too large"),
            Self::HeadTimeout => ("408 Request Timeout", "", "the head of the request did not come in time"),
            Self::Method => ("405 Method Not Allowed", "", "this address knows no such method"),
            Self::BodyTooLarge => ("413 Content Too Large", "", "the body of the request is too large"),
            Self::BodyTimeout => ("408 Request Timeout", "", "the body of the request did not come in time"),
            Self::Origin => ("403 Forbidden", "", "this origin may not connect here"),
            Self::SessionLimit => ("503 Service Unavailable", "Retry-After: 5\r\n", "the node is full"),
            Self::Draining => ("503 Service Unavailable", "Retry-After: 1\r\n", "the node is going away"),
            Self::ControlBusy => ("503 Service Unavailable", "Retry-After: 1\r\n", "the node is busy"),
            Self::HandshakeRate => ("503 Service Unavailable", "Retry-After: 1\r\n", "too many come at once"),
            Self::SourceSessions => ("429 Too Many Requests", "Retry-After: 5\r\n", "too many are from this address"),
            Self::SourceRate => ("429 Too Many Requests", "Retry-After: 1\r\n", "this address comes too often"),
            Self::Memory => ("503 Service Unavailable", "Retry-After: 5\r\n", "the node has no memory left"),
        }
    }
}

/// A refusal with the whole response, after which the connection is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub reason: RefusalReason,
    /// The response.
    pub response: Vec<u8>,
}

impl From<RefusalReason> for Refused {
    fn from(reason: RefusalReason) -> Self {
        let (status, field, words) = reason.parts();
        Self { reason, response: response(status, field, words) }
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        let mut response = Vec::new();
        refusal.append_response(&mut response);
        Self { reason: RefusalReason::Handshake, response }
    }
}

impl Refused {
    /// For one that may come back, after so many seconds.
    pub fn later(reason: RefusalReason, retry_after_s: u32) -> Self {
        let (status, _, words) = reason.parts();
        Self { reason, response: response(status, &format!("Retry-After: {retry_after_s}\r\n"), words) }
    }

    /// A request with a method that its transport does not have; `allowed` are those that it has.
    pub(super) fn method(allowed: &str) -> Self {
        let (status, _, words) = RefusalReason::Method.parts();
        Self { reason: RefusalReason::Method, response: response(status, &format!("Allow: {allowed}\r\n"), words) }
    }

    /// A request of another version than HTTP/1.
    pub(super) fn http_version() -> Self {
        let response = response("505 HTTP Version Not Supported", "", "this server speaks HTTP/1.1");
        Self { reason: RefusalReason::Malformed, response }
    }
}

fn response(status: &str, field: &str, words: &str) -> Vec<u8> {
    let length = words.len() + 1;
    format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\n{field}Content-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {length}\r\n\r\n{words}\n"
    )
    .into_bytes()
}
