//! A node with real threads and real sockets: shards, rings, the HTTP head, and WebSocket frames byte by byte.
//!
//! With shards that wait on epoll; `node_io_uring` has the same tests for `io_uring`.

mod answers;
mod backends;
mod client;
mod crowds;
mod door;
mod hand_over;
mod limits;
mod rig;
mod sessions;
mod shards;
mod tls;
mod transports;

/// What the shards wait on.
const REACTOR: dunlin::node::ReactorWish = dunlin::node::ReactorWish::Epoll;
