//! A small game for tests: objects drift, players push their own object, and some changes emit events.

use std::collections::BTreeMap;

use dunlin_rooms::{
    GridShape, InputError, NewObject, ObjectId, PlayerId, Position, Refusal, RestoreError, Scope, Simulation,
    Visibility, Visitor, World, WorldError,
};

const SHAPE: GridShape =
    GridShape { columns: 16, rows: 16, cell_units: 64, near_cells: 2, far_cells: 1, far_interval_ticks: 4 };

/// Accepts `TooManyEvents`, because a damaged recording may set the limit of events to zero.
fn expect_emitted(outcome: Result<(), WorldError>) {
    assert!(matches!(outcome, Ok(()) | Err(WorldError::TooManyEvents)), "{outcome:?}");
}

/// The game. All randomness comes from the world; the game itself keeps only the objects of players and a counter.
#[derive(Debug)]
struct Drift {
    objects: u32,
    inputs: u64,
    things: BTreeMap<PlayerId, Things>,
}

#[derive(Clone, Copy, Debug)]
struct Things {
    avatar: ObjectId,
    purse: ObjectId,
}

/// The game with `objects` objects.
pub fn drift(objects: u32) -> Box<dyn Simulation> {
    Box::new(Drift { objects, inputs: 0, things: BTreeMap::new() })
}

fn anywhere(world: &mut World) -> Position {
    let (width, height) = world.grid().size_units();
    Position { x: world.random_below(width), y: world.random_below(height) }
}

fn spawn(world: &mut World, visibility: Visibility, state: &[u8]) -> Option<ObjectId> {
    let position = anywhere(world);
    world.spawn(NewObject { position, kind: 3, visibility, state }).ok()
}

impl Simulation for Drift {
    fn grid(&self) -> GridShape {
        SHAPE
    }

    fn start(&mut self, world: &mut World) {
        for number in 0..self.objects {
            spawn(world, Visibility::Everyone, &number.to_le_bytes());
        }
    }

    fn join(&mut self, world: &mut World, player: PlayerId, visitor: &Visitor<'_>, data: &[u8]) -> Result<(), Refusal> {
        if let Some(code) = data.strip_prefix(b"no") {
            let code = std::str::from_utf8(code).ok().and_then(|code| code.parse().ok()).unwrap_or(0);
            return Err(Refusal { code, message: "no".into() });
        }
        let full = || Refusal { code: 450, message: "the world is full".into() };
        let avatar = spawn(world, Visibility::Everyone, visitor.user.as_bytes()).ok_or_else(full)?;
        let purse = spawn(world, Visibility::Owner(player), b"0").ok_or_else(full)?;
        self.things.insert(player, Things { avatar, purse });
        world.set_avatar(player, Some(avatar));
        let place = world.object(avatar).expect("it was just spawned").position;
        world.set_viewpoint(player, place);
        Ok(())
    }

    fn leave(&mut self, world: &mut World, player: PlayerId) {
        if let Some(things) = self.things.remove(&player) {
            world.despawn(things.avatar);
            world.despawn(things.purse);
        }
    }

    fn input(&mut self, world: &mut World, player: PlayerId, data: &[u8]) -> Result<(), InputError> {
        let &[right, down] = data else { return Err(InputError) };
        let things = self.things.get(&player).ok_or(InputError)?;
        let place = world.object(things.avatar).ok_or(InputError)?.position;
        let step = |from: u32, by: u8| from.saturating_add_signed(i32::from(by.cast_signed()));
        let place = Position { x: step(place.x, right), y: step(place.y, down) };
        world.move_to(things.avatar, place);
        world.set_viewpoint(player, place);
        self.inputs += 1;
        Ok(())
    }

    fn message(&mut self, world: &mut World, data: &[u8]) -> Result<Vec<u8>, Refusal> {
        let by = u64::from(world.random_below(10));
        let [code, ..] = data else { return Err(Refusal { code: 2_000, message: "say something".into() }) };
        if *code < 50 {
            return Err(Refusal { code: 450 + u16::from(*code), message: "no".into() });
        }
        self.inputs += by;
        Ok(self.inputs.to_string().into())
    }

    fn tick(&mut self, world: &mut World) {
        let tick = world.tick();
        let due = |id: ObjectId| (id.0 + tick).is_multiple_of(4);
        let drifting: Vec<(ObjectId, Position)> = world
            .objects()
            .filter(|(id, object)| due(*id) && object.visibility == Visibility::Everyone)
            .map(|(id, object)| (id, object.position))
            .collect();
        for (id, place) in drifting {
            let by = world.random_below(33);
            world.move_to(id, Position { x: (place.x + by).saturating_sub(16), y: place.y });
        }
        if tick.is_multiple_of(5) {
            let place = anywhere(world);
            let cell = world.grid().cell_of(place);
            let gone = world.objects_in(cell).map(|(id, _)| id).find(|id| id.0 <= self.objects);
            if gone.is_some_and(|id| world.despawn(id)) {
                spawn(world, Visibility::Everyone, b"new");
                expect_emitted(world.emit(Scope::Near(cell), "\"gone\""));
            }
        }
        for (&player, things) in &self.things {
            if (player.0 + tick).is_multiple_of(20) {
                world.set_state(things.purse, tick.to_string().as_bytes()).expect("it is there");
                expect_emitted(world.emit(Scope::Player(player), "{\"coin\":1}"));
            }
        }
        if tick.is_multiple_of(50) {
            expect_emitted(world.publish("scores", &self.inputs.to_string()));
        }
    }

    fn save(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.inputs.to_le_bytes());
        for (player, things) in &self.things {
            for number in [player.0, things.avatar.0, things.purse.0] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), RestoreError> {
        let (inputs, things) = saved.split_first_chunk().ok_or(RestoreError)?;
        self.inputs = u64::from_le_bytes(*inputs);
        let (numbers, rest) = things.as_chunks::<4>();
        let (things, odd) = numbers.as_chunks::<3>();
        if !rest.is_empty() || !odd.is_empty() {
            return Err(RestoreError);
        }
        self.things = things
            .iter()
            .map(|&[player, avatar, purse]| {
                let id = |bytes| ObjectId(u32::from_le_bytes(bytes));
                (PlayerId(u32::from_le_bytes(player)), Things { avatar: id(avatar), purse: id(purse) })
            })
            .collect();
        Ok(())
    }
}
