//! The test kit of games: runs a simulation with scripted players, without a server and without waiting.
//!
//! ```
//! use dunlin_games::{TreasureHunt, script::Script};
//!
//! let hunt = TreasureHunt::new(&serde_json::json!({"obstacles": 0})).expect("good parameters");
//! let mut script = Script::new(Box::new(hunt));
//! let ada = script.join(r#"{"name": "Ada"}"#);
//! let start = script.place(ada);
//! assert!(script.input(ada, &[0, 127, 0]), "the game understands this input");
//! script.ticks(60);
//! assert_ne!(script.place(ada), start);
//! ```

pub use dunlin_protocol::Encoding;
use dunlin_rooms::{
    Object, ObjectId, PlayerId, Position, Refusal, Room, RoomInfo, RoomOptions, Scoped, Simulation, TickOutcome,
    Visitor,
};
use serde_json::Value;

/// A room whose players do what a test says. The seed is always the same, so a test that passes once passes always.
///
/// Methods panic where a test cannot go on, for instance if a player is refused that should join.
pub struct Script {
    /// The room, for everything that has no method here.
    pub room: Room,
    input_number: u32,
}

/// An event and its receivers; `None` for all players.
pub type ScopedEvent = (Option<Vec<PlayerId>>, Value);

impl Script {
    /// A room with the default options.
    pub fn new(simulation: Box<dyn Simulation>) -> Self {
        Self::with(RoomOptions::default(), simulation)
    }

    /// A room with other options.
    ///
    /// ```
    /// use dunlin_games::{TreasureHunt, script::Script};
    /// use dunlin_rooms::RoomOptions;
    ///
    /// let hunt = TreasureHunt::new(&serde_json::Value::Null).expect("good parameters");
    /// let mut script = Script::with(RoomOptions { players_max: 1, ..RoomOptions::default() }, Box::new(hunt));
    /// script.join("");
    /// assert_eq!(script.try_join("").expect_err("a full room").code, 400);
    /// ```
    pub fn with(options: RoomOptions, simulation: Box<dyn Simulation>) -> Self {
        Self::with_info(options, RoomInfo { seed: 42, ..RoomInfo::default() }, simulation)
    }

    /// A room with a channel, parameters and a seed, which the game reads with [`World::info`](dunlin_rooms::World::info).
    ///
    /// ```
    /// use dunlin_games::{TreasureHunt, script::Script};
    /// use dunlin_rooms::{RoomInfo, RoomOptions};
    ///
    /// let hunt = TreasureHunt::new(&serde_json::Value::Null).expect("good parameters");
    /// let info = RoomInfo { channel: "hunt:1".into(), params: "{}".into(), seed: 7 };
    /// let script = Script::with_info(RoomOptions::default(), info, Box::new(hunt));
    /// assert_eq!(&*script.room.world().info().channel, "hunt:1");
    /// ```
    pub fn with_info(options: RoomOptions, info: RoomInfo, simulation: Box<dyn Simulation>) -> Self {
        Self { room: Room::open(options, info, simulation).expect("a possible map"), input_number: 0 }
    }

    /// A copy of the room: saves it, and restores it with another simulation. To test [`Simulation::save`], run both and
    /// compare [`Room::state_hash`].
    ///
    /// ```
    /// use dunlin_games::{TreasureHunt, script::Script};
    ///
    /// let hunt = || Box::new(TreasureHunt::new(&serde_json::Value::Null).expect("good parameters"));
    /// let mut script = Script::new(hunt());
    /// script.join("");
    /// script.ticks(100);
    /// let mut copy = script.restored(hunt());
    /// script.ticks(100);
    /// copy.ticks(100);
    /// assert_eq!(script.room.state_hash(), copy.room.state_hash());
    /// ```
    #[must_use]
    pub fn restored(&self, simulation: Box<dyn Simulation>) -> Self {
        let mut saved = Vec::new();
        self.room.save(&mut saved);
        let room = Room::restore(self.room.options().clone(), &saved, simulation).expect("restored");
        Self { room, input_number: self.input_number }
    }

    /// A player that joins with this data.
    ///
    /// # Errors
    /// The game's [`Refusal`].
    pub fn try_join(&mut self, data: &str) -> Result<PlayerId, Refusal> {
        self.join_as(&Visitor::of_user(""), data)
    }

    /// A player that joins as this visitor, for games that read its user or its token's info.
    ///
    /// # Errors
    /// The game's [`Refusal`].
    ///
    /// ```
    /// use dunlin_games::{TreasureHunt, script::Script};
    /// use dunlin_rooms::Visitor;
    ///
    /// let hunt = TreasureHunt::new(&serde_json::Value::Null).expect("good parameters");
    /// let mut script = Script::new(Box::new(hunt));
    /// script.join_as(&Visitor::of_user("ada"), "").expect("let in");
    /// ```
    pub fn join_as(&mut self, visitor: &Visitor<'_>, data: &str) -> Result<PlayerId, Refusal> {
        self.room.join(visitor, Encoding::Protobuf, data.as_bytes()).map(|joined| joined.player)
    }

    /// A player that joins with this data and is not refused.
    pub fn join(&mut self, data: &str) -> PlayerId {
        self.try_join(data).expect("let in")
    }

    /// A spectator with this data that is not refused.
    pub fn spectate(&mut self, data: &str) -> PlayerId {
        let visitor = Visitor { is_spectator: true, ..Visitor::default() };
        self.room.join(&visitor, Encoding::Protobuf, data.as_bytes()).expect("let in").player
    }

    /// The player's connection is lost and comes back.
    pub fn reconnect(&mut self, player: PlayerId) {
        self.away(player);
        self.back(player);
    }

    /// The player's connection is lost. The seat stays until [`Script::back`].
    ///
    /// ```
    /// use dunlin_games::{TreasureHunt, script::Script};
    ///
    /// let hunt = TreasureHunt::new(&serde_json::Value::Null).expect("good parameters");
    /// let mut script = Script::new(Box::new(hunt));
    /// let ada = script.join("");
    /// script.away(ada);
    /// script.ticks(10);
    /// script.back(ada);
    /// ```
    pub fn away(&mut self, player: PlayerId) {
        self.room.away(player);
    }

    /// The connection of a player who is away comes back.
    pub fn back(&mut self, player: PlayerId) {
        assert!(self.room.back(player, &Visitor::of_user(""), Encoding::Protobuf), "the player is not here");
    }

    /// A message of the backend, as by `room_send`.
    ///
    /// # Errors
    /// The game's [`Refusal`].
    pub fn message(&mut self, data: &[u8]) -> Result<Vec<u8>, Refusal> {
        self.room.message(data)
    }

    /// A player's input. Returns whether the game accepted it.
    pub fn input(&mut self, player: PlayerId, data: &[u8]) -> bool {
        self.input_number += 1;
        self.room.input(player, self.input_number, data)
    }

    /// Runs a tick.
    pub fn tick(&mut self) -> TickOutcome {
        self.room.tick(0)
    }

    /// Runs `ticks` ticks; returns all their events.
    pub fn ticks(&mut self, ticks: u32) -> Vec<ScopedEvent> {
        (0..ticks).flat_map(|_| events(self.tick())).collect()
    }

    /// The object that represents a player.
    pub fn avatar(&self, player: PlayerId) -> ObjectId {
        self.room.world().avatar_of(player).expect("an avatar")
    }

    /// An object that must exist.
    pub fn object(&self, id: ObjectId) -> &Object {
        self.room.world().object(id).expect("there")
    }

    /// Where a player's object is.
    pub fn place(&self, player: PlayerId) -> Position {
        self.object(self.avatar(player)).position
    }

    /// All objects of a kind.
    pub fn of_kind(&self, kind: u16) -> Vec<(ObjectId, Object)> {
        let objects = self.room.world().objects().filter(|(_, object)| object.kind == kind);
        objects.map(|(id, object)| (id, object.clone())).collect()
    }
}

/// The events of a tick, without its number.
pub fn events(outcome: TickOutcome) -> Vec<ScopedEvent> {
    let read = |scoped| match scoped {
        Scoped::Event { players, data } => {
            let mut document: Value = serde_json::from_slice(&data).expect("JSON");
            Some((players, document["event"].take()))
        }
        Scoped::Publication { .. } => None,
    };
    outcome.scoped.into_iter().filter_map(read).collect()
}

/// The publications of a tick in other channels: the channel and the data.
pub fn publications(outcome: TickOutcome) -> Vec<(Box<str>, Value)> {
    let read = |scoped| match scoped {
        Scoped::Publication { channel, data } => Some((channel, serde_json::from_slice(&data).expect("JSON"))),
        Scoped::Event { .. } => None,
    };
    outcome.scoped.into_iter().filter_map(read).collect()
}

/// A deterministic random number generator.
#[cfg(test)]
pub(crate) struct Dice(pub(crate) u64);

#[cfg(test)]
impl Dice {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % bound
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.below(256) as u8
    }
}
