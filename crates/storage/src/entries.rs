//! Batches of entries that are not publications: checkpoints of rooms, blocks of paths, and rules about who may not connect.
//! Their content is opaque to the storage.

use std::fmt;

use crate::{
    family::Family,
    keys,
    paths::{PathCompressor, PathPlace, place_key},
    records,
};

/// A stored state of a room, or another entry of a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomCheckpoint {
    /// The tick of the state.
    pub tick: u64,
    /// The bytes that the room has written.
    pub bytes: Box<[u8]>,
}

/// A stored rule about who may not connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessEntry {
    /// What kind of id `name` is.
    pub kind: u8,
    /// The id of a user or token.
    pub name: Box<str>,
    /// Unix time at which the entry is removed.
    pub expires_ms: u64,
    /// The content.
    pub bytes: Box<[u8]>,
}

/// Entries that are written atomically.
pub struct EntryBatch {
    pub(crate) changes: Vec<EntryChange>,
    pub(crate) bytes: usize,
    pub(crate) is_synced: bool,
}

pub(crate) enum EntryChange {
    Put { family: Family, key: Vec<u8>, value: Vec<u8> },
    DeleteRange { family: Family, begin: Vec<u8>, end: Vec<u8> },
}

impl EntryBatch {
    /// Creates an empty batch; `is_synced` as in [`dunlin_engine::log::LogTerms::is_synced`].
    pub const fn new(is_synced: bool) -> Self {
        Self { changes: Vec::new(), bytes: 0, is_synced }
    }

    /// Adds a checkpoint. The room defines the meaning of its kinds.
    pub fn put_checkpoint(&mut self, room: &str, kind: u8, tick: u64, bytes: Vec<u8>) {
        self.put(Family::Checkpoints, keys::checkpoint_key(room, kind, tick), bytes);
    }

    /// Deletes a room's checkpoints of one kind before a tick.
    pub fn delete_checkpoints(&mut self, room: &str, kind: u8, before_tick: u64) {
        let (begin, end) = (keys::checkpoint_kind_key(room, kind), keys::checkpoint_key(room, kind, before_tick));
        self.delete(Family::Checkpoints, begin, end);
    }

    /// Deletes all checkpoints of a room.
    pub fn delete_all_checkpoints(&mut self, room: &str) {
        let begin = keys::channel_key(room);
        self.delete(Family::Checkpoints, begin.clone(), keys::behind(&begin));
    }

    /// Adds a block of a player's path. Returns the number of bytes of its value.
    pub fn put_block(
        &mut self,
        room: &str,
        place: &PathPlace,
        expires_ms: u64,
        bytes: &[u8],
        compressor: &mut PathCompressor,
    ) -> usize {
        let value = compressor.value(expires_ms, bytes);
        let length = value.len();
        self.put(Family::Paths, place_key(room, place), value);
        length
    }

    /// Deletes all paths of a room.
    pub fn delete_paths(&mut self, room: &str) {
        let begin = keys::channel_key(room);
        self.delete(Family::Paths, begin.clone(), keys::behind(&begin));
    }

    /// Adds a rule about who may not connect, in place of an earlier one with this kind and name.
    pub fn put_access(&mut self, entry: &AccessEntry) {
        let AccessEntry { kind, name, expires_ms, bytes } = entry;
        let mut value = records::begin(*expires_ms, bytes.len());
        value.extend_from_slice(bytes);
        self.put(Family::Idempotency, keys::access_key(*kind, name), value);
    }

    /// Whether the batch contains no changes.
    pub const fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    fn put(&mut self, family: Family, key: Vec<u8>, value: Vec<u8>) {
        self.bytes += key.len() + value.len();
        self.changes.push(EntryChange::Put { family, key, value });
    }

    fn delete(&mut self, family: Family, begin: Vec<u8>, end: Vec<u8>) {
        self.bytes += begin.len() + end.len();
        self.changes.push(EntryChange::DeleteRange { family, begin, end });
    }
}

impl fmt::Debug for EntryBatch {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { changes, bytes, is_synced } = self;
        write!(text, "EntryBatch {{ changes: {}, bytes: {bytes}, is_synced: {is_synced} }}", changes.len())
    }
}
