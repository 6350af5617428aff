//! Compares the server's encoding with `schema/vectors/room/snapshots.json`, byte for byte.

use base64::{Engine, prelude::BASE64_STANDARD};
use dunlin_protocol::Encoding;
use serde_json::Value;

use super::{
    BodyHead, HEADER_BYTES_MAX, SegmentHead, encode_own, object_hash, write_body_end, write_body_head,
    write_player_header, write_segment, write_upsert,
};
use crate::{CellIndex, ClockRate, GridShape, ObjectId, ObjectView, Position, Schema};

#[test]
fn snapshots_are_encoded_as_in_the_vectors() {
    let file: Value =
        serde_json::from_str(include_str!("../../../../schema/vectors/room/snapshots.json")).expect("JSON");
    let mut snapshots = 0;
    for vector in file["vectors"].as_array().expect("vectors") {
        for step in vector["steps"].as_array().expect("steps") {
            let json = step["json"].as_str().expect("JSON");
            let meaning: Value = serde_json::from_str(json).expect("JSON");
            let written = String::from_utf8(write(Encoding::Json, &meaning)).expect("UTF-8");
            assert_eq!(written, json, "{}", vector["name"]);
            let digits = step["protobuf"].as_str().expect("Protobuf");
            assert_eq!(write(Encoding::Protobuf, &meaning), unhex(digits), "{}", vector["name"]);
            snapshots += 1;
        }
    }
    assert!(snapshots > 60, "only {snapshots}");
}

/// Encodes the snapshot that the JSON form describes.
fn write(encoding: Encoding, meaning: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let own = meaning.get("own").map(|own| {
        let objects: Vec<_> = objects(&own["objects"]);
        let mut out = Vec::new();
        encode_own(
            encoding,
            &Schema::new(),
            objects.iter().map(|(object, state)| ObjectView { state, ..*object }),
            &mut out,
        );
        out
    });
    write_player_header(encoding, number(meaning, "ack"), number(meaning, "avatar"), own.as_deref(), &mut out);
    let shape = meaning.get("grid").map(|grid| GridShape {
        columns: number(grid, "columns") as u16,
        rows: number(grid, "rows") as u16,
        cell_units: number(grid, "cell_units"),
        near_cells: number(grid, "near_cells") as u16,
        far_cells: number(grid, "far_cells") as u16,
        far_interval_ticks: number(grid, "far_interval_ticks") as u16,
    });
    let head = BodyHead {
        tick: number(meaning, "tick"),
        base: number(meaning, "base"),
        time_us: meaning["time_us"].as_u64().expect("a time"),
        grid: shape.as_ref().map(|shape| (shape, number(&meaning["grid"], "ticks_per_second"))),
        view: CellIndex(number(meaning, "view")),
        waited: number(meaning, "waited"),
        rate: meaning.get("rate").map_or(ClockRate::FULL, |_| rate(number(meaning, "rate"))),
    };
    write_body_head(encoding, &head, &mut out);
    for cell in meaning["cells"].as_array().expect("cells") {
        let departed = cell["departed"].as_array().into_iter().flatten();
        let departed: Vec<_> = departed.map(|id| id.as_u64().expect("an id") as u32).collect();
        let mut upserts = Vec::new();
        for (object, state) in objects(&cell["upserts"]) {
            let before = upserts.len();
            let length =
                write_upsert(encoding.into(), &Schema::new(), &ObjectView { state: &state, ..object }, &mut upserts);
            assert!(length <= upserts.len() - before, "its own bytes are the last");
        }
        let head = SegmentHead {
            cell: CellIndex(number(cell, "cell")),
            is_full: cell["full"] == true,
            departed: &departed,
            changes: &[],
        };
        let start = write_segment(encoding.into(), &head, &upserts, &mut out);
        assert_eq!(&out[start..start + upserts.len()], upserts);
    }
    write_body_end(encoding, &mut out);
    out
}

fn objects(list: &Value) -> Vec<(ObjectView<'static>, Vec<u8>)> {
    let object = |object: &Value| {
        let state = BASE64_STANDARD.decode(object["state"].as_str().unwrap_or_default()).expect("base64");
        let view = ObjectView {
            id: ObjectId(number(object, "id")),
            kind: number(object, "kind") as u16,
            x: number(object, "x"),
            y: number(object, "y"),
            state: &[],
        };
        (view, state)
    };
    list.as_array().into_iter().flatten().map(object).collect()
}

fn unhex(digits: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn rate(permille: u32) -> ClockRate {
    ClockRate::from_permille(permille).expect("a rate")
}

fn number(fields: &Value, name: &str) -> u32 {
    fields[name].as_u64().unwrap_or(0).try_into().expect("32 bits")
}

#[test]
fn header_length_follows_the_own_object() {
    for encoding in Encoding::ALL {
        let length = |ack, avatar, own: Option<&[u8]>| {
            let mut out = Vec::new();
            write_player_header(encoding, ack, avatar, own, &mut out);
            out.len()
        };
        let shortest = length(0, 0, None);
        assert_eq!(length(u32::MAX, u32::MAX, None), shortest);
        assert_eq!(length(1_000, 7, None), shortest);
        assert_eq!(length(0, 0, Some(b"{}")), length(u32::MAX, u32::MAX, Some(b"[]")));
        assert!(length(0, 0, Some(&[b' '; 300])) <= HEADER_BYTES_MAX + 300);
    }
}

#[test]
fn the_hash_of_an_object_is_as_documented() {
    // Computed independently of this code, from the documentation of the hash.
    let hash = |id, kind, x, y, state: &[u8]| object_hash(ObjectId(id), kind, Position { x, y }, state);
    assert_eq!(hash(1, 0, 0, 0, b""), 0x8676_e8d9_5112_9507);
    assert_eq!(hash(7, 3, 100, 200, b"a"), 0x3e1c_a9cd_007d_14cf);
    assert_eq!(hash(4_294_967_295, 65535, 67_108_863, 1, b"12345678"), 0xc62f_3bbe_537f_dcbc);
    assert_eq!(hash(42, 1, 5, 6, b"a longer state."), 0xc1df_b361_d92f_c99e);
}
