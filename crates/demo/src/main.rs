//! `dunlin-demo`: what happens on the demo's pages without visitors. It publishes simulated prices, and bots play in the arena. It is a
//! client like any other: prices go through the HTTP API, and each bot has a WebSocket connection.
//!
//! After `--` it takes the command of a server, which it starts as well. `make run` does so.

mod api;
mod bots;
mod market;
mod publisher;

use std::{
    env,
    ffi::OsString,
    io::{self, Write as _},
    net::SocketAddr,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    sync::Arc,
};

use clap::Parser;

/// The variable with the API key. The server reads its key from it as well.
const KEY: &str = "DUNLIN_HTTP_API_KEY";

/// Publish the demo's prices, and play in its arena.
///
/// The API key is in the variable `DUNLIN_HTTP_API_KEY`. With a command, a missing one is made up, for the server as well.
#[derive(Debug, Parser)]
#[command(name = "dunlin-demo", version)]
struct DemoArgs {
    /// A node; repeat it for those of a cluster. Prices are published on the first that accepts them, and bots play on the first
    #[arg(long = "node", value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8000")]
    nodes: Vec<SocketAddr>,
    /// Number of bots in the room `arena:hunt`
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=10_000))]
    bots: u16,
    /// File in which the bots keep their seats for the next run
    #[arg(long, value_name = "FILE")]
    seats: Option<PathBuf>,
    /// Command of a server. This process becomes the server, and what publishes and plays is a process that ends with it
    #[arg(last = true, value_name = "COMMAND")]
    server: Vec<OsString>,
}

fn main() -> ExitCode {
    let args = DemoArgs::parse();
    let ended = match args.server.split_first() {
        Some((program, arguments)) => become_server(&args, program, arguments),
        None => run(args),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(format_args!("{error}"));
            ExitCode::FAILURE
        }
    }
}

/// Publishes and plays until the server refuses it.
fn run(args: DemoArgs) -> io::Result<()> {
    let key = env::var(KEY).map_err(|_| io::Error::other(format!("set {KEY} to the key of the server API")))?;
    let mut threads = publisher::start(&Arc::from(args.nodes.as_slice()), &Arc::from(key), random()?)?;
    if let Some(node) = args.nodes.first().filter(|_| args.bots > 0) {
        threads.push(bots::start(*node, args.seats, usize::from(args.bots), random()?)?);
    }
    for thread in threads {
        // A thread that has panicked has said so.
        let _ = thread.join();
    }
    Ok(())
}

/// Starts this program again without the command, and replaces this process by the server. So signals, the exit code and the id of the
/// process are the server's, and the kernel ends the other process with it. Returns only if that fails.
fn become_server(args: &DemoArgs, program: &OsString, arguments: &[OsString]) -> io::Result<()> {
    let key = env::var(KEY).or_else(|_| random::<16>().map(|bytes| format!("{:032x}", u128::from_le_bytes(bytes))))?;
    let mut clients = Command::new(env::current_exe()?);
    clients.args(args.nodes.iter().map(|node| format!("--node={node}"))).arg(format!("--bots={}", args.bots));
    if let Some(file) = &args.seats {
        clients.arg("--seats").arg(file);
    }
    clients.env(KEY, &key).stdin(Stdio::null());
    // SAFETY: between fork and exec one system call is made; nothing is allocated or locked.
    unsafe {
        clients.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    clients.spawn()?;
    let error = Command::new(program).args(arguments).env(KEY, key).exec();
    Err(io::Error::other(format!("cannot start {}: {error}", program.display())))
}

/// Prints a line to stderr.
fn report(line: std::fmt::Arguments<'_>) {
    // Nobody reads a closed stream.
    let _ = writeln!(io::stderr(), "dunlin-demo: {line}");
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}
