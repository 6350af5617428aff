//! The world of the benchmark: objects that move and change in every tick, and inputs whose effect is measurable.
//!
//! | parameter | default | |
//! |---|---|---|
//! | `objects` | 100 | at most 100,000 |
//! | `columns`, `rows`, `cell_units`, `near_cells`, `far_cells`, `far_interval_ticks` | 16, 16, 256, 2, 0, 6 | the map |
//! | `everyone_sees_everything` | `false` | the same map as a single cell |
//! | `state_bytes` | 12 | length of an object's state, 8 to 1,024 |
//! | `moving_permille` | 1,000 | permille of the objects that move and change; the others are static |
//! | `player_objects` | `false` | whether each player has its own object |
//! | `near_permille` | 0 | permille of the objects that players see only near: they are of kind 2 |
//! | `near_units` | 256 | how near |
//! | `typed` | `false` | whether states have [fields](CrowdMember): the stamp, and a heading that changes in every tick |
//!
//! Objects move straight ahead and reverse at the edges of the map. With `player_objects`, each player has an
//! additional object, which determines its viewpoint. Without it, player number N uses object N modulo `objects`, and
//! viewpoints are spread over the map. All objects are of kind 1, except with `near_permille`. Their state is
//!
//! | bytes | |
//! |---|---|
//! | 0 to 7 | the last input for the object; 0 before the first |
//! | the rest | different after every tick, and for each object |
//!
//! An input is 8 bytes: a stamp that the sender recognizes. The next tick writes it to the object's state, and it
//! determines the object's new direction. Joining requires no data. A message of the backend, which is any JSON,
//! becomes an event for all players; the answer is `{"players": 3}`. A message `{"call": "score", "data": {},
//! "timeout_ticks": 60}` calls the method of the backend instead, and the outcome becomes an event ([`calls`]).

mod calls;

use std::collections::BTreeMap;

use dunlin_rooms::{
    CallError, CallId, CellIndex, GridShape, InputError, NewObject, ObjectId, PlayerId, Position, Refusal,
    RestoreError, Schema, Scope, Simulation, Visibility, Visitor, World, WorldError, state,
};
use serde_json::Value;

use crate::{
    BadParams,
    params::Params,
    saved::Saved,
    saving::{write_length, write_u32},
};

/// The default map.
const MAP: GridShape =
    GridShape { columns: 16, rows: 16, cell_units: 256, near_cells: 2, far_cells: 0, far_interval_ticks: 6 };

/// The kind of objects that are visible in the whole view.
const MOVER: u16 = 1;

/// The kind of objects that are visible only near.
const NEAR_MOVER: u16 = 2;

/// Length of an input. An object's state begins with the input.
const STAMP_BYTES: usize = 8;

/// Maximum step of an object per tick in each direction, in units.
const STEP_MAX: i8 = 8;

/// The refusal code when the world is full.
const FULL: u16 = 409;

/// The refusal code of a message that cannot be an event.
const NO_MESSAGE: u16 = 460;

state! {
    /// The state of an object of a crowd with `typed`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct CrowdMember: 1 {
        /// The last input for the object.
        pub stamp: [u8; 8],
        /// Different after every tick.
        pub heading: u8 [angle()],
    }
}

state! {
    /// The same, of an object that is visible only near.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct NearCrowdMember: 2 {
        /// The last input for the object.
        pub stamp: [u8; 8],
        /// Different after every tick.
        pub heading: u8 [angle()],
    }
}

/// The benchmark's world.
pub struct Crowd {
    map: GridShape,
    objects: u32,
    near_permille: u32,
    near_units: u32,
    /// 0 for states with fields.
    state_bytes: usize,
    moving_permille: u32,
    player_objects: bool,
    movers: Vec<Mover>,
    players: BTreeMap<PlayerId, Mover>,
    /// A buffer for an object's state, so that a tick allocates nothing.
    state: Vec<u8>,
}

/// An object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mover {
    object: ObjectId,
    /// Units per tick to the right and downwards.
    step: (i8, i8),
    stamp: [u8; STAMP_BYTES],
    /// Whether it moves and changes.
    moves: bool,
}

impl Crowd {
    /// A crowd with these parameters.
    ///
    /// # Errors
    /// [`BadParams`]
    pub fn new(params: &Value) -> Result<Self, BadParams> {
        let mut params = Params::new(params)?;
        let is_typed = params.flag("typed")?;
        let state_bytes = params.number("state_bytes", 12, STAMP_BYTES as u32..=1_024)? as usize;
        let crowd = Self {
            objects: params.number("objects", 100, 0..=100_000)?,
            near_permille: params.number("near_permille", 0, 0..=1_000)?,
            near_units: params.number("near_units", 256, 1..=u32::MAX)?,
            map: params.map(MAP)?,
            state_bytes: if is_typed { 0 } else { state_bytes },
            moving_permille: params.number("moving_permille", 1_000, 0..=1_000)?,
            player_objects: params.flag("player_objects")?,
            movers: Vec::new(),
            players: BTreeMap::new(),
            state: Vec::new(),
        };
        params.finish()?;
        Ok(crowd)
    }

    fn spawn(&mut self, world: &mut World, kind: u16, moves: bool) -> Option<Mover> {
        let (width, height) = world.grid().size_units();
        let position = Position { x: world.random_below(width), y: world.random_below(height) };
        let step = steps(world.random());
        // A struct without a stamp and a heading is as many zeros.
        let bytes = if self.state_bytes == 0 { STAMP_BYTES + 1 } else { self.state_bytes };
        self.state.clear();
        self.state.resize(bytes, 0);
        let object = world.spawn(NewObject { position, kind, visibility: Visibility::Everyone, state: &self.state });
        let object = object.ok()?;
        Some(Mover { object, step, stamp: [0; STAMP_BYTES], moves })
    }

    /// The index of a player's own object, if players share the common objects.
    fn common(&self, player: PlayerId) -> Option<usize> {
        (player.0 as usize).checked_rem(self.movers.len())
    }
}

impl Simulation for Crowd {
    fn grid(&self) -> GridShape {
        self.map
    }

    fn schema(&self) -> Schema {
        let schema = if self.state_bytes == 0 { Schema::new().with::<CrowdMember>() } else { Schema::new() };
        match (self.near_permille, self.state_bytes) {
            (0, _) => schema,
            (_, 0) => schema.with::<NearCrowdMember>().with_visible_within(NEAR_MOVER, self.near_units),
            _ => schema.with_visible_within(NEAR_MOVER, self.near_units),
        }
    }

    fn start(&mut self, world: &mut World) {
        let is_next = |index: u64, permille: u32| {
            let until = |objects: u64| objects * u64::from(permille) / 1_000;
            until(index + 1) > until(index)
        };
        let mut of_kind = [0_u64; 2];
        for index in 0..u64::from(self.objects) {
            // Spreads the moving objects evenly among the static ones of each kind.
            let is_near = is_next(index, self.near_permille);
            let before = &mut of_kind[usize::from(is_near)];
            let moves = is_next(*before, self.moving_permille);
            *before += 1;
            let Some(spawned) = self.spawn(world, if is_near { NEAR_MOVER } else { MOVER }, moves) else { return };
            self.movers.push(spawned);
        }
    }

    fn join(&mut self, world: &mut World, player: PlayerId, _: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
        if self.player_objects {
            let full = || Refusal { code: FULL, message: "the world is full".into() };
            let mover = self.spawn(world, MOVER, true).ok_or_else(full)?;
            world.set_avatar(player, Some(mover.object));
            if let Some(position) = world.object(mover.object).map(|object| object.position) {
                world.set_viewpoint(player, position);
            }
            self.players.insert(player, mover);
        } else {
            let avatar = self.common(player).and_then(|index| self.movers.get(index));
            world.set_avatar(player, avatar.map(|mover| mover.object));
            world.set_viewpoint(player, lookout(player, world));
        }
        Ok(())
    }

    fn leave(&mut self, world: &mut World, player: PlayerId) {
        if let Some(mover) = self.players.remove(&player) {
            world.despawn(mover.object);
        }
    }

    fn input(&mut self, world: &mut World, player: PlayerId, data: &[u8]) -> Result<(), InputError> {
        let stamp: [u8; STAMP_BYTES] = data.try_into().map_err(|_| InputError)?;
        let common = self.common(player).filter(|_| !self.player_objects);
        let mover = match common {
            Some(index) => self.movers.get_mut(index),
            None => self.players.get_mut(&player),
        };
        let mover = mover.ok_or(InputError)?;
        mover.stamp = stamp;
        mover.step = steps(u64::from_le_bytes(stamp));
        mover.show(world, self.state_bytes, &mut self.state);
        Ok(())
    }

    fn message(&mut self, world: &mut World, data: &[u8]) -> Result<Vec<u8>, Refusal> {
        let refused = |error: WorldError| Refusal { code: NO_MESSAGE, message: error.to_string().into() };
        let text = std::str::from_utf8(data).map_err(|_| refused(WorldError::BadEvent))?;
        if let Some(call) = calls::CrowdCall::read(data) {
            let id = call.send(world).map_err(refused)?;
            return Ok(format!(r#"{{"call":{}}}"#, id.0).into());
        }
        world.emit(Scope::All, text).map_err(refused)?;
        Ok(format!(r#"{{"players":{}}}"#, world.player_count()).into())
    }

    fn answer(&mut self, world: &mut World, call: CallId, outcome: Result<&[u8], CallError>) {
        // An answer that is too long for an event is not shown.
        let _ = world.emit(Scope::All, &calls::event(world.tick(), call, outcome));
    }

    fn tick(&mut self, world: &mut World) {
        let (bytes, state) = (self.state_bytes, &mut self.state);
        for mover in self.movers.iter_mut().filter(|mover| mover.moves) {
            mover.advance(world, bytes, state);
        }
        for (player, mover) in &mut self.players {
            let position = mover.advance(world, bytes, state);
            world.set_viewpoint(*player, position);
        }
    }

    fn save(&self, out: &mut Vec<u8>) {
        write_length(self.movers.len(), out);
        for mover in &self.movers {
            mover.write(out);
        }
        write_length(self.players.len(), out);
        for (player, mover) in &self.players {
            write_u32(player.0, out);
            mover.write(out);
        }
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), RestoreError> {
        let mut saved = Saved::new(saved);
        let movers = saved.list(Mover::read)?;
        let players = saved.list(|saved| Ok((saved.player()?, Mover::read(saved)?)))?;
        saved.finish()?;
        (self.movers, self.players) = (movers, players);
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.movers.capacity() * size_of::<Mover>()
            + self.players.len() * size_of::<(PlayerId, Mover)>()
            + self.state.capacity()
    }
}

impl Mover {
    /// Moves by a step and changes the state; returns the new position.
    fn advance(&mut self, world: &mut World, state_bytes: usize, state: &mut Vec<u8>) -> Position {
        let Some(from) = world.object(self.object).map(|object| object.position) else { return Position::default() };
        let (width, height) = world.grid().size_units();
        let to = Position { x: bounce(from.x, &mut self.step.0, width), y: bounce(from.y, &mut self.step.1, height) };
        world.move_to(self.object, to);
        self.show(world, state_bytes, state);
        to
    }

    fn show(&self, world: &mut World, state_bytes: usize, state: &mut Vec<u8>) {
        let mut number = world.tick() ^ self.object.0.wrapping_mul(0x9e37_79b9);
        if state_bytes == 0 {
            let heading = number.wrapping_mul(0x0019_660d) as u8;
            let stamp = self.stamp;
            if world.set(self.object, &CrowdMember { stamp, heading }) == Err(WorldError::WrongState) {
                // Cannot fail, as below: it is of the other kind.
                let _ = world.set(self.object, &NearCrowdMember { stamp, heading });
            }
            return;
        }
        state.clear();
        state.extend_from_slice(&self.stamp);
        while state.len() < state_bytes {
            number = number.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
            state.extend_from_slice(&number.to_be_bytes());
        }
        state.truncate(state_bytes);
        // Cannot fail: the object exists, and the length of its state is unchanged.
        let _ = world.set_state(self.object, state);
    }

    fn write(&self, out: &mut Vec<u8>) {
        write_u32(self.object.0, out);
        out.extend_from_slice(&[self.step.0.cast_unsigned(), self.step.1.cast_unsigned(), self.moves.into()]);
        out.extend_from_slice(&self.stamp);
    }

    fn read(saved: &mut Saved<'_>) -> Result<Self, RestoreError> {
        let object = saved.object()?;
        let [x, y] = saved.bytes()?.map(u8::cast_signed);
        Ok(Self { object, step: (x, y), moves: saved.flag()?, stamp: saved.bytes()? })
    }
}

/// A direction and a speed derived from a number; never 0, 0.
fn steps(number: u64) -> (i8, i8) {
    let choices = 2 * u64::from(STEP_MAX.unsigned_abs()) + 1;
    let step = |number: u64| ((number % choices) as u8).cast_signed() - STEP_MAX;
    match (step(number), step(number / choices)) {
        (0, 0) => (1, 0),
        steps => steps,
    }
}

/// Moves by a step, or reverses at an edge.
fn bounce(at: u32, step: &mut i8, size: u32) -> u32 {
    if let Some(to) = at.checked_add_signed((*step).into()).filter(|to| *to < size) {
        return to;
    }
    *step = -*step;
    at
}

/// The viewpoint of a player. The viewpoints of the first players are spread evenly over the cells, for any number of
/// players.
fn lookout(player: PlayerId, world: &World) -> Position {
    let grid = world.grid();
    let spread = u64::from(player.0.wrapping_mul(0x9e37_79b9));
    let cell = CellIndex(((spread * grid.len() as u64) >> 32) as u32);
    let (corner, half) = (grid.corner(cell), grid.shape().cell_units / 2);
    Position { x: corner.x + half, y: corner.y + half }
}

#[cfg(test)]
mod tests;
