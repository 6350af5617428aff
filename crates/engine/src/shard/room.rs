//! The state of rooms on a shard: the owner's part and the sessions' part.

mod openers;
mod thread;

pub(super) use openers::Openers;
pub(super) use thread::RoomThread;
