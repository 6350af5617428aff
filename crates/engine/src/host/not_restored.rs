//! The reasons why a room cannot continue from its checkpoint.

use std::fmt;

use dunlin_rooms::{SAVED_ROOM_VERSION, SchemaDifference};

use super::CHECKPOINT_VERSION;

/// Why a room cannot continue from its checkpoint and log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotRestored {
    /// A newer version of Dunlin wrote it.
    NewerVersion(u8),
    /// A newer version of Dunlin saved the room's state in it.
    NewerState(u8),
    /// The bytes cannot be parsed.
    Malformed,
    /// The checkpoint belongs to another simulation.
    OtherSimulation(String),
    /// The simulation had other parameters.
    OtherParams(String),
    /// The simulation does not accept the parameters that the room has now.
    UnusableParams(Box<str>),
    /// The room had another tick rate.
    OtherTickRate(u32),
    /// Another version of the game has saved the room, and the game has no migration.
    OtherVersion {
        /// The version that saved it.
        was: u32,
        /// The version of now.
        is: u32,
    },
    /// The states of a kind have other fields, and the game has no migration.
    OtherStates(SchemaDifference),
    /// The game's migration refuses the room.
    NotMigrated(Box<str>),
    /// The game has taken the room over, but the log behind the checkpoint is of other rules.
    LogOfOtherRules {
        /// The number of ticks in the log.
        ticks: u64,
    },
    /// The simulation, or the world with its limits, rejects the state.
    Refused,
    /// A record of the log is missing.
    MissingRecord {
        /// The count of the tick whose record should follow.
        expected: u64,
        /// The count of the tick whose record follows.
        found: u64,
    },
    /// The replayed state differs from the recorded one.
    OtherState {
        /// The tick after which it differs.
        tick: u32,
        /// The recorded state hash.
        expected: u64,
        /// The actual state hash.
        actual: u64,
    },
}

impl fmt::Display for NotRestored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NewerVersion(version) => write!(
                f,
                "the checkpoint has version {version}, and this Dunlin reads versions up to {CHECKPOINT_VERSION}"
            ),
            Self::NewerState(version) => write!(
                f,
                "the state in the checkpoint has version {version}, and this Dunlin reads versions up to {SAVED_ROOM_VERSION}"
            ),
            Self::Malformed => f.write_str("the checkpoint or its log is malformed"),
            Self::OtherSimulation(was) => write!(f, "the checkpoint is of the simulation {was:?}"),
            Self::OtherParams(were) => write!(f, "the checkpoint is of a room with the params {were}"),
            Self::UnusableParams(why) => write!(f, "the simulation does not accept the params of the room: {why}"),
            Self::OtherTickRate(was) => write!(f, "the checkpoint is of a room with ticks_per_second {was}"),
            Self::OtherVersion { was, is } => write!(
                f,
                "the checkpoint is of version {was} of the game, and this is version {is}, which has no migration for it"
            ),
            Self::OtherStates(difference) => {
                write!(f, "the checkpoint has states with other fields, and the game has no migration: {difference}")
            }
            Self::NotMigrated(why) => write!(f, "the game's migration refuses the checkpoint: {why}"),
            Self::LogOfOtherRules { ticks } => write!(
                f,
                "the log has {ticks} ticks after the checkpoint, which only the game that ran them can replay"
            ),
            Self::Refused => {
                f.write_str("the simulation or the limits of the world refuse the state in the checkpoint")
            }
            Self::MissingRecord { expected, found } => {
                write!(f, "the log has no record of tick {expected}; tick {found} follows")
            }
            Self::OtherState { tick, expected, actual } => {
                write!(f, "the state after tick {tick} differs: its hash was {expected:016x} and is now {actual:016x}")
            }
        }
    }
}

impl std::error::Error for NotRestored {}
