//! A node with real threads and real sockets: shards, rings, the HTTP head, and WebSocket frames byte by byte.
//!
//! Each test runs on both reactors.

mod answers;
mod backends;
mod client;
mod crowds;
mod hand_over;
mod handshakes;
mod limits;
mod openings;
mod rig;
mod sessions;
mod shards;
mod surveys;
mod tls;
mod transports;
