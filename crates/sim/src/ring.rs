//! A ring between two threads: keeps order and stalls at random.

use std::collections::VecDeque;

use dunlin_engine::{
    ShardIndex,
    message::ShardMessage,
    room::{FromRoom, RoomThreadIndex, ToRoom},
};

/// One direction between two threads, for one class of messages.
pub struct Ring<F, T, M> {
    /// Who writes.
    pub from: F,
    /// Who reads.
    pub to: T,
    messages: VecDeque<M>,
    /// Nothing comes out before this time.
    stalled_until_us: u64,
}

/// Between shards.
pub type ShardRing = Ring<ShardIndex, ShardIndex, ShardMessage>;
/// To a room thread.
pub type ToRoomRing = Ring<ShardIndex, RoomThreadIndex, ToRoom>;
/// From a room thread.
pub type FromRoomRing = Ring<RoomThreadIndex, ShardIndex, FromRoom>;

impl ShardRing {
    /// All rings of a node with `count` shards: requests and notices apart.
    pub fn all(count: u16) -> Vec<Self> {
        let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
        let rings = pairs.flat_map(|(from, to)| [(from, to), (from, to)]);
        rings.map(|(from, to)| Self::new(ShardIndex(from), ShardIndex(to))).collect()
    }

    /// The place, among [`ShardRing::all`], of the ring that `message` takes.
    pub fn place(from: ShardIndex, to: ShardIndex, count: u16, message: &ShardMessage) -> usize {
        let class = usize::from(matches!(message, ShardMessage::Notice(_)));
        (usize::from(from.0) * usize::from(count) + usize::from(to.0)) * 2 + class
    }
}

impl<F, T, M> Ring<F, T, M> {
    /// An empty one.
    pub fn new(from: F, to: T) -> Self {
        Self { from, to, messages: VecDeque::new(), stalled_until_us: 0 }
    }

    /// Writes.
    pub fn push(&mut self, message: M) {
        self.messages.push_back(message);
    }

    /// Reads, unless the ring stalls or is empty.
    pub fn pop(&mut self, now_us: u64) -> Option<M> {
        if self.stalled_until_us > now_us { None } else { self.messages.pop_front() }
    }

    /// Lets nothing out until `until_us`.
    pub fn stall(&mut self, until_us: u64) {
        self.stalled_until_us = until_us;
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}
