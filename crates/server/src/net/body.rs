//! The body of a request (RFC 9112, sections 6 and 7.1), put together from whatever pieces it comes in, within a limit.

// Bytes from outside are read here.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::unreachable)
)]

use super::response::RefusalReason;

/// Bytes of a chunk's first line, and of all the lines behind the last chunk.
const LINE_BYTES_MAX: usize = 256;

/// What has come of a body. What follows it is not looked at.
#[derive(Debug, PartialEq, Eq)]
pub struct Body {
    bytes: Vec<u8>,
    bytes_max: usize,
    awaited: Awaited,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// So many bytes, and that is all.
    Rest { bytes: usize },
    /// The line before a chunk.
    Size { value: usize, digits: u8, line: Line },
    /// The rest of a chunk.
    Chunk { bytes: usize },
    /// The line end behind a chunk.
    LineEnd { after_return: bool },
    /// The lines behind the last chunk, up to an empty one.
    Trailer { line_is_empty: bool, bytes: usize },
    /// Nothing.
    Nothing,
}

/// Where in the line before a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Digits,
    /// Behind them, in what nobody needs.
    Extension {
        bytes: usize,
    },
}

impl Body {
    /// One that is there already.
    pub fn whole(bytes: Vec<u8>) -> Self {
        Self { bytes, bytes_max: 0, awaited: Awaited::Nothing }
    }

    /// One of `length` bytes.
    ///
    /// # Errors
    /// [`RefusalReason::BodyTooLarge`] if that is more than `bytes_max`.
    pub fn of_length(length: u64, bytes_max: usize) -> Result<Self, RefusalReason> {
        let length = usize::try_from(length).ok().filter(|length| *length <= bytes_max);
        let bytes = length.ok_or(RefusalReason::BodyTooLarge)?;
        let awaited = if bytes == 0 { Awaited::Nothing } else { Awaited::Rest { bytes } };
        Ok(Self { bytes: Vec::new(), bytes_max, awaited })
    }

    /// One in chunks.
    pub const fn chunked(bytes_max: usize) -> Self {
        Self { bytes: Vec::new(), bytes_max, awaited: SIZE }
    }

    /// The most that it may measure.
    pub const fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Whether it is all there.
    pub const fn is_whole(&self) -> bool {
        matches!(self.awaited, Awaited::Nothing)
    }

    /// What has come.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Adds what came. Bytes behind the body are dropped.
    ///
    /// # Errors
    /// [`RefusalReason::BodyTooLarge`], or [`RefusalReason::Malformed`] for chunks that are none.
    pub fn push(&mut self, mut piece: &[u8]) -> Result<(), RefusalReason> {
        while !self.is_whole() && !piece.is_empty() {
            piece = match self.awaited {
                Awaited::Rest { bytes } => self.take(bytes, piece, Awaited::Nothing, |bytes| Awaited::Rest { bytes }),
                Awaited::Chunk { bytes } => {
                    let then = Awaited::LineEnd { after_return: false };
                    self.take(bytes, piece, then, |bytes| Awaited::Chunk { bytes })
                }
                other => {
                    let Some((byte, rest)) = piece.split_first() else { return Ok(()) };
                    self.awaited = self.after(other, *byte)?;
                    rest
                }
            };
        }
        Ok(())
    }

    /// Takes up to `bytes` bytes; they are within the limit, for that was looked at when they were announced.
    fn take<'p>(
        &mut self,
        bytes: usize,
        piece: &'p [u8],
        then: Awaited,
        rest: impl FnOnce(usize) -> Awaited,
    ) -> &'p [u8] {
        let (front, behind) = piece.split_at(bytes.min(piece.len()));
        self.bytes.extend_from_slice(front);
        self.awaited = if front.len() == bytes { then } else { rest(bytes - front.len()) };
        behind
    }

    /// What comes after one more byte of the lines around chunks.
    fn after(&self, awaited: Awaited, byte: u8) -> Result<Awaited, RefusalReason> {
        match awaited {
            Awaited::Size { value, digits, line: Line::Digits } if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16).unwrap_or_default() as usize;
                let value = value.checked_mul(16).and_then(|value| value.checked_add(digit));
                let value = value.filter(|value| self.bytes.len().saturating_add(*value) <= self.bytes_max);
                let value = value.ok_or(RefusalReason::BodyTooLarge)?;
                // Zeros in front are allowed, but not without end.
                let digits = digits.checked_add(1).ok_or(RefusalReason::Malformed)?;
                Ok(Awaited::Size { value, digits, line: Line::Digits })
            }
            Awaited::Size { digits: 0, .. } => Err(RefusalReason::Malformed),
            Awaited::Size { value: 0, line: Line::Digits | Line::Extension { .. }, .. } if byte == b'\n' => {
                Ok(Awaited::Trailer { line_is_empty: true, bytes: 0 })
            }
            Awaited::Size { value, .. } if byte == b'\n' => Ok(Awaited::Chunk { bytes: value }),
            Awaited::Size { value, digits, line } => {
                let bytes = match line {
                    Line::Digits if matches!(byte, b'\r' | b';' | b' ' | b'\t') => 1,
                    Line::Digits => return Err(RefusalReason::Malformed),
                    Line::Extension { bytes } if bytes < LINE_BYTES_MAX => bytes + 1,
                    Line::Extension { .. } => return Err(RefusalReason::HeadTooLarge),
                };
                Ok(Awaited::Size { value, digits, line: Line::Extension { bytes } })
            }
            Awaited::LineEnd { after_return: false } if byte == b'\r' => Ok(Awaited::LineEnd { after_return: true }),
            Awaited::LineEnd { .. } if byte == b'\n' => Ok(SIZE),
            Awaited::LineEnd { .. } => Err(RefusalReason::Malformed),
            Awaited::Trailer { line_is_empty: true, .. } if byte == b'\n' => Ok(Awaited::Nothing),
            Awaited::Trailer { bytes, .. } if bytes >= LINE_BYTES_MAX => Err(RefusalReason::HeadTooLarge),
            Awaited::Trailer { line_is_empty, bytes } => {
                let line_is_empty = byte == b'\n' || (line_is_empty && byte == b'\r');
                Ok(Awaited::Trailer { line_is_empty, bytes: bytes + 1 })
            }
            awaited @ (Awaited::Rest { .. } | Awaited::Chunk { .. } | Awaited::Nothing) => Ok(awaited),
        }
    }
}

const SIZE: Awaited = Awaited::Size { value: 0, digits: 0, line: Line::Digits };

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut body: Body, pieces: &[&[u8]]) -> Result<Option<Vec<u8>>, RefusalReason> {
        for piece in pieces {
            body.push(piece)?;
        }
        Ok(body.is_whole().then(|| body.into_bytes()))
    }

    #[test]
    fn a_length_is_held_against_the_limit_and_taken_exactly() {
        assert_eq!(Body::of_length(9, 8), Err(RefusalReason::BodyTooLarge));
        assert_eq!(Body::of_length(u64::MAX, 8), Err(RefusalReason::BodyTooLarge));
        assert_eq!(read(Body::of_length(0, 8).expect("empty"), &[]), Ok(Some(Vec::new())));
        let body = || Body::of_length(8, 8).expect("at the limit");
        assert_eq!(read(body(), &[b"1234567"]), Ok(None));
        assert_eq!(read(body(), &[b"1234", b"5678", b"GET / HTTP/1.1"]), Ok(Some(b"12345678".to_vec())));
    }

    #[test]
    fn chunks_are_put_together_wherever_they_are_cut() {
        for text in [
            "3\r\nabc\r\n5;name=value\r\ndefgh\r\n0\r\n\r\nGET /",
            "3 \r\nabc\r\n05\r\ndefgh\r\n000\r\nTrailer: x\r\n\r\nGET /",
            "3\nabc\n5\ndefgh\n0\n\nGET /",
        ] {
            let bytes = text.as_bytes();
            for cut in 0..bytes.len() {
                let (front, back) = bytes.split_at(cut);
                assert_eq!(read(Body::chunked(8), &[front, back]), Ok(Some(b"abcdefgh".to_vec())), "{text:?} {cut}");
            }
            let single: Vec<&[u8]> = bytes[..bytes.len() - 5].chunks(1).collect();
            assert_eq!(read(Body::chunked(8), &single), Ok(Some(b"abcdefgh".to_vec())));
            assert_eq!(read(Body::chunked(8), &single[..single.len() - 1]), Ok(None));
            assert_eq!(read(Body::chunked(7), &[bytes]), Err(RefusalReason::BodyTooLarge), "one past the limit");
        }
    }

    #[test]
    fn what_are_no_chunks_is_refused() {
        let (malformed, large) = (Err(RefusalReason::Malformed), Err(RefusalReason::BodyTooLarge));
        let head = Err(RefusalReason::HeadTooLarge);
        for (text, expected) in [
            ("\r\n".to_owned(), malformed.clone()),
            (";a\r\n".to_owned(), malformed.clone()),
            ("x\r\n".to_owned(), malformed.clone()),
            ("-1\r\n".to_owned(), malformed.clone()),
            ("3x\r\nabc".to_owned(), malformed.clone()),
            ("3\r\nabcd".to_owned(), malformed.clone()),
            ("3\r\nabc\rX".to_owned(), malformed.clone()),
            ("0".repeat(300), malformed),
            ("ffffffffffffffffffffffff\r\n".to_owned(), large),
            (format!("3;{}\r\nabc", "x".repeat(LINE_BYTES_MAX)), head.clone()),
            (format!("0\r\n{}\r\n\r\n", "x".repeat(LINE_BYTES_MAX + 1)), head),
        ] {
            assert_eq!(read(Body::chunked(8), &[text.as_bytes()]), expected, "{text:?}");
        }
    }
}
