//! `storage`: the cost of namespaces with `durability`, and the effect of the storage on everything else.
//!
//! - `args`: the command line. `latency`, `start`, `background`: the scenarios.
//! - `fill`: writes a storage before a server opens it. `disk`: the duration of a sync, and statistics of compactions.

pub mod args;

mod background;
mod disk;
mod fill;
mod latency;
mod start;

use self::args::{StorageBenchArgs, StorageScenario};
use crate::error::Error;

/// Runs the scenario of the command line.
pub fn run(args: &StorageBenchArgs) -> Result<(), Error> {
    match &args.scenario {
        StorageScenario::Latency(args) => latency::run(args),
        StorageScenario::Start(args) => start::run(args),
        StorageScenario::Background(args) => background::run(args),
    }
}
