//! Runs the body of the fuzz target on its committed seeds, so that earlier findings stay fixed, and on generated
//! bytes.

use dunlin_proof::{chance::Xorshift, corpus};

use crate::fuzzing;

#[test]
fn engine_session() {
    corpus::play("engine_session", fuzzing::session);
}

#[test]
fn the_session_target_accepts_generated_bytes() {
    let mut chance = Xorshift::new(1);
    for _ in 0..2_000 {
        let data: Vec<u8> = (0..128).flat_map(|_| chance.draw().to_le_bytes()).collect();
        fuzzing::session(&data);
    }
}
