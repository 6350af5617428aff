//! What a shard tells about itself when it is asked.

use dunlin_engine::{ShardIndex, Wire, api::Survey, counters::Counters};

use crate::net::{ReactorCounters, RefusalReason};

/// Everything that one shard counts, as of one moment between two turns.
#[derive(Clone, Debug)]
pub struct ShardReport {
    /// Which shard.
    pub shard: ShardIndex,
    /// What its engine counted.
    pub counters: Counters,
    /// What it has now.
    pub survey: Survey,
    /// What its thread and its sockets counted.
    pub net: NetCounters,
}

/// Counts of a shard's thread and sockets. Everything but the gauges only grows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetCounters {
    /// Sockets accepted.
    pub accepted: u64,
    /// Accepts that failed because the process or the system has no file descriptor left. Each such connection is
    /// accepted with the spare descriptor and dropped.
    pub accepts_out_of_files: u64,
    /// Accepts that failed otherwise.
    pub accepts_failed: u64,
    /// Sockets accepted here and given to a shard with fewer.
    pub placed: u64,
    /// Requests given to the control thread.
    pub handed_over: u64,
    /// Sessions opened on this shard's listener.
    pub upgraded: u64,
    /// Sessions taken over from the control thread.
    pub adopted: u64,
    /// Connections refused before they became a session, in the order of [`RefusalReason::ALL`].
    pub refused: [u64; RefusalReason::ALL.len()],
    /// Connections that ended before their request had come, by the peer's doing.
    pub abandoned: u64,
    /// Sockets open now (gauge).
    pub connections: u64,
    /// TLS handshakes that were finished.
    pub tls_handshakes: u64,
    /// Connections that ended because their TLS failed, in the handshake or later.
    pub tls_failures: u64,
    /// Sessions opened, by what they speak ([`Wire::index`]).
    pub opened: [u64; Wire::ALL.len()],
    /// Sessions open now (gauge).
    pub sessions: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Calls that gave bytes to the kernel.
    pub writes: u64,
    /// Bytes given to the kernel.
    pub write_bytes: u64,
    /// Writes of which the socket took less than was offered.
    pub blocked_writes: u64,
    /// What the reactor counted.
    pub reactor: ReactorCounters,
    /// Turns of the loop.
    pub turns: u64,
    /// Time spent in turns.
    pub busy_us: u64,
    /// Time spent waiting for something to do.
    pub idle_us: u64,
    /// Messages sent to other shards.
    pub ring_messages: u64,
    /// Messages that found their ring full and waited in this shard's overflow.
    pub ring_overflowed: u64,
    /// Messages that wait in this shard's overflow now (gauge).
    pub ring_overflow: u64,
    /// Messages that wait in the rings to this shard now (gauge).
    pub ring_depth: u64,
    /// Turns that took in nothing from sockets and from the control thread because of an overflow.
    pub held_turns: u64,
    /// Times that this shard woke another.
    pub wakes: u64,
}
