//! What a simulation acts on, and what is replicated of it.

use std::fmt;

use crate::{CellIndex, Grid, Position};

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
    /// One player, wherever it looks.
    Owner(PlayerId),
    /// Nobody.
    Nobody,
}

/// An object of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Where it is.
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
    /// One player.
    Player(PlayerId),
}

/// Why the world is not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorldError {
    /// It holds as many objects as it may.
    TooManyObjects,
    /// An object's state is longer than it may be.
    StateTooLong,
    /// There is no such object.
    NoSuchObject,
    /// There have been as many events in this tick as there may be.
    TooManyEvents,
    /// An event is not JSON, or longer than it may be.
    BadEvent,
}

/// A world: objects on a grid, players and their viewpoints, chance.
pub struct World {
    grid: Grid,
}

impl World {
    /// The map.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// The number of the tick that is going on, from 1; 0 before the first.
    pub fn tick(&self) -> u32 {
        todo!()
    }

    /// Ticks in a second.
    pub fn ticks_per_second(&self) -> u32 {
        todo!()
    }

    /// A random number, all 64 bits of it.
    pub fn random(&mut self) -> u64 {
        todo!()
    }

    /// A random number below `bound`, which is not 0.
    pub fn random_below(&mut self, bound: u32) -> u32 {
        let _ = bound;
        todo!()
    }

    /// Adds an object.
    ///
    /// # Errors
    /// [`WorldError::TooManyObjects`], [`WorldError::StateTooLong`]
    pub fn spawn(&mut self, object: NewObject<'_>) -> Result<ObjectId, WorldError> {
        let _ = object;
        todo!()
    }

    /// Removes an object; returns whether there was one.
    pub fn despawn(&mut self, id: ObjectId) -> bool {
        let _ = id;
        todo!()
    }

    /// An object.
    pub fn object(&self, id: ObjectId) -> Option<&Object> {
        let _ = id;
        todo!()
    }

    /// Moves an object; a place outside is brought inside the map. Nothing happens if there is no such object.
    pub fn move_to(&mut self, id: ObjectId, position: Position) {
        let _ = (id, position);
        todo!()
    }

    /// Gives an object a new state.
    ///
    /// # Errors
    /// [`WorldError::StateTooLong`], [`WorldError::NoSuchObject`]
    pub fn set_state(&mut self, id: ObjectId, state: &[u8]) -> Result<(), WorldError> {
        let _ = (id, state);
        todo!()
    }

    /// Says who is sent an object from now on. Nothing happens if there is no such object.
    pub fn set_visibility(&mut self, id: ObjectId, visibility: Visibility) {
        let _ = (id, visibility);
        todo!()
    }

    /// The objects in a cell, in an order that follows from what happened before.
    pub fn objects_in(&self, cell: CellIndex) -> impl Iterator<Item = (ObjectId, &Object)> {
        let _ = cell;
        std::iter::empty()
    }

    /// All objects, likewise.
    pub fn objects(&self) -> impl Iterator<Item = (ObjectId, &Object)> {
        std::iter::empty()
    }

    /// How many objects there are.
    pub fn object_count(&self) -> usize {
        todo!()
    }

    /// The players, in the order in which they joined.
    pub fn players(&self) -> impl Iterator<Item = PlayerId> {
        std::iter::empty()
    }

    /// How many players there are.
    pub fn player_count(&self) -> usize {
        todo!()
    }

    /// Says where a player looks from. Until then it looks from the map's corner.
    pub fn set_viewpoint(&mut self, player: PlayerId, position: Position) {
        let _ = (player, position);
        todo!()
    }

    /// Says which object is a player's own. Its client is told.
    pub fn set_avatar(&mut self, player: PlayerId, avatar: Option<ObjectId>) {
        let _ = (player, avatar);
        todo!()
    }

    /// Sends an event, which is a JSON document, to the players in `scope`: reliably, in order, recoverable.
    ///
    /// # Errors
    /// [`WorldError::TooManyEvents`], [`WorldError::BadEvent`]
    pub fn emit(&mut self, scope: Scope, event: &str) -> Result<(), WorldError> {
        let _ = (scope, event);
        todo!()
    }

    /// Publishes `data`, which is a JSON document, into another channel, whose subscribers need not be players.
    ///
    /// # Errors
    /// [`WorldError::TooManyEvents`], [`WorldError::BadEvent`]
    pub fn publish(&mut self, channel: &str, data: &str) -> Result<(), WorldError> {
        let _ = (channel, data);
        todo!()
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
        })
    }
}

impl std::error::Error for WorldError {}
