//! The load generator behind `dunlin bench`.
//!
//! A run is several processes of this same program. The orchestrator (what the user started) starts the server under test and
//! the *workers*, gives them orders over their stdin ([`control`]) and puts their answers together into a report. Workers
//! are subscribers, a publisher, or the two sides of the roofline; nobody of them shares a process, or where it can be avoided
//! a core, with the server.
//!
//! - [`Args`] and [`run`]: what the binary needs.
//! - `roofline`, `fanout`, `slow_reader`, `idle`, `subscribers`, `storm`: the scenarios; `rig` is what most are made of, `goal`
//!   what they are judged by.
//! - `room`: the scenarios of rooms, and all that only they need.
//! - `worker`: what the other processes do. `crew`, `control`, `tally`: how they are reached.
//! - `wire`, `push`, `commands`, `payload`, `api`: the bytes. `proc`, `spawn`, `tls`: the machine and the server under test.

mod api;
mod args;
mod commands;
mod control;
mod crew;
mod error;
mod fanout;
mod goal;
mod idle;
mod latency;
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
mod storm;
mod subscribers;
mod tally;
mod tls;
mod wire;
mod worker;

pub use args::Args;
pub use error::Error;

use args::Scenario;

/// Runs what the command line says. Results go to stdout or a file, tables and progress to stderr.
///
/// The other processes of a run are started as `bench worker` of the current program: whatever calls this must hand the
/// arguments after the word `bench` to [`Args`].
///
/// # Errors
/// When the run could not be made; see [`Error`].
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
        Scenario::Worker => {
            worker::run();
            Ok(())
        }
    }
}
