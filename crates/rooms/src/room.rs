//! A room: a simulation, its world, its players, one tick at a time.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    CellIndex, EncodingSet, Grid, GridError, PlayerId, Refusal, RestoreError, Simulation, TickUpdate, Visitor,
};

/// What an operator decides about a room. Bounds of the world are bounds of each room's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomOptions {
    /// Ticks in a second, 1 to 240.
    pub ticks_per_second: u32,
    /// Objects in the world.
    pub objects_max: usize,
    /// Bytes of one object's state.
    pub state_bytes_max: usize,
    /// Players in the room; one more is refused with code 400.
    pub players_max: usize,
    /// Events and publications of one tick.
    pub events_per_tick_max: usize,
    /// Bytes of one event or publication.
    pub event_bytes_max: usize,
}

impl Default for RoomOptions {
    fn default() -> Self {
        Self {
            ticks_per_second: 60,
            objects_max: 100_000,
            state_bytes_max: 1_024,
            players_max: 10_000,
            events_per_tick_max: 1_024,
            event_bytes_max: 16_384,
        }
    }
}

/// A room.
pub struct Room {
    _todo: (),
}

/// A player has joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Who it is from now on.
    pub player: PlayerId,
}

/// What is new about a player in a tick, for the header of its frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlayerChange {
    /// Who.
    pub player: PlayerId,
    /// The cell that its viewpoint is in.
    pub view: CellIndex,
    /// The number of the last input that was applied; 0 before the first.
    pub ack: u32,
    /// Its own object; 0 for none.
    pub avatar: u32,
    /// All objects that it alone is sent, encoded by [`crate::wire`] for the player's encoding, if they changed.
    pub own: Option<Bytes>,
}

/// Something that leaves a room reliably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scoped {
    /// An event for some players: `None` for all, otherwise in ascending order.
    Event {
        /// For whom.
        players: Option<Vec<PlayerId>>,
        /// The JSON document that goes into the publication: tick and event.
        data: Bytes,
    },
    /// A publication in another channel.
    Publication {
        /// The channel.
        channel: Box<str>,
        /// The JSON document.
        data: Bytes,
    },
}

/// What a tick led to.
#[derive(Debug)]
pub struct TickOutcome {
    /// What changed in the world.
    pub update: Arc<TickUpdate>,
    /// What changed about players; who has just joined is always in it.
    pub players: Vec<PlayerChange>,
    /// Events and publications, in the order in which the simulation sent them.
    pub scoped: Vec<Scoped>,
}

impl Room {
    /// A room at tick 0.
    ///
    /// # Errors
    /// [`GridError`] if the simulation's map is not possible.
    pub fn new(options: RoomOptions, seed: u64, simulation: Box<dyn Simulation>) -> Result<Self, GridError> {
        let _ = (options, seed, simulation);
        todo!()
    }

    /// A room that goes on from what [`Room::save`] wrote.
    ///
    /// # Errors
    /// [`RestoreError`]
    pub fn restore(options: RoomOptions, saved: &[u8], simulation: Box<dyn Simulation>) -> Result<Self, RestoreError> {
        let _ = (options, saved, simulation);
        todo!()
    }

    /// Appends everything that the room's future depends on.
    pub fn save(&self, out: &mut Vec<u8>) {
        let _ = out;
        todo!()
    }

    /// The map.
    pub fn grid(&self) -> &Grid {
        todo!()
    }

    /// Lets a player in whose frames are written in `encoding`.
    ///
    /// # Errors
    /// The game's [`Refusal`], or 400 for a full room.
    pub fn join(
        &mut self,
        visitor: &Visitor<'_>,
        encoding: dunlin_protocol::Encoding,
        data: &[u8],
    ) -> Result<Joined, Refusal> {
        let _ = (visitor, encoding, data);
        todo!()
    }

    /// Lets a player go. Nothing happens if it is not here.
    pub fn leave(&mut self, player: PlayerId) {
        let _ = player;
        todo!()
    }

    /// Applies a player's input and acknowledges `number`. Returns whether the game could make sense of it; an input of
    /// somebody who is not here is none.
    pub fn input(&mut self, player: PlayerId, number: u32, data: &[u8]) -> bool {
        let _ = (player, number, data);
        todo!()
    }

    /// One step. `time_us` is the Unix time that clients are told; the world does not depend on it. The update is encoded
    /// for the encodings of the players who are here.
    pub fn tick(&mut self, time_us: u64) -> TickOutcome {
        let _ = time_us;
        todo!()
    }

    /// The whole world as of the last tick, for a shard that has none of it yet, or not in all of `encodings`.
    pub fn keyframe(&self, encodings: EncodingSet) -> Arc<TickUpdate> {
        let _ = encodings;
        todo!()
    }

    /// The encodings of the players who are here.
    pub fn encodings(&self) -> EncodingSet {
        todo!()
    }

    /// A hash of everything that the room's future depends on.
    pub fn state_hash(&self) -> u64 {
        todo!()
    }

    /// How many players there are.
    pub fn player_count(&self) -> usize {
        todo!()
    }

    /// How many objects there are.
    pub fn object_count(&self) -> usize {
        todo!()
    }

    /// The last tick.
    pub fn tick_number(&self) -> u32 {
        todo!()
    }

    /// About how many bytes the room's world takes.
    pub fn world_bytes(&self) -> usize {
        todo!()
    }
}
