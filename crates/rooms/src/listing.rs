//! How a room is listed, and who may join it. The game and the backend can change it.

use std::{fmt, sync::Arc};

use serde_json::value::RawValue;

use crate::{
    WorldError,
    binary::{Reader, Unreadable, put_bytes, put_number},
    hash::Hasher,
};

/// The bits of a saved listing.
const LOCKED: u8 = 1;
const UNLISTED: u8 = 2;

/// How a room is listed, and who may join it.
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::ListingState;
///
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
/// # example::in_world(|world, ada| {
/// world.set_metadata(r#"{"map": "ice"}"#)?;
/// let ListingState { players_max, is_locked, is_unlisted, metadata } = world.listing();
/// assert_eq!((players_max, is_locked, is_unlisted), (&None, &false, &false));
/// assert_eq!(&**metadata, r#"{"map": "ice"}"#);
/// # Ok(())
/// # })
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListingState {
    /// Maximum number of players, if it is below that of the options.
    pub players_max: Option<u32>,
    /// Whether new players and spectators are refused.
    pub is_locked: bool,
    /// Whether the room is left out of lists for players and of matchmaking.
    pub is_unlisted: bool,
    /// A JSON document for lists of rooms; empty for none.
    pub metadata: Arc<str>,
}

/// A change of a [`ListingState`]. `None` keeps the current value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListingChange {
    /// Maximum number of players.
    pub players_max: Option<u32>,
    /// Whether new players and spectators are refused.
    pub is_locked: Option<bool>,
    /// Whether the room is left out of lists for players and of matchmaking.
    pub is_unlisted: Option<bool>,
    /// A JSON document; empty for none.
    pub metadata: Option<Arc<str>>,
}

impl ListingState {
    pub(crate) fn set_metadata(&mut self, metadata: &str, bytes_max: usize) -> Result<(), WorldError> {
        let is_json = metadata.is_empty() || serde_json::from_str::<&RawValue>(metadata).is_ok();
        if !is_json || metadata.len() > bytes_max {
            return Err(WorldError::BadMetadata);
        }
        if *self.metadata != *metadata {
            self.metadata = metadata.into();
        }
        Ok(())
    }

    /// Appends the form that [`ListingState::restore`] reads.
    pub(crate) fn save(&self, out: &mut Vec<u8>) {
        put_number(self.players_max.map_or(0, |max| u64::from(max) + 1), out);
        out.push(self.flags());
        put_bytes(self.metadata.as_bytes(), out);
    }

    pub(crate) fn restore(saved: &mut Reader<'_>) -> Result<Self, Unreadable> {
        let players_max = match saved.number()?.checked_sub(1) {
            Some(max) => Some(u32::try_from(max).map_err(|_| Unreadable::Wrong)?),
            None => None,
        };
        let flags = saved.byte()?;
        if flags & !(LOCKED | UNLISTED) != 0 {
            return Err(Unreadable::Wrong);
        }
        let (is_locked, is_unlisted) = (flags & LOCKED != 0, flags & UNLISTED != 0);
        Ok(Self { players_max, is_locked, is_unlisted, metadata: saved.text()?.into() })
    }

    fn flags(&self) -> u8 {
        (u8::from(self.is_locked) * LOCKED) | (u8::from(self.is_unlisted) * UNLISTED)
    }

    /// Adds the listing to a state hash. The default listing leaves the hash unchanged.
    pub(crate) fn hash(&self, hasher: Hasher) -> Hasher {
        if *self == Self::default() {
            return hasher;
        }
        let hasher = hasher.number(self.players_max.map_or(0, |max| u64::from(max) + 1));
        hasher.number(self.flags().into()).bytes(self.metadata.as_bytes())
    }
}

impl ListingChange {
    /// Whether the change is empty.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Appends the form that [`ListingChange::read`] reads.
    pub fn write(&self, out: &mut Vec<u8>) {
        put_number(self.players_max.map_or(0, |max| u64::from(max) + 1), out);
        // Earlier versions have no bit for the listing, so their values are below 3.
        out.push(put_choice(self.is_locked) + 3 * put_choice(self.is_unlisted));
        out.push(self.metadata.is_some().into());
        if let Some(metadata) = &self.metadata {
            put_bytes(metadata.as_bytes(), out);
        }
    }

    /// Reads what [`ListingChange::write`] wrote; `None` for anything else.
    pub fn read(written: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(written);
        let change = Self::read_from(&mut reader).ok()?;
        (reader.left() == 0).then_some(change)
    }

    fn read_from(reader: &mut Reader<'_>) -> Result<Self, Unreadable> {
        let players_max = match reader.number()?.checked_sub(1) {
            Some(max) => Some(u32::try_from(max).map_err(|_| Unreadable::Wrong)?),
            None => None,
        };
        let choices = reader.byte()?;
        if choices >= 9 {
            return Err(Unreadable::Wrong);
        }
        let (is_locked, is_unlisted) = (read_choice(choices % 3), read_choice(choices / 3));
        let metadata = if read_flag(reader)? { Some(reader.text()?.into()) } else { None };
        Ok(Self { players_max, is_locked, is_unlisted, metadata })
    }
}

const fn put_choice(choice: Option<bool>) -> u8 {
    match choice {
        None => 0,
        Some(false) => 1,
        Some(true) => 2,
    }
}

const fn read_choice(written: u8) -> Option<bool> {
    match written {
        0 => None,
        1 => Some(false),
        _ => Some(true),
    }
}

/// A description of the change for humans.
impl fmt::Display for ListingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if let Some(players_max) = self.players_max {
            write!(f, "max_players {players_max}")?;
            separator = ", ";
        }
        if let Some(is_locked) = self.is_locked {
            write!(f, "{separator}{}", if is_locked { "locked" } else { "not locked" })?;
            separator = ", ";
        }
        match &self.metadata {
            Some(metadata) => write!(f, "{separator}metadata {metadata}"),
            None if separator.is_empty() => f.write_str("nothing"),
            None => Ok(()),
        }
    }
}

fn read_flag(reader: &mut Reader<'_>) -> Result<bool, Unreadable> {
    match reader.byte()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Unreadable::Wrong),
    }
}
