//! The stamp in every payload: its intended publication time and its sequence number.
//!
//! A payload is a JSON string of exactly the requested length, the same bytes in both encodings: `"~dunlin:` + 16 hex
//! digits (intended time, ns of the monotonic clock) + 16 hex digits (sequence) + filler + `"`. A reader searches for
//! the magic, which is much cheaper than decoding the surrounding message.

use memchr::memmem::Finder;

const MAGIC: &[u8; 8] = b"~dunlin:";
const HEX_DIGITS: usize = 16;

/// The smallest payload that can carry a stamp: quotes, magic and two numbers.
pub const PAYLOAD_BYTES_MIN: usize = 2 + MAGIC.len() + 2 * HEX_DIGITS;

/// The stamp of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The intended time of the publication: nanoseconds of the monotonic clock, which all processes share.
    pub intended_ns: u64,
    /// Counts the publications of a run from 0.
    pub sequence: u64,
}

/// Appends a payload of `bytes` bytes (at least [`PAYLOAD_BYTES_MIN`]) to `out`.
pub fn write_payload(out: &mut Vec<u8>, stamp: Stamp, bytes: usize) {
    assert!(bytes >= PAYLOAD_BYTES_MIN, "the arguments were checked before");
    out.push(b'"');
    out.extend_from_slice(MAGIC);
    push_hex(out, stamp.intended_ns);
    push_hex(out, stamp.sequence);
    out.resize(out.len() + bytes - PAYLOAD_BYTES_MIN, b'x');
    out.push(b'"');
}

fn push_hex(out: &mut Vec<u8>, value: u64) {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    out.extend((0..16).rev().map(|nibble| DIGITS[(value >> (4 * nibble)) as usize & 15]));
}

/// Finds stamps in encoded messages.
pub struct StampFinder(Finder<'static>);

impl StampFinder {
    /// Prepares the search once.
    pub fn new() -> Self {
        StampFinder(Finder::new(MAGIC))
    }

    /// The stamp of the publication in this message, if any.
    pub fn find(&self, message: &[u8]) -> Option<Stamp> {
        self.take(message).map(|(stamp, _)| stamp)
    }

    /// The same, and the bytes after it, which contain other publications if a reply has several.
    pub fn take<'a>(&self, message: &'a [u8]) -> Option<(Stamp, &'a [u8])> {
        let (_, after) = message.split_at_checked(self.0.find(message)? + MAGIC.len())?;
        let (intended, rest) = after.split_first_chunk::<HEX_DIGITS>()?;
        let (sequence, rest) = rest.split_first_chunk::<HEX_DIGITS>()?;
        Some((Stamp { intended_ns: parse_hex(*intended)?, sequence: parse_hex(*sequence)? }, rest))
    }
}

fn parse_hex(digits: [u8; HEX_DIGITS]) -> Option<u64> {
    let mut value = 0;
    for digit in digits {
        let nibble = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        value = value << 4 | u64::from(nibble);
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_round_trip_in_payloads_of_any_size() {
        for bytes in [PAYLOAD_BYTES_MIN, 128, 1024] {
            let stamp = Stamp { intended_ns: 0x0123_4567_89ab_cdef, sequence: u64::MAX };
            let mut message = br#"{"push":{"channel":"c","pub":{"data":"#.to_vec();
            let before = message.len();
            write_payload(&mut message, stamp, bytes);
            assert_eq!(message.len() - before, bytes);
            assert!(serde_json::from_slice::<String>(&message[before..]).is_ok());
            message.extend_from_slice(b"}}}");
            assert_eq!(StampFinder::new().find(&message), Some(stamp));
        }
    }

    #[test]
    fn truncated_and_altered_stamps_are_refused() {
        let finder = StampFinder::new();
        let mut payload = Vec::new();
        write_payload(&mut payload, Stamp { intended_ns: 1, sequence: 2 }, PAYLOAD_BYTES_MIN);
        assert!(finder.find(&payload[..payload.len() - 1]).is_some());
        assert_eq!(finder.find(&payload[..payload.len() - 2]), None);
        payload[12] = b'G';
        assert_eq!(finder.find(&payload), None);
        assert_eq!(finder.find(b"{}"), None);
    }
}
