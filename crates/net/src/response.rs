//! HTTP responses to clients whose connection does not become a session.

// This module parses bytes from outside.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::unreachable)
)]

use dunlin_websocket::handshake::HandshakeRefusal;

/// Why a connection did not become a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// Not a request of HTTP/1.
    Malformed,
    /// The request line is too long.
    RequestLineTooLong,
    /// The head is too long or has too many fields.
    HeadTooLarge,
    /// The head did not arrive in time.
    HeadTimeout,
    /// The transport does not support the method.
    Method,
    /// The body is too long.
    BodyTooLarge,
    /// The body did not arrive in time.
    BodyTimeout,
    /// The connect request of a unidirectional stream cannot be decoded.
    Connect,
    /// The WebSocket handshake violates RFC 6455.
    Handshake,
    /// The page's origin is not allowed.
    Origin,
    /// The node has reached its limit on sessions.
    SessionLimit,
    /// The node is shutting down.
    Draining,
    /// The control thread's queue is full.
    ControlBusy,
    /// The node has reached its limit on handshakes per second.
    HandshakeRate,
    /// The address has reached its limit on sessions.
    SourceSessions,
    /// The address has reached its limit on handshakes per second.
    SourceRate,
    /// The process has reached its limit on memory.
    Memory,
    /// The address has opened too many further connections while this one had no session.
    AddressPending,
}

impl RefusalReason {
    /// All reasons.
    pub const ALL: [Self; 18] = [
        Self::Malformed,
        Self::RequestLineTooLong,
        Self::HeadTooLarge,
        Self::HeadTimeout,
        Self::Method,
        Self::BodyTooLarge,
        Self::BodyTimeout,
        Self::Connect,
        Self::Handshake,
        Self::Origin,
        Self::SessionLimit,
        Self::Draining,
        Self::ControlBusy,
        Self::HandshakeRate,
        Self::SourceSessions,
        Self::SourceRate,
        Self::Memory,
        Self::AddressPending,
    ];

    /// The reason as a metric label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::RequestLineTooLong => "request_line_too_long",
            Self::HeadTooLarge => "head_too_large",
            Self::HeadTimeout => "head_timeout",
            Self::Method => "method",
            Self::BodyTooLarge => "body_too_large",
            Self::BodyTimeout => "body_timeout",
            Self::Connect => "connect",
            Self::Handshake => "handshake",
            Self::Origin => "origin",
            Self::SessionLimit => "session_limit",
            Self::Draining => "draining",
            Self::ControlBusy => "control_busy",
            Self::HandshakeRate => "handshake_rate",
            Self::SourceSessions => "address_sessions",
            Self::SourceRate => "address_rate",
            Self::Memory => "memory",
            Self::AddressPending => "address_pending",
        }
    }

    /// The index in [`RefusalReason::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The rest of the status line, an additional header field if the status requires one, and a message for the
    /// client's developer. RFC 9110, section 15, and RFC 6585, section 5, define the statuses.
    const fn parts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Malformed | Self::Handshake => ("400 Bad Request", "", "this is not an HTTP/1.1 request"),
            Self::RequestLineTooLong => ("414 URI Too Long", "", "the request line is too long"),
            Self::HeadTooLarge => ("431 Request Header Fields Too Large", "", "the head of the request is too large"),
            Self::HeadTimeout => ("408 Request Timeout", "", "the head of the request did not arrive in time"),
            Self::Method => ("405 Method Not Allowed", "", "this path does not support the method"),
            Self::BodyTooLarge => ("413 Content Too Large", "", "the body of the request is too large"),
            Self::BodyTimeout => ("408 Request Timeout", "", "the body of the request did not arrive in time"),
            Self::Connect => {
                ("400 Bad Request", "", "the connect request is not a JSON object with fields of `connect`")
            }
            Self::Origin => ("403 Forbidden", "", "this origin is not allowed; see client.allowed_origins"),
            Self::SessionLimit => {
                ("503 Service Unavailable", "Retry-After: 5\r\n", "the node has reached its limit on sessions")
            }
            Self::Draining => ("503 Service Unavailable", "Retry-After: 1\r\n", "the node is shutting down"),
            Self::ControlBusy => ("503 Service Unavailable", "Retry-After: 1\r\n", "the node is busy"),
            Self::HandshakeRate => ("503 Service Unavailable", "Retry-After: 1\r\n", "too many handshakes per second"),
            Self::SourceSessions => {
                ("429 Too Many Requests", "Retry-After: 5\r\n", "too many sessions from this address")
            }
            Self::SourceRate => {
                ("429 Too Many Requests", "Retry-After: 1\r\n", "too many handshakes per second from this address")
            }
            Self::AddressPending => {
                ("429 Too Many Requests", "Retry-After: 1\r\n", "too many incomplete connections from this address")
            }
            Self::Memory => ("503 Service Unavailable", "Retry-After: 5\r\n", "the node has reached its memory limit"),
        }
    }
}

/// A refusal with its complete response. The connection is closed afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The reason, for metrics and logs.
    pub reason: RefusalReason,
    /// The response's bytes.
    pub response: Vec<u8>,
}

impl From<RefusalReason> for Refused {
    fn from(reason: RefusalReason) -> Self {
        let (status, field, words) = reason.parts();
        Self { reason, response: response(status, field, words) }
    }
}

impl From<HandshakeRefusal> for Refused {
    fn from(refusal: HandshakeRefusal) -> Self {
        let mut response = Vec::new();
        refusal.append_response(&mut response);
        Self { reason: RefusalReason::Handshake, response }
    }
}

impl Refused {
    /// A refusal with `Retry-After: retry_after_s`.
    pub fn later(reason: RefusalReason, retry_after_s: u32) -> Self {
        let (status, _, words) = reason.parts();
        Self { reason, response: response(status, &format!("Retry-After: {retry_after_s}\r\n"), words) }
    }

    /// A refusal of a method that the transport does not support; `allowed` lists the supported ones.
    pub(super) fn method(allowed: &str) -> Self {
        let (status, _, words) = RefusalReason::Method.parts();
        Self { reason: RefusalReason::Method, response: response(status, &format!("Allow: {allowed}\r\n"), words) }
    }

    /// A refusal of a request with an ambiguous length.
    pub(super) fn ambiguous_length() -> Self {
        let response = response("400 Bad Request", "", "the length of the request's body is ambiguous");
        Self { reason: RefusalReason::Malformed, response }
    }

    /// A refusal of an HTTP version other than 1.
    pub(super) fn http_version() -> Self {
        let response = response("505 HTTP Version Not Supported", "", "only HTTP/1.1 is supported");
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
