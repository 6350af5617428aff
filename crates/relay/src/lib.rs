//! Rooms with players on several nodes of a cluster.
//!
//! A room runs on one node, its *host*. Sessions stay on whatever node they are connected to, their *edge*. The relay of
//! an edge takes the place of the room's thread: shards send it joins, leaves and inputs, and receive ticks from it, which
//! their mirrors turn into snapshots. The relay of the host takes the place of the edge's shards: a room sees them beside
//! the shards of its own node. So one update a tick travels to each edge, whatever the number of players there.
//!
//! [`Relay`] is a state machine without I/O: messages and frames in, [`RelayEffect`]s out. The server runs it on a thread
//! of its own and sends the frames through NATS, which keeps their order but may lose some. After a loss, the rooms and
//! players between two nodes end, and clients join again; see `link`.

#![forbid(unsafe_code)]

mod late_frames;
mod link;
mod relay;
mod remote_players;
mod remote_rooms;

pub mod format;

pub use link::frame;
pub(crate) use relay::Output;
pub use relay::{
    LinkLoss, Relay, RelayCounters, RelayEffect, RelayLimit, RelayOptions, SILENCE_US_MAX, WAKE_INTERVAL_US,
};
