//! The verdict: why a client is behind, as a function of what is known about its session.

use std::{fmt, sync::Arc};

use dunlin_engine::insight::SessionFacts;
use dunlin_net::SocketFacts;

use super::units::{Bytes, Millis};
use crate::node::{SessionSocket, TurnShares};

/// A session is behind when its oldest frame has waited for this long. A socket that keeps up takes its frames at the end of
/// the turn.
const BEHIND_US: u64 = 100_000;

/// A client does not read when its receive window has kept bytes in the kernel for this long. Slow readers open the window
/// more often.
const CLOSED_WINDOW_MS: u32 = 500;

/// A network is slow from this round-trip time on.
const SLOW_RTT_US: u32 = 200_000;

/// A network is slow when it loses this share of the segments, in thousandths, after so many retransmissions that the share
/// means something.
const SLOW_RETRANSMITTED_PERMILLE: u64 = 20;
const RETRANSMITTED_SEGMENTS_MIN: u32 = 5;

/// Retransmissions of one segment in a row after which a network does not answer. The first one may be a lost packet.
const UNANSWERED_RETRANSMISSIONS: u8 = 3;

/// A shard is behind when it was busy for this share of the time, in parts per million, and a turn took this long.
const BUSY_PPM: u32 = 900_000;
const LONG_TURN_US: u64 = 100_000;

/// Most of the queue is a burst if it was accepted within this time.
const BURST_US: u64 = 2_000_000;

/// What is known about one session.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'a> {
    /// What is queued.
    pub facts: &'a SessionFacts,
    /// Its socket.
    pub socket: &'a SessionSocket,
    /// The recent turns of its shard.
    pub turns: TurnShares,
}

/// Why a client is behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing waits for longer than a turn.
    UpToDate,
    /// `connect` is not answered yet, and everything else waits for that.
    Connecting,
    /// The receive window of the client has been closed for a while.
    ClientDoesNotRead {
        /// Bytes that wait in the node and in the kernel.
        waiting_bytes: u64,
        /// How long nothing could be sent.
        stalled_ms: u64,
    },
    /// Nothing of what was sent is acknowledged.
    NetworkDoesNotAnswer {
        /// Retransmissions in a row.
        retransmissions: u8,
        /// How long nothing was sent that was new.
        stalled_ms: u64,
    },
    /// The round trip is long, or packets are lost.
    SlowNetwork {
        /// The round-trip time.
        rtt_us: u32,
        /// Retransmitted segments in thousandths.
        retransmitted_permille: u64,
    },
    /// The shard is busy, or has not written to a socket that takes bytes.
    ShardBehind {
        /// Its busy share, in parts per million.
        busy_ppm: u32,
        /// Its longest recent turn.
        longest_turn_us: u64,
    },
    /// Most of the queue came from one channel within a short time.
    Burst {
        /// The channel; `None` for replies and pushes that are no publications.
        channel: Option<Arc<str>>,
        /// Its queued bytes.
        bytes: u64,
        /// The time between the first and the last of them.
        span_ms: u64,
    },
    /// Only snapshots wait, which are limited to a number of bytes per second.
    RoomLimited,
    /// More is sent than the connection takes.
    TooMuch {
        /// The measured rate of the connection.
        bytes_per_second: u64,
    },
}

impl Verdict {
    /// Judges a session. The order matters: the first cause that applies explains the others.
    pub fn of(judged: Judged<'_>) -> Self {
        let Judged { facts, socket, turns } = judged;
        let queue = &facts.queue;
        if facts.is_connecting {
            return Self::Connecting;
        }
        let shard_behind = Self::ShardBehind { busy_ppm: turns.busy_ppm, longest_turn_us: turns.longest_us };
        if let Some(kernel) = &socket.kernel {
            let stalled_ms = u64::from(kernel.last_send_ms);
            if is_window_closed(kernel) {
                let queued = queue.reliable.bytes + queue.latest.bytes + queue.room_bytes + socket.tls_bytes;
                return Self::ClientDoesNotRead { waiting_bytes: queued as u64 + kernel.kernel_bytes, stalled_ms };
            }
            if kernel.retransmissions_in_row >= UNANSWERED_RETRANSMISSIONS {
                return Self::NetworkDoesNotAnswer { retransmissions: kernel.retransmissions_in_row, stalled_ms };
            }
        }
        if queue.age_us < BEHIND_US {
            let is_overloaded = turns.busy_ppm >= BUSY_PPM && turns.longest_us >= LONG_TURN_US;
            return if is_overloaded { shard_behind } else { Self::UpToDate };
        }
        let is_blocked = socket.is_full || socket.tls_bytes > 0;
        let are_snapshots_alone = queue.reliable.frames + queue.latest.frames + queue.room_bytes == 0;
        if !is_blocked {
            return if are_snapshots_alone { Self::RoomLimited } else { shard_behind };
        }
        // The kernel has nothing left to send, and the shard has not noticed yet.
        if socket.kernel.is_some_and(|kernel| kernel.kernel_bytes == 0) {
            return shard_behind;
        }
        if let Some(slow) = socket.kernel.as_ref().and_then(slow_network) {
            return slow;
        }
        burst(facts).unwrap_or(Self::TooMuch {
            bytes_per_second: socket.kernel.map_or(0, |kernel| kernel.delivery_bytes_per_second),
        })
    }

    /// The name in the server API.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::UpToDate => "up_to_date",
            Self::Connecting => "connecting",
            Self::ClientDoesNotRead { .. } => "client_does_not_read",
            Self::NetworkDoesNotAnswer { .. } => "network_does_not_answer",
            Self::SlowNetwork { .. } => "slow_network",
            Self::ShardBehind { .. } => "shard_behind",
            Self::Burst { .. } => "burst",
            Self::RoomLimited => "room_limited",
            Self::TooMuch { .. } => "too_much",
        }
    }
}

/// Whether bytes wait in the kernel although nothing is in flight: the peer's window is too small for a segment.
fn is_window_closed(kernel: &SocketFacts) -> bool {
    let is_too_small = kernel.receive_window_bytes.is_some_and(|bytes| bytes < kernel.segment_bytes_max);
    let is_stalled = kernel.not_sent_bytes > 0 && kernel.last_send_ms >= CLOSED_WINDOW_MS;
    is_stalled && (kernel.unacked_segments == 0 || is_too_small)
}

fn slow_network(kernel: &SocketFacts) -> Option<Verdict> {
    let retransmitted = kernel.retransmitted_segments;
    let retransmitted_permille =
        (u64::from(retransmitted) * 1_000).checked_div(kernel.sent_segments.into()).unwrap_or(0);
    let loses = retransmitted >= RETRANSMITTED_SEGMENTS_MIN && retransmitted_permille >= SLOW_RETRANSMITTED_PERMILLE;
    let is_slow = kernel.rtt_us >= SLOW_RTT_US || loses;
    is_slow.then_some(Verdict::SlowNetwork { rtt_us: kernel.rtt_us, retransmitted_permille })
}

/// The channel with the most queued bytes, if it has at least half of them and they came within a short time.
fn burst(facts: &SessionFacts) -> Option<Verdict> {
    let most = facts.channels.first()?;
    let all_bytes = facts.queue.reliable.bytes + facts.queue.latest.bytes;
    let span_us = most.oldest_age_us.saturating_sub(most.newest_age_us);
    let is_burst = most.queued.bytes * 2 >= all_bytes && span_us <= BURST_US;
    is_burst.then(|| Verdict::Burst {
        channel: most.channel.clone(),
        bytes: most.queued.bytes as u64,
        span_ms: span_us / 1_000,
    })
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UpToDate => f.write_str("it is up to date"),
            Self::Connecting => f.write_str("its connect is not answered yet"),
            Self::ClientDoesNotRead { waiting_bytes, stalled_ms } => {
                let (bytes, time) = (Bytes(*waiting_bytes), Millis(*stalled_ms));
                write!(f, "the client does not read: {bytes} wait, and its receive window is closed since {time}")
            }
            Self::NetworkDoesNotAnswer { retransmissions, stalled_ms } => {
                let time = Millis(*stalled_ms);
                write!(
                    f,
                    "its network does not answer: {retransmissions} retransmissions in a row, no answer for {time}"
                )
            }
            Self::SlowNetwork { rtt_us, retransmitted_permille } => {
                let (rtt, whole, tenths) = (rtt_us / 1_000, retransmitted_permille / 10, retransmitted_permille % 10);
                write!(f, "its network is slow (rtt {rtt} ms, {whole}.{tenths} % retransmitted)")
            }
            Self::ShardBehind { busy_ppm, longest_turn_us } => {
                let (percent, turn) = (busy_ppm / 10_000, Millis(longest_turn_us / 1_000));
                write!(f, "its shard is behind ({percent} % busy, turns of up to {turn})")
            }
            Self::Burst { channel, bytes, span_ms } => {
                let (bytes, span) = (Bytes(*bytes), Millis(*span_ms));
                match channel {
                    Some(channel) => write!(f, "a burst of {bytes} in {span} on channel {channel}"),
                    None => write!(f, "a burst of {bytes} in {span} of replies and other messages to this client"),
                }
            }
            Self::RoomLimited => {
                f.write_str("its snapshots wait for room.player_bandwidth_limit, or for the state of the room")
            }
            Self::TooMuch { bytes_per_second: 0 } => f.write_str("more is sent to it than its connection takes"),
            Self::TooMuch { bytes_per_second } => {
                write!(f, "more is sent to it than its connection takes ({}/s)", Bytes(*bytes_per_second))
            }
        }
    }
}

#[cfg(test)]
mod tests;
