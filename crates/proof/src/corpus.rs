//! The fuzz targets' committed seeds, so that what a fuzzer once found stays found.

use std::fs;

use crate::repository;

/// Fewer seeds than this, and something is wrong with the folder.
const SEEDS_MIN: usize = 10;

/// Gives each seed of a target to its body.
///
/// # Panics
/// Where the body does, or without seeds.
pub fn play(target: &str, body: fn(&[u8])) {
    let corpus = repository().join("fuzz/corpus").join(target);
    let entries = fs::read_dir(&corpus).unwrap_or_else(|error| panic!("{}: {error}", corpus.display()));
    let mut seeds = 0;
    for entry in entries {
        let path = entry.expect("an entry").path();
        // Shown only when the body fails: the seed to look at.
        println!("{}", path.display());
        body(&fs::read(&path).expect("a readable seed"));
        seeds += 1;
    }
    assert!(seeds >= SEEDS_MIN, "{} has only {seeds} seeds", corpus.display());
}
