//! The command line: what can be asked of `dunlin`, and what it answers with when it can't.

mod check_config;
mod check_token;
mod config_reference;
mod gen_config;
mod gen_token;
mod replay;
mod serve;

use std::{fmt, io, path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand};
use dunlin_games::Registry;

use crate::config::{Config, Flag, Input, Problem, Problems};

/// A realtime server: channels with history, recovery and presence, for clients that speak Centrifugo's protocol.
#[derive(Debug, Parser)]
#[command(name = "dunlin", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a node
    Serve(serve::ServeArgs),
    /// Tell what is wrong with a configuration
    CheckConfig(check_config::CheckConfigArgs),
    /// Write a configuration to start with, with fresh keys
    GenConfig(gen_config::GenConfigArgs),
    /// Make a token for a user, signed with the configuration's key
    GenToken(gen_token::GenTokenArgs),
    /// Make a subscription token for a user and a channel, signed with the configuration's key
    GenSubToken(gen_token::GenSubTokenArgs),
    /// Tell what a connection token says, or what is wrong with it
    CheckToken(check_token::CheckTokenArgs),
    /// Tell what a subscription token says, or what is wrong with it
    CheckSubToken(check_token::CheckTokenArgs),
    /// Play a room's recording again, and compare
    Replay(replay::ReplayArgs),
    /// Measure this machine, and a server on it
    Bench(dunlin_bench::Args),
    /// Tell the version
    Version,
    /// Print the reference of all keys, as committed in the repository
    #[command(hide = true)]
    ConfigReference(config_reference::ConfigReferenceArgs),
}

/// Where the configuration is.
#[derive(Clone, Debug, Args)]
struct ConfigFile {
    /// Configuration file: .json, .yaml, .yml or .toml. Without one the defaults and the environment count.
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    path: Option<PathBuf>,
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub enum Failure {
    /// The configuration can't be used. Exit code 3.
    Config(Problems),
    /// The configuration is odd, and was to be checked strictly. Exit code 3.
    Strict,
    /// A command line that can't be carried out. Exit code 2, as for one that can't be read.
    Usage(String),
    /// A recording cannot be replayed to its end. Exit code 1.
    Replay(PathBuf, String),
    /// A file could not be read or written. Exit code 1.
    File(PathBuf, io::Error),
    /// The operating system gave no random bytes. Exit code 1.
    Random(getrandom::Error),
    /// A token does not count, for this reason. Exit code 1.
    Token(&'static str),
    /// There is no thread for checking tokens' signatures. Exit code 1.
    TokenThread(io::Error),
    /// The node could not run. Exit code 1.
    Serve(crate::serve::ServeError),
    /// The measurement could not be made. Exit code 1.
    Bench(dunlin_bench::Error),
}

impl Cli {
    /// Does what is asked, with these simulations.
    ///
    /// # Errors
    /// Why it could not be done.
    pub fn run(self, registry: &Registry) -> Result<(), Failure> {
        match self.command {
            Command::Serve(args) => serve::run(&args, registry),
            Command::CheckConfig(args) => check_config::run(&args, registry),
            Command::Replay(args) => replay::run(&args, registry),
            Command::GenConfig(args) => gen_config::run(&args),
            Command::GenToken(args) => gen_token::run(&args, registry),
            Command::GenSubToken(args) => gen_token::run_for_subscription(&args, registry),
            Command::CheckToken(args) => check_token::connection(&args, registry),
            Command::CheckSubToken(args) => check_token::subscription(&args, registry),
            Command::Bench(args) => dunlin_bench::run(args).map_err(Failure::Bench),
            Command::ConfigReference(args) => {
                config_reference::run(&args);
                Ok(())
            }
            Command::Version => {
                println!("dunlin {}", env!("CARGO_PKG_VERSION"));
                Ok(())
            }
        }
    }
}

impl ConfigFile {
    /// Reads it, with the environment and these flags on top.
    fn load(&self, flags: Vec<Flag>, registry: &Registry) -> Result<(Config, Vec<Problem>), Failure> {
        let input = Input::read(self.path.as_deref(), flags).map_err(Failure::Config)?;
        Config::with_registry(&input, registry).map_err(Failure::Config)
    }
}

impl Failure {
    /// What the process ends with.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::File(..)
            | Self::Replay(..)
            | Self::Random(_)
            | Self::Token(_)
            | Self::TokenThread(_)
            | Self::Serve(_)
            | Self::Bench(_) => 1,
            Self::Usage(_) => 2,
            Self::Config(_) | Self::Strict => 3,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(problems) => write!(f, "the configuration can't be used\n{problems}"),
            Self::Strict => f.write_str("the configuration has warnings, and --strict counts them"),
            Self::Usage(text) => f.write_str(text),
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Replay(path, text) => write!(f, "{}: {text}", path.display()),
            Self::Random(error) => write!(f, "no random bytes: {error}"),
            Self::Token(reason) => write!(f, "the token does not count: {reason}"),
            Self::TokenThread(error) => write!(f, "can't get a thread for tokens: {error}"),
            Self::Serve(error) => error.fmt(f),
            Self::Bench(error) => error.fmt(f),
        }
    }
}

/// Tells what is odd, where errors are told.
fn warn(warnings: &[Problem]) {
    for warning in warnings {
        eprintln!("warning: {warning}");
    }
}
