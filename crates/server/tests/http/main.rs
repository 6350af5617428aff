//! The real binary over real sockets: everything on the port that is not a fresh `WebSocket`.
//!
//! - `server.rs` starts and ends a `dunlin`, and speaks to it
//! - `limits.rs` each bound of the HTTP server, at it and one past it
//! - `internal.rs` the internal port
//! - `upgrade.rs` `WebSocket`s on connections that have carried HTTP
//! - `shutdown.rs` signals
//! - `init.rs` the endpoint that does nothing but answer
//! - `jwks.rs` key sets over HTTPS
//! - `tls.rs` certificates that are renewed
//! - `observation.rs` metrics and the log
//! - `demo.rs` the page of the demonstration and its prices
//!
//! What the API's methods answer is in `tests/api`, as data.

mod demo;
mod init;
mod internal;
mod jwks;
mod limits;
mod observation;
mod server;
mod shutdown;
mod tls;
mod upgrade;

/// What the shards wait on; `http_io_uring` has the same tests for the other.
const REACTOR: &str = "epoll";
