//! Runs a simulation from a script, for tests.

use dunlin_protocol::Encoding;
use dunlin_rooms::{
    Object, ObjectId, PlayerId, Position, Refusal, Room, RoomOptions, Scoped, Simulation, TickOutcome, Visitor,
};
use serde_json::Value;

/// A room, and the events that its players received.
pub(crate) struct Script {
    pub(crate) room: Room,
    input_number: u32,
}

/// An event and its recipients; `None` for all players.
pub(crate) type ScopedEvent = (Option<Vec<PlayerId>>, Value);

impl Script {
    pub(crate) fn new(simulation: Box<dyn Simulation>) -> Self {
        Self::with(RoomOptions::default(), simulation)
    }

    pub(crate) fn with(options: RoomOptions, simulation: Box<dyn Simulation>) -> Self {
        Self { room: Room::new(options, 42, simulation).expect("a possible map"), input_number: 0 }
    }

    /// Restores this room's saved state with another simulation.
    pub(crate) fn restored(&self, simulation: Box<dyn Simulation>) -> Self {
        let mut saved = Vec::new();
        self.room.save(&mut saved);
        let room = Room::restore(RoomOptions::default(), &saved, simulation).expect("restored");
        Self { room, input_number: self.input_number }
    }

    pub(crate) fn try_join(&mut self, data: &str) -> Result<PlayerId, Refusal> {
        let joined = self.room.join(&Visitor::of_user(""), Encoding::Protobuf, data.as_bytes());
        joined.map(|joined| joined.player)
    }

    pub(crate) fn join(&mut self, data: &str) -> PlayerId {
        self.try_join(data).expect("let in")
    }

    pub(crate) fn input(&mut self, player: PlayerId, data: &[u8]) -> bool {
        self.input_number += 1;
        self.room.input(player, self.input_number, data)
    }

    pub(crate) fn tick(&mut self) -> TickOutcome {
        self.room.tick(0)
    }

    /// Runs `ticks` ticks; returns all their events.
    pub(crate) fn ticks(&mut self, ticks: u32) -> Vec<ScopedEvent> {
        (0..ticks).flat_map(|_| events(self.tick())).collect()
    }

    pub(crate) fn avatar(&self, player: PlayerId) -> ObjectId {
        self.room.world().avatar_of(player).expect("an avatar")
    }

    pub(crate) fn object(&self, id: ObjectId) -> &Object {
        self.room.world().object(id).expect("there")
    }

    pub(crate) fn place(&self, player: PlayerId) -> Position {
        self.object(self.avatar(player)).position
    }

    pub(crate) fn of_kind(&self, kind: u16) -> Vec<(ObjectId, Object)> {
        let objects = self.room.world().objects().filter(|(_, object)| object.kind == kind);
        objects.map(|(id, object)| (id, object.clone())).collect()
    }
}

/// The events of a tick, without its number.
pub(crate) fn events(outcome: TickOutcome) -> Vec<ScopedEvent> {
    let read = |scoped| match scoped {
        Scoped::Event { players, data } => {
            let mut document: Value = serde_json::from_slice(&data).expect("JSON");
            Some((players, document["event"].take()))
        }
        Scoped::Publication { .. } => None,
    };
    outcome.scoped.into_iter().filter_map(read).collect()
}

pub(crate) fn publications(outcome: TickOutcome) -> Vec<(Box<str>, Value)> {
    let read = |scoped| match scoped {
        Scoped::Publication { channel, data } => Some((channel, serde_json::from_slice(&data).expect("JSON"))),
        Scoped::Event { .. } => None,
    };
    outcome.scoped.into_iter().filter_map(read).collect()
}

/// A deterministic random number generator.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % bound
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.below(256) as u8
    }
}
