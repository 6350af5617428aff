//! The fuzz targets' bodies over their committed seeds, so that what a fuzzer once found stays found.

use dunlin_proof::corpus;
use dunlin_rooms::fuzzing;

#[test]
fn room_input() {
    corpus::play("room_input", fuzzing::input);
}

#[test]
fn room_snapshot() {
    corpus::play("room_snapshot", fuzzing::snapshots);
}
