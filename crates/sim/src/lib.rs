//! The deterministic simulator: whole nodes of shards and clients under a seed.
//!
//! A run is a function of its seed. A seed decides how many shards there are, what the limits are, who the clients are and
//! what they do, how long each message between threads takes, when rooms tick and which of them fail, how many bytes each
//! socket takes and when they are read, what operators do, and when. Clients read the real bytes with a decoder of their
//! own, and hold everything that they hear against a model that shares no code with the engine. Snapshots of rooms they
//! take in with the replica of `dunlin-rooms`, and compare it with the account that the game keeps of its world.

#![forbid(unsafe_code)]

mod chance;
mod checks;
mod client;
mod model;
mod plan;
mod ring;
mod rooms;
mod socket;
mod token;
mod trace;
mod wire;
mod world;

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use dunlin_engine::Shard;

/// How a run went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Steps until the end, or until what should not have been.
    pub steps: u64,
    /// A hash of everything that happened.
    pub trace_hash: u64,
    /// What should not have been.
    pub failure: Option<String>,
    /// How often the shards counted what: commands, errors, closes, recoveries and the like.
    pub reached: BTreeMap<String, u64>,
}

/// Runs the world of `seed`. `prints` writes every step to the standard output; `prepare` is applied to each shard before
/// anything happens.
pub fn run(seed: u64, prints: bool, prepare: &dyn Fn(&mut Shard)) -> Outcome {
    let mut world = world::World::new(seed, prints, prepare);
    let failure = match catch_unwind(AssertUnwindSafe(|| world.run())) {
        Ok(outcome) => outcome.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            Some(format!("panic: {}", text.unwrap_or("without words")))
        }
    };
    let (steps, trace_hash) = world.record();
    Outcome { seed, steps, trace_hash, failure, reached: world.reached() }
}
