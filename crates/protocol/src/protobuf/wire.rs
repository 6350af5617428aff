//! The Protobuf wire format: varints, tags and fields. Room messages use it as well.

use std::sync::Arc;

use crate::{DecodeError, EncodedPublications, Gaps};

/// The value of a field, by its wire type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number of any type except the fixed ones.
    Varint(u64),
    /// Four bytes, little-endian.
    Fixed32(u32),
    /// Eight bytes, little-endian.
    Fixed64(u64),
    /// A string, bytes, a message or a packed list.
    Bytes(&'a [u8]),
}

/// Reads the fields of a message, or the messages of a frame, from the front.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader of all of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The unread bytes.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The number and value of the next field; `None` at the end.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not Protobuf.
    pub fn field(&mut self) -> Result<Option<(u32, Value<'a>)>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = u32::try_from(self.varint()?).map_err(|_| DecodeError { what: "field number too high" })?;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => Value::Bytes(self.length_prefixed()?),
            5 => Value::Fixed32(u32::from_le_bytes(self.array()?)),
            3 | 4 => return Err(DecodeError { what: "Protobuf group" }),
            _ => return Err(DecodeError { what: "unknown wire type" }),
        };
        match tag >> 3 {
            0 => Err(DecodeError { what: "field number 0" }),
            number => Ok(Some((number, value))),
        }
    }

    /// Reads bytes that follow their length.
    ///
    /// # Errors
    /// [`DecodeError`] if there are fewer.
    pub fn length_prefixed(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.varint()?;
        self.take(length)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(DecodeError { what: "Protobuf ends too early" })?;
        self.rest = rest;
        Ok(*taken)
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = usize::try_from(length)
            .ok()
            .and_then(|length| self.rest.split_at_checked(length))
            .ok_or(DecodeError { what: "Protobuf ends too early" })?;
        self.rest = rest;
        Ok(taken)
    }

    /// Reads a varint: seven bits per byte, the lowest first, in at most ten bytes that together fit in 64 bits.
    ///
    /// # Errors
    /// [`DecodeError`] if the varint is longer or incomplete.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        if let Some((&byte, rest)) = self.rest.split_first()
            && byte < 0x80
        {
            self.rest = rest;
            return Ok(byte.into());
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, DecodeError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let Some((&byte, rest)) = self.rest.split_first() else {
                return Err(DecodeError { what: "Protobuf ends too early" });
            };
            self.rest = rest;
            if shift == 63 && byte > 1 {
                break;
            }
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(DecodeError { what: "varint too long" })
    }
}

impl<'a> Value<'a> {
    /// The bytes of a length-prefixed field.
    ///
    /// # Errors
    /// [`DecodeError`] for a field of another type.
    pub fn bytes(self) -> Result<&'a [u8], DecodeError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Varint(_) | Self::Fixed32(_) | Self::Fixed64(_) => Err(WRONG_TYPE),
        }
    }

    /// The text of a string.
    ///
    /// # Errors
    /// [`DecodeError`] for a field of another type, or if the bytes are not UTF-8.
    pub fn text(self) -> Result<&'a str, DecodeError> {
        str::from_utf8(self.bytes()?).map_err(|_| DecodeError { what: "string is not UTF-8" })
    }

    /// The number of a varint.
    ///
    /// # Errors
    /// [`DecodeError`] for a field of another type.
    pub fn varint(self) -> Result<u64, DecodeError> {
        match self {
            Self::Varint(number) => Ok(number),
            Self::Bytes(_) | Self::Fixed32(_) | Self::Fixed64(_) => Err(WRONG_TYPE),
        }
    }
}

const WRONG_TYPE: DecodeError = DecodeError { what: "Protobuf field of the wrong type" };

/// The destination of a message: a buffer, or a counter that computes the length.
pub trait ProtobufSink {
    /// Writes bytes unchanged.
    fn raw(&mut self, bytes: &[u8]);
    /// Writes a varint.
    fn varint(&mut self, number: u64);
    /// Writes the length of a message, and then the message.
    fn length_prefixed(&mut self, message: &impl ProtobufMessage);
    /// Writes publications that are already encoded.
    fn encoded(&mut self, encoded: &Arc<EncodedPublications>) {
        self.raw(encoded.bytes());
    }
}

/// A message that can be written. Repeated writes must produce the same bytes.
pub trait ProtobufMessage {
    /// Writes the fields.
    fn write(&self, sink: &mut impl ProtobufSink);
}

impl ProtobufSink for Vec<u8> {
    fn raw(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.push(number as u8);
    }

    fn length_prefixed(&mut self, message: &impl ProtobufMessage) {
        ProtobufSink::varint(self, length_of(message));
        message.write(self);
    }
}

/// A sink that leaves out publications that are already encoded.
pub(super) struct Around<'a> {
    pub(super) out: &'a mut Vec<u8>,
    pub(super) gaps: &'a mut Gaps,
}

impl ProtobufSink for Around<'_> {
    fn raw(&mut self, bytes: &[u8]) {
        self.out.raw(bytes);
    }

    fn varint(&mut self, number: u64) {
        ProtobufSink::varint(self.out, number);
    }

    fn length_prefixed(&mut self, message: &impl ProtobufMessage) {
        self.varint(length_of(message));
        message.write(self);
    }

    fn encoded(&mut self, encoded: &Arc<EncodedPublications>) {
        self.gaps.leave(encoded, self.out);
    }
}

struct Counter {
    length: u64,
}

impl ProtobufSink for Counter {
    fn raw(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
    }

    fn varint(&mut self, number: u64) {
        self.length += u64::from((number | 1).ilog2() / 7 + 1);
    }

    fn length_prefixed(&mut self, message: &impl ProtobufMessage) {
        let length = length_of(message);
        self.varint(length);
        self.length += length;
    }
}

fn length_of(message: &impl ProtobufMessage) -> u64 {
    let mut counter = Counter { length: 0 };
    message.write(&mut counter);
    counter.length
}

const VARINT: u32 = 0;
const LENGTH_PREFIXED: u32 = 2;

/// Writes a number, unless it is 0.
pub fn write_number(sink: &mut impl ProtobufSink, field: u32, number: u64) {
    if number != 0 {
        sink.varint(u64::from(field << 3 | VARINT));
        sink.varint(number);
    }
}

/// Writes a bool, unless it is false.
pub fn write_flag(sink: &mut impl ProtobufSink, field: u32, flag: bool) {
    write_number(sink, field, flag.into());
}

/// Writes a string or bytes, unless they are empty.
pub fn write_bytes(sink: &mut impl ProtobufSink, field: u32, bytes: &[u8]) {
    if !bytes.is_empty() {
        write_entry_bytes(sink, field, bytes);
    }
}

/// Writes the key or value of a map entry, even if it is empty, as official encoders do.
pub fn write_entry_bytes(sink: &mut impl ProtobufSink, field: u32, bytes: &[u8]) {
    write_length_tag(sink, field);
    sink.varint(bytes.len() as u64);
    sink.raw(bytes);
}

/// Writes a message, even if it is empty.
pub fn write_message(sink: &mut impl ProtobufSink, field: u32, message: &impl ProtobufMessage) {
    write_length_tag(sink, field);
    sink.length_prefixed(message);
}

fn write_length_tag(sink: &mut impl ProtobufSink, field: u32) {
    sink.varint(u64::from(field << 3 | LENGTH_PREFIXED));
}
