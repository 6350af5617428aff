//! The `dunlin` binary.

use std::process::ExitCode;

use dunlin_games::Registry;

/// See [`dunlin::run`] for the exit codes.
fn main() -> ExitCode {
    dunlin::run(Registry::built_in())
}
