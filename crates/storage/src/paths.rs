//! Blocks of players' paths. The storage does not know what is in them.
//!
//! A value is a version, 1, and the time at which it expires (as in `records.rs`), then 0 or 1 for bytes as they are or
//! compressed with Zstandard, and the bytes. What becomes no smaller is not compressed.

use std::{fmt, ops::RangeInclusive, sync::Arc};

use zstd_safe::{CCtx, DCtx};

use crate::{
    error::StorageError,
    family::Family,
    keys,
    records::{begin, split_prefix},
    request::EntryBatch,
};

/// Bytes of a block before it is compressed.
const BLOCK_BYTES_MAX: usize = 4_096;

const COMPRESSION_LEVEL: i32 = 3;

const PLAIN: u8 = 0;
const COMPRESSED: u8 = 1;

/// Whose path it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathOwner {
    /// All players of a user.
    User(Box<str>),
    /// An anonymous player, by its number in the room.
    Player(u32),
}

/// A block of a path where it lies among the others: they are ordered like this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPlace {
    /// Whose path it is.
    pub owner: PathOwner,
    /// The Unix time of its first point.
    pub first_ms: u64,
    /// The player: a user may have several at a time.
    pub player: u32,
}

/// Part of a player's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathBlock {
    /// Where it lies.
    pub place: PathPlace,
    /// What the room has written.
    pub bytes: Box<[u8]>,
}

/// Which blocks are read.
#[derive(Clone, Debug)]
pub struct PathQuery {
    /// The channel.
    pub room: Arc<str>,
    /// Of whom; `None` for everybody.
    pub owner: Option<PathOwner>,
    /// Those that begin in this time, the one before them, and those that reach into it. Unix time.
    pub times_ms: RangeInclusive<u64>,
    /// How long a block may be: a user may have several players at a time.
    pub reach_ms: u64,
    /// The first one, as [`PathPage::next`] said.
    pub from: Option<PathPlace>,
    /// Blocks and owners that are looked at.
    pub blocks_max: usize,
}

/// Blocks in the order of their places.
#[derive(Clone, Debug, Default)]
pub struct PathPage {
    /// The blocks.
    pub blocks: Vec<PathBlock>,
    /// Where to go on; `None` at the end.
    pub next: Option<PathPlace>,
}

/// Takes what was read, on a reader's thread.
pub type PathsRead = Box<dyn FnOnce(Result<PathPage, StorageError>) + Send>;

/// Compresses blocks. Its memory is used again.
pub struct PathCompressor {
    context: CCtx<'static>,
    buffer: Vec<u8>,
}

impl Default for PathCompressor {
    fn default() -> Self {
        Self { context: CCtx::create(), buffer: vec![0; zstd_safe::compress_bound(BLOCK_BYTES_MAX)] }
    }
}

impl PathCompressor {
    /// The smaller one of the bytes as they are and compressed, behind what says which it is.
    fn append(&mut self, bytes: &[u8], value: &mut Vec<u8>) {
        match self.context.compress(&mut *self.buffer, bytes, COMPRESSION_LEVEL) {
            Ok(length) if length < bytes.len() => {
                value.push(COMPRESSED);
                value.extend_from_slice(&self.buffer[..length]);
            }
            // Longer blocks do not fit; what is stored is right all the same.
            _ => {
                value.push(PLAIN);
                value.extend_from_slice(bytes);
            }
        }
    }
}

impl EntryBatch {
    /// Adds a block of a player's path. Returns how many bytes its value has.
    pub fn put_block(
        &mut self,
        room: &str,
        place: &PathPlace,
        expires_ms: u64,
        bytes: &[u8],
        compressor: &mut PathCompressor,
    ) -> usize {
        let mut value = begin(expires_ms, 1 + bytes.len());
        compressor.append(bytes, &mut value);
        let length = value.len();
        self.put(Family::Paths, keys::block_key(room, &owner_key(&place.owner), place.first_ms, place.player), value);
        length
    }

    /// Deletes all paths of a room.
    pub fn delete_paths(&mut self, room: &str) {
        let begin = keys::channel_key(room);
        self.delete(Family::Paths, begin.clone(), keys::behind(&begin));
    }
}

/// Whether an entry is a block of a path.
pub(crate) fn is_readable(key: &[u8], value: &[u8]) -> bool {
    read_place(key).is_some() && split_prefix(value).is_some_and(|(_, stored)| unpacked(stored).is_some())
}

pub(crate) fn unpacked(stored: &[u8]) -> Option<Box<[u8]>> {
    match stored.split_first()? {
        (&PLAIN, bytes) => Some(bytes.into()),
        (&COMPRESSED, bytes) => {
            let mut buffer = [0; BLOCK_BYTES_MAX];
            let length = DCtx::create().decompress(&mut buffer[..], bytes).ok()?;
            Some(buffer[..length].into())
        }
        _ => None,
    }
}

/// Users and anonymous players are told apart by the first character.
pub(crate) fn owner_key(owner: &PathOwner) -> String {
    match owner {
        PathOwner::User(user) => format!("u{user}"),
        PathOwner::Player(player) => format!("p{player}"),
    }
}

fn read_owner(key: &str) -> Option<PathOwner> {
    match key.split_at_checked(1)? {
        ("u", user) => Some(PathOwner::User(user.into())),
        ("p", player) => player.parse().ok().map(PathOwner::Player),
        _ => None,
    }
}

pub(crate) fn owner_prefix(room: &str, owner: &PathOwner) -> Vec<u8> {
    keys::path_key(room, &owner_key(owner))
}

pub(crate) fn place_key(room: &str, place: &PathPlace) -> Vec<u8> {
    keys::block_key(room, &owner_key(&place.owner), place.first_ms, place.player)
}

pub(crate) fn read_place(key: &[u8]) -> Option<PathPlace> {
    let (_, owner, first_ms, player) = keys::read_block_key(key)?;
    Some(PathPlace { owner: read_owner(owner)?, first_ms, player })
}

impl fmt::Debug for PathCompressor {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("PathCompressor")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_compressed_where_that_helps() {
        let mut compressor = PathCompressor::default();
        let mut pack = |bytes: &[u8]| {
            let mut value = Vec::new();
            compressor.append(bytes, &mut value);
            assert_eq!(unpacked(&value).as_deref(), Some(bytes));
            value
        };
        assert!(pack(&[112; 4_096]).len() < 64);
        assert_eq!(pack(b"abc"), b"\0abc");
        assert_eq!(pack(b""), b"\0");
    }

    #[test]
    fn the_format_is_fixed() {
        assert_eq!(unpacked(b"\0abc").as_deref(), Some(&b"abc"[..]));
        for bytes in [&b""[..], b"\x01abc", b"\x02abc"] {
            assert_eq!(unpacked(bytes), None);
        }
    }

    #[test]
    fn owner_keys_of_users_and_players_round_trip() {
        for owner in [PathOwner::User("".into()), PathOwner::User("p7".into()), PathOwner::Player(7)] {
            assert_eq!(read_owner(&owner_key(&owner)), Some(owner));
        }
        assert_eq!((read_owner(""), read_owner("x"), read_owner("p-1"), read_owner("é")), (None, None, None, None));
    }
}
