//! How a room is listed, and who may join it: changed by its game and by the backend.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::{
    WorldError,
    binary::{Reader, Unreadable, put_bytes, put_number},
    hash::Hasher,
};

/// How a room is listed, and who may join it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListingState {
    /// Maximum number of players, where it is below that of the options.
    pub players_max: Option<u32>,
    /// Whether new players and spectators are refused.
    pub is_locked: bool,
    /// For lists of rooms: a JSON document; empty for none.
    pub metadata: Arc<str>,
}

/// A change of a [`ListingState`]. What is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListingChange {
    /// Maximum number of players.
    pub players_max: Option<u32>,
    /// Whether new players and spectators are refused.
    pub is_locked: Option<bool>,
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

    /// Appends what [`ListingState::restore`] reads.
    pub(crate) fn save(&self, out: &mut Vec<u8>) {
        put_number(self.players_max.map_or(0, |max| u64::from(max) + 1), out);
        out.push(self.is_locked.into());
        put_bytes(self.metadata.as_bytes(), out);
    }

    pub(crate) fn restore(saved: &mut Reader<'_>) -> Result<Self, Unreadable> {
        let players_max = match saved.number()?.checked_sub(1) {
            Some(max) => Some(u32::try_from(max).map_err(|_| Unreadable::Wrong)?),
            None => None,
        };
        Ok(Self { players_max, is_locked: read_flag(saved)?, metadata: saved.text()?.into() })
    }

    /// Takes in everything that the future depends on. The hash is unchanged for the default listing.
    pub(crate) fn hash(&self, hasher: Hasher) -> Hasher {
        if *self == Self::default() {
            return hasher;
        }
        let hasher = hasher.number(self.players_max.map_or(0, |max| u64::from(max) + 1));
        hasher.number(self.is_locked.into()).bytes(self.metadata.as_bytes())
    }
}

impl ListingChange {
    /// Appends the form that [`ListingChange::read`] reads.
    pub fn write(&self, out: &mut Vec<u8>) {
        put_number(self.players_max.map_or(0, |max| u64::from(max) + 1), out);
        out.push(self.is_locked.map_or(0, |is_locked| 1 + u8::from(is_locked)));
        out.push(self.metadata.is_some().into());
        if let Some(metadata) = &self.metadata {
            put_bytes(metadata.as_bytes(), out);
        }
    }

    /// Reads what [`ListingChange::write`] wrote; `None` if it is something else.
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
        let is_locked = match reader.byte()? {
            0 => None,
            1 => Some(false),
            2 => Some(true),
            _ => return Err(Unreadable::Wrong),
        };
        let metadata = if read_flag(reader)? { Some(reader.text()?.into()) } else { None };
        Ok(Self { players_max, is_locked, metadata })
    }
}

fn read_flag(reader: &mut Reader<'_>) -> Result<bool, Unreadable> {
    match reader.byte()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Unreadable::Wrong),
    }
}
