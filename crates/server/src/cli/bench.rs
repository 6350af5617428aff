//! `dunlin bench`: starts the load generator, which is a program of its own, as cargo starts its subcommands.

use std::{env, ffi::OsString, io, os::unix::process::CommandExt as _, process::Command};

use clap::Args;

use super::Failure;

/// The load generator's file name.
const PROGRAM: &str = "dunlin-bench";

/// The variable that names the calling program: the server that is measured by default. The server inherits it, so it must not begin
/// with `DUNLIN_`, as settings do.
const CALLER: &str = "CALLER_OF_DUNLIN_BENCH";

/// The arguments are those of the load generator, its `--help` as well.
#[derive(Debug, Args)]
pub(super) struct BenchArgs {
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Replaces this process, so that the exit code and signals are those of the load generator. Returns only if that fails.
///
/// The load generator beside the calling program comes first, because it is of the same build or package. Otherwise the system looks for
/// one that can be executed in `PATH`.
pub(super) fn run(args: &BenchArgs) -> Result<(), Failure> {
    let caller = env::current_exe().map_err(|error| Failure::Bench(PROGRAM.into(), error))?;
    let beside = Some(caller.with_file_name(PROGRAM)).filter(|file| file.is_file());
    let is_beside = beside.is_some();
    let program = beside.unwrap_or_else(|| PROGRAM.into());
    let error = Command::new(&program).args(&args.arguments).env(CALLER, caller).exec();
    let is_missing = !is_beside && error.kind() == io::ErrorKind::NotFound;
    Err(if is_missing { Failure::NoBench(PROGRAM) } else { Failure::Bench(program, error) })
}
