//! `dunlin bench`: starts the load generator, which is a program of its own, as cargo starts its subcommands.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use clap::Args;

use super::Failure;

/// The load generator's file name.
const PROGRAM: &str = "dunlin-bench";

/// The variable that names the calling program: the server that is measured by default. Variables that begin with `DUNLIN_`
/// would be settings.
const CALLER: &str = "DUNLIN";

/// The arguments are those of the load generator, its `--help` as well.
#[derive(Debug, Args)]
pub(super) struct BenchArgs {
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Replaces this process, so that the exit code and signals are those of the load generator. Returns only if that fails.
pub(super) fn run(args: &BenchArgs) -> Result<(), Failure> {
    let caller = env::current_exe().map_err(|error| Failure::Bench(PROGRAM.into(), error))?;
    let path = env::var_os("PATH");
    let found = find(&caller, path.as_deref());
    let program = found.ok_or_else(|| Failure::Bench(PROGRAM.into(), io::ErrorKind::NotFound.into()))?;
    let error = Command::new(&program).args(&args.arguments).env(CALLER, caller).exec();
    Err(Failure::Bench(program, error))
}

/// The load generator beside the calling program, otherwise in the first directory of `path` that has it. The one beside comes
/// first because it is of the same build or package.
fn find(caller: &Path, path: Option<&OsStr>) -> Option<PathBuf> {
    let beside = caller.parent().map(Path::to_path_buf);
    let directories = beside.into_iter().chain(path.into_iter().flat_map(env::split_paths));
    directories.map(|directory| directory.join(PROGRAM)).find(|file| file.is_file())
}
