//! RFC 6455 for servers: converts between bytes and messages, without sockets.
//!
//! Four parts, each usable without the others:
//!
//! - [`handshake`] validates an upgrade request and writes the response;
//! - [`Receiver`] decodes a client's bytes, in pieces of any size, into messages;
//! - [`header`] encodes frames, so that a publication is framed once for all its subscribers;
//! - [`deflate`] compresses and decompresses messages if both sides negotiated it.
//!
//! This crate reads no clock, opens no socket and starts no thread. Times are arguments in milliseconds.
#![forbid(unsafe_code)]
// `&mut &mut [u8]`: a slice that shrinks from its front, like `std::io::Read` for `&mut &[u8]`, but unmasked in place.
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

pub use error::ReceiveError;
pub use header::Opcode;
pub use limits::WebSocketLimits;
pub use receiver::{MessageKind, Received, Receiver};
