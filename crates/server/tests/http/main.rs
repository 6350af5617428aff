//! The real binary over real sockets: everything on the port that is not a fresh `WebSocket`.
//!
//! - `server.rs` starts and ends a `dunlin`, and speaks to it
//! - `limits.rs` each bound of the HTTP server, at it and one past it
//! - `internal.rs` the internal port
//! - `upgrade.rs` `WebSocket`s on connections that have carried HTTP
//! - `shutdown.rs` signals
//! - `observation.rs` metrics and the log
//! - `demo.rs` the page of the demonstration and its prices
//!
//! What the API's methods answer is in `tests/api`, as data.

mod demo;
mod internal;
mod limits;
mod observation;
mod server;
mod shutdown;
mod upgrade;

/// What the shards wait on; `http_io_uring` has the same tests for the other.
const REACTOR: &str = "epoll";
