//! The vectors of snapshots with fields, `schema/vectors/room/typed.json`: what a room sends, byte for byte, and what a
//! replica shows. With `WRITE_VECTORS` in the environment, the test writes them.

use std::{fs, path::PathBuf, sync::OnceLock};

use dunlin_protocol::Encoding;
use dunlin_rooms::{
    Base, CellIndex, FormatSet, GridShape, InputError, Mirror, NewObject, ObjectId, ObjectView, PlayerId, Position,
    Refusal, Replica, RestoreError, Room, RoomOptions, Schema, Simulation, SnapshotFormat, StateWriter, Visibility,
    Visitor, World, state, wire,
};
use proptest::{collection::vec, prelude::*, sample::Index};
use serde_json::{Value, json};

use crate::{
    kinds::{Bag, Light, Walker},
    vectors::{self, hex, unhex},
};

state! {
    /// A kind with as many fields as [`Bag`], whose turn does not begin at 0. Its state cannot end early.
    pub struct Turret: 4 {
        pub turn: i16 [range(-180, 179), angle(), delta_bits(5)],
        pub is_loaded: bool,
        pub shots: u8,
        pub target: Option<ObjectId>,
    }
}

type Act = fn(&mut World);

/// What happens before each tick.
struct Scripted(Vec<Act>);

pub(crate) const WALKER: ObjectId = ObjectId(1);
const OTHER: ObjectId = ObjectId(2);
const BAG: ObjectId = ObjectId(3);
const PLAIN: ObjectId = ObjectId(4);
/// In the cell of the bag.
const TURRET: ObjectId = ObjectId(5);
/// In the cell of the walkers.
const GUARD: ObjectId = ObjectId(6);
/// As [`GUARD`], with a byte after its last field.
const TOO_LONG: ObjectId = ObjectId(7);

fn walker() -> Walker {
    let (heading, score, light, name) = (250, -300, Light::Amber, "Ada".to_owned());
    Walker { heading, score, is_on: true, light, target: None, wide: u32::MAX, name }
}

fn bag() -> Bag {
    Bag { label: String::new(), pair: [-128, 127], amount: 0, items: Vec::new() }
}

fn turret() -> Turret {
    Turret { turn: 175, is_loaded: true, shots: 0, target: None }
}

fn too_long() -> Vec<u8> {
    let mut state = Vec::new();
    assert_eq!(StateWriter::write(&turret(), &mut state), 0);
    state.push(0);
    state
}

impl Simulation for Scripted {
    fn grid(&self) -> GridShape {
        GridShape { columns: 2, rows: 1, cell_units: 100, near_cells: 1, far_cells: 0, far_interval_ticks: 1 }
    }

    fn schema(&self) -> Schema {
        Schema::new().with::<Walker>().with::<Bag>().with::<Turret>()
    }

    fn start(&mut self, world: &mut World) {
        let spawned = [
            world.add(Position { x: 10, y: 20 }, Visibility::Everyone, &walker()),
            world.add(Position { x: 99, y: 0 }, Visibility::Everyone, &Walker { target: Some(BAG), ..walker() }),
            world.add(Position { x: 150, y: 50 }, Visibility::Everyone, &bag()),
            world.spawn(NewObject {
                position: Position { x: 11, y: 21 },
                kind: 3,
                visibility: Visibility::Everyone,
                state: b"opaque",
            }),
            world.add(Position { x: 160, y: 50 }, Visibility::Everyone, &turret()),
            world.add(Position { x: 60, y: 50 }, Visibility::Everyone, &turret()),
            world.spawn(NewObject {
                position: Position { x: 70, y: 50 },
                kind: 4,
                visibility: Visibility::Everyone,
                state: &too_long(),
            }),
        ];
        let ids = [WALKER, OTHER, BAG, PLAIN, TURRET, GUARD, TOO_LONG];
        assert_eq!(spawned.map(|id| id.expect("there is room")), ids);
    }

    fn join(&mut self, world: &mut World, player: PlayerId, _: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
        let own = world.add(Position { x: 0, y: 0 }, Visibility::Owner(player), &bag()).expect("there is room");
        world.set_avatar(player, Some(own));
        Ok(())
    }

    fn leave(&mut self, _: &mut World, _: PlayerId) {}

    fn input(&mut self, _: &mut World, _: PlayerId, _: &[u8]) -> Result<(), InputError> {
        Ok(())
    }

    fn tick(&mut self, world: &mut World) {
        if let Some(act) = self.0.get(world.tick() as usize - 1) {
            act(world);
        }
    }

    fn save(&self, _: &mut Vec<u8>) {}

    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
}

fn change(world: &mut World, id: ObjectId, act: impl FnOnce(&mut Walker)) {
    world.update(id, act).expect("a walker");
}

fn step(world: &mut World, id: ObjectId, dx: i32, dy: i32) {
    let from = world.object(id).expect("it is there").position;
    world.move_to(id, from.moved(dx, dy));
}

fn turn(world: &mut World, id: ObjectId, turn: i16) {
    world.update(id, |turret: &mut Turret| turret.turn = turn).expect("a turret");
}

type Script = (&'static str, Vec<Act>, &'static [u32]);

/// The tick in which a client that has one already gets everything anew, in the vector of this name.
const FULL: (&str, u32) = ("a full snapshot in the middle of a stay, without a schema", 3);

/// All vectors of snapshots that a room sends.
fn scripts() -> impl Iterator<Item = Script> {
    field_scripts().into_iter().chain(object_scripts()).chain(rare_scripts()).chain(formless_scripts())
}

/// Names of vectors, what happens in each tick, and the ticks whose snapshots a client receives.
fn field_scripts() -> Vec<Script> {
    let nothing: Act = |_| {};
    vec![
        ("everything, with the schema", vec![nothing], &[1]),
        (
            "fields that change from tick to tick",
            vec![
                nothing,
                |world| change(world, WALKER, |walker| walker.heading = 2),
                |world| {
                    step(world, WALKER, 3, -4);
                    change(world, WALKER, |walker| walker.score = -285);
                },
                |world| {
                    step(world, WALKER, 4, 0);
                    change(world, WALKER, |walker| (walker.heading, walker.score) = (130, 299));
                },
                |world| {
                    step(world, WALKER, -17, 50);
                    change(world, WALKER, |walker| {
                        (walker.is_on, walker.light, walker.target) = (false, Light::Green, Some(ObjectId(70_000)));
                        (walker.wide, walker.name) = (0, "Bärbel".chars().take(5).collect());
                    });
                },
                |world| world.move_to(WALKER, Position { x: 99, y: 99 }),
            ],
            &[1, 2, 3, 4, 5, 6],
        ),
        (
            "two objects with the same fields, and one with others",
            vec![
                nothing,
                |world| {
                    step(world, OTHER, -1, 1);
                    step(world, WALKER, 1, 1);
                },
                |world| {
                    for id in [OTHER, WALKER] {
                        change(world, id, |walker| walker.heading = walker.heading.wrapping_sub(8));
                    }
                    step(world, OTHER, -2, 2);
                },
            ],
            &[1, 2, 3],
        ),
    ]
}

/// As [`field_scripts`], about what else can happen to an object.
fn object_scripts() -> Vec<Script> {
    let nothing: Act = |_| {};
    vec![
        (
            "lists, texts, and fields that are left out",
            vec![
                nothing,
                |world| world.update(BAG, |bag: &mut Bag| bag.items = vec![5, 700]).expect("a bag"),
                |world| world.update(BAG, |bag: &mut Bag| bag.label = "x".repeat(3)).expect("a bag"),
                |world| {
                    let emptied = |bag: &mut Bag| (bag.items, bag.pair) = (Vec::new(), [0, -1]);
                    world.update(BAG, emptied).expect("a bag");
                },
            ],
            &[1, 2, 3, 4],
        ),
        (
            "a client that misses ticks gets whole values",
            vec![
                nothing,
                |world| change(world, WALKER, |walker| walker.heading = 251),
                |world| step(world, WALKER, 1, 0),
                |world| change(world, WALKER, |walker| walker.score = -299),
                |world| step(world, OTHER, 0, 1),
            ],
            &[1, 5],
        ),
        (
            "objects that enter, leave, or have a state without fields",
            vec![
                nothing,
                |world| step(world, OTHER, 1, 0),
                |world| {
                    step(world, OTHER, -1, 0);
                    world.set_state(WALKER, b"no walker").expect("it is short");
                },
                |world| {
                    step(world, WALKER, 1, 0);
                    step(world, PLAIN, 1, 0);
                },
                |world| {
                    world.set(WALKER, &walker()).expect("a walker");
                    assert!(world.despawn(BAG));
                },
                |world| change(world, WALKER, |walker| walker.heading = 249),
            ],
            &[1, 2, 3, 4, 5, 6],
        ),
    ]
}

/// As [`field_scripts`], about what clients seldom see.
fn rare_scripts() -> Vec<Script> {
    let nothing: Act = |_| {};
    vec![
        (
            "differences of angles over the ends of their ranges",
            vec![
                nothing,
                |world| {
                    change(world, WALKER, |walker| walker.heading = 1);
                    turn(world, GUARD, -170);
                },
                |world| {
                    change(world, WALKER, |walker| walker.heading = 249);
                    turn(world, GUARD, 174);
                },
                |world| {
                    change(world, WALKER, |walker| walker.heading = 0);
                    turn(world, GUARD, -180);
                },
                |world| {
                    change(world, WALKER, |walker| walker.heading = 255);
                    turn(world, GUARD, 179);
                },
            ],
            &[1, 2, 3, 4, 5],
        ),
        (
            FULL.0,
            vec![
                nothing,
                |world| change(world, WALKER, |walker| walker.heading = 251),
                |world| {
                    change(world, WALKER, |walker| walker.score = -299);
                    assert!(world.despawn(PLAIN));
                },
                |world| change(world, WALKER, |walker| walker.heading = 252),
            ],
            &[1, 2, 3, 4],
        ),
        (
            "objects of two kinds with as many fields, of which the same have changed",
            vec![nothing, |world| {
                step(world, BAG, 1, 0);
                step(world, TURRET, 1, 0);
            }],
            &[1, 2],
        ),
    ]
}

/// As [`field_scripts`], about states that lose the form of their kind.
fn formless_scripts() -> Vec<Script> {
    let nothing: Act = |_| {};
    vec![
        (
            "a state that becomes too long for its kind, and right again",
            vec![
                nothing,
                |world| world.set_state(GUARD, &too_long()).expect("it is short"),
                |world| step(world, GUARD, 1, 0),
                |world| world.set(GUARD, &turret()).expect("a turret"),
                |world| turn(world, GUARD, 176),
            ],
            &[1, 2, 3, 4, 5],
        ),
        (
            "a state whose text is not UTF-8, and right again",
            vec![
                nothing,
                |world| {
                    let mut state = world.object(WALKER).expect("it is there").state.clone();
                    state.push(0xff);
                    world.set_state(WALKER, &state).expect("it is short");
                },
                |world| step(world, WALKER, 1, 0),
                |world| world.set(WALKER, &walker()).expect("a walker"),
                |world| change(world, WALKER, |walker| walker.name.push('é')),
            ],
            &[1, 2, 3, 4, 5],
        ),
    ]
}

/// A client that asks for fields.
struct Client {
    format: SnapshotFormat,
    player: PlayerId,
    view: CellIndex,
    avatar: u32,
    own: Option<bytes::Bytes>,
    own_sent: Option<bytes::Bytes>,
    base: Base,
    replica: Replica,
}

impl Client {
    /// The next snapshot has everything, except for the schema.
    fn start_anew(&mut self) {
        self.base = Base::default();
        self.own = self.own.take().or(self.own_sent.clone());
    }

    fn snapshot(&mut self, mirror: &mut Mirror) -> Vec<u8> {
        let encoding = self.format.encoding();
        let body = mirror.body(self.format, self.view, self.base);
        let mut data = Vec::new();
        wire::write_player_header(encoding, 0, self.avatar, self.own.as_deref(), &mut data);
        self.own_sent = self.own.take().or(self.own_sent.take());
        if self.replica.tick() == 0 {
            wire::write_schema(encoding, mirror.schema(), &mut data);
        }
        data.extend_from_slice(&body.bytes[..body.data_bytes]);
        self.base = Base { tick: body.tick, view: self.view };
        data
    }
}

/// The snapshots of both encodings for each tick that is seen, and what a client shows.
fn play((name, acts, seen): &Script) -> Vec<Value> {
    let ticks = acts.len() as u32;
    let mut steps = vec![json!({}); seen.len()];
    for format in [SnapshotFormat::TypedJson, SnapshotFormat::TypedProtobuf] {
        let mut room = Room::new(RoomOptions::default(), 1, Box::new(Scripted(acts.clone()))).expect("a map");
        let keyframe = room.keyframe(FormatSet::default().with(format));
        let mut mirror = Mirror::new(room.grid().clone(), 60, keyframe, [b"", b""]);
        let player = room.join(&Visitor::of_user(""), format, b"").expect("there is room").player;
        let (view, base, replica) = (CellIndex(0), Base::default(), Replica::default());
        let mut client = Client { format, player, view, avatar: 0, own: None, own_sent: None, base, replica };
        for tick in 1..=ticks {
            let outcome = room.tick(1_763_762_400_000_000 + u64::from(tick) * 16_667);
            mirror.apply(outcome.update);
            for change in outcome.players.into_iter().filter(|change| change.player == client.player) {
                (client.view, client.avatar) = (change.view, change.avatar);
                client.own = change.own.or(client.own.take());
            }
            let Some(place) = seen.iter().position(|seen| *seen == tick) else { continue };
            if (*name, tick) == FULL {
                client.start_anew();
            }
            let data = client.snapshot(&mut mirror);
            client.replica.apply(format.encoding(), &data).expect("a good snapshot");
            let (form, text) = match format.encoding() {
                Encoding::Json => ("json", String::from_utf8(data).expect("JSON is text")),
                Encoding::Protobuf => ("protobuf", hex(&data)),
            };
            steps[place][form] = text.into();
            let picture = picture(&client.replica);
            let other = steps[place].get("replica").unwrap_or(&picture);
            assert_eq!(*other, picture, "both encodings lead to the same");
            steps[place]["replica"] = picture;
        }
    }
    steps
}

/// As in `snapshots.json`, with the fields of each object.
pub(crate) fn picture(replica: &Replica) -> Value {
    let mut picture = vectors::picture(replica);
    for object in picture["objects"].as_array_mut().expect("objects") {
        let id = ObjectId(object["id"].as_u64().expect("an id") as u32);
        let seen = replica.object(id).expect("it is shown");
        let view = ObjectView { id, kind: seen.kind, x: 0, y: 0, state: &seen.state };
        let mut own = Vec::new();
        wire::encode_own(SnapshotFormat::TypedJson, replica.schema(), [view].into_iter(), &mut own);
        let own: Value = serde_json::from_slice(&own).expect("JSON");
        object["fields"] = own["objects"][0].get("fields").cloned().into();
    }
    picture
}

/// The first snapshot of a client, in both encodings, and what the client then shows.
pub(crate) fn first() -> Value {
    play(&("", vec![|_| {}], &[1])).remove(0)
}

/// A schema that comes with a base. No room sends it, so this is written here.
fn another_schema() -> Value {
    const DOCUMENT: &str = r#"{"kinds":[{"kind":1,"name":"Bytes","fields":[{"name":"bytes","type":"list","bytes":1,"min":0,"max":255,"count_min":0,"count_max":40}]}]}"#;
    let mut first = first();
    let mut object = first["replica"]["objects"][0].clone();
    let mut state = unhex(object["state"].as_str().expect("text"));
    // The flag of the walker.
    state[3] = 0;
    object = json!({ "id": 1, "kind": 1, "x": object["x"], "y": object["y"], "fields": { "bytes": state } });
    let cells = json!([{ "upserts": [object] }]);
    let schema: Value = serde_json::from_str(DOCUMENT).expect("JSON");
    let json = json!({ "avatar": 8, "tick": 2, "base": 1, "schema": schema, "cells": cells }).to_string();
    let mut protobuf = vec![0x52, DOCUMENT.len() as u8 | 0x80, (DOCUMENT.len() >> 7) as u8];
    protobuf.extend(DOCUMENT.as_bytes());
    protobuf.extend([0x15, 8, 0, 0, 0, 0x20, 2, 0x28, 1, 0x4a, 5, 0x2a, 3, 0x01, 0x08, 0x00]);
    let mut second = json!({ "json": json, "protobuf": hex(&protobuf) });
    for (encoding, form) in [(Encoding::Json, "json"), (Encoding::Protobuf, "protobuf")] {
        let mut replica = Replica::default();
        for step in [&first, &second] {
            replica.apply(encoding, &bytes_of(encoding, &step[form])).expect("a good snapshot");
        }
        let picture = picture(&replica);
        let other = second.get("replica").unwrap_or(&picture);
        assert_eq!(*other, picture, "both encodings lead to the same");
        second["replica"] = picture;
    }
    let name = "a schema in a snapshot with a base: its changes have the fields of the schema before";
    json!({ "name": name, "steps": [first.take(), second] })
}

#[test]
fn typed_snapshots() {
    let vectors = scripts().map(|script| json!({ "name": script.0, "steps": play(&script) }));
    let about = "Snapshots with the fields of states, byte for byte, and what a client sees after each.";
    compare("typed.json", &written(about, &[], &vectors.chain([another_schema()]).collect::<Vec<_>>()));
}

/// The snapshots of a vector in one encoding, as the fuzz target takes them.
fn sequence(steps: &[Value], encoding: Encoding) -> Vec<u8> {
    let name = if encoding == Encoding::Json { "json" } else { "protobuf" };
    let mut bytes = Vec::new();
    for step in steps {
        let data = bytes_of(encoding, &step[name]);
        bytes.push(encoding.index() as u8);
        bytes.extend((data.len() as u16).to_le_bytes());
        bytes.extend(data);
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Snapshots with some wrong bits leave the replica as it was, or consistent.
    #[test]
    fn damaged_typed_snapshots(vector: Index, is_json: bool, damages in vec((any::<Index>(), 0..8_u32), 1..4)) {
        static VECTORS: OnceLock<Vec<Vec<Value>>> = OnceLock::new();
        let vectors = VECTORS.get_or_init(|| {
            scripts().map(|script| play(&script)).collect()
        });
        let encoding = if is_json { Encoding::Json } else { Encoding::Protobuf };
        let mut bytes = sequence(&vectors[vector.index(vectors.len())], encoding);
        for (place, bit) in damages {
            let place = place.index(bytes.len());
            bytes[place] ^= 1 << bit;
        }
        crate::fuzzing::snapshots(&bytes);
    }
}

pub(crate) fn bytes_of(encoding: Encoding, text: &Value) -> Vec<u8> {
    let text = text.as_str().expect("text");
    match encoding {
        Encoding::Json => text.into(),
        Encoding::Protobuf => unhex(text),
    }
}

/// A file of vectors, one per line.
pub(crate) fn written(about: &str, members: &[(&str, Value)], vectors: &[Value]) -> String {
    let members = members.iter().fold(String::new(), |all, (name, value)| all + &format!("  {name:?}: {value},\n"));
    let vectors: Vec<String> = vectors.iter().map(|vector| format!("    {vector}")).collect();
    format!("{{\n  \"about\": {about:?},\n{members}  \"vectors\": [\n{}\n  ]\n}}\n", vectors.join(",\n"))
}

pub(crate) fn compare(name: &str, expected: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../schema/vectors/room").join(name);
    if std::env::var_os("WRITE_VECTORS").is_some() {
        fs::write(&path, expected).expect("the vectors are written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "{name} is not what a room sends; write it with WRITE_VECTORS=1");
}
