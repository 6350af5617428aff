//! All tests of this crate over its public interface, in one binary.

use dunlin_proof::allocations::Counting;

#[path = "../../../fuzz/bodies/engine/session.rs"]
mod fuzzing;

mod allocations;
mod bandwidth;
mod carried;
mod checkpoint_formats;
mod corpus;
mod deltas_at_random;
mod examined_frames;
mod following;
mod hall;
mod keyframe;
mod node;
mod outgoing_together;
mod paces;
mod pacing;
mod peers;
mod permissions;
mod recoveries;
mod reserved_places;
mod room_calls;
mod room_events;
mod room_memory;
mod room_messages;
mod room_openings;
mod room_params;
mod room_queries;
mod rooms;
mod rooms_at_random;
mod scripts;
#[path = "seats.rs"]
mod seats;
mod seats_at_random;
mod seats_kept;
mod seats_unanswered;
mod session_size;
mod shard;
mod visitor_address;

/// Counts per thread, so a test measures only its own allocations.
#[global_allocator]
static ALLOCATOR: Counting = Counting;
