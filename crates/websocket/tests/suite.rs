//! All tests of this crate's public interface, in one binary.

use dunlin_proof::allocations::Counting;

#[path = "../../../fuzz/bodies/websocket.rs"]
mod fuzzing;

mod corpus;
mod deflate;
mod limits;
mod properties;
mod vectors;

/// It counts for each thread, so a test sees its own allocations alone.
#[global_allocator]
static ALLOCATOR: Counting = Counting;
