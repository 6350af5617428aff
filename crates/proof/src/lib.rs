//! What the tests of several crates share. No crate needs it to run.

pub mod allocations;
pub mod chance;
pub mod corpus;
pub mod members;
pub mod nats;
pub mod programs;
