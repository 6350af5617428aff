//! The world that a simulation changes and that is replicated to clients.

mod calls;
mod cells;
mod error;
mod events;
mod listed;
mod near;
mod object;
mod objects;
mod past;
mod players;
mod removals;
mod slots;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};

use crate::{
    CellIndex, Grid, ListingChange, ListingState, ObjectView, Position, RoomInfo, RoomOptions, Schema,
    SchemaDifference, SnapshotFormat, State, StateReader, StateWriter, UpdateWriter,
    binary::{Reader, Unreadable, put_number},
    hash::Hasher,
    schema::KindChange,
};
use calls::Calls;
use listed::Listing;
use objects::Objects;
use removals::PendingRemovals;

pub use calls::{CallError, CallId, CallsOfTick, GameCall};
pub use error::WorldError;
pub use events::Scope;
pub use near::Neighbour;
pub use object::{NewObject, Object, ObjectId, Visibility};
pub use past::{PastNeighbour, Rewound};
pub use players::PlayerId;

pub(crate) use {
    events::{Events, Target},
    players::{Player, Players, Role},
};

/// A world: objects on a grid, players and their viewpoints, and random numbers.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
/// # example::in_world(|world, ada| {
/// let chest = example::spawn_chest(world)?;
/// assert_eq!((world.tick(), world.object_count(), world.is_player(ada)), (0, 1, true));
/// world.despawn(chest);
/// # Ok(())
/// # })
/// ```
#[derive(Debug)]
pub struct World {
    info: RoomInfo,
    ticks_per_second: u32,
    tick: u32,
    generator: ChaCha8Rng,
    objects: Objects,
    players: Players,
    events: Events,
    removals: PendingRemovals,
    listing: Listing,
    calls: Calls,
    /// A buffer for the state of an object.
    state: Vec<u8>,
    /// Values that were outside of the ranges of their fields.
    limited_values: u64,
    /// Whether such a value is a mistake that ends a test.
    is_strict: bool,
}

/// The form of a saved world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SavedForm {
    /// The version of the format.
    pub(crate) version: u8,
    /// Whether it may have been saved with another map: what is outside of the map moves to its edge.
    pub(crate) is_of_other_map: bool,
}

impl World {
    /// An empty world at tick 0.
    pub(crate) fn new(grid: Grid, options: &RoomOptions, seed: u64) -> Self {
        Self {
            info: RoomInfo { seed, ..RoomInfo::default() },
            ticks_per_second: options.ticks_per_second,
            tick: 0,
            generator: ChaCha8Rng::seed_from_u64(seed),
            objects: Objects::new(grid, options),
            players: Players::default(),
            events: Events::new(options.events_per_tick_max, options.event_bytes_max),
            removals: PendingRemovals::default(),
            listing: Listing::new(options),
            calls: Calls::new(options),
            state: Vec::new(),
            limited_values: 0,
            is_strict: false,
        }
    }

    /// Restores a world that was saved in a form, without its past. All players, and their own objects, are reported as new.
    pub(crate) fn restore(
        grid: Grid,
        options: &RoomOptions,
        schema: Arc<Schema>,
        form: SavedForm,
        saved: &mut Reader<'_>,
    ) -> Result<Self, Unreadable> {
        let tick = saved.number_of()?;
        let mut world = Self::new(grid, options, saved.number()?);
        world.tick = tick;
        world.set_schema(schema);
        let (low, high) = (saved.number()?, saved.number()?);
        let word_position = u128::from(high) << 64 | u128::from(low);
        world.generator.set_word_pos(word_position);
        if world.generator.get_word_pos() != word_position {
            return Err(Unreadable::Wrong);
        }
        world.objects.restore(saved, form.is_of_other_map)?;
        world.players = Players::restore(world.grid(), saved, form.is_of_other_map)?;
        world.events.restore(saved)?;
        if form.version >= 2 {
            world.removals = PendingRemovals::restore(saved)?;
            world.listing.state = ListingState::restore(saved)?;
            world.calls.restore(saved)?;
        }
        // The visibility of objects follows from the rest of the state, so no change is reported now.
        world.present_as_new();
        Ok(world)
    }

    /// Ends the changes of the world before its players see it: each of them receives all that it sees.
    pub(crate) fn present_as_new(&mut self) {
        self.settle();
        self.forget_changes(false);
        for player in self.players.iter_mut() {
            (player.is_dirty, player.is_own_dirty) = (true, !player.own.is_empty());
        }
    }

    /// Gives the states of objects the form that they have now, where that needs no game. Returns the number of states that
    /// have changed.
    pub(crate) fn convert_states(&mut self, changes: &[KindChange<'_>]) -> Result<usize, WorldError> {
        self.objects.convert_states(changes)
    }

    /// Why states of this world need the game, if so.
    pub(crate) fn state_difference(&self, changes: &[KindChange<'_>]) -> Option<SchemaDifference> {
        self.objects.state_difference(changes, |_, _| true)
    }

    /// Which states of this world do not have the form of their kind, if the game had to convert them.
    pub(crate) fn state_not_converted(&self, changes: &[KindChange<'_>]) -> Option<SchemaDifference> {
        self.objects.state_difference(changes, |state, now| now.is_some_and(|kind| !kind.describes(state)))
    }

    /// Forgets the past, and stores up to `ticks_max` ticks from now on.
    pub(crate) fn begin_past_anew(&mut self, ticks_max: u8) {
        self.objects.begin_past_anew(self.tick, ticks_max);
    }

    /// Appends the form that [`World::restore`] reads.
    pub(crate) fn save(&self, out: &mut Vec<u8>) {
        let word_position = self.generator.get_word_pos();
        for number in [u64::from(self.tick), self.info.seed, word_position as u64, (word_position >> 64) as u64] {
            put_number(number, out);
        }
        self.objects.save(out);
        self.players.save(out);
        self.events.save(out);
        self.removals.save(out);
        self.listing.state.save(out);
        self.calls.save(out);
    }

    /// Appends the form that [`World::restore_past`] reads.
    pub(crate) fn save_past(&self, out: &mut Vec<u8>) {
        self.objects.past.save(out);
    }

    /// Restores what [`World::save_past`] wrote.
    pub(crate) fn restore_past(&mut self, saved: &mut Reader<'_>) -> Result<(), Unreadable> {
        self.objects.restore_past(self.tick, saved)
    }

    /// From now on, stores the positions of up to `ticks_max` ticks.
    pub(crate) fn keep_past(&mut self, ticks_max: u8) {
        self.objects.keep_past(ticks_max);
    }

    /// The settings that the room was opened with: its channel, the parameters of the simulation and the seed.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// assert_eq!(world.info().seed, 42);
    /// # Ok(())
    /// # })
    /// ```
    pub fn info(&self) -> &RoomInfo {
        &self.info
    }

    /// The map.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// assert_eq!(world.grid().size_units(), (2_048, 2_048));
    /// # Ok(())
    /// # })
    /// ```
    pub fn grid(&self) -> &Grid {
        self.objects.grid()
    }

    /// The number of the current tick, from 1; 0 before the first.
    ///
    /// ```
    /// # use dunlin_rooms::Scope;
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// // Once in 5 s.
    /// if world.tick() % (5 * world.ticks_per_second()) == 0 {
    ///     world.emit(Scope::All, r#"{"type": "wind"}"#)?;
    /// }
    /// # Ok(())
    /// # })
    /// ```
    pub fn tick(&self) -> u32 {
        self.tick
    }

    /// The number of ticks per second, which is constant for the lifetime of the world.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// let round_ticks = 90 * world.ticks_per_second();
    /// assert_eq!(round_ticks, 5_400);
    /// # Ok(())
    /// # })
    /// ```
    pub fn ticks_per_second(&self) -> u32 {
        self.ticks_per_second
    }

    /// A random 64-bit number.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// assert_ne!(world.random(), world.random());
    /// # Ok(())
    /// # })
    /// ```
    pub fn random(&mut self) -> u64 {
        self.generator.next_u64()
    }

    /// A random number below `bound`, which must not be 0.
    ///
    /// ```
    /// # use dunlin_rooms::Position;
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// let (width, height) = world.grid().size_units();
    /// let place = Position { x: world.random_below(width), y: world.random_below(height) };
    /// assert!(place.x < width && place.y < height);
    /// # Ok(())
    /// # })
    /// ```
    pub fn random_below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.random()) * u128::from(bound)) >> 64) as u32
    }

    /// Removes a player or a spectator at the end of the tick: [`crate::Simulation::leave`] or
    /// [`crate::Simulation::spectator_left`] is called, and its client is unsubscribed with the reason, which is
    /// truncated at 120 bytes. Does nothing if it is not in the room.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// world.kick(ada, "you were idle for 3 minutes");
    /// assert!(world.is_player(ada), "until the tick ends");
    /// # Ok(())
    /// # })
    /// ```
    pub fn kick(&mut self, player: PlayerId, reason: &str) {
        if self.players.get(player).is_some() {
            self.removals.kick(player, reason);
        }
    }

    /// Ends the room after this tick: all clients are unsubscribed with the reason, which is truncated at 120 bytes. A
    /// few more ticks may run before the room ends.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// world.close("the match is over");
    /// # Ok(())
    /// # })
    /// ```
    pub fn close(&mut self, reason: &str) {
        self.removals.close(reason);
    }

    /// Sends an event, a JSON document, to the players in `scope`: reliably, in order, and recoverable.
    ///
    /// # Errors
    /// [`WorldError::TooManyEvents`], [`WorldError::BadEvent`]
    ///
    /// ```
    /// # use dunlin_rooms::{Scope, WorldError};
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// world.emit(Scope::Player(ada), r#"{"type": "welcome"}"#)?;
    /// assert_eq!(world.emit(Scope::All, "not JSON"), Err(WorldError::BadEvent));
    /// # Ok(())
    /// # })
    /// ```
    pub fn emit(&mut self, scope: Scope, event: &str) -> Result<(), WorldError> {
        self.events.add(Target::Players(scope), event)
    }

    /// Publishes `data`, a JSON document, to another channel, whose subscribers need not be players.
    ///
    /// # Errors
    /// [`WorldError::TooManyEvents`], [`WorldError::BadEvent`]
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// world.publish("leaders:eu", r#"{"name": "Ada", "points": 12}"#)?;
    /// # Ok(())
    /// # })
    /// ```
    pub fn publish(&mut self, channel: &str, data: &str) -> Result<(), WorldError> {
        self.events.add(Target::Channel(channel.into()), data)
    }

    /// Adds an object.
    ///
    /// # Errors
    /// [`WorldError::TooManyObjects`], [`WorldError::StateTooLong`]
    ///
    /// ```
    /// # use dunlin_rooms::{NewObject, Position, Visibility};
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// let position = Position { x: 300, y: 300 };
    /// let object = NewObject { position, kind: 7, visibility: Visibility::Everyone, state: b"full" };
    /// let chest = world.spawn(object)?;
    /// assert_eq!(world.object(chest).map(|object| object.kind), Some(7));
    /// # Ok(())
    /// # })
    /// ```
    pub fn spawn(&mut self, object: NewObject<'_>) -> Result<ObjectId, WorldError> {
        self.objects.spawn(object)
    }

    /// Removes an object; returns whether it existed.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// # let chest = example::spawn_chest(world)?;
    /// assert!(world.despawn(chest));
    /// assert!(!world.despawn(chest), "it is gone");
    /// # Ok(())
    /// # })
    /// ```
    pub fn despawn(&mut self, id: ObjectId) -> bool {
        self.objects.despawn(id, &mut self.players)
    }

    /// `None` if the object does not exist or was despawned.
    ///
    /// ```
    /// # use dunlin_rooms::Position;
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// # let chest = example::spawn_chest(world)?;
    /// let place = world.object(chest).map(|object| object.position);
    /// assert_eq!(place, Some(Position { x: 300, y: 300 }));
    /// # Ok(())
    /// # })
    /// ```
    pub fn object(&self, id: ObjectId) -> Option<&Object> {
        self.objects.get(id)
    }

    /// Moves an object; the position is limited to the map. Does nothing if the object does not exist.
    ///
    /// ```
    /// # use dunlin_rooms::Position;
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// # let chest = example::spawn_chest(world)?;
    /// world.move_to(chest, Position { x: 310, y: 300 });
    /// assert_eq!(world.object(chest).map(|object| object.position.x), Some(310));
    /// # Ok(())
    /// # })
    /// ```
    pub fn move_to(&mut self, id: ObjectId, position: Position) {
        self.objects.move_to(id, position);
    }

    /// Sets the state of an object.
    ///
    /// # Errors
    /// [`WorldError::StateTooLong`], [`WorldError::NoSuchObject`]
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// # let chest = example::spawn_chest(world)?;
    /// world.set_state(chest, b"empty")?;
    /// assert_eq!(world.object(chest).map(|object| &object.state[..]), Some(&b"empty"[..]));
    /// # Ok(())
    /// # })
    /// ```
    pub fn set_state(&mut self, id: ObjectId, state: &[u8]) -> Result<(), WorldError> {
        self.objects.set_state(id, state)
    }

    /// Adds an object whose state is a struct.
    ///
    /// # Errors
    /// [`WorldError::TooManyObjects`], [`WorldError::StateTooLong`]
    ///
    /// ```
    /// use dunlin_rooms::{Position, Visibility, state};
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    ///
    /// state! {
    ///     /// A door.
    ///     #[derive(Debug, PartialEq)]
    ///     pub struct Door: 4 {
    ///         pub is_open: bool,
    ///     }
    /// }
    /// # example::in_world(|world, ada| {
    /// let door = world.add(Position { x: 300, y: 300 }, Visibility::Everyone, &Door { is_open: false })?;
    /// world.update(door, |door: &mut Door| door.is_open = true)?;
    /// assert_eq!(world.get::<Door>(door), Some(Door { is_open: true }));
    /// # Ok(())
    /// # })
    /// ```
    pub fn add<T: State>(
        &mut self,
        position: Position,
        visibility: Visibility,
        state: &T,
    ) -> Result<ObjectId, WorldError> {
        self.encode(state);
        let object = NewObject { position, kind: T::KIND, visibility, state: &self.state };
        self.objects.spawn(object)
    }

    /// The state of an object; `None` if there is no such object of this kind. [`World::add`] shows an example.
    pub fn get<T: State>(&self, id: ObjectId) -> Option<T> {
        let object = self.object(id).filter(|object| object.kind == T::KIND)?;
        StateReader::read(&object.state)
    }

    /// Changes the state of an object. Only the fields that differ afterwards are sent. [`World::add`] shows an example.
    ///
    /// # Errors
    /// [`WorldError::NoSuchObject`]; [`WorldError::WrongState`], also if the state does not have the form of the struct,
    /// for instance because it was saved before a field was added; [`WorldError::StateTooLong`]
    pub fn update<T: State, R>(&mut self, id: ObjectId, change: impl FnOnce(&mut T) -> R) -> Result<R, WorldError> {
        let slot = self.objects.find_of_kind(id, T::KIND)?;
        let mut state: T = StateReader::read(&self.objects.at(slot).state).ok_or(WorldError::WrongState)?;
        let outcome = change(&mut state);
        self.encode(&state);
        self.objects.set_state_at(slot, &self.state)?;
        Ok(outcome)
    }

    /// Replaces the state of an object. Only the fields that differ are sent.
    ///
    /// # Errors
    /// [`WorldError::NoSuchObject`], [`WorldError::WrongState`] if the object is of another kind,
    /// [`WorldError::StateTooLong`]
    ///
    /// ```
    /// use dunlin_rooms::{Position, Visibility, WorldError, state};
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    ///
    /// state! {
    ///     /// A door.
    ///     pub struct Door: 4 {
    ///         pub is_open: bool,
    ///     }
    /// }
    /// # example::in_world(|world, ada| {
    /// # let chest = example::spawn_chest(world)?;
    /// assert_eq!(world.set(chest, &Door { is_open: true }), Err(WorldError::WrongState), "a chest is no door");
    /// # Ok(())
    /// # })
    /// ```
    pub fn set<T: State>(&mut self, id: ObjectId, state: &T) -> Result<(), WorldError> {
        let slot = self.objects.find_of_kind(id, T::KIND)?;
        self.encode(state);
        self.objects.set_state_at(slot, &self.state)
    }

    fn encode<T: State>(&mut self, state: &T) {
        self.state.clear();
        let limited = StateWriter::write(state, &mut self.state);
        let is_declared = || self.schema().kind(T::KIND).is_some_and(|kind| *kind.fields == *T::FIELDS);
        assert!(!self.is_strict || is_declared(), "the schema of the game does not declare {}", T::NAME);
        assert!(limited == 0 || !self.is_strict, "{limited} values of a {} are outside of their ranges", T::NAME);
        self.limited_values += u64::from(limited);
    }

    /// The number of values that were outside of the ranges of their fields, and were limited to them.
    ///
    /// ```
    /// use dunlin_rooms::{Position, Visibility, state};
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    ///
    /// state! {
    ///     /// A door.
    ///     pub struct Door: 4 {
    ///         pub angle: u8 [range(0, 90)],
    ///     }
    /// }
    /// # example::in_world(|world, ada| {
    /// world.add(Position { x: 300, y: 300 }, Visibility::Everyone, &Door { angle: 91 })?;
    /// assert_eq!(world.limited_values(), 1);
    /// # Ok(())
    /// # })
    /// ```
    pub fn limited_values(&self) -> u64 {
        self.limited_values
    }

    /// From now on, a value outside of its range is a panic, and so is a struct that the schema does not declare.
    pub(crate) fn be_strict(&mut self) {
        self.is_strict = true;
    }

    /// What the states of the objects are made of.
    pub(crate) fn schema(&self) -> &Arc<Schema> {
        self.objects.schema()
    }

    /// Sets the schema, before there are objects.
    pub(crate) fn set_schema(&mut self, schema: Arc<Schema>) {
        self.objects.set_schema(schema);
    }

    /// Sets which players receive an object. Does nothing if the object does not exist.
    ///
    /// ```
    /// # use dunlin_rooms::Visibility;
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// # let chest = example::spawn_chest(world)?;
    /// // Only Ada receives it, wherever she looks.
    /// world.set_visibility(chest, Visibility::Owner(ada));
    /// # Ok(())
    /// # })
    /// ```
    pub fn set_visibility(&mut self, id: ObjectId, visibility: Visibility) {
        self.objects.set_visibility(id, visibility);
    }

    /// The objects in a cell, in a deterministic order that depends on earlier changes.
    ///
    /// ```
    /// # use dunlin_rooms::Position;
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// # let chest = example::spawn_chest(world)?;
    /// let cell = world.grid().cell_of(Position { x: 300, y: 300 });
    /// assert!(world.objects_in(cell).any(|(id, _)| id == chest));
    /// # Ok(())
    /// # })
    /// ```
    pub fn objects_in(&self, cell: CellIndex) -> impl Iterator<Item = (ObjectId, &Object)> {
        self.objects.in_cell(cell)
    }

    /// All objects, in an order of the same kind.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// # let chest = example::spawn_chest(world)?;
    /// let chests = world.objects().filter(|(_, object)| object.kind == 7);
    /// assert_eq!(chests.map(|(id, _)| id).collect::<Vec<_>>(), [chest]);
    /// # Ok(())
    /// # })
    /// ```
    pub fn objects(&self) -> impl Iterator<Item = (ObjectId, &Object)> {
        self.objects.iter()
    }

    /// The number of objects.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// # let chest = example::spawn_chest(world)?;
    /// assert_eq!(world.object_count(), 1);
    /// # Ok(())
    /// # })
    /// ```
    pub fn object_count(&self) -> usize {
        self.objects.len()
    }

    /// The exclusive-or of [`crate::wire::object_hash`] over the objects of a cell that are visible to everyone, as of
    /// the last tick. 0 for a cell outside the map.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// let chest = example::spawn_chest(world)?;
    /// let cell = world.grid().cell_of(world.object(chest).expect("there").position);
    /// assert_eq!(world.cell_hash(cell), 0, "the tick is not over");
    /// # Ok(())
    /// # })
    /// ```
    pub fn cell_hash(&self, cell: CellIndex) -> u64 {
        self.objects.cell_hash(cell)
    }

    /// The objects within `radius` units of a position, in a circle: dx² + dy² ≤ radius². The nearest comes first; at
    /// equal distances, the oldest. Visibility does not matter.
    ///
    /// Visits only the cells that intersect the circle's bounding square. Makes one allocation, or none if there is no
    /// such object.
    ///
    /// ```
    /// # use dunlin_rooms::{ObjectId, Position, World};
    /// /// The objects that a blast of 100 units hits, nearest first.
    /// fn hit(world: &World, blast: Position) -> Vec<ObjectId> {
    ///     world.near(blast, 100).map(|neighbour| neighbour.id).collect()
    /// }
    /// ```
    pub fn near(&self, position: Position, radius: u32) -> impl ExactSizeIterator<Item = Neighbour<'_>> {
        near::near(&self.objects, position, radius)
    }

    /// The first object of [`World::near`] for which `is_meant` returns true. Does not allocate.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::{ObjectId, Position, World};
    ///
    /// const CHEST: u16 = 7;
    ///
    /// /// The chest that a player opens: the nearest one within an arm's reach.
    /// fn chest(world: &World, player: Position) -> Option<ObjectId> {
    ///     world.nearest(player, 50, |_, object| object.kind == CHEST).map(|near| near.id)
    /// }
    /// ```
    pub fn nearest(
        &self,
        position: Position,
        radius: u32,
        is_meant: impl FnMut(ObjectId, &Object) -> bool,
    ) -> Option<Neighbour<'_>> {
        near::nearest(&self.objects, position, radius, is_meant)
    }

    /// The positions of all objects after `tick`, for a game that evaluates an input by what its player saw. The newest
    /// possible tick is the last completed one; the oldest depends on [`crate::Simulation::rewind_ticks`] and on the
    /// age of the room. `tick` is limited to this range, so it may come from a client.
    ///
    /// ```
    /// # use dunlin_rooms::{ObjectId, Position, World};
    /// /// The object that a shot hits at the place where its player saw the target.
    /// fn hit(world: &World, seen_tick: u32, shot: Position) -> Option<ObjectId> {
    ///     world.rewind(seen_tick).near(shot, 16).next().map(|target| target.id)
    /// }
    /// ```
    pub fn rewind(&self, tick: u32) -> Rewound<'_> {
        Rewound::new(&self.objects, tick)
    }

    /// The players, in the order of joining. Excludes spectators, and includes away players.
    ///
    /// ```
    /// # use dunlin_rooms::Position;
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// // A round begins: all players go to the start.
    /// let players: Vec<_> = world.players().collect();
    /// for player in players {
    ///     world.set_viewpoint(player, Position { x: 0, y: 0 });
    /// }
    /// # Ok(())
    /// # })
    /// ```
    pub fn players(&self) -> impl Iterator<Item = PlayerId> {
        self.players.iter().filter(|player| player.role == Role::Player).map(|player| player.id)
    }

    /// The number of players.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// assert_eq!(world.player_count(), 1);
    /// # Ok(())
    /// # })
    /// ```
    pub fn player_count(&self) -> usize {
        self.players.len() - self.players.spectator_count()
    }

    /// Whether this is a player in the room.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// assert!(world.is_player(ada));
    /// # Ok(())
    /// # })
    /// ```
    pub fn is_player(&self, player: PlayerId) -> bool {
        self.players.get(player).is_some_and(|player| player.role == Role::Player)
    }

    /// The number of spectators.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// assert_eq!(world.spectator_count(), 0);
    /// # Ok(())
    /// # })
    /// ```
    pub fn spectator_count(&self) -> usize {
        self.players.spectator_count()
    }

    /// The positions of the players, in the order of joining: that of the player's avatar, or its viewpoint if it has
    /// none.
    ///
    /// ```
    /// # use dunlin_rooms::Position;
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// world.set_viewpoint(ada, Position { x: 300, y: 300 });
    /// let (player, avatar, position) = world.player_positions().next().expect("one player");
    /// assert_eq!((player, avatar, position.x), (ada, None, 300));
    /// # Ok(())
    /// # })
    /// ```
    pub fn player_positions(&self) -> impl Iterator<Item = (PlayerId, Option<ObjectId>, Position)> {
        self.players.iter().filter(|player| player.role == Role::Player).map(|player| {
            let object = player.avatar.and_then(|avatar| self.objects.get(avatar));
            let position = object.map_or(player.viewpoint, |object| object.position);
            (player.id, object.and(player.avatar), position)
        })
    }

    /// Sets a player's viewpoint. Before the first call it is the map's corner.
    ///
    /// ```
    /// # use dunlin_rooms::Position;
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// world.set_viewpoint(ada, Position { x: 300, y: 300 });
    /// assert_eq!(world.view_of(ada), Some(world.grid().cell_of(Position { x: 300, y: 300 })));
    /// # Ok(())
    /// # })
    /// ```
    pub fn set_viewpoint(&mut self, player: PlayerId, position: Position) {
        let position = self.grid().clamp(position);
        let view = self.grid().cell_of(position);
        self.players.look(player, position, view);
    }

    /// The cell of a player's viewpoint.
    ///
    /// ```
    /// # use dunlin_rooms::Position;
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// world.set_viewpoint(ada, Position { x: 0, y: 0 });
    /// assert_eq!(world.view_of(ada).map(|cell| cell.0), Some(0));
    /// # Ok(())
    /// # })
    /// ```
    pub fn view_of(&self, player: PlayerId) -> Option<CellIndex> {
        self.players.get(player).map(|player| player.view)
    }

    /// Sets the object that represents a player. Its client is informed.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// # let chest = example::spawn_chest(world)?;
    /// world.set_avatar(ada, Some(chest));
    /// assert_eq!(world.avatar_of(ada), Some(chest));
    /// # Ok(())
    /// # })
    /// ```
    pub fn set_avatar(&mut self, player: PlayerId, avatar: Option<ObjectId>) {
        if let Some(player) = self.players.get_mut(player).filter(|player| player.avatar != avatar) {
            player.avatar = avatar;
            player.is_dirty = true;
        }
    }

    /// The object that represents a player.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// if let Some(avatar) = world.avatar_of(ada) {
    ///     world.despawn(avatar);
    /// }
    /// assert_eq!(world.avatar_of(ada), None, "none was set");
    /// # Ok(())
    /// # })
    /// ```
    pub fn avatar_of(&self, player: PlayerId) -> Option<ObjectId> {
        self.players.get(player)?.avatar
    }

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
        &self.listing.state
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
        self.listing.players_max()
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
        self.listing.state.players_max = Some(players_max);
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
        self.listing.state.is_locked = is_locked;
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
        self.listing.state.is_unlisted = is_unlisted;
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
        self.listing.set_metadata(metadata)
    }

    /// Calls the application's backend when the tick ends. [`crate::Simulation::answer`] receives the answer, or the
    /// error, at most `timeout_ticks` (at least 1) ticks after that tick.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// // At most 2 s later there is an answer or an error.
    /// let call = world.call("reward", br#"{"winner": "ada"}"#, 2 * world.ticks_per_second())?;
    /// assert_eq!((call.0, world.call_count()), (1, 1));
    /// # Ok(())
    /// # })
    /// ```
    ///
    /// # Errors
    /// [`WorldError::NoBackend`], [`WorldError::CallTooLong`], [`WorldError::TooManyCalls`]
    pub fn call(&mut self, method: &str, data: &[u8], timeout_ticks: u32) -> Result<CallId, WorldError> {
        self.calls.add(method, data, timeout_ticks)
    }

    /// The number of calls without an answer.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// // One call at a time.
    /// if world.call_count() == 0 {
    ///     world.call("price", b"{}", world.ticks_per_second())?;
    /// }
    /// assert_eq!(world.call_count(), 1);
    /// # Ok(())
    /// # })
    /// ```
    pub fn call_count(&self) -> usize {
        self.calls.len()
    }

    /// Adds a player or a spectator; `None` if all numbers have been used.
    pub(crate) fn add_player(&mut self, format: SnapshotFormat, is_spectator: bool) -> Option<PlayerId> {
        self.players.add(format, if is_spectator { Role::Spectator } else { Role::Player })
    }

    /// Takes the next pending kick.
    pub(crate) fn take_kick(&mut self) -> Option<(PlayerId, Box<str>)> {
        self.removals.take_kick()
    }

    /// The reason for closing the room, if the game has closed it.
    pub(crate) fn closing(&self) -> Option<&str> {
        self.removals.closing()
    }

    /// Resets a player for a new client, which uses this form and has numbered its inputs up to `ack`. Returns whether the
    /// player is in the room.
    pub(crate) fn resume_player(&mut self, id: PlayerId, format: SnapshotFormat, ack: u32) -> bool {
        self.players.resume(id, format, ack)
    }

    /// Removes a player or a spectator; returns which it was. Its own objects lose their owner at the end of the tick.
    pub(crate) fn remove_player(&mut self, id: PlayerId) -> Option<Role> {
        let player = self.players.remove(id)?;
        self.removals.forget(id);
        for &slot in player.own.values() {
            self.objects.touch(slot);
        }
        Some(player.role)
    }

    /// Sets the room's settings, before anything else happens. The seed is already set.
    pub(crate) fn set_info(&mut self, info: RoomInfo) {
        debug_assert_eq!(info.seed, self.info.seed, "the seed of the generator");
        self.info = info;
    }

    /// Starts the next tick.
    pub(crate) fn advance(&mut self) {
        self.tick = self.tick.checked_add(1).unwrap_or(1);
    }

    pub(crate) fn change_listing(&mut self, change: &ListingChange) -> Result<(), WorldError> {
        self.listing.change(change)
    }

    pub(crate) fn calls_mut(&mut self) -> &mut Calls {
        &mut self.calls
    }

    pub(crate) fn player_table(&self) -> &Players {
        &self.players
    }

    pub(crate) fn players_mut(&mut self) -> &mut Players {
        &mut self.players
    }

    /// The events of this tick.
    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// Clears the events after they were sent.
    pub(crate) fn forget_events(&mut self) {
        self.events.clear();
    }

    /// Determines the changes of the tick.
    pub(crate) fn settle(&mut self) {
        self.objects.settle(self.tick, &mut self.players);
    }

    /// Writes every changed cell to `writer`.
    pub(crate) fn write_changes(&self, writer: &mut UpdateWriter) {
        self.objects.write_changes(writer);
    }

    /// Writes every cell that is not empty to `writer`.
    pub(crate) fn write_all(&self, writer: &mut UpdateWriter) {
        self.objects.write_all(writer);
    }

    /// A player's own objects, in the order of their numbers.
    pub(crate) fn own_of<'a>(&'a self, player: &'a Player) -> impl Iterator<Item = ObjectView<'a>> {
        self.objects.own_of(player)
    }

    /// Clears the changes after they were encoded. Later changes belong to the next tick.
    /// `keeps_states`: whether the next update may say which fields have changed since this one.
    pub(crate) fn forget_changes(&mut self, keeps_states: bool) {
        self.objects.forget_changes(keeps_states);
        for player in self.players.iter_mut() {
            (player.is_dirty, player.is_own_dirty) = (false, false);
        }
    }

    /// A hash of everything that the world's future depends on: equal at the same point of the same history.
    pub(crate) fn state_hash(&self) -> u64 {
        let word_position = self.generator.get_word_pos();
        let hasher = Hasher::new(0)
            .number(u64::from(self.tick))
            .number(self.info.seed)
            .number(word_position as u64)
            .number((word_position >> 64) as u64);
        let hasher = self.events.hash(self.players.hash(self.objects.hash(hasher)));
        let hasher = self.listing.state.hash(self.removals.hash(hasher));
        self.objects.past.hash(self.calls.hash(hasher)).finish()
    }

    /// Approximate memory in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.objects.memory_bytes()
            + self.players.memory_bytes()
            + self.events.memory_bytes()
            + self.calls.memory_bytes()
    }
}
