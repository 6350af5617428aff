//! Bytes of snapshots, counted without sockets: the same ticks of the same room for clients that know the fields of
//! states and for clients that do not. `docs/adr/0019-typed-state.md` has the figures.

use std::{collections::BTreeMap, sync::Arc};

use dunlin_rooms::{
    Base, CellIndex, FormatSet, GridShape, InputError, Mirror, ObjectId, PlayerId, Position, Refusal, Replica,
    RestoreError, Room, RoomOptions, Schema, Simulation, SnapshotFormat, TickUpdate, Visibility, Visitor, World, state,
    wire,
};
use serde_json::{Value, json};

use crate::{Registry, dice::Dice};

const FORMATS: [SnapshotFormat; 4] = SnapshotFormat::ALL;
const TICKS: u32 = 240;
/// Later snapshots are counted, when clients have what does not change.
const WARM_UP_TICKS: u32 = 60;

/// A client of one form, which receives each tick.
struct Client {
    format: SnapshotFormat,
    player: PlayerId,
    view: CellIndex,
    ack: u32,
    base: Base,
    own: Option<bytes::Bytes>,
    replica: Replica,
    bytes: usize,
}

impl Client {
    fn receive(&mut self, mirror: &mut Mirror, is_counted: bool) {
        let encoding = self.format.encoding();
        let body = mirror.body(self.format, self.view, self.base);
        let mut data = Vec::new();
        wire::write_player_header(encoding, self.ack, 0, self.own.take().as_deref(), &mut data);
        if self.base.tick == 0 && self.format.is_typed() {
            wire::write_schema(encoding, mirror.schema(), &mut data);
        }
        data.extend_from_slice(&body.bytes[..body.data_bytes]);
        self.replica.apply(encoding, &data).expect("a good snapshot");
        self.base = Base { tick: body.tick, view: self.view };
        self.bytes += if is_counted { data.len() } else { 0 };
    }

    /// What everybody sees.
    fn objects(&self) -> BTreeMap<ObjectId, (u16, Position, Vec<u8>)> {
        let shared = self.replica.objects().filter(|(_, seen)| seen.cell.is_some());
        shared.map(|(id, seen)| (id, (seen.kind, seen.position, seen.state.clone()))).collect()
    }
}

/// The mean bytes of a snapshot in each form. Inputs are from `input`; all clients show the same in the end.
fn snapshot_bytes(simulation: Box<dyn Simulation>, mut input: impl FnMut(&mut Room, PlayerId, u32)) -> [usize; 4] {
    let mut room = Room::new(RoomOptions::default(), 1, simulation).expect("a possible map");
    let all = FORMATS.into_iter().fold(FormatSet::default(), FormatSet::with);
    let mut mirror = Mirror::new(room.grid().clone(), 60, room.keyframe(all), [b"", b""]);
    let mut clients = FORMATS.map(|format| {
        let player = room.join(&Visitor::of_user(""), format, b"").expect("there is room").player;
        let (view, base, replica) = (CellIndex(0), Base::default(), Replica::default());
        Client { format, player, view, ack: 0, base, own: None, replica, bytes: 0 }
    });
    for tick in 1..=TICKS {
        for client in &clients {
            input(&mut room, client.player, tick);
        }
        let outcome = room.tick(1_763_762_400_000_000 + u64::from(tick) * 16_667);
        mirror.apply(outcome.update);
        for change in outcome.players {
            let client = clients.iter_mut().find(|client| client.player == change.player).expect("all have joined");
            (client.view, client.ack) = (change.view, change.ack);
            client.own = change.own.or(client.own.take());
        }
        for client in &mut clients {
            client.receive(&mut mirror, tick > WARM_UP_TICKS);
        }
    }
    for client in &clients {
        assert_eq!(client.objects(), clients[0].objects(), "{:?}", client.format);
    }
    clients.map(|client| client.bytes / (TICKS - WARM_UP_TICKS) as usize)
}

/// The mean bytes of an update between nodes in a room whose players receive changes in Protobuf: with whole states only, and
/// with the changes. A player on the other node gets the same body in each tick as one on the room's node.
fn update_bytes(simulation: Box<dyn Simulation>, mut input: impl FnMut(&mut Room, PlayerId, u32)) -> [usize; 2] {
    const FORMAT: SnapshotFormat = SnapshotFormat::TypedProtobuf;
    let mut room = Room::new(RoomOptions::default(), 1, simulation).expect("a possible map");
    let player = room.join(&Visitor::of_user(""), FORMAT, b"").expect("there is room").player;
    let (keyframe, cell_units) = (room.keyframe(room.formats()), room.grid().shape().cell_units);
    let arrived = TickUpdate::from_bytes(&keyframe.to_bytes_with_changes()).expect("a keyframe");
    let mut mirrors = [keyframe, Arc::new(arrived)].map(|from| Mirror::new(room.grid().clone(), 60, from, [b"", b""]));
    let (mut base, mut bytes) = (Base::default(), [0; 2]);
    for tick in 1..=TICKS {
        input(&mut room, player, tick);
        let outcome = room.tick(1_763_762_400_000_000 + u64::from(tick) * 16_667);
        let sent = [outcome.update.to_bytes(), outcome.update.to_bytes_with_changes()];
        let arrived = TickUpdate::from_bytes_in(&sent[1], room.schema(), cell_units).expect("an update");
        let [here, there] = &mut mirrors;
        here.apply(outcome.update);
        there.apply(Arc::new(arrived));
        let view = outcome.players.first().map_or(base.view, |change| change.view);
        assert_eq!(there.body(FORMAT, view, base).bytes, here.body(FORMAT, view, base).bytes, "tick {tick}");
        base = Base { tick: here.tick(), view };
        if tick > WARM_UP_TICKS {
            bytes = [0, 1].map(|way| bytes[way] + sent[way].len());
        }
    }
    bytes.map(|bytes| bytes / (TICKS - WARM_UP_TICKS) as usize)
}

fn made(name: &str, params: &Value) -> Box<dyn Simulation> {
    Registry::built_in().make(name, params).expect("it ships with Dunlin").expect("good parameters")
}

/// The scene of `dunlin bench room everyone --typed`: 100 objects that all move and change in each tick, and everybody
/// sees all.
#[test]
fn the_scene_of_the_benchmark() {
    let params = json!({"objects": 100, "everyone_sees_everything": true, "typed": true});
    let [json, whole, typed_json, typed] = snapshot_bytes(made("crowd", &params), |room, player, tick| {
        // 30 inputs per second.
        if tick % 2 == 0 {
            assert!(room.input(player, tick, &u64::from(tick).to_le_bytes()));
        }
    });
    // A change of the format shows here.
    assert_eq!([json, typed_json, whole, typed], [6_059, 8_823, 2_323, 314]);
    assert!(typed <= 400, "{typed} bytes");
    assert!(typed * 5 <= whole, "{typed} of {whole} bytes");
}

/// What the changes cost between nodes, of which one update per tick goes to each node with such players.
#[test]
fn updates_between_nodes() {
    let params = json!({"objects": 100, "everyone_sees_everything": true, "typed": true});
    let crowd = update_bytes(made("crowd", &params), |room, player, tick| {
        if tick % 2 == 0 {
            assert!(room.input(player, tick, &u64::from(tick).to_le_bytes()));
        }
    });
    let cubes = update_bytes(Box::new(Cubes::default()), |_, _, _| {});
    assert_eq!([crowd, cubes], [[4_920, 5_301], [25_070, 25_526]]);
}

/// All clients of a hunt see the same world, whatever the form of their snapshots.
#[test]
fn a_hunt() {
    let params =
        json!({"everyone_sees_everything": true, "columns": 16, "rows": 16, "treasures": 200, "obstacles": 100});
    let mut dice = Dice(7);
    let [_, whole, _, typed] = snapshot_bytes(made("treasure_hunt", &params), |room, player, tick| {
        if tick % 20 == 0 {
            let [dx, dy] = [dice.below(255), dice.below(255)].map(|number| number as u8);
            assert!(room.input(player, tick, &[0, dx, dy]));
        }
    });
    assert_eq!([whole, typed], [104, 43]);
}

/// A cube of "Snapshot Compression" by Glenn Fiedler (2015): the position in steps of 1/512 m, and the three smallest
/// components of the orientation in 9 bits each.
const CUBES: usize = 900;
/// Of these, so many move at a time.
const MOVING: usize = 60;

state! {
    /// A cube.
    struct Cube: 1 {
        z: u16 [range(0, 16_383), delta_bits(6)],
        largest: u8 [range(0, 3)],
        a: u16 [range(0, 511), delta_bits(6)],
        b: u16 [range(0, 511), delta_bits(6)],
        c: u16 [range(0, 511), delta_bits(6)],
    }
}

/// Cubes that a player pushes: some move for a second, then others.
#[derive(Default)]
struct Cubes {
    cubes: Vec<ObjectId>,
}

impl Simulation for Cubes {
    fn grid(&self) -> GridShape {
        GridShape { columns: 1, rows: 1, cell_units: 65_536, near_cells: 0, far_cells: 0, far_interval_ticks: 1 }
    }

    fn schema(&self) -> Schema {
        Schema::new().with::<Cube>()
    }

    fn start(&mut self, world: &mut World) {
        for place in 0..CUBES as u32 {
            let position = Position { x: 20_000 + place % 30 * 600, y: 20_000 + place / 30 * 600 };
            let cube = Cube { z: 256, largest: 3, a: 256, b: 256, c: 256 };
            self.cubes.extend(world.add(position, Visibility::Everyone, &cube));
        }
    }

    fn join(&mut self, _: &mut World, _: PlayerId, _: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
        Ok(())
    }

    fn leave(&mut self, _: &mut World, _: PlayerId) {}

    fn input(&mut self, _: &mut World, _: PlayerId, _: &[u8]) -> Result<(), InputError> {
        Ok(())
    }

    /// At up to 7 m/s, which is 60 steps in a tick, and at up to 7 radians per second.
    fn tick(&mut self, world: &mut World) {
        let first = (world.tick() / 60 * 37) as usize;
        for place in 0..MOVING {
            // Those near each other, as in a row of the pile.
            let cube = self.cubes[(first + place * 3) % CUBES];
            let step = |world: &mut World, most: u32| i64::from(world.random_below(2 * most + 1)) - i64::from(most);
            let (dx, dy, dz) = (step(world, 60), step(world, 60), step(world, 30));
            let turn = [step(world, 30), step(world, 30), step(world, 30)];
            let Some(from) = world.object(cube).map(|object| object.position) else { continue };
            world.move_to(cube, from.moved(dx as i32, dy as i32));
            let moved =
                |from: u16, step: i64, most: i64| (i64::from(from) + step).clamp(0, most).cast_unsigned() as u16;
            let changed = world.update(cube, |cube: &mut Cube| {
                cube.z = moved(cube.z, dz, 16_383);
                cube.a = moved(cube.a, turn[0], 511);
                cube.b = moved(cube.b, turn[1], 511);
                cube.c = moved(cube.c, turn[2], 511);
            });
            assert_eq!(changed, Ok(()));
        }
    }

    fn save(&self, _: &mut Vec<u8>) {}

    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
}

#[test]
fn nine_hundred_cubes() {
    let [_, whole, _, typed] = snapshot_bytes(Box::new(Cubes::default()), |_, _, _| {});
    assert_eq!([whole, typed], [1_571, 417]);
    assert!(typed * 8 * 60 <= 256_000, "{typed} bytes in each of 60 snapshots per second");
}
