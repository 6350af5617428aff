//! All tests of this crate's public interface, in one binary.

use dunlin_proof::allocations::Counting;

#[path = "../../../fuzz/bodies/protocol.rs"]
mod fuzzing;

mod allocations;
mod codes;
mod corpus;
mod delta;
mod limits;
mod meaning;
mod messages;
mod properties;
mod schema;
mod vectors;

/// Counts per thread, so that a test sees only its own allocations.
#[global_allocator]
static ALLOCATOR: Counting = Counting;
