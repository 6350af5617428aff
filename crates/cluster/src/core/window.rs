//! The newest publications of a followed channel in memory.

use std::collections::VecDeque;

use dunlin_engine::log::LogRecord;

use crate::{link::StoredMessage, record};

/// A publication in the window of a channel.
#[derive(Clone, Debug)]
pub(super) struct WindowEntry {
    pub(super) time_ms: u64,
    pub(super) record: LogRecord,
}

impl WindowEntry {
    fn sequence(&self) -> u64 {
        self.record.publication.offset
    }
}

/// Limits of one window.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowLimits {
    pub(super) entries_max: u64,
    pub(super) bytes_max: usize,
}

/// What is known of the newest publication, also after its eviction.
#[derive(Clone, Debug)]
pub(super) struct NewestPublication {
    pub(super) offset: u64,
    pub(super) time_ms: u64,
    pub(super) version: u64,
    pub(super) version_epoch: Box<str>,
}

impl NewestPublication {
    fn of(entry: &WindowEntry) -> Self {
        let WindowEntry { time_ms, record } = entry;
        let (version, version_epoch) = (record.publication.version, record.version_epoch.clone());
        Self { offset: entry.sequence(), time_ms: *time_ms, version, version_epoch }
    }
}

/// The newest publications of a channel: all that were stored after `floor`.
#[derive(Debug, Default)]
pub(super) struct Window {
    floor: u64,
    entries: VecDeque<WindowEntry>,
    bytes: usize,
    /// The bytes that the node's total includes.
    pub(super) counted_bytes: usize,
    newest: Option<NewestPublication>,
}

impl Window {
    pub(super) fn starting_at(floor: u64) -> Self {
        Self { floor, ..Self::default() }
    }

    pub(super) const fn floor(&self) -> u64 {
        self.floor
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends the newest publication, and evicts the oldest ones beyond the limits.
    pub(super) fn push(&mut self, entry: WindowEntry, limits: WindowLimits) {
        debug_assert!(entry.sequence() > self.entries.back().map_or(self.floor, WindowEntry::sequence));
        self.newest = Some(NewestPublication::of(&entry));
        self.bytes += entry.record.kept_bytes();
        self.entries.push_back(entry);
        while self.entries.len() as u64 > limits.entries_max {
            self.evict_oldest();
        }
        self.evict_to(limits.bytes_max);
    }

    /// Evicts the oldest publications until at most `bytes_max` remain.
    pub(super) fn evict_to(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max && !self.entries.is_empty() {
            self.evict_oldest();
        }
    }

    fn evict_oldest(&mut self) {
        if let Some(oldest) = self.entries.pop_front() {
            self.bytes -= oldest.record.kept_bytes();
            self.floor = oldest.sequence();
        }
    }

    /// Inserts messages before the oldest publication: all that were stored between `floor` and `through`, which must
    /// reach the window. The oldest are left out if they do not fit.
    pub(super) fn extend_below(&mut self, messages: &[StoredMessage], floor: u64, through: u64, limits: WindowLimits) {
        let through = through.max(messages.last().map_or(0, |message| message.sequence));
        // A window without publications is where the newest one was evicted: what is read would not fit either.
        if floor >= self.floor || through < self.floor || self.entries.is_empty() {
            return;
        }
        let own_floor = self.floor;
        let is_missing = |message: &&StoredMessage| (floor + 1..=own_floor).contains(&message.sequence);
        self.floor = floor;
        for message in messages.iter().rev().filter(is_missing) {
            if record::purged_through(message).is_some() {
                continue;
            }
            let entry = WindowEntry { time_ms: message.time_ms, record: record::decode(message) };
            let bytes = self.bytes + entry.record.kept_bytes();
            if self.entries.len() as u64 >= limits.entries_max || bytes > limits.bytes_max {
                self.floor = message.sequence;
                return;
            }
            self.bytes = bytes;
            self.entries.push_front(entry);
        }
    }

    /// Drops everything up to `through`.
    pub(super) fn clear(&mut self, through: u64) {
        *self = Self { counted_bytes: self.counted_bytes, ..Self::starting_at(self.floor.max(through)) };
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn oldest(&self) -> Option<&WindowEntry> {
        self.entries.front()
    }

    pub(super) const fn newest(&self) -> Option<&NewestPublication> {
        self.newest.as_ref()
    }

    /// The publications below a sequence, oldest first.
    pub(super) fn below(
        &self,
        below: u64,
    ) -> impl DoubleEndedIterator<Item = &WindowEntry> + ExactSizeIterator + Clone {
        let end = self.entries.partition_point(|entry| entry.sequence() < below);
        self.entries.range(..end)
    }

    /// The publications after `after`, oldest first.
    pub(super) fn behind(&self, after: u64) -> impl Iterator<Item = &WindowEntry> {
        let from = self.entries.partition_point(|entry| entry.sequence() <= after);
        self.entries.range(from..)
    }
}

#[cfg(test)]
mod tests;
