//! The fuzz target's body over its committed seeds, so that what a fuzzer once found stays found; and over bytes of a
//! small generator.

use std::{fs, path::Path};

use dunlin_engine::fuzzing;

#[test]
fn engine_session() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/engine_session");
    let entries = fs::read_dir(&corpus).unwrap_or_else(|error| panic!("{}: {error}", corpus.display()));
    let mut seeds = 0;
    for entry in entries {
        let path = entry.expect("an entry").path();
        // Shown only when the body fails: the seed to look at.
        println!("{}", path.display());
        fuzzing::session(&fs::read(&path).expect("a readable seed"));
        seeds += 1;
    }
    assert!(seeds >= 10, "{} has only {seeds} seeds", corpus.display());
}

#[test]
fn bytes_of_a_generator() {
    // Marsaglia's xorshift: any bytes do, as long as they are the same each time.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    for _ in 0..2_000 {
        let data: Vec<u8> = (0..128).flat_map(|_| next()).collect();
        fuzzing::session(&data);
    }
}
