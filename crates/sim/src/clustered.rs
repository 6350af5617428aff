//! Nodes of a cluster: each has an engine and the protocol of `dunlin-cluster`, and they share streams of a simulated
//! `JetStream`, which does what was measured of the real one. Clients move between the nodes. In some seeds nodes
//! send each other heartbeats and ask each other who is where.

mod broadcasts;
mod jetstream;
mod link_queues;
mod node;
mod options;
mod stream;
mod surveys;
mod world;

pub use world::{ClusteredWorld, Prepare};
