//! The command line of `run`, `compare` and `report`.

use std::path::PathBuf;

use crate::args::{OutputArgs, PinArgs, StartArgs};
use crate::commands::EncodingOption;

#[derive(Debug, clap::Args)]
pub struct RunProfileArgs {
    /// Profiles to run one after the other: TOML files, or names of built-in ones (`--list` prints them)
    #[arg(value_name = "PROFILE", required_unless_present = "list")]
    pub profiles: Vec<String>,
    /// Print the built-in profiles and the figures of gates, and end
    #[arg(long)]
    pub list: bool,
    #[command(flatten)]
    pub common: ScenarioArgs,
    /// Write the result of a single profile to this file instead of the folder of results
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a page with the results of all profiles
    #[arg(long, value_name = "FILE")]
    pub page: Option<PathBuf>,
}

/// What `run` and `compare` have in common.
#[derive(Debug, Clone, clap::Args)]
pub struct ScenarioArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Change the profile, as in `crew.audience.connections=5000` or `server.client.queue_max_size=65536`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Run the phases and gates of the profile with the channels, crews and server of this one, as in `run spike --on channels`
    #[arg(long, value_name = "PROFILE")]
    pub on: Option<String>,
    /// Run a short version: apply the changes in the profile's table `short`
    #[arg(long)]
    pub short: bool,
    /// Conditions instead of those of the profile, such as `p99<50ms,lost=0`. The exit code is 3 if one is broken
    #[arg(long, value_name = "GATES")]
    pub gate: Option<String>,
    /// Folder for results
    #[arg(long, value_name = "FOLDER", default_value = "bench/runs")]
    pub runs: PathBuf,
    #[command(flatten)]
    pub pin: PinArgs,
    /// Print no table and no progress
    #[arg(long)]
    pub quiet: bool,
}

/// The server under test.
#[derive(Debug, Clone, clap::Args)]
pub struct TargetArgs {
    /// A running server, as ws://HOST:PORT/PATH, instead of a fresh one
    #[arg(long, value_name = "URL", conflicts_with_all = ["spawn", "reactor", "port"])]
    pub target: Option<String>,
    /// Its process id, for its CPU time and memory
    #[arg(long, requires = "target")]
    pub server_pid: Option<u32>,
    /// The target is not on this machine, and you may load it
    #[arg(long, requires = "target")]
    pub i_own_this_target: bool,
    #[command(flatten)]
    pub start: StartArgs,
}

#[derive(Debug, clap::Args)]
pub struct CompareArgs {
    /// A server program or a profile
    pub a: String,
    /// Another one of the same kind
    pub b: String,
    /// Runs of each, in turns: A B B A. With an even number, a steady change of the machine cancels out
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// The profile for two programs
    #[arg(long, default_value = "fanout")]
    pub profile: String,
    #[command(flatten)]
    pub common: ScenarioArgs,
    /// Write the comparison to this file instead of the folder of results
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct PlanArgs {
    /// Clients that are connected at a time, each subscribed to one channel
    #[arg(long)]
    pub connections: u64,
    /// Publications per second in all channels
    #[arg(long)]
    pub publications: f64,
    /// Bytes of each publication
    #[arg(long, default_value_t = 128)]
    pub bytes: u64,
    /// Channels: a publication reaches the clients of one
    #[arg(long, default_value_t = 1)]
    pub channels: u64,
    /// Publications in the history of each channel; 0: no history
    #[arg(long, default_value_t = 0)]
    pub history_size: u64,
    /// Encoding of the clients
    #[arg(long, value_enum, default_value_t = EncodingOption::Json)]
    pub encoding: EncodingOption,
    /// A TOML file with machines and what they cost
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
    /// Share of a machine to use, so that a peak finds the rest
    #[arg(long, default_value_t = 0.6)]
    pub share: f64,
    #[command(flatten)]
    pub target: TargetArgs,
    #[command(flatten)]
    pub pin: PinArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// Results of `run`
    #[arg(value_name = "RUN.json", required = true)]
    pub runs: Vec<PathBuf>,
    /// The page [default: the first result's file with the ending html]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}
