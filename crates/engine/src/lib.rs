//! Shards, sessions, channels, lanes, history, recovery and presence: no clock, no I/O.
//!
//! A [`Shard`] is a state machine. [`Shard::handle`] takes the time and an [`Event`] and returns [`Effects`]; nothing
//! else changes a shard. [`Shard::outgoing`] offers bytes for a socket, and [`Event::Wrote`] removes them. Results of
//! other threads (a token was verified, another shard has answered) arrive as events. A seeded simulator and real
//! threads can therefore run the same node.
//!
//! A *session* belongs to the shard whose listener accepted it. A *channel* has one *owner* shard, chosen by hash. The
//! owner orders the channel's publications, keeps its history and presence, and knows which shards have subscribers.
//! Every other shard knows only its own subscribers.

#![forbid(unsafe_code)]

pub mod access_rules;
mod answers;
pub mod api;
pub mod backend;
pub mod broadcast;
pub mod counters;
pub mod event;
pub mod host;
pub mod insight;
pub mod lifecycle;
pub mod log;
mod log_in_flight;
mod log_load;
pub mod message;
pub mod options;
pub mod record;
mod refused;
pub mod room;

#[doc(hidden)]
mod shard;

mod session;

mod session_tag;

mod channel;
pub mod channel_creators;
mod conflation_keys;
mod epochs;
mod filters;
mod history_bytes;
mod history_stream;
mod idempotency;

mod frame;
mod hub;
mod names;
mod outbox;
pub mod pace;
mod paced_subscribers;
mod session_seats;
mod shrink;
mod slab;
mod timers;
mod token_bucket;
mod wire;

pub use event::{Effect, Effects, Event, Now, SessionKey, ShardIndex, SourceKey};
pub use frame::Delivery;
pub use names::NamespaceNames;
pub use options::Options;
pub use outbox::Outgoing;
pub use refused::Refused;
pub use session_tag::{SESSION_TAG_KEY_BYTES, SessionTagKey};
pub use shard::{Seed, Shard, ShardIdentity, owner_of, shard_of_session};
pub use token_bucket::RefillRate;
pub use wire::{FrameClass, Wire};
