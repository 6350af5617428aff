//! Scans the requests of a kept-alive connection before the HTTP library parses them, and stops the first request with
//! an ambiguous length. The library would repair such a request silently, so the check must come first.

// This module parses bytes from outside.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::unreachable)
)]

use super::{
    body::BodyEnd,
    body_length::{HeadFraming, NoFraming},
    head::{HeadBuffer, HeadLimits, Progress},
    response::RefusalReason,
};

/// Scans the bytes of one connection; see the module's documentation.
#[derive(Debug)]
pub struct RequestScanner {
    limits: HeadLimits,
    at: At,
}

#[derive(Debug)]
enum At {
    Head(HeadBuffer),
    Body(BodyEnd),
    /// In a request that the HTTP library rejects. No further request may follow.
    Last,
    /// After a request for a WebSocket. If the response is 101, frames follow; otherwise the connection ends.
    Frames,
    /// After a request that was stopped.
    Stopped,
}

/// The part of a piece that may be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scanned {
    /// The whole piece.
    All,
    /// The first `good` bytes. The following head must not be passed on.
    BadHead {
        /// Number of bytes before the head.
        good: usize,
    },
    /// The first `good` bytes. Invalid chunks of a body follow.
    BadBody {
        /// Number of bytes before the invalid chunk.
        good: usize,
    },
}

impl RequestScanner {
    /// A scanner at the beginning of a connection's first request.
    pub fn new(limits: HeadLimits) -> Self {
        Self { limits, at: At::Head(HeadBuffer::default()) }
    }

    /// Whether the beginning of the next request is unknown, although the last request was passed on.
    pub const fn is_lost(&self) -> bool {
        matches!(self.at, At::Last)
    }

    /// Scans the next piece.
    pub fn scan(&mut self, piece: &[u8]) -> Scanned {
        let mut rest = piece;
        while !rest.is_empty() {
            let good = piece.len() - rest.len();
            match &mut self.at {
                At::Last | At::Frames => return Scanned::All,
                At::Stopped => return Scanned::BadBody { good },
                At::Body(end) => {
                    if end.advance(&mut rest).is_err() {
                        self.at = At::Stopped;
                        return Scanned::BadBody { good };
                    }
                    if end.is_reached() {
                        self.at = At::Head(HeadBuffer::default());
                    }
                }
                At::Head(head) => {
                    let before = head.bytes().len();
                    match head.push(rest, &self.limits) {
                        Progress::Partial => return Scanned::All,
                        Progress::Refused(RefusalReason::HeadTooLarge | RefusalReason::RequestLineTooLong) => {
                            self.at = At::Last;
                        }
                        Progress::Refused(_) => {
                            self.at = At::Stopped;
                            return Scanned::BadHead { good };
                        }
                        Progress::Whole { head_len } => {
                            let framing = HeadFraming::read(head.bytes().get(..head_len).unwrap_or_default());
                            rest = rest.get(head_len.saturating_sub(before)..).unwrap_or_default();
                            self.at = match framing {
                                Ok(framing) if framing.asks_for_websocket => At::Frames,
                                Ok(framing) => At::behind_head(framing.body.end()),
                                Err(NoFraming::Unreadable) => At::Last,
                                Err(NoFraming::AmbiguousLength) => {
                                    self.at = At::Stopped;
                                    return Scanned::BadHead { good };
                                }
                            };
                        }
                    }
                }
            }
        }
        Scanned::All
    }
}

impl At {
    fn behind_head(end: BodyEnd) -> Self {
        if end.is_reached() { Self::Head(HeadBuffer::default()) } else { Self::Body(end) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits = HeadLimits { head_bytes_max: 256, request_line_bytes_max: 64 };

    /// What is passed on of pieces of `step` bytes, and how it ended.
    fn scan(text: &str, step: usize) -> (String, Scanned) {
        let mut scanner = RequestScanner::new(LIMITS);
        let mut passed = Vec::new();
        for piece in text.as_bytes().chunks(step) {
            match scanner.scan(piece) {
                Scanned::All => passed.extend_from_slice(piece),
                stopped @ (Scanned::BadHead { good } | Scanned::BadBody { good }) => {
                    passed.extend_from_slice(&piece[..good]);
                    assert_eq!(scanner.scan(b"GET"), Scanned::BadBody { good: 0 }, "nothing more is passed on");
                    return (String::from_utf8(passed).unwrap(), stopped);
                }
            }
        }
        (String::from_utf8(passed).unwrap(), Scanned::All)
    }

    const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";

    #[test]
    fn requests_with_one_length_pass_at_any_split() {
        let all = [GET, POST, CHUNKED, GET, CHUNKED, POST].concat();
        for step in 1..all.len() {
            assert_eq!(scan(&all, step), (all.clone(), Scanned::All), "{step}");
        }
    }

    #[test]
    fn the_first_ambiguous_request_stops_the_connection_behind_any_other() {
        for bad in [
            "POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
            "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        ] {
            for before in ["", GET, POST, CHUNKED] {
                let all = [before, bad, GET].concat();
                let (passed, stopped) = scan(&all, all.len());
                assert_eq!((passed.as_str(), stopped), (before, Scanned::BadHead { good: before.len() }), "{bad:?}");
                for step in 1..all.len() {
                    let (passed, stopped) = scan(&all, step);
                    assert!(matches!(stopped, Scanned::BadHead { .. }), "{bad:?} in steps of {step}");
                    assert!(passed.len() < before.len() + bad.find("\r\n\r\n").unwrap() + 4, "the head is not whole");
                }
            }
        }
    }

    #[test]
    fn invalid_chunks_stop_the_connection() {
        let bad = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n";
        let (passed, stopped) = scan(bad, bad.len());
        assert!(matches!(stopped, Scanned::BadBody { .. }) && passed.ends_with("\r\n\r\n3"), "{passed:?}");
    }

    #[test]
    fn frames_after_an_upgrade_request_are_passed_on() {
        let mut scanner = RequestScanner::new(LIMITS);
        let upgrade = "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n";
        let frames = "\u{1}POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n";
        assert_eq!(scanner.scan([GET, upgrade, frames].concat().as_bytes()), Scanned::All);
        assert!(!scanner.is_lost());
    }

    #[test]
    fn requests_that_the_http_library_refuses_are_passed_on_last() {
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(100));
        let large = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "a".repeat(300));
        for last in ["GET / HTTP/1.1\r\nno field\r\n\r\n", "GET / HTTP/9\r\n\r\n", &long, &large] {
            let mut scanner = RequestScanner::new(LIMITS);
            assert_eq!(scanner.scan([GET, last, GET].concat().as_bytes()), Scanned::All, "{last:?}");
            assert!(scanner.is_lost(), "{last:?}");
        }
        let mut scanner = RequestScanner::new(LIMITS);
        assert_eq!(scanner.scan(GET.as_bytes()), Scanned::All);
        assert!(!scanner.is_lost());
    }

    #[test]
    fn an_invalid_method_byte_stops_the_connection() {
        for bad in ["\u{1}", "\r\n\r\n\r\n"] {
            let all = [GET, bad, GET].concat();
            assert_eq!(scan(&all, all.len()), (GET.to_owned(), Scanned::BadHead { good: GET.len() }), "{bad:?}");
        }
    }
}
