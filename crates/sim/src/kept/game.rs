//! The game of the room. Each player has a mark, an object that moves at random and has the last input as its state.

use dunlin_rooms::{
    GridShape, InputError, NewObject, PlayerId, Position, Refusal, RestoreError, Simulation, Visibility, Visitor, World,
};

const SIDE_UNITS: u32 = 300;

/// All players see all objects.
const SHAPE: GridShape =
    GridShape { columns: 3, rows: 3, cell_units: 100, near_cells: 3, far_cells: 0, far_interval_ticks: 1 };

/// The game. Its only state besides the world is the number of inputs.
#[derive(Default)]
pub struct Marks {
    inputs: u32,
}

fn random_position(world: &mut World) -> Position {
    Position { x: world.random_below(SIDE_UNITS), y: world.random_below(SIDE_UNITS) }
}

/// The state of a mark before the first input. It makes a replay with other addresses differ.
fn address_of(visitor: &Visitor<'_>) -> Vec<u8> {
    visitor.address.map(|address| address.to_string()).unwrap_or_default().into_bytes()
}

impl Simulation for Marks {
    fn grid(&self) -> GridShape {
        SHAPE
    }

    fn start(&mut self, _: &mut World) {}

    fn join(&mut self, world: &mut World, player: PlayerId, visitor: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
        let position = random_position(world);
        let state = address_of(visitor);
        let mark = NewObject { position, kind: 1, visibility: Visibility::Everyone, state: &state };
        let mark = world.spawn(mark).ok();
        world.set_avatar(player, mark);
        Ok(())
    }

    fn back(&mut self, world: &mut World, player: PlayerId, visitor: &Visitor<'_>) {
        if let Some(mark) = world.avatar_of(player) {
            let _ = world.set_state(mark, &address_of(visitor));
        }
    }

    fn leave(&mut self, world: &mut World, player: PlayerId) {
        if let Some(mark) = world.avatar_of(player) {
            world.despawn(mark);
        }
    }

    fn input(&mut self, world: &mut World, player: PlayerId, data: &[u8]) -> Result<(), InputError> {
        self.inputs += 1;
        let mark = world.avatar_of(player).ok_or(InputError)?;
        let state = [data, &self.inputs.to_le_bytes()].concat();
        world.set_state(mark, &state).map_err(|_| InputError)
    }

    fn tick(&mut self, world: &mut World) {
        let marks: Vec<_> = world.players().filter_map(|player| world.avatar_of(player)).collect();
        for mark in marks {
            if world.random_below(3) == 0 {
                let position = random_position(world);
                world.move_to(mark, position);
            }
        }
    }

    fn save(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.inputs.to_le_bytes());
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), RestoreError> {
        self.inputs = u32::from_le_bytes(saved.try_into().map_err(|_| RestoreError)?);
        Ok(())
    }
}
