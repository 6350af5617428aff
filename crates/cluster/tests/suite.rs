//! The tests against real servers of NATS, in one binary.

mod check;
mod followed;
mod links;
mod streams;
mod thread;
