//! Everything for your own game, in a single dependency.
//!
//! A game is a type that implements [`Simulation`]. It changes a [`World`], which Dunlin replicates to the players.
//! [`run`] is the whole server with this game. `dunlin new-game NAME` writes a crate to start with; `docs/own-game.md`
//! is the guide, and `docs/rooms.md` describes what a simulation can do and which rules it must follow.
//!
//! ```
//! use dunlin_game::{
//!     GridShape, InputError, NewObject, PlayerId, Position, Refusal, RestoreError, Simulation, Visibility, Visitor, World,
//!     testing::Script,
//! };
//!
//! /// Players who jump to the places that they name.
//! struct Jumps;
//!
//! impl Simulation for Jumps {
//!     fn grid(&self) -> GridShape {
//!         GridShape { columns: 8, rows: 8, cell_units: 256, near_cells: 2, far_cells: 0, far_interval_ticks: 1 }
//!     }
//!
//!     fn start(&mut self, _: &mut World) {}
//!
//!     fn join(&mut self, world: &mut World, player: PlayerId, _: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
//!         let position = Position { x: 1_000, y: 1_000 };
//!         let full = |_| Refusal { code: 409, message: "the world is full".into() };
//!         let state = &player.0.to_le_bytes();
//!         let object = NewObject { position, kind: 1, visibility: Visibility::Everyone, state };
//!         let avatar = world.spawn(object).map_err(full)?;
//!         world.set_avatar(player, Some(avatar));
//!         world.set_viewpoint(player, position);
//!         Ok(())
//!     }
//!
//!     fn leave(&mut self, world: &mut World, player: PlayerId) {
//!         let mut objects = world.objects();
//!         let avatar = objects.find(|(_, object)| object.state == player.0.to_le_bytes()).map(|(id, _)| id);
//!         drop(objects);
//!         avatar.map(|avatar| world.despawn(avatar));
//!     }
//!
//!     fn input(&mut self, world: &mut World, player: PlayerId, data: &[u8]) -> Result<(), InputError> {
//!         let &[x, y] = data else { return Err(InputError) };
//!         let position = Position { x: u32::from(x) * 8, y: u32::from(y) * 8 };
//!         world.move_to(world.avatar_of(player).ok_or(InputError)?, position);
//!         world.set_viewpoint(player, position);
//!         Ok(())
//!     }
//!
//!     fn tick(&mut self, _: &mut World) {}
//!
//!     fn save(&self, _: &mut Vec<u8>) {}
//!
//!     fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
//!         Ok(())
//!     }
//! }
//!
//! // Test it with scripted players.
//! let mut script = Script::new(Box::new(Jumps));
//! let ada = script.join("");
//! assert!(script.input(ada, &[10, 20]));
//! script.ticks(1);
//! assert_eq!(script.place(ada), Position { x: 80, y: 160 });
//! assert!(!script.input(ada, &[1]), "an input that the game cannot read");
//! script.leave(ada);
//! assert!(script.of_kind(1).is_empty(), "its object has left with it");
//! ```
//!
//! Its `main` is the server:
//!
//! ```no_run
//! # fn game(_: &dunlin_game::serde_json::Value) -> Result<Box<dyn dunlin_game::Simulation>, dunlin_game::BadParams> {
//! #     Err(dunlin_game::BadParams(String::new()))
//! # }
//! use std::process::ExitCode;
//!
//! use dunlin_game::Registry;
//!
//! fn main() -> ExitCode {
//!     dunlin_game::run(Registry::built_in().with("jumps", game))
//! }
//! ```
//!
//! The module [`testing`] contains scripted players, and [`room_internals`] the types with which the server runs a
//! room. The feature `storage` adds the storage for publications and for rooms that survive a restart; it needs
//! `RocksDB`, which takes long to compile.

#![forbid(unsafe_code)]

/// Runs the command line `dunlin` with these simulations: the whole server.
///
/// ```no_run
/// use std::process::ExitCode;
///
/// use dunlin_game::Registry;
///
/// fn main() -> ExitCode {
///     // Add your game with `.with("name", make)`.
///     dunlin_game::run(Registry::built_in())
/// }
/// ```
#[doc(inline)]
pub use dunlin::{SampledAllocator, run};
#[doc(inline)]
pub use dunlin_games::{BadParams, Make, Params, Registry, Saved, Saving};
#[doc(inline)]
pub use dunlin_rooms::{
    Angle, Band, CallError, CallId, CellIndex, Choice, Field, FieldType, FieldValue, Fixed, Grid, GridError, GridShape,
    InputError, Integer, Kind, ListingState, Motion, Neighbour, NewObject, NotMigrated, Object, ObjectId, OldRoom,
    PastNeighbour, PlayerId, Position, RawValue, Refusal, RestoreError, Rewound, RoomInfo, Schema, SchemaError, Scope,
    Simulation, State, StateReader, StateWriter, Visibility, Visitor, World, WorldError, choice, state,
};
/// The parameters of a simulation in the configuration, and events in tests, are [`serde_json::Value`]s.
pub use serde_json;

/// Scripted players for tests.
pub mod testing {
    #[doc(inline)]
    pub use dunlin_games::script::{ScopedEvent, Script, events, publications};
    #[doc(inline)]
    pub use dunlin_rooms::{CallsOfTick, GameCall, MigrationError, Removals, RoomOptions, TickOutcome};
}

/// The types with which the server runs a room. A game and its tests do not need them.
pub mod room_internals {
    pub use dunlin_games::script::Encoding;
    pub use dunlin_rooms::{Joined, ListingChange, Room, Scoped, recording};
}
