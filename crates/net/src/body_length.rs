//! Determines the length of a request's body (RFC 9112, section 6.3), and rejects ambiguous requests.
//!
//! If two servers disagree about the length of a request, a client can hide a second request behind the first (request
//! smuggling). So this module rejects requests that the standard allows a server to repair: two lengths, even equal
//! ones; a length together with a transfer coding; and every transfer coding other than `chunked` alone.

// This module parses bytes from outside.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::unreachable)
)]

use std::str;

use super::{body::BodyEnd, response::Refused, upgrade::HEAD_FIELDS_MAX};

/// The length of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// `Content-Length`; 0 if there is neither field.
    Bytes(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

impl BodyLength {
    /// The body length that the fields of an HTTP/1.`minor` request declare.
    ///
    /// # Errors
    /// The response, if they do not declare exactly one length.
    pub(super) fn of(minor: u8, fields: &[httparse::Header<'_>]) -> Result<Self, Refused> {
        let values = |name: &'static str| {
            fields
                .iter()
                .filter(move |field| field.name.eq_ignore_ascii_case(name))
                .map(|field| field.value.trim_ascii())
        };
        let (mut codings, mut lengths) = (values("transfer-encoding"), values("content-length"));
        let (coding, length) = (codings.next(), lengths.next());
        if codings.next().is_some() || lengths.next().is_some() {
            return Err(Refused::ambiguous_length());
        }
        match (coding, length) {
            (None, None) => Ok(Self::Bytes(0)),
            (Some(coding), None) if minor == 1 && coding.eq_ignore_ascii_case(b"chunked") => Ok(Self::Chunked),
            (None, Some(length)) if !length.is_empty() && length.iter().all(u8::is_ascii_digit) => {
                // A number with too many digits exceeds every limit.
                Ok(Self::Bytes(str::from_utf8(length).ok().and_then(|length| length.parse().ok()).unwrap_or(u64::MAX)))
            }
            _ => Err(Refused::ambiguous_length()),
        }
    }

    /// A parser that finds the end of this body.
    pub const fn end(self) -> BodyEnd {
        match self {
            Self::Bytes(length) => BodyEnd::of_length(length),
            Self::Chunked => BodyEnd::chunked(u64::MAX),
        }
    }
}

/// The parts of a request head that determine where the next request begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadFraming {
    /// The length of its body.
    pub body: BodyLength,
    /// The request asks for a WebSocket, so frames may follow.
    pub asks_for_websocket: bool,
}

/// Why the beginning of the next request cannot be determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoFraming {
    /// Not a head of HTTP/1, or too many fields.
    Unreadable,
    /// The length of the body is ambiguous.
    AmbiguousLength,
}

impl HeadFraming {
    /// Parses a complete head.
    ///
    /// # Errors
    /// [`NoFraming`]
    pub fn read(head: &[u8]) -> Result<Self, NoFraming> {
        let mut fields = [httparse::EMPTY_HEADER; HEAD_FIELDS_MAX];
        let mut request = httparse::Request::new(&mut fields);
        let (Ok(httparse::Status::Complete(_)), Some(minor)) = (request.parse(head), request.version) else {
            return Err(NoFraming::Unreadable);
        };
        let body = BodyLength::of(minor, request.headers).map_err(|_| NoFraming::AmbiguousLength)?;
        let asks_for_websocket = request.headers.iter().any(|field| is_websocket_upgrade(field.name, field.value));
        Ok(Self { body, asks_for_websocket })
    }
}

/// Whether a header field asks for a WebSocket.
pub fn is_websocket_upgrade(name: &str, value: &[u8]) -> bool {
    let is_token = |token: &[u8]| token.trim_ascii().eq_ignore_ascii_case(b"websocket");
    name.eq_ignore_ascii_case("upgrade") && value.split(|byte| *byte == b',').any(is_token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str, fields: &str) -> Result<BodyLength, NoFraming> {
        HeadFraming::read(format!("{line}\r\nHost: a\r\n{fields}\r\n").as_bytes()).map(|framing| framing.body)
    }

    #[test]
    fn requests_with_an_ambiguous_length_are_refused() {
        for (fields, expected) in [
            ("", Ok(BodyLength::Bytes(0))),
            ("Content-Length: 5\r\n", Ok(BodyLength::Bytes(5))),
            ("content-length:005\r\n", Ok(BodyLength::Bytes(5))),
            ("Content-Length: 99999999999999999999999\r\n", Ok(BodyLength::Bytes(u64::MAX))),
            ("Transfer-Encoding: Chunked\r\n", Ok(BodyLength::Chunked)),
            ("Content-Length: 5\r\nContent-Length: 5\r\n", Err(NoFraming::AmbiguousLength)),
            ("Content-Length: 5\r\nContent-Length: 6\r\n", Err(NoFraming::AmbiguousLength)),
            ("Content-Length: 5, 5\r\n", Err(NoFraming::AmbiguousLength)),
            ("Content-Length: +5\r\n", Err(NoFraming::AmbiguousLength)),
            ("Content-Length: 0x5\r\n", Err(NoFraming::AmbiguousLength)),
            ("Content-Length:\r\n", Err(NoFraming::AmbiguousLength)),
            ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", Err(NoFraming::AmbiguousLength)),
            ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", Err(NoFraming::AmbiguousLength)),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", Err(NoFraming::AmbiguousLength)),
            ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", Err(NoFraming::AmbiguousLength)),
            ("Transfer-Encoding: gzip, chunked\r\n", Err(NoFraming::AmbiguousLength)),
            ("Transfer-Encoding: chunked, identity\r\n", Err(NoFraming::AmbiguousLength)),
            ("Transfer-Encoding: identity\r\n", Err(NoFraming::AmbiguousLength)),
            ("Transfer-Encoding:\r\n", Err(NoFraming::AmbiguousLength)),
            ("no field\r\n", Err(NoFraming::Unreadable)),
        ] {
            assert_eq!(read("POST / HTTP/1.1", fields), expected, "{fields:?}");
        }
        let old = read("POST / HTTP/1.0", "Transfer-Encoding: chunked\r\n");
        assert_eq!(old, Err(NoFraming::AmbiguousLength), "HTTP/1.0 has no transfer codings");
    }

    #[test]
    fn the_upgrade_token_selects_a_websocket() {
        for (name, value, expected) in [
            ("Upgrade", "websocket", true),
            ("uPgRaDe", "h2c, WebSocket", true),
            ("Upgrade", "h2c", false),
            ("Upgrade", "websockets", false),
            ("Connection", "websocket", false),
        ] {
            assert_eq!(is_websocket_upgrade(name, value.as_bytes()), expected, "{name}: {value}");
        }
    }
}
