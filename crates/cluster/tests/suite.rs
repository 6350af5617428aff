//! The tests against real servers of NATS, in one binary.

mod check;
mod followed;
mod leases;
mod links;
mod room_logs;
mod starts;
mod streams;
mod thread;
