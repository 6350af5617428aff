//! The test kit of games: runs a simulation with scripted players, without a server and without waiting.

pub use dunlin_protocol::Encoding;
use dunlin_rooms::{
    CallError, CallId, Migration, MigrationError, Object, ObjectId, PlayerId, Position, Refusal, Room, RoomInfo,
    RoomOptions, Scoped, Simulation, TickOutcome, Visitor, World,
};
use serde_json::Value;

/// A room whose players a test controls. The seed is constant, so tests are deterministic.
///
/// Methods panic if the test cannot continue, for instance if a join is unexpectedly refused.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
/// use dunlin_game::testing::Script;
///
/// let mut script = Script::new(game());
/// let ada = script.join(r#"{"name": "Ada"}"#);
/// let start = script.place(ada);
/// assert!(script.input(ada, &[0, 127, 0]), "the game understands this input: run to the right");
/// script.ticks(60);
/// assert_ne!(script.place(ada), start);
/// ```
pub struct Script {
    /// The room, for everything that has no method here.
    pub room: Room,
    input_number: u32,
}

/// An event and its receivers; `None` for all players.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
/// use dunlin_game::testing::{ScopedEvent, Script};
///
/// /// What everybody is sent.
/// fn for_all(events: &[ScopedEvent]) -> Vec<&serde_json::Value> {
///     events.iter().filter(|(receivers, _)| receivers.is_none()).map(|(_, event)| event).collect()
/// }
///
/// let mut script = Script::new(game());
/// script.join("");
/// assert_eq!(for_all(&script.ticks(1)).len(), 1, "the scoreboard; the welcome is for the player alone");
/// ```
pub type ScopedEvent = (Option<Vec<PlayerId>>, Value);

impl Script {
    /// A room with the default options.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::testing::Script;
    ///
    /// let script = Script::new(game());
    /// assert_eq!((script.tick_number(), script.world().ticks_per_second()), (0, 60));
    /// ```
    pub fn new(simulation: Box<dyn Simulation>) -> Self {
        Self::with(RoomOptions::default(), simulation)
    }

    /// A room with other options.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::testing::{RoomOptions, Script};
    ///
    /// let mut script = Script::with(RoomOptions { players_max: 1, ..RoomOptions::default() }, game());
    /// script.join("");
    /// assert_eq!(script.try_join("").expect_err("a full room").code, 400);
    /// ```
    pub fn with(options: RoomOptions, simulation: Box<dyn Simulation>) -> Self {
        Self::with_info(options, RoomInfo { seed: 42, ..RoomInfo::default() }, simulation)
    }

    /// A room with a channel, parameters and a seed, which the game reads with
    /// [`World::info`](dunlin_rooms::World::info).
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::{RoomInfo, testing::{RoomOptions, Script}};
    ///
    /// let info = RoomInfo { channel: "duels:1".into(), params: "{}".into(), seed: 7 };
    /// let script = Script::with_info(RoomOptions::default(), info, game());
    /// assert_eq!(&*script.world().info().channel, "duels:1");
    /// ```
    pub fn with_info(options: RoomOptions, info: RoomInfo, simulation: Box<dyn Simulation>) -> Self {
        let mut room = Room::open(options, info, simulation).expect("a possible map");
        assert_eq!(room.world().limited_values(), 0, "a value of the new world is outside of the range of its field");
        room.be_strict();
        Self { room, input_number: 0 }
    }

    /// A copy of the room: saves it, and restores it with another simulation. To test [`Simulation::save`], run both
    /// and compare [`Script::state_hash`].
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::testing::Script;
    ///
    /// let mut script = Script::new(game());
    /// script.join("");
    /// script.ticks(100);
    /// let mut copy = script.restored(game());
    /// script.ticks(100);
    /// copy.ticks(100);
    /// assert_eq!(script.state_hash(), copy.state_hash());
    /// ```
    #[must_use]
    pub fn restored(&self, simulation: Box<dyn Simulation>) -> Self {
        let mut saved = Vec::new();
        self.room.save(&mut saved);
        let mut room = Room::restore(self.room.options().clone(), &saved, simulation).expect("restored");
        room.be_strict();
        Self { room, input_number: self.input_number }
    }

    /// The room as it continues after an update of the game: `simulation` is the new version, and takes over what this one
    /// saves. States whose fields were only added or widened, or removed in a higher version, are converted before.
    ///
    /// # Errors
    /// [`MigrationError`]
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::testing::Script;
    ///
    /// let mut script = Script::new(game());
    /// let ada = script.join("");
    /// let updated = script.migrated(game()).expect("the same version");
    /// assert_eq!(updated.place(ada), script.place(ada));
    /// ```
    pub fn migrated(&self, simulation: Box<dyn Simulation>) -> Result<Self, MigrationError> {
        let mut saved = Vec::new();
        self.room.save(&mut saved);
        let (params, version) = (&*self.room.world().info().params, self.room.game_version());
        let migration = Migration {
            version,
            schema: self.room.schema(),
            ticks_per_second: self.room.options().ticks_per_second,
            state_hash: self.room.state_hash(),
            old_params: params,
            params,
            is_for_game: simulation.version() != version,
        };
        let mut room = Room::migrate(self.room.options().clone(), &saved, simulation, &migration)?.room;
        room.be_strict();
        Ok(Self { room, input_number: self.input_number })
    }

    /// Joins a player with this data.
    ///
    /// # Errors
    /// The game's [`Refusal`].
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::testing::Script;
    ///
    /// let mut script = Script::new(game());
    /// assert_eq!(script.try_join(r#"{"name": ""}"#).expect_err("an empty name").code, 400);
    /// ```
    pub fn try_join(&mut self, data: &str) -> Result<PlayerId, Refusal> {
        self.join_as(&Visitor::of_user(""), data)
    }

    /// Joins a player as this visitor, for games that read its user or its token's info.
    ///
    /// # Errors
    /// The game's [`Refusal`].
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::{Visitor, testing::Script};
    ///
    /// let mut script = Script::new(game());
    /// let visitor = Visitor { info: br#"{"name": "Ada"}"#, ..Visitor::of_user("7") };
    /// let ada = script.join_as(&visitor, "").expect("let in");
    /// assert!(script.world().is_player(ada));
    /// ```
    pub fn join_as(&mut self, visitor: &Visitor<'_>, data: &str) -> Result<PlayerId, Refusal> {
        self.room.join(visitor, Encoding::Protobuf, data.as_bytes()).map(|joined| joined.player)
    }

    /// Joins a player with this data. Panics if the game refuses it.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::testing::Script;
    ///
    /// let mut script = Script::new(game());
    /// let ada = script.join(r#"{"name": "Ada"}"#);
    /// assert!(script.world().is_player(ada));
    /// ```
    #[track_caller]
    pub fn join(&mut self, data: &str) -> PlayerId {
        self.try_join(data).expect("the game refused the player")
    }

    /// Joins a spectator with this data. Panics if the game refuses it.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::testing::Script;
    ///
    /// let mut script = Script::new(game());
    /// script.spectate("");
    /// assert_eq!((script.world().player_count(), script.world().spectator_count()), (0, 1));
    /// ```
    #[track_caller]
    pub fn spectate(&mut self, data: &str) -> PlayerId {
        let visitor = Visitor { is_spectator: true, ..Visitor::default() };
        self.room.join(&visitor, Encoding::Protobuf, data.as_bytes()).expect("the game refused the spectator").player
    }

    /// Loses and restores a player's connection.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::testing::Script;
    ///
    /// let mut script = Script::new(game());
    /// let ada = script.join("");
    /// let avatar = script.avatar(ada);
    /// script.reconnect(ada);
    /// assert_eq!(script.avatar(ada), avatar, "the seat is the same");
    /// ```
    #[track_caller]
    pub fn reconnect(&mut self, player: PlayerId) {
        self.away(player);
        self.back(player);
    }

    /// Loses a player's connection. The seat stays until [`Script::back`].
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::testing::Script;
    ///
    /// let mut script = Script::new(game());
    /// let ada = script.join("");
    /// assert!(script.input(ada, &[0, 127, 0]), "runs to the right");
    /// script.away(ada);
    /// let place = script.place(ada);
    /// script.ticks(10);
    /// assert_eq!(script.place(ada), place, "it stands while its player is away");
    /// ```
    pub fn away(&mut self, player: PlayerId) {
        self.room.away(player);
    }

    /// Restores the connection of a player who is away.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::testing::Script;
    ///
    /// let mut script = Script::new(game());
    /// let ada = script.join("");
    /// script.away(ada);
    /// script.ticks(10);
    /// script.back(ada);
    /// assert!(script.input(ada, &[0, 127, 0]));
    /// ```
    #[track_caller]
    pub fn back(&mut self, player: PlayerId) {
        self.back_as(player, &Visitor::of_user(""));
    }

    /// The connection of a player who is away comes back, with this user and this token's info.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::{Visitor, testing::Script};
    ///
    /// let mut script = Script::new(game());
    /// let ada = script.join("");
    /// script.away(ada);
    /// script.back_as(ada, &Visitor { info: br#"{"name": "Ada"}"#, ..Visitor::of_user("7") });
    /// assert!(script.input(ada, &[0, 127, 0]));
    /// ```
    #[track_caller]
    pub fn back_as(&mut self, player: PlayerId, visitor: &Visitor<'_>) {
        assert!(self.room.back(player, visitor, Encoding::Protobuf), "the player is not in the room");
    }

    /// Sends a message of the backend to the game, as `room_send` does. Returns the game's answer.
    ///
    /// # Errors
    /// The game's [`Refusal`].
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::testing::Script;
    ///
    /// let mut script = Script::new(game());
    /// let answer = script.message(br#"{"score_limit": 3}"#).expect("the game knows this message");
    /// assert!(answer.starts_with(b"{"));
    /// assert_eq!(script.message(b"?").expect_err("an unknown one").code, 460);
    /// ```
    pub fn message(&mut self, data: &[u8]) -> Result<Vec<u8>, Refusal> {
        self.room.message(data)
    }

    /// Passes a player's input to the game. Returns whether the game accepted it.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::testing::Script;
    ///
    /// let mut script = Script::new(game());
    /// let ada = script.join("");
    /// assert!(script.input(ada, &[0, 127, 0]));
    /// assert!(!script.input(ada, &[99]), "the game does not know this input");
    /// ```
    pub fn input(&mut self, player: PlayerId, data: &[u8]) -> bool {
        self.input_number += 1;
        self.room.input(player, self.input_number, data)
    }

    /// Removes a player from the room.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::testing::Script;
    ///
    /// let mut script = Script::new(game());
    /// let ada = script.join("");
    /// script.leave(ada);
    /// assert!(!script.world().is_player(ada));
    /// ```
    pub fn leave(&mut self, player: PlayerId) {
        self.room.leave(player);
    }

    /// Passes the backend's answer to a call, or the reason for its absence, to the game. Returns whether the game was
    /// waiting for it.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::{CallError, CallId, testing::Script};
    ///
    /// let mut script = Script::new(game());
    /// for call in script.tick().calls.sent {
    ///     assert!(script.answer(call.id, Ok(b"{}")));
    /// }
    /// assert!(!script.answer(CallId(7), Err(CallError::Timeout)), "the game has made no such call");
    /// ```
    pub fn answer(&mut self, call: CallId, outcome: Result<&[u8], CallError>) -> bool {
        self.room.answer(call, outcome)
    }

    /// Runs a tick.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::testing::Script;
    ///
    /// let mut script = Script::new(game());
    /// let outcome = script.tick();
    /// assert!(outcome.removals.kicked.is_empty());
    /// ```
    pub fn tick(&mut self) -> TickOutcome {
        self.room.tick(0)
    }

    /// Runs `ticks` ticks; returns all their events.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::testing::Script;
    ///
    /// let mut script = Script::new(game());
    /// script.join("");
    /// let events = script.ticks(1);
    /// assert!(events.iter().any(|(_, event)| event.get("welcome").is_some()));
    /// ```
    pub fn ticks(&mut self, ticks: u32) -> Vec<ScopedEvent> {
        (0..ticks).flat_map(|_| events(self.tick())).collect()
    }

    /// The number of the last tick; 0 before the first.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::testing::Script;
    ///
    /// let mut script = Script::new(game());
    /// script.ticks(3);
    /// assert_eq!(script.tick_number(), 3);
    /// ```
    pub fn tick_number(&self) -> u32 {
        self.room.tick_number()
    }

    /// The world, for assertions.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::testing::Script;
    ///
    /// let mut script = Script::new(game());
    /// let ada = script.join("");
    /// assert_eq!(script.world().avatar_of(ada), Some(script.avatar(ada)));
    /// assert!(!script.world().listing().is_locked);
    /// ```
    pub fn world(&self) -> &World {
        self.room.world()
    }

    /// A hash of all state that determines the future of the room. Rooms with the same past have the same hash.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::testing::Script;
    ///
    /// let (mut one, mut other) = (Script::new(game()), Script::new(game()));
    /// one.ticks(10);
    /// other.ticks(10);
    /// assert_eq!(one.state_hash(), other.state_hash());
    /// one.join("");
    /// assert_ne!(one.state_hash(), other.state_hash());
    /// ```
    pub fn state_hash(&self) -> u64 {
        self.room.state_hash()
    }

    /// The object that represents a player.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::testing::Script;
    ///
    /// let mut script = Script::new(game());
    /// let ada = script.join("");
    /// let avatar = script.avatar(ada);
    /// assert!(script.world().object(avatar).is_some());
    /// ```
    #[track_caller]
    pub fn avatar(&self, player: PlayerId) -> ObjectId {
        self.room.world().avatar_of(player).expect("the player has no avatar")
    }

    /// An object that must exist.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::testing::Script;
    ///
    /// let mut script = Script::new(game());
    /// let ada = script.join("");
    /// let runner = script.object(script.avatar(ada));
    /// assert_eq!((runner.kind, runner.state.len()), (1, 4));
    /// ```
    #[track_caller]
    pub fn object(&self, id: ObjectId) -> &Object {
        self.room.world().object(id).expect("there is no such object")
    }

    /// The position of a player's object.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::testing::Script;
    ///
    /// let mut script = Script::new(game());
    /// let ada = script.join("");
    /// assert!(script.place(ada).x < 4_096, "inside the map");
    /// ```
    #[track_caller]
    pub fn place(&self, player: PlayerId) -> Position {
        self.object(self.avatar(player)).position
    }

    /// All objects of a kind.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::testing::Script;
    ///
    /// const LABEL: u16 = 2;
    ///
    /// let mut script = Script::new(game());
    /// script.join(r#"{"name": "Ada"}"#);
    /// let labels = script.of_kind(LABEL);
    /// assert!(labels[0].1.state.ends_with(b"Ada"));
    /// ```
    pub fn of_kind(&self, kind: u16) -> Vec<(ObjectId, Object)> {
        let objects = self.room.world().objects().filter(|(_, object)| object.kind == kind);
        objects.map(|(id, object)| (id, object.clone())).collect()
    }
}

/// The events of a tick, without its number.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
/// use dunlin_game::testing::{Script, events};
///
/// let mut script = Script::new(game());
/// script.join("");
/// let outcome = script.tick();
/// assert!(outcome.calls.sent.is_empty());
/// assert!(!events(outcome).is_empty());
/// ```
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
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
/// use dunlin_game::testing::{Script, publications};
///
/// let mut script = Script::new(game());
/// assert_eq!(publications(script.tick()), [], "tag publishes into no other channel");
/// ```
pub fn publications(outcome: TickOutcome) -> Vec<(Box<str>, Value)> {
    let read = |scoped| match scoped {
        Scoped::Publication { channel, data } => Some((channel, serde_json::from_slice(&data).expect("JSON"))),
        Scoped::Event { .. } => None,
    };
    outcome.scoped.into_iter().filter_map(read).collect()
}
