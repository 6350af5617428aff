//! The Dunlin server: threads, sockets, configuration, HTTP, metrics and the command line.
//!
//! A library so that tests and fuzz targets reach its parts; the binary is a few lines around it. Nothing here decides
//! anything: sessions and channels live in `dunlin-engine`, and this crate performs what the engine asks for.

pub mod backend;
pub mod cli;
pub mod compatibility;
pub mod config;
pub mod demo;
#[doc(hidden)]
pub mod fuzzing;
pub mod http;
pub mod net;
pub mod node;
pub mod ring;
pub mod rooms;
pub mod serve;
pub mod telemetry;
pub mod tls;
pub mod token;

use std::process::ExitCode;

use clap::Parser as _;
use dunlin_games::Registry;

/// The command line `dunlin`, with these simulations: what a binary with games of its own calls.
///
/// Ends with 0 when what was asked is done, 1 when it could not be done, 2 for a command line that can't be read or carried
/// out, and 3 for a configuration that can't be used. Reasons go to standard error.
#[allow(clippy::needless_pass_by_value, reason = "a binary makes one and has no other use for it")]
pub fn run(registry: Registry) -> ExitCode {
    match cli::Cli::parse().run(&registry) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("dunlin: {failure}");
            failure.exit_code()
        }
    }
}
