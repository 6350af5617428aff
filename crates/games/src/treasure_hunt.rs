//! A treasure hunt on a map larger than any view: players walk, dig up chests, and run to where clues drop.
//!
//! This is the simulation to read before writing one. What it and its clients say to each other is in `docs/rooms.md`; the files
//! here follow it:
//!
//! - `visitor`: what a player says about itself when it joins;
//! - `input`: what players can do;
//! - `walk`: how they move, which clients compute as well;
//! - `player`: what a player has and is doing;
//! - `treasure`, `clue`: what is to be found;
//! - `objects`: kinds, and the bytes of states;
//! - `news`: events and the leaderboard;
//! - `save`: everything that is not in the world, as bytes.
//!
//! Whatever iterates here, iterates over ordered maps; whatever is left to chance, is drawn from the world; and nothing is computed
//! with floating point. So the same inputs lead to the same hunt, on every machine.

mod clue;
mod input;
mod news;
mod objects;
mod player;
mod save;
mod treasure;
mod visitor;
mod walk;

use std::collections::BTreeMap;

use dunlin_rooms::{
    GridShape, InputError, PlayerId, Position, Refusal, RestoreError, Scope, Simulation, Visitor, World,
};
use serde_json::Value;

use self::{
    clue::Clues,
    input::Input,
    news::Board,
    player::{Player, anywhere},
    treasure::Treasures,
    visitor::Looks,
};
use crate::{BadParams, params::Params};

/// The map if the parameters say nothing else.
const MAP: GridShape =
    GridShape { columns: 64, rows: 64, cell_units: 512, near_cells: 3, far_cells: 1, far_interval_ticks: 6 };

/// Chests, and pieces of scenery, at the most: as many as fit a room's default bound together.
const THINGS_MAX: u32 = 50_000;

/// The refusal of players when the world is full.
const FULL: u16 = 409;

/// The treasure hunt.
pub struct TreasureHunt {
    map: GridShape,
    chests: u32,
    obstacles: u32,
    players: BTreeMap<PlayerId, Player>,
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
            tell_near(world, place, &news::found(player, find, place));
            self.clues.found(world, find);
        }
    }
}

impl Simulation for TreasureHunt {
    fn grid(&self) -> GridShape {
        self.map
    }

    fn start(&mut self, world: &mut World) {
        for _ in 0..self.obstacles {
            let position = anywhere(world);
            let kind = if world.random_below(3) == 0 { objects::ROCK } else { objects::TREE };
            let size = world.random_below(4) as u8;
            // A world that is full has less of everything.
            let _ = world.spawn(objects::visible(position, kind, &[size]));
        }
        for _ in 0..self.chests {
            let _ = self.treasures.bury_chest(world);
        }
        self.clues.schedule(world);
    }

    fn join(&mut self, world: &mut World, player: PlayerId, _: &Visitor<'_>, data: &[u8]) -> Result<(), Refusal> {
        let looks = Looks::read(data, player.0)?;
        let full = |_| Refusal { code: FULL, message: "the world is full".into() };
        let joined = Player::enter(world, player, looks).map_err(full)?;
        let position = joined.position(world);
        tell_near(world, position, &news::joined(&joined));
        let _ = world.emit(Scope::Player(player), &news::welcome(&joined, self.clues.lying.as_ref()));
        self.players.insert(player, joined);
        self.board.changed = true;
        Ok(())
    }

    fn leave(&mut self, world: &mut World, player: PlayerId) {
        let Some(left) = self.players.remove(&player) else { return };
        let position = left.position(world);
        tell_near(world, position, &news::left(&left));
        left.exit(world);
        self.board.changed = true;
    }

    fn input(&mut self, world: &mut World, player: PlayerId, data: &[u8]) -> Result<(), InputError> {
        let input = Input::read(data).ok_or(InputError)?;
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
}

/// Tells the players who see a place. When a tick has had as many events as it may, one is not told: that is not worth
/// more to the hunt.
fn tell_near(world: &mut World, place: Position, event: &str) {
    let cell = world.grid().cell_of(place);
    let _ = world.emit(Scope::Near(cell), event);
}

#[cfg(test)]
mod tests;
