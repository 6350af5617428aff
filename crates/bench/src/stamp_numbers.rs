//! Numbers in a payload. A payload is a JSON string of exactly the requested length, the same bytes in both encodings: a
//! magic word, the numbers in hexadecimal, then filler. A reader searches for the magic word, which is much cheaper than
//! decoding the surrounding message.

use memchr::memmem::Finder;

const HEX_DIGITS: usize = 16;

/// The magic word of one kind of stamp.
pub type Magic = [u8; 8];

/// The smallest payload with this number of numbers: quotes, the magic word and the numbers.
pub const fn stamped_bytes_min(numbers: usize) -> usize {
    2 + size_of::<Magic>() + numbers * HEX_DIGITS
}

/// Appends a payload of `bytes` bytes (at least [`stamped_bytes_min`]) to `out`.
pub fn write_numbers(out: &mut Vec<u8>, magic: Magic, numbers: &[u64], bytes: usize) {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    let filler = bytes.checked_sub(stamped_bytes_min(numbers.len())).expect("the size was checked before");
    out.push(b'"');
    out.extend_from_slice(&magic);
    for number in numbers {
        out.extend((0..16).rev().map(|nibble| DIGITS[(number >> (4 * nibble)) as usize & 15]));
    }
    out.resize(out.len() + filler, b'x');
    out.push(b'"');
}

/// Finds the numbers of stamps in encoded messages.
pub struct NumbersFinder<const N: usize>(Finder<'static>);

impl<const N: usize> NumbersFinder<N> {
    /// Prepares the search once.
    pub fn new(magic: Magic) -> Self {
        NumbersFinder(Finder::new(&magic).into_owned())
    }

    /// The numbers of the first stamp, and the bytes after it.
    pub fn take<'a>(&self, message: &'a [u8]) -> Option<([u64; N], &'a [u8])> {
        let mut rest = message.get(self.0.find(message)? + size_of::<Magic>()..)?;
        let mut numbers = [0; N];
        for number in &mut numbers {
            let (digits, after) = rest.split_first_chunk::<HEX_DIGITS>()?;
            *number = parse_hex(*digits)?;
            rest = after;
        }
        Some((numbers, rest))
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

    const MAGIC: Magic = *b"~magic~:";

    #[test]
    fn numbers_round_trip_in_payloads_of_any_size() {
        let numbers = [0x0123_4567_89ab_cdef, 7, u64::MAX];
        for bytes in [stamped_bytes_min(3), 128, 1024] {
            let mut message = br#"{"push":{"channel":"c","pub":{"data":"#.to_vec();
            let before = message.len();
            write_numbers(&mut message, MAGIC, &numbers, bytes);
            assert_eq!(message.len() - before, bytes);
            assert!(serde_json::from_slice::<String>(&message[before..]).is_ok());
            message.extend_from_slice(b"}}}");
            let found = NumbersFinder::new(MAGIC).take(&message).unwrap();
            assert_eq!(found.0, numbers);
            assert!(found.1.ends_with(b"\"}}}"));
        }
    }

    #[test]
    fn truncated_and_altered_stamps_are_refused() {
        let finder = NumbersFinder::<2>::new(MAGIC);
        let mut payload = Vec::new();
        write_numbers(&mut payload, MAGIC, &[1, 2], stamped_bytes_min(2));
        assert!(finder.take(&payload[..payload.len() - 1]).is_some());
        assert_eq!(finder.take(&payload[..payload.len() - 2]), None);
        payload[12] = b'G';
        assert_eq!(finder.take(&payload), None);
        assert_eq!(finder.take(b"{}"), None);
    }
}
