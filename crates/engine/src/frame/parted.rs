//! A frame that consists of a session's own bytes and of parts that it shares with frames of other sessions.

use std::sync::Arc;

use dunlin_protocol::{EncodedPublications, Gaps};

#[derive(Debug)]
pub(crate) struct PartedFrame {
    own: Box<[u8]>,
    /// The shared parts, each with the position in `own` before which it is inserted, in order.
    shared: Box<[(usize, Arc<EncodedPublications>)]>,
    bytes: usize,
    pub(super) queued_us: u64,
}

impl PartedFrame {
    /// A frame made of `own` and `gaps`, whose positions count from `start`.
    pub(super) fn new(own: &[u8], gaps: Gaps, start: usize, queued_us: u64) -> Self {
        let bytes = own.len() + gaps.missing_bytes();
        let shared = gaps.into_missing().into_iter().map(|(place, encoded)| (place - start, encoded)).collect();
        Self { own: own.into(), shared, bytes, queued_us }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// The parts. Some may be empty.
    pub(super) fn parts(&self) -> Parts<'_> {
        Parts { frame: self, next: 0 }
    }

    fn part(&self, index: usize) -> Option<&[u8]> {
        let gap = index / 2;
        if index % 2 == 1 {
            return Some(self.shared.get(gap)?.1.bytes());
        }
        let start = gap.checked_sub(1).map_or(Some(0), |before| Some(self.shared.get(before)?.0))?;
        let end = self.shared.get(gap).map_or(self.own.len(), |(place, _)| *place);
        Some(&self.own[start..end])
    }
}

/// The parts of a frame, in wire order.
#[derive(Clone, Debug)]
pub(crate) struct Parts<'a> {
    frame: &'a PartedFrame,
    next: usize,
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let part = self.frame.part(self.next)?;
        self.next += 1;
        Some(part)
    }
}
