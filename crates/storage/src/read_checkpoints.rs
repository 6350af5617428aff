//! Reads the checkpoints of rooms.

use std::ops::RangeInclusive;

use crate::{
    database::{Database, READ_ROOM},
    entries::RoomCheckpoint,
    error::StorageError,
    family::Family,
    keys,
};

/// See [`crate::Storage::newest_checkpoint`].
pub(crate) fn newest_checkpoint(
    database: &Database,
    room: &str,
    kind: u8,
    up_to_tick: u64,
) -> Result<Option<RoomCheckpoint>, StorageError> {
    let (prefix, last) = (keys::checkpoint_kind_key(room, kind), keys::checkpoint_key(room, kind, up_to_tick));
    let Some((key, bytes)) = database.last_up_to(Family::Checkpoints, &prefix, &last)? else { return Ok(None) };
    checkpoint(database, &key, bytes).map(Some)
}

/// See [`crate::Storage::checkpoints`].
pub(crate) fn checkpoints(
    database: &Database,
    room: &str,
    kind: u8,
    ticks: RangeInclusive<u64>,
    bytes_max: usize,
) -> Result<Vec<RoomCheckpoint>, StorageError> {
    let begin = keys::checkpoint_key(room, kind, *ticks.start());
    let end = keys::behind(&keys::checkpoint_key(room, kind, *ticks.end()));
    let (mut found, mut bytes) = (Vec::new(), 0);
    for entry in database.entries(Family::Checkpoints, &begin, end) {
        let (key, value) = entry?;
        bytes += value.len();
        if bytes > bytes_max {
            break;
        }
        found.push(checkpoint(database, &key, value)?);
    }
    Ok(found)
}

/// See [`crate::Storage::rooms_with_checkpoints`].
pub(crate) fn rooms_with_checkpoints(
    database: &Database,
    after: Option<&str>,
    rooms_max: usize,
) -> Result<Vec<Box<str>>, StorageError> {
    let mut from = after.map_or_else(Vec::new, |room| keys::behind(&keys::channel_key(room)));
    let mut rooms: Vec<Box<str>> = Vec::new();
    while rooms.len() < rooms_max {
        let Some(entry) = database.entries(Family::Checkpoints, &from, vec![u8::MAX; 2]).next() else { break };
        let (key, _) = entry?;
        let (room, _, _) = keys::read_checkpoint_key(&key).ok_or_else(|| database.unreadable(READ_ROOM))?;
        from = keys::behind(&keys::channel_key(room));
        rooms.push(room.into());
    }
    Ok(rooms)
}

fn checkpoint(database: &Database, key: &[u8], bytes: Box<[u8]>) -> Result<RoomCheckpoint, StorageError> {
    let (_, _, tick) = keys::read_checkpoint_key(key).ok_or_else(|| database.unreadable(READ_ROOM))?;
    Ok(RoomCheckpoint { tick, bytes })
}
