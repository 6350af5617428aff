//! The stamp in every payload of the scenarios with one publisher: its intended publication time and its number.

use crate::stamp_numbers::{Magic, NumbersFinder, stamped_bytes_min, write_numbers};

const MAGIC: Magic = *b"~dunlin:";

/// The smallest payload that can carry a stamp.
pub const PAYLOAD_BYTES_MIN: usize = stamped_bytes_min(2);

/// The stamp of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The intended time of the publication: nanoseconds of the monotonic clock, which all processes share.
    pub intended_ns: u64,
    /// Counts the publications of a run from 0.
    pub sequence: u64,
}

/// Appends a payload of `bytes` bytes (at least [`PAYLOAD_BYTES_MIN`]) to `out`.
pub fn write_payload(out: &mut Vec<u8>, stamp: Stamp, bytes: usize) {
    write_numbers(out, MAGIC, &[stamp.intended_ns, stamp.sequence], bytes);
}

/// Finds stamps in encoded messages.
pub struct StampFinder(NumbersFinder<2>);

impl StampFinder {
    /// Prepares the search once.
    pub fn new() -> Self {
        StampFinder(NumbersFinder::new(MAGIC))
    }

    /// The stamp of the publication in this message, if any.
    pub fn find(&self, message: &[u8]) -> Option<Stamp> {
        self.take(message).map(|(stamp, _)| stamp)
    }

    /// The same, and the bytes after it, which contain other publications if a reply has several.
    pub fn take<'a>(&self, message: &'a [u8]) -> Option<(Stamp, &'a [u8])> {
        let ([intended_ns, sequence], rest) = self.0.take(message)?;
        Some((Stamp { intended_ns, sequence }, rest))
    }
}
