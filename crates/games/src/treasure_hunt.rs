//! A treasure hunt on a map larger than any view: players walk, dig up chests, and race to the places of clues.
//!
//! Read this simulation before you write your own. `docs/rooms.md` describes its messages. Its files:
//!
//! - `looks` (beside it): the data with which a player joins;
//! - `input`: the inputs of players;
//! - `walk` (beside it): movement, which clients compute as well;
//! - `player`: the state of a player;
//! - `treasure`, `clue`: chests and clues;
//! - `objects`: kinds of objects and the fields of their states;
//! - `news`: events and the leaderboard;
//! - `save`: encodes the state that is not part of the world.
//!
//! All iteration is over ordered maps, all randomness comes from the world, and there is no floating-point arithmetic.
//! So the same inputs lead to the same state on every machine.

mod clue;
mod input;
mod news;
mod objects;
mod player;
mod save;
mod treasure;

use std::collections::BTreeMap;

use dunlin_rooms::{
    GridShape, InputError, PlayerId, Position, Refusal, RestoreError, Schema, Scope, Simulation, Visibility, Visitor,
    World,
};
use serde_json::Value;

use self::{
    clue::Clues,
    input::HuntInput,
    news::Board,
    objects::{Rock, Tree},
    player::{HuntPlayer, anywhere},
    treasure::Treasures,
};
use crate::{
    BadParams,
    looks::{Looks, NAME_CHARS_MAX},
    params::Params,
};

/// The default map.
const MAP: GridShape =
    GridShape { columns: 64, rows: 64, cell_units: 512, near_cells: 3, far_cells: 1, far_interval_ticks: 6 };

/// Maximum number of chests, and of trees and rocks. Both together fit the default limit of a room's objects.
const THINGS_MAX: u32 = 50_000;

/// The refusal code when the world is full.
const FULL: u16 = 409;

/// The simulation's state outside of the world.
pub struct TreasureHunt {
    map: GridShape,
    chests: u32,
    obstacles: u32,
    players: BTreeMap<PlayerId, HuntPlayer>,
    treasures: Treasures,
    clues: Clues,
    board: Board,
}

impl TreasureHunt {
    /// A hunt with these parameters.
    ///
    /// # Errors
    /// [`BadParams`]
    pub fn new(params: &Value) -> Result<Self, BadParams> {
        let mut params = Params::new(params)?;
        let hunt = Self {
            map: params.map(MAP)?,
            chests: params.number("treasures", 3_000, 0..=THINGS_MAX)?,
            obstacles: params.number("obstacles", 3_000, 0..=THINGS_MAX)?,
            players: BTreeMap::new(),
            treasures: Treasures::default(),
            clues: Clues::new(params.number("clue_interval_s", 45, 0..=86_400)?),
            board: Board { channel: params.channel("leaderboard_channel")?, ..Board::default() },
        };
        params.finish()?;
        Ok(hunt)
    }

    /// Ends digs whose time is over, in the order in which their players joined.
    fn end_digs(&mut self, world: &mut World) {
        for player in self.players.values_mut() {
            if !player.finish(world) {
                continue;
            }
            let place = player.position(world);
            let Some(find) = self.treasures.dig(world, place, player.avatar) else { continue };
            player.earn(world, find.value);
            self.board.changed = true;
            emit_near(world, place, &news::found(player, find, place));
            self.clues.found(world, find);
        }
    }
}

impl Simulation for TreasureHunt {
    fn grid(&self) -> GridShape {
        self.map
    }

    fn schema(&self) -> Schema {
        objects::schema()
    }

    fn start(&mut self, world: &mut World) {
        for _ in 0..self.obstacles {
            let position = anywhere(world);
            let is_rock = world.random_below(3) == 0;
            let size = world.random_below(4) as u8;
            // A full world has fewer objects.
            let _ = if is_rock {
                world.add(position, Visibility::Everyone, &Rock { size })
            } else {
                world.add(position, Visibility::Everyone, &Tree { size })
            };
        }
        for _ in 0..self.chests {
            let _ = self.treasures.bury_chest(world);
        }
        self.clues.schedule(world);
    }

    fn join(&mut self, world: &mut World, player: PlayerId, _: &Visitor<'_>, data: &[u8]) -> Result<(), Refusal> {
        let looks = Looks::read(data, "Hunter", player.0)?;
        let full = |_| Refusal { code: FULL, message: "the world is full".into() };
        let joined = HuntPlayer::enter(world, player, looks).map_err(full)?;
        let position = joined.position(world);
        emit_near(world, position, &news::joined(&joined));
        let _ = world.emit(Scope::Player(player), &news::welcome(&joined, self.clues.lying.as_ref()));
        self.players.insert(player, joined);
        self.board.changed = true;
        Ok(())
    }

    fn leave(&mut self, world: &mut World, player: PlayerId) {
        let Some(left) = self.players.remove(&player) else { return };
        let position = left.position(world);
        emit_near(world, position, &news::left(&left));
        left.exit(world);
        self.board.changed = true;
    }

    fn input(&mut self, world: &mut World, player: PlayerId, data: &[u8]) -> Result<(), InputError> {
        let input = HuntInput::read(data).ok_or(InputError)?;
        let player = self.players.get_mut(&player).ok_or(InputError)?;
        player.act(world, input);
        Ok(())
    }

    fn tick(&mut self, world: &mut World) {
        for (id, player) in &mut self.players {
            player.walk(world, *id);
            player.rest(world, *id);
        }
        self.end_digs(world);
        self.treasures.tick(world);
        self.clues.tick(world, &mut self.treasures);
        self.board.tick(world, &self.players);
    }

    fn save(&self, out: &mut Vec<u8>) {
        self.write(out);
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), RestoreError> {
        self.read(saved)
    }

    fn memory_bytes(&self) -> usize {
        // It is asked after each tick, so it counts the players and does not visit them.
        self.players.len() * (size_of::<(PlayerId, HuntPlayer)>() + size_of::<char>() * NAME_CHARS_MAX)
            + self.treasures.memory_bytes()
            + self.board.channel.as_ref().map_or(0, |channel| channel.len())
    }
}

/// Sends an event to the players who see a place. Drops it if the tick has reached its limit on events.
fn emit_near(world: &mut World, place: Position, event: &str) {
    let cell = world.grid().cell_of(place);
    let _ = world.emit(Scope::Near(cell), event);
}

#[cfg(test)]
mod tests;
