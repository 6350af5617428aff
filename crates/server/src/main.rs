//! The `dunlin` binary.

use std::process::ExitCode;

use dunlin_games::Registry;

#[global_allocator]
static ALLOCATOR: dunlin::SampledAllocator = dunlin::SampledAllocator;

/// See [`dunlin::run`] for the exit codes.
fn main() -> ExitCode {
    dunlin::run(Registry::built_in())
}
