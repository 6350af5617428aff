//! The verdict: why a client is behind, as a function of what is known about its session.

use std::{fmt, sync::Arc};

use dunlin_engine::insight::SessionFacts;
use dunlin_net::{SegmentCounts, SocketFacts};

use super::units::{Bytes, Millis};
use crate::node::{RecentSegments, SessionSocket, TurnShares};

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

/// Retransmissions of one segment in a row, or probes of a closed window, after which a network does not answer. The first one
/// may be a lost packet.
const UNANSWERED_ATTEMPTS: u8 = 3;

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
        /// What was sent in vain.
        unanswered: Unanswered,
        /// The time since the last acknowledgement.
        silent_ms: u64,
    },
    /// The round trip is long, or packets were lost lately.
    SlowNetwork {
        /// The round-trip time.
        rtt_us: u32,
        /// Retransmitted segments of the recent ones, in thousandths.
        retransmitted_permille: u64,
        /// In how many seconds; `None`: since the connection began.
        over_s: Option<u32>,
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
    /// Only snapshots wait: a room skips ticks for the session because of their limit of bytes per second, or its state is not there.
    RoomLimited,
    /// What waits is held until the session's own bytes per second allow more.
    SessionPaced,
    /// More is sent than the connection takes.
    TooMuch {
        /// The measured rate of the connection.
        bytes_per_second: u64,
        /// Frames of the queue that nobody has looked at: with them, it may be a burst.
        unexamined_frames: usize,
    },
}

/// What a network has not answered, and how often in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// Retransmissions of a segment.
    Retransmissions(u8),
    /// Probes of a closed receive window. A client that is there answers them, also if it reads nothing.
    WindowProbes(u8),
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
            // Before the closed window, which stays closed when the way to the client is gone.
            if let Some(unanswered) = unanswered(kernel) {
                return Self::NetworkDoesNotAnswer { unanswered, silent_ms: kernel.last_ack_ms.into() };
            }
            if is_window_closed(kernel) {
                let queued = queue.reliable.bytes + queue.latest.bytes + queue.room_bytes + socket.tls_bytes;
                let stalled_ms = kernel.last_send_ms.into();
                return Self::ClientDoesNotRead { waiting_bytes: queued as u64 + kernel.kernel_bytes, stalled_ms };
            }
        }
        if queue.age_us < BEHIND_US {
            let is_overloaded = turns.busy_ppm >= BUSY_PPM && turns.longest_us >= LONG_TURN_US;
            let is_limited = queue.limited_us >= BEHIND_US;
            return if is_overloaded {
                shard_behind
            } else if is_limited {
                Self::RoomLimited
            } else {
                Self::UpToDate
            };
        }
        let is_blocked = socket.is_full || socket.tls_bytes > 0;
        if !is_blocked && facts.paces.is_held && queue.reliable.frames == 0 {
            return Self::SessionPaced;
        }
        let are_snapshots_alone = queue.reliable.frames + queue.latest.frames + queue.room_bytes == 0;
        if !is_blocked {
            return if are_snapshots_alone { Self::RoomLimited } else { shard_behind };
        }
        // The kernel has nothing left to send, and the shard has not noticed yet.
        if socket.kernel.is_some_and(|kernel| kernel.kernel_bytes == 0) {
            return shard_behind;
        }
        if let Some(slow) = socket.kernel.as_ref().and_then(|kernel| slow_network(kernel, socket.recent)) {
            return slow;
        }
        burst(facts).unwrap_or(Self::TooMuch {
            bytes_per_second: socket.kernel.map_or(0, |kernel| kernel.delivery_bytes_per_second),
            unexamined_frames: queue.unexamined_frames,
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
            Self::SessionPaced => "session_paced",
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

fn unanswered(kernel: &SocketFacts) -> Option<Unanswered> {
    if kernel.retransmissions_in_row >= UNANSWERED_ATTEMPTS {
        return Some(Unanswered::Retransmissions(kernel.retransmissions_in_row));
    }
    (kernel.window_probes >= UNANSWERED_ATTEMPTS).then_some(Unanswered::WindowProbes(kernel.window_probes))
}

/// The smoothed round-trip time follows the network within a few round trips. What was lost counts only lately.
fn slow_network(kernel: &SocketFacts, recent: RecentSegments) -> Option<Verdict> {
    let RecentSegments { over_s, segments: SegmentCounts { sent, retransmitted } } = recent;
    let retransmitted_permille = (u64::from(retransmitted) * 1_000).checked_div(sent.into()).unwrap_or(0);
    let loses = retransmitted >= RETRANSMITTED_SEGMENTS_MIN && retransmitted_permille >= SLOW_RETRANSMITTED_PERMILLE;
    let is_slow = kernel.rtt_us >= SLOW_RTT_US || loses;
    is_slow.then_some(Verdict::SlowNetwork { rtt_us: kernel.rtt_us, retransmitted_permille, over_s })
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
            Self::NetworkDoesNotAnswer { unanswered, silent_ms } => {
                let (attempts, what) = match unanswered {
                    Unanswered::Retransmissions(attempts) => (attempts, "retransmissions"),
                    Unanswered::WindowProbes(attempts) => (attempts, "probes of its receive window"),
                };
                let time = Millis(*silent_ms);
                write!(f, "its network does not answer: {attempts} {what} in a row, no answer for {time}")
            }
            Self::SlowNetwork { rtt_us, retransmitted_permille, over_s } => {
                let (rtt, whole, tenths) = (rtt_us / 1_000, retransmitted_permille / 10, retransmitted_permille % 10);
                write!(f, "its network is slow (rtt {rtt} ms, {whole}.{tenths} % retransmitted")?;
                match over_s {
                    Some(seconds) => write!(f, " in the last {seconds} s)"),
                    None => f.write_str(")"),
                }
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
            Self::SessionPaced => f.write_str("its session pace allows no more bytes for now"),
            Self::TooMuch { bytes_per_second, unexamined_frames } => {
                f.write_str("more is sent to it than its connection takes")?;
                if *bytes_per_second > 0 {
                    write!(f, " ({}/s)", Bytes(*bytes_per_second))?;
                }
                match unexamined_frames {
                    0 => Ok(()),
                    frames => write!(f, ", or a burst came: {frames} frames were not looked at"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
