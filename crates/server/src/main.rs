//! The `dunlin` binary.

use std::process::ExitCode;

use clap::Parser as _;
use dunlin::cli::Cli;

/// Ends with 0 when what was asked is done, 1 when it could not be done, 2 for a command line that can't be read or carried
/// out, and 3 for a configuration that can't be used. Reasons go to standard error.
fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("dunlin: {failure}");
            failure.exit_code()
        }
    }
}
