// The world of the documentation's examples, which include this file: 8 × 8 cells of 256 units, and one player.

use dunlin_rooms::{
    GridShape, InputError, NewObject, ObjectId, PlayerId, Position, Refusal, RestoreError, Room, RoomOptions,
    Simulation, Visibility, Visitor, World, WorldError,
};

struct Example<F>(Option<F>);

impl<F: FnOnce(&mut World, PlayerId) -> Result<(), WorldError> + Send> Simulation for Example<F> {
    fn grid(&self) -> GridShape {
        GridShape { columns: 8, rows: 8, cell_units: 256, near_cells: 2, far_cells: 0, far_interval_ticks: 1 }
    }

    fn start(&mut self, _: &mut World) {}

    fn join(&mut self, world: &mut World, player: PlayerId, _: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
        let act = self.0.take().expect("one player joins");
        act(world, player).expect("the example's calls succeed");
        Ok(())
    }

    fn leave(&mut self, _: &mut World, _: PlayerId) {}

    fn input(&mut self, _: &mut World, _: PlayerId, _: &[u8]) -> Result<(), InputError> {
        Ok(())
    }

    fn tick(&mut self, _: &mut World) {}

    fn save(&self, _: &mut Vec<u8>) {}

    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
}

pub fn in_world(act: impl FnOnce(&mut World, PlayerId) -> Result<(), WorldError> + Send + 'static) {
    let mut room = Room::new(RoomOptions::default(), 42, Box::new(Example(Some(act)))).expect("a possible map");
    let joined = room.join(&Visitor::of_user("ada"), dunlin_protocol::Encoding::Json, b"");
    assert!(joined.is_ok());
}

pub fn spawn_chest(world: &mut World) -> Result<ObjectId, WorldError> {
    let position = Position { x: 300, y: 300 };
    world.spawn(NewObject { position, kind: 7, visibility: Visibility::Everyone, state: b"full" })
}
