//! The fuzz targets over their committed seeds.

use std::{fs, path::Path};

#[test]
fn configurations() {
    play("config", 40, dunlin::fuzzing::config);
}

#[test]
fn tokens() {
    play("token", 10, dunlin::fuzzing::token);
}

fn play(target: &str, seeds_min: usize, body: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = fs::read_dir(&corpus).unwrap_or_else(|error| panic!("{}: {error}", corpus.display()));
    let mut seeds = 0;
    for entry in entries {
        let path = entry.expect("a directory entry").path();
        body(&fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
        seeds += 1;
    }
    assert!(seeds >= seeds_min, "{} has only {seeds} seeds", corpus.display());
}
