//! A shard's report about itself, for metrics and the debug page.

use dunlin_engine::{
    ShardIndex, Wire,
    api::Survey,
    counters::{Counters, Histogram},
    insight::SessionsPage,
};
use dunlin_net::{ReactorCounters, RefusalReason, SegmentCounts, SocketFacts};

/// The counters of one shard, consistent because they are read between two turns.
#[derive(Clone, Debug)]
pub struct ShardReport {
    /// The index of the shard.
    pub shard: ShardIndex,
    /// The engine's counters.
    pub counters: Counters,
    /// The engine's current state.
    pub survey: Survey,
    /// The counters of the thread and its sockets.
    pub net: NetCounters,
}

/// A part of the sessions of one shard, with their sockets.
#[derive(Clone, Debug)]
pub struct ShardSessions {
    /// The index of the shard.
    pub shard: ShardIndex,
    /// What the engine knows about the sessions.
    pub page: SessionsPage,
    /// Their sockets, in the same order.
    pub sockets: Vec<SessionSocket>,
    /// The shard's recent turns.
    pub turns: TurnShares,
}

/// The socket of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionSocket {
    /// Whether the socket has taken less than it was offered, and has not reported since that it takes more.
    pub is_full: bool,
    /// Encrypted bytes that the kernel has not taken. The engine counts them as written.
    pub tls_bytes: usize,
    /// What the kernel knows.
    pub kernel: Option<SocketFacts>,
    /// What it has sent lately.
    pub recent: RecentSegments,
}

/// Segments that a socket has sent lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecentSegments {
    /// In how many seconds; `None`: since the connection began.
    pub over_s: Option<u32>,
    /// Their number.
    pub segments: SegmentCounts,
}

/// How long a shard's turns took in about the last five seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnShares {
    /// The share of the time that the shard was busy, in parts per million.
    pub busy_ppm: u32,
    /// The longest turn.
    pub longest_us: u64,
}

/// The sessions of a node's shards.
#[derive(Clone, Debug, Default)]
pub struct NodeSessions {
    /// The shards that answered in time.
    pub shards: Vec<ShardSessions>,
    /// The shards that did not.
    pub silent: Vec<ShardIndex>,
}

/// The reports of a node's shards.
#[derive(Clone, Debug, Default)]
pub struct NodeSurvey {
    /// The reports that arrived in time, by shard index.
    pub reports: Vec<ShardReport>,
    /// The shards that did not report in time.
    pub silent: Vec<ShardIndex>,
}

/// Counters of a shard's thread and sockets. All except the gauges are monotonic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetCounters {
    /// Sockets accepted.
    pub accepted: u64,
    /// Accepts that failed because the process or the system has no file descriptor left. Each such connection is
    /// accepted with the spare descriptor and dropped.
    pub accepts_out_of_files: u64,
    /// Accepted connections that were closed at once, because their file descriptor is reserved for others.
    pub accepts_reserved: u64,
    /// Accepted connections that were closed at once, because all shards had as many as they may have.
    pub accepts_shard_full: u64,
    /// Accepts that failed for other reasons.
    pub accepts_failed: u64,
    /// Sockets that this shard accepted and passed to another shard.
    pub placed: u64,
    /// Requests passed to the control thread.
    pub handed_over: u64,
    /// Sessions opened on this shard's listener.
    pub upgraded: u64,
    /// Sessions taken over from the control thread.
    pub adopted: u64,
    /// Connections refused before they became a session, in the order of [`RefusalReason::ALL`].
    pub refused: [u64; RefusalReason::ALL.len()],
    /// Connections that the peer closed before its request was complete.
    pub abandoned: u64,
    /// Open sockets (gauge).
    pub connections: u64,
    /// Maximum number of connections of this shard; 0 if only file descriptors limit them (gauge).
    pub connections_max: u64,
    /// Completed TLS handshakes.
    pub tls_handshakes: u64,
    /// Connections that ended because of a TLS failure.
    pub tls_failures: u64,
    /// Sessions opened, by wire ([`Wire::index`]).
    pub opened: [u64; Wire::ALL.len()],
    /// Open sessions (gauge).
    pub sessions: u64,
    /// Bytes received from sockets, before decryption.
    pub read_bytes: u64,
    /// Write calls to sockets.
    pub writes: u64,
    /// Bytes written to sockets.
    pub write_bytes: u64,
    /// Writes that the socket accepted only partly.
    pub blocked_writes: u64,
    /// The round-trip times of sessions that the kernel has measured.
    pub round_trip: Histogram,
    /// The reactor's counters.
    pub reactor: ReactorCounters,
    /// Turns of the event loop.
    pub turns: u64,
    /// Time spent in turns.
    pub busy_us: u64,
    /// Time spent waiting.
    pub idle_us: u64,
    /// Busy share of about the last five seconds, in parts per million (gauge).
    pub busy_ppm: u32,
    /// Messages sent to other shards.
    pub ring_messages: u64,
    /// Messages that found their ring full and waited in the overflow.
    pub ring_overflowed: u64,
    /// Messages in this shard's overflows (gauge).
    pub ring_overflow: u64,
    /// Messages in the rings to this shard (gauge).
    pub ring_depth: u64,
    /// Events from other threads that wait for this shard (gauge).
    pub events_queued: u64,
    /// Events from other threads that did not fit.
    pub events_refused: u64,
    /// Turns without input from sockets and from the control thread because of an overflow.
    pub held_turns: u64,
    /// Times that such turns began.
    pub holds: u64,
    /// Time from the first such turn of each time to the first turn with input.
    pub held_us: u64,
    /// Number of times that this shard woke another thread.
    pub wakes: u64,
}
