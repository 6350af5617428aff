//! Counts the allocations of a tick: a few buffers per form, independent of the number of players and changed
//! cells.

use dunlin_proof::allocations::allocations_of;
use dunlin_rooms::{
    GridShape, InputError, ObjectId, PlayerId, Position, Refusal, RestoreError, Room, RoomOptions, Schema, Simulation,
    SnapshotFormat, Visibility, Visitor, World, state,
};

const CELL_UNITS: u32 = 100;
const COLUMNS: u16 = 32;
const TICKS: usize = 100;

state! {
    /// A circling object.
    struct Circler: 1 {
        tick: u32,
        is_round: bool,
    }
}

/// An object circles in each of the first `cells` cells. Players only watch and send inputs.
struct Circling {
    cells: u32,
    objects: Vec<ObjectId>,
}

/// The offset of a circling object from the corner of its cell.
fn offset(tick: u32) -> Position {
    [(10, 10), (90, 10), (90, 90), (10, 90)].map(|(x, y)| Position { x, y })[tick as usize % 4]
}

impl Circling {
    fn place(cell: u32, tick: u32) -> Position {
        let Position { x, y } = offset(tick);
        let columns = u32::from(COLUMNS);
        Position { x: cell % columns * CELL_UNITS + x, y: cell / columns * CELL_UNITS + y }
    }
}

impl Simulation for Circling {
    fn grid(&self) -> GridShape {
        GridShape {
            columns: COLUMNS,
            rows: COLUMNS,
            cell_units: CELL_UNITS,
            near_cells: 1,
            far_cells: 1,
            far_interval_ticks: 4,
        }
    }

    fn schema(&self) -> Schema {
        Schema::new().with::<Circler>()
    }

    fn start(&mut self, world: &mut World) {
        for cell in 0..self.cells {
            let position = Self::place(cell, 0);
            let circler = Circler { tick: 0, is_round: true };
            self.objects.push(world.add(position, Visibility::Everyone, &circler).expect("there is room"));
        }
    }

    fn join(&mut self, world: &mut World, player: PlayerId, _: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
        world.set_viewpoint(player, Position { x: player.0 % 3_200, y: player.0 * 7 % 3_200 });
        Ok(())
    }

    fn leave(&mut self, _: &mut World, _: PlayerId) {}

    fn input(&mut self, _: &mut World, _: PlayerId, _: &[u8]) -> Result<(), InputError> {
        Ok(())
    }

    fn tick(&mut self, world: &mut World) {
        let tick = world.tick();
        for (cell, &object) in self.objects.iter().enumerate() {
            world.move_to(object, Self::place(cell as u32, tick));
            world.update(object, |circler: &mut Circler| circler.tick = tick).expect("it is there");
        }
    }

    fn save(&self, _: &mut Vec<u8>) {}

    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
}

/// The average number of allocations in a tick, over [`TICKS`] ticks. In each tick the room applies an input of every
/// player and moves an object in each of `cells` cells.
fn allocations_per_tick(players: u32, cells: u32, formats: &[SnapshotFormat]) -> usize {
    let simulation = Box::new(Circling { cells, objects: Vec::new() });
    let mut room = Room::new(RoomOptions::default(), 1, simulation).expect("a map");
    for player in 0..players {
        let format = formats[player as usize % formats.len()];
        room.join(&Visitor::of_user(""), format, b"").expect("there is room");
    }
    let mut tick = |number: u32| {
        let (count, ()) = allocations_of(|| {
            for player in 1..=players {
                assert!(room.input(PlayerId(player), number, b""));
            }
            let outcome = room.tick(u64::from(number));
            assert_eq!((outcome.players.len(), outcome.update.cell_count()), (players as usize, cells as usize));
        });
        count
    };
    for number in 1..=20 {
        tick(number);
    }
    let all: usize = (21..).take(TICKS).map(&mut tick).sum();
    all.div_ceil(TICKS)
}

#[test]
fn the_allocations_of_a_tick_depend_only_on_the_formats() {
    for formats in [
        &[SnapshotFormat::Protobuf][..],
        &[SnapshotFormat::Json],
        &[SnapshotFormat::TypedProtobuf],
        &SnapshotFormat::ALL,
    ] {
        for cells in [0, 1, 40, 400] {
            let few = allocations_per_tick(10, cells, formats);
            let many = allocations_per_tick(1_000, cells, formats);
            assert_eq!(few, many, "{cells} cells, {formats:?}");
            // The typed form builds on the one with whole states.
            let bound = 5 + 6 * formats.len().max(2);
            assert!(many <= bound, "{many} allocations for {cells} cells, {formats:?}; at most {bound}");
        }
    }
}
