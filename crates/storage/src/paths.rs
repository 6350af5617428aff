//! Blocks of players' paths. Their content is opaque to the storage.
//!
//! A value consists of a version, 1, and the time at which it expires (as in `records.rs`), then 0 for plain bytes or 1
//! for bytes compressed with Zstandard, and the bytes. Bytes that do not become smaller are not compressed.

use std::{fmt, ops::RangeInclusive, sync::Arc};

use zstd_safe::{CCtx, DCtx};

use crate::{
    error::StorageError,
    keys,
    records::{begin, split_prefix},
};

/// Maximum number of bytes of a block before compression.
const BLOCK_BYTES_MAX: usize = 4_096;

const COMPRESSION_LEVEL: i32 = 3;

const PLAIN: u8 = 0;
const COMPRESSED: u8 = 1;

/// The owner of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathOwner {
    /// All players of a user.
    User(Box<str>),
    /// An anonymous player, by its number in the room.
    Player(u32),
}

/// The place of a block among the others, which are sorted by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPlace {
    /// The owner of the path.
    pub owner: PathOwner,
    /// The Unix time of its first point.
    pub first_ms: u64,
    /// The player, because a user may have several players at the same time.
    pub player: u32,
}

/// Part of a player's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathBlock {
    /// The place of the block.
    pub place: PathPlace,
    /// The bytes that the room has written.
    pub bytes: Box<[u8]>,
}

/// Selects blocks to read.
#[derive(Clone, Debug)]
pub struct PathQuery {
    /// The channel.
    pub room: Arc<str>,
    /// The owner of the paths; `None` for all owners.
    pub owner: Option<PathOwner>,
    /// The range of Unix time. Selects the blocks that begin in it, the block before them, and blocks that reach into
    /// it.
    pub times_ms: RangeInclusive<u64>,
    /// Maximum duration of a block. Necessary because a user may have several players at the same time.
    pub reach_ms: u64,
    /// The first block, from [`PathPage::next`].
    pub from: Option<PathPlace>,
    /// Maximum number of blocks and owners that are examined.
    pub blocks_max: usize,
}

/// Blocks in the order of their places.
#[derive(Clone, Debug, Default)]
pub struct PathPage {
    /// The blocks.
    pub blocks: Vec<PathBlock>,
    /// Where the next query continues; `None` at the end.
    pub next: Option<PathPlace>,
}

/// Receives the result on a reader's thread.
pub type PathsRead = Box<dyn FnOnce(Result<PathPage, StorageError>) + Send>;

/// Compresses blocks, and reuses its memory.
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
    /// The value of a block.
    pub(crate) fn value(&mut self, expires_ms: u64, bytes: &[u8]) -> Vec<u8> {
        let mut value = begin(expires_ms, 1 + bytes.len());
        self.append(bytes, &mut value);
        value
    }

    /// Appends the form of the bytes, and the smaller of the plain and the compressed bytes.
    fn append(&mut self, bytes: &[u8], value: &mut Vec<u8>) {
        match self.context.compress(&mut *self.buffer, bytes, COMPRESSION_LEVEL) {
            Ok(length) if length < bytes.len() => {
                value.push(COMPRESSED);
                value.extend_from_slice(&self.buffer[..length]);
            }
            // The buffer may be too small for a longer block, which is then stored uncompressed.
            _ => {
                value.push(PLAIN);
                value.extend_from_slice(bytes);
            }
        }
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

/// The first character distinguishes users from anonymous players.
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
