//! Shards, sessions, channels, lanes, history, recovery and presence: no clock, no I/O.
//!
//! A [`Shard`] is a state machine. [`Shard::handle`] takes the time and an [`Event`] and answers with [`Effects`]; there is
//! no other way to change it. Bytes for a socket are offered by [`Shard::outgoing`] and taken off by [`Event::Wrote`]. What
//! other threads know (whether a token is valid, what another shard answers) comes in as an event. So a whole node can be
//! run by a seeded simulator, and by real threads, without a difference.
//!
//! A *session* lives on the shard whose listener accepted it. A *channel* has one *owner* shard, chosen by hash: it orders
//! publications, keeps history and presence, and knows which shards listen. Every other shard knows only its own
//! subscribers of the channel.

#![forbid(unsafe_code)]

mod answers;
pub mod api;
pub mod backend;
pub mod counters;
pub mod event;
pub mod host;
pub mod message;
pub mod options;
pub mod room;

#[doc(hidden)]
pub mod fuzzing;

#[cfg(feature = "planted-bugs")]
pub mod planted;

mod shard;

mod session;

mod channel;
mod filters;
mod idempotency;
mod stream;

mod frame;
mod hub;
mod names;
mod outbox;
mod pace;
mod seats;
mod timers;
mod wire;

pub use event::{Effect, Effects, Event, Now, SessionKey, ShardIndex};
pub use frame::Delivery;
pub use options::Options;
pub use outbox::Outgoing;
pub use pace::Pace;
pub use shard::{Seed, Shard, ShardIdentity, owner_of, shard_of_session};
pub use wire::{FrameClass, Wire};
