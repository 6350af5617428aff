//! Reusable memory and the compressor for encoding a shard's frames.

use std::fmt;

use dunlin_websocket::{
    deflate::Deflater,
    header::{COMPRESSED_BIT, HEADER_BYTES_MAX, write_header},
};

use super::{HEAD_BYTES_MAX, opcode};
use crate::options::CompressionOptions;
use dunlin_protocol::Encoding;

/// Buffers that the encoders reuse.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Space for a head, followed by the message.
    pub(crate) message: Vec<u8>,
    /// The compressed message.
    compressed: Vec<u8>,
    /// Created for the first message to compress.
    deflater: Option<Deflater>,
    options: CompressionOptions,
}

impl Scratch {
    /// Scratch space of a shard with these compression options.
    pub(crate) fn new(options: CompressionOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// The message buffer, cleared, with space for the head.
    pub(super) fn begin(&mut self) -> &mut Vec<u8> {
        self.message.clear();
        self.message.resize(HEAD_BYTES_MAX, 0);
        &mut self.message
    }

    /// The compressed frame of the message at [`HEAD_BYTES_MAX`]; `None` if compression does not pay off.
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
