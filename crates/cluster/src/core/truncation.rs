//! Truncated streams: servers that lost power before they had written the end of a stream to disk, or a restored
//! backup.
//!
//! Such a stream assigns sequences a second time, to other messages, so a position may lie after messages that its
//! client has never seen. Each audit detects this with four comparisons:
//!
//! - A fence is stored after everything that this node saw before it was sent. A fence that comes back at a lower
//!   sequence proves a truncation. So does the acknowledgement of a publication, and a fence whose predecessor on its
//!   subject is not this node's previous fence: an emptied stream keeps its sequences and loses all fences.
//! - The newest message of a channel is dropped only because of its age. If it is gone earlier, or another message has
//!   its sequence, the stream was truncated.
//! - [`Marks`] are messages that this node saw: the last one before each silence, and one per second. Another message
//!   at the sequence of a mark proves a truncation, even if the stream has grown beyond everything that was seen.
//!
//! [`super::epoch`] describes the consequences.

use std::collections::VecDeque;

use crate::{link::StoredMessage, names::fnv1a};

/// Maximum number of marks to compare. Beyond it, every second one is dropped.
const MARKS_MAX: usize = 64;
/// Number of marks that are compared again, because a lagging replica may have answered.
const MARKS_KEPT: usize = 8;
/// A server that lost power is away for longer than this.
const SILENCE_US: u64 = 100_000;
/// Maximum time between marks while messages arrive.
const MARK_INTERVAL_US: u64 = 1_000_000;
/// Maximum difference between the clocks of the node and the servers.
pub(super) const CLOCK_MARGIN_MS: u64 = 10_000;

/// A message that this node saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    sequence: u64,
    /// 0 if unknown.
    time_ms: u64,
    subject_hash: u64,
}

impl Mark {
    fn of(message: &StoredMessage) -> Self {
        let subject_hash = fnv1a(message.subject.bytes());
        Self { sequence: message.sequence, time_ms: message.time_ms, subject_hash }
    }

    /// Whether the stream has another message at the mark's sequence.
    fn is_contradicted_by(self, message: &StoredMessage) -> bool {
        let found = Self::of(message);
        let is_same_time = self.time_ms == 0 || found.time_ms == 0 || self.time_ms == found.time_ms;
        self.sequence == found.sequence && (self.subject_hash != found.subject_hash || !is_same_time)
    }
}

/// Messages of a stream that this node saw.
#[derive(Debug, Default)]
pub(super) struct Marks {
    newest: Option<Mark>,
    newest_us: u64,
    marked_us: u64,
    list: VecDeque<Mark>,
    /// This node's newest fence.
    fence: Option<Mark>,
    /// When the record of the epoch was stored. A message of before may arrive after it, and be what the stream has lost.
    since_ms: u64,
    /// When the oldest message that the stream has lost was stored, among those that this node saw.
    lost_ms: Option<u64>,
}

impl Marks {
    /// Marks of an epoch whose record was stored at this time.
    pub(super) fn since(since_ms: u64) -> Self {
        Self { since_ms, ..Self::default() }
    }

    /// The highest sequence that this node has seen.
    pub(super) fn highest(&self) -> u64 {
        self.newest.map_or(0, |newest| newest.sequence)
    }

    /// When a message that the stream has lost was stored; 0 if unknown.
    pub(super) fn lost_ms(&self) -> u64 {
        // The newest message may have been stored since the loss. Then this node begins an epoch needlessly, which is better
        // than to stay in one of before.
        self.lost_ms.or(self.newest.map(|newest| newest.time_ms)).unwrap_or(0)
    }

    fn note_lost(&mut self, is_lost: impl Fn(&Mark) -> bool) {
        let lost = self.list.iter().chain(&self.newest).filter(|mark| mark.time_ms > 0 && is_lost(mark));
        self.lost_ms = lost.map(|mark| mark.time_ms).chain(self.lost_ms).min();
    }

    /// A fence shows that the stream has lost what was stored before it, at its sequence or a higher one.
    pub(super) fn note_lost_before(&mut self, fence: &StoredMessage) {
        self.note_lost(|mark| mark.sequence >= fence.sequence && mark.time_ms < fence.time_ms);
    }

    /// Whether a message was stored after the newest one, at a sequence that this node has seen: the stream assigns
    /// sequences again. Clocks of servers differ, so this is only a reason to look.
    pub(super) fn is_followed_too_low(&self, message: &StoredMessage) -> bool {
        let is_later = |newest: Mark| newest.time_ms > 0 && message.time_ms > newest.time_ms;
        self.newest.is_some_and(|newest| message.sequence <= newest.sequence && is_later(newest))
    }

    /// Records a message that has arrived.
    pub(super) fn push(&mut self, message: &StoredMessage, now_us: u64) {
        let is_of_earlier_epoch = message.time_ms > 0 && message.time_ms < self.since_ms;
        if self.highest() >= message.sequence || is_of_earlier_epoch {
            return;
        }
        if now_us >= self.newest_us + SILENCE_US || now_us >= self.marked_us + MARK_INTERVAL_US {
            self.mark_newest(now_us);
        }
        (self.newest, self.newest_us) = (Some(Mark::of(message)), now_us);
    }

    /// Marks the newest message.
    pub(super) fn mark_newest(&mut self, now_us: u64) {
        let Some(newest) = self.newest.filter(|newest| self.list.back() != Some(newest)) else { return };
        self.marked_us = now_us;
        self.list.push_back(newest);
        if self.list.len() > MARKS_MAX {
            let mut is_kept = false;
            self.list.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
    }

    /// Drops marks of messages that were stored before this time.
    pub(super) fn forget_before(&mut self, time_ms: u64) {
        let is_kept = |mark: &Mark| mark.time_ms == 0 || mark.time_ms >= time_ms;
        self.since_ms = time_ms;
        self.list.retain(is_kept);
        self.newest = self.newest.filter(is_kept);
        self.fence = self.fence.filter(is_kept);
    }

    /// Records a fence of this node that has come back. Returns whether the stream has lost the previous one, although
    /// that one is too young to have expired.
    pub(super) fn push_fence(&mut self, fence: &StoredMessage, age_max_ms: Option<u64>, unix_ms: u64) -> bool {
        let previous = self.fence.replace(Mark::of(fence));
        let is_kept = |fence: &Mark| {
            let kept_until_ms = fence.time_ms.saturating_add(age_max_ms.unwrap_or(u64::MAX));
            fence.time_ms > 0 && unix_ms < kept_until_ms.saturating_sub(CLOCK_MARGIN_MS)
        };
        let lost = previous.filter(is_kept).filter(|previous| fence.last_sequence < previous.sequence);
        self.lost_ms = lost.map(|lost| lost.time_ms).into_iter().chain(self.lost_ms).min();
        lost.is_some()
    }

    pub(super) fn sequences(&self) -> Vec<u64> {
        self.list.iter().map(|mark| mark.sequence).collect()
    }

    /// Compares the messages at the sequences of the marks. Returns whether the stream has others than this node saw.
    /// Missing messages prove nothing: the stream keeps a limited number per channel, for a limited time.
    pub(super) fn review(&mut self, found: &[StoredMessage]) -> bool {
        let is_lost = |mark: &Mark| found.iter().any(|message| mark.is_contradicted_by(message));
        let is_other = self.list.iter().any(is_lost);
        if is_other {
            self.note_lost(is_lost);
        } else {
            self.forget_compared();
        }
        is_other
    }

    /// Drops all but a few of the marks that were compared.
    fn forget_compared(&mut self) {
        self.list.drain(..self.list.len().saturating_sub(MARKS_KEPT));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::link::MessageHeaders;

    fn message(sequence: u64, time_ms: u64, subject: &str) -> StoredMessage {
        let (headers, payload) = (MessageHeaders::new(), Bytes::new());
        StoredMessage { subject: subject.into(), sequence, last_sequence: 0, time_ms, headers, payload }
    }

    #[test]
    fn the_last_message_before_a_pause_is_a_mark() {
        let mut marks = Marks::default();
        for (sequence, now_us) in [(1, 1_000), (2, 2_000), (3, 3_000), (4, 103_000), (5, 104_000)] {
            marks.push(&message(sequence, 7, "a"), now_us);
        }
        assert_eq!((marks.sequences(), marks.highest()), (vec![3], 5));
        marks.mark_newest(105_000);
        marks.mark_newest(106_000);
        // A late message is not marked.
        marks.push(&message(2, 7, "a"), 900_000);
        assert_eq!(marks.sequences(), [3, 5]);
    }

    #[test]
    fn marks_are_set_every_second_under_load() {
        let mut marks = Marks::default();
        (1..=1_000).for_each(|number| marks.push(&message(number, 7, "a"), number * 10_000));
        assert_eq!(marks.sequences(), [99, 199, 299, 399, 499, 599, 699, 799, 899, 999]);
    }

    #[test]
    fn marks_from_before_a_time_are_forgotten() {
        let marked = |time_ms| {
            let mut marks = Marks::default();
            for (sequence, stored_ms) in [(1, 10), (2, 0), (3, 20)] {
                marks.push(&message(sequence, stored_ms, "a"), sequence * SILENCE_US);
            }
            marks.forget_before(time_ms);
            (marks.sequences(), marks.highest())
        };
        assert_eq!(marked(10), (vec![1, 2], 3));
        assert_eq!(marked(11), (vec![2], 3), "the time of the second mark is unknown");
        assert_eq!(marked(21), (vec![2], 0));
    }

    #[test]
    fn a_message_of_before_the_epoch_that_arrives_late_is_not_marked() {
        let mut forgetting = Marks::default();
        forgetting.forget_before(11);
        for mut marks in [Marks::since(11), forgetting] {
            for (sequence, stored_ms) in [(5, 10), (3, 11), (4, 0)] {
                marks.push(&message(sequence, stored_ms, "a"), sequence * SILENCE_US);
            }
            marks.mark_newest(SILENCE_US * 9);
            assert_eq!(marks.sequences(), [3, 4]);
        }
    }

    #[test]
    fn a_fence_shows_that_the_stream_has_lost_the_previous_one() {
        let fence =
            |sequence, last_sequence, time_ms| StoredMessage { last_sequence, ..message(sequence, time_ms, "f") };
        let age_max_ms = 60_000;
        for (second, now_ms, is_lost) in [
            (fence(9, 5, 2_000), 2_000, false),
            (fence(9, 7, 2_000), 2_000, false),
            (fence(9, 0, 2_000), 2_000, true),
            (fence(9, 4, 2_000), 2_000, true),
            (fence(9, 0, 50_999), 50_999, true),
            // The first one may have expired, by a clock that differs.
            (fence(9, 0, 51_000), 51_000, false),
        ] {
            let mut marks = Marks::default();
            assert!(!marks.push_fence(&fence(5, 0, 1_000), Some(age_max_ms), 1_000));
            assert_eq!(marks.push_fence(&second, Some(age_max_ms), now_ms), is_lost, "{second:?} at {now_ms}");
        }
        let mut marks = Marks::default();
        marks.push_fence(&fence(5, 0, 1_000), Some(age_max_ms), 1_000);
        marks.forget_before(1_001);
        assert!(!marks.push_fence(&fence(9, 0, 2_000), Some(age_max_ms), 2_000), "it is of an earlier epoch");
    }

    #[test]
    fn marks_are_limited() {
        let mut marks = Marks::default();
        (1..=MARKS_MAX as u64 + 1).for_each(|number| marks.push(&message(number, 7, "a"), number * SILENCE_US));
        assert_eq!(marks.list.len(), MARKS_MAX);
        marks.push(&message(1_000, 7, "a"), 1_000 * SILENCE_US);
        assert_eq!(marks.list.len(), MARKS_MAX / 2 + 1);
        marks.forget_compared();
        assert_eq!(marks.list.len(), MARKS_KEPT);
    }

    #[test]
    fn a_different_message_at_a_marks_sequence_is_a_contradiction() {
        let mut marks = Marks::default();
        marks.push(&message(5, 70, "a"), 1);
        marks.mark_newest(2);
        for (found, contradicts) in [
            (message(5, 70, "a"), false),
            (message(5, 71, "a"), true),
            (message(5, 70, "b"), true),
            (message(5, 0, "a"), false),
            (message(6, 71, "b"), false),
        ] {
            assert_eq!(marks.review(std::slice::from_ref(&found)), contradicts, "{found:?}");
        }
    }

    /// Messages that were stored at 100 and 200, and one at 900, after the stream has lost these.
    fn marks_across_a_loss() -> Marks {
        let mut marks = Marks::default();
        for (sequence, stored_ms) in [(5, 100), (6, 200), (9, 900)] {
            marks.push(&message(sequence, stored_ms, "a"), sequence * SILENCE_US);
        }
        marks
    }

    #[test]
    fn a_message_that_is_lost_dates_the_loss() {
        let age_max_ms = Some(60_000);
        let mut marks = marks_across_a_loss();
        assert_eq!(marks.lost_ms(), 900, "nothing is known to be lost");
        assert!(!marks.review(&[message(5, 100, "a")]));
        assert!(marks.review(&[message(5, 100, "a"), message(6, 800, "a")]));
        assert_eq!(marks.lost_ms(), 200);

        let mut marks = marks_across_a_loss();
        marks.note_lost_before(&message(6, 700, "f"));
        assert_eq!(marks.lost_ms(), 200, "the stream had 5 when it stored the fence, and 9 is younger");

        let mut marks = marks_across_a_loss();
        assert!(!marks.push_fence(&message(10, 1_000, "f"), age_max_ms, 1_000));
        assert!(marks.push_fence(&message(20, 2_000, "f"), age_max_ms, 2_000));
        assert_eq!(marks.lost_ms(), 1_000);
        assert_eq!((Marks::since(1_000).lost_ms(), Marks::default().lost_ms()), (0, 0));
    }
}
