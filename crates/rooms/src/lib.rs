//! Worlds, their grid, snapshots for players, and recordings. No clock, no I/O.
//!
//! A [`Room`] runs a game's [`Simulation`] on a [`World`], which contains the replicated objects. Each tick returns a
//! [`TickUpdate`]: every changed cell of the grid, encoded once. All shards with players of the room share this update.
//! Each of these shards has a [`Mirror`] of the room, which assembles the bodies of snapshots: one for all players with
//! the same view and the same *base*, the tick last written to them. A client has a [`Replica`] of the part that it
//! sees.
//!
//! A world is a function of its seed, the order of its inputs, and the tick. So a recording of these can be replayed.

#![forbid(unsafe_code)]

mod allowance;
mod binary;
mod bits;
mod fixed;
mod grid;
mod hash;
mod layers;
mod listing;
mod migration;
mod opening;
mod room;
mod room_options;
mod schema;
mod simulation;
mod snapshot_format;
mod tick_time;
mod tick_update;
mod world;

pub mod wire;

mod mirror;
mod replica;

pub mod paths;
pub mod recording;

pub use allowance::Allowance;
pub use fixed::{Angle, Fixed};
pub use grid::{Band, CellIndex, Grid, GridError, GridShape, Position};
pub use listing::{ListingChange, ListingState};
pub use migration::{Migrated, Migration, MigrationError};
pub use mirror::{Base, Mirror, MirrorCounters, SnapshotBody, ZONES, Zones};
pub use opening::{RoomInfo, RoomOverrides, UnusableParams};
pub use replica::{Replica, ReplicaError, SeenObject};
pub use room::{Joined, PlayerChange, Removals, Room, SAVED_ROOM_VERSION, Scoped, TickOutcome};
pub use room_options::RoomOptions;
pub use schema::{
    Choice, Field, FieldType, FieldValue, Integer, Kind, Motion, RawValue, Schema, SchemaDifference, SchemaError,
    State, StateReader, StateWriter,
};
pub use simulation::{InputError, NotMigrated, OldRoom, Refusal, RestoreError, Simulation, Visitor};
pub use snapshot_format::{FormatSet, SnapshotFormat};
pub use tick_time::{ClockRate, TickTime};
pub use tick_update::{ChangedView, MalformedUpdate, ObjectView, TickUpdate, UpdateWriter};
pub use wire::ObjectBefore;
pub use world::{
    CallError, CallId, CallsOfTick, GameCall, Neighbour, NewObject, Object, ObjectId, PastNeighbour, PlayerId, Rewound,
    Scope, Visibility, World, WorldError,
};
