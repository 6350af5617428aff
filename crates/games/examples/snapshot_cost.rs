//! Runs the room of `dunlin bench room everyone --typed` without sockets, for counts of instructions:
//!
//! ```text
//! perf stat -e instructions:u snapshot_cost FORM PLAYERS TICKS [NEAR_UNITS]
//! ```
//!
//! `FORM` is `bytes` for a game that writes bytes, and `whole` or `typed` for one that writes structs. All players
//! receive all ticks; their frames are assembled and not written.
//!
//! With `NEAR_UNITS`, players look from all cells of a map of 9 × 9 of them, and see four cells far. Nine tenths of 1,000 objects are
//! of a kind that is visible only within so many units. With 0, they see all of that as well.

use std::{env, error::Error, io::Write};

use dunlin_games::Registry;
use dunlin_protocol::Encoding;
use dunlin_rooms::{Base, CellIndex, FormatSet, Mirror, Room, RoomOptions, SnapshotFormat, Visitor, wire};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (near_units, arguments) = match arguments.as_slice() {
        [arguments @ .., near_units] if arguments.len() == 3 => (Some(near_units.parse::<u32>()?), arguments),
        arguments => (None, arguments),
    };
    let [form, players, ticks] = arguments else { return Err("usage: FORM PLAYERS TICKS [NEAR_UNITS]".into()) };
    let format = match form.as_str() {
        "bytes" | "whole" => SnapshotFormat::Protobuf,
        "typed" => SnapshotFormat::TypedProtobuf,
        _ => return Err("FORM is bytes, whole or typed".into()),
    };
    let (players, ticks): (u32, u32) = (players.parse()?, ticks.parse()?);
    let mut params = match near_units {
        None => json!({"objects": 100, "everyone_sees_everything": true}),
        Some(units) => json!({
            "objects": 1_000, "columns": 9, "rows": 9, "near_cells": 4, "near_units": units.max(1),
            "near_permille": if units == 0 { 0 } else { 900 },
        }),
    };
    // States have the same length in all forms.
    params[if form == "bytes" { "state_bytes" } else { "typed" }] =
        if form == "bytes" { json!(9) } else { json!(true) };
    let simulation = Registry::built_in().make("crowd", &params).ok_or("no crowd")??;
    let mut room = Room::new(RoomOptions::default(), 1, simulation)?;
    let mut mirror = Mirror::new(room.grid().clone(), 60, room.keyframe(FormatSet::default().with(format)), [b"", b""]);
    for _ in 0..players {
        room.join(&Visitor::of_user(""), format, b"").map_err(|refusal| String::from(refusal.message))?;
    }
    let view = |player: u32| CellIndex(player % room.grid().len() as u32);
    let mut bases: Vec<_> = (0..players).map(|player| Base { tick: 0, view: view(player) }).collect();
    let (mut header, mut bytes) = (Vec::new(), 0);
    for tick in 1..=ticks {
        mirror.apply(room.tick(u64::from(tick)).update);
        for base in &mut bases {
            let body = mirror.body(format, base.view, *base);
            header.clear();
            wire::write_player_header(Encoding::Protobuf, tick, 0, None, &mut header);
            bytes += header.len() + body.bytes.len();
            base.tick = body.tick;
        }
    }
    let snapshots = u64::from(players) * u64::from(ticks);
    writeln!(std::io::stdout(), "{} bytes per snapshot", bytes as u64 / snapshots.max(1))?;
    Ok(())
}
