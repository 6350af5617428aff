//! Worlds, their grid, what players see of them, and their recording: no clock, no I/O.
//!
//! A [`Room`] drives a [`Simulation`], which a game implements, over a [`World`], which holds what is replicated. Each
//! tick it answers with a [`TickUpdate`]: every changed cell of the grid, encoded once. An update is shared by all shards
//! that have players of the room; each keeps a [`Mirror`] of the room there, which puts the bodies of frames together: one
//! for all players who see the same cells and have the same *base*, the tick last written to them. A client keeps a
//! [`Replica`] of what it sees.
//!
//! A world is a function of its seed, the inputs in their order, and the tick: a recording of those can be replayed.

#![forbid(unsafe_code)]

mod binary;
mod grid;
mod hash;
mod room;
mod simulation;
mod update;
mod world;

pub mod wire;

mod mirror;
mod replica;

pub mod recording;

#[doc(hidden)]
pub mod fuzzing;

pub use grid::{Band, CellIndex, Grid, GridError, GridShape, Position};
pub use mirror::{Base, Body, Mirror, MirrorCounters};
pub use replica::{Replica, ReplicaError, SeenObject};
pub use room::{Joined, PlayerChange, Room, RoomOptions, Scoped, TickOutcome};
pub use simulation::{InputError, Refusal, RestoreError, Simulation, Visitor};
pub use update::{EncodingSet, ObjectView, TickUpdate, UpdateWriter};
pub use world::{NewObject, Object, ObjectId, PlayerId, Scope, Visibility, World, WorldError};
