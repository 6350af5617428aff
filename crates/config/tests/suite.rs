//! All tests of this crate's public interface, in one binary.

#[path = "../../../fuzz/bodies/config.rs"]
mod fuzzing;

mod canaries;
mod corpus;
mod messages;
mod reference;
mod starting;
mod variables;
