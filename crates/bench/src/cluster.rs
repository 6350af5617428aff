//! `cluster`: the cost of sharing channels between nodes. Each run starts its own NATS servers and nodes.
//!
//! - `args`: the command line. `latency`, `fanout`, `recovery`, `drain`, `failover` with `node_loss` and
//!   `leader_loss`: the scenarios.
//! - `nats`: the NATS servers. `node`: the settings of nodes. `bare`: a NATS client without Dunlin. `histories`:
//!   publications for recoveries. `sessions`: subscribers that reconnect to another node when theirs ends. `elections`:
//!   advisories of the NATS servers.

pub mod args;

mod bare;
mod drain;
mod elections;
mod failover;
mod fanout;
mod histories;
mod latency;
mod leader_loss;
mod nats;
mod node;
mod node_loss;
mod recovery;
mod sessions;

use self::args::{ClusterBenchArgs, ClusterScenario};
use crate::error::Error;

/// Runs the scenario of the command line.
pub fn run(args: &ClusterBenchArgs) -> Result<(), Error> {
    match &args.scenario {
        ClusterScenario::Latency(args) => latency::run(args),
        ClusterScenario::Fanout(args) => fanout::run(args),
        ClusterScenario::Recovery(args) => recovery::run(args),
        ClusterScenario::Drain(args) => drain::run(args),
        ClusterScenario::Failover(args) => failover::run(args),
    }
}
