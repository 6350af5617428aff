use std::sync::Arc;

use dunlin_protocol::Encoding;
use proptest::prelude::*;

use super::{block::BlockWriter, *};
use crate::{
    GridShape, InputError, NewObject, ObjectId, PlayerId, Position, Refusal, RestoreError, Room, RoomOptions,
    Simulation, Visibility, Visitor, World,
};

fn header(user: &str) -> BlockHeader<'_> {
    BlockHeader {
        player: PlayerId(7),
        avatar: Some(ObjectId(300)),
        user,
        ticks_per_second: 60,
        interval_ticks: 1,
        first_tick: 1_000,
        first_ms: 1_700_000_000_000,
    }
}

fn at(tick: u32, x: u32, y: u32) -> PathPoint {
    PathPoint { tick, position: Position { x, y } }
}

fn points() -> impl Strategy<Value = Vec<PathPoint>> {
    let step = (
        prop_oneof![4 => Just(1_u32), 1 => 1..100_u32],
        -30..30_i32,
        -30..30_i32,
        prop::bool::weighted(0.05),
        any::<(u32, u32)>(),
    );
    (any::<(u32, u32)>(), prop::collection::vec(step, 0..300)).prop_map(|((x, y), steps)| {
        let mut points = vec![at(1_000, x, y)];
        for (ticks, dx, dy, jumps, (x, y)) in steps {
            let PathPoint { tick, position } = *points.last().expect("one at least");
            let walked = at(tick + ticks, position.x.saturating_add_signed(dx), position.y.saturating_add_signed(dy));
            points.push(if jumps { at(tick + ticks, x, y) } else { walked });
        }
        points
    })
}

proptest! {
    #[test]
    fn blocks_round_trip(points in points(), user in ".{0,20}") {
        let mut block = BlockWriter::default();
        block.begin(&header(&user), points[0].position);
        for point in &points[1..] {
            prop_assert!(block.add(*point));
        }
        let decoded = decode_block(block.bytes());
        prop_assert_eq!(decoded, Ok(DecodedBlock { header: header(&user), points }));
        prop_assert_eq!(read_header(block.bytes()), Ok(header(&user)));
        let cut = &block.bytes()[..block.bytes().len() / 2];
        let _ = decode_block(cut);
    }

    #[test]
    fn decoding_arbitrary_bytes_does_not_panic(mut bytes: Vec<u8>) {
        let _ = decode_block(&bytes);
        bytes.insert(0, 1);
        let _ = decode_block(&bytes);
    }
}

/// Version 1, as released: no later version may decode it differently.
#[test]
fn the_format_is_fixed() {
    let mut block = BlockWriter::default();
    block.begin(&header("ada"), Position { x: 500, y: 20 });
    for point in [at(1_001, 510, 20), at(1_002, 521, 20), at(1_003, 531, 13), at(1_090, 400, 13)] {
        assert!(block.add(point));
    }
    let expected = [
        1, 7, 172, 2, 3, b'a', b'd', b'a', 60, 1, 232, 7, 128, 208, 149, 255, 188, 49, 244, 3, 20, // header
        255, 1, 20, 0,   // full: 10, 0
        127, // 1, 0
        90,  // -1, -7
        255, 87, 133, 2, 0, // full: -131, 0
    ];
    assert_eq!(block.bytes(), expected);
    assert_eq!(block.points(), 5);
    let times: Vec<u64> = [1_000, 1_001, 1_003, 1_090].map(|tick| header("").time_ms(tick) - 1_700_000_000_000).into();
    assert_eq!(times, [0, 16, 50, 1_500]);
}

#[test]
fn the_size_of_a_block_is_limited() {
    let mut block = BlockWriter::default();
    block.begin(&header("ada"), Position::default());
    let mut tick = 1_000;
    while block.add(at(tick + 1, 0, 0)) {
        tick += 1;
    }
    assert!(block.bytes().len() <= PATH_BLOCK_BYTES_MAX && block.bytes().len() > PATH_BLOCK_BYTES_MAX - 32);
    assert_eq!(decode_block(block.bytes()).expect("a block").points.len() as u32, tick - 1_000 + 1);
    assert_eq!(decode_block(&[block.bytes(), &[112; 32]].concat()), Err(UnreadableBlock), "more than a block");
    let mut block = BlockWriter::default();
    block.begin(&header(&"ä".repeat(4_000)), Position::default());
    assert_eq!(read_header(block.bytes()).expect("a header").user.len(), 1_024);
}

/// Players walk to the right at the speed that their input sets; one without an avatar moves its viewpoint.
struct Walking {
    speed: u32,
}

impl Simulation for Walking {
    fn grid(&self) -> GridShape {
        GridShape { columns: 64, rows: 4, cell_units: 512, near_cells: 1, far_cells: 0, far_interval_ticks: 1 }
    }

    fn start(&mut self, _: &mut World) {}

    fn join(&mut self, world: &mut World, player: PlayerId, _: &Visitor<'_>, data: &[u8]) -> Result<(), Refusal> {
        if data.is_empty() {
            let position = Position { x: 10, y: 20 };
            let object = NewObject { position, kind: 1, visibility: Visibility::Everyone, state: &[] };
            let avatar = world.spawn(object).expect("there is room");
            world.set_avatar(player, Some(avatar));
        }
        Ok(())
    }

    fn leave(&mut self, _: &mut World, _: PlayerId) {}

    fn input(&mut self, _: &mut World, _: PlayerId, data: &[u8]) -> Result<(), InputError> {
        self.speed = u32::from(data[0]);
        Ok(())
    }

    fn tick(&mut self, world: &mut World) {
        let players: Vec<_> = world.player_positions().collect();
        for (player, avatar, Position { x, y }) in players {
            let to = Position { x: x + self.speed, y };
            match avatar {
                Some(avatar) => world.move_to(avatar, to),
                None => world.set_viewpoint(player, to),
            }
        }
    }

    fn save(&self, _: &mut Vec<u8>) {}

    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
}

struct Recorded {
    room: Room,
    tracker: PathTracker,
    blocks: Vec<FinishedBlock>,
}

impl Recorded {
    fn new(interval_ticks: u32, block_ticks: u32) -> Self {
        let room = Room::new(RoomOptions::default(), 1, Box::new(Walking { speed: 0 })).expect("possible");
        Self { room, tracker: PathTracker::new(PathTerms { interval_ticks, block_ticks }), blocks: Vec::new() }
    }

    fn join(&mut self, user: &str, data: &[u8]) -> PlayerId {
        let player = self.room.join(&Visitor::of_user(user), Encoding::Json, data).expect("there is room").player;
        self.tracker.join(player, &Arc::from(user));
        player
    }

    fn tick(&mut self, count: u32) {
        for _ in 0..count {
            self.room.tick(0);
            let time_ms = u64::from(self.room.tick_number()) * 1_000 / 60;
            self.tracker.observe(&self.room, time_ms, &mut |block| self.blocks.push(block));
        }
    }

    fn speed(&mut self, player: PlayerId, speed: u8) {
        assert!(self.room.input(player, 1, &[speed]));
    }

    fn points(&self, player: PlayerId) -> Vec<(u32, u32)> {
        let blocks = self.blocks.iter().filter(|block| block.player == player);
        let points = blocks.flat_map(|block| decode_block(&block.bytes).expect("a block").points);
        points.map(|point| (point.tick, point.position.x)).collect()
    }

    fn end(&mut self) {
        self.tracker.finish(&mut |block| self.blocks.push(block));
    }
}

#[test]
fn players_are_recorded_while_they_move() {
    let mut recorded = Recorded::new(1, 600);
    let (ada, nobody) = (recorded.join("ada", b""), recorded.join("", b"looks"));
    recorded.tick(2);
    recorded.speed(ada, 3);
    recorded.tick(2);
    recorded.speed(ada, 0);
    recorded.tick(100);
    recorded.speed(ada, 5);
    recorded.tick(1);
    assert_eq!(recorded.blocks, []);
    recorded.room.leave(ada);
    recorded.tick(1);
    assert_eq!(recorded.points(ada), [(1, 10), (3, 13), (4, 16), (105, 21)]);
    assert_eq!(recorded.points(nobody), [], "a present player's block is still open");
    recorded.end();
    assert_eq!(recorded.points(nobody), [(1, 0), (3, 3), (4, 6), (105, 11), (106, 16)]);
    let of = |player| recorded.blocks.iter().find(|block| block.player == player).expect("it has one");
    assert_eq!((&*of(ada).user, of(ada).points, of(ada).first_ms), ("ada", 4, 16));
    assert_eq!(&*of(nobody).user, "");
    assert!(read_header(&of(ada).bytes).expect("a block").avatar.is_some());
    assert_eq!(read_header(&of(nobody).bytes).expect("a block").avatar, None);
}

#[test]
fn blocks_end_by_time_and_when_they_are_full() {
    let mut recorded = Recorded::new(1, 300);
    let players: Vec<_> = (0..20).map(|_| recorded.join("", b"")).collect();
    recorded.speed(players[0], 1);
    recorded.tick(900);
    let mut most = 0;
    for player in &players {
        let ticks: Vec<u32> = recorded.points(*player).into_iter().map(|(tick, _)| tick).collect();
        assert!(ticks.len() >= 300 && ticks.windows(2).all(|pair| pair[1] == pair[0] + 1), "no point is missing");
        let blocks = recorded.blocks.iter().filter(|block| block.player == *player);
        assert!(blocks.clone().all(|block| block.points <= 300));
        most = most.max(blocks.count());
    }
    assert_eq!(most, 3, "a short first block, and two full ones");

    let mut recorded = Recorded::new(1, u32::MAX);
    let player = recorded.join("", b"");
    recorded.speed(player, 1);
    recorded.tick(5_000);
    assert_eq!(recorded.blocks.len(), 1);
    assert!(recorded.blocks[0].bytes.len() <= PATH_BLOCK_BYTES_MAX);
    recorded.end();
    assert_eq!(recorded.points(player).len(), 5_000);
    assert!(recorded.tracker.memory_bytes() < 4 * PATH_BLOCK_BYTES_MAX);
}

#[test]
fn an_interval_skips_ticks() {
    let mut recorded = Recorded::new(6, 600);
    let player = recorded.join("", b"");
    recorded.speed(player, 2);
    recorded.tick(30);
    recorded.end();
    assert_eq!(recorded.points(player), [(6, 22), (12, 34), (18, 46), (24, 58), (30, 70)]);
    let lengths: Vec<usize> = recorded.blocks.iter().map(|block| block.bytes.len()).collect();
    assert!(lengths[0] < 32, "each point but the second is one byte: {lengths:?}");
}

#[test]
fn restored_players_are_recorded_even_if_the_clock_goes_back() {
    let mut recorded = Recorded::new(1, 1);
    let player = recorded.room.join(&Visitor::of_user("ada"), Encoding::Json, b"").expect("there is room").player;
    recorded.speed(player, 1);
    for time_ms in [50, 40, 60] {
        recorded.room.tick(0);
        recorded.tracker.observe(&recorded.room, time_ms, &mut |block| recorded.blocks.push(block));
    }
    recorded.end();
    let times: Vec<u64> = recorded.blocks.iter().map(|block| block.first_ms).collect();
    assert_eq!(times, [50, 51, 60]);
    assert!(recorded.blocks.iter().all(|block| block.user.is_empty()));
}
