//! `dunlin-demo`: what happens on the demo's pages without visitors. It publishes simulated prices, and bots play in the arena. It is a
//! client like any other: prices go through the HTTP API, and each bot has a WebSocket connection.
//!
//! After `--` it takes the command of a server, which it starts as well. `make run` does so.

mod api;
mod bots;
mod key;
mod market;
mod publisher;
mod reachable_nodes;
mod response;
mod retry;

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

use key::{KEY, KEY_FILE};
use reachable_nodes::Nodes;

/// Publish the demo's prices, and play in its arena.
///
/// The API key is in the variable `DUNLIN_HTTP_API_KEY`, or in the file that `DUNLIN_HTTP_API_KEY_FILE` names. With a command, a missing
/// one is made up, for the server as well.
#[derive(Debug, Parser)]
#[command(name = "dunlin-demo", version)]
struct DemoArgs {
    /// A node; repeat it for those of a cluster. Prices are published on the first that accepts them, and bots play on all
    #[arg(long = "node", value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8000")]
    nodes: Vec<SocketAddr>,
    /// Number of bots in the room `arena:hunt`. With bots, a spectator keeps the room `tag:open` open, which has bots of its own
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

/// Publishes and plays until the server refuses all of it.
fn run(args: DemoArgs) -> io::Result<()> {
    let missing =
        || io::Error::other(format!("set {KEY}, or {KEY_FILE}, to http_api.key of the server's configuration"));
    let key = key::read(|name| env::var_os(name))?.ok_or_else(missing)?;
    let nodes = Arc::new(Nodes::new(&args.nodes));
    let mut threads = publisher::start(&nodes, &Arc::from(key), random()?)?;
    if args.bots > 0 {
        threads.push(bots::watcher::start(Arc::clone(&nodes))?);
        threads.push(bots::start(nodes, args.seats, usize::from(args.bots), random()?)?);
    }
    for thread in threads {
        // A thread that has panicked has said so.
        let _ = thread.join();
    }
    Err(io::Error::other("the server refuses everything, for the reasons above"))
}

/// Starts this program again without the command, and replaces this process by the server. So signals, the exit code and the id of the
/// process are the server's, and the kernel ends the other process with it. Returns only if that fails.
fn become_server(args: &DemoArgs, program: &OsString, arguments: &[OsString]) -> io::Result<()> {
    let given = key::read(|name| env::var_os(name))?;
    let mut server = Command::new(program);
    server.args(arguments);
    let key = given.map_or_else(|| make_up_key(&mut server), Ok)?;
    let mut clients = Command::new(env::current_exe()?);
    clients.args(args.nodes.iter().map(|node| format!("--node={node}"))).arg(format!("--bots={}", args.bots));
    if let Some(file) = &args.seats {
        clients.arg("--seats").arg(file);
    }
    clients.env(KEY, &key).env_remove(KEY_FILE).stdin(Stdio::null());
    dunlin_processes::end_with_this(&mut clients, libc::SIGKILL);
    let mut clients = clients.spawn()?;
    // The server does not know of its child and would never wait for it. A signal that is ignored stays so, and an ended child is
    // then removed by the kernel.
    // SAFETY: no handler is set, and this program waits for no child from here on, except for the one below.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    // It may have ended before the call.
    let _ = clients.try_wait();
    let error = server.exec();
    let _ = clients.kill();
    Err(io::Error::other(format!(
        "{}: cannot start the server: {error}: give the path of its program after --",
        program.display()
    )))
}

/// Gives the server a key of its own for this run.
fn make_up_key(server: &mut Command) -> io::Result<String> {
    let key = format!("{:032x}", u128::from_le_bytes(random()?));
    report(format_args!(
        "neither {KEY} nor {KEY_FILE} is set: this run of the server gets a key of its own, instead of http_api.key of its \
         configuration if that has one"
    ));
    server.env(KEY, &key).env_remove(KEY_FILE);
    Ok(key)
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
