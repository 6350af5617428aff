//! The stamp in every payload of a scenario: when it should have been and when it was sent, its stream, and its number
//! in that stream.
//!
//! A payload is a JSON string of exactly the requested length, the same bytes in both encodings: the magic, then the
//! fields in hexadecimal, then filler. A reader searches for the magic, which is much cheaper than decoding the
//! surrounding message.

use memchr::memmem::Finder;

const MAGIC: &[u8; 8] = b"~stream:";
const FIELDS: usize = 4;
const HEX_DIGITS: usize = 16;

/// The smallest payload that can carry a stamp: quotes, magic and the fields.
pub const STAMPED_BYTES_MIN: usize = 2 + MAGIC.len() + FIELDS * HEX_DIGITS;

/// The stamp of a payload. Times are nanoseconds of the monotonic clock, which all processes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamStamp {
    pub intended_ns: u64,
    pub sent_ns: u64,
    pub stream: u32,
    /// Counts the publications of the stream from 0.
    pub sequence: u64,
}

/// Appends a payload of `bytes` bytes (at least [`STAMPED_BYTES_MIN`]) to `out`.
pub fn write_stamped(out: &mut Vec<u8>, stamp: StreamStamp, bytes: usize) {
    assert!(bytes >= STAMPED_BYTES_MIN, "the profile was checked before");
    out.push(b'"');
    out.extend_from_slice(MAGIC);
    for field in [stamp.intended_ns, stamp.sent_ns, stamp.stream.into(), stamp.sequence] {
        push_hex(out, field);
    }
    out.resize(out.len() + bytes - STAMPED_BYTES_MIN, b'x');
    out.push(b'"');
}

fn push_hex(out: &mut Vec<u8>, value: u64) {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    out.extend((0..16).rev().map(|nibble| DIGITS[(value >> (4 * nibble)) as usize & 15]));
}

/// Finds stamps in encoded messages.
pub struct StreamStampFinder(Finder<'static>);

impl StreamStampFinder {
    /// Prepares the search once.
    pub fn new() -> Self {
        StreamStampFinder(Finder::new(MAGIC))
    }

    /// The stamp of the publication in this message, if any.
    pub fn find(&self, message: &[u8]) -> Option<StreamStamp> {
        let mut rest = message.get(self.0.find(message)? + MAGIC.len()..)?;
        let mut field = || {
            let (digits, after) = rest.split_first_chunk::<HEX_DIGITS>()?;
            rest = after;
            parse_hex(*digits)
        };
        let (intended_ns, sent_ns, stream, sequence) = (field()?, field()?, field()?, field()?);
        Some(StreamStamp { intended_ns, sent_ns, stream: u32::try_from(stream).ok()?, sequence })
    }
}

fn parse_hex(digits: [u8; HEX_DIGITS]) -> Option<u64> {
    digits.into_iter().try_fold(0_u64, |value, digit| {
        let nibble = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u64::from(nibble))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_round_trip_in_payloads_of_any_size() {
        for bytes in [STAMPED_BYTES_MIN, 128, 1024] {
            let stamp = StreamStamp { intended_ns: 0x0123_4567_89ab_cdef, sent_ns: 7, stream: u32::MAX, sequence: 9 };
            let mut message = br#"{"push":{"channel":"c","pub":{"data":"#.to_vec();
            let before = message.len();
            write_stamped(&mut message, stamp, bytes);
            assert_eq!(message.len() - before, bytes);
            assert!(serde_json::from_slice::<String>(&message[before..]).is_ok());
            assert_eq!(StreamStampFinder::new().find(&message), Some(stamp));
            assert_eq!(StreamStampFinder::new().find(&message[..before + STAMPED_BYTES_MIN - 3]), None, "truncated");
        }
    }
}
