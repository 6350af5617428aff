//! Reads the body of a request (RFC 9112, sections 6 and 7.1) from pieces of any size, up to a limit.

// This module parses bytes from outside.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::unreachable)
)]

use super::response::RefusalReason;

/// Maximum length of the first line of a chunk, and of all trailer lines together.
const LINE_BYTES_MAX: usize = 256;

/// The bytes of a body that have arrived. Bytes after the body are ignored.
#[derive(Debug, PartialEq, Eq)]
pub struct RequestBody {
    bytes: Vec<u8>,
    bytes_max: usize,
    end: BodyEnd,
}

impl RequestBody {
    /// A complete body.
    pub fn whole(bytes: Vec<u8>) -> Self {
        Self { bytes, bytes_max: 0, end: BodyEnd::of_length(0) }
    }

    /// A body of `length` bytes.
    ///
    /// # Errors
    /// [`RefusalReason::BodyTooLarge`] if `length` exceeds `bytes_max`.
    pub fn of_length(length: u64, bytes_max: usize) -> Result<Self, RefusalReason> {
        if length > bytes_max as u64 {
            return Err(RefusalReason::BodyTooLarge);
        }
        Ok(Self { bytes: Vec::new(), bytes_max, end: BodyEnd::of_length(length) })
    }

    /// A body in chunks (`Transfer-Encoding: chunked`).
    pub const fn chunked(bytes_max: usize) -> Self {
        Self { bytes: Vec::new(), bytes_max, end: BodyEnd::chunked(bytes_max as u64) }
    }

    /// The maximum length of the body.
    pub const fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Whether the whole body has arrived.
    pub const fn is_whole(&self) -> bool {
        self.end.is_reached()
    }

    /// The bytes that have arrived.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The bytes so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends a received piece. Bytes after the body are dropped.
    ///
    /// # Errors
    /// [`RefusalReason::BodyTooLarge`], or [`RefusalReason::Malformed`] for invalid chunks.
    pub fn push(&mut self, mut piece: &[u8]) -> Result<(), RefusalReason> {
        while !self.is_whole() && !piece.is_empty() {
            let content = self.end.advance(&mut piece)?;
            self.bytes.extend_from_slice(content);
        }
        Ok(())
    }
}

/// Finds the end of a body in pieces of any size.
#[derive(Debug, PartialEq, Eq)]
pub struct BodyEnd {
    awaited: Awaited,
    /// Content bytes that further chunks may contain.
    content_left: u64,
}

/// The next part of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// The remaining bytes of a body with `Content-Length`.
    Rest { bytes: u64 },
    /// The line before a chunk.
    Size { value: u64, digits: u8, line: Line },
    /// The remaining bytes of a chunk.
    Chunk { bytes: u64 },
    /// The line end after a chunk.
    LineEnd { after_return: bool },
    /// The trailer lines after the last chunk, up to an empty line.
    Trailer { line: TrailerLine, bytes: usize },
    /// The body has ended.
    Nothing,
}

/// The position in the line before a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Digits,
    /// After the digits, in an extension, which is ignored.
    Extension {
        bytes: usize,
    },
    /// After the carriage return.
    Return,
}

/// The position in a trailer line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrailerLine {
    Start,
    Inside,
    /// After the carriage return.
    Return {
        is_empty: bool,
    },
}

impl BodyEnd {
    /// Finds the end of a body of `length` bytes.
    pub const fn of_length(length: u64) -> Self {
        let awaited = if length == 0 { Awaited::Nothing } else { Awaited::Rest { bytes: length } };
        Self { awaited, content_left: 0 }
    }

    /// Finds the end of a chunked body whose chunks contain at most `content_max` bytes in total.
    pub const fn chunked(content_max: u64) -> Self {
        Self { awaited: SIZE, content_left: content_max }
    }

    /// Whether the end of the body was found.
    pub const fn is_reached(&self) -> bool {
        matches!(self.awaited, Awaited::Nothing)
    }

    /// Removes a part of the body from the front of `piece` and returns the content in this part.
    ///
    /// # Errors
    /// As [`RequestBody::push`].
    pub fn advance<'p>(&mut self, piece: &mut &'p [u8]) -> Result<&'p [u8], RefusalReason> {
        let whole = *piece;
        match self.awaited {
            Awaited::Nothing => Ok(&[]),
            Awaited::Rest { bytes } | Awaited::Chunk { bytes } => {
                let taken = usize::try_from(bytes).unwrap_or(usize::MAX).min(whole.len());
                let (content, behind) = whole.split_at(taken);
                *piece = behind;
                let bytes = bytes - taken as u64;
                self.awaited = match self.awaited {
                    Awaited::Rest { .. } if bytes == 0 => Awaited::Nothing,
                    Awaited::Rest { .. } => Awaited::Rest { bytes },
                    _ if bytes == 0 => Awaited::LineEnd { after_return: false },
                    _ => Awaited::Chunk { bytes },
                };
                Ok(content)
            }
            awaited => {
                let Some((byte, behind)) = whole.split_first() else { return Ok(&[]) };
                self.awaited = self.after(awaited, *byte)?;
                *piece = behind;
                Ok(&[])
            }
        }
    }

    /// The next state after one more byte of the lines around chunks. A line must end with CR LF: another server may
    /// treat a single LF as a part of the line.
    fn after(&mut self, awaited: Awaited, byte: u8) -> Result<Awaited, RefusalReason> {
        match awaited {
            Awaited::Size { value, digits, line: Line::Digits } if byte.is_ascii_hexdigit() => {
                let digit = u64::from(char::from(byte).to_digit(16).unwrap_or_default());
                let value = value.checked_mul(16).and_then(|value| value.checked_add(digit));
                let value = value.filter(|value| *value <= self.content_left).ok_or(RefusalReason::BodyTooLarge)?;
                // Leading zeros are valid, but their number is limited.
                let digits = digits.checked_add(1).ok_or(RefusalReason::Malformed)?;
                Ok(Awaited::Size { value, digits, line: Line::Digits })
            }
            Awaited::Size { digits: 0, .. } => Err(RefusalReason::Malformed),
            Awaited::Size { value, line: Line::Return, .. } => match (byte, value) {
                (b'\n', 0) => Ok(Awaited::Trailer { line: TrailerLine::Start, bytes: 0 }),
                (b'\n', value) => {
                    self.content_left -= value;
                    Ok(Awaited::Chunk { bytes: value })
                }
                _ => Err(RefusalReason::Malformed),
            },
            Awaited::Size { value, digits, line } => {
                let line = match (line, byte) {
                    (_, b'\n') => return Err(RefusalReason::Malformed),
                    (_, b'\r') => Line::Return,
                    (Line::Digits, b';' | b' ' | b'\t') => Line::Extension { bytes: 1 },
                    (Line::Extension { bytes }, _) if bytes < LINE_BYTES_MAX => Line::Extension { bytes: bytes + 1 },
                    (Line::Extension { .. }, _) => return Err(RefusalReason::HeadTooLarge),
                    (Line::Digits | Line::Return, _) => return Err(RefusalReason::Malformed),
                };
                Ok(Awaited::Size { value, digits, line })
            }
            Awaited::LineEnd { after_return: false } if byte == b'\r' => Ok(Awaited::LineEnd { after_return: true }),
            Awaited::LineEnd { after_return: true } if byte == b'\n' => Ok(SIZE),
            Awaited::LineEnd { .. } => Err(RefusalReason::Malformed),
            Awaited::Trailer { bytes, .. } if bytes >= LINE_BYTES_MAX => Err(RefusalReason::HeadTooLarge),
            Awaited::Trailer { line, bytes } => {
                let line = match (line, byte) {
                    (TrailerLine::Return { is_empty: true }, b'\n') => return Ok(Awaited::Nothing),
                    (TrailerLine::Return { is_empty: false }, b'\n') => TrailerLine::Start,
                    (TrailerLine::Return { .. }, _) | (_, b'\n') => return Err(RefusalReason::Malformed),
                    (line, b'\r') => TrailerLine::Return { is_empty: line == TrailerLine::Start },
                    _ => TrailerLine::Inside,
                };
                Ok(Awaited::Trailer { line, bytes: bytes + 1 })
            }
            awaited @ (Awaited::Rest { .. } | Awaited::Chunk { .. } | Awaited::Nothing) => Ok(awaited),
        }
    }
}

const SIZE: Awaited = Awaited::Size { value: 0, digits: 0, line: Line::Digits };

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut body: RequestBody, pieces: &[&[u8]]) -> Result<Option<Vec<u8>>, RefusalReason> {
        for piece in pieces {
            body.push(piece)?;
        }
        Ok(body.is_whole().then(|| body.into_bytes()))
    }

    #[test]
    fn content_length_is_limited_and_read_exactly() {
        assert_eq!(RequestBody::of_length(9, 8), Err(RefusalReason::BodyTooLarge));
        assert_eq!(RequestBody::of_length(u64::MAX, 8), Err(RefusalReason::BodyTooLarge));
        assert_eq!(read(RequestBody::of_length(0, 8).expect("empty"), &[]), Ok(Some(Vec::new())));
        let body = || RequestBody::of_length(8, 8).expect("at the limit");
        assert_eq!(read(body(), &[b"1234567"]), Ok(None));
        assert_eq!(read(body(), &[b"1234", b"5678", b"GET / HTTP/1.1"]), Ok(Some(b"12345678".to_vec())));
    }

    #[test]
    fn chunks_are_assembled_at_any_split() {
        for text in [
            "3\r\nabc\r\n5;name=value\r\ndefgh\r\n0\r\n\r\nGET /",
            "3 \r\nabc\r\n05\r\ndefgh\r\n000\r\nTrailer: x\r\n\r\nGET /",
        ] {
            let bytes = text.as_bytes();
            for cut in 0..bytes.len() {
                let (front, back) = bytes.split_at(cut);
                assert_eq!(
                    read(RequestBody::chunked(8), &[front, back]),
                    Ok(Some(b"abcdefgh".to_vec())),
                    "{text:?} {cut}"
                );
            }
            let single: Vec<&[u8]> = bytes[..bytes.len() - 5].chunks(1).collect();
            assert_eq!(read(RequestBody::chunked(8), &single), Ok(Some(b"abcdefgh".to_vec())));
            assert_eq!(read(RequestBody::chunked(8), &single[..single.len() - 1]), Ok(None));
            assert_eq!(read(RequestBody::chunked(7), &[bytes]), Err(RefusalReason::BodyTooLarge), "one past the limit");
        }
    }

    #[test]
    fn invalid_chunks_are_refused() {
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
            ("3\nabc\r\n".to_owned(), malformed.clone()),
            ("3\rabc\r\n".to_owned(), malformed.clone()),
            ("3;a\nabc\r\n".to_owned(), malformed.clone()),
            ("3;a\rb\nabc\r\n".to_owned(), malformed.clone()),
            ("3\r\nabc\n0\r\n".to_owned(), malformed.clone()),
            ("0\r\nA: b\n\r\n".to_owned(), malformed.clone()),
            ("0\r\n\n".to_owned(), malformed.clone()),
            ("0".repeat(300), malformed),
            ("ffffffffffffffffffffffff\r\n".to_owned(), large),
            (format!("3;{}\r\nabc", "x".repeat(LINE_BYTES_MAX)), head.clone()),
            (format!("0\r\n{}\r\n\r\n", "x".repeat(LINE_BYTES_MAX + 1)), head),
        ] {
            assert_eq!(read(RequestBody::chunked(8), &[text.as_bytes()]), expected, "{text:?}");
        }
    }
}
