//! Reads the entries of rooms.

use std::ops::RangeInclusive;

use dunlin_engine::log::LogError;
use rocksdb::{Direction, IteratorMode, ReadOptions};

use crate::{
    Storage,
    database::Database,
    entries::RoomCheckpoint,
    error::StorageError,
    family::Family,
    keys,
    request::{Done, EntriesDone, EntryBatch},
    writer::WriteTask,
};

pub(crate) const ACTION: &str = "read a room";

/// A key and its value.
pub(crate) type Entry = (Box<[u8]>, Box<[u8]>);

impl Storage {
    /// Queues a batch of entries. `done` is called on the writer's thread, unless this function returns an error.
    ///
    /// # Errors
    /// The queue is full, or the storage is poisoned.
    pub fn write_entries(&self, batch: EntryBatch, done: EntriesDone) -> Result<(), LogError> {
        self.push(WriteTask::Entries { batch, done: Done(done) })
    }

    /// The newest checkpoint of a kind up to a tick.
    ///
    /// # Errors
    /// The disk fails, or stored bytes are damaged.
    pub fn newest_checkpoint(
        &self,
        room: &str,
        kind: u8,
        up_to_tick: u64,
    ) -> Result<Option<RoomCheckpoint>, StorageError> {
        let (prefix, last) = (keys::checkpoint_kind_key(room, kind), keys::checkpoint_key(room, kind, up_to_tick));
        let database = self.database()?;
        let Some((key, bytes)) = database.last_up_to(Family::Checkpoints, &prefix, &last)? else { return Ok(None) };
        checkpoint(&database, &key, bytes).map(Some)
    }

    /// The checkpoints of a kind at these ticks, in ascending order, up to a total of `bytes_max`.
    ///
    /// # Errors
    /// As [`Storage::newest_checkpoint`].
    pub fn checkpoints(
        &self,
        room: &str,
        kind: u8,
        ticks: RangeInclusive<u64>,
        bytes_max: usize,
    ) -> Result<Vec<RoomCheckpoint>, StorageError> {
        let begin = keys::checkpoint_key(room, kind, *ticks.start());
        let end = keys::behind(&keys::checkpoint_key(room, kind, *ticks.end()));
        let (mut found, mut bytes) = (Vec::new(), 0);
        let database = self.database()?;
        for entry in database.entries(Family::Checkpoints, &begin, end) {
            let (key, value) = entry?;
            bytes += value.len();
            if bytes > bytes_max {
                break;
            }
            found.push(checkpoint(&database, &key, value)?);
        }
        Ok(found)
    }

    /// Rooms after `after` that have checkpoints, in the order of their keys.
    ///
    /// # Errors
    /// As [`Storage::blocks`].
    pub fn rooms_with_checkpoints(&self, after: Option<&str>, rooms_max: usize) -> Result<Vec<Box<str>>, StorageError> {
        let mut from = after.map_or_else(Vec::new, |room| keys::behind(&keys::channel_key(room)));
        let mut rooms: Vec<Box<str>> = Vec::new();
        let database = self.database()?;
        while rooms.len() < rooms_max {
            let Some(entry) = database.entries(Family::Checkpoints, &from, vec![u8::MAX; 2]).next() else { break };
            let (key, _) = entry?;
            let (room, _, _) = keys::read_checkpoint_key(&key).ok_or_else(|| database.unreadable(ACTION))?;
            from = keys::behind(&keys::channel_key(room));
            rooms.push(room.into());
        }
        Ok(rooms)
    }
}

fn checkpoint(database: &Database, key: &[u8], bytes: Box<[u8]>) -> Result<RoomCheckpoint, StorageError> {
    let (_, _, tick) = keys::read_checkpoint_key(key).ok_or_else(|| database.unreadable(ACTION))?;
    Ok(RoomCheckpoint { tick, bytes })
}

impl Database {
    /// The last entry up to `last` that begins with `prefix`.
    pub(crate) fn last_up_to(&self, family: Family, prefix: &[u8], last: &[u8]) -> Result<Option<Entry>, StorageError> {
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(prefix);
        let mode = IteratorMode::From(last, Direction::Reverse);
        let entry = self.db.iterator_cf_opt(self.family(family), options, mode).next();
        entry.transpose().map_err(|error| self.read_failed(ACTION, &error))
    }

    /// The entries from `begin` to before `end`.
    pub(crate) fn entries(
        &self,
        family: Family,
        begin: &[u8],
        end: Vec<u8>,
    ) -> impl Iterator<Item = Result<Entry, StorageError>> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(end);
        let mode = IteratorMode::From(begin, Direction::Forward);
        let entries = self.db.iterator_cf_opt(self.family(family), options, mode);
        entries.map(|entry| entry.map_err(|error| self.read_failed(ACTION, &error)))
    }
}
