//! `cluster`: what sharing channels between nodes costs. Each run has NATS servers and nodes of its own.
//!
//! - `args`: the command line. `latency`, `fanout`, `recovery`: the scenarios.
//! - `nats`: the NATS servers. `node`: the settings of nodes. `bare`: a NATS client without Dunlin. `histories`:
//!   what sessions recover.

pub mod args;

mod bare;
mod fanout;
mod histories;
mod latency;
mod nats;
mod node;
mod recovery;

use self::args::{ClusterBenchArgs, ClusterScenario};
use crate::error::Error;

/// Runs the scenario of the command line.
pub fn run(args: &ClusterBenchArgs) -> Result<(), Error> {
    match &args.scenario {
        ClusterScenario::Latency(args) => latency::run(args),
        ClusterScenario::Fanout(args) => fanout::run(args),
        ClusterScenario::Recovery(args) => recovery::run(args),
    }
}
