//! A hash of an object that is the same in all versions, on all machines and in all builds.

use crate::{ObjectId, Position};

/// A hash of an object as clients see it. It is the same in the world and in a replica.
///
/// The input is a sequence of 64-bit words: `id | kind << 32`, `x | y << 32`, the length of the state in bytes, and the
/// state's bytes, eight per word, the lowest first, padded with zeros. The hash begins with 0. For each word: exclusive
/// or, multiply by `0x9e37_79b9_7f4a_7c15`, exclusive or with itself shifted right by 32. The finalizer of `SplitMix64`
/// follows at the end.
pub fn object_hash(id: ObjectId, kind: u16, position: Position, state: &[u8]) -> u64 {
    let mut hash = take_in(0, pair(id.0, kind.into()));
    hash = take_in(hash, pair(position.x, position.y));
    hash = take_in(hash, state.len() as u64);
    let (words, rest) = state.as_chunks::<8>();
    for word in words {
        hash = take_in(hash, u64::from_le_bytes(*word));
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = take_in(hash, u64::from_le_bytes(last));
    }
    finalize(hash)
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn take_in(hash: u64, word: u64) -> u64 {
    let product = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
}

/// Makes every bit of the words affect every bit of an exclusive-or of many hashes.
fn finalize(hash: u64) -> u64 {
    let hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}
