//! The real binary over real sockets: all requests that a shard passes to the HTTP server.
//!
//! - `server.rs` starts and stops a `dunlin` and sends requests to it
//! - `hook.rs` starts a backend that answers over HTTP
//! - `replays.rs` replays recordings with the real binary
//! - `limits.rs` each limit of the HTTP server, at its value and one past it
//! - `framing.rs` requests with an ambiguous length
//! - `emulation.rs` commands in separate HTTP requests
//! - `internal.rs` the internal port
//! - `console.rs` the console
//! - `console_replays.rs` recordings in the console
//! - `upgrade.rs` `WebSocket`s on connections that have carried HTTP
//! - `shutdown.rs` signals
//! - `init.rs` the endpoint that tests the connection
//! - `jwks.rs` key sets over HTTPS
//! - `tls.rs` renewed certificates
//! - `observation.rs` metrics and the log
//! - `reload.rs` reloading the configuration
//! - `backups.rs` backups of the storage, and restores
//! - `api_commands.rs` the commands that call the server API
//! - `mcp.rs` the command that agents start
//! - `room_paths.rs` paths of players
//! - `room_calls.rs` calls of games to a backend
//! - `room_address.rs` addresses of players
//! - `room_connections.rs` what the connections of players have carried, in recordings
//! - `room_kick.rs` players that the backend removes
//! - `room_messages.rs` messages of the backend to rooms
//! - `room_listing.rs` rooms that the backend locks and describes
//! - `private_rooms.rs` rooms that admit only some users
//! - `room_params.rs` rooms with their own parameters
//! - `tag_results.rs` rounds of tag, whose results go to a backend
//! - `matchmaking.rs` matchmaking, and lobbies of rooms
//! - `cluster.rs` the server API on two nodes
//! - `cluster_nats.rs` two nodes with NATS: removed histories, a lost server, and TLS
//! - `demo.rs` the demo page and its prices
//!
//! Each test runs on both reactors. `tests/api` contains the cases of the API's methods as data.

mod api_commands;
mod backups;
mod cluster;
mod cluster_nats;
mod console;
mod console_replays;
mod demo;
mod emulation;
mod framing;
mod hook;
mod init;
mod internal;
mod jwks;
mod limits;
mod matchmaking;
mod mcp;
mod observation;
mod private_rooms;
mod reload;
mod removals;
mod replays;
mod room_address;
mod room_calls;
mod room_connections;
mod room_kick;
mod room_listing;
mod room_messages;
mod room_params;
mod room_paths;
pub mod server;
mod shutdown;
mod tag_results;
mod tls;
mod upgrade;
