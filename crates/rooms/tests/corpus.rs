//! Runs the fuzz targets' bodies over their committed seeds, so that old findings stay fixed.

use dunlin_proof::corpus;

use crate::fuzzing;

#[test]
fn room_input() {
    corpus::play("room_input", fuzzing::input);
}

#[test]
fn room_snapshot() {
    corpus::play("room_snapshot", fuzzing::snapshots);
}

#[test]
fn room_recording() {
    corpus::play("room_recording", fuzzing::recording);
}

#[test]
fn room_path() {
    corpus::play("room_path", fuzzing::path);
}
