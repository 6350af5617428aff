//! A node with real threads and real sockets: shards, rings, the HTTP head, and WebSocket frames byte by byte.

mod client;
mod door;
mod hand_over;
mod limits;
mod rig;
mod sessions;
mod shards;
