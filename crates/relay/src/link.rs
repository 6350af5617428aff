//! What this node shares with another one: an epoch, and a stream of frames in each direction.
//!
//! NATS keeps the order of a connection's messages, but loses some when a connection breaks or a receiver is slow. So
//! frames have numbers. Nothing is sent again: what a room says is out of date after a tick, and the rooms and players
//! between two nodes begin anew after a gap, as a session does after its connection has ended.
//!
//! Both directions have one epoch. A node that ends what the two share begins the next one. The other node learns of it
//! from any frame, ends the same, and follows to that epoch instead of beginning one. A frame of an earlier epoch is
//! answered with the current one and changes nothing. So each end causes at most one end on the other side, whatever is
//! lost, late or out of order: epochs only rise, and following raises none. Two nodes that begin an epoch of the same
//! number at the same time have both ended what was before, and agree. A link that was unused begins a new epoch as well,
//! which ends nothing.

use std::mem;

use serde::Serialize as _;

use crate::{
    format::{BATCH_BYTES_MAX, FrameHead, FrameKind, Message, VERSION},
    late_frames::LateFrameDetector,
};

/// The link to one other node.
#[derive(Debug)]
pub(crate) struct NodeLink {
    epoch: u64,
    out: Outgoing,
    inward: Inward,
    late_frames: LateFrameDetector,
    /// When a frame of this epoch arrived last, or the epoch began.
    heard_us: u64,
    /// Since when there may have been rooms or players between the nodes.
    used_since_us: Option<u64>,
    /// When a frame of an earlier epoch was answered last.
    answered_us: Option<u64>,
}

#[derive(Debug)]
struct Outgoing {
    /// The number of the next frame.
    number: u64,
    /// Batches of encoded messages that are not sent yet, the last one open.
    batches: Vec<Vec<u8>>,
    sent_us: u64,
    /// The messages of this epoch, while nothing of it has arrived and they are few. They are all that the nodes have in
    /// common. If the other node was in a later epoch, it has ignored them, and receives them again there.
    unheard: Option<Vec<u8>>,
}

/// The stream that this node receives.
#[derive(Debug, Default)]
struct Inward {
    /// The number of the next frame.
    number: u64,
    /// The parts of an incomplete batch.
    parts: Vec<u8>,
}

/// The place of a part in its stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartPlace {
    pub(crate) sent_us: u64,
    pub(crate) number: u64,
    /// Whether the batch is complete with this part.
    pub(crate) is_last: bool,
}

/// What an arrived part of the current epoch means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// A complete batch.
    Batch(Vec<u8>),
    /// A part of a batch, or a frame that came twice.
    Nothing,
    /// A frame is missing.
    Gap,
    /// It was held back for too long on its way.
    Late,
    /// The batch is longer than [`BATCH_BYTES_MAX`].
    TooLong,
}

/// How the frames of a node are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameShape<'a> {
    /// The id of this run of the node.
    pub(crate) node: &'a str,
    /// Maximum bytes of a batch in one frame.
    pub(crate) part_bytes_max: usize,
}

/// Maximum bytes of messages that are kept until something arrives: some joins. With more, a later epoch of the other node
/// ends what they are about.
const UNHEARD_BYTES_MAX: usize = 256 << 10;

/// The time between two answers to frames of earlier epochs, of which a busy node has many on their way.
const ANSWER_INTERVAL_US: u64 = 100_000;

impl NodeLink {
    pub(crate) fn new(epoch: u64, now_us: u64) -> Self {
        Self {
            epoch,
            out: Outgoing { number: 0, batches: Vec::new(), sent_us: now_us, unheard: Some(Vec::new()) },
            inward: Inward::default(),
            late_frames: LateFrameDetector::new(now_us),
            heard_us: now_us,
            used_since_us: None,
            answered_us: None,
        }
    }

    pub(crate) const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Ends both streams, and begins those of another epoch.
    pub(crate) fn begin(&mut self, epoch: u64, now_us: u64) {
        self.epoch = epoch;
        self.out.number = 0;
        self.out.batches.clear();
        self.out.unheard = Some(Vec::new());
        self.inward = Inward::default();
        self.heard_us = now_us;
    }

    /// Whether all that the nodes have in common can be sent again in another epoch.
    pub(crate) const fn can_move(&self) -> bool {
        self.out.unheard.is_some()
    }

    /// Sends it again in a later epoch, instead of ending it.
    pub(crate) fn move_to(&mut self, epoch: u64, now_us: u64) {
        let mut batches = mem::take(&mut self.out.batches);
        if let Some(unheard) = self.out.unheard.take().filter(|unheard| !unheard.is_empty()) {
            batches.insert(0, unheard);
        }
        self.begin(epoch, now_us);
        self.out.batches = batches;
    }

    /// The time since a frame was sent or received.
    pub(crate) fn quiet_us(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.heard_us.max(self.out.sent_us))
    }

    /// Notes whether there are rooms or players between the nodes. Returns for how long the other node has been silent
    /// while there were.
    pub(crate) fn silent_us(&mut self, now_us: u64, is_used: bool) -> u64 {
        if !is_used {
            self.used_since_us = None;
            return 0;
        }
        let since_us = *self.used_since_us.get_or_insert(now_us);
        now_us.saturating_sub(self.heard_us.max(since_us))
    }

    pub(crate) const fn sent_us(&self) -> u64 {
        self.out.sent_us
    }

    /// Whether a frame of an earlier epoch is to be answered.
    pub(crate) fn should_answer(&mut self, now_us: u64) -> bool {
        let is_due = self.answered_us.is_none_or(|at_us| now_us.saturating_sub(at_us) >= ANSWER_INTERVAL_US);
        if is_due {
            self.answered_us = Some(now_us);
        }
        is_due
    }

    /// Queues a message. Returns its bytes.
    pub(crate) fn push(&mut self, now_us: u64, message: &Message) -> usize {
        // The last frames before the pause may have been lost without a trace, or the other node has forgotten the link.
        if self.used_since_us.is_none() && self.out.batches.is_empty() {
            self.begin(self.epoch + 1, now_us);
        }
        self.used_since_us.get_or_insert(now_us);
        let batches = &mut self.out.batches;
        if batches.is_empty() {
            batches.push(Vec::new());
        }
        let batch = batches.last_mut().expect("pushed above");
        let start = batch.len();
        let mut serializer = postcard::Serializer { output: Batch(batch) };
        message.serialize(&mut serializer).expect("a buffer takes all messages");
        let bytes = batch.len() - start;
        if start > 0 && batch.len() > BATCH_BYTES_MAX {
            let next = batch.split_off(start);
            batches.push(next);
        }
        bytes
    }

    /// Takes the queued messages as frames.
    pub(crate) fn take_frames(&mut self, shape: FrameShape<'_>, now_us: u64) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for batch in mem::take(&mut self.out.batches) {
            self.out.sent_us = now_us;
            let part_count = batch.len().div_ceil(shape.part_bytes_max);
            for (place, part) in batch.chunks(shape.part_bytes_max).enumerate() {
                let kind = FrameKind::Part { number: self.out.number, is_last: place + 1 == part_count };
                self.out.number += 1;
                frames.push(frame(&self.head(shape.node, now_us, kind), part));
            }
            let unheard = &mut self.out.unheard;
            if let Some(kept) = unheard.as_mut().filter(|kept| kept.len() + batch.len() <= UNHEARD_BYTES_MAX) {
                kept.extend_from_slice(&batch);
            } else {
                *unheard = None;
            }
        }
        frames
    }

    /// A frame that tells the other node the epoch.
    pub(crate) fn reset_frame(&self, node: &str, now_us: u64) -> Vec<u8> {
        frame(&self.head(node, now_us, FrameKind::Reset), &[])
    }

    const fn head<'a>(&self, from: &'a str, sent_us: u64, kind: FrameKind) -> FrameHead<'a> {
        FrameHead { version: VERSION, from, sent_us, epoch: self.epoch, kind }
    }

    /// Processes a part of a batch of the current epoch.
    pub(crate) fn receive(&mut self, now_us: u64, place: PartPlace, part: &[u8]) -> Arrived {
        let PartPlace { sent_us, number, is_last } = place;
        let Inward { number: next, parts } = &mut self.inward;
        // NATS may deliver a message twice when a connection changes.
        if number < *next {
            return Arrived::Nothing;
        }
        let is_late = self.late_frames.is_late(now_us, sent_us);
        if number > *next {
            return Arrived::Gap;
        }
        if is_late {
            // If the clock of the other node stood still, as that of a suspended machine does, all its frames seem late from
            // now on. What comes in the next epoch is compared with itself.
            self.late_frames = LateFrameDetector::new(now_us);
            return Arrived::Late;
        }
        if parts.len() + part.len() > BATCH_BYTES_MAX {
            return Arrived::TooLong;
        }
        *next += 1;
        self.heard_us = now_us;
        self.used_since_us.get_or_insert(now_us);
        self.out.unheard = None;
        parts.extend_from_slice(part);
        if is_last { Arrived::Batch(mem::take(parts)) } else { Arrived::Nothing }
    }
}

/// A frame with a part of a batch, or nothing.
///
/// # Panics
/// Never: a buffer takes all heads.
pub fn frame(head: &FrameHead<'_>, part: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(part.len() + 64);
    let mut serializer = postcard::Serializer { output: Batch(&mut bytes) };
    head.serialize(&mut serializer).expect("a buffer takes all heads");
    bytes.extend_from_slice(part);
    bytes
}

/// The messages of a batch, each decoded when it is asked for: together they take more memory than the batch.
pub(crate) struct Messages<'a> {
    batch: &'a [u8],
}

impl<'a> Messages<'a> {
    pub(crate) const fn of(batch: &'a [u8]) -> Self {
        Self { batch }
    }
}

impl Iterator for Messages<'_> {
    type Item = Result<Message, postcard::Error>;

    /// Nothing follows an error.
    fn next(&mut self) -> Option<Self::Item> {
        let batch = mem::take(&mut self.batch);
        if batch.is_empty() {
            return None;
        }
        Some(postcard::take_from_bytes(batch).map(|(message, rest)| {
            self.batch = rest;
            message
        }))
    }
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
    use crate::format::PART_BYTES_MAX;

    const SHAPE: FrameShape<'_> = FrameShape { node: "a", part_bytes_max: PART_BYTES_MAX };

    fn parts_of(frames: &[Vec<u8>]) -> Vec<(u64, PartPlace, Vec<u8>)> {
        frames
            .iter()
            .map(|frame| match postcard::take_from_bytes::<FrameHead<'_>>(frame).expect("a frame has a head") {
                (FrameHead { sent_us, epoch, kind: FrameKind::Part { number, is_last }, .. }, part) => {
                    (epoch, PartPlace { sent_us, number, is_last }, part.to_vec())
                }
                (head, _) => panic!("{head:?}"),
            })
            .collect()
    }

    fn sent(link: &mut NodeLink, now_us: u64) -> Vec<(u64, PartPlace, Vec<u8>)> {
        link.push(now_us, &Message::Alive);
        parts_of(&link.take_frames(SHAPE, now_us))
    }

    fn receive(link: &mut NodeLink, now_us: u64, parts: &[(u64, PartPlace, Vec<u8>)]) -> Vec<Arrived> {
        parts.iter().map(|(_, place, part)| link.receive(now_us, *place, part)).collect()
    }

    #[test]
    fn a_gap_is_noticed_and_a_frame_that_came_twice_changes_nothing() {
        let (mut from, mut to) = (NodeLink::new(7, 0), NodeLink::new(7, 0));
        let first = sent(&mut from, 0);
        assert_eq!(receive(&mut to, 0, &first), [Arrived::Batch(vec![0])]);
        assert_eq!(receive(&mut to, 0, &first), [Arrived::Nothing]);
        sent(&mut from, 0);
        assert_eq!(receive(&mut to, 0, &sent(&mut from, 0)), [Arrived::Gap]);
    }

    #[test]
    fn a_frame_that_was_held_back_is_late() {
        let (mut from, mut to) = (NodeLink::new(7, 0), NodeLink::new(7, 0));
        receive(&mut to, 0, &sent(&mut from, 0));
        let (second, third) = (sent(&mut from, 0), sent(&mut from, 0));
        assert_eq!(receive(&mut to, 2_000_000, &second), [Arrived::Batch(vec![0])], "at the limit");
        assert_eq!(receive(&mut to, 2_000_001, &third), [Arrived::Late], "past it");
    }

    #[test]
    fn a_clock_that_stood_still_ends_one_epoch() {
        const SECOND_US: u64 = 1_000_000;
        let (mut from, mut to) = (NodeLink::new(7, 0), NodeLink::new(7, 0));
        receive(&mut to, SECOND_US, &sent(&mut from, SECOND_US));
        // Ten seconds are missing in the time of the sender.
        assert_eq!(receive(&mut to, 12 * SECOND_US, &sent(&mut from, 2 * SECOND_US)), [Arrived::Late]);
        to.begin(9, 12 * SECOND_US);
        from.begin(9, 2 * SECOND_US);
        for second in 3..6 {
            let arrived = receive(&mut to, (10 + second) * SECOND_US, &sent(&mut from, second * SECOND_US));
            assert_eq!(arrived, [Arrived::Batch(vec![0])], "after {second} s");
        }
    }

    #[test]
    fn what_nobody_has_heard_moves_to_a_later_epoch() {
        let (mut from, mut to) = (NodeLink::new(7, 0), NodeLink::new(9, 0));
        sent(&mut from, 0);
        from.push(0, &Message::Alive);
        assert!(from.can_move());
        from.move_to(9, 0);
        let moved = parts_of(&from.take_frames(SHAPE, 0));
        assert_eq!(moved.iter().map(|(epoch, ..)| *epoch).collect::<Vec<_>>(), [9, 9]);
        assert_eq!(receive(&mut to, 0, &moved), [Arrived::Batch(vec![0]), Arrived::Batch(vec![0])]);
        receive(&mut from, 0, &sent(&mut to, 0));
        assert!(!from.can_move(), "the other node has heard it, or ended it");
    }

    #[test]
    fn a_limited_number_of_messages_is_kept_until_something_arrives() {
        for (bytes, is_kept) in [(UNHEARD_BYTES_MAX, true), (UNHEARD_BYTES_MAX + 1, false)] {
            let mut from = NodeLink::new(7, 0);
            from.out.batches = vec![vec![1; bytes]];
            from.take_frames(SHAPE, 0);
            assert_eq!(from.can_move(), is_kept);
        }
    }

    #[test]
    fn a_long_batch_travels_in_parts() {
        let (mut from, mut to) = (NodeLink::new(7, 0), NodeLink::new(7, 0));
        for part_bytes_max in [PART_BYTES_MAX, 1_000] {
            for length in [part_bytes_max, part_bytes_max + 1] {
                from.out.batches = vec![vec![1; length]];
                let parts = parts_of(&from.take_frames(FrameShape { part_bytes_max, ..SHAPE }, 0));
                assert_eq!(parts.len(), length.div_ceil(part_bytes_max));
                assert_eq!(receive(&mut to, 0, &parts).pop(), Some(Arrived::Batch(vec![1; length])));
            }
        }
    }

    #[test]
    fn a_batch_has_a_maximum_for_its_receiver_and_for_its_sender() {
        let place = |number, is_last| PartPlace { sent_us: 0, number, is_last };
        for (bytes, is_taken) in [(BATCH_BYTES_MAX, true), (BATCH_BYTES_MAX + 1, false)] {
            let mut to = NodeLink::new(7, 0);
            assert_eq!(to.receive(0, place(0, false), &vec![1; BATCH_BYTES_MAX / 2]), Arrived::Nothing);
            let arrived = to.receive(0, place(1, true), &vec![1; bytes - BATCH_BYTES_MAX / 2]);
            assert_eq!(matches!(arrived, Arrived::Batch(_)), is_taken);
            assert_eq!(arrived == Arrived::TooLong, !is_taken);
        }
        for (bytes, batch_count) in [(BATCH_BYTES_MAX - 1, 1), (BATCH_BYTES_MAX, 2)] {
            let mut from = NodeLink::new(7, 0);
            from.out.batches = vec![vec![1; bytes]];
            assert_eq!(from.push(0, &Message::Alive), 1);
            assert_eq!(from.out.batches.len(), batch_count);
        }
    }

    #[test]
    fn messages_are_decoded_one_by_one() {
        let mut messages = Messages::of(&[0, 99, 0]);
        assert_eq!(messages.next(), Some(Ok(Message::Alive)));
        assert!(matches!(messages.next(), Some(Err(_))), "no message begins with 99");
        assert_eq!(messages.next(), None);
    }
}
