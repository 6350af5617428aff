//! Stars: a player who touches the star scores a point, and the star moves elsewhere.

use std::{collections::BTreeMap, process::ExitCode};

use dunlin_game::{
    GridShape, InputError, NewObject, ObjectId, PlayerId, Position, Refusal, Registry, RestoreError, Scope, Simulation,
    Visibility, Visitor, World,
    serde_json::{self, Value},
};

/// A side of the field in units: 16 cells of 256.
const FIELD: u32 = 4_096;

/// Runners begin so close to each other that they see each other.
const START: u32 = 400;

/// A longer name is cut.
const NAME_LETTERS_MAX: usize = 16;

/// A runner's state is its step (2 bytes), its points (2 bytes) and its name.
const STEP: usize = 0;
const POINTS: usize = 2;

#[derive(Default)]
struct Stars {
    star: Option<ObjectId>,
    runners: BTreeMap<PlayerId, ObjectId>,
}

/// Makes an object in a square around the middle of the field.
fn spawn(world: &mut World, kind: u16, state: &[u8], side: u32) -> Option<ObjectId> {
    let [x, y] = std::array::from_fn(|_| (FIELD - side) / 2 + world.random_below(side));
    let position = Position { x, y };
    world.spawn(NewObject { position, kind, visibility: Visibility::Everyone, state }).ok()
}

/// Changes two bytes of a runner's state.
fn set(world: &mut World, runner: ObjectId, at: usize, bytes: [u8; 2]) -> Option<()> {
    let mut state = world.object(runner)?.state.clone();
    state.get_mut(at..at + 2)?.copy_from_slice(&bytes);
    world.set_state(runner, &state).ok()
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

    fn start(&mut self, world: &mut World) {
        self.star = spawn(world, 2, &[], FIELD);
    }

    fn join(&mut self, world: &mut World, player: PlayerId, _: &Visitor<'_>, data: &[u8]) -> Result<(), Refusal> {
        let full = || Refusal { code: 409, message: "the field is full".into() };
        let state = [&[0; 4], name_in(data).as_bytes()].concat();
        let runner = spawn(world, 1, &state, START).ok_or_else(full)?;
        world.set_avatar(player, Some(runner));
        self.runners.insert(player, runner);
        Ok(())
    }

    fn leave(&mut self, world: &mut World, player: PlayerId) {
        self.runners.remove(&player).map(|runner| world.despawn(runner));
    }

    /// A closed tab presses no keys: without this, the runner would run on until the seat is given up.
    fn away(&mut self, world: &mut World, player: PlayerId) {
        self.runners.get(&player).and_then(|runner| set(world, *runner, STEP, [0, 0]));
    }

    fn input(&mut self, world: &mut World, player: PlayerId, data: &[u8]) -> Result<(), InputError> {
        let runner = self.runners.get(&player).ok_or(InputError)?;
        let &[dx, dy] = data else { return Err(InputError) };
        let step = [dx, dy].map(|way| way.cast_signed().clamp(-8, 8).cast_unsigned());
        set(world, *runner, STEP, step).ok_or(InputError)
    }

    fn tick(&mut self, world: &mut World) {
        for (player, runner) in &self.runners {
            let Some(object) = world.object(*runner) else { continue };
            let &[dx, dy, low, high, ..] = object.state.as_slice() else { continue };
            let go = |at: u32, way: u8| at.saturating_add_signed(way.cast_signed().into());
            let place = Position { x: go(object.position.x, dx), y: go(object.position.y, dy) };
            world.move_to(*runner, place);
            world.set_viewpoint(*player, place);
            let star = self.star.and_then(|star| world.object(star)).map(|star| star.position);
            if star.is_some_and(|star| star.x.abs_diff(place.x).max(star.y.abs_diff(place.y)) < 32) {
                self.star.take().map(|star| world.despawn(star));
                self.star = spawn(world, 2, &[], FIELD);
                let points = u16::from_le_bytes([low, high]).saturating_add(1);
                set(world, *runner, POINTS, points.to_le_bytes());
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
