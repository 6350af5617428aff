//! `cluster`: what sharing channels between nodes costs. Each run has NATS servers and nodes of its own.
//!
//! - `args`: the command line. `latency`: the scenarios.
//! - `nats`: the NATS servers. `node`: the settings of nodes. `bare`: a NATS client without Dunlin.

pub mod args;

mod bare;
mod latency;
mod nats;
mod node;

use self::args::{ClusterBenchArgs, ClusterScenario};
use crate::error::Error;

/// Runs the scenario of the command line.
pub fn run(args: &ClusterBenchArgs) -> Result<(), Error> {
    match &args.scenario {
        ClusterScenario::Latency(args) => latency::run(args),
    }
}
