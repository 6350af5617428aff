//! The load generator behind `dunlin bench`.
//!
//! A run consists of several processes of this program. The orchestrator, which the user starts, starts the server
//! under test and the *workers*, sends commands to their stdin ([`control`]) and combines their answers into a report.
//! Workers are subscribers, a publisher, or the two sides of the roofline. None of them shares a process with the
//! server, or a core if there are enough cores.
//!
//! - [`Args`] and [`run`]: the interface for the binary.
//! - `roofline`, `fanout`, `slow_reader`, `idle`, `subscribers`, `storm`: the scenarios; `rig` is the setup that most
//!   of them share, `goal` their target figures.
//! - `room`, `storage`, `cluster`: the scenarios of rooms, of the storage and of clusters, with their specific code.
//! - `worker`: the code of the workers. `worker_process`, `control`, `tally`: communication with them.
//! - `wire`, `push`, `commands`, `payload`, `api`: encoding and decoding. `metrics`: the server's metrics. `proc`,
//!   `spawn`, `folder`, `tls`: the machine and the server under test.

mod api;
mod args;
mod cluster;
mod commands;
mod control;
mod error;
mod fanout;
mod folder;
mod goal;
mod idle;
mod latency;
mod metrics;
mod payload;
mod proc;
mod progress;
mod push;
mod report;
mod rig;
mod roofline;
mod room;
mod slow_reader;
mod spawn;
mod storage;
mod storm;
mod subscribers;
mod tally;
mod tls;
mod wire;
mod worker;
mod worker_process;

pub use args::Args;
pub use error::Error;

use args::Scenario;
use cluster::args::{ClusterBenchArgs, ClusterScenario};

/// Runs the command. Results go to stdout or a file, tables and progress to stderr.
///
/// The workers are started as `bench worker` of the current program, so the caller must pass the arguments after the
/// word `bench` to [`Args`].
///
/// # Errors
/// If the run could not be completed; see [`Error`].
pub fn run(args: Args) -> Result<(), Error> {
    proc::raise_open_files_limit();
    match args.scenario {
        Scenario::Roofline(args) => roofline::run(&args),
        Scenario::Fanout(args) => fanout::run(&args),
        Scenario::SlowReader(args) => slow_reader::run(&args),
        Scenario::Idle(args) => idle::run(&args),
        Scenario::Subscribers(args) => subscribers::run(&args),
        Scenario::Storm(args) => storm::run(&args),
        Scenario::Room(args) => room::run(&args),
        Scenario::Storage(args) => storage::run(&args),
        Scenario::Cluster(args) => cluster::run(&args),
        Scenario::Drain(args) => cluster::run(&ClusterBenchArgs { scenario: ClusterScenario::Drain(args) }),
        Scenario::Worker => {
            worker::run();
            Ok(())
        }
    }
}
