//! Tests the vectors of `schema/vectors/room`: messages from and to clients.

use std::borrow::Cow;

use dunlin_protocol::Encoding;
use dunlin_rooms::{
    CellIndex, ObjectId, Replica, ZONES,
    wire::{self, Input, NoInput},
};
use serde_json::{Value, json};

#[test]
fn snapshots() {
    assert_eq!(check_snapshots(include_str!("../../../schema/vectors/room/snapshots.json")), 42);
}

#[test]
fn lenient_snapshots() {
    assert_eq!(check_snapshots(include_str!("../../../schema/vectors/room/snapshots-lenient.json")), 14);
}

#[test]
fn malformed_snapshots() {
    let file = parse(include_str!("../../../schema/vectors/room/snapshots-malformed.json"));
    for encoding in Encoding::ALL {
        let mut replica = Replica::default();
        replica.apply(encoding, &bytes(&file["first"], encoding).expect("a first snapshot")).expect("a good snapshot");
        for vector in list(&file) {
            let Some(data) = bytes(vector, encoding) else { continue };
            let error = replica.apply(encoding, &data).expect_err(text(&vector["name"]));
            assert_eq!(format!("{error:?}"), text(&vector["error"]), "{}", vector["name"]);
            assert_eq!(picture(&replica), file["replica"], "{}", vector["name"]);
        }
    }
    assert_eq!(list(&file).len(), 64);
}

#[test]
fn inputs() {
    let file = parse(include_str!("../../../schema/vectors/room/inputs.json"));
    for vector in list(&file) {
        for encoding in Encoding::ALL {
            let expected = bytes(vector, encoding).expect("both encodings");
            let data = unhex(text(&vector["meaning"]["data"]));
            let mut written = Vec::new();
            wire::encode_input(encoding, &input(&vector["meaning"], &data), &mut written);
            assert_eq!(written, expected, "{}", vector["name"]);
        }
    }
    assert_eq!(check_inputs(&file), 10);
}

#[test]
fn lenient_inputs() {
    assert_eq!(check_inputs(&parse(include_str!("../../../schema/vectors/room/inputs-lenient.json"))), 11);
}

#[test]
fn malformed_inputs() {
    let file = parse(include_str!("../../../schema/vectors/room/inputs-malformed.json"));
    for vector in list(&file) {
        let mut forms = 0;
        for encoding in Encoding::ALL {
            let Some(bytes) = bytes(vector, encoding) else { continue };
            assert_eq!(wire::decode_input(encoding, &bytes), Err(NoInput), "{}", vector["name"]);
            forms += 1;
        }
        assert!(forms > 0, "{}: no bytes", vector["name"]);
    }
    assert_eq!(list(&file).len(), 35);
}

/// Plays every vector once in each encoding.
fn check_snapshots(file: &str) -> usize {
    let file = parse(file);
    for vector in list(&file) {
        let mut steps = 0;
        for encoding in Encoding::ALL {
            let mut replica = Replica::default();
            for step in vector["steps"].as_array().expect("steps") {
                let Some(data) = bytes(step, encoding) else { continue };
                replica.apply(encoding, &data).unwrap_or_else(|error| panic!("{}: {error}", vector["name"]));
                assert_eq!(picture(&replica), step["replica"], "{}", vector["name"]);
                steps += 1;
            }
        }
        assert!(steps > 0, "{}: no bytes", vector["name"]);
    }
    list(&file).len()
}

fn check_inputs(file: &Value) -> usize {
    for vector in list(file) {
        let data = unhex(text(&vector["meaning"]["data"]));
        for encoding in Encoding::ALL {
            let Some(bytes) = bytes(vector, encoding) else { continue };
            assert_eq!(
                wire::decode_input(encoding, &bytes),
                Ok(input(&vector["meaning"], &data)),
                "{}",
                vector["name"]
            );
        }
    }
    list(file).len()
}

fn input<'a>(meaning: &'a Value, data: &'a [u8]) -> Input<'a> {
    let number = meaning["number"].as_u64().and_then(|number| number.try_into().ok()).expect("a number");
    Input { number, room: Cow::Borrowed(text(&meaning["room"])), data: Cow::Borrowed(data) }
}

/// The content of a replica, in the format of the vectors.
pub(crate) fn picture(replica: &Replica) -> Value {
    let shape = replica.grid().expect("a map").shape();
    let mut objects: Vec<_> = replica.objects().collect();
    objects.sort_unstable_by_key(|(id, _)| *id);
    let mut hashes = std::collections::BTreeMap::new();
    for (id, seen) in &objects {
        if let Some(cell) = seen.cell {
            *hashes.entry(cell).or_insert(0) ^= wire::object_hash(*id, seen.kind, seen.position, &seen.state);
        }
    }
    for cell in (0..replica.grid().expect("a map").len() as u32).map(CellIndex) {
        assert_eq!(replica.cell_hash(cell), hashes.get(&cell).copied().unwrap_or(0), "the hash of {cell:?}");
    }
    let mut picture = json!({
        "tick": replica.tick(),
        "time_us": replica.time_us(),
        "ack": replica.ack(),
        "avatar": replica.avatar().unwrap_or(ObjectId(0)).0,
        "view": replica.view().0,
        "grid": {
            "columns": shape.columns,
            "rows": shape.rows,
            "cell_units": shape.cell_units,
            "near_cells": shape.near_cells,
            "far_cells": shape.far_cells,
            "far_interval_ticks": shape.far_interval_ticks,
            "ticks_per_second": replica.ticks_per_second(),
        },
        "objects": objects.iter().map(|(id, seen)| json!({
            "id": id.0,
            "kind": seen.kind,
            "x": seen.position.x,
            "y": seen.position.y,
            "state": hex(&seen.state),
            "cell": seen.cell.map(|cell| cell.0),
        })).collect::<Vec<_>>(),
    });
    if replica.waited_ticks() != [0; ZONES] {
        picture["waited"] = json!(replica.waited_ticks());
    }
    if !replica.rate().is_full() {
        picture["rate"] = replica.rate().permille().into();
    }
    picture
}

fn parse(file: &str) -> Value {
    serde_json::from_str(file).expect("a vector file is JSON")
}

fn list(file: &Value) -> &Vec<Value> {
    file["vectors"].as_array().expect("a list of vectors")
}

fn bytes(vector: &Value, encoding: Encoding) -> Option<Vec<u8>> {
    match encoding {
        Encoding::Json if vector.get("json_hex").is_some() => Some(unhex(text(&vector["json_hex"]))),
        Encoding::Json => vector["json"].as_str().map(|text| text.as_bytes().to_vec()),
        Encoding::Protobuf => vector["protobuf"].as_str().map(unhex),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

pub(crate) fn unhex(digits: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"))
}
