//! A ring between two threads. It keeps messages in order and can stall.

use std::collections::VecDeque;

use dunlin_engine::{
    ShardIndex,
    message::ShardMessage,
    room::{FromRoom, RoomThreadIndex, ToRoom},
};

/// A ring in one direction between two threads, for one class of messages.
pub struct Ring<F, T, M> {
    /// The writer.
    pub from: F,
    /// The reader.
    pub to: T,
    messages: VecDeque<M>,
    /// No message can be read before this time.
    stalled_until_us: u64,
}

/// A ring between shards.
pub type ShardRing = Ring<ShardIndex, ShardIndex, ShardMessage>;
/// A ring from a shard to a room thread.
pub type ToRoomRing = Ring<ShardIndex, RoomThreadIndex, ToRoom>;
/// A ring from a room thread to a shard.
pub type FromRoomRing = Ring<RoomThreadIndex, ShardIndex, FromRoom>;

impl ShardRing {
    /// All rings of a node with `count` shards. Requests and notices have separate rings.
    pub fn all(count: u16) -> Vec<Self> {
        let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
        let rings = pairs.flat_map(|(from, to)| [(from, to), (from, to)]);
        rings.map(|(from, to)| Self::new(ShardIndex(from), ShardIndex(to))).collect()
    }

    /// The index in [`ShardRing::all`] of the ring for `message`.
    pub fn index(from: ShardIndex, to: ShardIndex, count: u16, message: &ShardMessage) -> usize {
        let class = usize::from(matches!(message, ShardMessage::Notice(_)));
        (usize::from(from.0) * usize::from(count) + usize::from(to.0)) * 2 + class
    }
}

impl<F, T, M> Ring<F, T, M> {
    /// Creates an empty ring.
    pub fn new(from: F, to: T) -> Self {
        Self { from, to, messages: VecDeque::new(), stalled_until_us: 0 }
    }

    /// Appends a message.
    pub fn push(&mut self, message: M) {
        self.messages.push_back(message);
    }

    /// Removes the oldest message, unless the ring stalls or is empty.
    pub fn pop(&mut self, now_us: u64) -> Option<M> {
        if self.stalled_until_us > now_us { None } else { self.messages.pop_front() }
    }

    /// Stalls the ring until `until_us`.
    pub fn stall(&mut self, until_us: u64) {
        self.stalled_until_us = until_us;
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}
