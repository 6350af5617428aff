//! Tag with projectiles: runners tag each other, and the first with enough points wins the round.
//!
//! This sample uses the whole interface of a simulation; `docs/tag.md` describes its messages. Its files:
//!
//! - `input`: the inputs of players;
//! - `runner`: a player or a bot on the map;
//! - `shot`: projectiles, which are judged by the state that the shooter saw ([`World::rewind`]);
//! - `bot`: the behavior of bots;
//! - `round`: rounds, and the messages of the backend;
//! - `backend`: results of rounds for the backend ([`World::call`]), and its answers;
//! - `objects`: kinds of objects and the fields of their states;
//! - `report`: events;
//! - `save`: encodes the state that is not part of the world.

mod backend;
mod bot;
mod input;
mod objects;
mod report;
mod round;
mod runner;
mod save;
mod shot;

use std::collections::{BTreeMap, BTreeSet};

use dunlin_rooms::{
    CallError, CallId, GridShape, InputError, ObjectId, PlayerId, Refusal, RestoreError, Schema, Scope, Simulation,
    Visitor, World,
};
use serde_json::Value;

use self::{
    backend::Results,
    input::TagInput,
    round::Round,
    runner::{Driver, TagRunner},
    shot::Shot,
};
use crate::{BadParams, looks::Looks, params::Params};

/// The default map: 4,096 units wide. A player sees 2,304 units of it.
const MAP: GridShape =
    GridShape { columns: 16, rows: 16, cell_units: 256, near_cells: 4, far_cells: 0, far_interval_ticks: 1 };

const BOTS_MAX: u32 = 500;

/// The refusal code when the world is full.
const FULL: u16 = 409;

/// Maximum rewind of a shot in milliseconds. A higher limit than honest players on slow networks need would be an
/// advantage for cheaters.
const REWIND_MS: u32 = 250;
/// The highest tick rate at which `REWIND_MS` is within the history that a world can keep.
const REWIND_TICKS_MAX: u8 = 60;

/// The simulation's state outside of the world.
pub struct TagGame {
    map: GridShape,
    bots: u32,
    idle_limit_s: u32,
    /// The runners, by object.
    runners: BTreeMap<ObjectId, TagRunner>,
    /// Bytes of the runners' names and users.
    text_bytes: usize,
    players: BTreeMap<PlayerId, ObjectId>,
    spectators: BTreeSet<PlayerId>,
    shots: BTreeMap<ObjectId, Shot>,
    round: Round,
    results: Results,
}

impl TagGame {
    /// A game with these parameters.
    ///
    /// # Errors
    /// [`BadParams`]
    pub fn new(params: &Value) -> Result<Self, BadParams> {
        let mut params = Params::new(params)?;
        let game = Self {
            map: params.map(MAP)?,
            bots: params.number("bots", 0, 0..=BOTS_MAX)?,
            idle_limit_s: params.number("idle_limit_s", 120, 0..=86_400)?,
            runners: BTreeMap::new(),
            text_bytes: 0,
            players: BTreeMap::new(),
            spectators: BTreeSet::new(),
            shots: BTreeMap::new(),
            round: Round::new(
                params.number("score_limit", 10, 1..=round::SCORE_LIMIT_MAX)?,
                params.number("rounds", 0, 0..=1_000_000)?,
            ),
            results: Results::default(),
        };
        params.finish()?;
        Ok(game)
    }

    fn insert(&mut self, id: ObjectId, runner: TagRunner) {
        self.text_bytes += text_bytes(&runner);
        self.runners.insert(id, runner);
    }

    fn runner_of(&mut self, player: PlayerId) -> Option<&mut TagRunner> {
        self.runners.get_mut(self.players.get(&player)?)
    }

    /// Moves the projectiles. Each tags at most one runner.
    fn fly_shots(&mut self, world: &mut World) {
        let ids: Vec<ObjectId> = self.shots.keys().copied().collect();
        for id in ids {
            let Some(shot) = self.shots.get_mut(&id) else { continue };
            let runners = &self.runners;
            let target = shot.fly(world, |target| runners.get(&target).is_some_and(TagRunner::can_be_tagged));
            let (owner, is_over) = (shot.owner, shot.is_over(world));
            if let Some(target) = target {
                self.tag(world, owner, target);
            }
            if target.is_some() || is_over {
                self.shots.remove(&id);
                world.despawn(id);
            } else if let Some(shot) = self.shots.get(&id) {
                world.move_to(id, shot.position());
            }
        }
    }

    fn tag(&mut self, world: &mut World, by: ObjectId, target: ObjectId) {
        let Some(tagged) = self.runners.get_mut(&target) else { return };
        tagged.tag(world);
        let (place, name) = (tagged.position(world), tagged.looks.name.clone());
        // The shooter may have left while its projectile was in flight.
        let Some(shooter) = self.runners.get_mut(&by) else { return };
        shooter.score_point(world);
        let cell = world.grid().cell_of(place);
        let _ = world.emit(Scope::Near(cell), &report::tagged(shooter, target, &name, place));
        self.round.is_changed = true;
        if shooter.score >= self.round.score_limit && self.round.finish(world, shooter) {
            let has_backend = self.results.send(world, &self.round, &self.runners);
            // The backend's message about the last round is shown before the room closes.
            if self.round.is_last() && !has_backend {
                world.close(round::LAST_ROUND_OVER);
            }
        }
    }

    /// Begins a round without points and projectiles.
    fn begin_round(&mut self, world: &mut World) {
        for id in std::mem::take(&mut self.shots).into_keys() {
            world.despawn(id);
        }
        for runner in self.runners.values_mut() {
            runner.reset(world);
        }
        self.round.begin(world);
    }

    fn move_runners(&mut self, world: &mut World) {
        let is_playing = self.round.is_playing();
        for (id, runner) in &mut self.runners {
            let shot = bot::act(world, *id, runner, is_playing);
            self.shots.extend(shot);
            runner.tick(world);
        }
    }

    /// Removes idle players, so that others find a place.
    fn kick_idle(&self, world: &mut World) {
        let limit = self.idle_limit_s.saturating_mul(world.ticks_per_second());
        if limit == 0 || !world.tick().is_multiple_of(world.ticks_per_second()) {
            return;
        }
        for runner in self.runners.values().filter(|runner| !runner.is_away) {
            if let Driver::Player { id, last_input_tick } = runner.driver
                && world.tick().saturating_sub(last_input_tick) >= limit
            {
                world.kick(id, &format!("idle for {} seconds", self.idle_limit_s));
            }
        }
    }

    /// Spectators follow the runner with the most points.
    fn show_leader(&self, world: &mut World) {
        if self.spectators.is_empty() {
            return;
        }
        let Some((leader, runner)) = round::leaders(&self.runners).first().copied() else { return };
        let position = runner.position(world);
        for spectator in &self.spectators {
            world.set_avatar(*spectator, Some(leader));
            world.set_viewpoint(*spectator, position);
        }
    }
}

impl Simulation for TagGame {
    fn grid(&self) -> GridShape {
        self.map
    }

    fn schema(&self) -> Schema {
        objects::schema()
    }

    fn rewind_ticks(&self) -> u8 {
        REWIND_TICKS_MAX
    }

    fn start(&mut self, world: &mut World) {
        self.round.list(world);
        for number in 1..=self.bots {
            // A full world has fewer bots.
            let Ok((id, runner)) = TagRunner::enter(world, bot::looks(number), "", bot::driver()) else { return };
            self.insert(id, runner);
        }
    }

    fn join(&mut self, world: &mut World, player: PlayerId, visitor: &Visitor<'_>, data: &[u8]) -> Result<(), Refusal> {
        let looks = Looks::read(data, "Runner", player.0)?.with_name_of(visitor.info);
        let driver = Driver::Player { id: player, last_input_tick: world.tick() };
        let full = |_| Refusal { code: FULL, message: "the world is full".into() };
        let (id, runner) = TagRunner::enter(world, looks, visitor.user, driver).map_err(full)?;
        world.set_avatar(player, Some(id));
        let _ = world.emit(Scope::Player(player), &report::welcome(&runner, &self.round));
        self.players.insert(player, id);
        self.insert(id, runner);
        self.round.is_changed = true;
        Ok(())
    }

    fn leave(&mut self, world: &mut World, player: PlayerId) {
        let Some(id) = self.players.remove(&player) else { return };
        if let Some(runner) = self.runners.remove(&id) {
            runner.exit(world);
            self.text_bytes -= text_bytes(&runner);
        }
        self.round.is_changed = true;
    }

    fn away(&mut self, world: &mut World, player: PlayerId) {
        self.runner_of(player).into_iter().for_each(|runner| runner.go_away(world));
    }

    fn back(&mut self, world: &mut World, player: PlayerId, _: &Visitor<'_>) {
        self.runner_of(player).into_iter().for_each(|runner| runner.come_back(world));
        self.round.is_changed = true;
    }

    fn spectate(&mut self, _: &mut World, spectator: PlayerId, _: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
        self.spectators.insert(spectator);
        self.round.is_changed = true;
        Ok(())
    }

    fn spectator_left(&mut self, _: &mut World, spectator: PlayerId) {
        self.spectators.remove(&spectator);
    }

    fn input(&mut self, world: &mut World, player: PlayerId, data: &[u8]) -> Result<(), InputError> {
        let input = TagInput::read(data).ok_or(InputError)?;
        let is_playing = self.round.is_playing();
        let runner = self.runner_of(player).ok_or(InputError)?;
        runner.driver = Driver::Player { id: player, last_input_tick: world.tick() };
        match input {
            TagInput::Run(velocity) => runner.run(world, velocity),
            TagInput::Shoot { seen_tick, angle } if is_playing => {
                // The shot is judged at the time that the shooter saw, so it is rewound by the age of the shooter's
                // view.
                let lag_max = REWIND_MS * world.ticks_per_second() / 1_000;
                let lag_ticks = (world.tick() - world.rewind(seen_tick).tick()).min(lag_max);
                let shot = runner.shoot(world, angle, lag_ticks);
                self.shots.extend(shot);
            }
            TagInput::Shoot { .. } => {}
        }
        Ok(())
    }

    fn message(&mut self, world: &mut World, data: &[u8]) -> Result<Vec<u8>, Refusal> {
        let command = round::RoundCommand::read(data)?;
        if let Some(score_limit) = command.score_limit {
            self.round.score_limit = score_limit;
            self.round.is_changed = true;
        }
        if command.starts_round {
            self.begin_round(world);
        }
        Ok(report::state(&self.round, self.players.len()).into_bytes())
    }

    fn answer(&mut self, world: &mut World, call: CallId, outcome: Result<&[u8], CallError>) {
        let round = self.results.end(world, call, &outcome);
        // The backend may have begun another round in the meantime.
        if round == Some(self.round.number) && self.round.is_last() && !self.round.is_playing() {
            world.close(round::LAST_ROUND_OVER);
        }
    }

    fn tick(&mut self, world: &mut World) {
        if self.round.is_due(world) {
            self.begin_round(world);
        }
        self.fly_shots(world);
        self.move_runners(world);
        self.kick_idle(world);
        self.show_leader(world);
        self.round.report(world, &self.runners);
    }

    fn save(&self, out: &mut Vec<u8>) {
        self.write(out);
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), RestoreError> {
        self.read(saved)
    }

    fn memory_bytes(&self) -> usize {
        // It is asked after each tick, so it visits no runner.
        self.text_bytes
            + self.runners.len() * size_of::<(ObjectId, TagRunner)>()
            + self.players.len() * size_of::<(PlayerId, ObjectId)>()
            + self.spectators.len() * size_of::<PlayerId>()
            + self.shots.len() * size_of::<(ObjectId, Shot)>()
            + self.results.memory_bytes()
    }
}

fn text_bytes(runner: &TagRunner) -> usize {
    runner.looks.name.len() + runner.user.len()
}

#[cfg(test)]
mod tests;
