//! Reads the blocks of players' paths.

use std::{fmt, sync::Arc};

use crate::{
    database::{Database, READ_ROOM},
    error::StorageError,
    family::Family,
    keys,
    paths::{
        PathBlock, PathOwner, PathPage, PathQuery, PathsRead, owner_key, owner_prefix, place_key, read_place, unpacked,
    },
    records::split_prefix,
};

/// A queued query.
pub(crate) struct PathTask {
    pub(crate) query: PathQuery,
    pub(crate) done: PathsRead,
}

impl PathTask {
    pub(crate) fn serve(self, database: Result<Arc<Database>, StorageError>) {
        (self.done)(database.and_then(|database| read(&database, &self.query)));
    }
}

fn read(database: &Database, query: &PathQuery) -> Result<PathPage, StorageError> {
    let mut page = PathPage::default();
    let room_key = keys::channel_key(&query.room);
    let within = query.owner.as_ref().map_or_else(|| room_key.clone(), |owner| owner_prefix(&query.room, owner));
    let end = keys::behind(&within);
    let mut next = Some(match &query.from {
        Some(place) => Step::Blocks(place_key(&query.room, place)),
        None => Step::Owner(within),
    });
    let mut looked_at = 0;
    while let Some(step) = next.take() {
        let key = match step {
            Step::Blocks(key) => key,
            Step::Owner(key) => {
                let Some(entry) = database.entries(Family::Paths, &key, end.clone()).next() else { break };
                let (key, _) = entry?;
                let found = read_place(&key).ok_or_else(|| database.unreadable(READ_ROOM))?;
                let key = first_key(database, query, &found.owner)?;
                if looked_at >= query.blocks_max {
                    page.next = read_place(&key);
                    break;
                }
                looked_at += 1;
                key
            }
        };
        next = read_blocks(database, query, &key, &mut looked_at, &mut page)?;
    }
    Ok(page)
}

/// The next step: read an owner's blocks from a key on, or find the first owner from a key on.
enum Step {
    Blocks(Vec<u8>),
    Owner(Vec<u8>),
}

/// The key of the last block that begins before the time range or at its start. If earlier blocks may also reach into
/// the range, the lowest key that such a block can have.
fn first_key(database: &Database, query: &PathQuery, owner: &PathOwner) -> Result<Vec<u8>, StorageError> {
    let prefix = owner_prefix(&query.room, owner);
    let key_at = |first_ms| keys::block_key(&query.room, &owner_key(owner), first_ms, 0);
    let (start, begin) = (*query.times_ms.start(), key_at(*query.times_ms.start()));
    let last = database.last_up_to(Family::Paths, &prefix, &begin)?;
    Ok(last.map_or(begin, |(key, _)| key.into_vec().min(key_at(start.saturating_sub(query.reach_ms)))))
}

/// Reads the blocks of one owner. Returns the next step.
fn read_blocks(
    database: &Database,
    query: &PathQuery,
    from: &[u8],
    looked_at: &mut usize,
    page: &mut PathPage,
) -> Result<Option<Step>, StorageError> {
    let unreadable = || database.unreadable(READ_ROOM);
    let owner = read_place(from).ok_or_else(unreadable)?.owner;
    let prefix = owner_prefix(&query.room, &owner);
    let end = keys::block_key(&query.room, &owner_key(&owner), query.times_ms.end().saturating_add(1), 0);
    let now_ms = database.clock.now_ms();
    for entry in database.entries(Family::Paths, from, end) {
        let (key, value) = entry?;
        let place = read_place(&key).ok_or_else(unreadable)?;
        if *looked_at >= query.blocks_max {
            page.next = Some(place);
            return Ok(None);
        }
        *looked_at += 1;
        let (expires_ms, stored) = split_prefix(&value).ok_or_else(unreadable)?;
        if expires_ms > now_ms {
            let bytes = unpacked(stored).ok_or_else(unreadable)?;
            page.blocks.push(PathBlock { place, bytes });
        }
    }
    Ok(query.owner.is_none().then(|| Step::Owner(keys::behind(&prefix))))
}

impl fmt::Debug for PathTask {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.debug_struct("PathTask").field("query", &self.query).finish_non_exhaustive()
    }
}
