//! The idempotency keys of publications that this node has seen in a stream.
//!
//! NATS remembers the ids of messages for the duplicate window, in memory. A server that restarts finds them again only
//! in the messages that the stream still has: the key of a publication that has left the history since then would
//! publish again. So nodes answer the keys that they have seen, for the same window.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use dunlin_engine::Now;

use crate::{link::StoredMessage, names::PartitionId, record::MESSAGE_ID};

use super::{Context, known_stream::KnownStream};

/// Bytes of an entry besides the id.
const ENTRY_BYTES: usize = 128;

#[derive(Clone, Copy, Debug)]
pub(super) struct SeenKey {
    pub(super) partition: PartitionId,
    pub(super) sequence: u64,
    /// The Unix time until which NATS would remember it.
    pub(super) until_ms: u64,
}

/// The newest keys, up to a number of bytes.
#[derive(Debug, Default)]
pub(super) struct SeenKeys {
    /// With the number of the entry in `order`.
    by_id: HashMap<Arc<str>, (SeenKey, u64)>,
    /// In the order in which they were learned. The entry of a key that was recorded again stays, until it is the oldest.
    order: VecDeque<(Arc<str>, u64)>,
    bytes: usize,
    last_number: u64,
}

impl SeenKeys {
    /// Records a message of a stream, unless its id is that of one message only.
    fn note(&mut self, message: &StoredMessage, partition: PartitionId, window_ms: u64, now: Now, bytes_max: usize) {
        let Some(id) = message.headers.get(MESSAGE_ID).filter(|id| !id.starts_with("%_")) else { return };
        if self.get(id, now).is_none() {
            let until_ms = message.time_ms.saturating_add(window_ms);
            self.insert(id.into(), SeenKey { partition, sequence: message.sequence, until_ms }, now, bytes_max);
        }
    }

    /// Records a key, unless it is known. One whose time is over may be used again.
    fn insert(&mut self, id: Arc<str>, seen: SeenKey, now: Now, bytes_max: usize) {
        if self.get(&id, now).is_some() {
            return;
        }
        self.bytes += id.len() + ENTRY_BYTES;
        self.last_number += 1;
        self.by_id.insert(Arc::clone(&id), (seen, self.last_number));
        self.order.push_back((id, self.last_number));
        while self.bytes > bytes_max && self.forget_oldest() {}
    }

    fn forget_oldest(&mut self) -> bool {
        let Some((id, number)) = self.order.pop_front() else { return false };
        self.bytes -= id.len() + ENTRY_BYTES;
        if self.by_id.get(&id).is_some_and(|(_, newest)| *newest == number) {
            self.by_id.remove(&id);
        }
        true
    }

    fn forget_expired(&mut self, now: Now) {
        let is_over = |(id, number): &(Arc<str>, u64)| {
            let seen = self.by_id.get(id).filter(|(_, newest)| newest == number);
            seen.is_none_or(|(seen, _)| seen.until_ms < now.unix_ms)
        };
        let expired = self.order.iter().take_while(|entry| is_over(entry)).count();
        for _ in 0..expired {
            self.forget_oldest();
        }
    }

    /// The publication with this id, while NATS should remember it.
    pub(super) fn get(&self, id: &str, now: Now) -> Option<SeenKey> {
        self.by_id.get(id).map(|(seen, _)| *seen).filter(|seen| now.unix_ms <= seen.until_ms)
    }

    /// Forgets the keys of a stream that has lost messages: their publications may be among them.
    pub(super) fn forget_stream(&mut self, partition: PartitionId) {
        self.by_id.retain(|_, (seen, _)| seen.partition != partition);
        self.order.retain(|(id, number)| self.by_id.get(id).is_some_and(|(_, newest)| newest == number));
        self.bytes = self.order.iter().map(|(id, _)| id.len() + ENTRY_BYTES).sum();
    }

    /// The number of keys and their bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.by_id.len(), self.bytes)
    }

    /// Records the idempotency key of a publication in a stream.
    pub(super) fn note_message(&mut self, context: &Context, stream: &KnownStream, message: &StoredMessage) {
        let Some(window_ms) = stream.facts.as_ref().map(|facts| facts.duplicate_window_ms) else { return };
        self.forget_expired(context.now);
        let bytes_max = context.options.limits.seen_keys_bytes_max;
        self.note(message, stream.id, window_ms, context.now, bytes_max);
    }

    /// The stream knows the key of a publication that this node has not seen. When it was published is unknown, so it is
    /// remembered for the whole window from now on, and not for what is left of it.
    pub(super) fn note_known(&mut self, context: &Context, stream: &KnownStream, id: Box<str>, sequence: u64) {
        let Some(window_ms) = stream.facts.as_ref().map(|facts| facts.duplicate_window_ms) else { return };
        let until_ms = context.now.unix_ms.saturating_add(window_ms);
        self.remember(context, id.into(), SeenKey { partition: stream.id, sequence, until_ms });
    }

    /// Records a key that another node has seen, or the stream knows.
    pub(super) fn remember(&mut self, context: &Context, id: Arc<str>, seen: SeenKey) {
        self.insert(id, seen, context.now, context.options.limits.seen_keys_bytes_max);
    }

    /// The sequence of the publication that has used the id of a message before.
    pub(super) fn sequence_of(&self, id: &str, now: Now) -> Option<u64> {
        self.get(id, now).map(|seen| seen.sequence)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::link::MessageHeaders;

    const WINDOW_MS: u64 = 300_000;
    const ONE: PartitionId = PartitionId { namespace: 1, part: 0 };
    const OTHER: PartitionId = PartitionId { namespace: 1, part: 1 };

    fn message(id: &str, sequence: u64, time_ms: u64) -> StoredMessage {
        let headers = MessageHeaders::new().with(MESSAGE_ID, id);
        StoredMessage { subject: "s".into(), sequence, last_sequence: 0, time_ms, headers, payload: Bytes::new() }
    }

    fn at(unix_ms: u64) -> Now {
        Now { mono_us: 0, unix_ms }
    }

    fn sequence_of(keys: &SeenKeys, id: &str, now: Now) -> Option<u64> {
        keys.get(id, now).map(|seen| seen.sequence)
    }

    #[test]
    fn a_key_is_known_for_the_duplicate_window() {
        let mut keys = SeenKeys::default();
        keys.note(&message("a.k", 7, 1_000), ONE, WINDOW_MS, at(0), usize::MAX);
        keys.note(&message("a.k", 9, 2_000), ONE, WINDOW_MS, at(0), usize::MAX);
        keys.note(&message("%_n1-3", 8, 1_000), ONE, WINDOW_MS, at(0), usize::MAX);
        assert_eq!(keys.size().0, 1, "the id of one message needs no memory");
        assert_eq!(sequence_of(&keys, "a.k", at(1_000 + WINDOW_MS)), Some(7));
        assert_eq!(sequence_of(&keys, "a.k", at(1_001 + WINDOW_MS)), None);
        keys.forget_expired(at(1_000 + WINDOW_MS));
        assert_eq!(keys.size().0, 1);
        keys.forget_expired(at(1_001 + WINDOW_MS));
        assert_eq!(keys.size(), (0, 0));
    }

    #[test]
    fn at_the_limit_of_bytes_the_oldest_key_is_forgotten() {
        let mut keys = SeenKeys::default();
        let bytes_max = 2 * (3 + ENTRY_BYTES);
        for (number, id) in (1..).zip(["a.1", "a.2"]) {
            keys.note(&message(id, number, 0), ONE, WINDOW_MS, at(0), bytes_max);
        }
        assert_eq!(keys.size(), (2, bytes_max));
        keys.note(&message("a.3", 3, 0), ONE, WINDOW_MS, at(0), bytes_max);
        assert_eq!(keys.size(), (2, bytes_max));
        assert_eq!(["a.1", "a.2", "a.3"].map(|id| sequence_of(&keys, id, at(0))), [None, Some(2), Some(3)]);
    }

    #[test]
    fn a_key_whose_time_is_over_is_recorded_again() {
        let mut keys = SeenKeys::default();
        // What other nodes tell is not in the order of its time, so the expired one may stay behind a younger one.
        keys.insert("a.2".into(), SeenKey { partition: ONE, sequence: 2, until_ms: 2_000 }, at(0), usize::MAX);
        keys.insert("a.1".into(), SeenKey { partition: ONE, sequence: 1, until_ms: 1_000 }, at(0), usize::MAX);
        keys.forget_expired(at(1_500));
        assert_eq!(keys.size().0, 2);
        keys.note(&message("a.1", 7, 1_500), ONE, WINDOW_MS, at(1_500), usize::MAX);
        assert_eq!((sequence_of(&keys, "a.1", at(1_500)), keys.size().0), (Some(7), 2));
        // It is the newest now: a limit takes the other one first.
        let bytes_max = 2 * (3 + ENTRY_BYTES);
        keys.note(&message("a.3", 8, 1_500), ONE, WINDOW_MS, at(1_500), bytes_max);
        assert_eq!(["a.1", "a.2", "a.3"].map(|id| sequence_of(&keys, id, at(1_500))), [Some(7), None, Some(8)]);
        assert_eq!(keys.size(), (2, bytes_max));
    }

    #[test]
    fn a_stream_that_has_lost_messages_has_no_keys() {
        let mut keys = SeenKeys::default();
        keys.note(&message("a.1", 1, 0), ONE, WINDOW_MS, at(0), usize::MAX);
        keys.note(&message("b.1", 1, 0), OTHER, WINDOW_MS, at(0), usize::MAX);
        keys.forget_stream(ONE);
        assert_eq!(["a.1", "b.1"].map(|id| sequence_of(&keys, id, at(0))), [None, Some(1)]);
        assert_eq!(keys.size(), (1, 3 + ENTRY_BYTES));
    }
}
