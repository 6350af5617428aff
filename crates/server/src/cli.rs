//! The command line of `dunlin`: commands and errors.

// These macros panic if the stream is closed; `output` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod api_call;
mod backup;
mod backups;
mod bench;
mod check_config;
mod check_token;
mod cluster;
mod completion;
mod config_reference;
mod dev;
mod explain;
pub(crate) mod former;
mod gen_config;
mod gen_token;
mod health;
pub(crate) mod hint;
mod man_pages;
mod mcp;
mod migrate_config;
mod new_game;
mod operator_request;
pub(crate) mod output;
mod page;
mod play;
mod publish;
mod reference_pages;
mod reload;
mod replay;
mod restore;
mod schema;
mod serve;
mod sessions;
mod storage;

use std::{fmt, io, path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand};
use dunlin_config::{Config, ConfigInput, Flag, Loaded, Problem, Problems, Program};
use dunlin_games::Registry;
use dunlin_storage::StorageError;

use crate::demo::site;

pub(crate) use replay::{ANSWER_LINE_BYTES_MAX as REPLAY_LINE_BYTES_MAX, recording_bytes_max as replayed_bytes_max};

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
    /// Check a configuration and report errors
    #[command(alias = "checkconfig")]
    CheckConfig(check_config::CheckConfigArgs),
    /// Convert a configuration of Centrifugo 5 into the form of Centrifugo 6, which Dunlin reads
    MigrateConfig(migrate_config::MigrateConfigArgs),
    /// Write an initial configuration with random keys
    #[command(alias = "genconfig")]
    GenConfig(gen_config::GenConfigArgs),
    /// Write a new game: a crate with its tests, a page and a Dockerfile
    NewGame(new_game::NewGameArgs),
    /// Build a game and run it, again after each change, while its players stay
    Dev(dev::DevArgs),
    /// Open a page to try a server with: connect, subscribe, publish, see the frames, copy the code
    Play(play::PlayArgs),
    /// Create a connection token for a user, signed with the configured key
    #[command(alias = "gentoken")]
    GenToken(gen_token::GenTokenArgs),
    /// Create a subscription token for a user and a channel, signed with the configured key
    #[command(alias = "gensubtoken")]
    GenSubToken(gen_token::GenSubTokenArgs),
    /// Verify a connection token and print its claims
    #[command(alias = "checktoken")]
    CheckToken(check_token::CheckTokenArgs),
    /// Verify a subscription token and print its claims
    #[command(alias = "checksubtoken")]
    CheckSubToken(check_token::CheckTokenArgs),
    /// Reload the configuration of a running node
    Reload(reload::ReloadArgs),
    /// Check the health of a running node: exit code 0 if it is healthy, 1 otherwise
    Health(health::HealthArgs),
    /// Say why clients of a running node are behind
    Explain(explain::ExplainArgs),
    /// Print the fields of a game's objects, as types for its clients
    Schema(schema::SchemaArgs),
    /// Replay the recording of a room and compare the state hashes
    Replay(replay::ReplayArgs),
    /// Check, measure, compact, export or prune the storage of a node that is stopped
    Storage(storage::StorageArgs),
    /// Check the NATS servers of a cluster
    Cluster(cluster::ClusterArgs),
    /// Publish data into a channel of a running node
    Publish(publish::PublishArgs),
    /// Count the sessions of a running node, or list the clients in a channel
    Sessions(sessions::SessionsArgs),
    /// Let an agent ask a running node: a server of the Model Context Protocol
    Mcp(mcp::McpArgs),
    /// Have a running node back up its storage
    Backup(backup::BackupArgs),
    /// List the backups in a directory
    Backups(backups::BackupsArgs),
    /// Restore a backup of a storage into an empty directory, and check it
    Restore(restore::RestoreArgs),
    /// Run benchmarks of this machine and of a server on it, with the program `dunlin-bench`
    #[command(disable_help_flag = true)]
    Bench(bench::BenchArgs),
    /// Print a script with which a shell completes commands and options
    Completion(completion::CompletionArgs),
    /// Print the version
    Version,
    /// Print a page of the reference, as committed in the repository
    #[command(hide = true)]
    ConfigReference(config_reference::ConfigReferenceArgs),
    /// Write a manual page for each command, for packages
    #[command(hide = true)]
    ManPages(man_pages::ManPagesArgs),
}

/// Where the configuration is.
#[derive(Clone, Debug, Args)]
struct ConfigFile {
    /// Configuration file: .json, .yaml, .yml or .toml. Without it, the first of config.json, config.yaml, config.yml and
    /// config.toml in the working directory is read
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    path: Option<PathBuf>,
}

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The configuration is invalid. Exit code 3.
    Config(Problems),
    /// The configuration has warnings, and `--strict` was given. Exit code 3.
    Strict,
    /// A configuration was not converted, or needs decisions. Exit code 3.
    Migration(String),
    /// An invalid command line. Exit code 2.
    Usage(String),
    /// Standard output cannot be written. Exit code 1.
    Output(io::Error),
    /// The node is unhealthy or unreachable. Exit code 1.
    Unhealthy(String),
    /// A storage or a backup cannot be used. Exit code 1.
    Storage(StorageError),
    /// The node is unreachable or could not make a backup. Exit code 1.
    Backup(String),
    /// A storage is damaged, or there is none. Exit code 1.
    UnusableStorage(PathBuf, String),
    /// The NATS servers of a cluster are not as nodes need them. Exit code 1.
    Cluster(String),
    /// The asynchronous runtime could not be started. Exit code 1.
    Runtime(io::Error),
    /// A recording cannot be replayed to its end. Exit code 1.
    Replay(PathBuf, String),
    /// A file could not be read or written. Exit code 1.
    File(PathBuf, io::Error),
    /// The operating system returned no random bytes. Exit code 1.
    Random(getrandom::Error),
    /// The token is invalid. Exit code 1.
    Token(&'static str),
    /// The thread that verifies tokens could not be started. Exit code 1.
    TokenThread(io::Error),
    /// The node could not run. Exit code 1.
    Serve(crate::serve::ServeError),
    /// The node is unreachable or rejected the configuration. Exit code 1.
    Reload(String),
    /// The node is unreachable, or its API answered with an error. Exit code 1.
    Api(String),
    /// The load generator is not there, or could not be started. Exit code 1.
    Bench(PathBuf, io::Error),
    /// There is no load generator of this name. Exit code 1.
    NoBench(&'static str),
}

impl Cli {
    /// Runs the command with these simulations.
    ///
    /// # Errors
    /// Why the command failed.
    pub fn run(self, registry: &Registry) -> Result<(), Failure> {
        match self.command {
            Command::Serve(args) => serve::run(&args, registry),
            Command::CheckConfig(args) => check_config::run(&args, registry),
            Command::Reload(args) => reload::run(&args, registry),
            Command::Health(args) => health::run(&args, registry),
            Command::Explain(args) => explain::run(&args, registry),
            Command::Schema(args) => schema::run(&args, registry),
            Command::Replay(args) => replay::run(&args, registry),
            Command::Storage(args) => storage::run(&args, registry),
            Command::Cluster(args) => cluster::run(&args, registry),
            Command::Publish(args) => publish::run(&args, registry),
            Command::Sessions(args) => sessions::run(&args, registry),
            Command::Mcp(args) => mcp::run(&args, registry),
            Command::Backup(args) => backup::run(&args, registry),
            Command::Backups(args) => backups::run(&args),
            Command::Restore(args) => restore::run(&args),
            Command::NewGame(args) => new_game::run(&args),
            Command::Dev(args) => dev::run(&args),
            Command::Play(args) => play::run(&args, registry),
            Command::MigrateConfig(args) => migrate_config::run(&args, registry),
            Command::GenConfig(args) => gen_config::run(&args),
            Command::GenToken(args) => gen_token::run(&args, registry),
            Command::GenSubToken(args) => gen_token::run_for_subscription(&args, registry),
            Command::CheckToken(args) => check_token::connection(&args, registry),
            Command::CheckSubToken(args) => check_token::subscription(&args, registry),
            Command::Bench(args) => bench::run(&args),
            Command::Completion(args) => completion::run(&args),
            Command::ConfigReference(args) => config_reference::run(&args),
            Command::ManPages(args) => man_pages::run(&args),
            Command::Version => output::line(format_args!("dunlin {}", env!("CARGO_PKG_VERSION"))),
        }
    }
}

impl ConfigFile {
    /// Loads the configuration with the environment and these flags.
    fn load(&self, flags: Vec<Flag>, registry: &Registry) -> Result<(Config, Vec<Problem>), Failure> {
        Config::with_registry(&self.read(flags).map_err(Failure::Config)?, registry).map_err(Failure::Config)
    }

    /// As [`Self::load`], for a node that is about to start: also checks files that the configuration names.
    fn load_to_start(&self, flags: Vec<Flag>, registry: &Registry) -> Result<Loaded, Failure> {
        self.read(flags).and_then(|input| Config::load_to_start(&input, registry, program())).map_err(Failure::Config)
    }

    /// As [`Self::load`], with the values that are set.
    fn load_whole(&self, flags: Vec<Flag>, registry: &Registry) -> Result<Loaded, Failure> {
        self.reread(flags, registry).map_err(Failure::Config)
    }

    fn reread(&self, flags: Vec<Flag>, registry: &Registry) -> Result<Loaded, Problems> {
        Config::load(&self.read(flags)?, registry)
    }

    fn read(&self, flags: Vec<Flag>) -> Result<ConfigInput, Problems> {
        ConfigInput::read(self.with_path().path.as_deref(), flags)
    }

    /// With the default file, if none is named and one exists now.
    fn with_path(&self) -> Self {
        Self { path: self.path.clone().or_else(ConfigInput::default_file) }
    }
}

/// What this program can do with a configuration.
fn program() -> Program {
    Program { check_site: site::check, has_storage: dunlin_storage::IS_BUILT }
}

impl Failure {
    /// The exit code of the process.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::File(..)
            | Self::Output(_)
            | Self::Unhealthy(_)
            | Self::Storage(_)
            | Self::Backup(_)
            | Self::UnusableStorage(..)
            | Self::Cluster(_)
            | Self::Runtime(_)
            | Self::Replay(..)
            | Self::Random(_)
            | Self::Token(_)
            | Self::TokenThread(_)
            | Self::Serve(_)
            | Self::Reload(_)
            | Self::Api(_)
            | Self::NoBench(_)
            | Self::Bench(..) => 1,
            Self::Usage(_) => 2,
            Self::Config(_) | Self::Strict | Self::Migration(_) => 3,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(problems) => write!(f, "invalid configuration\n{problems}"),
            Self::Strict => f.write_str("the configuration has warnings, and --strict treats them as errors"),
            Self::Usage(text)
            | Self::Migration(text)
            | Self::Reload(text)
            | Self::Api(text)
            | Self::Backup(text)
            | Self::Unhealthy(text)
            | Self::Cluster(text) => f.write_str(text),
            Self::Output(error) => write!(f, "cannot write to standard output: {error}"),
            Self::File(path, error) if error.kind() == io::ErrorKind::AlreadyExists => {
                write!(f, "{} exists and is not overwritten: name another file, or remove this one", path.display())
            }
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Runtime(error) => write!(f, "cannot start the runtime: {error}"),
            Self::Storage(error) => error.fmt(f),
            Self::UnusableStorage(path, text) | Self::Replay(path, text) => write!(f, "{}: {text}", path.display()),
            Self::Random(error) => write!(f, "no random bytes: {error}"),
            Self::Token(reason) => write!(f, "invalid token: {reason}"),
            Self::TokenThread(error) => write!(f, "cannot start the token thread: {error}"),
            Self::Serve(error) => error.fmt(f),
            Self::NoBench(program) => write!(
                f,
                "{program} is neither beside this program nor in PATH: it is part of Dunlin's package and container image; in a \
                 checkout, `cargo build --release --package dunlin-bench` builds it"
            ),
            Self::Bench(program, error) => write!(f, "cannot start {}: {error}", program.display()),
        }
    }
}

/// Prints the reason of a failure to stderr. Warnings come first, because they help to correct the configuration.
pub(crate) fn print_failure(failure: &Failure) {
    if let Failure::Config(problems) = failure {
        warn(&problems.warnings);
    }
    output::error_line(format_args!("dunlin: {failure}"));
}

/// Prints warnings to stderr.
fn warn(warnings: &[Problem]) {
    for warning in warnings {
        output::error_line(format_args!("warning: {warning}"));
    }
}
