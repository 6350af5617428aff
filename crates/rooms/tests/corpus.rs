//! The fuzz targets' bodies over their committed seeds, so that what a fuzzer once found stays found.

use std::{fs, path::Path};

use dunlin_rooms::fuzzing;

#[test]
fn room_input() {
    run("room_input", fuzzing::input);
}

#[test]
fn room_snapshot() {
    run("room_snapshot", fuzzing::snapshots);
}

fn run(target: &str, body: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = fs::read_dir(&corpus).unwrap_or_else(|error| panic!("{}: {error}", corpus.display()));
    let mut seeds = 0;
    for entry in entries {
        let path = entry.expect("an entry").path();
        // Shown only when the body fails: the seed to look at.
        println!("{}", path.display());
        body(&fs::read(&path).expect("a readable seed"));
        seeds += 1;
    }
    assert!(seeds >= 10, "{} has only {seeds} seeds", corpus.display());
}
