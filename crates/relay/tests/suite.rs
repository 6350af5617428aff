//! All tests of the relay.

mod nodes;
mod remote_play;
