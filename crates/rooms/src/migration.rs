//! The takeover of a room that another version of its game has saved ([`crate::Room::migrate`]).

use std::fmt;

use crate::{NotMigrated, Room, Schema, SchemaDifference};

/// What is known about a saved room whose game may have changed since.
#[derive(Clone, Copy, Debug)]
pub struct Migration<'a> {
    /// The version of the game that saved it.
    pub version: u32,
    /// The schema that it was saved with.
    pub schema: &'a Schema,
    /// The ticks per second that it had.
    pub ticks_per_second: u32,
    /// The state hash that it had.
    pub state_hash: u64,
    /// The parameters that it had, a JSON document.
    pub old_params: &'a str,
    /// The parameters that the simulation was created from, a JSON document.
    pub params: &'a str,
    /// Whether the version, the parameters or the ticks per second differ, so that only the game can take it over.
    pub is_for_game: bool,
}

/// A room that was taken over.
pub struct Migrated {
    /// The room.
    pub room: Room,
    /// The number of states that have another form now, before the game has changed any.
    pub converted_states: usize,
    /// Whether the game has taken it over.
    pub is_by_game: bool,
}

/// Why a room of another version is not taken over.
///
/// ```
/// use dunlin_rooms::{MigrationError, NotMigrated};
///
/// let refused = MigrationError::Game(NotMigrated::Unsupported);
/// assert_eq!(refused.to_string(), "the game does not take the room over: the game has no migration for it");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MigrationError {
    /// The bytes, or the limits of the world.
    Unreadable,
    /// The state differs from the one that was saved.
    OtherState {
        /// The tick of the saved state.
        tick: u32,
        /// Its hash now.
        actual: u64,
    },
    /// States of a kind cannot be converted, and the game has no migration.
    States(SchemaDifference),
    /// The game has taken over the room, but left states of this kind as they were.
    StatesLeft(SchemaDifference),
    /// A state in its new form is longer than the limit.
    StateTooLong,
    /// The game refuses the room.
    Game(NotMigrated),
}

impl fmt::Display for MigrationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable => f.write_str("the simulation or the limits of the world refuse the state"),
            Self::OtherState { tick, .. } => write!(f, "the state after tick {tick} is not the saved one"),
            Self::States(difference) => {
                write!(f, "states have other fields, and the game has no migration: {difference}")
            }
            Self::StatesLeft(left) => write!(f, "the game's migration has left states as they were: {left}"),
            Self::StateTooLong => f.write_str("a state in its new form is longer than the limit"),
            Self::Game(refused) => write!(f, "the game does not take the room over: {refused}"),
        }
    }
}

impl std::error::Error for MigrationError {}

impl fmt::Debug for Migrated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { converted_states, is_by_game, .. } = self;
        f.debug_struct("Migrated")
            .field("converted_states", converted_states)
            .field("is_by_game", is_by_game)
            .finish_non_exhaustive()
    }
}
