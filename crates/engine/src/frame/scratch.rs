//! Reusable memory and the compressor for encoding a shard's frames.

use std::fmt;

use dunlin_websocket::{
    deflate::Deflater,
    header::{COMPRESSED_BIT, HEADER_BYTES_MAX, write_header},
};

use super::{HEAD_BYTES_MAX, opcode};
use crate::options::CompressionOptions;
use dunlin_protocol::Encoding;

/// Lends its capacity to the encoders.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Room for a head, and the message behind it.
    pub(crate) message: Vec<u8>,
    /// The same, compressed.
    compressed: Vec<u8>,
    /// Made for the first message that is to be compressed.
    deflater: Option<Deflater>,
    options: CompressionOptions,
}

impl Scratch {
    /// Of a shard that compresses like this.
    pub(crate) fn new(options: CompressionOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// The buffer, for a message behind the room for its head.
    pub(super) fn begin(&mut self) -> &mut Vec<u8> {
        self.message.clear();
        self.message.resize(HEAD_BYTES_MAX, 0);
        &mut self.message
    }

    /// The frame of the message at [`HEAD_BYTES_MAX`], compressed; `None` if that is not worth it.
    pub(super) fn compressed_frame(&mut self, encoding: Encoding) -> Option<&[u8]> {
        let Self { message, compressed, deflater, options } = self;
        let message = &message[HEAD_BYTES_MAX..];
        if message.len() < options.message_bytes_min {
            return None;
        }
        compressed.clear();
        compressed.resize(HEAD_BYTES_MAX, 0);
        if !deflater.get_or_insert_with(|| Deflater::new(options.level)).deflate(message, compressed) {
            return None;
        }
        let mut header = [0; HEADER_BYTES_MAX];
        let header_bytes = write_header(opcode(encoding), compressed.len() - HEAD_BYTES_MAX, &mut header);
        header[0] |= COMPRESSED_BIT;
        let start = HEAD_BYTES_MAX - header_bytes;
        compressed[start..HEAD_BYTES_MAX].copy_from_slice(&header[..header_bytes]);
        Some(&compressed[start..])
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scratch").finish_non_exhaustive()
    }
}
