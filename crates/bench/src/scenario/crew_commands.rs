//! Commands and replies of crews: workers of scenarios that a profile describes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::rate_curve::RateCurve;
use crate::control::Target;
use crate::latency::Latency;

/// See [`crate::control::Role::Crew`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CrewRole {
    /// The server. The channel's name is followed by the channel's number.
    pub target: Target,
    /// The address of the HTTP API.
    pub operators: SocketAddr,
    /// The key of the HTTP API.
    pub api_key: String,
    /// Number of this worker, its place in the tally.
    pub worker: usize,
    /// This process among those of its crew. Connection `n` belongs to process `n % parts`.
    pub part: u64,
    pub parts: u64,
    /// What the clients of the crew do.
    pub plan: CrewPlan,
    /// Number of channels of the run.
    pub channels: u32,
    /// All crews with publishers, also those of other processes.
    pub publishers: Vec<StreamSpan>,
    /// Bytes of each payload.
    pub payload_bytes: usize,
    /// Maximum number of concurrent handshakes.
    pub handshakes_max: usize,
    /// Beginning of the run, for intervals: nanoseconds of the monotonic clock.
    pub run_start_ns: u64,
    /// Length of the intervals in which latencies are collected.
    pub interval_ns: u64,
    /// The shared counters of workers.
    pub tally: PathBuf,
    /// The shared counters of streams.
    pub streams: PathBuf,
    /// Cores to run on.
    pub cores: Vec<usize>,
}

/// What the clients of a crew do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CrewPlan {
    pub name: String,
    /// Number of connections, unless a phase gives another one.
    pub connections: u64,
    /// New connections per second; none: as fast as the target accepts them.
    pub connect_rate: Option<f64>,
    pub subscribe: Subscribe,
    /// Channels of each client, with [`Subscribe::Random`].
    pub channels_per_client: u32,
    /// Connections that are closed and replaced, per second.
    pub churn: f64,
    /// Publications per second of the whole crew.
    pub publish: f64,
    pub via: Via,
    /// Number of processes; none: one for each 4,000 connections.
    pub workers: Option<u64>,
}

/// Which channels a client subscribes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Subscribe {
    /// None.
    None,
    /// All channels of the run.
    All,
    /// One: that with the connection's number, modulo the number of channels.
    Single,
    /// Different ones, chosen at random. The choice depends on the connection's number alone.
    Random,
}

/// How a crew publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Via {
    /// The publish command of sessions.
    Client,
    /// The HTTP API, one kept-alive connection for each connection of the crew.
    Api,
}

/// The streams of one crew of publishers. A *stream* is what one connection publishes into one channel, so its
/// publications have one order. Stream `n` of a crew belongs to channel `n % channels` and connection `n % connections`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StreamSpan {
    /// Name of the crew.
    pub of: String,
    /// Number of the first stream.
    pub first: u32,
    /// Number of streams: the larger one of the numbers of channels and of connections.
    pub count: u32,
    /// Connections of the crew.
    pub connections: u64,
}

/// A command to a crew. Each has one reply.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum CrewCommand {
    /// Work until the end of the phase. → [`CrewReply::PhaseOver`], at that time
    Phase(PhaseOrder),
    /// Wait until everything has arrived and all connections are open, or nothing happens any more. →
    /// [`CrewReply::Settled`]
    Settle,
}

/// See [`CrewCommand::Phase`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PhaseOrder {
    /// Nanoseconds of the monotonic clock.
    pub start_ns: u64,
    pub duration_ns: u64,
    /// Connections of the whole crew. Surplus ones are closed.
    pub connections: u64,
    /// Connections of the whole crew to close and replace per second.
    pub churn: f64,
    /// Publications per second of the whole crew.
    pub publish: RateCurve,
}

/// A reply of a crew.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "done", rename_all = "snake_case")]
pub enum CrewReply {
    /// The time of the phase is over.
    PhaseOver,
    /// What has happened since the beginning of the phase.
    Settled(Box<CrewReport>),
}

/// What a crew did and received in a phase.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CrewReport {
    /// Open connections at the end.
    pub connections: u64,
    /// Publications received for the first time.
    pub delivered: u64,
    /// Publications that a client should have received and did not.
    pub lost: u64,
    /// Publications received again.
    pub duplicated: u64,
    /// Publications received after a later one of the same stream.
    pub reordered: u64,
    /// Publications of channels to which the client is not subscribed.
    pub stray: u64,
    /// Publications sent.
    pub published: u64,
    pub accepted: u64,
    /// By error code.
    pub refused: BTreeMap<String, u64>,
    /// Publications that were due while their connection was closed.
    pub unsent: u64,
    /// Connections that became ready in this phase.
    pub connected: u64,
    /// Connections that were closed and replaced.
    pub churned: u64,
    /// Connections that failed before they were ready, by reason.
    pub failed: BTreeMap<String, u64>,
    /// Ready connections that the target ended, by close code or reason.
    pub closed: BTreeMap<String, u64>,
    /// From the intended time of a publication to its arrival.
    pub latency: Latency,
    /// From the actual time at which it was sent to its arrival.
    pub service: Latency,
    /// From the intended time to the actual one: the lateness of the load generator.
    pub lag: Latency,
    /// From the intended time to the answer of the target.
    pub acknowledged: Latency,
    /// From the intended time of a connection until it is subscribed.
    pub connect: Latency,
    /// For each interval of the run, the latencies in microseconds and how often each occurred. An interval may be there
    /// several times.
    pub intervals: Vec<(u64, Vec<(u64, u64)>)>,
    /// Bytes read.
    pub bytes: u64,
    /// Processor time of the processes.
    pub cpu_ns: u64,
}

impl CrewReport {
    /// Adds the report of another process or of a later phase. The number of connections is a state: with `later`, that
    /// of the other report counts.
    pub fn add(&mut self, other: &CrewReport, later: bool) {
        self.connections = if later { other.connections } else { self.connections + other.connections };
        self.delivered += other.delivered;
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.stray += other.stray;
        self.published += other.published;
        self.accepted += other.accepted;
        self.unsent += other.unsent;
        self.connected += other.connected;
        self.churned += other.churned;
        self.bytes += other.bytes;
        self.cpu_ns += other.cpu_ns;
        self.latency.add(&other.latency);
        self.service.add(&other.service);
        self.lag.add(&other.lag);
        self.acknowledged.add(&other.acknowledged);
        self.connect.add(&other.connect);
        self.intervals.extend_from_slice(&other.intervals);
        add_counts(&mut self.refused, &other.refused);
        add_counts(&mut self.failed, &other.failed);
        add_counts(&mut self.closed, &other.closed);
    }
}

fn add_counts(sum: &mut BTreeMap<String, u64>, other: &BTreeMap<String, u64>) {
    for (why, count) in other {
        *sum.entry(why.clone()).or_default() += count;
    }
}
