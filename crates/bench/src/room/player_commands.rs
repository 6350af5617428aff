//! Commands and replies that only workers with players use.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::control::Target;
use crate::latency::Latency;

/// See [`crate::control::Role::Players`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlayersRole {
    /// The server. The channel's name is followed by the room's number.
    pub target: Target,
    /// Number of this worker, its place in the tally.
    pub worker: usize,
    /// Number of its first player; the others follow.
    pub first_player: u32,
    /// Number of players per room. Players with the lowest numbers are in the first room.
    pub players_per_room: u32,
    /// Share of the players that use JSON.
    pub json_share: f64,
    /// The behavior of the players.
    pub play: PlayerBehavior,
    /// Whether the viewpoint of a player is its own object.
    pub looks_from_own: bool,
    /// One in this number of players decodes each snapshot completely and waits for its inputs; the others only check
    /// the snapshot's head.
    pub full_every: u32,
    /// Local address to connect from.
    pub source: IpAddr,
    /// Maximum number of concurrent handshakes.
    pub handshakes_max: usize,
    /// Receive buffer of slow players, in bytes.
    pub slow_receive_bytes: usize,
    /// The file for observations, for the verification; none: observations are not recorded.
    pub observations: Option<PathBuf>,
    /// The shared counters.
    pub tally: PathBuf,
    /// Cores to run on.
    pub cores: Vec<usize>,
}

/// The behavior of the players.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlayerBehavior {
    /// Send stamps, which the room shows in the state of the player's own object.
    Stamp {
        /// Objects that the players share, for a server without avatars: object `player % objects + 1`.
        shared_objects: Option<u32>,
    },
    /// Walk about and dig in a treasure hunt.
    Hunt,
}

/// Commands for players. Each has one reply.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlayersCommand {
    /// Reset the measurements, and play at this rate. → [`PlayersReply::Done`]
    Begin {
        /// Inputs per player and second.
        inputs_per_second: f64,
    },
    /// Continue to play at this rate. → [`PlayersReply::Done`]
    Pace {
        /// Inputs per player and second.
        inputs_per_second: f64,
    },
    /// Slow players stop reading. → [`PlayersReply::Done`]
    Pause,
    /// Slow players read again. → [`PlayersReply::Done`]
    Wake,
    /// Report the measurements since `Begin`, without resetting them. → [`PlayersReply::Played`]
    Report,
    /// Write the remaining observations. → [`PlayersReply::Done`]
    Flush,
}

/// See [`PlayersCommand`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlayersReply {
    /// Nothing to report.
    Done,
    /// The measurements.
    Played(Box<Played>),
}

/// The measurements of players.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Played {
    /// Snapshots that were received completely.
    pub snapshots: u64,
    /// Bytes of snapshots, without the protocol's overhead.
    pub snapshot_bytes: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Calls of `read`.
    pub reads: u64,
    /// Ticks between two snapshots of a player for which it received nothing.
    pub ticks_skipped: u64,
    pub events: u64,
    /// Snapshots that could not be applied, by reason.
    pub broken: BTreeMap<String, u64>,
    /// Replicas that were checked object by object.
    pub looked_through: u64,
    /// Objects in the checked replicas.
    pub objects_seen: u64,
    /// Checked replicas whose running hash differed from that of their objects.
    pub inconsistent: u64,
    /// Checked replicas whose own object was not in the cell of their viewpoint, although it should be.
    pub misplaced: u64,
    /// Players that ended, by close code or reason.
    pub closed: BTreeMap<String, u64>,
    /// From the server's time of the tick to the read that received the snapshot.
    pub age: Latency,
    /// Inputs sent.
    pub inputs: u64,
    /// Inputs that the room has acknowledged.
    pub acknowledged: u64,
    /// Inputs sent since the process began, which includes the time between phases.
    pub inputs_ever: u64,
    /// Inputs acknowledged since the process began.
    pub acknowledged_ever: u64,
    /// Inputs that were skipped because the socket was full.
    pub inputs_held_up: u64,
    /// Inputs whose stamp was seen.
    pub shown: u64,
    /// From the intended time of an input to the snapshot that acknowledges it.
    pub acknowledgement: Latency,
    /// From the intended time of an input to the snapshot that shows its stamp.
    pub effect: Latency,
    /// From the intended time of an input to its write: the load generator's own lateness.
    pub lag: Latency,
    /// Slow players that read again and have emptied their socket.
    pub drained: u64,
    /// Drained players that have then received a snapshot younger than two ticks.
    pub caught_up: u64,
    /// Time from the empty socket to this snapshot.
    pub catch_up: Latency,
    /// Processor time of the process.
    pub cpu_ns: u64,
}

impl Played {
    /// Adds the measurements of another process or of a later phase. The counts since processes began are only added
    /// for other processes.
    pub fn add(&mut self, other: &Played) {
        self.snapshots += other.snapshots;
        self.snapshot_bytes += other.snapshot_bytes;
        self.bytes += other.bytes;
        self.reads += other.reads;
        self.ticks_skipped += other.ticks_skipped;
        self.events += other.events;
        self.looked_through += other.looked_through;
        self.objects_seen += other.objects_seen;
        self.inconsistent += other.inconsistent;
        self.misplaced += other.misplaced;
        self.inputs += other.inputs;
        self.acknowledged += other.acknowledged;
        self.inputs_ever += other.inputs_ever;
        self.acknowledged_ever += other.acknowledged_ever;
        self.inputs_held_up += other.inputs_held_up;
        self.shown += other.shown;
        self.drained += other.drained;
        self.caught_up += other.caught_up;
        self.cpu_ns += other.cpu_ns;
        self.age.add(&other.age);
        self.acknowledgement.add(&other.acknowledgement);
        self.effect.add(&other.effect);
        self.lag.add(&other.lag);
        self.catch_up.add(&other.catch_up);
        for (all, more) in [(&mut self.broken, &other.broken), (&mut self.closed, &other.closed)] {
            for (why, count) in more {
                *all.entry(why.clone()).or_default() += count;
            }
        }
    }
}
