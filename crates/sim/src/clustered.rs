//! A cluster of nodes. Each node runs an engine and the protocol core of `dunlin-cluster`. The nodes share the streams
//! of a simulated `JetStream`, which behaves as measured on real servers. Clients move between the nodes. In some
//! seeds, nodes send each other heartbeats and surveys.

mod broadcasts;
mod jetstream;
mod link_queues;
mod node;
mod options;
mod stream;
mod surveys;
mod world;

pub use world::{ClusterFlaw, ClusteredWorld};
