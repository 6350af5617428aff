use dunlin_protocol::Encoding;
use dunlin_rooms::recording::Recorder;
use dunlin_rooms::{RoomOptions, Visitor};
use serde_json::json;

use super::*;

/// A recording of a crowd with one player that sends an input in tick 3, and the correct observations from each cell
/// after each tick.
pub fn recorded(ticks: u32) -> (Vec<u8>, ByTick) {
    let params = json!({"objects": 50, "columns": 4, "rows": 4, "near_cells": 1, "player_objects": true});
    let options = RoomOptions::default();
    let header = Header {
        simulation: "crowd".into(),
        params: params.to_string(),
        seed: 7,
        channel: String::new(),
        options: options.clone(),
    };
    let mut room = Room::new(options, 7, simulation(&header).unwrap()).unwrap();
    let mut recorder = Recorder::new(&header, Vec::new());
    let visitor = Visitor::of_user("");
    recorder.join(&visitor, Encoding::Protobuf, b"");
    let player = room.join(&visitor, Encoding::Protobuf, b"").unwrap().player;
    let mut seen = ByTick::new();
    for tick in 1..=ticks {
        if tick == 3 {
            recorder.input(player, 1, b"01234567");
            assert!(room.input(player, 1, b"01234567"));
        }
        room.tick(0);
        recorder.tick(&room);
        let cells = cell_hashes(&room);
        for view in 0..16 {
            let hash = near_hash(room.grid(), view, &cells);
            seen.entry(tick).or_default().push((Observation { room: 0, tick, view, hash }, 2));
        }
    }
    (std::mem::take(recorder.written()), seen)
}

#[test]
fn correct_observations_are_verified() {
    let (recording, seen) = recorded(5);
    let mut verified = Verified::default();
    verified.check(&recording, &seen);
    assert!(verified.is_good(), "{verified:?}");
    assert_eq!((verified.rooms, verified.ticks, verified.snapshots), (1, 5, 160));
}

#[test]
fn a_wrong_snapshot_is_found_with_its_tick_and_view() {
    let (recording, mut seen) = recorded(5);
    seen.get_mut(&4).unwrap()[6].0.hash ^= 1;
    let mut verified = Verified::default();
    verified.check(&recording, &seen);
    assert!(!verified.is_good());
    assert_eq!(verified.mismatches, 2);
    assert!(verified.first_mismatch.unwrap().starts_with("room 0, tick 4, seen from cell 6:"));
}

#[test]
fn unknown_ticks_and_views_are_found() {
    let (recording, mut seen) = recorded(5);
    seen.insert(6, vec![(Observation { room: 0, tick: 6, view: 0, hash: 0 }, 3)]);
    seen.get_mut(&2).unwrap()[0].0.view = 16;
    let mut verified = Verified::default();
    verified.check(&recording, &seen);
    assert_eq!((verified.unknown_ticks, verified.mismatches), (3, 2));
}

#[test]
fn an_invalid_recording_is_a_fault() {
    let mut verified = Verified::default();
    verified.check(b"nothing of the kind", &ByTick::new());
    assert_eq!(verified.recording_faults.len(), 1);
    assert!(!verified.is_good());
}
