//! Runs the room of `dunlin bench room everyone --typed` without sockets, for counts of instructions:
//!
//! ```text
//! perf stat -e instructions:u snapshot_cost FORM PLAYERS TICKS
//! ```
//!
//! `FORM` is `bytes` for a game that writes bytes, and `whole` or `typed` for one that writes structs. All players
//! receive all ticks; their frames are assembled and not written.

use std::{env, error::Error, io::Write};

use dunlin_games::Registry;
use dunlin_protocol::Encoding;
use dunlin_rooms::{Base, CellIndex, FormatSet, Mirror, Room, RoomOptions, SnapshotFormat, Visitor, wire};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [form, players, ticks] = arguments.as_slice() else { return Err("usage: FORM PLAYERS TICKS".into()) };
    let format = match form.as_str() {
        "bytes" | "whole" => SnapshotFormat::Protobuf,
        "typed" => SnapshotFormat::TypedProtobuf,
        _ => return Err("FORM is bytes, whole or typed".into()),
    };
    let (players, ticks): (u32, u32) = (players.parse()?, ticks.parse()?);
    let mut params = json!({"objects": 100, "everyone_sees_everything": true});
    // States have the same length in all forms.
    params[if form == "bytes" { "state_bytes" } else { "typed" }] =
        if form == "bytes" { json!(9) } else { json!(true) };
    let simulation = Registry::built_in().make("crowd", &params).ok_or("no crowd")??;
    let mut room = Room::new(RoomOptions::default(), 1, simulation)?;
    let mut mirror = Mirror::new(room.grid().clone(), 60, room.keyframe(FormatSet::default().with(format)), [b"", b""]);
    for _ in 0..players {
        room.join(&Visitor::of_user(""), format, b"").map_err(|refusal| String::from(refusal.message))?;
    }
    let mut bases = vec![Base::default(); players as usize];
    let (mut header, mut bytes) = (Vec::new(), 0);
    for tick in 1..=ticks {
        mirror.apply(room.tick(u64::from(tick)).update);
        for base in &mut bases {
            let body = mirror.body(format, CellIndex(0), *base);
            header.clear();
            wire::write_player_header(Encoding::Protobuf, tick, 0, None, &mut header);
            bytes += header.len() + body.bytes.len();
            *base = Base { tick: body.tick, view: CellIndex(0) };
        }
    }
    let snapshots = u64::from(players) * u64::from(ticks);
    writeln!(std::io::stdout(), "{} bytes per snapshot", bytes as u64 / snapshots.max(1))?;
    Ok(())
}
