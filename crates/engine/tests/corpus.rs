//! The fuzz target's body over its committed seeds, so that what a fuzzer once found stays found; and over bytes of a
//! small generator.

use dunlin_proof::{chance::Xorshift, corpus};

use crate::fuzzing;

#[test]
fn engine_session() {
    corpus::play("engine_session", fuzzing::session);
}

#[test]
fn bytes_of_a_generator() {
    let mut chance = Xorshift::new(1);
    for _ in 0..2_000 {
        let data: Vec<u8> = (0..128).flat_map(|_| chance.draw().to_le_bytes()).collect();
        fuzzing::session(&data);
    }
}
