//! The interface that a game implements.

use core::net::IpAddr;
use std::fmt;

use crate::{CallError, CallId, GridShape, PlayerId, Schema, World};

/// The code of a message to a game that accepts none.
const NO_MESSAGES_CODE: u16 = 400;

/// A game: the rules of a world. Its methods are called one at a time, by one thread, in an order that a recording
/// repeats. They must be deterministic functions of their arguments, the world, and the simulation's own state. So a
/// simulation reads no clock, takes random numbers from [`World::random`], and never iterates in an unspecified order.
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::{
///     GridShape, InputError, NewObject, PlayerId, Position, Refusal, RestoreError, Simulation, Visibility, Visitor, World,
/// };
///
/// /// Counters that players raise.
/// #[derive(Default)]
/// struct Counters;
///
/// impl Simulation for Counters {
///     fn grid(&self) -> GridShape {
///         GridShape { columns: 1, rows: 1, cell_units: 256, near_cells: 0, far_cells: 0, far_interval_ticks: 1 }
///     }
///
///     fn start(&mut self, _: &mut World) {}
///
///     fn join(&mut self, world: &mut World, player: PlayerId, _: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
///         let state = &[&[0][..], &player.0.to_le_bytes()].concat();
///         let counter = NewObject { position: Position::default(), kind: 1, visibility: Visibility::Everyone, state };
///         let full = |_| Refusal { code: 409, message: "the world is full".into() };
///         let counter = world.spawn(counter).map_err(full)?;
///         world.set_avatar(player, Some(counter));
///         Ok(())
///     }
///
///     fn leave(&mut self, world: &mut World, player: PlayerId) {
///         let mut objects = world.objects();
///         let counter = objects.find(|(_, object)| object.state[1..] == player.0.to_le_bytes()).map(|(id, _)| id);
///         drop(objects);
///         counter.map(|counter| world.despawn(counter));
///     }
///
///     fn input(&mut self, world: &mut World, player: PlayerId, _: &[u8]) -> Result<(), InputError> {
///         let counter = world.avatar_of(player).ok_or(InputError)?;
///         let mut state = world.object(counter).ok_or(InputError)?.state.clone();
///         state[0] = state[0].wrapping_add(1);
///         world.set_state(counter, &state).map_err(|_| InputError)
///     }
///
///     fn tick(&mut self, _: &mut World) {}
///
///     fn save(&self, _: &mut Vec<u8>) {} // all state is in the world
///
///     fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
///         Ok(())
///     }
/// }
/// ```
pub trait Simulation: Send {
    /// The map. Called once, before any other method.
    ///
    /// ```
    /// # #[macro_use] mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/simulation/example.rs")); }
    /// # use dunlin_rooms::*;
    /// # game! { [start join leave input tick save restore]
    /// fn grid(&self) -> GridShape {
    ///     // 4,096 × 4,096 units. A player sees 5 × 5 of the 16 × 16 cells.
    ///     GridShape { columns: 16, rows: 16, cell_units: 256, near_cells: 2, far_cells: 0, far_interval_ticks: 1 }
    /// }
    /// # }
    /// ```
    fn grid(&self) -> GridShape;

    /// The kinds of objects whose states have fields. Clients that ask for them receive the fields that have changed
    /// instead of whole states, and their names. Called once, when the room is created or restored.
    ///
    /// ```
    /// # #[macro_use] mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/simulation/example.rs")); }
    /// # use dunlin_rooms::*;
    /// state! {
    ///     /// A runner.
    ///     pub struct Runner: 1 {
    ///         pub heading: u8 [angle()],
    ///         pub points: u16,
    ///     }
    /// }
    /// # game! { [grid start join leave input tick save restore]
    /// fn schema(&self) -> Schema {
    ///     Schema::new().with::<Runner>()
    /// }
    /// # }
    /// ```
    fn schema(&self) -> Schema {
        Schema::new()
    }

    /// The number of ticks that [`World::rewind`] can go back. The world stores the changes of each of them. Called
    /// once, when the room is created: a restored room keeps the number of its creation.
    ///
    /// ```
    /// # #[macro_use] mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/simulation/example.rs")); }
    /// # use dunlin_rooms::*;
    /// # game! { [grid start join leave input tick save restore]
    /// fn rewind_ticks(&self) -> u8 {
    ///     15 // a quarter of a second at 60 ticks per second
    /// }
    /// # }
    /// ```
    fn rewind_ticks(&self) -> u8 {
        0
    }

    /// Fills the new world.
    ///
    /// ```
    /// # #[macro_use] mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/simulation/example.rs")); }
    /// # use dunlin_rooms::*;
    /// # game! { [grid join leave input tick save restore]
    /// fn start(&mut self, world: &mut World) {
    ///     let position = Position { x: world.random_below(2_048), y: world.random_below(2_048) };
    ///     self.star = world.spawn(NewObject { position, kind: 2, visibility: Visibility::Everyone, state: &[] }).ok();
    /// }
    /// # }
    /// ```
    fn start(&mut self, world: &mut World);

    /// A player asks to join; `data` comes from its client. If this returns `Ok`, the player is in the room.
    ///
    /// # Errors
    /// [`Refusal`]: the client's subscription fails with it.
    ///
    /// ```
    /// # #[macro_use] mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/simulation/example.rs")); }
    /// # use dunlin_rooms::*;
    /// # game! { [grid start leave input tick save restore]
    /// fn join(&mut self, world: &mut World, player: PlayerId, visitor: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
    ///     if visitor.user.is_empty() {
    ///         return Err(Refusal { code: 401, message: "log in to play".into() });
    ///     }
    ///     let (position, state) = (Position { x: 1_000, y: 1_000 }, visitor.user.as_bytes());
    ///     let full = |_| Refusal { code: 409, message: "the field is full".into() };
    ///     let runner = NewObject { position, kind: 1, visibility: Visibility::Everyone, state };
    ///     let runner = world.spawn(runner).map_err(full)?;
    ///     world.set_avatar(player, Some(runner));
    ///     world.set_viewpoint(player, position);
    ///     self.runners.insert(player, runner);
    ///     Ok(())
    /// }
    /// # }
    /// ```
    fn join(&mut self, world: &mut World, player: PlayerId, visitor: &Visitor<'_>, data: &[u8]) -> Result<(), Refusal>;

    /// A player has left, for whatever reason. Not called for spectators. [`World::avatar_of`] no longer has the
    /// player.
    ///
    /// ```
    /// # #[macro_use] mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/simulation/example.rs")); }
    /// # use dunlin_rooms::*;
    /// # game! { [grid start join input tick save restore]
    /// fn leave(&mut self, world: &mut World, player: PlayerId) {
    ///     if let Some(runner) = self.runners.remove(&player) {
    ///         world.despawn(runner);
    ///     }
    /// }
    /// # }
    /// ```
    fn leave(&mut self, world: &mut World, player: PlayerId);

    /// A player's connection was lost. The player stays in the room for the grace period: until [`Simulation::back`] or
    /// [`Simulation::leave`].
    ///
    /// ```
    /// # #[macro_use] mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/simulation/example.rs")); }
    /// # use dunlin_rooms::*;
    /// # game! { [grid start join leave input tick save restore]
    /// fn away(&mut self, world: &mut World, player: PlayerId) {
    ///     // A lost connection presses no keys: the runner stops.
    ///     if let Some(runner) = self.runners.get(&player) {
    ///         let _ = world.set_state(*runner, &[0, 0]);
    ///     }
    /// }
    /// # }
    /// ```
    fn away(&mut self, world: &mut World, player: PlayerId) {
        let _ = (world, player);
    }

    /// A player has a connection again. Its client starts without state, and numbers its inputs from 1.
    ///
    /// Also called without a previous [`Simulation::away`], if the client reconnected before the server detected the
    /// loss of the first connection.
    ///
    /// ```
    /// # #[macro_use] mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/simulation/example.rs")); }
    /// # use dunlin_rooms::*;
    /// # game! { [grid start join leave input tick save restore]
    /// fn back(&mut self, world: &mut World, player: PlayerId, _: &Visitor<'_>) {
    ///     let round = format!(r#"{{"round": {}}}"#, self.round);
    ///     let _ = world.emit(Scope::Player(player), &round);
    /// }
    /// # }
    /// ```
    fn back(&mut self, world: &mut World, player: PlayerId, visitor: &Visitor<'_>) {
        let _ = (world, player, visitor);
    }

    /// A spectator asks to join: it has a viewpoint ([`World::set_viewpoint`]) but no seat, and sends no inputs. By
    /// default it is admitted, with its viewpoint in the corner of the map.
    ///
    /// # Errors
    /// [`Refusal`]: the client's subscription fails with it.
    ///
    /// ```
    /// # #[macro_use] mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/simulation/example.rs")); }
    /// # use dunlin_rooms::*;
    /// # game! { [grid start join leave input tick save restore]
    /// fn spectate(&mut self, world: &mut World, spectator: PlayerId, _: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
    ///     world.set_viewpoint(spectator, Position { x: 1_024, y: 1_024 });
    ///     Ok(())
    /// }
    /// # }
    /// ```
    fn spectate(
        &mut self,
        world: &mut World,
        spectator: PlayerId,
        visitor: &Visitor<'_>,
        data: &[u8],
    ) -> Result<(), Refusal> {
        let _ = (world, spectator, visitor, data);
        Ok(())
    }

    /// A spectator has left.
    ///
    /// ```
    /// # #[macro_use] mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/simulation/example.rs")); }
    /// # use dunlin_rooms::*;
    /// # game! { [grid start join leave input tick save restore]
    /// fn spectator_left(&mut self, world: &mut World, _: PlayerId) {
    ///     let _ = world.emit(Scope::All, &format!(r#"{{"audience": {}}}"#, world.spectator_count()));
    /// }
    /// # }
    /// ```
    fn spectator_left(&mut self, world: &mut World, spectator: PlayerId) {
        let _ = (world, spectator);
    }

    /// A player's input.
    ///
    /// # Errors
    /// [`InputError`] only counts the input.
    ///
    /// ```
    /// # #[macro_use] mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/simulation/example.rs")); }
    /// # use dunlin_rooms::*;
    /// # game! { [grid start join leave tick save restore]
    /// /// Two signed bytes: the step of a runner.
    /// fn input(&mut self, world: &mut World, player: PlayerId, data: &[u8]) -> Result<(), InputError> {
    ///     let (&[dx, dy], Some(runner)) = (data, self.runners.get(&player)) else { return Err(InputError) };
    ///     let from = world.object(*runner).ok_or(InputError)?.position;
    ///     world.move_to(*runner, from.moved(dx.cast_signed().into(), dy.cast_signed().into()));
    ///     Ok(())
    /// }
    /// # }
    /// ```
    fn input(&mut self, world: &mut World, player: PlayerId, data: &[u8]) -> Result<(), InputError>;

    /// A message of the application's backend (`room_send` of the server API). The returned bytes are the answer.
    ///
    /// # Errors
    /// [`Refusal`]: the backend's request fails with it. By default every message is refused.
    ///
    /// ```
    /// # #[macro_use] mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/simulation/example.rs")); }
    /// # use dunlin_rooms::*;
    /// # game! { [grid start join leave input tick save restore]
    /// /// The backend begins the next round.
    /// fn message(&mut self, world: &mut World, data: &[u8]) -> Result<Vec<u8>, Refusal> {
    ///     if data != b"next" {
    ///         return Err(Refusal { code: 460, message: "an unknown message".into() });
    ///     }
    ///     self.round += 1;
    ///     let round = format!(r#"{{"round": {}}}"#, self.round);
    ///     let _ = world.emit(Scope::All, &round);
    ///     Ok(round.into_bytes())
    /// }
    /// # }
    /// ```
    fn message(&mut self, _world: &mut World, _data: &[u8]) -> Result<Vec<u8>, Refusal> {
        Err(Refusal { code: NO_MESSAGES_CODE, message: "this game takes no messages".into() })
    }

    /// The backend's answer to a call ([`World::call`]), or the error. Called once per call, before a tick; for a
    /// timeout, in exactly the tick of the timeout.
    ///
    /// ```
    /// # #[macro_use] mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/simulation/example.rs")); }
    /// # use dunlin_rooms::*;
    /// # game! { [grid start join leave input tick save restore]
    /// fn answer(&mut self, world: &mut World, _: CallId, outcome: Result<&[u8], CallError>) {
    ///     let event = match outcome {
    ///         Ok(_) => r#"{"scores": "saved"}"#,
    ///         Err(_) => r#"{"scores": "lost"}"#,
    ///     };
    ///     let _ = world.emit(Scope::All, event);
    /// }
    /// # }
    /// ```
    fn answer(&mut self, world: &mut World, call: CallId, outcome: Result<&[u8], CallError>) {
        let _ = (world, call, outcome);
    }

    /// One tick.
    ///
    /// ```
    /// # #[macro_use] mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/simulation/example.rs")); }
    /// # use dunlin_rooms::*;
    /// # game! { [grid start join leave input save restore]
    /// fn tick(&mut self, world: &mut World) {
    ///     // A new round every minute.
    ///     if world.tick() % (60 * world.ticks_per_second()) == 0 {
    ///         self.round += 1;
    ///     }
    /// }
    /// # }
    /// ```
    fn tick(&mut self, world: &mut World);

    /// Appends all state outside of the world, from which [`Simulation::restore`] continues.
    ///
    /// ```
    /// # #[macro_use] mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/simulation/example.rs")); }
    /// # use dunlin_rooms::*;
    /// # game! { [grid start join leave input tick restore]
    /// fn save(&self, out: &mut Vec<u8>) {
    ///     out.extend_from_slice(&self.round.to_le_bytes());
    /// }
    /// # }
    /// ```
    fn save(&self, out: &mut Vec<u8>);

    /// Restores what [`Simulation::save`] wrote. Called instead of [`Simulation::start`]; the world is already
    /// restored.
    ///
    /// # Errors
    /// [`RestoreError`]
    ///
    /// ```
    /// # #[macro_use] mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/simulation/example.rs")); }
    /// # use dunlin_rooms::*;
    /// # game! { [grid start join leave input tick save]
    /// fn restore(&mut self, saved: &[u8]) -> Result<(), RestoreError> {
    ///     self.round = u32::from_le_bytes(saved.try_into().map_err(|_| RestoreError)?);
    ///     Ok(())
    /// }
    /// # }
    /// ```
    fn restore(&mut self, saved: &[u8]) -> Result<(), RestoreError>;

    /// The version of the rules: raise it with a change after which rooms that run cannot continue as they are. A room
    /// of another version continues with [`Simulation::migrate`].
    ///
    /// ```
    /// # #[macro_use] mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/simulation/example.rs")); }
    /// # use dunlin_rooms::*;
    /// # game! { [grid start join leave input tick save restore]
    /// fn version(&self) -> u32 {
    ///     2 // rounds count from 1
    /// }
    /// # }
    /// ```
    fn version(&self) -> u32 {
        1
    }

    /// Takes over a room that another version of the game has saved, or the same version with other parameters or another
    /// tick rate. Called instead of [`Simulation::restore`]; the world is already restored, and so are the players.
    /// States of kinds whose fields were only added or widened, or removed in a higher version, have their new form
    /// already. States of other kinds with changed fields have their old form, and must have the new one afterwards.
    ///
    /// # Errors
    /// [`NotMigrated`]: the room is not opened, and its state stays as it was saved. By default every room is refused.
    ///
    /// ```
    /// # #[macro_use] mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/simulation/example.rs")); }
    /// # use dunlin_rooms::*;
    /// # game! { [grid start join leave input tick save restore]
    /// fn migrate(&mut self, _: &mut World, old: &OldRoom<'_>) -> Result<(), NotMigrated> {
    ///     self.restore(old.saved)?;
    ///     if old.version < 2 {
    ///         self.round += 1;
    ///     }
    ///     Ok(())
    /// }
    /// # }
    /// ```
    fn migrate(&mut self, world: &mut World, old: &OldRoom<'_>) -> Result<(), NotMigrated> {
        let _ = (world, old);
        Err(NotMigrated::Unsupported)
    }

    /// Approximate memory of all state outside of the world, in bytes, for `room.memory_limit`. Called after each tick,
    /// so it must be cheap.
    ///
    /// ```
    /// # #[macro_use] mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/simulation/example.rs")); }
    /// # use dunlin_rooms::*;
    /// # game! { [grid start join leave input tick save restore]
    /// fn memory_bytes(&self) -> usize {
    ///     self.runners.len() * size_of::<(PlayerId, ObjectId)>()
    /// }
    /// # }
    /// ```
    fn memory_bytes(&self) -> usize {
        0
    }
}

/// A client that asks to join, or has come back.
///
/// ```
/// use dunlin_rooms::Visitor;
///
/// fn name_of(visitor: &Visitor<'_>) -> String {
///     if visitor.user.is_empty() { "Guest".to_owned() } else { visitor.user.to_owned() }
/// }
/// assert_eq!(name_of(&Visitor::of_user("ada")), "ada");
/// assert_eq!(name_of(&Visitor::default()), "Guest");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visitor<'a> {
    /// The user's id; empty for the anonymous user.
    pub user: &'a str,
    /// The id of the connection, as in presence. A client that comes back has another one.
    pub client: &'a str,
    /// The info from the subscription token or the backend's response, otherwise that of the connection: a JSON
    /// document, or other bytes. Empty if there is no info.
    pub info: &'a [u8],
    /// Whether it joins as a spectator.
    pub is_spectator: bool,
    /// The client's address: behind a trusted proxy, the one that the proxy names. `None` unless the namespace has
    /// `room.visitor_address`, because recordings and logs contain everything that the game receives.
    pub address: Option<IpAddr>,
}

impl<'a> Visitor<'a> {
    /// A player with this user id and no other data.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::Visitor;
    ///
    /// let ada = Visitor { info: br#"{"level": 7}"#, ..Visitor::of_user("ada") };
    /// assert_eq!((ada.user, ada.is_spectator), ("ada", false));
    /// ```
    pub fn of_user(user: &'a str) -> Self {
        Self { user, ..Self::default() }
    }
}

/// Why a game refuses a join or a message, with the game's own code and text.
///
/// ```
/// use dunlin_rooms::Refusal;
///
/// fn check_team(data: &[u8]) -> Result<bool, Refusal> {
///     match data {
///         b"red" => Ok(true),
///         b"blue" => Ok(false),
///         _ => Err(Refusal { code: 422, message: "the team is `red` or `blue`".into() }),
///     }
/// }
/// assert_eq!(check_team(b"green").map_err(|refusal| refusal.code), Err(422));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The code of the error reply: 400 to 1,999. From a backend: 100 to 1,999.
    pub code: u16,
    /// Human-readable; the client or the backend receives it with the code.
    pub message: Box<str>,
}

/// A room that was saved by another version of its game, or with other parameters.
///
/// ```
/// use dunlin_rooms::{NotMigrated, OldRoom};
///
/// /// Versions 1 and 2 counted ticks, and version 3 counts milliseconds.
/// fn time_ms(old: &OldRoom<'_>) -> Result<u64, NotMigrated> {
///     let count = u64::from_le_bytes(old.saved.try_into().map_err(|_| NotMigrated::Unusable("no time".into()))?);
///     Ok(if old.version < 3 { count * 1_000 / u64::from(old.ticks_per_second) } else { count })
/// }
///
/// let old = OldRoom { version: 2, saved: &[60, 0, 0, 0, 0, 0, 0, 0], ticks_per_second: 30, ..OldRoom::default() };
/// assert_eq!(time_ms(&old), Ok(2_000));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OldRoom<'a> {
    /// [`Simulation::version`] of the game that saved it. It is newer than the game if an update was undone.
    pub version: u32,
    /// What [`Simulation::save`] wrote.
    pub saved: &'a [u8],
    /// The parameters that the room had, a JSON document; those of now are in [`World::info`].
    pub params: &'a str,
    /// The ticks per second that the room had.
    pub ticks_per_second: u32,
}

/// Why a game does not take over a room of another version.
///
/// ```
/// use dunlin_rooms::{NotMigrated, RestoreError};
///
/// assert_eq!(NotMigrated::from(RestoreError).to_string(), "what was saved is not of this simulation");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotMigrated {
    /// The game has no migration for this change.
    Unsupported,
    /// The state cannot be used, with the reason for the log.
    Unusable(Box<str>),
}

impl From<RestoreError> for NotMigrated {
    fn from(error: RestoreError) -> Self {
        Self::Unusable(error.to_string().into())
    }
}

impl fmt::Display for NotMigrated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsupported => "the game has no migration for it",
            Self::Unusable(why) => why,
        })
    }
}

impl std::error::Error for NotMigrated {}

/// The game cannot decode an input.
///
/// ```
/// use dunlin_rooms::InputError;
///
/// /// Two signed bytes: the direction of a step.
/// fn step_of(data: &[u8]) -> Result<(i8, i8), InputError> {
///     let &[x, y] = data else { return Err(InputError) };
///     Ok((x.cast_signed(), y.cast_signed()))
/// }
/// assert_eq!(step_of(&[255, 1]), Ok((-1, 1)));
/// assert_eq!(step_of(&[]), Err(InputError));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputError;

/// The saved state cannot be restored.
///
/// ```
/// use dunlin_rooms::RestoreError;
///
/// /// The counterpart of `out.extend(round.to_le_bytes())` in `save`.
/// fn read_round(saved: &[u8]) -> Result<u32, RestoreError> {
///     Ok(u32::from_le_bytes(saved.try_into().map_err(|_| RestoreError)?))
/// }
/// assert_eq!(read_round(&[3, 0, 0, 0]), Ok(3));
/// assert_eq!(read_round(&[3]), Err(RestoreError));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoreError;

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what was saved is not of this simulation")
    }
}

impl std::error::Error for RestoreError {}
