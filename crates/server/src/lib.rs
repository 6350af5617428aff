//! The Dunlin server: threads, sockets, configuration, HTTP, metrics and the command line.
//!
//! It is a library so that tests and fuzz targets can use its parts; the binary is a few lines. It makes no decisions
//! about sessions and channels: `dunlin-engine` decides, and this crate performs its effects.

pub mod access_sync;
pub mod backend;
pub mod cli;
mod compatibility;
pub mod demo;
pub mod http;
pub mod insight;
mod json_members;
pub mod matchmaking;
pub mod node;
pub mod otlp;
pub mod peers;
pub mod profiling;
pub mod recordings;
pub mod ring;
pub mod rooms;
pub mod serve;
pub mod telemetry;
mod trim;
pub mod webhooks;

use std::process::ExitCode;

use clap::Parser as _;
use dunlin_games::Registry;
pub use dunlin_profiles::SampledAllocator;

/// Runs the command line `dunlin` with these simulations. A binary with its own games calls this function.
///
/// Exit codes: 0 for success, 1 for a failure, 2 for an invalid command line, 3 for an invalid configuration. Errors
/// are printed to stderr.
#[allow(clippy::needless_pass_by_value, reason = "a binary makes one and has no other use for it")]
pub fn run(registry: Registry) -> ExitCode {
    let arguments = cli::former::without_former_name(std::env::args_os().collect());
    let command = match cli::Cli::try_parse_from(&arguments) {
        Ok(command) => command,
        Err(error) => return cli::hint::print_hint(&error, &arguments),
    };
    match command.run(&registry) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // A closed pipe needs no error message.
            if !matches!(&failure, cli::Failure::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe) {
                cli::print_failure(&failure);
            }
            failure.exit_code()
        }
    }
}
