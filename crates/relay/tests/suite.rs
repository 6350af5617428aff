//! All tests of this crate's public interface, in one binary.

#[path = "../../../fuzz/bodies/relay.rs"]
mod fuzzing;

mod corpus;
mod limits;
mod links;
mod nodes;
mod remote_play;
