//! `dunlin-bench`: the load generator without a server, to measure other servers.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(flatten)]
    args: dunlin_bench::Args,
}

fn main() -> ExitCode {
    // Workers are started as `bench worker`, regardless of the program's name.
    let arguments = std::env::args_os().enumerate().filter(|(at, argument)| !(*at == 1 && argument == "bench"));
    let cli = Cli::parse_from(arguments.map(|(_, argument)| argument));
    match dunlin_bench::run(cli.args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "dunlin-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
