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

/// The rings between the shards and the room threads of a node, those to the room threads first.
#[derive(Default)]
pub struct RoomRings {
    shards: usize,
    to: Vec<Ring<ShardIndex, RoomThreadIndex, ToRoom>>,
    from: Vec<Ring<RoomThreadIndex, ShardIndex, FromRoom>>,
}

/// A message of a ring, with its writer and its reader.
pub enum RoomMessage {
    To(ShardIndex, RoomThreadIndex, ToRoom),
    From(RoomThreadIndex, ShardIndex, FromRoom),
}

impl RoomRings {
    /// All rings of a node.
    pub fn all(shards: u16, threads: u16) -> Self {
        let pairs = || (0..threads).flat_map(|thread| (0..shards).map(move |shard| (shard, thread)));
        let ends = |(shard, thread)| (ShardIndex(shard), RoomThreadIndex(thread));
        Self {
            shards: shards.into(),
            to: pairs().map(ends).map(|(shard, thread)| Ring::new(shard, thread)).collect(),
            from: pairs().map(ends).map(|(shard, thread)| Ring::new(thread, shard)).collect(),
        }
    }

    pub fn len(&self) -> usize {
        self.to.len() + self.from.len()
    }

    /// Appends a message of a shard.
    ///
    /// # Errors
    /// If there is no such room thread.
    pub fn send(&mut self, shard: usize, thread: RoomThreadIndex, message: ToRoom) -> Result<(), String> {
        let Some(ring) = self.to.get_mut(usize::from(thread.0) * self.shards + shard) else {
            return Err(format!("a message for the unknown {thread:?}: {message:?}"));
        };
        ring.push(message);
        Ok(())
    }

    /// Appends a message of a room thread.
    pub fn post(&mut self, thread: usize, shard: ShardIndex, message: FromRoom) {
        self.from[thread * self.shards + usize::from(shard.0)].push(message);
    }

    /// Removes the oldest message of a ring, unless the ring stalls or is empty.
    pub fn pop(&mut self, ring: usize, now_us: u64) -> Option<RoomMessage> {
        if let Some(ring) = self.to.get_mut(ring) {
            return ring.pop(now_us).map(|message| RoomMessage::To(ring.from, ring.to, message));
        }
        let ring = &mut self.from[ring - self.to.len()];
        ring.pop(now_us).map(|message| RoomMessage::From(ring.from, ring.to, message))
    }

    pub fn stall(&mut self, ring: usize, until_us: u64) {
        let to = self.to.len();
        match self.to.get_mut(ring) {
            Some(ring) => ring.stall(until_us),
            None => self.from[ring - to].stall(until_us),
        }
    }

    /// Whether no message is in flight.
    pub fn is_still(&self) -> bool {
        self.to.iter().all(Ring::is_empty) && self.from.iter().all(Ring::is_empty)
    }
}
