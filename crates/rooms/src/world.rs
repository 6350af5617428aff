//! The world that a simulation changes and that is replicated to clients.

mod calls;
mod cells;
mod events;
mod listed;
mod near;
mod objects;
mod past;
mod players;
mod removals;
mod save;
mod settle;
mod slots;
mod views;

#[cfg(test)]
mod tests;

use std::fmt;

use dunlin_protocol::Encoding;
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};

use crate::{CellIndex, Grid, ListingState, Position, RoomInfo, RoomOptions, hash::Hasher};
use calls::Calls;
use cells::Cells;
use listed::ListingLimits;
use past::Past;
use removals::PendingRemovals;
use slots::{Slot, Slots};

pub use calls::{CallError, CallId, CallsOfTick, GameCall};
pub use near::Neighbour;
pub use past::{PastNeighbour, Rewound};

pub(crate) use {
    events::{Events, Target},
    players::{Player, Players, Role},
};

/// An object's number in its world; never 0, and never reused.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
/// # example::in_world(|world, ada| {
/// let chest = example::spawn_chest(world)?;
/// assert_eq!(chest.0, 1, "the first object of the world");
/// # Ok(())
/// # })
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub u32);

/// A player's number in its room, assigned in the order of joining and never reused.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
/// # example::in_world(|world, ada| {
/// assert_eq!(ada.0, 1, "the first player of the room");
/// # Ok(())
/// # })
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlayerId(pub u32);

/// The players that receive an object.
///
/// ```
/// use dunlin_rooms::{NewObject, Position, Visibility};
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
/// # example::in_world(|world, ada| {
/// // A clue that other clients never receive, so that they cannot show it.
/// let position = Position { x: 300, y: 300 };
/// world.spawn(NewObject { position, kind: 9, visibility: Visibility::Owner(ada), state: b"dig here" })?;
/// # Ok(())
/// # })
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// Every player whose view contains its cell.
    Everyone,
    /// One player, regardless of its view. If the player has left at the end of a tick, this becomes `Nobody`.
    Owner(PlayerId),
    /// No player receives the object.
    Nobody,
}

/// An object of a world.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
/// # example::in_world(|world, ada| {
/// let chest = example::spawn_chest(world)?;
/// let object = world.object(chest).expect("it was just made");
/// assert_eq!((object.kind, object.state.as_slice()), (7, &b"full"[..]));
/// # Ok(())
/// # })
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// In units from the corner of the map.
    pub position: Position,
    /// The game's number for the kind of the object.
    pub kind: u16,
    /// The players that receive it.
    pub visibility: Visibility,
    /// The game's other data for clients.
    pub state: Vec<u8>,
}

/// The parameters of [`World::spawn`].
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::{NewObject, Position, Visibility};
///
/// /// A star that all players see.
/// fn star(position: Position) -> NewObject<'static> {
///     NewObject { position, kind: 2, visibility: Visibility::Everyone, state: &[] }
/// }
/// assert_eq!(star(Position::default()).kind, 2);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NewObject<'a> {
    /// The object's position; limited to the map.
    pub position: Position,
    /// The game's number for the kind of the object.
    pub kind: u16,
    /// The players that receive it.
    pub visibility: Visibility,
    /// The game's other data for clients.
    pub state: &'a [u8],
}

/// The players that receive an event.
///
/// ```
/// use dunlin_rooms::{Position, Scope};
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
/// # example::in_world(|world, ada| {
/// let cell = world.grid().cell_of(Position { x: 300, y: 300 });
/// world.emit(Scope::Near(cell), r#"{"type": "explosion"}"#)?;
/// world.emit(Scope::Player(ada), r#"{"type": "ammunition", "left": 3}"#)?;
/// # Ok(())
/// # })
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every player.
    All,
    /// Players whose view includes this cell at the end of the tick.
    Near(CellIndex),
    /// Only this player receives the event.
    Player(PlayerId),
}

/// Why a change of the world is refused.
///
/// ```
/// use dunlin_rooms::{NewObject, Position, Visibility, WorldError};
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
/// # example::in_world(|world, ada| {
/// let state = [0; 2_000];
/// let object = NewObject { position: Position::default(), kind: 1, visibility: Visibility::Nobody, state: &state };
/// assert_eq!(world.spawn(object), Err(WorldError::StateTooLong));
/// # Ok(())
/// # })
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorldError {
    /// The maximum number of objects is reached, or all numbers have been used.
    TooManyObjects,
    /// An object's state is longer than the limit.
    StateTooLong,
    /// There is no such object.
    NoSuchObject,
    /// The maximum number of events in this tick is reached.
    TooManyEvents,
    /// An event is not JSON or longer than the limit, or its channel's name is empty or longer than the limit.
    BadEvent,
    /// The metadata is not JSON, or longer than the limit.
    BadMetadata,
    /// The maximum number of calls (`room.calls_limit`) waits for answers, or all numbers have been used.
    TooManyCalls,
    /// The method and the data of a call are longer than `room.call_size_limit`.
    CallTooLong,
    /// The room has no backend to call: `room.call_proxy_enabled` is off.
    NoBackend,
}

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
    grid: Grid,
    info: RoomInfo,
    ticks_per_second: u32,
    objects_max: usize,
    state_bytes_max: usize,
    tick: u32,
    generator: ChaCha8Rng,
    slots: Slots,
    cells: Cells,
    players: Players,
    events: Events,
    removals: PendingRemovals,
    listing: ListingState,
    listing_limits: ListingLimits,
    calls: Calls,
    /// Counts the updates. Objects touched in a round are processed when the round is settled.
    round: u64,
    /// Slots touched in this round; some may be free again.
    touched: Vec<u32>,
    /// The exclusive-or of the objects' contributions to the state hash, as of the last settlement.
    settled_hash: u64,
    past: Past,
}

impl World {
    /// An empty world at tick 0.
    pub(crate) fn new(grid: Grid, options: &RoomOptions, seed: u64) -> Self {
        Self {
            cells: Cells::new(grid.len()),
            grid,
            info: RoomInfo { seed, ..RoomInfo::default() },
            ticks_per_second: options.ticks_per_second,
            objects_max: options.objects_max,
            state_bytes_max: options.state_bytes_max,
            tick: 0,
            generator: ChaCha8Rng::seed_from_u64(seed),
            slots: Slots::new(),
            players: Players::default(),
            events: Events::new(options.events_per_tick_max, options.event_bytes_max),
            removals: PendingRemovals::default(),
            listing: ListingState::default(),
            listing_limits: ListingLimits::of(options),
            calls: Calls::new(options),
            round: 1,
            touched: Vec::new(),
            settled_hash: 0,
            past: Past::default(),
        }
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
        &self.grid
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

    /// Adds a player or a spectator; `None` if all numbers have been used.
    pub(crate) fn add_player(&mut self, encoding: Encoding, is_spectator: bool) -> Option<PlayerId> {
        self.players.add(encoding, if is_spectator { Role::Spectator } else { Role::Player })
    }

    /// Takes the next pending kick.
    pub(crate) fn take_kick(&mut self) -> Option<(PlayerId, Box<str>)> {
        self.removals.take_kick()
    }

    /// The reason for closing the room, if the game has closed it.
    pub(crate) fn closing(&self) -> Option<&str> {
        self.removals.closing()
    }

    /// Resets a player for a new client, which uses this encoding. Returns whether the player is in the room.
    pub(crate) fn resume_player(&mut self, id: PlayerId, encoding: Encoding) -> bool {
        self.players.resume(id, encoding)
    }

    /// Removes a player or a spectator; returns which it was. Its own objects lose their owner at the end of the tick.
    pub(crate) fn remove_player(&mut self, id: PlayerId) -> Option<Role> {
        let player = self.players.remove(id)?;
        self.removals.forget(id);
        for &slot in player.own.values() {
            self.touch(slot);
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

    /// A hash of everything that the world's future depends on: equal at the same point of the same history.
    pub(crate) fn state_hash(&self) -> u64 {
        let unsettled = self.touched.iter().fold(0, |hash, &index| {
            let slot = self.slots.at(index);
            hash ^ if slot.is_live() { slot.state_hash ^ slot.hash_state(index, slot.hash_object()) } else { 0 }
        });
        let word_position = self.generator.get_word_pos();
        let hasher = Hasher::new(0)
            .number(u64::from(self.tick))
            .number(self.info.seed)
            .number(word_position as u64)
            .number((word_position >> 64) as u64)
            .number(self.settled_hash ^ unsettled)
            .number(self.cells.order_hash())
            .number(self.slots.free_hash())
            .number(self.slots.slots.len() as u64)
            .number(u64::from(self.slots.last_id));
        let hasher = self.removals.hash(self.events.hash(self.players.hash(hasher)));
        self.hash_past(self.calls.hash(self.listing.hash(hasher))).finish()
    }

    /// Approximate memory in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.slots.memory_bytes()
            + self.cells.memory_bytes()
            + self.players.memory_bytes()
            + self.events.memory_bytes()
            + self.past.memory_bytes()
            + self.calls.memory_bytes()
            + self.touched.capacity() * size_of::<u32>()
    }
}

impl fmt::Display for WorldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooManyObjects => "the world holds as many objects as it may",
            Self::StateTooLong => "an object's state is longer than it may be",
            Self::NoSuchObject => "there is no such object",
            Self::TooManyEvents => "there have been as many events in this tick as there may be",
            Self::BadEvent => "an event is not JSON, or longer than it may be",
            Self::BadMetadata => "the metadata is not JSON, or longer than room.metadata_size_limit",
            Self::TooManyCalls => "as many calls wait for their answers as room.calls_limit allows",
            Self::CallTooLong => "a call is longer than room.call_size_limit",
            Self::NoBackend => "the room has no backend to call: room.call_proxy_enabled is off",
        })
    }
}

impl std::error::Error for WorldError {}
