//! The game that rooms run. It spawns, moves, changes and despawns objects, changes their visibility, moves the
//! viewpoints of players and emits events. It records everything in the [`SharedRoomModel`].

use std::num::NonZeroU32;

use dunlin_engine::room::RoomKey;
use dunlin_rooms::{
    CellIndex, GridShape, InputError, NewObject, ObjectId, PlayerId, Position, Refusal, RestoreError, Schema, Scope,
    Simulation, Visibility, Visitor, World, WorldError,
};

use super::{EmittedEvent, InputFault, PlayerAt, RoomModel, SharedRoomModel, Version, kinds, numbered};
use crate::model::Outcome;

/// The parameters of a game.
#[derive(Clone, Debug)]
pub struct GameOptions {
    pub shape: GridShape,
    /// Maximum number of objects, as in the room's options.
    pub objects_max: usize,
    /// Maximum bytes of an object's state, as in the room's options.
    pub state_bytes_max: usize,
    /// Maximum number of players.
    pub seats_max: usize,
    /// Maximum number of changes in a tick.
    pub changes_max: u32,
    /// Percentage of ticks in which the game emits an event.
    pub events_percent: u32,
    /// Whether some kinds are more important than others to players with a bandwidth limit.
    pub has_weights: bool,
    /// How far the first of the kinds that are visible only near is visible, if some are.
    pub near_units: Option<NonZeroU32>,
}

/// Maximum bytes of padding in an event.
const FILL_BYTES_MAX: u32 = 300;

/// The game of one room.
pub struct Game {
    model: SharedRoomModel,
    room: RoomKey,
    game_options: GameOptions,
}

impl Game {
    /// A game for a room that the model already contains.
    pub fn new(model: SharedRoomModel, room: RoomKey, game_options: GameOptions) -> Self {
        Self { model, room, game_options }
    }

    fn random_object(&self, world: &mut World) -> Option<ObjectId> {
        let ids: Vec<ObjectId> = self.with_record(|record| record.objects.keys().copied().collect());
        let index = world.random_below(ids.len().max(1) as u32) as usize;
        ids.get(index).copied()
    }

    /// A state for an object of this kind. A few do not have the form of a kind with fields.
    fn random_state(&self, world: &mut World, kind: u16, before: &[u8]) -> Vec<u8> {
        let length = match world.random_below(40) {
            0 => self.game_options.state_bytes_max + 1,
            1 => self.game_options.state_bytes_max,
            _ => world.random_below(12) as usize,
        };
        let bits = world.random();
        let is_fit = length < 12 && bits >> 61 > 0;
        if let Some(state) = is_fit.then(|| kinds::next_state(kind, before, bits)).flatten() {
            return state;
        }
        let bytes = bits.to_le_bytes();
        bytes.into_iter().cycle().take(length).collect()
    }

    fn with_record<T>(&self, read: impl FnOnce(&mut super::RoomRecord) -> T) -> T {
        read(self.model.lock().records.get_mut(&self.room).expect("the model contains the room before its game starts"))
    }

    fn with_header(&self, player: PlayerId, change: impl FnOnce(&mut PlayerAt)) {
        self.with_record(|record| {
            if let Some(header) = record.players.get_mut(&player) {
                change(header);
            }
        });
    }

    fn record_failure(&self, what: &str) {
        self.model.lock().record_failure(format!("{:?}: {what}", self.room));
    }

    fn change(&self, world: &mut World) {
        match world.random_below(100) {
            0..20 => self.spawn(world),
            20..30 => self.despawn(world),
            30..75 => self.move_object(world),
            75..85 => self.change_state(world),
            85..93 => self.change_visibility(world),
            93..97 => self.move_viewpoint(world),
            _ => self.change_avatar(world),
        }
    }

    fn spawn(&self, world: &mut World) {
        let position = random_position(world);
        let kind = kinds::kind_of(world.random_below(400) as u16);
        let state = self.random_state(world, kind, &[]);
        let visibility = random_visibility(world);
        let expected = if world.object_count() >= self.game_options.objects_max {
            Some(WorldError::TooManyObjects)
        } else {
            (state.len() > self.game_options.state_bytes_max).then_some(WorldError::StateTooLong)
        };
        let made = world.spawn(NewObject { position, kind, visibility, state: &state });
        if made.err() != expected {
            return self.record_failure(&format!("spawn returned {made:?}, expected error {expected:?}"));
        }
        if let Ok(id) = made {
            let position = world.grid().clamp(position);
            self.with_record(|record| record.put(id, Version { position, kind, visibility, state }));
        }
    }

    fn despawn(&self, world: &mut World) {
        let Some(id) = self.random_object(world) else { return };
        let owners: Vec<PlayerId> = self.with_record(|record| {
            let owners = record.players.iter_mut().filter(|(_, header)| header.avatar == id.0);
            owners
                .map(|(player, header)| {
                    header.avatar = 0;
                    *player
                })
                .collect()
        });
        for player in owners {
            world.set_avatar(player, None);
        }
        if !world.despawn(id) || world.despawn(id) {
            self.record_failure(&format!("{id:?} was not there, or despawn did not remove it"));
        }
        self.with_record(|record| record.remove(id));
    }

    fn alter(&self, id: ObjectId, change: impl FnOnce(&mut Version)) {
        self.with_record(|record| {
            let Some(mut version) = record.objects.get(&id).cloned() else { return };
            change(&mut version);
            record.put(id, version);
        });
    }

    /// Moves an object. Most moves are short: to the next cell at most.
    fn move_object(&self, world: &mut World) {
        let Some(id) = self.random_object(world) else { return };
        let Some(from) = world.object(id).map(|object| object.position) else {
            return self.record_failure(&format!("{id:?} does not exist"));
        };
        let position = if world.random_below(10) == 0 {
            random_position(world)
        } else {
            let reach = self.game_options.shape.cell_units;
            let mut step = |at: u32| (at + world.random_below(2 * reach + 1)).saturating_sub(reach);
            Position { x: step(from.x), y: step(from.y) }
        };
        world.move_to(id, position);
        let position = world.grid().clamp(position);
        self.alter(id, |version| version.position = position);
    }

    fn change_state(&self, world: &mut World) {
        let Some(id) = self.random_object(world) else { return };
        let (kind, before) = self.with_record(|record| {
            let version = &record.objects[&id];
            (version.kind, version.state.clone())
        });
        let state = self.random_state(world, kind, &before);
        let expected = (state.len() > self.game_options.state_bytes_max).then_some(WorldError::StateTooLong);
        let changed = world.set_state(id, &state);
        if changed.err() != expected {
            self.record_failure(&format!("set_state returned {changed:?}, expected error {expected:?}"));
        } else if expected.is_none() {
            self.alter(id, |version| version.state = state);
        }
    }

    fn change_visibility(&self, world: &mut World) {
        let Some(id) = self.random_object(world) else { return };
        let visibility = random_visibility(world);
        world.set_visibility(id, visibility);
        self.alter(id, |version| version.visibility = visibility);
    }

    fn move_viewpoint(&self, world: &mut World) {
        let Some(player) = random_player(world) else { return };
        let position = random_position(world);
        self.set_viewpoint(world, player, position);
    }

    fn set_viewpoint(&self, world: &mut World, player: PlayerId, position: Position) {
        world.set_viewpoint(player, position);
        let view = world.grid().cell_of(world.grid().clamp(position));
        self.with_header(player, |header| header.view = view);
    }

    fn change_avatar(&self, world: &mut World) {
        let Some(player) = random_player(world) else { return };
        let avatar = self.random_object(world).filter(|_| world.random_below(4) > 0);
        world.set_avatar(player, avatar);
        let avatar = avatar.map_or(0, |id| id.0);
        self.with_header(player, |header| header.avatar = avatar);
    }

    /// Emits an event. Its recipients are determined at the end of the tick.
    fn emit_event(&self, world: &mut World, scope: Scope) {
        let fill = if world.random_below(10) == 0 { world.random_below(FILL_BYTES_MAX) as usize } else { 0 };
        let mut room_model = self.model.lock();
        let number = room_model.events.len() as u64;
        let emitted = world.emit(scope, &format!(r#"{{"e":{number},"fill":"{}"}}"#, "x".repeat(fill)));
        if emitted.is_err() {
            return room_model.record_failure(format!("emit returned {emitted:?}"));
        }
        let users = if scope == Scope::All { None } else { Some(std::collections::BTreeSet::new()) };
        let players = std::collections::BTreeSet::new();
        room_model.events.push(EmittedEvent { room: self.room, tick: 0, players, users, accepted_ms: None });
        let record =
            room_model.records.get_mut(&self.room).expect("the model contains the room before its game starts");
        record.events.push(number);
        record.scopes.push(scope);
    }
}

fn random_position(world: &mut World) -> Position {
    let (width, height) = world.grid().size_units();
    // Some positions lie outside the grid.
    Position { x: world.random_below(width + width / 8), y: world.random_below(height + height / 8) }
}

fn random_player(world: &mut World) -> Option<PlayerId> {
    let players: Vec<PlayerId> = world.players().collect();
    let index = world.random_below(players.len().max(1) as u32) as usize;
    players.get(index).copied()
}

fn random_visibility(world: &mut World) -> Visibility {
    match world.random_below(20) {
        0..14 => Visibility::Everyone,
        14..18 => random_player(world).map_or(Visibility::Nobody, Visibility::Owner),
        _ => Visibility::Nobody,
    }
}

fn random_scope(world: &mut World) -> Scope {
    match world.random_below(3) {
        0 => Scope::All,
        1 => Scope::Near(CellIndex(world.random_below(world.grid().len() as u32))),
        _ => random_player(world).map_or(Scope::All, Scope::Player),
    }
}

impl Simulation for Game {
    fn grid(&self) -> GridShape {
        self.game_options.shape
    }

    fn schema(&self) -> Schema {
        let GameOptions { has_weights, near_units, .. } = self.game_options;
        if has_weights {
            self.model.lock().count("room with weights");
        }
        let schema = if has_weights { kinds::weighted_schema() } else { kinds::schema() };
        let Some(near_units) = near_units else { return schema };
        self.model.lock().count("room with near kinds");
        kinds::near_kinds(near_units).fold(schema, |schema, (kind, units)| schema.with_visible_within(kind, units))
    }

    fn start(&mut self, world: &mut World) {
        for _ in 0..world.random_below(self.game_options.objects_max as u32) {
            self.spawn(world);
        }
    }

    fn join(&mut self, world: &mut World, player: PlayerId, visitor: &Visitor<'_>, data: &[u8]) -> Result<(), Refusal> {
        let refusal = |code: u16| Err(Refusal { code, message: format!("not by {code}").into() });
        let Some(number) = numbered(data, r#"{"join":"#) else { return refusal(400) };
        let is_full = self.with_record(|record| {
            record.is_keeping(visitor.client);
            record.players.len() >= self.game_options.seats_max
        });
        let code = match () {
            () if data.ends_with(b"\"out\"}") => Some(1_234),
            () if is_full => Some(409),
            () => None,
        };
        let mut room_model = self.model.lock();
        let Some(join) = room_model.joins.get_mut(number as usize) else { return refusal(400) };
        let outcome = code.map_or(Ok(player), Err);
        join.room = Some(self.room);
        let was_asked = join.outcome.replace(outcome).is_some();
        if was_asked || join.user != visitor.user {
            let join = join.clone();
            room_model.record_failure(format!("join {number} arrives twice or is from {:?}: {join:?}", visitor.user));
        }
        room_model.count(if code.is_some() { "join rejected by the game" } else { "join" });
        if let Some(code) = code {
            drop(room_model);
            return refusal(code);
        }
        let record =
            room_model.records.get_mut(&self.room).expect("the model contains the room before its game starts");
        let header = PlayerAt { view: CellIndex(0), ack: 0, avatar: 0 };
        if record.players.insert(player, header).is_some() || record.users.contains_key(&player) {
            room_model.record_failure(format!("{player:?} joins twice"));
        } else {
            record.users.insert(player, visitor.user.to_owned());
        }
        drop(room_model);
        if world.random_below(4) > 0 {
            let position = random_position(world);
            self.set_viewpoint(world, player, position);
        }
        if world.random_below(2) == 0 {
            self.emit_event(world, Scope::Player(player));
        }
        Ok(())
    }

    fn leave(&mut self, world: &mut World, player: PlayerId) {
        let (was_here, is_kicking) = self.with_record(|record| {
            record.away.remove(&player);
            (record.players.remove(&player).is_some(), record.is_kicking)
        });
        if !was_here {
            self.record_failure(&format!("{player:?} leaves, but was not in the room"));
        }
        self.model.lock().count("leave");
        // A kicked player leaves after the events of the tick were recorded.
        if world.random_below(3) == 0 && !is_kicking {
            self.emit_event(world, Scope::All);
        }
    }

    fn away(&mut self, _: &mut World, player: PlayerId) {
        let (is_here, is_new) =
            self.with_record(|record| (record.players.contains_key(&player), record.away.insert(player)));
        if !is_here || !is_new {
            self.record_failure(&format!("{player:?} goes away: in the room {is_here}, newly away {is_new}"));
        }
    }

    fn back(&mut self, _: &mut World, player: PlayerId, visitor: &Visitor<'_>) {
        let is_same = self.with_record(|record| {
            record.away.remove(&player);
            // Other clients restart their input numbers at 1.
            let is_keeping = record.is_keeping(visitor.client);
            if let Some(header) = record.players.get_mut(&player).filter(|_| !is_keeping) {
                header.ack = 0;
            }
            record.users.get(&player).is_some_and(|user| *user == *visitor.user)
        });
        if !is_same {
            self.record_failure(&format!("{player:?} resumes as user {:?}", visitor.user));
        }
    }

    fn input(&mut self, world: &mut World, player: PlayerId, data: &[u8]) -> Result<(), InputError> {
        let Some(number) = numbered(data, "i") else {
            self.record_failure(&format!("an input that no client sent: {data:?}"));
            return Err(InputError);
        };
        let mut room_model = self.model.lock();
        let is_rejected = room_model.apply(self.room, player, number);
        drop(room_model);
        if is_rejected {
            return Err(InputError);
        }
        match world.random_below(6) {
            0 => {
                let scope = random_scope(world);
                self.emit_event(world, scope);
            }
            1..4 => {
                let position = random_position(world);
                self.set_viewpoint(world, player, position);
            }
            _ => self.change(world),
        }
        Ok(())
    }

    fn tick(&mut self, world: &mut World) {
        for _ in 0..world.random_below(self.game_options.changes_max + 1) {
            self.change(world);
        }
        if world.random_below(100) < self.game_options.events_percent {
            let scope = random_scope(world);
            self.emit_event(world, scope);
        }
        let tick = world.tick();
        let here: Vec<PlayerId> = world.players().collect();
        let mut room_model = self.model.lock();
        room_model.close_tick(self.room, tick);
        let record = &room_model.records[&self.room];
        if !record.players.keys().eq(here.iter()) {
            let expected: Vec<PlayerId> = record.players.keys().copied().collect();
            room_model.record_failure(format!("{:?}: the players are {here:?} instead of {expected:?}", self.room));
        }
    }

    fn save(&self, _: &mut Vec<u8>) {}

    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Err(RestoreError)
    }
}

impl RoomModel {
    /// Records that input `number` of `player` reached the game. Returns whether the game rejects it.
    fn apply(&mut self, room: RoomKey, player: PlayerId, number: u64) -> bool {
        let Some(input) = self.inputs.get(number as usize).cloned() else {
            self.record_failure(format!("input {number} was never sent"));
            return true;
        };
        let seat = input.join.and_then(|join| self.seat_of(join));
        let record = self.records.get_mut(&room).expect("the model contains the room before its game starts");
        let last = record.players.get(&player).map(|header| header.ack);
        let must_not = input.applied
            || input.outcome == Outcome::Rejected
            || matches!(input.fault, InputFault::TooLong | InputFault::Malformed)
            || seat != Some((room, player))
            || last.is_none_or(|last| input.number <= last);
        if let Some(header) = record.players.get_mut(&player) {
            header.ack = input.number;
        }
        let is_rejected = input.fault == InputFault::RejectedByGame;
        record.rejected_inputs += u64::from(is_rejected);
        if must_not {
            self.record_failure(format!(
                "input {number} must not be applied for {player:?} of {room:?} after {last:?}: {input:?}"
            ));
        }
        self.inputs[number as usize].applied = true;
        self.count(if is_rejected { "input rejected by the game" } else { "input" });
        is_rejected
    }

    /// Records the state of a room after a tick, and the recipients of the tick's events.
    fn close_tick(&mut self, room: RoomKey, tick: u32) {
        let record = self.records.get_mut(&room).expect("the model contains the room before its game starts");
        record.close_tick(tick);
        let scopes = std::mem::take(&mut record.scopes);
        let first = record.events.len() - scopes.len();
        for (number, scope) in record.events[first..].iter().zip(scopes) {
            let is_recipient = |player: &PlayerId, header: &PlayerAt| match scope {
                _ if record.away.contains(player) => false,
                Scope::All => true,
                Scope::Near(cell) => record.grid.band(header.view, cell).is_some(),
                Scope::Player(recipient) => recipient == *player,
            };
            let recipients = record.players.iter().filter(|(player, header)| is_recipient(player, header));
            let emitted = &mut self.events[*number as usize];
            emitted.tick = tick;
            emitted.players = recipients.map(|(player, _)| *player).collect();
            if let Some(users) = &mut emitted.users {
                users.extend(emitted.players.iter().filter_map(|player| record.users.get(player).cloned()));
            }
        }
    }
}
