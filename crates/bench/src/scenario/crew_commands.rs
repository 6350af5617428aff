//! Commands and replies of crews: workers of scenarios that a profile describes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::rate_curve::RateCurve;
use super::streams::StreamFiles;
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
    /// What the clients of the crew do.
    pub plan: CrewPlan,
    pub place: Place,
    pub load: Load,
    /// The shared counters of workers.
    pub tally: PathBuf,
    /// The shared counters of streams.
    pub streams: StreamFiles,
    /// Beginning of the run, for intervals: nanoseconds of the monotonic clock.
    pub run_start_ns: u64,
    /// Length of the intervals in which latencies are collected.
    pub interval_ns: u64,
}

/// A process among those of its crew and of the run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Place {
    /// Number of this worker, its place in the tally.
    pub worker: usize,
    /// Connection `n` of the crew belongs to process `n % parts`.
    pub part: u64,
    pub parts: u64,
    /// Maximum number of connections of the process.
    pub connections: usize,
    /// Numbers of the local addresses that are this process's own.
    pub sources: Range<u32>,
    /// Maximum number of concurrent handshakes.
    pub handshakes_max: usize,
    /// Cores to run on.
    pub cores: Vec<usize>,
}

impl Place {
    /// The number among all of the crew of the connection that has this number in the process.
    pub fn connection(&self, number: usize) -> u64 {
        number as u64 * self.parts + self.part
    }
}

/// What is published in the run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Load {
    /// Number of channels of the run.
    pub channels: u32,
    /// All crews with publishers, also those of other processes.
    pub publishers: Vec<StreamSpan>,
    /// Bytes of each payload.
    pub payload_bytes: usize,
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
    pub sockets: SocketKind,
    /// What its clients do in a room; none: they are in channels.
    pub play: Option<PlayPlan>,
    /// Number of processes; none: one for each 4,000 connections, or 250,000 with direct sockets.
    pub workers: Option<u64>,
}

impl CrewPlan {
    /// Publications and inputs per second of the whole crew.
    pub fn rates(&self) -> [f64; 2] {
        [self.publish, self.play.as_ref().map_or(0.0, |play| play.inputs)]
    }
}

/// What the clients of a crew do in a room.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlayPlan {
    /// The room's channel.
    pub room: String,
    /// The data with which they join, a JSON document.
    pub join: Option<String>,
    /// Inputs per second of the whole crew.
    pub inputs: f64,
    /// The inputs of each client, again and again.
    pub script: Vec<Vec<u8>>,
    /// Texts of which each client must see each one in an event of the room.
    pub expect: Vec<String>,
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

/// What the sockets of a crew are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SocketKind {
    /// File descriptors.
    Descriptors,
    /// Places in tables of `io_uring`, which do not count as open files.
    Direct,
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

/// A command to a crew.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum CrewCommand {
    /// Work until the end of the phase. → [`CrewReply::PhaseOver`], at that time, unless the next command comes before
    Phase(PhaseOrder),
    /// Wait until everything has arrived and all connections are open, or nothing happens any more, or this time is
    /// over. → [`CrewReply::Settled`]
    Settle { patience_ns: u64 },
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
    /// Inputs per second of the whole crew.
    pub inputs: RateCurve,
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
    pub connections: Connections,
    pub sent: Sent,
    pub received: Received,
    pub played: Played,
    /// For each interval of the run, the latencies in microseconds and how often each occurred. An interval may be there
    /// several times.
    pub intervals: Vec<(u64, Vec<(u64, u64)>)>,
    /// Processor time of the processes.
    pub cpu_ns: u64,
}

/// The connections of a phase.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Connections {
    /// Open at the end.
    pub open: u64,
    /// Those that became ready in this phase.
    pub connected: u64,
    /// Those that were closed and replaced.
    pub churned: u64,
    /// Those that failed before they were ready, by reason.
    pub failed: BTreeMap<String, u64>,
    /// Ready ones that the target ended, by close code or reason.
    pub closed: BTreeMap<String, u64>,
    /// From the intended time of a connection until it is subscribed.
    pub time: Latency,
}

/// The publications of a phase at their publishers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Sent {
    pub published: u64,
    pub accepted: u64,
    /// By error code.
    pub refused: BTreeMap<String, u64>,
    /// Those that were due while their connection was closed.
    pub unsent: u64,
    /// Refused ones beyond those that are recorded: their clients count them as lost.
    pub unchecked: u64,
    /// From the intended time to the actual one: the lateness of the load generator.
    pub lag: Latency,
    /// From the intended time to the answer of the target.
    pub acknowledged: Latency,
}

/// The publications of a phase at their subscribers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Received {
    /// Those received for the first time.
    pub delivered: u64,
    /// Those that a client should have received and did not.
    pub lost: u64,
    /// Those received again.
    pub duplicated: u64,
    /// Those received after a later one of the same stream.
    pub reordered: u64,
    /// Those of channels to which the client is not subscribed.
    pub stray: u64,
    /// Missing ones, and ones that arrived, beyond what the clients remember of gaps.
    pub unchecked: u64,
    /// From the intended time of a publication to its arrival.
    pub latency: Latency,
    /// From the actual time at which it was sent to its arrival.
    pub service: Latency,
    /// The shortest latency of the client whose shortest latency is the longest.
    pub slowest_client_ns: Option<u64>,
}

/// What players in rooms did and received in a phase.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Played {
    /// Players at the end.
    pub players: u64,
    pub inputs: u64,
    /// Inputs that no snapshot acknowledged.
    pub inputs_lost: u64,
    /// From the intended time of an input to the snapshot that acknowledges it.
    pub input_time: Latency,
    pub snapshots: u64,
    /// Snapshots that could not be applied.
    pub snapshots_broken: u64,
    pub events: u64,
    /// Players whose subscription the target ended.
    pub removed: u64,
    /// Players that received no snapshot in the phase.
    pub silent_players: u64,
    /// Expectations of players that are not met at the end.
    pub expectations_missed: u64,
}

impl Played {
    fn add(&mut self, other: &Played, later: bool) {
        if later {
            (self.players, self.expectations_missed) = (0, 0);
        }
        self.players += other.players;
        self.expectations_missed += other.expectations_missed;
        self.inputs += other.inputs;
        self.inputs_lost += other.inputs_lost;
        self.input_time.add(&other.input_time);
        self.snapshots += other.snapshots;
        self.snapshots_broken += other.snapshots_broken;
        self.events += other.events;
        self.removed += other.removed;
        self.silent_players += other.silent_players;
    }

    /// Adds what went wrong. A player may be silent before its room has begun.
    fn add_faults(&mut self, other: &Played) {
        self.inputs += other.inputs_lost;
        self.inputs_lost += other.inputs_lost;
        self.snapshots_broken += other.snapshots_broken;
        self.removed += other.removed;
    }
}

impl CrewReport {
    /// Adds the report of another process or of a later phase. The number of connections is a state: with `later`, that
    /// of the other report counts.
    pub fn add(&mut self, other: &CrewReport, later: bool) {
        let open = if later { other.connections.open } else { self.connections.open + other.connections.open };
        self.add_connections(&other.connections);
        self.received.add_faults(&other.received);
        self.connections.open = open;
        let (received, of) = (&mut self.received, &other.received);
        received.delivered += of.delivered;
        received.latency.add(&of.latency);
        received.service.add(&of.service);
        received.slowest_client_ns = received.slowest_client_ns.max(of.slowest_client_ns);
        let (sent, of) = (&mut self.sent, &other.sent);
        sent.published += of.published;
        sent.accepted += of.accepted;
        sent.unsent += of.unsent;
        sent.unchecked += of.unchecked;
        sent.lag.add(&of.lag);
        sent.acknowledged.add(&of.acknowledged);
        add_counts(&mut sent.refused, &of.refused);
        self.connections.churned += other.connections.churned;
        self.played.add(&other.played, later);
        self.intervals.extend_from_slice(&other.intervals);
        self.cpu_ns += other.cpu_ns;
    }

    /// Adds what went wrong in a phase whose latencies and costs do not count, and the connections that it opened.
    pub fn add_faults(&mut self, other: &CrewReport) {
        self.add_connections(&other.connections);
        self.received.add_faults(&other.received);
        self.played.add_faults(&other.played);
        let (sent, of) = (&mut self.sent, &other.sent);
        // Those that were not accepted.
        sent.published += of.published.saturating_sub(of.accepted);
        sent.unsent += of.unsent;
        sent.unchecked += of.unchecked;
        add_counts(&mut sent.refused, &of.refused);
    }

    fn add_connections(&mut self, other: &Connections) {
        let connections = &mut self.connections;
        connections.connected += other.connected;
        connections.time.add(&other.time);
        add_counts(&mut connections.failed, &other.failed);
        add_counts(&mut connections.closed, &other.closed);
    }
}

impl Received {
    fn add_faults(&mut self, other: &Received) {
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.stray += other.stray;
        self.unchecked += other.unchecked;
    }
}

fn add_counts(sum: &mut BTreeMap<String, u64>, other: &BTreeMap<String, u64>) {
    for (why, count) in other {
        *sum.entry(why.clone()).or_default() += count;
    }
}
