//! The vectors of snapshots with fields that a client rejects, `schema/vectors/room/typed-malformed.json`. With
//! `WRITE_VECTORS` in the environment, the test writes them.

use dunlin_protocol::Encoding;
use dunlin_rooms::{Replica, ReplicaError};
use serde_json::{Value, json};

use crate::{
    kinds::Walker,
    typed_vectors::{WALKER, bytes_of, compare, first, picture, written},
    vectors::hex,
};

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

/// A count, as in `docs/rooms-protocol.md`, also of numbers that have more than 32 bits.
fn count(number: u64) -> String {
    match number {
        0 => "0".to_owned(),
        1..=16 => format!("10{}", low_first(number - 1, 4)),
        17..=272 => format!("110{}", low_first(number - 17, 8)),
        273..=65_808 => format!("1110{}", low_first(number - 273, 16)),
        _ => format!("1111{}", low_first(number - 65_809, 32)),
    }
}

/// The bits of a number, the lowest first.
fn low_first(number: u64, bits: u32) -> String {
    assert_eq!(number >> bits, 0, "{number} has more than {bits} bits");
    (0..bits).map(|bit| if number >> bit & 1 == 1 { '1' } else { '0' }).collect()
}

/// Changes of one object of a cell.
fn one(cell: u8, id: u64, rest: &str) -> (u8, String) {
    (cell, count(1) + &count(id - 1) + rest)
}

/// Changes of two objects of a cell.
fn two(cell: u8, (id, rest): (u64, &str), (next, next_rest): (u64, &str)) -> (u8, String) {
    (cell, count(2) + &count(id - 1) + rest + &count(next - id - 1) + next_rest)
}

/// A name, bits of changes of a cell that no client takes, and bits that differ only in what is wrong with the first,
/// which a client takes. Without them, a client could reject the first for another reason than the named one.
type WrongBits = (&'static str, (u8, String), (u8, String));

/// Which objects have changed, and what of them. `first` says which objects there are.
fn wrong_objects() -> Vec<WrongBits> {
    let still = "00 000 000";
    let walker = format!("0 10000000 {still}");
    // Of a bag or a turret, which have four fields.
    let four = format!("0 10000 {still}");
    let as_before = format!("1 {still}");
    let place = format!("0 10000 11 {0} {0}", low_first(5, 7));
    let above = (0, count(2) + &count(0) + &walker + &count(u32::MAX.into()) + &walker);
    let many = |number| (0, count(number) + &count(0) + &walker);
    vec![
        ("an object that is not there", one(0, 11, &walker), one(0, 1, &walker)),
        ("an object of another cell, with a whole position", one(0, 3, &place), one(1, 3, &place)),
        ("an object of another cell, with a step", one(1, 6, &four), one(0, 6, &four)),
        ("an object whose kind has no fields", one(0, 4, &walker), one(0, 1, &walker)),
        ("an object whose state is too long for its kind", one(0, 7, &four), one(0, 6, &four)),
        (
            "an id above 32 bits, of which the lowest 32 are those of an object",
            above,
            two(0, (1, &walker), (2, &walker)),
        ),
        ("no fields", one(0, 1, "0 00000000"), one(0, 1, &walker)),
        ("the fields of the object before, without one", one(0, 1, &as_before), one(0, 1, &walker)),
        (
            "the fields of an object of a kind with more",
            two(0, (1, &walker), (6, &as_before)),
            two(0, (1, &walker), (6, &four)),
        ),
        (
            "the fields of an object of another kind with as many",
            two(1, (3, &four), (5, &as_before)),
            two(1, (3, &four), (5, &four)),
        ),
        ("more objects than there are", many(2), many(1)),
        ("a count above 32 bits", many((1 << 32) + 1), many(1)),
    ]
}

/// Values of the first walker.
fn wrong_fields() -> Vec<WrongBits> {
    let walker = |rest: String| one(0, 1, &rest);
    let position = |rest: &str| walker(format!("0 10000000 {rest}"));
    let score = |rest: String| walker(format!("0 00100000 {rest}"));
    let light = |index| walker(format!("0 00001000 {}", low_first(index, 2)));
    let target = |id| walker(format!("0 00000100 {}", count(id)));
    let name = |bytes: &[u64]| {
        let letters: String = bytes.iter().map(|byte| low_first(*byte, 8)).collect();
        walker(format!("0 00000001 {}{letters}", low_first(bytes.len() as u64, 3)))
    };
    let items = |length: u64| {
        let elements = low_first(0, 10).repeat(length as usize);
        one(1, 3, &format!("0 00001 {}{elements}", low_first(length, 3)))
    };
    let whole = |x, y| position(&format!("11 {}{}", low_first(x, 7), low_first(y, 7)));
    vec![
        ("the end before the fields", walker(String::new()), walker("0 00010000 0".to_owned())),
        ("a choice without a name", light(3), light(2)),
        (
            "an integer above its range",
            score(format!("0 {}", low_first(600, 10))),
            score(format!("0 {}", low_first(599, 10))),
        ),
        ("a difference that leaves the range", score("1 11111".to_owned()), score("1 10000".to_owned())),
        ("a step out of the map", position("01 1010111 0000000"), position("01 0110111 0000000")),
        ("a step out of the cell", one(0, 2, "0 10000000 00 100 000"), one(0, 2, "0 10000000 00 111 000")),
        ("a position outside of the cell", whole(100, 0), whole(99, 0)),
        ("a position below the cell", whole(0, 100), whole(0, 99)),
        ("an id in a field that has 33 bits", target(1 << 32), target(u32::MAX.into())),
        ("a text that is too long", name(&[0x61; 7]), name(&[0x61; 6])),
        ("a text that is not UTF-8", name(&[0xff]), name(&[0x61])),
        ("a list that is too long", items(5), items(4)),
        (
            "a byte after the changes",
            walker(format!("0 00010000 0 {}", low_first(0, 8))),
            walker("0 00010000 0".to_owned()),
        ),
        (
            "a bit that fills the last byte and is not 0",
            walker("0 00010000 0 1".to_owned()),
            walker("0 00010000 0 0".to_owned()),
        ),
    ]
}

/// Whole snapshots in Protobuf that are wrong although their changes are right.
fn wrong_snapshots() -> [(&'static str, Vec<u8>); 2] {
    let bits = packed("100000 0 0 00010000 0");
    [
        ("changes of a full cell", with_changes(1, 0, true, &bits)),
        ("changes of a later tick", with_changes(3, 0, false, &bits)),
    ]
}

/// What a client with the first snapshot makes of another one.
fn outcome(first: &Value, encoding: Encoding, data: &[u8]) -> (Result<(), ReplicaError>, Replica) {
    let form = if encoding == Encoding::Json { "json" } else { "protobuf" };
    let mut replica = Replica::default();
    replica.apply(encoding, &bytes_of(encoding, &first[form])).expect("a good snapshot");
    (replica.apply(encoding, data), replica)
}

/// The snapshot of a walker in JSON.
fn with_walker(walker: &Value) -> String {
    json!({ "tick": 2, "base": 1, "view": 0, "cells": [{ "cell": 0, "upserts": [walker] }] }).to_string()
}

#[test]
fn malformed_typed_snapshots() {
    let first = first();
    let json: Value = serde_json::from_str(first["json"].as_str().expect("text")).expect("JSON");
    let walker = &json["cells"][0]["upserts"][0];
    assert_eq!(outcome(&first, Encoding::Json, with_walker(walker).as_bytes()).0, Ok(()));
    let mut vectors = Vec::new();
    let mut add = |name: &str, encoding: Encoding, data: &[u8]| {
        let (outcome, replica) = outcome(&first, encoding, data);
        assert_eq!(outcome, Err(ReplicaError::Malformed), "{name}");
        assert_eq!(picture(&replica), first["replica"], "{name}");
        let (form, text) = match encoding {
            Encoding::Json => ("json", String::from_utf8_lossy(data).into_owned()),
            Encoding::Protobuf => ("protobuf", hex(data)),
        };
        vectors.push(json!({ "name": name, "error": "Malformed", form: text }));
    };
    for (name, wrong, right) in wrong_objects().into_iter().chain(wrong_fields()) {
        let [wrong, right] = [wrong, right].map(|(cell, bits)| with_changes(1, cell, false, &packed(&bits)));
        add(name, Encoding::Protobuf, &wrong);
        assert_eq!(outcome(&first, Encoding::Protobuf, &right).0, Ok(()), "{name}, without what is wrong");
    }
    for (name, data) in wrong_snapshots() {
        add(name, Encoding::Protobuf, &data);
    }
    for (name, act) in wrong_values() {
        let mut object = walker.clone();
        act(&mut object);
        add(name, Encoding::Json, with_walker(&object).as_bytes());
    }
    let about = "Snapshots with fields that a client rejects after the first, which is good.";
    let members = [
        ("first", json!({ "json": first["json"], "protobuf": first["protobuf"] })),
        ("replica", first["replica"].clone()),
    ];
    compare("typed-malformed.json", &written(about, &members, &vectors));
}

/// The bytes in `docs/rooms-protocol.md`: the flag of a walker that is on.
#[test]
fn the_example_of_the_protocol() {
    let bits = packed("100000 0 0 00010000 0");
    assert_eq!(bits, [1, 8, 0]);
    let (outcome, replica) = outcome(&first(), Encoding::Protobuf, &with_changes(1, 0, false, &bits));
    assert_eq!(outcome, Ok(()));
    assert_eq!(replica.get::<Walker>(WALKER).map(|walker| walker.is_on), Some(false));
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
        ("an id above 32 bits in a field", |object| object["fields"]["target"] = (1_u64 << 32).into()),
        ("an object with an id above 32 bits", |object| object["id"] = ((1_u64 << 32) + 1).into()),
        ("an id below 0", |object| object["fields"]["target"] = (-1).into()),
    ]
}
