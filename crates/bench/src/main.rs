//! `dunlin-bench`: the load generator. `dunlin bench` starts it with the same arguments.
//!
//! A run consists of several processes of this program. The orchestrator, which the user starts, starts the server
//! under test and the *workers*, sends commands to their stdin ([`control`]) and combines their answers into a report.
//! Workers are subscribers, a publisher, or the two sides of the roofline. None of them shares a process with the
//! server, or a core if there are enough cores.
//!
//! - `args`: the command line.
//! - `scenario`: scenarios that a profile describes, on one rig; their results, comparisons and pages.
//! - `roofline`, `fanout`, `slow_reader`, `idle`, `subscribers`, `storm`: the scenarios; `rig` is the setup that most
//!   of them share, `goal` their target figures.
//! - `room`, `storage`, `cluster`: the scenarios of rooms, of the storage and of clusters, with their specific code.
//! - `worker`: the code of the workers. `worker_process`, `control`, `tally`, `shared_array`: communication with them.
//!   `interrupt`: Ctrl-C.
//! - `wire`, `push`, `commands`, `payload`, `stamp_numbers`, `api`: encoding and decoding. `metrics`: the server's metrics. `proc`,
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
mod interrupt;
mod latency;
mod metrics;
mod payload;
mod peer;
mod proc;
mod progress;
mod push;
mod report;
mod rig;
mod roofline;
mod room;
mod scenario;
mod shared_array;
mod slow_reader;
mod spawn;
mod stamp_numbers;
mod storage;
mod storm;
mod subscribers;
mod tally;
mod tls;
mod wire;
mod worker;
mod worker_process;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

use args::{Args, Scenario};
use cluster::args::{ClusterBenchArgs, ClusterScenario};
use error::Error;

fn main() -> ExitCode {
    match run(Args::parse().scenario) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "dunlin-bench: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// Runs a scenario. The table goes to stdout, progress to stderr, and JSON where `--json` says.
fn run(scenario: Scenario) -> Result<(), Error> {
    proc::raise_open_files_limit();
    if !looks_for_signals(&scenario) {
        interrupt::end_at_once()?;
    }
    match scenario {
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
        Scenario::Run(args) => scenario::run(&args),
        Scenario::Compare(args) => scenario::compare::run(&args),
        Scenario::Report(args) => scenario::report(&args),
        Scenario::Plan(args) => scenario::plan::run(&args),
        Scenario::Worker => {
            worker::run();
            Ok(())
        }
    }
}

/// Whether a scenario ends itself when it is interrupted.
fn looks_for_signals(scenario: &Scenario) -> bool {
    matches!(
        scenario,
        Scenario::Run(_)
            | Scenario::Compare(_)
            | Scenario::Plan(_)
            | Scenario::Idle(_)
            | Scenario::Report(_)
            | Scenario::Worker
    )
}
