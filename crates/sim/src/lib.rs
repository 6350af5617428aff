//! The deterministic simulator: complete nodes of shards and clients, driven by a seed.
//!
//! A run is a function of its seed. The seed determines the number of shards, the limits, the clients and their
//! actions, the delay of each message between threads, when rooms tick and which of them fail, how many bytes each
//! socket takes and when they are read, and the actions of operators. Clients decode the bytes from the server with
//! their own decoder and check them against a model that shares no code with the engine. They apply snapshots of rooms
//! with the replica of `dunlin-rooms` and compare it with what the game recorded about its world.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "fields with self-explanatory names have no comment")]

mod chance;
mod checks;
mod client;
mod clustered;
mod harness;
mod kept;
mod logged;
mod model;
mod plan;
mod ring;
mod rooms;
mod session;
mod socket;
mod token;
mod trace;
mod wire;
mod world;

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use harness::{Harness, World};

pub use clustered::ClusterFlaw;
pub use kept::KeptFlaw;
pub use logged::LogFlaw;
pub use world::{NodeFlaw, SeatFlaw};

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOutcome {
    pub seed: u64,
    /// Number of steps until the end or the failure.
    pub steps: u64,
    /// A hash of the trace.
    pub trace_hash: u64,
    /// The check that failed.
    pub failure: Option<String>,
    /// How often each labelled case occurred: commands, errors, closes, recoveries and others.
    pub reached: BTreeMap<String, u64>,
}

/// Runs the world of `seed`. If `prints` is set, the trace is written to standard output.
pub fn run(seed: u64, prints: bool) -> RunOutcome {
    outcome_of(seed, world::NodeWorld::new(seed, prints))
}

/// Like [`run`], with a bug in the room threads.
pub fn run_seated(seed: u64, flaw: SeatFlaw) -> RunOutcome {
    let mut world = world::NodeWorld::new(seed, false);
    world.plant(flaw);
    outcome_of(seed, world)
}

/// Like [`run`], for a node whose channels have a log. The log has delays, fails, and survives crashes of the node.
pub fn run_logged(seed: u64, prints: bool) -> RunOutcome {
    outcome_of(seed, logged::LoggedWorld::new(seed, prints))
}

/// Like [`run`], with a bug between the shards, or between a shard and its caller.
pub fn run_node_flawed(seed: u64, flaw: NodeFlaw) -> RunOutcome {
    let mut world = world::NodeWorld::new(seed, false);
    world.plant_in_node(flaw);
    outcome_of(seed, world)
}

/// Like [`run_logged`], with a bug between the shards and the log.
pub fn run_log_flawed(seed: u64, flaw: LogFlaw) -> RunOutcome {
    let mut world = logged::LoggedWorld::new(seed, false);
    world.plant(flaw);
    outcome_of(seed, world)
}

/// Like [`run`], for a node with a room that is stored on disk and continues after the node crashes or stops. `flaw` is
/// a bug in the room thread.
pub fn run_kept(seed: u64, prints: bool, flaw: Option<KeptFlaw>) -> RunOutcome {
    outcome_of(seed, kept::KeptWorld::new(seed, prints, flaw))
}

/// Like [`run`], for a cluster whose nodes and servers fail.
pub fn run_clustered(seed: u64, prints: bool) -> RunOutcome {
    outcome_of(seed, clustered::ClusteredWorld::new(seed, prints, None))
}

/// Like [`run_clustered`], with a bug between the shard and the core of each node.
pub fn run_cluster_flawed(seed: u64, flaw: ClusterFlaw) -> RunOutcome {
    outcome_of(seed, clustered::ClusteredWorld::new(seed, false, Some(flaw)))
}

fn outcome_of(seed: u64, mut world: impl World) -> RunOutcome {
    let failure = match catch_unwind(AssertUnwindSafe(|| world.run())) {
        Ok(outcome) => outcome.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            Some(format!("panic: {}", text.unwrap_or("without a message")))
        }
    };
    let reached = world.reached();
    let Harness { steps, trace, .. } = world.harness();
    RunOutcome { seed, steps: *steps, trace_hash: trace.hash(), failure, reached }
}
