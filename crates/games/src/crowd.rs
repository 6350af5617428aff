//! The benchmark's world: objects that move and change in every tick, and inputs whose effect can be found again.
//!
//! | parameter | default | |
//! |---|---|---|
//! | `objects` | 100 | at most 100,000 |
//! | `columns`, `rows`, `cell_units`, `near_cells`, `far_cells`, `far_interval_ticks` | 16, 16, 256, 2, 0, 6 | the map |
//! | `everyone_sees_everything` | `false` | the same map as one cell |
//! | `state_bytes` | 12 | bytes of an object's state, 8 to 1,024 |
//! | `moving_permille` | 1,000 | thousandths of the objects that move and change; the others stand |
//! | `player_objects` | `false` | whether each player has an object of its own |
//!
//! Objects go straight on, and back from the map's edges. With `player_objects` a player has one more object, which it looks
//! from; without, a player's own object is that of `objects` with its number modulo their number, and players look from all over the map.
//! All objects are of kind 1. Their state is
//!
//! | bytes | |
//! |---|---|
//! | 0 to 7 | the last input for the object; 0 before the first |
//! | the rest | something else after every tick, and different for each object |
//!
//! An input is 8 bytes, a stamp for the sender to recognise. It is in the object's state with the next tick, and says where the
//! object goes from then on. Joining takes no data.

use std::collections::BTreeMap;

use dunlin_rooms::{
    CellIndex, GridShape, InputError, NewObject, ObjectId, PlayerId, Position, Refusal, RestoreError, Simulation,
    Visibility, Visitor, World,
};
use serde_json::Value;

use crate::{
    BadParams,
    params::Params,
    saved::{Saved, write_length, write_u32},
};

/// The map if the parameters say nothing else.
const MAP: GridShape =
    GridShape { columns: 16, rows: 16, cell_units: 256, near_cells: 2, far_cells: 0, far_interval_ticks: 6 };

/// The kind of all objects.
const MOVER: u16 = 1;

/// Bytes of an input, which an object's state begins with.
const STAMP_BYTES: usize = 8;

/// Units that an object goes in a tick, in each direction, at most.
const STEP_MAX: i8 = 8;

/// The refusal of players when the world is full.
const FULL: u16 = 409;

/// The benchmark's world.
pub struct Crowd {
    map: GridShape,
    objects: u32,
    state_bytes: usize,
    moving_permille: u32,
    player_objects: bool,
    movers: Vec<Mover>,
    players: BTreeMap<PlayerId, Mover>,
    /// An object's state while it is made, so that a tick allocates nothing.
    state: Vec<u8>,
}

/// An object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mover {
    object: ObjectId,
    /// Units in a tick to the right and downwards.
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
        let crowd = Self {
            objects: params.number("objects", 100, 0..=100_000)?,
            map: params.map(MAP)?,
            state_bytes: params.number("state_bytes", 12, STAMP_BYTES as u32..=1_024)? as usize,
            moving_permille: params.number("moving_permille", 1_000, 0..=1_000)?,
            player_objects: params.flag("player_objects")?,
            movers: Vec::new(),
            players: BTreeMap::new(),
            state: Vec::new(),
        };
        params.finish()?;
        Ok(crowd)
    }

    fn spawn(&mut self, world: &mut World, moves: bool) -> Option<Mover> {
        let (width, height) = world.grid().size_units();
        let position = Position { x: world.random_below(width), y: world.random_below(height) };
        let step = steps(world.random());
        self.state.clear();
        self.state.resize(self.state_bytes, 0);
        let object = NewObject { position, kind: MOVER, visibility: Visibility::Everyone, state: &self.state };
        let object = world.spawn(object).ok()?;
        Some(Mover { object, step, stamp: [0; STAMP_BYTES], moves })
    }

    /// Which of the common objects is a player's own.
    fn common(&self, player: PlayerId) -> Option<usize> {
        (player.0 as usize).checked_rem(self.movers.len())
    }
}

impl Simulation for Crowd {
    fn grid(&self) -> GridShape {
        self.map
    }

    fn start(&mut self, world: &mut World) {
        for index in 0..u64::from(self.objects) {
            // Spreads those that move evenly among the others.
            let until = |objects: u64| objects * u64::from(self.moving_permille) / 1_000;
            let moves = until(index + 1) > until(index);
            let Some(spawned) = self.spawn(world, moves) else { return };
            self.movers.push(spawned);
        }
    }

    fn join(&mut self, world: &mut World, player: PlayerId, _: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
        if self.player_objects {
            let full = || Refusal { code: FULL, message: "the world is full".into() };
            let mover = self.spawn(world, true).ok_or_else(full)?;
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
}

impl Mover {
    /// Goes a step, and changes; returns where it is then.
    fn advance(&mut self, world: &mut World, state_bytes: usize, state: &mut Vec<u8>) -> Position {
        let Some(from) = world.object(self.object).map(|object| object.position) else { return Position::default() };
        let (width, height) = world.grid().size_units();
        let to = Position { x: bounce(from.x, &mut self.step.0, width), y: bounce(from.y, &mut self.step.1, height) };
        world.move_to(self.object, to);
        self.show(world, state_bytes, state);
        to
    }

    fn show(&self, world: &mut World, state_bytes: usize, state: &mut Vec<u8>) {
        state.clear();
        state.extend_from_slice(&self.stamp);
        let mut number = world.tick() ^ self.object.0.wrapping_mul(0x9e37_79b9);
        while state.len() < state_bytes {
            number = number.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
            state.extend_from_slice(&number.to_be_bytes());
        }
        state.truncate(state_bytes);
        // The object is there, and its state is as long as it was.
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

/// A direction and a speed that follow from a number; never 0, 0.
fn steps(number: u64) -> (i8, i8) {
    let choices = 2 * u64::from(STEP_MAX.unsigned_abs()) + 1;
    let step = |number: u64| ((number % choices) as u8).cast_signed() - STEP_MAX;
    match (step(number), step(number / choices)) {
        (0, 0) => (1, 0),
        steps => steps,
    }
}

/// Goes a step, or turns round at an edge.
fn bounce(at: u32, step: &mut i8, size: u32) -> u32 {
    if let Some(to) = at.checked_add_signed((*step).into()).filter(|to| *to < size) {
        return to;
    }
    *step = -*step;
    at
}

/// The middle of a player's cell, such that the first players, however many, are spread evenly over the cells.
fn lookout(player: PlayerId, world: &World) -> Position {
    let grid = world.grid();
    let spread = u64::from(player.0.wrapping_mul(0x9e37_79b9));
    let cell = CellIndex(((spread * grid.len() as u64) >> 32) as u32);
    let (corner, half) = (grid.corner(cell), grid.shape().cell_units / 2);
    Position { x: corner.x + half, y: corner.y + half }
}

#[cfg(test)]
mod tests;
