//! Counters of matchmaking, for the metrics page.

use dunlin_matchmaking::{MatchCounters, MatchGauges};

use super::LostReservations;

/// The state of the matchmaking of a node at one moment.
#[derive(Clone, Debug, Default)]
pub struct MatchmakingReport {
    /// The queues, by namespace.
    pub queues: Vec<MatchReport>,
    /// The lobbies.
    pub lobbies: Vec<LobbyReport>,
    /// What this node and others have asked each other.
    pub peers: QueuePeerCounts,
    /// Reservations of places that have not reached their rooms.
    pub lost_reservations: LostReservations,
}

/// Counters of the exchange with other nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuePeerCounts {
    /// Whether this node runs the queues (gauge).
    pub is_here: bool,
    /// Commands that were passed to other nodes.
    pub forwarded: u64,
    /// Commands of clients that were not, because too many were on their way.
    pub forwards_refused: u64,
    /// Tickets that this node has handed over.
    pub handed_over: u64,
    /// Tickets that this node has taken over.
    pub taken_over: u64,
    /// Tickets that this node has entered again, because the node that ran the queues is gone.
    pub entered_again: u64,
    /// Tickets that wait on another node, and that this one remembers (gauge).
    pub remembered: usize,
    /// Tickets that it could not remember.
    pub not_remembered: u64,
    /// Tickets that it was to take over and has not, because its rules refuse them or it cannot read them.
    pub not_taken_over: u64,
}

/// The queue of a namespace.
#[derive(Clone, Debug, Default)]
pub struct MatchReport {
    /// The namespace; empty for channels without one.
    pub namespace: String,
    /// The counters.
    pub counters: MatchCounters,
    /// Requests of users that were refused by `room.match.user_rate_limit`.
    pub rate_limited: u64,
    /// Requests that were refused by `room.match.address_users_limit`.
    pub address_limited: u64,
    /// The sizes.
    pub gauges: MatchGauges,
    /// Total time spent placing tickets.
    pub busy_ns: u64,
    /// The longest duration of one placement run since the start.
    pub longest_ns: u64,
}

/// The lobby of a namespace's rooms.
#[derive(Clone, Debug, Default)]
pub struct LobbyReport {
    /// Its channel.
    pub channel: String,
    /// Number of listed rooms.
    pub rooms: usize,
    /// Number of published listings.
    pub published: u64,
    /// Number of listings whose publication was refused.
    pub refused: u64,
}
