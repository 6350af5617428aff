//! The command line of `dunlin bench cluster`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use super::node::HISTORY_SIZE;
use crate::args::{LoadArgs, RunArgs, check_count, check_rate, parse_duration};
use crate::error::Error;

/// Measure clusters.
#[derive(Debug, clap::Args)]
pub struct ClusterBenchArgs {
    /// The benchmark to run.
    #[command(subcommand)]
    pub scenario: ClusterScenario,
}

#[derive(Debug, Subcommand)]
pub enum ClusterScenario {
    /// Latency and throughput of one node, compared with history in memory and with a bare NATS client on the same stream
    Latency(ClusterLatencyArgs),
    /// Fan-out on a node of a cluster, compared with a node on its own, and messages that the NATS servers send for it
    Fanout(ClusterFanoutArgs),
    /// Many sessions recover on a node with nothing in memory: reads, and what they cost other publishers
    Recovery(ClusterRecoveryArgs),
    /// Nodes are stopped and started again in turn, as for an update, under load: what is lost, and how fast clients reconnect
    Drain(ClusterDrainArgs),
    /// A node is killed, and a NATS server that leads streams: when clients are complete again, when publications are accepted again
    Failover(ClusterFailoverArgs),
}

/// The NATS servers, which every scenario starts.
#[derive(Debug, Clone, clap::Args)]
pub struct NatsArgs {
    /// NATS server program [default: the one that `scripts/need nats` installs]
    #[arg(long, value_name = "PROGRAM")]
    pub nats_server: Option<PathBuf>,
    /// Number of NATS servers, and of copies of each publication: 1 or 3
    #[arg(long, default_value_t = 3)]
    pub nats_servers: usize,
    /// Directory for the streams, removed at the end [default: temporary files]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(
    mut_arg("subscribers", |arg| arg.default_value("1")),
    mut_arg("rate", |arg| arg.default_value("500")),
    mut_arg("saturate", |arg| arg.default_value("1000").help("Publications in flight where throughput is measured")),
    mut_arg("duration", |arg| arg.default_value("20s").help("Time with each side, for latency; half as long for throughput")),
    mut_arg("turns", |arg| arg.default_value("5"))
)]
pub struct ClusterLatencyArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    #[command(flatten)]
    pub nats: NatsArgs,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, clap::Args)]
#[command(
    mut_arg("duration", |arg| arg.default_value("20s").help("Measured time with each side")),
    mut_arg("turns", |arg| arg.default_value("10"))
)]
pub struct ClusterFanoutArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    #[command(flatten)]
    pub nats: NatsArgs,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, clap::Args)]
pub struct ClusterRecoveryArgs {
    /// Sessions that recover
    #[arg(long, default_value_t = 10_000)]
    pub sessions: usize,
    /// Channels that they are spread over
    #[arg(long, default_value_t = 100)]
    pub channels: usize,
    /// Different positions in each channel
    #[arg(long, default_value_t = 2)]
    pub positions: usize,
    /// Publications in each channel
    #[arg(long, default_value_t = 20)]
    pub publications: usize,
    /// Publications per second of others, in another channel of the same stream and on another node
    #[arg(long, default_value_t = 200.0)]
    pub rate: f64,
    /// Time before each storm in which the others are measured alone
    #[arg(long, default_value = "4s", value_parser = parse_duration)]
    pub before: Duration,
    /// Pairs of storms, one with recoveries and one without
    #[arg(long, default_value_t = 2)]
    pub turns: u32,
    #[command(flatten)]
    pub nats: NatsArgs,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, clap::Args)]
pub struct ClusterFailoverArgs {
    /// Sessions, evenly spread over three nodes, of which one is killed
    #[arg(long, default_value_t = 1_500)]
    pub sessions: usize,
    /// Streams, each with one publisher
    #[arg(long, default_value_t = 6)]
    pub partitions: u16,
    /// Publications per second of each publisher
    #[arg(long, default_value_t = 20.0)]
    pub rate: f64,
    /// Time of publishing; the node or the server is killed after 2 s
    #[arg(long, default_value = "15s", value_parser = parse_duration)]
    pub duration: Duration,
    /// NATS servers to kill, one after the other
    #[arg(long, default_value_t = 3)]
    pub turns: u32,
    #[command(flatten)]
    pub nats: NatsArgs,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, clap::Args)]
pub struct ClusterDrainArgs {
    /// Sessions, evenly spread over three nodes
    #[arg(long, default_value_t = 3_000)]
    pub sessions: usize,
    /// Publications per second
    #[arg(long, default_value_t = 50.0)]
    pub rate: f64,
    /// Sessions that a node closes per second when it stops (`shutdown.sessions_per_second`)
    #[arg(long, default_value_t = 200)]
    pub sessions_per_second: u32,
    #[command(flatten)]
    pub nats: NatsArgs,
    #[command(flatten)]
    pub run: RunArgs,
}

impl NatsArgs {
    pub fn check(&self) -> Result<(), Error> {
        if matches!(self.nats_servers, 1 | 3) {
            return Ok(());
        }
        let remedy = "give 1 or 3".into();
        Err(Error::Setting { name: "nats-servers", value: self.nats_servers.to_string(), remedy })
    }
}

impl ClusterLatencyArgs {
    pub fn check(&self) -> Result<(), Error> {
        self.load.check(0)?;
        // The default number of publications that a node has in flight.
        check_count("saturate", self.load.saturate.unwrap_or(1), 1, 1_024)?;
        self.nats.check()?;
        self.run.server.check_started()
    }
}

impl ClusterFanoutArgs {
    pub fn check(&self) -> Result<(), Error> {
        self.load.check(0)?;
        self.nats.check()?;
        self.run.server.check_started()
    }
}

impl ClusterRecoveryArgs {
    pub fn check(&self) -> Result<(), Error> {
        check_count("sessions", self.sessions as u64, 1, 100_000)?;
        check_count("channels", self.channels as u64, 1, self.sessions as u64)?;
        check_count("publications", self.publications as u64, 1, HISTORY_SIZE)?;
        check_count("positions", self.positions as u64, 1, self.publications as u64)?;
        check_count("turns", self.turns.into(), 1, 1_000)?;
        check_rate(self.rate)?;
        self.nats.check()?;
        self.run.server.check_started()
    }
}

impl ClusterFailoverArgs {
    pub fn check(&self) -> Result<(), Error> {
        check_count("sessions", self.sessions as u64, 3, 100_000)?;
        check_count("partitions", self.partitions.into(), 1, 64)?;
        check_count("turns", self.turns.into(), 1, 1_000)?;
        check_count("duration", self.duration.as_secs(), 4, 3_600)?;
        check_rate(self.rate)?;
        // An election requires several servers.
        check_count("nats-servers", self.nats.nats_servers as u64, 3, 3)?;
        self.run.server.check_started()
    }
}

impl ClusterDrainArgs {
    pub fn check(&self) -> Result<(), Error> {
        check_count("sessions", self.sessions as u64, 3, 30_000)?;
        check_count("sessions-per-second", self.sessions_per_second.into(), 1, 100_000)?;
        check_rate(self.rate)?;
        self.nats.check()?;
        self.run.server.check_started()
    }
}
