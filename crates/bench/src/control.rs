//! The protocol between the orchestrator and its worker processes: one JSON object per line, over stdin and stdout.
//!
//! Every command has exactly one answer, in order. A worker ends when its stdin ends.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::commands::EncodingOption;
use crate::latency::Latency;
use crate::peer::PeerProtocol;
use crate::report::per_second;
use crate::room::player_commands::{PlayersCommand, PlayersReply, PlayersRole};
use crate::scenario::crew_commands::{CrewCommand, CrewReply, CrewRole};

/// The first line to every process: its role.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Role {
    /// The roofline's sender. Answers [`WorkerReply::Listening`], then takes [`WorkerCommand::Send`].
    Sender(SenderRole),
    /// The roofline's receivers. Answers [`WorkerReply::Connected`].
    Drain(DrainRole),
    /// Subscribers. Takes all commands but `Send` and `Publish`.
    Clients(ClientsRole),
    /// The one publisher. Answers [`WorkerReply::Connected`], then takes [`WorkerCommand::Publish`].
    Publisher(PublisherRole),
    /// Subscribers that reconnect after they were cut off. Takes [`WorkerCommand::Connect`], [`WorkerCommand::Cut`] and
    /// [`WorkerCommand::End`].
    ReconnectingSubscribers(ClientsRole),
    /// Subscribers that connect once, from given positions. Takes [`WorkerCommand::Recover`].
    Recoverers(ClientsRole),
    /// Players of rooms. Takes [`WorkerCommand::Connect`] and [`WorkerCommand::Play`].
    Players(Box<PlayersRole>),
    /// Clients of a scenario that a profile describes. Takes [`WorkerCommand::Crew`].
    Crew(Box<CrewRole>),
}

/// See [`Role::Sender`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SenderRole {
    /// Connections to accept.
    pub sockets: usize,
    /// Cores to run on.
    pub cores: Vec<usize>,
}

/// See [`Role::Drain`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DrainRole {
    /// The sender's listener.
    pub address: SocketAddr,
    /// Connections to open.
    pub sockets: usize,
    /// Local address to connect from.
    pub source: IpAddr,
    /// Cores to run on.
    pub cores: Vec<usize>,
}

/// The server under test, from the clients' perspective.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Target {
    /// The address of its listener.
    pub address: SocketAddr,
    /// Path of the WebSocket endpoint.
    pub path: String,
    /// Encoding that the clients request.
    pub encoding: EncodingOption,
    /// The one channel of the run.
    pub channel: String,
    /// The data of the subscription to it, a JSON document.
    pub join: Option<String>,
    /// The content of WebSocket messages.
    pub content: MessageContent,
    /// Whether the connection is TLS.
    #[serde(default)]
    pub tls: bool,
}

/// The content of the WebSocket messages of a server under test.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageContent {
    /// The client protocol.
    #[default]
    Protocol,
    /// Only a snapshot of a room or an input.
    Bare,
    /// What another server speaks.
    Peer(PeerProtocol),
}

/// See [`Role::Clients`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClientsRole {
    /// The server.
    pub target: Target,
    /// Number of this worker, its place in the tally.
    pub worker: usize,
    /// Local address to connect from.
    pub source: IpAddr,
    /// Maximum number of concurrent handshakes.
    pub handshakes_max: usize,
    /// Receive buffer of slow readers, in bytes.
    pub slow_receive_bytes: usize,
    /// The shared counters.
    pub tally: PathBuf,
    /// Cores to run on.
    pub cores: Vec<usize>,
    /// Other nodes of the server's cluster. Reconnecting subscribers are spread over all nodes, and reconnect to the next one.
    #[serde(default)]
    pub others: Vec<SocketAddr>,
}

/// See [`Role::Publisher`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PublisherRole {
    /// The server.
    pub target: Target,
    /// Publish over the HTTP API with this key instead of a session.
    pub api_key: Option<String>,
    pub payload_bytes: usize,
    /// The shared counters.
    pub tally: PathBuf,
    /// Cores to run on.
    pub cores: Vec<usize>,
}

/// A command to a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum WorkerCommand {
    /// Open this many more sessions; the first `slow` of them can be paused later. → [`WorkerReply::Connected`]
    Connect {
        sessions: usize,
        /// Number of slow readers among them.
        slow: usize,
    },
    /// A phase begins; its first publication has this sequence. → [`WorkerReply::Done`]
    Begin {
        /// Sequence of the first publication.
        first_sequence: u64,
    },
    /// The phase is over; this would be the sequence of the next publication. → [`WorkerReply::Received`]
    End {
        /// One past the last sequence.
        end_sequence: u64,
    },
    /// Slow readers stop reading. → [`WorkerReply::Done`]
    PauseSlow,
    /// Slow readers read again, until they are closed, have the newest publication, or receive nothing more. →
    /// [`WorkerReply::Slow`]
    WakeSlow {
        /// One past the last sequence.
        end_sequence: u64,
    },
    /// Cut off all sessions, which then reconnect. → [`WorkerReply::Returned`], when all are back or have timed out
    Cut,
    /// The server at this address will end, and its sessions reconnect to other nodes. → [`WorkerReply::Returned`],
    /// when all are back or have timed out
    Lose {
        /// The server of these sessions.
        address: SocketAddr,
    },
    /// Open sessions that recover. → [`WorkerReply::Recovered`], when all have an answer or have timed out
    Recover { groups: Vec<RecoveryGroup> },
    /// Publish. → [`WorkerReply::Published`]
    Publish(Publish),
    /// Send rounds of frames. → [`WorkerReply::Sent`]
    Send(Send),
    /// A command for players. → [`WorkerReply::Play`]
    Play(PlayersCommand),
    /// A command for a crew. → [`WorkerReply::Crew`]
    Crew(CrewCommand),
}

/// Sessions that recover one channel from one position.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RecoveryGroup {
    pub channel: String,
    pub epoch: String,
    pub offset: u64,
    pub sessions: usize,
    /// Number of publications that each of them misses; none if they subscribe without a recovery.
    pub expected: Option<u64>,
}

/// See [`WorkerCommand::Publish`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Publish {
    /// Sequence of the first publication.
    pub first_sequence: u64,
    /// Duration, in nanoseconds.
    pub duration_ns: u64,
    pub pace: PublishRate,
}

/// How fast to publish.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PublishRate {
    /// Open loop: this many publications per second, regardless of the server's speed.
    PerSecond(f64),
    /// Saturating: publish while fewer than `window` publications are in flight to `readers` readers.
    Window {
        /// Maximum number of publications in flight.
        window: u64,
        /// Number of readers that must receive each publication.
        readers: u64,
    },
}

/// See [`WorkerCommand::Send`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Send {
    /// Bytes of each send.
    pub frame_bytes: usize,
    /// Rounds per second; none: without pauses.
    pub rounds_per_second: Option<f64>,
    /// When to stop.
    pub until: Until,
    /// Sends of one submission to `io_uring`; none: each is a system call.
    pub batch: Option<usize>,
}

/// When a sender stops.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// After this many rounds.
    Rounds(u64),
    /// After this many nanoseconds, at the end of a round.
    DurationNs(u64),
}

/// An answer of a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum WorkerReply {
    /// The sender accepts connections here.
    Listening { address: SocketAddr },
    /// All connections are open or have timed out.
    Connected(Connected),
    /// Nothing to report.
    Done,
    /// A phase of the subscribers.
    Received(Box<SubscriberReport>),
    /// The outcome of the slow readers.
    Slow(Slow),
    /// Sessions that were cut off.
    Returned(Box<Returned>),
    /// Sessions that recovered.
    Recovered(Box<Recovered>),
    /// A phase of the publisher.
    Published(Box<PublisherReport>),
    /// Rounds of a sender.
    Sent(SenderReport),
    /// `io_uring` is not available for sending in batches.
    NoBatches {
        /// The error of the system call.
        reason: String,
    },
    /// An answer of players.
    Play(PlayersReply),
    /// An answer of a crew.
    Crew(CrewReply),
    /// The process cannot continue.
    Failed {
        /// The worker's error message.
        message: String,
    },
}

/// See [`WorkerReply::Connected`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Connected {
    /// Sessions that are ready now.
    pub ready: usize,
    /// Sessions that failed, and why.
    pub failed: BTreeMap<String, u64>,
}

/// The measurements of subscribers in a phase, without slow readers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SubscriberReport {
    /// Number of deliveries: publications, counted once per session.
    pub deliveries: u64,
    /// Publications that a session should have received and did not.
    pub lost: u64,
    /// Publications received again, or after a later one.
    pub duplicated: u64,
    /// Publications of an earlier phase.
    pub late: u64,
    /// Calls of `read`.
    pub reads: u64,
    /// Bytes read.
    pub bytes: u64,
    /// WebSocket frames.
    pub frames: u64,
    /// Sessions that ended in this phase, by close code or reason.
    pub closed: BTreeMap<String, u64>,
    /// From the intended time of a publication to its arrival.
    pub latency: Latency,
    /// Processor time of this worker.
    pub cpu_ns: u64,
}

impl SubscriberReport {
    pub fn add(&mut self, other: &SubscriberReport) {
        self.deliveries += other.deliveries;
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.late += other.late;
        self.reads += other.reads;
        self.bytes += other.bytes;
        self.frames += other.frames;
        self.cpu_ns += other.cpu_ns;
        self.latency.add(&other.latency);
        for (why, count) in &other.closed {
            *self.closed.entry(why.clone()).or_default() += count;
        }
    }
}

/// Sessions that were cut off and have reconnected.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Returned {
    /// Sessions that were cut off.
    pub cut: u64,
    /// Sessions that are back: connected, and subscribed with everything recovered.
    pub back: u64,
    /// Number of connection attempts.
    pub attempts: u64,
    /// Failed attempts, by the error that the client received.
    pub failed: BTreeMap<String, u64>,
    /// Subscriptions that could not recover.
    pub unrecovered: u64,
    /// From the cut to the completed recovery.
    pub absence: Latency,
    /// When the server closed sessions: milliseconds of the monotonic clock, unsorted.
    pub ended_at_ms: Vec<u64>,
}

impl Returned {
    pub fn add(&mut self, other: &Returned) {
        self.cut += other.cut;
        self.back += other.back;
        self.attempts += other.attempts;
        self.unrecovered += other.unrecovered;
        self.absence.add(&other.absence);
        self.ended_at_ms.extend(&other.ended_at_ms);
        for (why, count) in &other.failed {
            *self.failed.entry(why.clone()).or_default() += count;
        }
    }
}

/// The results of recoveries.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Recovered {
    /// Sessions with an answer to their subscription.
    pub ready: u64,
    /// Sessions whose recovery failed; included in `ready`.
    pub unrecovered: u64,
    /// Recovered publications.
    pub publications: u64,
    /// Missing publications, which should have been recovered.
    pub missing: u64,
    /// Sessions that failed, and why.
    pub failed: BTreeMap<String, u64>,
    /// From the TCP connection to the answer.
    pub time: Latency,
}

impl Recovered {
    pub fn add(&mut self, other: &Recovered) {
        self.ready += other.ready;
        self.unrecovered += other.unrecovered;
        self.publications += other.publications;
        self.missing += other.missing;
        self.time.add(&other.time);
        for (why, count) in &other.failed {
            *self.failed.entry(why.clone()).or_default() += count;
        }
    }
}

/// The outcome of the slow readers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Slow {
    /// Number of slow readers.
    pub sessions: u64,
    /// Slow readers that the server closed, by close code or reason.
    pub closed: BTreeMap<String, u64>,
    /// Connected slow readers that have the newest publication.
    pub newest: u64,
    /// Connected slow readers that do not have the newest publication.
    pub behind: u64,
    /// Publications that slow readers received.
    pub deliveries: u64,
    /// Publications that were skipped for slow readers that have the newest one.
    pub skipped: u64,
}

/// The measurements of the publisher in a phase.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PublisherReport {
    /// Publications sent.
    pub publications: u64,
    /// Publications that the server accepted before the end of the phase.
    pub accepted: u64,
    /// Publications that the server refused, by error code.
    pub refused: BTreeMap<String, u64>,
    /// From the intended time to the write: the load generator's own lateness.
    pub lag: Latency,
    /// From the intended time to the successful answer; only for sessions, not for the HTTP API.
    pub acknowledged: Latency,
    /// The longest time without a successful answer.
    pub pause: AcknowledgementPause,
    /// Processor time of the publisher.
    pub cpu_ns: u64,
}

impl PublisherReport {
    pub fn add(&mut self, other: &PublisherReport) {
        self.publications += other.publications;
        self.accepted += other.accepted;
        self.cpu_ns += other.cpu_ns;
        self.lag.add(&other.lag);
        self.acknowledged.add(&other.acknowledged);
        if other.pause.ns() > self.pause.ns() {
            self.pause = other.pause;
        }
        for (code, count) in &other.refused {
            *self.refused.entry(code.clone()).or_default() += count;
        }
    }
}

/// A time without an acknowledgement, on the monotonic clock.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct AcknowledgementPause {
    pub from_ns: u64,
    pub until_ns: u64,
}

impl AcknowledgementPause {
    pub fn ns(self) -> u64 {
        self.until_ns.saturating_sub(self.from_ns)
    }
}

/// The measurements of a sender.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SenderReport {
    /// Rounds over all sockets.
    pub rounds: u64,
    /// Frames that the kernel accepted completely.
    pub sends: u64,
    /// Sends that the kernel refused because the receiver's buffer was full.
    pub would_block: u64,
    /// Processor time of the sender.
    pub cpu_ns: u64,
    /// Time from the first send to the last.
    pub wall_ns: u64,
}

impl SenderReport {
    /// The figure with which all others are compared.
    pub fn per_cpu_second(&self) -> f64 {
        per_second(self.sends, self.cpu_ns)
    }

    /// Adds another turn of the same kind.
    pub fn add(&mut self, other: &SenderReport) {
        self.rounds += other.rounds;
        self.sends += other.sends;
        self.would_block += other.would_block;
        self.cpu_ns += other.cpu_ns;
        self.wall_ns += other.wall_ns;
    }
}
