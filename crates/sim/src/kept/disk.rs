//! The simulated disk of a room. Writes are done in order, each with a delay.

use std::collections::{BTreeMap, VecDeque};

use crate::chance::Chance;

pub enum RoomWrite {
    /// A checkpoint. It replaces the previous one and the log up to its tick.
    Checkpoint(u64, Vec<u8>),
    /// The input record of a tick.
    Record(u64, Vec<u8>),
}

/// The written data and the queued writes.
pub struct RoomDisk {
    chance: Chance,
    /// The checkpoint and its tick.
    pub checkpoint: Option<(u64, Vec<u8>)>,
    /// Records by tick.
    pub log: BTreeMap<u64, Vec<u8>>,
    queued: VecDeque<(u64, RoomWrite)>,
    delay_max_us: u64,
}

impl RoomDisk {
    /// Creates an empty disk.
    pub fn new(mut chance: Chance) -> Self {
        let delay_max_us = *chance.pick(&[100, 10_000, 60_000]);
        Self { checkpoint: None, log: BTreeMap::new(), queued: VecDeque::new(), delay_max_us, chance }
    }

    pub fn write(&mut self, now_us: u64, write: RoomWrite) {
        let due_us = now_us + self.chance.between(0, self.delay_max_us);
        self.queued.push_back((due_us, write));
    }

    /// Does all writes that are due. Returns the last tick on the disk.
    pub fn step(&mut self, now_us: u64) -> u64 {
        while let Some((_, write)) = self.queued.pop_front_if(|(due_us, _)| *due_us <= now_us) {
            self.perform(write);
        }
        let saved = self.checkpoint.as_ref().map_or(0, |(tick, _)| *tick);
        self.log.last_key_value().map_or(saved, |(tick, _)| *tick)
    }

    /// Simulates a crash. Some of the queued writes are done, in order.
    pub fn crash(&mut self) {
        let written = self.chance.below(self.queued.len() + 1);
        for (_, write) in std::mem::take(&mut self.queued).into_iter().take(written) {
            self.perform(write);
        }
    }

    /// Whether no write is queued.
    pub fn is_at_rest(&self) -> bool {
        self.queued.is_empty()
    }

    fn perform(&mut self, write: RoomWrite) {
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
