//! The encoding of saved worlds and recordings: varints, and length-prefixed bytes.

use crate::Position;

/// Why bytes cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// The input ends early.
    Short,
    /// The input is not valid.
    Wrong,
}

/// Maximum bytes of a 64-bit number, at 7 bits each.
const NUMBER_BYTES_MAX: u32 = 10;

/// Appends a varint: 7 bits per byte, the lowest first; the top bit is set if more bytes follow.
pub(crate) fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends length-prefixed bytes.
pub(crate) fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

pub(crate) fn put_position(position: Position, out: &mut Vec<u8>) {
    put_number(u64::from(position.x), out);
    put_number(u64::from(position.y), out);
}

/// Reads what the functions above wrote. Does not allocate: the results borrow from the input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Starts at the beginning of `bytes`.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The number of unread bytes.
    pub(crate) fn left(&self) -> usize {
        self.0.len()
    }

    /// The unread bytes.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }

    /// The next `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Unreadable> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Unreadable::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Fails at the end of the input.
    pub(crate) fn byte(&mut self) -> Result<u8, Unreadable> {
        self.take(1).map(|bytes| bytes[0])
    }

    /// Eight bytes, little-endian.
    pub(crate) fn word(&mut self) -> Result<u64, Unreadable> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(Unreadable::Short)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    /// Reads a varint of up to 64 bits.
    pub(crate) fn number(&mut self) -> Result<u64, Unreadable> {
        let mut number = 0;
        for place in 0..NUMBER_BYTES_MAX {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if place == NUMBER_BYTES_MAX - 1 && byte > 1 {
                return Err(Unreadable::Wrong);
            }
            number |= bits << (7 * place);
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Unreadable::Wrong)
    }

    /// Reads a number that fits `T`.
    pub(crate) fn number_of<T: TryFrom<u64>>(&mut self) -> Result<T, Unreadable> {
        T::try_from(self.number()?).map_err(|_| Unreadable::Wrong)
    }

    /// The number of elements that follow, each of at least one byte. So an allocation for them is bounded by the size
    /// of the input.
    pub(crate) fn count(&mut self) -> Result<usize, Unreadable> {
        let count = self.number_of::<usize>()?;
        if count > self.left() { Err(Unreadable::Short) } else { Ok(count) }
    }

    /// Reads length-prefixed bytes.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Unreadable> {
        let count = self.count()?;
        self.take(count)
    }

    /// Reads a length-prefixed string.
    pub(crate) fn text(&mut self) -> Result<&'a str, Unreadable> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Unreadable::Wrong)
    }

    /// Reads `x` and `y`, one varint each.
    pub(crate) fn position(&mut self) -> Result<Position, Unreadable> {
        Ok(Position { x: self.number_of()?, y: self.number_of()? })
    }
}
