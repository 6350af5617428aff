//! Why clients are behind: what a node knows about its sessions, as JSON, with a verdict in one sentence.
//!
//! The engine returns what is queued ([`dunlin_engine::insight`]), the shard's thread adds the socket, and [`Verdict`] judges
//! both. Nothing is counted for it when a publication is delivered.

mod described;
mod limits;
mod units;
mod verdict;

pub use described::{NodeJson, SessionJson};
pub use units::{Bytes, Millis};
pub use verdict::{Judged, Verdict};
