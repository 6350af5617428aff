//! The world that a simulation changes and that is replicated to clients.

mod cells;
mod events;
mod listed;
mod near;
mod past;
mod players;
mod removals;
mod save;
mod settle;
mod slots;

#[cfg(test)]
mod tests;

use std::fmt;

use dunlin_protocol::Encoding;
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};

use crate::{CellIndex, Grid, ListingState, Position, RoomInfo, RoomOptions, hash::Hasher};
use cells::Cells;
use listed::ListingLimits;
use past::Past;
use removals::PendingRemovals;
use slots::{Slot, Slots};

pub use near::Neighbour;
pub use past::{PastNeighbour, Rewound};

pub(crate) use {
    events::{Events, Target},
    players::{Player, Players, Role},
};

/// An object's number in its world; never 0, and never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub u32);

/// A player's number in its room, given in the order of joining; never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlayerId(pub u32);

/// Who is sent an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// Every player who sees its cell.
    Everyone,
    /// One player, wherever it looks. If it is not here when a tick ends, the object is sent to nobody from then on.
    Owner(PlayerId),
    /// No player receives the object.
    Nobody,
}

/// An object of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// In units from the corner of the map.
    pub position: Position,
    /// What it is, in the game's numbers.
    pub kind: u16,
    /// Who is sent it.
    pub visibility: Visibility,
    /// Whatever else its clients are to know of it.
    pub state: Vec<u8>,
}

/// What [`World::spawn`] makes an object of.
#[derive(Clone, Copy, Debug)]
pub struct NewObject<'a> {
    /// Where it is; brought inside the map.
    pub position: Position,
    /// What it is, in the game's numbers.
    pub kind: u16,
    /// Who is sent it.
    pub visibility: Visibility,
    /// Whatever else its clients are to know of it.
    pub state: &'a [u8],
}

/// Who is sent an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every player.
    All,
    /// Players whose view includes this cell at the end of the tick.
    Near(CellIndex),
    /// Only this player receives the event.
    Player(PlayerId),
}

/// Why the world is not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorldError {
    /// It holds as many objects as it may, or all numbers have been given.
    TooManyObjects,
    /// An object's state is longer than it may be.
    StateTooLong,
    /// There is no such object.
    NoSuchObject,
    /// There have been as many events in this tick as there may be.
    TooManyEvents,
    /// An event is not JSON, or longer than it may be; or its channel has no name, or one that is longer than that.
    BadEvent,
    /// The metadata is not JSON, or longer than it may be.
    BadMetadata,
}

/// A world: objects on a grid, players and their viewpoints, chance.
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
    /// Counts the updates that were made. What is touched in a round is looked at when it is settled.
    round: u64,
    /// Slots that were touched in this round; some may be free again.
    touched: Vec<u32>,
    /// The exclusive-or of what the objects add to the state hash, as of the last settlement.
    settled_hash: u64,
    past: Past,
}

impl World {
    /// An empty one at tick 0.
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
            round: 1,
            touched: Vec::new(),
            settled_hash: 0,
            past: Past::default(),
        }
    }

    /// What the room was opened with: its channel, the parameters of the simulation and the seed.
    pub fn info(&self) -> &RoomInfo {
        &self.info
    }

    /// The map.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// The number of the tick that is going on, from 1; 0 before the first.
    pub fn tick(&self) -> u32 {
        self.tick
    }

    /// Constant for the lifetime of the world.
    pub fn ticks_per_second(&self) -> u32 {
        self.ticks_per_second
    }

    /// A random number, all 64 bits of it.
    pub fn random(&mut self) -> u64 {
        self.generator.next_u64()
    }

    /// A random number below `bound`, which is not 0.
    pub fn random_below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.random()) * u128::from(bound)) >> 64) as u32
    }

    /// Adds an object.
    ///
    /// # Errors
    /// [`WorldError::TooManyObjects`], [`WorldError::StateTooLong`]
    pub fn spawn(&mut self, object: NewObject<'_>) -> Result<ObjectId, WorldError> {
        if self.slots.len() >= self.objects_max {
            return Err(WorldError::TooManyObjects);
        }
        if object.state.len() > self.state_bytes_max {
            return Err(WorldError::StateTooLong);
        }
        let position = self.grid.clamp(object.position);
        let cell = self.grid.cell_of(position);
        let slot = self.slots.make(NewObject { position, ..object }, cell).ok_or(WorldError::TooManyObjects)?;
        self.slots.at_mut(slot).place = self.cells.add(cell, slot);
        self.touch(slot);
        let id = self.slots.at(slot).id;
        self.past.remember(id, None);
        Ok(id)
    }

    /// Removes an object; returns whether there was one.
    pub fn despawn(&mut self, id: ObjectId) -> bool {
        let Some(slot) = self.slots.find(id) else { return false };
        self.past.remember(id, Some(self.slots.at(slot).object.position));
        self.unlink(slot);
        self.unshow(slot);
        self.slots.release(slot);
        true
    }

    /// `None` if the object does not exist or was despawned.
    pub fn object(&self, id: ObjectId) -> Option<&Object> {
        self.slots.find(id).map(|slot| &self.slots.at(slot).object)
    }

    /// Moves an object; a place outside is brought inside the map. Nothing happens if there is no such object.
    pub fn move_to(&mut self, id: ObjectId, position: Position) {
        let Some(slot) = self.slots.find(id) else { return };
        let position = self.grid.clamp(position);
        let Slot { object, cell, .. } = self.slots.at_mut(slot);
        if object.position == position {
            return;
        }
        self.past.remember(id, Some(object.position));
        object.position = position;
        let to = self.grid.cell_of(position);
        if *cell != to {
            self.unlink(slot);
            let place = self.cells.add(to, slot);
            let moved = self.slots.at_mut(slot);
            (moved.cell, moved.place) = (to, place);
        }
        self.touch(slot);
    }

    /// Gives an object a new state.
    ///
    /// # Errors
    /// [`WorldError::StateTooLong`], [`WorldError::NoSuchObject`]
    pub fn set_state(&mut self, id: ObjectId, state: &[u8]) -> Result<(), WorldError> {
        let slot = self.slots.find(id).ok_or(WorldError::NoSuchObject)?;
        if state.len() > self.state_bytes_max {
            return Err(WorldError::StateTooLong);
        }
        if self.slots.at(slot).object.state != state {
            self.slots.put_state(slot, state);
            self.touch(slot);
        }
        Ok(())
    }

    /// Sets which players receive an object. Does nothing if the object does not exist.
    pub fn set_visibility(&mut self, id: ObjectId, visibility: Visibility) {
        let Some(slot) = self.slots.find(id) else { return };
        let object = &mut self.slots.at_mut(slot).object;
        if object.visibility != visibility {
            object.visibility = visibility;
            self.touch(slot);
        }
    }

    /// The objects in a cell, in an order that follows from what happened before.
    pub fn objects_in(&self, cell: CellIndex) -> impl Iterator<Item = (ObjectId, &Object)> {
        self.cells.slots(cell).iter().map(|&slot| {
            let slot = self.slots.at(slot);
            (slot.id, &slot.object)
        })
    }

    /// All objects, likewise.
    pub fn objects(&self) -> impl Iterator<Item = (ObjectId, &Object)> {
        self.slots.live().map(|(_, slot)| (slot.id, &slot.object))
    }

    /// How many objects there are.
    pub fn object_count(&self) -> usize {
        self.slots.len()
    }

    /// The exclusive-or of [`crate::wire::object_hash`] over the objects of a cell that every player who sees it is sent, as
    /// of the last tick. 0 for a cell that is not of the map.
    pub fn cell_hash(&self, cell: CellIndex) -> u64 {
        self.cells.hash(cell)
    }

    /// The players, in the order in which they joined. Without spectators, and with those who are away.
    pub fn players(&self) -> impl Iterator<Item = PlayerId> {
        self.players.iter().filter(|player| player.role == Role::Player).map(|player| player.id)
    }

    /// How many players there are.
    pub fn player_count(&self) -> usize {
        self.players.len() - self.players.spectator_count()
    }

    /// Whether this is a player in the room.
    pub fn is_player(&self, player: PlayerId) -> bool {
        self.players.get(player).is_some_and(|player| player.role == Role::Player)
    }

    /// How many spectators there are.
    pub fn spectator_count(&self) -> usize {
        self.players.spectator_count()
    }

    /// Removes a player or a spectator at the end of the tick: [`crate::Simulation::leave`] or
    /// [`crate::Simulation::spectator_left`] is called, and its client is unsubscribed with the reason, which is cut at 120
    /// bytes. Nothing happens if it is not here.
    pub fn kick(&mut self, player: PlayerId, reason: &str) {
        if self.players.get(player).is_some() {
            self.removals.kick(player, reason);
        }
    }

    /// Ends the room after this tick: all clients are unsubscribed with the reason, which is cut at 120 bytes. A few more
    /// ticks may run before the room is gone.
    pub fn close(&mut self, reason: &str) {
        self.removals.close(reason);
    }

    /// Where the players are, in the order in which they joined: the position of a player's avatar, or its viewpoint if it has
    /// none.
    pub fn player_positions(&self) -> impl Iterator<Item = (PlayerId, Option<ObjectId>, Position)> {
        self.players.iter().filter(|player| player.role == Role::Player).map(|player| {
            let slot = player.avatar.and_then(|avatar| self.slots.find(avatar));
            let position = slot.map_or(player.viewpoint, |slot| self.slots.at(slot).object.position);
            (player.id, slot.and(player.avatar), position)
        })
    }

    /// Sets a player's viewpoint. Before the first call it is the map's corner.
    pub fn set_viewpoint(&mut self, player: PlayerId, position: Position) {
        let position = self.grid.clamp(position);
        self.players.look(player, position, self.grid.cell_of(position));
    }

    /// The cell that a player looks from.
    pub fn view_of(&self, player: PlayerId) -> Option<CellIndex> {
        self.players.get(player).map(|player| player.view)
    }

    /// Sets the object that represents a player. Its client is informed.
    pub fn set_avatar(&mut self, player: PlayerId, avatar: Option<ObjectId>) {
        if let Some(player) = self.players.get_mut(player).filter(|player| player.avatar != avatar) {
            player.avatar = avatar;
            player.is_news = true;
        }
    }

    /// The object that is a player's own.
    pub fn avatar_of(&self, player: PlayerId) -> Option<ObjectId> {
        self.players.get(player)?.avatar
    }

    /// Sends an event, which is a JSON document, to the players in `scope`: reliably, in order, recoverable.
    ///
    /// # Errors
    /// [`WorldError::TooManyEvents`], [`WorldError::BadEvent`]
    pub fn emit(&mut self, scope: Scope, event: &str) -> Result<(), WorldError> {
        self.events.add(Target::Players(scope), event)
    }

    /// Publishes `data`, which is a JSON document, into another channel, whose subscribers need not be players.
    ///
    /// # Errors
    /// [`WorldError::TooManyEvents`], [`WorldError::BadEvent`]
    pub fn publish(&mut self, channel: &str, data: &str) -> Result<(), WorldError> {
        self.events.add(Target::Channel(channel.into()), data)
    }

    /// Lets a player or a spectator in; `None` when all numbers have been given.
    pub(crate) fn add_player(&mut self, encoding: Encoding, is_spectator: bool) -> Option<PlayerId> {
        self.players.add(encoding, if is_spectator { Role::Spectator } else { Role::Player })
    }

    /// Takes out a kick that is not carried out yet.
    pub(crate) fn take_kick(&mut self) -> Option<(PlayerId, Box<str>)> {
        self.removals.take_kick()
    }

    /// The reason for which the room is to be closed, if it is.
    pub(crate) fn closing(&self) -> Option<&str> {
        self.removals.closing()
    }

    /// To the client of a player everything is new, in this encoding. Returns whether the player is here.
    pub(crate) fn resume_player(&mut self, id: PlayerId, encoding: Encoding) -> bool {
        self.players.resume(id, encoding)
    }

    /// Takes a player or a spectator out; returns which it was. What it alone was sent is nobody's when the tick ends.
    pub(crate) fn remove_player(&mut self, id: PlayerId) -> Option<Role> {
        let player = self.players.remove(id)?;
        self.removals.forget(id);
        for &slot in player.own.values() {
            self.touch(slot);
        }
        Some(player.role)
    }

    /// Sets what the room was opened with, before anything happens. The seed is known already.
    pub(crate) fn set_info(&mut self, info: RoomInfo) {
        debug_assert_eq!(info.seed, self.info.seed, "the seed of the generator");
        self.info = info;
    }

    /// The next tick begins.
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
        self.hash_past(self.listing.hash(hasher)).finish()
    }

    /// About how many bytes it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.slots.memory_bytes()
            + self.cells.memory_bytes()
            + self.players.memory_bytes()
            + self.events.memory_bytes()
            + self.past.memory_bytes()
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
        })
    }
}

impl std::error::Error for WorldError {}
