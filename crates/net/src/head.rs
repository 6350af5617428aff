//! Finds the end of the first request's head in pieces of any size, within limits.

// This module parses bytes from outside.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::unreachable)
)]

use super::response::RefusalReason;

/// Limits of a request head.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// Maximum length of the whole head.
    pub head_bytes_max: usize,
    /// Maximum length of the request line.
    pub request_line_bytes_max: usize,
}

/// The received part of a head, possibly with bytes that follow it. Uses no heap memory before the first byte.
#[derive(Debug, Default)]
pub struct HeadBuffer {
    bytes: Vec<u8>,
    /// The head does not end before this index. Each byte is examined a bounded number of times, for any number of
    /// pieces.
    scanned: usize,
}

/// The state of a head after a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The end has not arrived.
    Partial,
    /// The head ends at `head_len` and is within the limits.
    Whole { head_len: usize },
    /// The head is invalid or exceeds a limit.
    Refused(RefusalReason),
}

impl HeadBuffer {
    /// All received bytes, beginning with the head.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All received bytes, owned.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Appends a received piece.
    pub(super) fn push(&mut self, piece: &[u8], limits: &HeadLimits) -> Progress {
        self.bytes.extend_from_slice(piece);
        let start = self.bytes.iter().take_while(|byte| is_line_end(**byte)).count();
        let Some((_, head)) = self.bytes.split_at_checked(start) else { return Progress::Partial };
        // Reject bytes that cannot begin a method at once, such as a TLS hello.
        if start > LINE_ENDS_BEFORE_MAX || head.first().is_some_and(|byte| !byte.is_ascii_alphabetic()) {
            return Progress::Refused(RefusalReason::Malformed);
        }
        let line_len = memchr::memchr(b'\n', head).map_or(head.len(), |at| at + 1);
        if line_len > limits.request_line_bytes_max {
            return Progress::Refused(RefusalReason::RequestLineTooLong);
        }
        let end = end_of_head(&self.bytes, self.scanned.max(start));
        // The end of the head may begin in the last three bytes.
        self.scanned = self.bytes.len().saturating_sub(3);
        match end {
            Some(head_len) if head_len <= limits.head_bytes_max => Progress::Whole { head_len },
            None if self.bytes.len() <= limits.head_bytes_max => Progress::Partial,
            _ => Progress::Refused(RefusalReason::HeadTooLarge),
        }
    }
}

/// The end of the first empty line that begins after `from`. Lines may end with a single LF (RFC 9112, section 2.2).
fn end_of_head(bytes: &[u8], from: usize) -> Option<usize> {
    let (_, rest) = bytes.split_at_checked(from)?;
    memchr::memchr_iter(b'\n', rest).find_map(|at| {
        let end = from + at + 1;
        match bytes.split_at_checked(end)?.1 {
            [b'\n', ..] => Some(end + 1),
            [b'\r', b'\n', ..] => Some(end + 2),
            _ => None,
        }
    })
}

/// Maximum number of CR and LF bytes before a request. A server should ignore one empty line (RFC 9112, section 2.2).
const LINE_ENDS_BEFORE_MAX: usize = 4;

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits = HeadLimits { head_bytes_max: 64, request_line_bytes_max: 32 };

    fn push_all(pieces: &[&[u8]]) -> Progress {
        let mut head = HeadBuffer::default();
        let mut progress = pieces.iter().map(|piece| head.push(piece, &LIMITS));
        progress.find(|progress| *progress != Progress::Partial).unwrap_or(Progress::Partial)
    }

    #[test]
    fn the_end_of_a_head_is_found_at_any_split() {
        for request in ["GET / HTTP/1.1\r\nHost: a\r\n\r\nrest", "\r\nGET / HTTP/1.1\nHost: a\n\nrest", "A\r\n\r\nrest"]
        {
            let (bytes, head_len) = (request.as_bytes(), request.len() - 4);
            for cut in 0..=bytes.len() {
                let (front, back) = bytes.split_at(cut);
                assert_eq!(push_all(&[front, back]), Progress::Whole { head_len }, "{request:?} cut at {cut}");
            }
            let single: Vec<&[u8]> = bytes[..head_len].chunks(1).collect();
            assert_eq!(push_all(&single), Progress::Whole { head_len });
            assert_eq!(push_all(&single[..head_len - 1]), Progress::Partial);
        }
    }

    #[test]
    fn limits_hold_at_their_values_and_not_past_them() {
        let line = |length: usize| format!("{}\r\n", "a".repeat(length - 2));
        let long = |length: usize| format!("{}b:{}\r\n\r\n", line(10), "c".repeat(length - 16));
        let cases = [
            (line(32) + "\r\n", Progress::Whole { head_len: 34 }),
            (line(33) + "\r\n", Progress::Refused(RefusalReason::RequestLineTooLong)),
            ("a".repeat(32), Progress::Partial),
            ("a".repeat(33), Progress::Refused(RefusalReason::RequestLineTooLong)),
            (long(64), Progress::Whole { head_len: 64 }),
            (long(65), Progress::Refused(RefusalReason::HeadTooLarge)),
            (line(10) + &"b".repeat(54), Progress::Partial),
            (line(10) + &"b".repeat(55), Progress::Refused(RefusalReason::HeadTooLarge)),
            ("\r\n".repeat(2), Progress::Partial),
            ("\r\n".repeat(3), Progress::Refused(RefusalReason::Malformed)),
            (line(10) + "\r\n" + &"body".repeat(100), Progress::Whole { head_len: 12 }),
        ];
        for (request, expected) in cases {
            assert_eq!(push_all(&[request.as_bytes()]), expected, "{request:?}");
        }
    }

    #[test]
    fn an_invalid_method_is_refused_at_its_first_byte() {
        for byte in [0x16, 0, b' ', b'1', 0x80, 0xff] {
            assert_eq!(push_all(&[&[byte]]), Progress::Refused(RefusalReason::Malformed), "{byte:#x}");
        }
    }
}
