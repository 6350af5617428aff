//! Stars: a player who touches the star scores a point, and the star moves elsewhere.

use std::{collections::BTreeMap, process::ExitCode};

use dunlin_game::{
    GridShape, InputError, NewObject, ObjectId, PlayerId, Position, Refusal, Registry, RestoreError, Schema, Scope,
    Simulation, Visibility, Visitor, World,
    serde_json::{self, Value},
    state,
};

/// A side of the field in units: 16 cells of 256.
const FIELD: u32 = 4_096;

/// Runners begin so close to each other that they see each other.
const START: u32 = 400;

/// A longer name is cut.
const NAME_LETTERS_MAX: usize = 16;

/// The kind of stars. They have no state.
const STAR: u16 = 2;

state! {
    /// A runner: objects of kind 1.
    struct Runner: 1 {
        /// The step in each tick.
        dx: i8 [range(-8, 8)],
        dy: i8 [range(-8, 8)],
        points: u16,
        name: String [max(64)],
    }
}

#[derive(Default)]
struct Stars {
    star: Option<ObjectId>,
    runners: BTreeMap<PlayerId, ObjectId>,
}

/// A place in a square around the middle of the field.
fn place(world: &mut World, side: u32) -> Position {
    let [x, y] = std::array::from_fn(|_| (FIELD - side) / 2 + world.random_below(side));
    Position { x, y }
}

/// Makes a star anywhere.
fn new_star(world: &mut World) -> Option<ObjectId> {
    let position = place(world, FIELD);
    world.spawn(NewObject { position, kind: STAR, visibility: Visibility::Everyone, state: &[] }).ok()
}

/// The name in the data of a join, such as `{"name": "Ada"}`.
fn name_in(data: &[u8]) -> String {
    let data: Value = serde_json::from_slice(data).unwrap_or_default();
    let name = data.get("name").and_then(Value::as_str).unwrap_or_default();
    name.chars().filter(|letter| !letter.is_control()).take(NAME_LETTERS_MAX).collect()
}

impl Simulation for Stars {
    /// A player sees the whole field: what is near in each tick, and the rest four times per second.
    fn grid(&self) -> GridShape {
        GridShape { columns: 16, rows: 16, cell_units: 256, near_cells: 4, far_cells: 12, far_interval_ticks: 15 }
    }

    /// Clients that know the fields receive those that change, and their names.
    fn schema(&self) -> Schema {
        Schema::new().with::<Runner>()
    }

    fn start(&mut self, world: &mut World) {
        self.star = new_star(world);
    }

    fn join(&mut self, world: &mut World, player: PlayerId, _: &Visitor<'_>, data: &[u8]) -> Result<(), Refusal> {
        let full = |_| Refusal { code: 409, message: "the field is full".into() };
        let (position, runner) = (place(world, START), Runner { dx: 0, dy: 0, points: 0, name: name_in(data) });
        let runner = world.add(position, Visibility::Everyone, &runner).map_err(full)?;
        world.set_avatar(player, Some(runner));
        self.runners.insert(player, runner);
        Ok(())
    }

    fn leave(&mut self, world: &mut World, player: PlayerId) {
        self.runners.remove(&player).map(|runner| world.despawn(runner));
    }

    /// A closed tab presses no keys: without this, the runner would run on until the seat is given up.
    fn away(&mut self, world: &mut World, player: PlayerId) {
        let stop = |runner: &mut Runner| (runner.dx, runner.dy) = (0, 0);
        self.runners.get(&player).map(|runner| world.update(*runner, stop));
    }

    fn input(&mut self, world: &mut World, player: PlayerId, data: &[u8]) -> Result<(), InputError> {
        let runner = self.runners.get(&player).ok_or(InputError)?;
        let &[dx, dy] = data else { return Err(InputError) };
        let [dx, dy] = [dx, dy].map(|way| way.cast_signed().clamp(-8, 8));
        world.update(*runner, |runner: &mut Runner| (runner.dx, runner.dy) = (dx, dy)).map_err(|_| InputError)
    }

    fn tick(&mut self, world: &mut World) {
        for (player, runner) in &self.runners {
            let (Some(object), Some(Runner { dx, dy, .. })) = (world.object(*runner), world.get(*runner)) else {
                continue;
            };
            let place = object.position.moved(dx.into(), dy.into());
            world.move_to(*runner, place);
            world.set_viewpoint(*player, place);
            let star = self.star.and_then(|star| world.object(star)).map(|star| star.position);
            if star.is_some_and(|star| star.x.abs_diff(place.x).max(star.y.abs_diff(place.y)) < 32) {
                self.star.take().map(|star| world.despawn(star));
                self.star = new_star(world);
                let _ = world.update(*runner, |runner: &mut Runner| runner.points = runner.points.saturating_add(1));
                let _ = world.emit(Scope::All, &format!(r#"{{"star":{{"player":{}}}}}"#, runner.0));
            }
        }
    }

    fn save(&self, out: &mut Vec<u8>) {
        let star = self.star.map_or(0, |star| star.0);
        let runners = self.runners.iter().flat_map(|(player, runner)| [player.0, runner.0]);
        std::iter::once(star).chain(runners).for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), RestoreError> {
        let (numbers, []) = saved.as_chunks::<4>() else { return Err(RestoreError) };
        let numbers: Vec<u32> = numbers.iter().map(|number| u32::from_le_bytes(*number)).collect();
        let [star, runners @ ..] = numbers.as_slice() else { return Err(RestoreError) };
        let (runners, []) = runners.as_chunks::<2>() else { return Err(RestoreError) };
        self.star = (*star != 0).then_some(ObjectId(*star));
        self.runners = runners.iter().map(|[player, runner]| (PlayerId(*player), ObjectId(*runner))).collect();
        Ok(())
    }
}

fn main() -> ExitCode {
    dunlin_game::run(Registry::built_in().with("stars", |_| Ok(Box::new(Stars::default()))))
}
