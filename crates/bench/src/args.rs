//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use serde::Serialize;

use crate::cluster::args::{ClusterBenchArgs, ClusterDrainArgs};
use crate::commands::EncodingOption;
use crate::control::{MessageContent, PublishRate};
use crate::error::Error;
use crate::payload::PAYLOAD_BYTES_MIN;
use crate::peer::PeerProtocol;
use crate::proc::Cores;
use crate::room::args::RoomArgs;
use crate::scenario::args::{CompareArgs, PlanArgs, ReportArgs, RunProfileArgs};
use crate::storage::args::StorageBenchArgs;

/// Benchmarks of this machine and of a server on it.
#[derive(Debug, Parser)]
#[command(name = "dunlin-bench", version, arg_required_else_help = true)]
pub struct Args {
    /// The benchmark to run.
    #[command(subcommand)]
    pub(crate) scenario: Scenario,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Scenario {
    /// Run scenarios that profiles describe: connections, spikes, churn, channels, publishing, hours of load
    Run(RunProfileArgs),
    /// Compare two server programs or two profiles: run them in turns, and print ratios with confidence intervals
    Compare(CompareArgs),
    /// Make a page with plots of results of `run`
    Report(ReportArgs),
    /// Estimate the cores, memory, network and cost of a load, from two short runs on this machine
    Plan(PlanArgs),
    /// Measure the kernel's limit: a bare loop of `send` to many loopback sockets
    Roofline(RooflineArgs),
    /// Measure one channel with many subscribers: deliveries per CPU-second, latency, losses
    Fanout(FanoutArgs),
    /// Measure how subscribers that stop reading affect the others
    SlowReader(SlowReaderArgs),
    /// Measure the resident memory of idle sessions, also of servers that speak something else
    Idle(IdleArgs),
    /// Measure the cost of connections that are not subscribed: the same subscribers without and with many others
    Subscribers(SubscribersArgs),
    /// Measure a reconnect storm: all sessions lose their connection at once while publishing continues
    Storm(StormArgs),
    /// Measure rooms: ticks, snapshots, and whether every player sees the right state
    Room(RoomArgs),
    /// Measure the storage: latency by durability, starts, what backups and compactions cost
    Storage(StorageBenchArgs),
    /// Measure clusters: nodes on NATS servers that this command starts, compared with bare clients and single nodes
    Cluster(ClusterBenchArgs),
    /// Measure a rolling update of a cluster under load: what is lost, and how fast clients reconnect; the same as `cluster drain`
    Drain(ClusterDrainArgs),
    /// Worker process; started by the other commands
    #[command(hide = true)]
    Worker,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RooflineArgs {
    /// Loopback sockets to send to
    #[arg(long, default_value_t = 1000)]
    pub sockets: usize,
    /// Bytes of each send [default: size of the payload on the wire]
    #[arg(long)]
    pub frame_bytes: Option<usize>,
    /// Payload size of the corresponding fan-out
    #[arg(long, default_value_t = 128)]
    pub payload_bytes: usize,
    /// Encoding of the corresponding fan-out
    #[arg(long, value_enum, default_value_t = EncodingOption::Json)]
    pub encoding: EncodingOption,
    /// Rounds per second in the paced part; each round sends once to every socket
    #[arg(long, default_value_t = 60.0)]
    pub rate: f64,
    /// Total time: half paced, half saturated
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    pub duration: Duration,
    /// Number of alternations between paced and saturated
    #[arg(long, default_value_t = 3)]
    pub turns: u32,
    /// Rounds of each part, instead of a duration
    #[arg(long)]
    pub rounds: Option<u64>,
    /// Sends per submission to `io_uring`, alternating with the bare loop; 0: without `io_uring`
    #[arg(long, default_value_t = 256)]
    pub batch: usize,
    #[command(flatten)]
    pub pin: PinArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// The server under load, the cores, and the report: what every scenario with servers of Dunlin has.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    #[command(flatten)]
    pub pin: PinArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FanoutArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    /// Number of subscribers that stop reading when the measurement starts
    #[arg(long, default_value_t = 0)]
    pub slow_readers: usize,
    /// Alternate with the bare `send` loop and report the ratio
    #[arg(long)]
    pub roofline: bool,
    /// Alternate with a second server that uses TLS and report the ratio
    #[arg(long)]
    pub tls: bool,
    /// What another server speaks instead of Centrifugo's protocol; takes `--publish-via api`
    #[arg(long, value_enum, value_name = "PROTOCOL", conflicts_with = "tls")]
    pub speaks: Option<PeerProtocol>,
    #[command(flatten)]
    pub run: RunArgs,
}

// The defaults are sufficient to fill the kernel's buffers of a loopback socket (2.5 MB) in the measured time.
#[derive(Debug, clap::Args)]
#[command(
    mut_arg("rate", |arg| arg.default_value("200")),
    mut_arg("payload_bytes", |arg| arg.default_value("1024")),
    mut_arg("duration", |arg| arg.default_value("20s"))
)]
pub(crate) struct SlowReaderArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    /// Number of subscribers that stop reading
    #[arg(long, default_value_t = 1)]
    pub slow_readers: usize,
    /// Pairs of runs, each one without and one with slow readers
    #[arg(long, default_value_t = 2)]
    pub pairs: u32,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct IdleArgs {
    /// Numbers of sessions to measure
    #[arg(long, value_delimiter = ',', default_value = "1000,2000,5000,10000,15000")]
    pub sessions: Vec<usize>,
    /// Encoding of the sessions
    #[arg(long, value_enum, default_value_t = EncodingOption::Json)]
    pub encoding: EncodingOption,
    /// Use TLS
    #[arg(long)]
    pub tls: bool,
    /// What another server speaks instead of Centrifugo's protocol
    #[arg(long, value_enum, value_name = "PROTOCOL", conflicts_with = "tls")]
    pub speaks: Option<PeerProtocol>,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, clap::Args)]
#[command(
    mut_arg("subscribers", |arg| arg.default_value("700")),
    mut_arg("duration", |arg| arg.default_value("6s")),
    mut_arg("warm_up", |arg| arg.default_value("1s"))
)]
pub(crate) struct SubscribersArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    /// Connections on the second server, including its subscribers; the others subscribe to another channel
    #[arg(long, default_value_t = 10_000)]
    pub connections: usize,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StormArgs {
    /// Number of sessions, all subscribed to one channel with recovery
    #[arg(long, default_value_t = 10_000)]
    pub sessions: usize,
    /// Publications per second, before, during and after the outage
    #[arg(long, default_value_t = 2.0)]
    pub rate: f64,
    /// Duration of publishing; the sessions are cut off after a tenth of it
    #[arg(long, default_value = "20s", value_parser = parse_duration)]
    pub duration: Duration,
    /// Bytes of each payload
    #[arg(long, default_value_t = 128)]
    pub payload_bytes: usize,
    /// Encoding of all sessions
    #[arg(long, value_enum, default_value_t = EncodingOption::Json)]
    pub encoding: EncodingOption,
    /// Number of worker processes [default: one per 4000 sessions]
    #[arg(long)]
    pub workers: Option<usize>,
    #[command(flatten)]
    pub run: RunArgs,
}

/// Who subscribes, and what is published.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct LoadArgs {
    /// Subscribers of the channel
    #[arg(long, default_value_t = 1000)]
    pub subscribers: usize,
    /// Publications per second, at times that do not depend on the server (open loop)
    #[arg(long, default_value_t = 60.0)]
    pub rate: f64,
    /// Closed loop instead of a rate: number of outstanding publications
    #[arg(long, value_name = "WINDOW")]
    pub saturate: Option<u64>,
    /// Bytes of each payload
    #[arg(long, default_value_t = 128)]
    pub payload_bytes: usize,
    /// Encoding of all sessions
    #[arg(long, value_enum, default_value_t = EncodingOption::Json)]
    pub encoding: EncodingOption,
    /// How publications are sent to the server
    #[arg(long, value_enum, default_value_t = PublishVia::Websocket)]
    pub publish_via: PublishVia,
    /// Measured time
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    pub duration: Duration,
    /// Load before the measurement
    #[arg(long, default_value = "2s", value_parser = parse_duration)]
    pub warm_up: Duration,
    /// Number of turns of the measurement (the roofline runs between them)
    #[arg(long, default_value_t = 3)]
    pub turns: u32,
    /// Number of worker processes [default: one per 4000 subscribers]
    #[arg(long)]
    pub workers: Option<usize>,
    /// Receive buffer of slow readers
    #[arg(long, default_value_t = 4096)]
    pub slow_receive_bytes: usize,
}

/// How publications are sent to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PublishVia {
    /// The publish command of a session
    Websocket,
    /// The HTTP API, on one connection
    Api,
}

/// How the server under test is started, and its key.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct StartArgs {
    /// The server program to start [default: the `dunlin` that `dunlin bench` belongs to; otherwise `dunlin` beside this program or in PATH]
    #[arg(long, value_name = "PROGRAM")]
    pub spawn: Option<PathBuf>,
    /// Its arguments; {config} is replaced by the path of its configuration file
    #[arg(long, value_delimiter = ' ', default_value = "serve -c {config}", allow_hyphen_values = true)]
    pub spawn_args: Vec<String>,
    /// Reactor of the started server: auto, `io_uring` or epoll
    #[arg(long, value_name = "KIND")]
    pub reactor: Option<String>,
    /// Port for the started server [default: a free one]
    #[arg(long)]
    pub port: Option<u16>,
    /// Key of the HTTP API
    #[arg(long, default_value = "bench")]
    pub api_key: String,
}

/// The server under test.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ServerArgs {
    /// A running server, as ws://ADDRESS:PORT/PATH
    #[arg(long, requires = "server_pid", conflicts_with = "spawn")]
    pub url: Option<String>,
    /// Its process id
    #[arg(long, requires = "url")]
    pub server_pid: Option<u32>,
    #[command(flatten)]
    pub start: StartArgs,
    /// A configuration key for the started server, such as `client.queue_max_size=65536`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// The started server speaks TLS; scenarios that can do so have an option for it.
    #[arg(skip)]
    pub tls: bool,
    /// What the server speaks instead of the client protocol; scenarios with subscribers alone have an option for it.
    #[arg(skip)]
    pub speaks: Option<PeerProtocol>,
    /// Operators' paths of the started server have this port; scenarios set it.
    #[arg(skip)]
    pub internal_port: Option<u16>,
}

/// Where processes run.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PinArgs {
    /// Do not pin processes to cores; by default the server has the last core and the clients the others
    #[arg(long)]
    pub no_pin: bool,
}

impl PinArgs {
    pub fn cores(&self) -> Cores {
        if self.no_pin { Cores::unpinned() } else { Cores::split() }
    }
}

/// Where results go.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct OutputArgs {
    /// Write the result as JSON to FILE; without FILE to stdout, and the table to stderr
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
    /// Print no table and no progress
    #[arg(long)]
    pub quiet: bool,
}

impl RooflineArgs {
    pub fn check(&self) -> Result<(), Error> {
        check_count("sockets", self.sockets as u64, 1, 19_000)?;
        check_count("frame-bytes", self.frame_bytes.unwrap_or(1) as u64, 1, 1 << 20)?;
        check_count("turns", self.turns.into(), 1, 1000)?;
        check_count("rounds", self.rounds.unwrap_or(1), 1, u64::MAX)?;
        check_count("batch", self.batch as u64, 0, 32_768)?;
        check_payload(self.payload_bytes)?;
        check_rate(self.rate)
    }
}

impl LoadArgs {
    pub fn check(&self, slow_readers: usize) -> Result<(), Error> {
        check_count("subscribers", self.subscribers as u64, 1, 1_000_000)?;
        check_count("slow-readers", slow_readers as u64, 0, self.subscribers as u64 - 1)?;
        check_count("turns", self.turns.into(), 1, 1000)?;
        check_count("saturate", self.saturate.unwrap_or(1), 1, 1_000_000)?;
        check_payload(self.payload_bytes)?;
        check_rate(self.rate)
    }

    /// The rate of the publisher.
    pub(crate) fn pace(&self, slow_readers: usize) -> PublishRate {
        match self.saturate {
            Some(window) => PublishRate::Window { window, readers: (self.subscribers - slow_readers) as u64 },
            None => PublishRate::PerSecond(self.rate),
        }
    }
}

impl FanoutArgs {
    pub fn check(&self) -> Result<(), Error> {
        self.load.check(self.slow_readers)?;
        if self.speaks.is_some() && self.load.publish_via != PublishVia::Api {
            let remedy = "give `api`: only Centrifugo's protocol has a command to publish".into();
            return Err(Error::Setting { name: "publish-via", value: "websocket".into(), remedy });
        }
        if !self.tls {
            return Ok(());
        }
        check_count("slow-readers", self.slow_readers as u64, 0, 0)?;
        if self.load.publish_via == PublishVia::Api {
            let remedy = "leave out --publish-via api: publications come by a session with TLS".into();
            return Err(Error::Setting { name: "tls", value: "true".into(), remedy });
        }
        self.run.server.check_started()
    }
}

impl SubscribersArgs {
    pub fn check(&self) -> Result<(), Error> {
        self.load.check(0)?;
        check_count("connections", self.connections as u64, self.load.subscribers as u64, 100_000)?;
        self.run.server.check_started()
    }
}

impl StormArgs {
    pub fn check(&self) -> Result<(), Error> {
        check_count("sessions", self.sessions as u64, 1, 100_000)?;
        check_payload(self.payload_bytes)?;
        check_rate(self.rate)?;
        self.run.server.check_started()
    }
}

impl ServerArgs {
    /// The content of the server's WebSocket messages.
    pub(crate) fn content(&self) -> MessageContent {
        self.speaks.map_or(MessageContent::Protocol, MessageContent::Peer)
    }

    /// The same for a server that speaks something else.
    pub(crate) fn speaking(&self, speaks: Option<PeerProtocol>) -> Self {
        ServerArgs { speaks, ..self.clone() }
    }

    /// The same for a further server: on the next port, if there is one given.
    pub fn next(&self, tls: bool) -> Self {
        self.at(self.start.port.map(|port| port + 1), tls)
    }

    /// The same on this port.
    pub fn at(&self, port: Option<u16>, tls: bool) -> Self {
        ServerArgs { start: StartArgs { port, ..self.start.clone() }, tls, ..self.clone() }
    }

    /// For scenarios that need a separate server.
    pub(crate) fn check_started(&self) -> Result<(), Error> {
        let Some(url) = &self.url else { return Ok(()) };
        let remedy = "leave it out: this scenario starts its servers itself".into();
        Err(Error::Setting { name: "url", value: url.clone(), remedy })
    }
}

impl IdleArgs {
    pub fn check(&self) -> Result<(), Error> {
        let value = || self.sessions.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        if self.sessions.len() < 2 || !self.sessions.is_sorted_by(|one, next| one < next) {
            let remedy = "give at least two numbers, each larger than the one before".into();
            return Err(Error::Setting { name: "sessions", value: value(), remedy });
        }
        if self.tls { self.run.server.check_started() } else { Ok(()) }
    }
}

pub(crate) fn check_count(name: &'static str, value: u64, min: u64, max: u64) -> Result<(), Error> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Error::Setting { name, value: value.to_string(), remedy: format!("give {min} to {max}") })
}

fn check_payload(bytes: usize) -> Result<(), Error> {
    check_count("payload-bytes", bytes as u64, PAYLOAD_BYTES_MIN as u64, 65_000)
}

pub(crate) fn check_rate(rate: f64) -> Result<(), Error> {
    if rate > 0.0 && rate <= 1e6 {
        return Ok(());
    }
    Err(Error::Setting { name: "rate", value: rate.to_string(), remedy: "give more than 0, at most 1000000".into() })
}

/// `10s`, `500ms` or `2m`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        _ => return Err("give a number with a unit: 500ms, 10s, 2m".into()),
    };
    match number.parse::<f64>() {
        Ok(number) if (0.0..=86_400.0).contains(&(number * seconds)) => Ok(Duration::from_secs_f64(number * seconds)),
        _ => Err("give 0 to 24 hours: 500ms, 10s, 2m".into()),
    }
}

/// Takes `ws://ADDRESS:PORT/PATH` apart.
pub(crate) fn parse_url(url: &str) -> Result<(SocketAddr, String), Error> {
    let parts = || {
        let rest = url.strip_prefix("ws://")?;
        let (address, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let path = if path.is_empty() { "/connection/websocket" } else { path };
        Some((address.replace("localhost", "127.0.0.1").parse().ok()?, path.to_owned()))
    };
    parts().ok_or_else(|| Error::Setting {
        name: "url",
        value: url.to_owned(),
        remedy: "give an address with its port, such as ws://127.0.0.1:8000/connection/websocket".into(),
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn no_two_commands_contradict_each_other() {
        Args::command().debug_assert();
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_mins(2)));
        for text in ["", "10", "s", "-1s", "10h", "NaNs", "90000s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn urls_name_an_address_and_a_path() {
        let (address, path) = parse_url("ws://localhost:8000").unwrap();
        assert_eq!((address.to_string().as_str(), path.as_str()), ("127.0.0.1:8000", "/connection/websocket"));
        assert_eq!(parse_url("ws://127.0.0.2:9/x?y").unwrap().1, "/x?y");
        for url in ["http://127.0.0.1:8000", "ws://example.org:80/", "ws://127.0.0.1/"] {
            assert!(parse_url(url).unwrap_err().to_string().contains(url));
        }
    }

    #[test]
    fn numbers_of_the_command_line_are_limited() {
        assert!(check_payload(PAYLOAD_BYTES_MIN).is_ok());
        assert!(check_payload(PAYLOAD_BYTES_MIN - 1).unwrap_err().to_string().contains("--payload-bytes 41"));
        assert!(check_payload(65_000).is_ok());
        assert!(check_payload(65_001).is_err());
        assert!(check_rate(1e6).is_ok());
        assert!(check_rate(1e6 + 1.0).is_err());
        assert!(check_rate(0.0).is_err());
        assert!(check_rate(f64::NAN).is_err());
    }
}
