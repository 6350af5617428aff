//! The memory of a room that ticks does not grow, as the allocator counts it.

use std::sync::Arc;

use dunlin_engine::{
    ShardIndex,
    host::{RoomHost, Runner},
    room::{JoinParams, Opening, RoomKey, SeatClaim, SeatKey, ToRoom},
};
use dunlin_proof::allocations::in_use;
use dunlin_protocol::{ClientInfo, Encoding};
use dunlin_rooms::{
    GridShape, InputError, NewObject, ObjectId, PlayerId, Position, Refusal, RestoreError, Room, RoomOptions, Scope,
    Simulation, Visibility, Visitor, World,
};

use crate::hall::{TERMS, join_message};

const ROOM: RoomKey = RoomKey { owner: ShardIndex(0), number: 1 };
const SEAT: SeatKey = SeatKey { shard: ShardIndex(0), index: 1, generation: 1 };
const TICKS: u32 = 300;

/// Each input moves an object, replaces another one, and emits and publishes something. One that keeps also keeps a note.
struct Busy {
    mover: Option<ObjectId>,
    passing: Option<ObjectId>,
    keeps: bool,
    notes: Vec<Vec<u8>>,
}

impl Simulation for Busy {
    fn grid(&self) -> GridShape {
        GridShape { columns: 4, rows: 4, cell_units: 100, near_cells: 1, far_cells: 0, far_interval_ticks: 1 }
    }

    fn start(&mut self, world: &mut World) {
        let object = NewObject { position: Position::default(), kind: 1, visibility: Visibility::Everyone, state: b"" };
        self.mover = world.spawn(object).ok();
    }

    fn join(&mut self, _: &mut World, _: PlayerId, _: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
        Ok(())
    }

    fn leave(&mut self, _: &mut World, _: PlayerId) {}

    fn input(&mut self, world: &mut World, player: PlayerId, data: &[u8]) -> Result<(), InputError> {
        let position = Position { x: u32::from(data[0]) % 400, y: u32::from(data[0]) * 7 % 400 };
        world.move_to(self.mover.ok_or(InputError)?, position);
        if let Some(passing) = self.passing.take() {
            world.despawn(passing);
        }
        self.passing = world.spawn(NewObject { position, kind: 2, visibility: Visibility::Everyone, state: data }).ok();
        world.emit(Scope::Player(player), r#"{"psst":true}"#).map_err(|_| InputError)?;
        world.publish("board", r#"{"top":[]}"#).map_err(|_| InputError)?;
        if self.keeps {
            self.notes.push(vec![1; 100]);
        }
        Ok(())
    }

    fn tick(&mut self, _: &mut World) {}

    fn save(&self, _: &mut Vec<u8>) {}

    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
}

/// The bytes by which a room with a player grows from one round of ticks to the next, after a first round that fills what
/// has a bound.
fn growth(keeps: bool) -> isize {
    let game = Busy { mover: None, passing: None, keeps, notes: Vec::new() };
    let room = Room::new(RoomOptions::default(), 1, Box::new(game)).expect("a map");
    let mut host = RoomHost::new(ROOM, Arc::from("arena:a"), room.grid().clone(), TERMS);
    let mut runner = Runner::new(room);
    let params = JoinParams {
        seat: SEAT,
        info: Arc::new(ClientInfo::of_user("ann")),
        address: None,
        is_spectator: false,
        is_typed: false,
        data: bytes::Bytes::new(),
        opening: Opening::Reserved,
        claim: SeatClaim::default(),
        waits_until_us: 0,
        held_until_us: 0,
    };
    host.take(join_message(ROOM, params, Encoding::Json));
    let mut round = |first: u32| {
        for number in first..first + TICKS {
            let data = bytes::Bytes::copy_from_slice(&(number as u8).to_le_bytes());
            host.take(ToRoom::Input { room: ROOM, seat: SEAT, number, data });
            let batch = host.begin();
            let done = runner.run(&batch, u64::from(number));
            let mut outgoing = Vec::new();
            host.finish(done, &mut outgoing);
            assert!(!outgoing.is_empty());
        }
        in_use().bytes
    };
    let [_, before, after] = [1, 1_001, 2_001].map(&mut round);
    assert_eq!(runner.undecodable_inputs(), 0);
    after - before
}

#[test]
fn the_memory_of_a_room_that_ticks_does_not_grow() {
    let grown = growth(false);
    assert!(grown.abs() < 2_048, "it grows by {grown} bytes in {TICKS} ticks");
    let kept = growth(true);
    assert!(kept >= 100 * TICKS.cast_signed() as isize, "{kept} bytes are kept");
}
