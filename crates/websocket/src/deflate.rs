//! permessage-deflate (RFC 7692) without context takeover in both directions: each message is compressed independently.
//! So one [`Inflater`] and one [`Deflater`] serve all connections of a thread, idle connections need no memory for
//! compression, and a message is compressed once for many receivers.

use std::{fmt, str};

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::{MessageKind, ReceiveError, WebSocketLimits};

/// The bytes that a sender removes from the end of a message (RFC 7692, section 7.2.1).
const LEFT_OFF: &[u8] = &[0x00, 0x00, 0xff, 0xff];

/// The bytes that are appended for the decoder: the removed bytes, and an empty final block. The decoder then reports
/// its end only if the message is complete.
const BEHIND_MESSAGE: &[u8] = &[0x00, 0x00, 0xff, 0xff, 0x01, 0x00, 0x00, 0xff, 0xff];

/// A message may always expand to this length, regardless of its compression ratio (within the limit for messages).
pub const RATIO_FREE_BYTES: usize = 16 * 1024;

/// Initial capacity of the output buffer.
const ROOM_BYTES_MIN: usize = 1_024;

/// A larger buffer is shrunk before the next message.
const ROOM_BYTES_KEPT: usize = 64 * 1024;

/// Decompresses messages of any connection. Uses no heap memory before the first message.
#[derive(Default)]
pub struct Inflater {
    stream: Option<Decompress>,
    message: Vec<u8>,
}

impl Inflater {
    /// Decompresses `payload`. The output never exceeds [`WebSocketLimits::inflated_bytes_max`]; this limit and the length of
    /// `payload` bound the work.
    ///
    /// # Errors
    /// [`ReceiveError::MessageTooBig`], [`ReceiveError::DeflateInvalid`], and [`ReceiveError::TextNotUtf8`] for invalid
    /// UTF-8 in a text message. The caller must close the connection.
    pub fn inflate(
        &mut self,
        kind: MessageKind,
        payload: &[u8],
        limits: &WebSocketLimits,
    ) -> Result<&[u8], ReceiveError> {
        self.message.clear();
        self.message.shrink_to(ROOM_BYTES_KEPT);
        let stream = self.stream.get_or_insert_with(|| Decompress::new(false));
        stream.reset(false);
        let by_ratio = payload.len().saturating_mul(limits.inflated_ratio_max).max(RATIO_FREE_BYTES);
        let mut inflating =
            Inflating { stream, message: &mut self.message, bytes_max: limits.inflated_bytes_max.min(by_ratio) };
        match inflating.take(payload)? {
            Taken::All => match inflating.take(BEHIND_MESSAGE)? {
                Taken::ToItsEnd { left: [] } => {}
                Taken::ToItsEnd { .. } | Taken::All => return Err(ReceiveError::DeflateInvalid),
            },
            // A final block from the sender: a byte of padding may follow (section 7.2.3.4).
            Taken::ToItsEnd { left: [] | [0x00] } => {}
            Taken::ToItsEnd { .. } => return Err(ReceiveError::DeflateInvalid),
        }
        if kind == MessageKind::Text {
            str::from_utf8(&self.message).map_err(|_| ReceiveError::TextNotUtf8)?;
        }
        Ok(&self.message)
    }

    /// Capacity of the output buffer.
    pub fn room_bytes(&self) -> usize {
        self.message.capacity()
    }
}

impl fmt::Debug for Inflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inflater").field("room_bytes", &self.room_bytes()).finish_non_exhaustive()
    }
}

struct Inflating<'i> {
    stream: &'i mut Decompress,
    message: &'i mut Vec<u8>,
    bytes_max: usize,
}

/// The result of decompressing a piece.
enum Taken<'p> {
    All,
    /// The final block ended before these bytes.
    ToItsEnd {
        left: &'p [u8],
    },
}

impl Inflating<'_> {
    fn take<'p>(&mut self, piece: &'p [u8]) -> Result<Taken<'p>, ReceiveError> {
        let mut left = piece;
        loop {
            if self.message.len() == self.message.capacity() {
                let more = self.message.len().max(ROOM_BYTES_MIN);
                // One byte beyond the limit is enough to detect that it is exceeded.
                self.message.reserve_exact(more.min(self.bytes_max + 1 - self.message.len()));
            }
            let (taken_before, given_before) = (self.stream.total_in(), self.message.len());
            let status = self
                .stream
                .decompress_vec(left, self.message, FlushDecompress::None)
                .map_err(|_| ReceiveError::DeflateInvalid)?;
            let taken = (self.stream.total_in() - taken_before) as usize;
            left = left.split_at_checked(taken).unwrap_or_default().1;
            if self.message.len() > self.bytes_max {
                return Err(ReceiveError::MessageTooBig);
            }
            if status == Status::StreamEnd {
                return Ok(Taken::ToItsEnd { left });
            }
            if self.message.len() < self.message.capacity() {
                match left {
                    [] => return Ok(Taken::All),
                    // There is input and space, but no progress.
                    _ if taken == 0 && self.message.len() == given_before => return Err(ReceiveError::DeflateInvalid),
                    _ => {}
                }
            }
        }
    }
}

/// Compresses messages independently of each other.
pub struct Deflater {
    stream: Compress,
}

impl Deflater {
    /// A compressor with a level from 1 (fast) to 9 (small); other values are clamped.
    pub fn new(level: u8) -> Self {
        Self { stream: Compress::new(Compression::new(u32::from(level.clamp(1, 9))), false) }
    }

    /// Appends the compressed `message` to `out`, for frames with the reserved bit set. Returns `false`, and leaves
    /// `out` unchanged, if compression would not make it shorter.
    pub fn deflate(&mut self, message: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        // Reserve the maximum output size. If the buffer were too small, the encoder would keep pending output; after a
        // reset, zlib-rs continues with a smaller buffer until it panics.
        out.reserve(compressed_len_max(message.len()));
        self.stream.reset();
        let status = self.stream.compress_vec(message, out, FlushCompress::Sync);
        let is_whole = status.is_ok()
            && self.stream.total_in() == message.len() as u64
            && out.ends_with(LEFT_OFF)
            && out.len() < out.capacity();
        debug_assert!(is_whole, "the room was enough");
        let is_worth_it = is_whole && out.len() - start < message.len() + LEFT_OFF.len();
        out.truncate(if is_worth_it { out.len() - LEFT_OFF.len() } else { start });
        is_worth_it
    }
}

/// An upper bound for the compressed length at any level: nine bits per byte (the longest fixed Huffman code), a header
/// per block, and the end.
const fn compressed_len_max(len: usize) -> usize {
    len + len / 8 + len / 64 + 32
}

impl fmt::Debug for Deflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deflater").finish_non_exhaustive()
    }
}
