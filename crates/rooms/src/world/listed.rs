//! How the room of a world is listed, and who may join it.

use super::{World, WorldError};
use crate::{ListingChange, ListingState, RoomOptions};

/// The limits of a listing.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListingLimits {
    players_max: usize,
    metadata_bytes_max: usize,
}

impl ListingLimits {
    pub(super) fn of(options: &RoomOptions) -> Self {
        Self { players_max: options.players_max, metadata_bytes_max: options.metadata_bytes_max }
    }
}

impl World {
    /// How the room is listed, and who may join it.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// assert!(!world.listing().is_locked);
    /// assert_eq!(&*world.listing().metadata, "");
    /// # Ok(())
    /// # })
    /// ```
    pub fn listing(&self) -> &ListingState {
        &self.listing
    }

    /// Maximum number of players.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// let free = world.players_max() - world.player_count();
    /// assert_eq!(free, 9_999, "of 10,000");
    /// # Ok(())
    /// # })
    /// ```
    pub fn players_max(&self) -> usize {
        let own = self.listing.players_max.and_then(|max| usize::try_from(max).ok());
        own.map_or(self.listing_limits.players_max, |own| own.min(self.listing_limits.players_max))
    }

    /// Sets the maximum number of players, which is limited to the configured one. No player is removed.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// world.set_players_max(8);
    /// assert_eq!(world.players_max(), 8);
    /// # Ok(())
    /// # })
    /// ```
    pub fn set_players_max(&mut self, players_max: u32) {
        self.listing.players_max = Some(players_max);
    }

    /// Locks or unlocks the room. While it is locked, joins of new players and of spectators are refused with code 423.
    /// Away players may come back.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// // No player can join the last round.
    /// world.set_locked(true);
    /// assert!(world.listing().is_locked);
    /// # Ok(())
    /// # })
    /// ```
    pub fn set_locked(&mut self, is_locked: bool) {
        self.listing.is_locked = is_locked;
    }

    /// Removes the room from lobbies and from matchmaking, and from `room_list` of the server API unless that requests
    /// unlisted rooms. A client that knows its channel can still join it.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// // The host invites the players.
    /// world.set_unlisted(true);
    /// assert!(world.listing().is_unlisted);
    /// # Ok(())
    /// # })
    /// ```
    pub fn set_unlisted(&mut self, is_unlisted: bool) {
        self.listing.is_unlisted = is_unlisted;
    }

    /// Sets the metadata for lists of rooms: a JSON document; empty for none.
    ///
    /// # Errors
    /// [`WorldError::BadMetadata`]
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::WorldError;
    ///
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// world.set_metadata(r#"{"round": 3, "phase": "playing"}"#)?;
    /// assert_eq!(world.set_metadata("not JSON"), Err(WorldError::BadMetadata));
    /// # Ok(())
    /// # })
    /// ```
    pub fn set_metadata(&mut self, metadata: &str) -> Result<(), WorldError> {
        self.listing.set_metadata(metadata, self.listing_limits.metadata_bytes_max)
    }

    /// Applies all changes, or none if the metadata is refused.
    pub(crate) fn change_listing(&mut self, change: &ListingChange) -> Result<(), WorldError> {
        if let Some(metadata) = &change.metadata {
            self.set_metadata(metadata)?;
        }
        if let Some(players_max) = change.players_max {
            self.set_players_max(players_max);
        }
        self.listing.is_locked = change.is_locked.unwrap_or(self.listing.is_locked);
        self.listing.is_unlisted = change.is_unlisted.unwrap_or(self.listing.is_unlisted);
        Ok(())
    }
}
