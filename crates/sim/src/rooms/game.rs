//! The game that rooms run: objects appear, move between cells, change owners, hide and vanish; players move their
//! viewpoints; events are sent. It records everything in the [`Book`].

use dunlin_engine::room::RoomKey;
use dunlin_rooms::{
    CellIndex, GridShape, InputError, NewObject, ObjectId, PlayerId, Position, Refusal, RestoreError, Scope,
    Simulation, Visibility, Visitor, World, WorldError,
};

use super::{Book, EmittedEvent, InputFault, Pages, PlayerAt, Version, numbered};
use crate::model::Fate;

/// What is decided about the game before it begins.
#[derive(Clone, Debug)]
pub struct GameOptions {
    pub shape: GridShape,
    /// Objects, at most, by the room's options.
    pub objects_max: usize,
    /// Bytes of an object's state, at most, by the room's options.
    pub state_bytes_max: usize,
    /// Players that the game lets in.
    pub seats_max: usize,
    /// Things that change in a tick, at most.
    pub changes_max: u32,
    /// In how many of 100 ticks somebody is told something.
    pub events_percent: u32,
}

/// Bytes of an event, at the most.
const FILL_BYTES_MAX: u32 = 300;

/// A game in one room.
pub struct Game {
    book: Book,
    room: RoomKey,
    play: GameOptions,
}

impl Game {
    /// A game in a room that is in the book.
    pub fn new(book: Book, room: RoomKey, play: GameOptions) -> Self {
        Self { book, room, play }
    }

    fn any_object(&self, world: &mut World) -> Option<ObjectId> {
        let ids: Vec<ObjectId> = self.with_life(|life| life.objects.keys().copied().collect());
        let place = world.random_below(ids.len().max(1) as u32) as usize;
        ids.get(place).copied()
    }

    fn any_state(&self, world: &mut World) -> Vec<u8> {
        let length = match world.random_below(40) {
            0 => self.play.state_bytes_max + 1,
            1 => self.play.state_bytes_max,
            _ => world.random_below(12) as usize,
        };
        let bytes = world.random().to_le_bytes();
        bytes.into_iter().cycle().take(length).collect()
    }

    fn with_life<T>(&self, look: impl FnOnce(&mut super::Life) -> T) -> T {
        look(self.book.pages().lives.get_mut(&self.room).expect("a game is in the book before it begins"))
    }

    fn with_header(&self, player: PlayerId, change: impl FnOnce(&mut PlayerAt)) {
        self.with_life(|life| {
            if let Some(header) = life.players.get_mut(&player) {
                change(header);
            }
        });
    }

    fn blame(&self, what: &str) {
        self.book.pages().blame(format!("{:?}: {what}", self.room));
    }

    /// Changes something.
    fn change(&self, world: &mut World) {
        match world.random_below(100) {
            0..20 => self.spawn(world),
            20..30 => self.despawn(world),
            30..75 => self.wander(world),
            75..85 => self.restate(world),
            85..93 => self.reveal(world),
            93..97 => self.look_around(world),
            _ => self.dress(world),
        }
    }

    fn spawn(&self, world: &mut World) {
        let (position, state) = (any_position(world), self.any_state(world));
        let visibility = any_visibility(world);
        let kind = world.random_below(400) as u16;
        let expected = if world.object_count() >= self.play.objects_max {
            Some(WorldError::TooManyObjects)
        } else {
            (state.len() > self.play.state_bytes_max).then_some(WorldError::StateTooLong)
        };
        let made = world.spawn(NewObject { position, kind, visibility, state: &state });
        if made.err() != expected {
            return self.blame(&format!("an object is {made:?}, and should be {expected:?}"));
        }
        if let Ok(id) = made {
            let position = world.grid().clamp(position);
            self.with_life(|life| life.put(id, Version { position, kind, visibility, state }));
        }
    }

    fn despawn(&self, world: &mut World) {
        let Some(id) = self.any_object(world) else { return };
        let owners: Vec<PlayerId> = self.with_life(|life| {
            let owners = life.players.iter_mut().filter(|(_, header)| header.avatar == id.0);
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
            self.blame(&format!("{id:?} is not there, or still there"));
        }
        self.with_life(|life| life.remove(id));
    }

    fn alter(&self, id: ObjectId, change: impl FnOnce(&mut Version)) {
        self.with_life(|life| {
            let Some(mut version) = life.objects.get(&id).cloned() else { return };
            change(&mut version);
            life.put(id, version);
        });
    }

    /// Most steps are short, and lead into the next cell or back at most.
    fn wander(&self, world: &mut World) {
        let Some(id) = self.any_object(world) else { return };
        let Some(from) = world.object(id).map(|object| object.position) else {
            return self.blame(&format!("{id:?} is not there"));
        };
        let position = if world.random_below(10) == 0 {
            any_position(world)
        } else {
            let reach = self.play.shape.cell_units;
            let mut step = |at: u32| (at + world.random_below(2 * reach + 1)).saturating_sub(reach);
            Position { x: step(from.x), y: step(from.y) }
        };
        world.move_to(id, position);
        let position = world.grid().clamp(position);
        self.alter(id, |version| version.position = position);
    }

    fn restate(&self, world: &mut World) {
        let Some(id) = self.any_object(world) else { return };
        let state = self.any_state(world);
        let expected = (state.len() > self.play.state_bytes_max).then_some(WorldError::StateTooLong);
        let changed = world.set_state(id, &state);
        if changed.err() != expected {
            self.blame(&format!("a state is {changed:?}, and should be {expected:?}"));
        } else if expected.is_none() {
            self.alter(id, |version| version.state = state);
        }
    }

    fn reveal(&self, world: &mut World) {
        let Some(id) = self.any_object(world) else { return };
        let visibility = any_visibility(world);
        world.set_visibility(id, visibility);
        self.alter(id, |version| version.visibility = visibility);
    }

    fn look_around(&self, world: &mut World) {
        let Some(player) = any_player(world) else { return };
        let position = any_position(world);
        self.look(world, player, position);
    }

    fn look(&self, world: &mut World, player: PlayerId, position: Position) {
        world.set_viewpoint(player, position);
        let view = world.grid().cell_of(world.grid().clamp(position));
        self.with_header(player, |header| header.view = view);
    }

    fn dress(&self, world: &mut World) {
        let Some(player) = any_player(world) else { return };
        let avatar = self.any_object(world).filter(|_| world.random_below(4) > 0);
        world.set_avatar(player, avatar);
        let avatar = avatar.map_or(0, |id| id.0);
        self.with_header(player, |header| header.avatar = avatar);
    }

    /// Tells somebody something. Who is meant is found out when the tick is over.
    fn emit_event(&self, world: &mut World, scope: Scope) {
        let fill = if world.random_below(10) == 0 { world.random_below(FILL_BYTES_MAX) as usize } else { 0 };
        let mut pages = self.book.pages();
        let number = pages.events.len() as u64;
        let emitted = world.emit(scope, &format!(r#"{{"e":{number},"fill":"{}"}}"#, "x".repeat(fill)));
        if emitted.is_err() {
            return pages.blame(format!("an event is {emitted:?}"));
        }
        let users = if scope == Scope::All { None } else { Some(std::collections::BTreeSet::new()) };
        let players = std::collections::BTreeSet::new();
        pages.events.push(EmittedEvent { room: self.room, tick: 0, players, users, accepted_ms: None });
        let life = pages.lives.get_mut(&self.room).expect("a game is in the book before it begins");
        life.events.push(number);
        life.scopes.push(scope);
    }
}

fn any_position(world: &mut World) -> Position {
    let (width, height) = world.grid().size_units();
    // Some lie outside the map.
    Position { x: world.random_below(width + width / 8), y: world.random_below(height + height / 8) }
}

fn any_player(world: &mut World) -> Option<PlayerId> {
    let players: Vec<PlayerId> = world.players().collect();
    let place = world.random_below(players.len().max(1) as u32) as usize;
    players.get(place).copied()
}

fn any_visibility(world: &mut World) -> Visibility {
    match world.random_below(20) {
        0..14 => Visibility::Everyone,
        14..18 => any_player(world).map_or(Visibility::Nobody, Visibility::Owner),
        _ => Visibility::Nobody,
    }
}

fn any_scope(world: &mut World) -> Scope {
    match world.random_below(3) {
        0 => Scope::All,
        1 => Scope::Near(CellIndex(world.random_below(world.grid().len() as u32))),
        _ => any_player(world).map_or(Scope::All, Scope::Player),
    }
}

impl Simulation for Game {
    fn grid(&self) -> GridShape {
        self.play.shape
    }

    fn start(&mut self, world: &mut World) {
        for _ in 0..world.random_below(self.play.objects_max as u32) {
            self.spawn(world);
        }
    }

    fn join(&mut self, world: &mut World, player: PlayerId, visitor: &Visitor<'_>, data: &[u8]) -> Result<(), Refusal> {
        let refusal = |code: u16| Err(Refusal { code, message: format!("not by {code}").into() });
        let Some(number) = numbered(data, r#"{"join":"#) else { return refusal(400) };
        let is_full = self.with_life(|life| life.players.len() >= self.play.seats_max);
        let code = match () {
            () if data.ends_with(b"\"out\"}") => Some(1_234),
            () if is_full => Some(409),
            () => None,
        };
        let mut pages = self.book.pages();
        let Some(join) = pages.joins.get_mut(number as usize) else { return refusal(400) };
        let outcome = code.map_or(Ok(player), Err);
        join.room = Some(self.room);
        let was_asked = join.outcome.replace(outcome).is_some();
        if was_asked || join.user != visitor.user {
            let join = join.clone();
            pages.blame(format!("join {number} comes twice or of {:?}: {join:?}", visitor.user));
        }
        pages.count(if code.is_some() { "join refused by the game" } else { "join" });
        if let Some(code) = code {
            drop(pages);
            return refusal(code);
        }
        let life = pages.lives.get_mut(&self.room).expect("a game is in the book before it begins");
        let header = PlayerAt { view: CellIndex(0), ack: 0, avatar: 0 };
        if life.players.insert(player, header).is_some() || life.users.contains_key(&player) {
            pages.blame(format!("{player:?} joins twice"));
        } else {
            life.users.insert(player, visitor.user.to_owned());
        }
        drop(pages);
        if world.random_below(4) > 0 {
            let position = any_position(world);
            self.look(world, player, position);
        }
        if world.random_below(2) == 0 {
            self.emit_event(world, Scope::Player(player));
        }
        Ok(())
    }

    fn leave(&mut self, world: &mut World, player: PlayerId) {
        let (was_here, is_kicking) = self.with_life(|life| {
            life.away.remove(&player);
            (life.players.remove(&player).is_some(), life.is_kicking)
        });
        if !was_here {
            self.blame(&format!("{player:?} leaves, and was not here"));
        }
        self.book.pages().count("leave");
        // Who is kicked leaves when the tick's events are noted already.
        if world.random_below(3) == 0 && !is_kicking {
            self.emit_event(world, Scope::All);
        }
    }

    fn away(&mut self, _: &mut World, player: PlayerId) {
        let (is_here, is_new) = self.with_life(|life| (life.players.contains_key(&player), life.away.insert(player)));
        if !is_here || !is_new {
            self.blame(&format!("{player:?} is away, here {is_here}, and was not {is_new}"));
        }
    }

    fn back(&mut self, _: &mut World, player: PlayerId, visitor: &Visitor<'_>) {
        let is_same = self.with_life(|life| {
            life.away.remove(&player);
            life.users.get(&player).is_some_and(|user| *user == *visitor.user)
        });
        // Its client numbers its inputs from 1 again.
        self.with_header(player, |header| header.ack = 0);
        if !is_same {
            self.blame(&format!("{player:?} is back as {:?}", visitor.user));
        }
    }

    fn input(&mut self, world: &mut World, player: PlayerId, data: &[u8]) -> Result<(), InputError> {
        let Some(number) = numbered(data, "i") else {
            self.blame(&format!("an input that nobody sent: {data:?}"));
            return Err(InputError);
        };
        let mut pages = self.book.pages();
        let is_senseless = pages.apply(self.room, player, number);
        drop(pages);
        if is_senseless {
            return Err(InputError);
        }
        match world.random_below(6) {
            0 => {
                let scope = any_scope(world);
                self.emit_event(world, scope);
            }
            1..4 => {
                let position = any_position(world);
                self.look(world, player, position);
            }
            _ => self.change(world),
        }
        Ok(())
    }

    fn tick(&mut self, world: &mut World) {
        for _ in 0..world.random_below(self.play.changes_max + 1) {
            self.change(world);
        }
        if world.random_below(100) < self.play.events_percent {
            let scope = any_scope(world);
            self.emit_event(world, scope);
        }
        let tick = world.tick();
        let here: Vec<PlayerId> = world.players().collect();
        let mut pages = self.book.pages();
        pages.close_tick(self.room, tick);
        let life = &pages.lives[&self.room];
        if !life.players.keys().eq(here.iter()) {
            let expected: Vec<PlayerId> = life.players.keys().copied().collect();
            pages.blame(format!("{:?}: the players are {here:?} instead of {expected:?}", self.room));
        }
    }

    fn save(&self, _: &mut Vec<u8>) {}

    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Err(RestoreError)
    }
}

impl Pages {
    /// The game has input `number` of `player`; returns whether it makes nothing of it.
    fn apply(&mut self, room: RoomKey, player: PlayerId, number: u64) -> bool {
        let Some(input) = self.inputs.get(number as usize).cloned() else {
            self.blame(format!("input {number} was never sent"));
            return true;
        };
        let seat = input.join.and_then(|join| self.seat_of(join));
        let life = self.lives.get_mut(&room).expect("a game is in the book before it begins");
        let last = life.players.get(&player).map(|header| header.ack);
        let must_not = input.applied
            || input.fate == Fate::Refused
            || matches!(input.fault, InputFault::TooLong | InputFault::Malformed)
            || seat != Some((room, player))
            || last.is_none_or(|last| input.number <= last);
        if let Some(header) = life.players.get_mut(&player) {
            header.ack = input.number;
        }
        let is_senseless = input.fault == InputFault::Senseless;
        life.senseless += u64::from(is_senseless);
        if must_not {
            self.blame(format!("input {number} is applied for {player:?} of {room:?} after {last:?}: {input:?}"));
        }
        self.inputs[number as usize].applied = true;
        self.count(if is_senseless { "input without sense" } else { "input" });
        is_senseless
    }

    /// A tick of a room is over: what it was like is written down, and who the events of it are for.
    fn close_tick(&mut self, room: RoomKey, tick: u32) {
        let life = self.lives.get_mut(&room).expect("a game is in the book before it begins");
        life.close_tick(tick);
        let scopes = std::mem::take(&mut life.scopes);
        let first = life.events.len() - scopes.len();
        for (number, scope) in life.events[first..].iter().zip(scopes) {
            let is_meant = |player: &PlayerId, header: &PlayerAt| match scope {
                _ if life.away.contains(player) => false,
                Scope::All => true,
                Scope::Near(cell) => life.grid.band(header.view, cell).is_some(),
                Scope::Player(meant) => meant == *player,
            };
            let meant = life.players.iter().filter(|(player, header)| is_meant(player, header));
            let emitted = &mut self.events[*number as usize];
            emitted.tick = tick;
            emitted.players = meant.map(|(player, _)| *player).collect();
            if let Some(users) = &mut emitted.users {
                users.extend(emitted.players.iter().filter_map(|player| life.users.get(player).cloned()));
            }
        }
    }
}
