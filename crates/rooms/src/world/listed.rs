//! How the room of a world is listed, and who may join it.

use super::WorldError;
use crate::{ListingChange, ListingState, RoomOptions};

/// The listing of a room, and its limits.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) state: ListingState,
    players_max: usize,
    metadata_bytes_max: usize,
}

impl Listing {
    pub(super) fn new(options: &RoomOptions) -> Self {
        let RoomOptions { players_max, metadata_bytes_max, .. } = *options;
        Self { state: ListingState::default(), players_max, metadata_bytes_max }
    }

    pub(super) fn players_max(&self) -> usize {
        let own = self.state.players_max.and_then(|max| usize::try_from(max).ok());
        own.map_or(self.players_max, |own| own.min(self.players_max))
    }

    pub(super) fn set_metadata(&mut self, metadata: &str) -> Result<(), WorldError> {
        self.state.set_metadata(metadata, self.metadata_bytes_max)
    }

    /// Applies all changes, or none if the metadata is refused.
    pub(super) fn change(&mut self, change: &ListingChange) -> Result<(), WorldError> {
        if let Some(metadata) = &change.metadata {
            self.set_metadata(metadata)?;
        }
        let state = &mut self.state;
        state.players_max = change.players_max.or(state.players_max);
        state.is_locked = change.is_locked.unwrap_or(state.is_locked);
        state.is_unlisted = change.is_unlisted.unwrap_or(state.is_unlisted);
        Ok(())
    }
}
