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

/// It counts for each thread, so a test sees its own allocations alone.
#[global_allocator]
static ALLOCATOR: Counting = Counting;
