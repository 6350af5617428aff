//! The tests of `http`, each of them once more, with shards that wait on `io_uring`.

#[path = "../http/demo.rs"]
mod demo;
#[path = "../http/jwks.rs"]
mod jwks;
#[path = "../http/limits.rs"]
mod limits;
#[path = "../http/observation.rs"]
mod observation;
#[path = "../http/server.rs"]
mod server;
#[path = "../http/shutdown.rs"]
mod shutdown;
#[path = "../http/tls.rs"]
mod tls;
#[path = "../http/upgrade.rs"]
mod upgrade;

/// What the shards wait on.
const REACTOR: &str = "io_uring";
