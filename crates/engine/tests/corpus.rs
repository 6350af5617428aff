//! The fuzz target's body over its committed seeds, so that what a fuzzer once found stays found; and over bytes of a
//! small generator.

use dunlin_engine::fuzzing;
use dunlin_proof::corpus;

#[test]
fn engine_session() {
    corpus::play("engine_session", fuzzing::session);
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
