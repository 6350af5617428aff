//! Clusters on NATS `JetStream`: nodes share channels, and the streams of NATS order and store their publications.
//!
//! [`core`] is the protocol as a state machine; [`record`], [`names`] and [`keys`] define its format in NATS. [`link`]
//! defines the interface between the protocol, which does no I/O, and the connections to NATS in [`links`]. [`streams`]
//! creates and checks streams. [`thread`] runs all of this on a thread besides the shards.

pub mod check;
pub mod core;
pub mod keys;
pub mod link;
pub mod links;
pub mod names;
pub mod node_frames;
pub mod record;
pub mod streams;
pub mod thread;
pub mod timestamps;
