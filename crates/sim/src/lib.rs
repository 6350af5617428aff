//! The deterministic simulator: complete nodes of shards and clients, driven by a seed.
//!
//! A run is a function of its seed. The seed determines the number of shards, the limits, the clients and their
//! actions, the delay of each message between threads, when rooms tick and which of them fail, how many bytes each
//! socket takes and when they are read, and what operators do and when. Clients read the real bytes with a decoder of
//! their own and check them against a model that shares no code with the engine. They apply snapshots of rooms with the
//! replica of `dunlin-rooms` and compare it with the game's own record of its world.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a field whose name says all has no comment")]

mod chance;
mod checks;
mod client;
mod clustered;
mod kept;
mod logged;
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

use dunlin_cluster::core::Core;
use dunlin_engine::Shard;

pub use kept::KeptFlaw;
pub use world::SeatFlaw;

/// How a run went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOutcome {
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
pub fn run(seed: u64, prints: bool, prepare: &dyn Fn(&mut Shard)) -> RunOutcome {
    let mut world = world::NodeWorld::new(seed, prints, prepare);
    let failure = failure_of(|| world.run());
    let (steps, trace_hash) = world.record();
    RunOutcome { seed, steps, trace_hash, failure, reached: world.reached() }
}

/// The same for a node whose room threads have a mistake.
pub fn run_seated(seed: u64, flaw: SeatFlaw) -> RunOutcome {
    let mut world = world::NodeWorld::new(seed, false, &|_| {});
    world.plant(flaw);
    let failure = failure_of(|| world.run());
    let (steps, trace_hash) = world.record();
    RunOutcome { seed, steps, trace_hash, failure, reached: world.reached() }
}

/// The same for a world whose channels have a log that delays, fails and survives crashes of the node.
pub fn run_logged(seed: u64, prints: bool, prepare: &dyn Fn(&mut Shard)) -> RunOutcome {
    let mut world = logged::LoggedWorld::new(seed, prints, prepare);
    let failure = failure_of(|| world.run());
    let (steps, trace_hash) = world.record();
    RunOutcome { seed, steps, trace_hash, failure, reached: world.reached() }
}

/// The same for a node with a room that is kept on disk, and goes on after crashes and stops of the node. `flaw` is a mistake
/// of the room's thread.
pub fn run_kept(seed: u64, prints: bool, prepare: &dyn Fn(&mut Shard), flaw: Option<KeptFlaw>) -> RunOutcome {
    let mut world = kept::KeptWorld::new(seed, prints, prepare, flaw);
    let failure = failure_of(|| world.run());
    let (steps, trace_hash) = world.record();
    RunOutcome { seed, steps, trace_hash, failure, reached: world.reached() }
}

/// The same for a cluster, whose nodes and servers fail. `prepare_core` is applied to the protocol of each node.
pub fn run_clustered(
    seed: u64,
    prints: bool,
    prepare: &dyn Fn(&mut Shard),
    prepare_core: &dyn Fn(&mut Core),
) -> RunOutcome {
    let prepare = clustered::Prepare { shard: prepare, core: prepare_core };
    let mut world = clustered::ClusteredWorld::new(seed, prints, prepare);
    let failure = failure_of(|| world.run());
    let (steps, trace_hash) = world.record();
    RunOutcome { seed, steps, trace_hash, failure, reached: world.reached() }
}

fn failure_of(run: impl FnOnce() -> Result<(), String>) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(outcome) => outcome.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            Some(format!("panic: {}", text.unwrap_or("without words")))
        }
    }
}
