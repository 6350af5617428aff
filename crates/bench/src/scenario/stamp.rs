//! The stamp in every payload of a profile's run: when it should have been and when it was sent, its stream, and its
//! number in that stream.

use crate::stamp_numbers::{Magic, NumbersFinder, stamped_bytes_min, write_numbers};

const MAGIC: Magic = *b"~stream:";

/// The smallest payload that can carry a stamp.
pub const STAMPED_BYTES_MIN: usize = stamped_bytes_min(4);

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
    write_numbers(out, MAGIC, &[stamp.intended_ns, stamp.sent_ns, stamp.stream.into(), stamp.sequence], bytes);
}

/// Finds stamps in encoded messages.
pub struct StreamStampFinder(NumbersFinder<4>);

impl StreamStampFinder {
    /// Prepares the search once.
    pub fn new() -> Self {
        StreamStampFinder(NumbersFinder::new(MAGIC))
    }

    /// The stamp of the publication in this message, if any.
    pub fn find(&self, message: &[u8]) -> Option<StreamStamp> {
        let ([intended_ns, sent_ns, stream, sequence], _) = self.0.take(message)?;
        Some(StreamStamp { intended_ns, sent_ns, stream: u32::try_from(stream).ok()?, sequence })
    }
}
