//! RFC 6455 for servers: bytes to messages and back, without sockets.
//!
//! Four parts, each usable without the others:
//!
//! - [`handshake`] judges an upgrade request and writes the answer to it;
//! - [`Receiver`] turns what a client sends, in whatever pieces it arrives, into messages;
//! - [`header`] writes what a server sends, so that a publication is framed once for all its subscribers;
//! - [`deflate`] compresses and inflates messages where both sides agreed on it.
//!
//! Nothing here reads a clock, opens a socket or starts a thread: time comes in as an argument in milliseconds.
#![forbid(unsafe_code)]
// A slice that is taken from its front, like `std::io::Read` for `&mut &[u8]`, but unmasked in place.
#![allow(clippy::mut_mut)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::unreachable)
)]

mod client_frame;
pub mod close;
pub mod deflate;
mod error;
pub mod handshake;
pub mod header;
mod limits;
mod mask;
mod receiver;

#[doc(hidden)]
pub mod fuzzing;

pub use error::ReceiveError;
pub use header::Opcode;
pub use limits::Limits;
pub use receiver::{Kind, Received, Receiver};
