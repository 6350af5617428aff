//! A room: a simulation, its world and its players, advanced one tick at a time.

use std::sync::Arc;

use crate::{
    CallError, CallId, CallsOfTick, CellIndex, FormatSet, GameCall, Grid, GridError, ListingChange, Migrated,
    Migration, MigrationError, NotMigrated, OldRoom, PlayerId, Refusal, RestoreError, RoomInfo, RoomOptions, Schema,
    Scope, Simulation, SnapshotFormat, TickTime, TickUpdate, UpdateWriter, Visitor, World, WorldError,
    binary::{Reader, put_bytes},
    hash::Hasher,
    schema::GoneFields,
    wire,
    world::{Role, SavedForm, Target},
};
use bytes::Bytes;

/// The codes that a game may use in refusals.
const REFUSAL_CODES: std::ops::RangeInclusive<u16> = 400..=1_999;
/// The code of a full room, and of a refusal with an invalid code.
const DEFAULT_REFUSAL_CODE: u16 = 400;
/// The code of a join to a locked room.
const LOCKED_CODE: u16 = 423;
/// The version of the format that [`Room::save`] writes; its first byte.
pub const SAVED_ROOM_VERSION: u8 = 2;

/// A world with its simulation, players and pending output. No I/O; the caller provides the time.
pub struct Room {
    options: RoomOptions,
    world: World,
    simulation: Box<dyn Simulation>,
    writer: UpdateWriter,
    /// The time of the last tick; not part of the world.
    time: TickTime,
    /// A buffer for encoding a player's own objects.
    own: Vec<u8>,
}

/// The result of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The player's id until it leaves.
    pub player: PlayerId,
}

/// The changes of a player in a tick, for the header of its frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlayerChange {
    /// The receiver of these frames.
    pub player: PlayerId,
    /// The cell of its viewpoint.
    pub view: CellIndex,
    /// The number of the last applied input; 0 before the first.
    pub ack: u32,
    /// The player's own object; 0 for none.
    pub avatar: u32,
    /// All objects that only this player receives, encoded by [`crate::wire`] in the player's encoding, if they
    /// changed.
    pub own: Option<Bytes>,
}

/// A reliable message that leaves a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scoped {
    /// An event for some players.
    Event {
        /// The recipients in ascending order; `None` for all players.
        players: Option<Vec<PlayerId>>,
        /// The JSON document of the publication: tick and event.
        data: Bytes,
    },
    /// A publication in another channel.
    Publication {
        /// A channel other than the room's own.
        channel: Box<str>,
        /// The JSON document.
        data: Bytes,
    },
}

/// The results of a tick.
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::TickOutcome;
///
/// /// Whether a test's game has ended its room.
/// fn is_over(outcome: &TickOutcome) -> bool {
///     outcome.removals.closing.is_some()
/// }
/// ```
#[derive(Debug)]
pub struct TickOutcome {
    /// The changes of the world.
    pub update: Arc<TickUpdate>,
    /// The changes of players; a player that has just joined is always included.
    pub players: Vec<PlayerChange>,
    /// Events and publications, in the order in which the simulation sent them.
    pub scoped: Vec<Scoped>,
    /// The players and spectators that the game removed.
    pub removals: Removals,
    /// Calls of the game to the backend.
    pub calls: CallsOfTick,
}

/// The players and spectators that a game removed in a tick, and whether it closed the room.
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::{PlayerId, Removals};
///
/// let removals = Removals { kicked: vec![(PlayerId(7), "idle".into())], closing: None };
/// let (player, reason) = &removals.kicked[0];
/// assert_eq!((player.0, &**reason), (7, "idle"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removals {
    /// Removed players and spectators, each with the reason for its client.
    pub kicked: Vec<(PlayerId, Box<str>)>,
    /// The reason for all clients if the room has to be closed. Repeated at each tick until it is.
    pub closing: Option<Box<str>>,
}

impl Room {
    /// A room at tick 0.
    ///
    /// # Errors
    /// [`GridError`] if the simulation's map is invalid.
    pub fn new(options: RoomOptions, seed: u64, simulation: Box<dyn Simulation>) -> Result<Self, GridError> {
        Self::open(options, RoomInfo { seed, ..RoomInfo::default() }, simulation)
    }

    /// A room at tick 0 whose game receives the settings that the room was opened with ([`World::info`]). The
    /// simulation must have been created from `info.params`.
    ///
    /// # Errors
    /// As [`Room::new`].
    pub fn open(options: RoomOptions, info: RoomInfo, mut simulation: Box<dyn Simulation>) -> Result<Self, GridError> {
        let mut world = World::new(Grid::new(simulation.grid())?, &options, info.seed);
        world.set_info(info);
        world.set_schema(Arc::new(simulation.schema()));
        world.keep_past(simulation.rewind_ticks());
        simulation.start(&mut world);
        world.settle();
        world.forget_changes(false);
        Ok(Self::of(options, world, simulation))
    }

    /// Restores a room that [`Room::save`] wrote. Its players start without a base.
    ///
    /// # Errors
    /// [`RestoreError`]
    pub fn restore(
        options: RoomOptions,
        saved: &[u8],
        mut simulation: Box<dyn Simulation>,
    ) -> Result<Self, RestoreError> {
        let grid = Grid::new(simulation.grid()).map_err(|_| RestoreError)?;
        let schema = Arc::new(simulation.schema());
        let mut saved = Reader::new(saved);
        let (version, channel, params) = read_opening(&mut saved)?;
        let form = SavedForm { version, is_of_other_map: false };
        let mut world = restored_world(grid, &options, schema, form, &mut saved)?;
        let info = RoomInfo { channel: channel.into(), params: params.into(), seed: world.info().seed };
        world.set_info(info);
        simulation.restore(saved.rest())?;
        Ok(Self::of(options, world, simulation))
    }

    /// Takes over a room that [`Room::save`] wrote with another version of the game, other parameters or another schema:
    /// converts the states of its objects, and asks the game to do the rest if necessary. Its players start without a base.
    /// If the map differs, objects and viewpoints outside of it are moved to its edge. [`World::rewind`] begins anew if
    /// the game has taken it over.
    ///
    /// # Errors
    /// [`MigrationError`]
    pub fn migrate(
        options: RoomOptions,
        saved: &[u8],
        mut simulation: Box<dyn Simulation>,
        migration: &Migration<'_>,
    ) -> Result<Migrated, MigrationError> {
        let unreadable = |_: RestoreError| MigrationError::Unreadable;
        let grid = Grid::new(simulation.grid()).map_err(|_| MigrationError::Unreadable)?;
        let schema = Arc::new(simulation.schema());
        let mut reader = Reader::new(saved);
        let (version, channel, _) = read_opening(&mut reader).map_err(unreadable)?;
        let begin = reader;
        let form = SavedForm { version, is_of_other_map: false };
        let restored = restored_world(grid.clone(), &options, Arc::clone(&schema), form, &mut reader);
        let mut world = if let Ok(world) = restored {
            let actual = hash_of(&world, reader.rest());
            if actual != migration.state_hash {
                return Err(MigrationError::OtherState { tick: world.tick(), actual });
            }
            world
        } else if migration.is_for_game {
            // Only a game that knows of the change has another map. The hash depends on the map.
            reader = begin;
            let form = SavedForm { is_of_other_map: true, ..form };
            restored_world(grid, &options, Arc::clone(&schema), form, &mut reader).map_err(unreadable)?
        } else {
            return Err(MigrationError::Unreadable);
        };
        let (channel, params) = (channel.into(), migration.params.into());
        world.set_info(RoomInfo { channel, params, seed: world.info().seed });
        let is_newer = simulation.version() > migration.version;
        let gone = if is_newer { GoneFields::Dropped } else { GoneFields::Kept };
        let changes = schema.changes_since(migration.schema, gone);
        let converted_states = world.convert_states(&changes).map_err(|_| MigrationError::StateTooLong)?;
        let difference = world.state_difference(&changes);
        let is_by_game = migration.is_for_game || difference.is_some();
        if is_by_game {
            world.begin_past_anew(simulation.rewind_ticks());
            let (version, ticks_per_second) = (migration.version, migration.ticks_per_second);
            let old = OldRoom { version, saved: reader.rest(), params: migration.old_params, ticks_per_second };
            simulation.migrate(&mut world, &old).map_err(|error| match (error, difference) {
                (NotMigrated::Unsupported, Some(difference)) if !migration.is_for_game => {
                    MigrationError::States(difference)
                }
                (error, _) => MigrationError::Game(error),
            })?;
            if let Some(left) = world.state_not_converted(&changes) {
                return Err(MigrationError::StatesLeft(left));
            }
        } else {
            simulation.restore(reader.rest()).map_err(unreadable)?;
        }
        if is_by_game || converted_states > 0 {
            world.present_as_new();
        }
        Ok(Migrated { room: Self::of(options, world, simulation), converted_states, is_by_game })
    }

    /// The simulation's parameters in a saved room, a JSON document; `None` if it has none.
    pub fn saved_params(saved: &[u8]) -> Option<&str> {
        let (_, _, params) = read_opening(&mut Reader::new(saved)).ok()?;
        Some(params).filter(|params| !params.is_empty())
    }

    fn of(options: RoomOptions, world: World, simulation: Box<dyn Simulation>) -> Self {
        let writer = writer_of(&world);
        Self { options, world, simulation, writer, time: TickTime::default(), own: Vec::new() }
    }

    /// Appends everything that the room's future depends on. Call it directly after a tick: later changes are in the
    /// restored world, but in none of its updates.
    pub fn save(&self, out: &mut Vec<u8>) {
        out.push(SAVED_ROOM_VERSION);
        put_bytes(self.world.info().channel.as_bytes(), out);
        put_bytes(self.world.info().params.as_bytes(), out);
        self.world.save(out);
        self.world.save_past(out);
        self.simulation.save(out);
    }

    /// The room's options.
    pub fn options(&self) -> &RoomOptions {
        &self.options
    }

    /// The map.
    pub fn grid(&self) -> &Grid {
        self.world.grid()
    }

    /// Read access, for recordings and tests.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// What the states of the objects are made of.
    pub fn schema(&self) -> &Arc<Schema> {
        self.world.schema()
    }

    /// From now on, a value outside of the range of its field is a panic instead of being limited, and a struct that the
    /// schema does not declare is one as well, for tests.
    pub fn be_strict(&mut self) {
        self.world.be_strict();
    }

    /// Admits a player or a spectator whose frames have this form.
    ///
    /// # Errors
    /// The game's [`Refusal`], or 400 for a full room. An invalid code of the game becomes 400.
    pub fn join(
        &mut self,
        visitor: &Visitor<'_>,
        format: impl Into<SnapshotFormat>,
        data: &[u8],
    ) -> Result<Joined, Refusal> {
        if self.world.listing().is_locked {
            return Err(Refusal { code: LOCKED_CODE, message: "the room is locked".into() });
        }
        let full = || Refusal { code: DEFAULT_REFUSAL_CODE, message: "the room is full".into() };
        let (count, max) = if visitor.is_spectator {
            (self.world.spectator_count(), self.options.spectators_max)
        } else {
            (self.world.player_count(), self.world.players_max())
        };
        if count >= max {
            return Err(full());
        }
        let format = self.format_for(format.into());
        let player = self.world.add_player(format, visitor.is_spectator).ok_or_else(full)?;
        let answer = if visitor.is_spectator {
            self.simulation.spectate(&mut self.world, player, visitor, data)
        } else {
            self.simulation.join(&mut self.world, player, visitor, data)
        };
        match answer {
            Ok(()) => Ok(Joined { player }),
            Err(refusal) => {
                self.world.remove_player(player);
                Err(with_possible_code(refusal))
            }
        }
    }

    /// Passes a message of the backend to the game. Returns its answer.
    ///
    /// # Errors
    /// The game's [`Refusal`]. An invalid code becomes 400.
    pub fn message(&mut self, data: &[u8]) -> Result<Vec<u8>, Refusal> {
        self.simulation.message(&mut self.world, data).map_err(with_possible_code)
    }

    /// Changes how the room is listed, and who may join it, for the backend.
    ///
    /// # Errors
    /// [`WorldError`]; nothing has changed.
    pub fn change_listing(&mut self, change: &ListingChange) -> Result<(), WorldError> {
        self.world.change_listing(change)
    }

    /// Removes a player or a spectator at the end of the tick, as [`World::kick`]. Returns whether it is in the room.
    pub fn kick(&mut self, player: PlayerId, reason: &str) -> bool {
        self.world.kick(player, reason);
        self.world.player_table().get(player).is_some()
    }

    /// Passes the backend's answer to a call to the game. Returns whether the call was pending: an answer after the
    /// timeout has no effect.
    pub fn answer(&mut self, call: CallId, outcome: Result<&[u8], CallError>) -> bool {
        let is_waited_for = self.world.calls_mut().end(call);
        if is_waited_for {
            self.simulation.answer(&mut self.world, call, outcome);
        }
        is_waited_for
    }

    /// Ends all pending calls, whose answers are lost by a restart. Returns their number.
    pub fn lose_calls(&mut self) -> usize {
        let lost = self.world.calls_mut().lose_all();
        for call in &lost {
            self.simulation.answer(&mut self.world, *call, Err(CallError::Lost));
        }
        lost.len()
    }

    /// Removes a player or a spectator. Does nothing if it is not in the room.
    pub fn leave(&mut self, player: PlayerId) {
        match self.world.remove_player(player) {
            Some(Role::Player) => self.simulation.leave(&mut self.world, player),
            Some(Role::Spectator) => self.simulation.spectator_left(&mut self.world, player),
            None => {}
        }
    }

    /// A player's client is gone, and may come back. Does nothing if the player is not in the room.
    pub fn away(&mut self, player: PlayerId) {
        if self.world.is_player(player) {
            self.simulation.away(&mut self.world, player);
        }
    }

    /// A player's client has come back: its frames have this form, it has no base, and it numbers its inputs from 1
    /// again. Returns whether the player is in the room.
    pub fn back(&mut self, player: PlayerId, visitor: &Visitor<'_>, format: impl Into<SnapshotFormat>) -> bool {
        self.resume(player, visitor, format.into(), 0)
    }

    /// As [`Room::back`], for a client that goes on numbering its inputs: its node has kept its subscription while it had no
    /// room.
    pub fn go_on(&mut self, player: PlayerId, visitor: &Visitor<'_>, format: impl Into<SnapshotFormat>) -> bool {
        let ack = self.last_input(player);
        self.resume(player, visitor, format.into(), ack)
    }

    fn resume(&mut self, player: PlayerId, visitor: &Visitor<'_>, format: SnapshotFormat, ack: u32) -> bool {
        let is_here = self.world.resume_player(player, self.format_for(format), ack);
        if is_here {
            self.simulation.back(&mut self.world, player, visitor);
        }
        is_here
    }

    /// The number of a player's last input; 0 if there is none, or no such player.
    pub fn last_input(&self, player: PlayerId) -> u32 {
        self.world.player_table().get(player).map_or(0, |player| player.ack)
    }

    /// Applies a player's input and acknowledges `number`. Returns whether the game could decode it. An input of a
    /// player that is not in the room counts as invalid, and a spectator's is ignored.
    pub fn input(&mut self, player: PlayerId, number: u32, data: &[u8]) -> bool {
        let Some(sender) = self.world.players_mut().get_mut(player).filter(|sender| sender.role == Role::Player) else {
            return false;
        };
        sender.is_dirty |= sender.ack != number;
        sender.ack = number;
        self.simulation.input(&mut self.world, player, data).is_ok()
    }

    /// Runs one tick. `time` is for clients; the world does not depend on it. The update is encoded for the forms of the
    /// current players.
    pub fn tick(&mut self, time: impl Into<TickTime>) -> TickOutcome {
        let removals = self.step();
        self.time = time.into();
        let formats = self.formats();
        self.writer.begin(self.world.tick(), self.time, formats, false);
        self.world.write_changes(&mut self.writer);
        let update = Arc::new(self.writer.finish(self.world.grid()));
        let calls = self.world.calls_mut().take_of_tick();
        let outcome = TickOutcome { update, players: self.player_changes(), scoped: self.scoped(), removals, calls };
        self.forget(formats);
        outcome
    }

    /// Runs a tick without encoding an update, for a replay.
    pub fn tick_without_update(&mut self) -> Removals {
        let removals = self.step();
        self.forget(FormatSet::default());
        removals
    }

    /// As [`Room::tick_without_update`]; returns the events and publications, and the calls.
    pub fn tick_with_events(&mut self) -> (Vec<Scoped>, Vec<GameCall>) {
        self.step();
        let (scoped, calls) = (self.scoped(), self.world.calls_mut().take_of_tick().sent);
        self.forget(FormatSet::default());
        (scoped, calls)
    }

    fn step(&mut self) -> Removals {
        self.world.advance();
        for call in self.world.calls_mut().begin_tick() {
            self.simulation.answer(&mut self.world, call, Err(CallError::Timeout));
        }
        self.simulation.tick(&mut self.world);
        let mut kicked = Vec::new();
        // A game may kick more players while one leaves. The number of kicks is bounded by the number of players.
        while let Some((player, reason)) = self.world.take_kick() {
            self.leave(player);
            kicked.push((player, reason));
        }
        self.world.calls_mut().end_tick();
        self.world.settle();
        Removals { kicked, closing: self.world.closing().map(Into::into) }
    }

    /// Ends a tick. `written`: the forms of its update.
    fn forget(&mut self, written: FormatSet) {
        self.world.forget_changes(written.contains(SnapshotFormat::TypedProtobuf));
        self.world.forget_events();
        self.world.calls_mut().take_of_tick();
    }

    fn player_changes(&mut self) -> Vec<PlayerChange> {
        let players = self.world.player_table();
        let mut changes = Vec::with_capacity(players.iter().filter(|player| player.is_dirty).count());
        for player in players.iter().filter(|player| player.is_dirty) {
            let own = player.is_own_dirty.then(|| {
                self.own.clear();
                wire::encode_own(player.format, self.world.schema(), self.world.own_of(player), &mut self.own);
                Bytes::copy_from_slice(&self.own)
            });
            let avatar = player.avatar.map_or(0, |id| id.0);
            changes.push(PlayerChange { player: player.id, view: player.view, ack: player.ack, avatar, own });
        }
        changes
    }

    fn scoped(&self) -> Vec<Scoped> {
        let (players, grid) = (self.world.player_table(), self.world.grid());
        let sent = self.world.events().iter();
        let of_nobody = |audience: &Option<Vec<PlayerId>>| audience.as_ref().is_some_and(Vec::is_empty);
        let scoped_effects = sent.filter_map(|(target, json)| {
            let audience = match target {
                Target::Channel(channel) => {
                    return Some(Scoped::Publication {
                        channel: channel.clone(),
                        data: Bytes::copy_from_slice(json.as_bytes()),
                    });
                }
                Target::Players(Scope::All) => None,
                Target::Players(Scope::Near(cell)) => Some(players.viewers(grid, *cell)),
                Target::Players(Scope::Player(player)) => {
                    Some(players.get(*player).map(|player| player.id).into_iter().collect())
                }
            };
            let data = format!("{{\"tick\":{},\"event\":{json}}}", self.world.tick());
            (!of_nobody(&audience)).then(|| Scoped::Event { players: audience, data: data.into() })
        });
        scoped_effects.collect()
    }

    /// The full world, for a shard that has no mirror yet or lacks some of `formats`. Must be called before any change
    /// for the next tick is applied, because an update contains the changes since the last tick.
    pub fn keyframe(&self, formats: FormatSet) -> Arc<TickUpdate> {
        let mut writer = writer_of(&self.world);
        writer.begin(self.world.tick(), self.time, formats, true);
        self.world.write_all(&mut writer);
        Arc::new(writer.finish(self.world.grid()))
    }

    /// The form of the frames of a client that asks for `format`.
    pub fn format_for(&self, format: SnapshotFormat) -> SnapshotFormat {
        format.in_room_with(self.schema())
    }

    /// The forms of the current players.
    pub fn formats(&self) -> FormatSet {
        let players = self.world.player_table();
        let here = SnapshotFormat::ALL.into_iter().filter(|format| players.count_with(*format) > 0);
        here.fold(FormatSet::default(), FormatSet::with)
    }

    /// A hash of everything that the room's future depends on.
    pub fn state_hash(&self) -> u64 {
        let mut saved = Vec::new();
        self.simulation.save(&mut saved);
        hash_of(&self.world, &saved)
    }

    /// The version of its game.
    pub fn game_version(&self) -> u32 {
        self.simulation.version()
    }

    /// The number of players.
    pub fn player_count(&self) -> usize {
        self.world.player_count()
    }

    /// The number of objects.
    pub fn object_count(&self) -> usize {
        self.world.object_count()
    }

    /// The number of the last tick.
    pub fn tick_number(&self) -> u32 {
        self.world.tick()
    }

    /// Approximate memory in bytes that the game reports for its own state. Calls the game.
    pub fn game_bytes(&self) -> usize {
        self.simulation.memory_bytes()
    }

    /// Approximate memory of the room's world, in bytes. The cost does not depend on the size of the world.
    pub fn world_bytes(&self) -> usize {
        self.world.memory_bytes() + self.writer.memory_bytes() + self.own.capacity()
    }
}

/// The state hash of a room whose game has saved these bytes.
fn hash_of(world: &World, saved: &[u8]) -> u64 {
    Hasher::new(4).number(world.state_hash()).bytes(saved).finish()
}

fn writer_of(world: &World) -> UpdateWriter {
    UpdateWriter::new(Arc::clone(world.schema()), world.grid().shape().cell_units)
}

/// The first fields of a saved room: its version, channel and parameters. Version 1 has only the first.
fn read_opening<'a>(saved: &mut Reader<'a>) -> Result<(u8, &'a str, &'a str), RestoreError> {
    let unreadable = |_| RestoreError;
    match saved.byte().map_err(unreadable)? {
        1 => Ok((1, "", "")),
        version @ 2..=SAVED_ROOM_VERSION => {
            Ok((version, saved.text().map_err(unreadable)?, saved.text().map_err(unreadable)?))
        }
        _ => Err(RestoreError),
    }
}

/// A saved world, with its past.
fn restored_world(
    grid: Grid,
    options: &RoomOptions,
    schema: Arc<Schema>,
    form: SavedForm,
    saved: &mut Reader<'_>,
) -> Result<World, RestoreError> {
    let mut world = World::restore(grid, options, schema, form, saved).map_err(|_| RestoreError)?;
    // Version 1 does not save past ticks.
    if form.version >= 2 {
        world.restore_past(saved).map_err(|_| RestoreError)?;
    }
    Ok(world)
}

fn with_possible_code(refusal: Refusal) -> Refusal {
    let code = if REFUSAL_CODES.contains(&refusal.code) { refusal.code } else { DEFAULT_REFUSAL_CODE };
    Refusal { code, ..refusal }
}
