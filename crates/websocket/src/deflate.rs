//! permessage-deflate (RFC 7692) without context takeover on either side: each message is compressed by itself. So one
//! [`Inflater`] and one [`Deflater`] serve all connections of a thread, an idle connection holds nothing for it, and what is
//! compressed once can be sent to many.

use std::{fmt, str};

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::{Kind, Limits, ReceiveError};

/// What a sender leaves off at the end of a message (RFC 7692, section 7.2.1).
const LEFT_OFF: &[u8] = &[0x00, 0x00, 0xff, 0xff];

/// What the decoder is given behind a message: what was left off, and an empty last block. So it says that it is at its end
/// exactly if the message is whole.
const BEHIND_MESSAGE: &[u8] = &[0x00, 0x00, 0xff, 0xff, 0x01, 0x00, 0x00, 0xff, 0xff];

/// However well a message is compressed, it may always become this long (within the limit for messages).
pub const RATIO_FREE_BYTES: usize = 16 * 1024;

/// The room that a message is given first.
const ROOM_BYTES_MIN: usize = 1_024;

/// Room beyond this is given back before the next message.
const ROOM_BYTES_KEPT: usize = 64 * 1024;

/// Undoes the compression of messages, whosever they are. Nothing on the heap before the first.
#[derive(Default)]
pub struct Inflater {
    stream: Option<Decompress>,
    message: Vec<u8>,
}

impl Inflater {
    /// The message that was sent as `payload`. It never holds more than [`Limits::inflated_bytes_max`] bytes of it, whatever
    /// `payload` would become; and the work is bounded by that and by the length of `payload`.
    ///
    /// # Errors
    /// [`ReceiveError::MessageTooBig`], [`ReceiveError::DeflateInvalid`], and [`ReceiveError::TextNotUtf8`] for a text that is
    /// none. The connection is to be closed with it.
    pub fn inflate(&mut self, kind: Kind, payload: &[u8], limits: &Limits) -> Result<&[u8], ReceiveError> {
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
            // A last block of the sender's own: then a byte of padding follows (section 7.2.3.4), or nothing.
            Taken::ToItsEnd { left: [] | [0x00] } => {}
            Taken::ToItsEnd { .. } => return Err(ReceiveError::DeflateInvalid),
        }
        if kind == Kind::Text {
            str::from_utf8(&self.message).map_err(|_| ReceiveError::TextNotUtf8)?;
        }
        Ok(&self.message)
    }

    /// Bytes held for the next message.
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

/// How far a piece was taken.
enum Taken<'p> {
    All,
    /// The last block ended before this.
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
                // One byte past the bound is enough to see that it is passed.
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
                    // There is room and there are bytes, and it does not go on.
                    _ if taken == 0 && self.message.len() == given_before => return Err(ReceiveError::DeflateInvalid),
                    _ => {}
                }
            }
        }
    }
}

/// Compresses messages, each by itself.
pub struct Deflater {
    stream: Compress,
}

impl Deflater {
    /// At a level from 1, quick, to 9, small; what lies outside is taken for the nearer of them.
    pub fn new(level: u8) -> Self {
        Self { stream: Compress::new(Compression::new(u32::from(level.clamp(1, 9))), false) }
    }

    /// Appends `message` to `out` as it is sent in frames with the reserved bit for it. Returns `false`, and leaves `out` as
    /// it is, if that would not be shorter: such a message is better sent as it is.
    pub fn deflate(&mut self, message: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        // Room for whatever it becomes. An encoder that stops because there is none keeps what it has not given away, and
        // that of zlib-rs goes on with a smaller buffer after it is reset, until it panics.
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

/// More than a message of this length becomes at any level: nine bits for each byte, which is what the fixed code has for the
/// rarer ones, a header for each of its blocks, and what ends it.
const fn compressed_len_max(len: usize) -> usize {
    len + len / 8 + len / 64 + 32
}

impl fmt::Debug for Deflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deflater").finish_non_exhaustive()
    }
}
