//! The vectors of snapshots with fields, `schema/vectors/room/typed.json` and `typed-malformed.json`: what a room sends,
//! byte for byte, and what a replica shows. With `WRITE_VECTORS` in the environment, the test writes them.

use std::{fs, path::PathBuf, sync::OnceLock};

use dunlin_protocol::Encoding;
use dunlin_rooms::{
    Base, CellIndex, FormatSet, GridShape, InputError, Mirror, NewObject, ObjectId, ObjectView, PlayerId, Position,
    Refusal, Replica, ReplicaError, RestoreError, Room, RoomOptions, Schema, Simulation, SnapshotFormat, Visibility,
    Visitor, World, wire,
};
use proptest::{collection::vec, prelude::*, sample::Index};
use serde_json::{Value, json};

use crate::{
    kinds::{Bag, Light, Walker},
    vectors::{self, hex, unhex},
};

type Act = fn(&mut World);

/// What happens before each tick.
struct Scripted(Vec<Act>);

const WALKER: ObjectId = ObjectId(1);
const OTHER: ObjectId = ObjectId(2);
const BAG: ObjectId = ObjectId(3);
const PLAIN: ObjectId = ObjectId(4);

fn walker() -> Walker {
    let (heading, score, light, name) = (250, -300, Light::Amber, "Ada".to_owned());
    Walker { heading, score, is_on: true, light, target: None, wide: u32::MAX, name }
}

fn bag() -> Bag {
    Bag { label: String::new(), pair: [-128, 127], amount: 0, items: Vec::new() }
}

impl Simulation for Scripted {
    fn grid(&self) -> GridShape {
        GridShape { columns: 2, rows: 1, cell_units: 100, near_cells: 1, far_cells: 0, far_interval_ticks: 1 }
    }

    fn schema(&self) -> Schema {
        Schema::new().with::<Walker>().with::<Bag>()
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
        ];
        assert_eq!(spawned.map(|id| id.expect("there is room")), [WALKER, OTHER, BAG, PLAIN]);
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

type Script = (&'static str, Vec<Act>, &'static [u32]);

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

/// A client that asks for fields.
struct Client {
    format: SnapshotFormat,
    player: PlayerId,
    view: CellIndex,
    avatar: u32,
    own: Option<bytes::Bytes>,
    base: Base,
    replica: Replica,
}

impl Client {
    fn snapshot(&mut self, mirror: &mut Mirror) -> Vec<u8> {
        let encoding = self.format.encoding();
        let body = mirror.body(self.format, self.view, self.base);
        let mut data = Vec::new();
        wire::write_player_header(encoding, 0, self.avatar, self.own.take().as_deref(), &mut data);
        if self.base.tick == 0 {
            wire::write_schema(encoding, mirror.schema(), &mut data);
        }
        data.extend_from_slice(&body.bytes[..body.data_bytes]);
        self.base = Base { tick: body.tick, view: self.view };
        data
    }
}

/// The snapshots of both encodings for each of `seen`, and what a client shows.
fn play(acts: &[Act], seen: &[u32]) -> Vec<Value> {
    let ticks = acts.len() as u32;
    let mut steps = vec![json!({}); seen.len()];
    for format in [SnapshotFormat::TypedJson, SnapshotFormat::TypedProtobuf] {
        let mut room = Room::new(RoomOptions::default(), 1, Box::new(Scripted(acts.to_vec()))).expect("a map");
        let keyframe = room.keyframe(FormatSet::default().with(format));
        let mut mirror = Mirror::new(room.grid().clone(), 60, keyframe, [b"", b""]);
        let player = room.join(&Visitor::of_user(""), format, b"").expect("there is room").player;
        let (view, own, base, replica) = (CellIndex(0), None, Base::default(), Replica::default());
        let mut client = Client { format, player, view, avatar: 0, own, base, replica };
        for tick in 1..=ticks {
            let outcome = room.tick(1_763_762_400_000_000 + u64::from(tick) * 16_667);
            mirror.apply(outcome.update);
            for change in outcome.players.into_iter().filter(|change| change.player == client.player) {
                (client.view, client.avatar) = (change.view, change.avatar);
                client.own = change.own.or(client.own.take());
            }
            let Some(place) = seen.iter().position(|seen| *seen == tick) else { continue };
            let data = client.snapshot(&mut mirror);
            client.replica.apply(format.encoding(), &data).expect("a good snapshot");
            let (name, text) = match format.encoding() {
                Encoding::Json => ("json", String::from_utf8(data).expect("JSON is text")),
                Encoding::Protobuf => ("protobuf", hex(&data)),
            };
            steps[place][name] = text.into();
            let picture = picture(&client.replica);
            let other = steps[place].get("replica").unwrap_or(&picture);
            assert_eq!(*other, picture, "both encodings lead to the same");
            steps[place]["replica"] = picture;
        }
    }
    steps
}

/// As in `snapshots.json`, with the fields of each object.
fn picture(replica: &Replica) -> Value {
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

#[test]
fn typed_snapshots() {
    let vectors = field_scripts()
        .into_iter()
        .chain(object_scripts())
        .map(|(name, acts, seen)| json!({ "name": name, "steps": play(&acts, seen) }));
    let about = "Snapshots with the fields of states, byte for byte, and what a client sees after each.";
    compare("typed.json", &written(about, &[], &vectors.collect::<Vec<_>>()));
}

/// Bits from the first to the last, with spaces anywhere.
fn packed(bits: &str) -> Vec<u8> {
    let bits: Vec<bool> = bits.chars().filter(|letter| *letter != ' ').map(|letter| letter == '1').collect();
    let byte = |bits: &[bool]| bits.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
    bits.chunks(8).map(byte).collect()
}

/// A snapshot after `first`, with changes in a cell.
fn with_changes(base: u8, cell: u8, is_full: bool, changes: &[u8]) -> Vec<u8> {
    let mut update = vec![];
    if cell > 0 {
        update.extend([0x08, cell]);
    }
    if is_full {
        update.extend([0x10, 1]);
    }
    update.extend([0x2a, changes.len() as u8]);
    update.extend(changes);
    let mut data = vec![0x0d, 0, 0, 0, 0, 0x15, 0, 0, 0, 0, 0x20, 2, 0x28, base, 0x40, 0, 0x4a, update.len() as u8];
    data.extend(update);
    data
}

/// Bits of changes that no client takes. One object is `100000`, its id begins with `0` for the next number, and `0`
/// before the set of its fields.
const WRONG_BITS: [(&str, u8, &str); 17] = [
    ("the end before the fields", 0, "100000 0"),
    ("an object that is not there", 0, "100000 101001 0 10000000 11"),
    ("an object of another cell", 0, "100000 100100 0 10000 00 000 000"),
    ("an object whose kind has no fields", 0, "100000 100100 0 10000000 00 000 000"),
    ("no fields", 0, "100000 0 0 00000000"),
    ("the fields of the object before, without one", 0, "100000 0 1 00000000 00000000"),
    ("the fields of an object of another kind", 0, "101000 0 0 00010000 0 100010 1 0000"),
    ("a choice without a name", 0, "100000 0 0 00001000 11"),
    ("an integer above its range", 0, "100000 0 0 00100000 0 1111111111"),
    ("a difference that leaves the range", 0, "100000 0 0 00100000 1 11111"),
    ("a step out of the map", 0, "100000 0 0 10000000 10 0000001 0000001"),
    ("a position outside of the cell", 0, "100000 0 0 10000000 11 0010011 0000000"),
    (
        "a text that is too long",
        0,
        "100000 0 0 00000001 111 00000000 00000000 00000000 00000000 00000000 00000000 00000000",
    ),
    ("a text that is not UTF-8", 0, "100000 0 0 00000001 100 11111111"),
    ("a list that is too long", 1, "100000 100100 0 00001 101 0000000000 0000000000 0000000000 0000000000 0000000000"),
    ("a count above 32 bits", 0, "1111 11111111111111111111111111111111"),
    ("a byte after the changes", 0, "100000 0 0 00010000 0 00000000 00000000"),
];

#[test]
fn malformed_typed_snapshots() {
    let first = play(&[|_| {}], &[1]).remove(0);
    let json: Value = serde_json::from_str(first["json"].as_str().expect("text")).expect("JSON");
    let mut vectors: Vec<Value> = WRONG_BITS
        .map(|(name, cell, bits)| (name, with_changes(1, cell, false, &packed(bits))))
        .into_iter()
        .chain([
            ("changes of a full cell", with_changes(1, 0, true, &packed("100000 0 0 00010000 0"))),
            (
                "a bit that fills the last byte and is not 0",
                with_changes(1, 0, false, &packed("100000 0 0 00010000 0 1")),
            ),
        ])
        .map(|(name, data)| json!({ "name": name, "error": "Malformed", "protobuf": hex(&data) }))
        .collect();
    let wrong_base = with_changes(3, 0, false, &packed("100000 0 0 00010000 0"));
    vectors.push(json!({ "name": "changes of a later tick", "error": "Malformed", "protobuf": hex(&wrong_base) }));
    for (name, act) in wrong_values() {
        let mut object = json["cells"][0]["upserts"][0].clone();
        act(&mut object);
        let cells = json!([{ "cell": 0, "upserts": [object] }]);
        let snapshot = json!({ "tick": 2, "base": 1, "view": 0, "cells": cells });
        vectors.push(json!({ "name": name, "error": "Malformed", "json": snapshot.to_string() }));
    }
    for vector in &vectors {
        for (encoding, name) in [(Encoding::Json, "json"), (Encoding::Protobuf, "protobuf")] {
            let Some(data) = vector[name].as_str() else { continue };
            let mut replica = Replica::default();
            replica.apply(encoding, &bytes_of(encoding, &first[name])).expect("a good snapshot");
            let outcome = replica.apply(encoding, &bytes_of(encoding, &data.into()));
            assert_eq!(outcome, Err(ReplicaError::Malformed), "{}", vector["name"]);
            assert_eq!(picture(&replica), first["replica"], "{}", vector["name"]);
        }
    }
    // The same bits, right: the flag of a walker that is on.
    let mut replica = Replica::default();
    replica.apply(Encoding::Protobuf, &bytes_of(Encoding::Protobuf, &first["protobuf"])).expect("a good snapshot");
    replica
        .apply(Encoding::Protobuf, &with_changes(1, 0, false, &packed("100000 0 0 00010000 0")))
        .expect("good changes");
    assert_eq!(replica.get::<Walker>(WALKER).map(|walker| walker.is_on), Some(false));
    let about = "Snapshots with fields that a client rejects after the first, which is good.";
    let members = [
        ("first", json!({ "json": first["json"], "protobuf": first["protobuf"] })),
        ("replica", first["replica"].clone()),
    ];
    compare("typed-malformed.json", &written(about, &members, &vectors));
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
            let scripts = field_scripts().into_iter().chain(object_scripts());
            scripts.map(|(_, acts, seen)| play(&acts, seen)).collect()
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

type Damage = (&'static str, fn(&mut Value));

/// What is wrong with the first walker in JSON.
fn wrong_values() -> Vec<Damage> {
    vec![
        ("a field is not there", |object| drop(object["fields"].as_object_mut().expect("fields").remove("wide"))),
        ("fields and a state", |object| object["state"] = "AA==".into()),
        ("fields of a kind without fields", |object| object["kind"] = 3.into()),
        ("a value with a fraction", |object| object["fields"]["heading"] = 0.5.into()),
        ("a value above its range", |object| object["fields"]["score"] = 300.into()),
        ("a number for a flag", |object| object["fields"]["is_on"] = 1.into()),
        ("a name that is no choice", |object| object["fields"]["light"] = "Blue".into()),
        ("a text of too many bytes", |object| object["fields"]["name"] = "äöüß".into()),
        ("an id below 0", |object| object["fields"]["target"] = (-1).into()),
    ]
}

fn bytes_of(encoding: Encoding, text: &Value) -> Vec<u8> {
    let text = text.as_str().expect("text");
    match encoding {
        Encoding::Json => text.into(),
        Encoding::Protobuf => unhex(text),
    }
}

/// A file of vectors, one per line.
fn written(about: &str, members: &[(&str, Value)], vectors: &[Value]) -> String {
    let members = members.iter().fold(String::new(), |all, (name, value)| all + &format!("  {name:?}: {value},\n"));
    let vectors: Vec<String> = vectors.iter().map(|vector| format!("    {vector}")).collect();
    format!("{{\n  \"about\": {about:?},\n{members}  \"vectors\": [\n{}\n  ]\n}}\n", vectors.join(",\n"))
}

fn compare(name: &str, expected: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../schema/vectors/room").join(name);
    if std::env::var_os("WRITE_VECTORS").is_some() {
        fs::write(&path, expected).expect("the vectors are written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "{name} is not what a room sends; write it with WRITE_VECTORS=1");
}
