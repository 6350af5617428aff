//! The disk of a room: one writer, in order, each write some time after it was queued.

use std::collections::{BTreeMap, VecDeque};

use crate::chance::Chance;

/// A write.
pub enum RoomWrite {
    /// In place of the checkpoint before it, and of the log up to its tick.
    Checkpoint(u64, Vec<u8>),
    /// What a tick began with.
    Record(u64, Vec<u8>),
}

/// What is written, and what is about to be.
pub struct RoomDisk {
    chance: Chance,
    /// The checkpoint, with the count of its tick.
    pub checkpoint: Option<(u64, Vec<u8>)>,
    /// Records by the counts of their ticks.
    pub log: BTreeMap<u64, Vec<u8>>,
    queued: VecDeque<(u64, RoomWrite)>,
    delay_max_us: u64,
}

impl RoomDisk {
    /// An empty one.
    pub fn new(mut chance: Chance) -> Self {
        let delay_max_us = *chance.pick(&[100, 10_000, 60_000]);
        Self { checkpoint: None, log: BTreeMap::new(), queued: VecDeque::new(), delay_max_us, chance }
    }

    /// Queues a write.
    pub fn write(&mut self, now_us: u64, write: RoomWrite) {
        let due_us = now_us + self.chance.between(0, self.delay_max_us);
        self.queued.push_back((due_us, write));
    }

    /// Carries out what is due; returns the count of the last tick that is logged.
    pub fn step(&mut self, now_us: u64) -> u64 {
        while let Some((_, write)) = self.queued.pop_front_if(|(due_us, _)| *due_us <= now_us) {
            self.carry_out(write);
        }
        let saved = self.checkpoint.as_ref().map_or(0, |(tick, _)| *tick);
        self.log.last_key_value().map_or(saved, |(tick, _)| *tick)
    }

    /// The node crashes: some of what is queued is written, from the beginning.
    pub fn crash(&mut self) {
        let written = self.chance.below(self.queued.len() + 1);
        for (_, write) in std::mem::take(&mut self.queued).into_iter().take(written) {
            self.carry_out(write);
        }
    }

    /// Whether everything is written.
    pub fn is_at_rest(&self) -> bool {
        self.queued.is_empty()
    }

    fn carry_out(&mut self, write: RoomWrite) {
        match write {
            RoomWrite::Checkpoint(tick, bytes) => {
                self.checkpoint = Some((tick, bytes));
                self.log = self.log.split_off(&(tick + 1));
            }
            RoomWrite::Record(tick, bytes) => {
                self.log.insert(tick, bytes);
            }
        }
    }
}
