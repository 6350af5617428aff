//! A keyframe for a shard that is new to a room, followed by the tick's update, produces the world.

use std::sync::Arc;

use dunlin_engine::{
    ShardIndex,
    host::{HostOptions, RoomHost, Runner},
    room::{Departure, FromRoom, JoinParams, Opening, RoomKey, SeatClaim, SeatKey, ToRoom},
};
use dunlin_protocol::{ClientInfo, Encoding};
use dunlin_rooms::{
    Base, CellIndex, GridShape, InputError, Mirror, NewObject, ObjectId, PlayerId, Position, Refusal, Replica,
    RestoreError, Room, RoomOptions, Schema, Simulation, SnapshotFormat, Visibility, Visitor, World, state,
    wire::write_player_header,
};

use crate::hall::{TERMS, join_message};

const ROOM: RoomKey = RoomKey { owner: ShardIndex(0), number: 1 };

state! {
    /// A kind that no object has.
    struct Lamp: 3 {
        is_on: bool,
    }
}

/// A tick reverts or extends what an input or a join did: the walker goes two cells to the right, and sparks exist only
/// in between.
#[derive(Default)]
struct Blink {
    /// What the game declares.
    schema: Schema,
    walker: Option<ObjectId>,
    sparks: Vec<ObjectId>,
}

impl Blink {
    fn step(&mut self, world: &mut World) {
        let walker = self.walker.expect("made at the start");
        let at = world.object(walker).expect("it is never removed").position;
        world.move_to(walker, Position { x: at.x + 10, y: at.y });
    }

    fn spark(&mut self, world: &mut World) {
        let position = Position { x: 45, y: 0 };
        let spark = NewObject { position, kind: 2, visibility: Visibility::Everyone, state: b"" };
        self.sparks.push(world.spawn(spark).expect("room for a spark"));
    }
}

impl Simulation for Blink {
    fn grid(&self) -> GridShape {
        GridShape { columns: 9, rows: 1, cell_units: 10, near_cells: 9, far_cells: 0, far_interval_ticks: 1 }
    }

    fn schema(&self) -> Schema {
        self.schema.clone()
    }

    fn start(&mut self, world: &mut World) {
        let walker = NewObject { position: Position::default(), kind: 1, visibility: Visibility::Everyone, state: b"" };
        self.walker = Some(world.spawn(walker).expect("room for one"));
    }

    fn join(&mut self, world: &mut World, _: PlayerId, _: &Visitor<'_>, data: &[u8]) -> Result<(), Refusal> {
        if data == b"no" {
            return Err(Refusal { code: 450, message: "not today".into() });
        }
        self.step(world);
        self.spark(world);
        Ok(())
    }

    fn leave(&mut self, _: &mut World, _: PlayerId) {}

    fn input(&mut self, world: &mut World, _: PlayerId, _: &[u8]) -> Result<(), InputError> {
        self.step(world);
        self.spark(world);
        Ok(())
    }

    fn tick(&mut self, world: &mut World) {
        self.step(world);
        for spark in self.sparks.drain(..) {
            world.despawn(spark);
        }
    }

    fn save(&self, _: &mut Vec<u8>) {}

    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
}

fn join(index: u32, shard: u16, encoding: Encoding) -> ToRoom {
    let seat = SeatKey { shard: ShardIndex(shard), index, generation: 1 };
    let opening = Opening::Reserved;
    let claim = SeatClaim::default();
    let params = JoinParams {
        seat,
        info: Arc::new(ClientInfo::of_user("")),
        address: None,
        is_spectator: false,
        is_typed: false,
        data: bytes::Bytes::new(),
        opening,
        claim,
        waits_until_us: 0,
        held_until_us: 0,
    };
    join_message(ROOM, params, encoding)
}

/// A join of a client that asks for the fields of states.
fn typed_join(index: u32, shard: u16, encoding: Encoding) -> ToRoom {
    let ToRoom::Join { room, mut request } = join(index, shard, encoding) else { unreachable!("a join") };
    if let Some(params) = &mut request.join {
        params.is_typed = true;
    }
    ToRoom::Join { room, request }
}

/// A join that the game refuses.
fn refused(index: u32, shard: u16) -> ToRoom {
    let ToRoom::Join { room, mut request } = join(index, shard, Encoding::Json) else { unreachable!("a join") };
    if let Some(params) = &mut request.join {
        params.data = bytes::Bytes::from_static(b"no");
    }
    ToRoom::Join { room, request }
}

fn leave(index: u32, shard: u16) -> ToRoom {
    let seat = SeatKey { shard: ShardIndex(shard), index, generation: 1 };
    ToRoom::Leave { room: ROOM, seat, departure: Departure::Left }
}

/// What a tick is about, the joins and leaves, whether the world is encoded, and the shards that receive a keyframe.
type Tick = (&'static str, Vec<ToRoom>, bool, &'static [u16]);

/// Runs the ticks of a room. Returns the forms of the last update.
fn check_keyframes(schema: Schema, ticks: impl IntoIterator<Item = Tick>) -> Vec<SnapshotFormat> {
    let blink = Blink { schema, ..Blink::default() };
    let room = Room::new(RoomOptions::default(), 1, Box::new(blink)).expect("a map");
    let terms = HostOptions { shard_count: 2, ..TERMS };
    let mut host = RoomHost::new(ROOM, Arc::from("arena:a"), room.grid().clone(), terms);
    let mut runner = Runner::new(room);
    let mut formats = Vec::new();
    for (what, messages, is_encoded, expected_shards) in ticks {
        for message in messages {
            host.take(message);
        }
        let batch = host.begin();
        let done = runner.run(&batch, 0);
        assert_eq!(done.has_keyframe(), is_encoded, "{what}");
        let mut outgoing = Vec::new();
        host.finish(done, &mut outgoing);
        let is_keyframe = |(_, message): &&(ShardIndex, FromRoom)| matches!(message, FromRoom::Keyframe { .. });
        let shards: Vec<u16> = outgoing.iter().filter(is_keyframe).map(|(shard, _)| shard.0).collect();
        assert_eq!(shards, expected_shards, "{what}");
        let update = outgoing.iter().find_map(|(_, message)| match message {
            FromRoom::Tick { update, .. } => Some(update),
            _ => None,
        });
        formats = update.map(|update| update.formats().iter().collect()).unwrap_or_default();
    }
    formats
}

#[test]
fn a_client_that_asks_for_fields_needs_a_keyframe_only_for_objects_of_its_own() {
    use Encoding::{Json, Protobuf};
    let ticks: [Tick; 8] = [
        ("the first", vec![join(0, 0, Protobuf)], true, &[0]),
        ("fields, beside whole states", vec![typed_join(1, 0, Protobuf)], false, &[]),
        ("the last with fields goes", vec![leave(1, 0)], false, &[]),
        ("one comes again", vec![typed_join(2, 0, Protobuf)], false, &[]),
        ("the first on another shard", vec![typed_join(0, 1, Protobuf)], true, &[1]),
        ("whole states, beside fields", vec![join(1, 1, Protobuf)], false, &[]),
        ("names of fields", vec![typed_join(3, 0, Json)], true, &[0]),
        ("no names, beside names", vec![join(4, 0, Json)], true, &[0]),
    ];
    assert_eq!(check_keyframes(Schema::new().with::<Lamp>(), ticks), SnapshotFormat::ALL);
}

#[test]
fn without_declared_fields_a_client_that_asks_for_them_shares_the_frames_of_others() {
    use Encoding::{Json, Protobuf};
    let ticks: [Tick; 3] = [
        ("the first", vec![join(0, 0, Json), join(1, 0, Protobuf)], true, &[0]),
        ("others that ask", vec![typed_join(2, 0, Json), typed_join(3, 0, Protobuf)], false, &[]),
        ("nobody", vec![], false, &[]),
    ];
    assert_eq!(check_keyframes(Schema::new(), ticks), [SnapshotFormat::Json, SnapshotFormat::Protobuf]);
}

#[test]
fn joins_and_leaves_beside_others_need_no_keyframe() {
    use Encoding::{Json, Protobuf};
    let ticks: [Tick; 11] = [
        ("refused where nobody is", vec![refused(9, 0)], true, &[]),
        ("the first", vec![join(0, 0, Json), join(1, 0, Json)], true, &[0]),
        ("another one", vec![join(2, 0, Json)], false, &[]),
        ("one comes, one goes", vec![leave(1, 0), join(3, 0, Json), leave(2, 0), join(4, 0, Json)], false, &[]),
        ("one goes, one is refused", vec![leave(3, 0), refused(9, 0)], false, &[]),
        ("the last goes behind one who comes", vec![join(5, 0, Json), leave(0, 0), leave(4, 0)], false, &[]),
        ("the last goes before one who comes", vec![leave(5, 0), join(6, 0, Json)], true, &[0]),
        ("the first on another shard, in another encoding", vec![join(0, 1, Protobuf)], true, &[1]),
        ("the first here with it", vec![join(7, 0, Protobuf)], true, &[0]),
        ("the last here with it goes", vec![leave(7, 0)], false, &[]),
        ("it is still known", vec![join(8, 0, Protobuf)], false, &[]),
    ];
    check_keyframes(Schema::new(), ticks);
}

#[test]
fn changes_before_a_tick_are_not_in_the_previous_world() {
    let room = Room::new(RoomOptions::default(), 1, Box::<Blink>::default()).expect("a map");
    let grid = room.grid().clone();
    let terms = HostOptions { shard_count: 2, ..TERMS };
    let mut host = RoomHost::new(ROOM, Arc::from("arena:a"), grid.clone(), terms);
    let mut runner = Runner::new(room);
    let mut mirrors: [Option<Mirror>; 2] = [None, None];
    let arrivals = [Some((0, 0, Encoding::Json)), None, Some((1, 0, Encoding::Protobuf)), Some((0, 1, Encoding::Json))];
    for (tick, arrival) in arrivals.into_iter().enumerate() {
        if let Some((index, shard, encoding)) = arrival {
            host.take(join(index, shard, encoding));
        }
        if tick > 0 {
            let seat = SeatKey { shard: ShardIndex(0), index: 0, generation: 1 };
            host.take(ToRoom::Input { room: ROOM, seat, number: tick as u32, data: bytes::Bytes::new() });
        }
        let batch = host.begin();
        let done = runner.run(&batch, 0);
        let mut outgoing = Vec::new();
        host.finish(done, &mut outgoing);
        for (shard, message) in outgoing {
            let mirror = &mut mirrors[usize::from(shard.0)];
            match (message, mirror) {
                (FromRoom::Keyframe { keyframe, .. }, Some(mirror)) => mirror.apply(keyframe),
                (FromRoom::Keyframe { keyframe, .. }, mirror) => {
                    *mirror = Some(Mirror::new(grid.clone(), 60, keyframe, [b""; Encoding::ALL.len()]));
                }
                (FromRoom::Tick { update, .. }, Some(mirror)) => mirror.apply(update),
                _ => {}
            }
        }
        for mirror in mirrors.iter_mut().flatten() {
            let body = mirror.body(Encoding::Json, CellIndex(0), Base::default());
            let mut data = Vec::new();
            write_player_header(Encoding::Json, 0, 0, None, &mut data);
            data.extend_from_slice(&body.bytes);
            let mut replica = Replica::default();
            replica.apply(Encoding::Json, &data).expect("a snapshot");
            assert_eq!(replica.objects().count(), runner.room().object_count(), "tick {}", tick + 1);
            for (cell, _) in grid.visible(CellIndex(0)) {
                assert_eq!(
                    replica.cell_hash(cell),
                    runner.room().world().cell_hash(cell),
                    "tick {}, {cell:?}",
                    tick + 1
                );
            }
        }
    }
    assert!(mirrors.iter().all(Option::is_some));
}
