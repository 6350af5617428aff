//! The command line of `dunlin bench storage`.

use std::path::PathBuf;

use clap::Subcommand;

use crate::args::{LoadArgs, RunArgs, check_count};
use crate::error::Error;

/// Measure the storage.
#[derive(Debug, clap::Args)]
pub struct StorageBenchArgs {
    /// The benchmark to run.
    #[command(subcommand)]
    pub scenario: StorageScenario,
}

#[derive(Debug, Subcommand)]
pub enum StorageScenario {
    /// Latency from publishing to receiving with each durability, beside the time of one sync
    Latency(LatencyArgs),
    /// Time from the start of the process to the first response, and memory, with a full and a small storage
    Start(StorageStartArgs),
    /// Fan-out in memory while backups and compactions run, compared with none
    Background(BackgroundArgs),
}

/// Where the data is.
#[derive(Debug, Clone, clap::Args)]
pub struct DataArgs {
    /// Directory on the disk to measure; everything that is written there is removed [default: temporary files]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(
    mut_arg("subscribers", |arg| arg.default_value("1")),
    mut_arg("rate", |arg| arg.default_value("2000")),
    mut_arg("duration", |arg| arg.default_value("20s")),
    mut_arg("turns", |arg| arg.default_value("5"))
)]
pub struct LatencyArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    #[command(flatten)]
    pub data: DataArgs,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, clap::Args)]
pub struct StorageStartArgs {
    /// Publications on disk; the small storage has a tenth of them
    #[arg(long, default_value_t = 1_000_000)]
    pub publications: u64,
    /// Channels that they are in; in the small storage a tenth of them
    #[arg(long, default_value_t = 10_000)]
    pub channels: u64,
    /// Bytes of each payload
    #[arg(long, default_value_t = 128)]
    pub payload_bytes: usize,
    /// Channels whose history is read after each start
    #[arg(long, default_value_t = 1_000)]
    pub channels_read: u64,
    /// Bytes of the block cache, which the reads fill in both storages
    #[arg(long, default_value_t = 4 << 20)]
    pub block_cache_bytes: u64,
    /// Starts of each storage. The first one replays the write-ahead log
    #[arg(long, default_value_t = 4)]
    pub turns: u32,
    #[command(flatten)]
    pub data: DataArgs,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, clap::Args)]
#[command(
    mut_arg("saturate", |arg| arg.default_value("4")),
    mut_arg("duration", |arg| arg.default_value("40s")),
    mut_arg("turns", |arg| arg.default_value("8"))
)]
pub struct BackgroundArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    /// Publications on disk before the start
    #[arg(long, default_value_t = 400_000)]
    pub publications: u64,
    #[command(flatten)]
    pub data: DataArgs,
    #[command(flatten)]
    pub run: RunArgs,
}

impl LatencyArgs {
    pub fn check(&self) -> Result<(), Error> {
        self.load.check(0)?;
        self.run.server.check_started()
    }
}

impl StorageStartArgs {
    pub fn check(&self) -> Result<(), Error> {
        check_count("channels", self.channels, 10, 1_000_000)?;
        check_count("publications", self.publications, self.channels, 100_000_000)?;
        check_count("payload-bytes", self.payload_bytes as u64, 2, 65_000)?;
        check_count("channels-read", self.channels_read, 1, self.channels / 10)?;
        check_count("turns", self.turns.into(), 2, 1_000)?;
        self.run.server.check_started()
    }
}

impl BackgroundArgs {
    pub fn check(&self) -> Result<(), Error> {
        self.load.check(0)?;
        check_count("publications", self.publications, 1_000, 100_000_000)?;
        self.run.server.check_started()
    }
}
