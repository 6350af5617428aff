//! All tests of this crate's public interface, in one binary.

use dunlin_proof::allocations::Counting;

#[path = "../../../fuzz/bodies/rooms.rs"]
mod fuzzing;

#[path = "picture/main.rs"]
mod picture;

mod allocations;
mod body_allocations;
mod calls;
mod corpus;
mod drift;
mod far_cells;
mod kinds;
mod limited;
mod listing;
mod migration;
mod near_kinds;
mod opening;
mod recording_versions;
mod rewind;
mod room;
mod typed_malformed;
mod typed_vectors;
mod vectors;

/// Counts per thread, so a test counts only its own allocations.
#[global_allocator]
static ALLOCATOR: Counting = Counting;
