//! The two streams of frames between this node and another one.
//!
//! NATS keeps the order of a connection's messages, but loses some when a connection breaks or a receiver is slow. So
//! frames have numbers. Nothing is sent again: what a room says is out of date after a tick, and the rooms and players
//! between two nodes begin anew after a gap, as a session does after its connection has ended.

use std::mem;

use serde::Serialize as _;

use crate::format::{BATCH_BYTES_MAX, FrameHead, FrameKind, Message, PART_BYTES_MAX, VERSION};

/// The streams of one other node.
#[derive(Debug)]
pub(crate) struct NodeLink {
    out: Outgoing,
    inward: Inward,
    /// When a frame of the node arrived last.
    pub(crate) heard_us: u64,
}

#[derive(Debug)]
struct Outgoing {
    epoch: u64,
    /// The number of the next frame.
    number: u64,
    /// Encoded messages that are not sent yet.
    batch: Vec<u8>,
    sent_us: u64,
}

/// The state of a stream that this node receives.
#[derive(Debug)]
enum Inward {
    /// The next stream begins with its first frame. Late frames of the stream before are ignored.
    Closed { ended_epoch: Option<u64> },
    Open {
        epoch: u64,
        number: u64,
        /// The parts of an incomplete batch.
        parts: Vec<u8>,
    },
}

/// What an arrived part means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// A complete batch.
    Batch(Vec<u8>),
    /// A part of a batch, or a frame of a stream that has ended.
    Nothing,
    /// The node has begun a new stream, so it knows nothing of the one before. Receive the frame again after the link was
    /// closed.
    Restarted,
    /// A frame is missing, or the batch is too long.
    Lost,
}

/// A stream that has been silent for this long begins anew, because the receiver may have forgotten it.
const STREAM_IDLE_US_MAX: u64 = 30_000_000;

impl NodeLink {
    pub(crate) fn new(epoch: u64, now_us: u64) -> Self {
        Self {
            out: Outgoing { epoch, number: 0, batch: Vec::new(), sent_us: now_us },
            inward: Inward::Closed { ended_epoch: None },
            heard_us: now_us,
        }
    }

    /// Queues a message.
    pub(crate) fn push(&mut self, message: &Message) {
        let mut serializer = postcard::Serializer { output: Batch(&mut self.out.batch) };
        message.serialize(&mut serializer).expect("a buffer takes all messages");
    }

    pub(crate) fn sent_us(&self) -> u64 {
        self.out.sent_us
    }

    /// Takes the queued messages as frames of the node `from`.
    pub(crate) fn take_frames(
        &mut self,
        from: &str,
        now_us: u64,
        next_epoch: &mut impl FnMut() -> u64,
    ) -> Vec<Vec<u8>> {
        if self.out.batch.is_empty() {
            return Vec::new();
        }
        if now_us.saturating_sub(self.out.sent_us) > STREAM_IDLE_US_MAX {
            (self.out.epoch, self.out.number) = (next_epoch(), 0);
        }
        self.out.sent_us = now_us;
        let batch = mem::take(&mut self.out.batch);
        let part_count = batch.len().div_ceil(PART_BYTES_MAX);
        let mut frames = Vec::with_capacity(part_count);
        for (place, part) in batch.chunks(PART_BYTES_MAX).enumerate() {
            let (epoch, number) = (self.out.epoch, self.out.number);
            self.out.number += 1;
            let kind = FrameKind::Part { epoch, number, is_last: place + 1 == part_count };
            frames.push(frame(from, kind, part));
        }
        frames
    }

    /// Processes a part of a batch.
    pub(crate) fn receive(&mut self, epoch: u64, number: u64, is_last: bool, part: &[u8]) -> Arrived {
        match &mut self.inward {
            Inward::Closed { ended_epoch } if *ended_epoch == Some(epoch) => return Arrived::Nothing,
            Inward::Closed { .. } if number == 0 => {
                self.inward = Inward::Open { epoch, number: 0, parts: Vec::new() };
            }
            Inward::Closed { .. } => return Arrived::Lost,
            Inward::Open { epoch: current, .. } if *current != epoch && number == 0 => return Arrived::Restarted,
            // The frame before the first of the new stream is late, or the first one is lost: the number of the next frame
            // tells, which is 0 or a gap.
            Inward::Open { epoch: current, .. } if *current != epoch => return Arrived::Lost,
            Inward::Open { .. } => {}
        }
        let Inward::Open { number: next, parts, .. } = &mut self.inward else { unreachable!("opened above") };
        // NATS may deliver a message twice when a connection changes.
        if number < *next {
            return Arrived::Nothing;
        }
        if number > *next || parts.len() + part.len() > BATCH_BYTES_MAX {
            return Arrived::Lost;
        }
        *next += 1;
        parts.extend_from_slice(part);
        if is_last { Arrived::Batch(mem::take(parts)) } else { Arrived::Nothing }
    }

    /// Whether this is the current stream to the node.
    pub(crate) fn sends(&self, epoch: u64) -> bool {
        self.out.epoch == epoch
    }

    /// Forgets both streams. Returns the epoch of the one that this node received.
    pub(crate) fn close(&mut self, epoch: u64) -> Option<u64> {
        (self.out.epoch, self.out.number) = (epoch, 0);
        self.out.batch.clear();
        let ended_epoch = match &self.inward {
            Inward::Open { epoch, .. } => Some(*epoch),
            Inward::Closed { ended_epoch } => *ended_epoch,
        };
        self.inward = Inward::Closed { ended_epoch };
        ended_epoch
    }
}

/// A frame of the node `from`, with a part of a batch or nothing.
///
/// # Panics
/// Never: a buffer takes all heads.
pub fn frame(from: &str, kind: FrameKind, part: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(part.len() + 64);
    let head = FrameHead { version: VERSION, from, kind };
    let mut serializer = postcard::Serializer { output: Batch(&mut bytes) };
    head.serialize(&mut serializer).expect("a buffer takes all heads");
    bytes.extend_from_slice(part);
    bytes
}

/// The messages of a batch.
///
/// # Errors
/// If the bytes are anything else.
pub(crate) fn messages(mut batch: &[u8]) -> Result<Vec<Message>, postcard::Error> {
    let mut messages = Vec::new();
    while !batch.is_empty() {
        let (message, rest) = postcard::take_from_bytes(batch)?;
        messages.push(message);
        batch = rest;
    }
    Ok(messages)
}

/// A buffer that messages are appended to. The one of `postcard` is consumed by each message.
struct Batch<'a>(&'a mut Vec<u8>);

impl postcard::ser_flavors::Flavor for Batch<'_> {
    type Output = ();

    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(data);
        Ok(())
    }

    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        self.0.push(data);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts_of(frames: &[Vec<u8>]) -> Vec<(u64, u64, bool, Vec<u8>)> {
        frames
            .iter()
            .map(|frame| match postcard::take_from_bytes::<FrameHead<'_>>(frame).expect("a frame has a head") {
                (FrameHead { kind: FrameKind::Part { epoch, number, is_last }, .. }, part) => {
                    (epoch, number, is_last, part.to_vec())
                }
                (head, _) => panic!("{head:?}"),
            })
            .collect()
    }

    fn sent(link: &mut NodeLink, now_us: u64) -> Vec<(u64, u64, bool, Vec<u8>)> {
        link.push(&Message::Alive);
        parts_of(&link.take_frames("a", now_us, &mut || 99))
    }

    fn receive(link: &mut NodeLink, parts: &[(u64, u64, bool, Vec<u8>)]) -> Vec<Arrived> {
        parts.iter().map(|(epoch, number, is_last, part)| link.receive(*epoch, *number, *is_last, part)).collect()
    }

    #[test]
    fn a_gap_loses_the_stream_and_a_frame_that_came_twice_does_not() {
        let (mut from, mut to) = (NodeLink::new(7, 0), NodeLink::new(8, 0));
        let first = sent(&mut from, 0);
        assert_eq!(receive(&mut to, &first), [Arrived::Batch(vec![0])]);
        assert_eq!(receive(&mut to, &first), [Arrived::Nothing]);
        let second = sent(&mut from, 0);
        let third = sent(&mut from, 0);
        assert_eq!(receive(&mut to, &third), [Arrived::Lost]);
        assert_eq!(to.close(9), Some(7));
        assert_eq!(receive(&mut to, &second), [Arrived::Nothing], "late frames of a stream that has ended");
        from.close(10);
        assert_eq!(receive(&mut to, &sent(&mut from, 0)), [Arrived::Batch(vec![0])]);
    }

    #[test]
    fn a_stream_that_begins_anew_is_noticed() {
        let (mut from, mut to) = (NodeLink::new(7, 0), NodeLink::new(8, 0));
        receive(&mut to, &sent(&mut from, 0));
        from.close(10);
        let anew = sent(&mut from, 0);
        assert_eq!(receive(&mut to, &anew), [Arrived::Restarted]);
        to.close(11);
        assert_eq!(receive(&mut to, &anew), [Arrived::Batch(vec![0])]);
    }

    #[test]
    fn a_silent_stream_begins_anew() {
        let mut from = NodeLink::new(7, 0);
        assert_eq!(sent(&mut from, STREAM_IDLE_US_MAX)[0].0, 7);
        assert_eq!(sent(&mut from, 2 * STREAM_IDLE_US_MAX + 1)[0].0, 99);
    }

    #[test]
    fn a_long_batch_travels_in_parts() {
        let (mut from, mut to) = (NodeLink::new(7, 0), NodeLink::new(8, 0));
        for length in [PART_BYTES_MAX, PART_BYTES_MAX + 1] {
            from.out.batch = vec![1; length];
            let parts = parts_of(&from.take_frames("a", 0, &mut || 99));
            assert_eq!(parts.len(), length.div_ceil(PART_BYTES_MAX));
            assert_eq!(receive(&mut to, &parts).pop(), Some(Arrived::Batch(vec![1; length])));
        }
    }
}
