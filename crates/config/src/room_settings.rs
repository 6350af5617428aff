//! The configuration of rooms, in the form that room threads use.

use std::{path::PathBuf, sync::Arc};

use dunlin_engine::backend::ProxyIndex;
use dunlin_games::Registry;
use dunlin_rooms::{ClockRate, RoomOptions};

/// Settings of the rooms of one namespace (`room` in the channel options).
#[derive(Clone, Debug)]
pub struct RoomSettings {
    /// The name of the namespace; empty for channels without one.
    pub namespace: Arc<str>,
    /// The name of the simulation in the registry.
    pub simulation: String,
    /// The parameters of the simulation.
    pub params: serde_json::Value,
    /// The tick rate and the limits of the world.
    pub room: RoomOptions,
    /// The backend that games may call; `None` for none.
    pub call_proxy: Option<ProxyIndex>,
    /// Time after which an empty room is closed.
    pub empty_timeout_ms: u64,
    /// Maximum duration of a tick before the room is abandoned.
    pub tick_stuck_timeout_ms: u64,
    /// Maximum number of late ticks that are run after a delay; earlier ones are skipped.
    pub catch_up_ticks: u32,
    /// What happens while ticks take longer than their interval.
    pub overrun: OverrunPolicy,
    /// Maximum number of consecutive overruns before the room ends.
    pub overrun_ticks_max: u32,
    /// Maximum memory of a room in bytes.
    pub memory_bytes_max: u64,
    /// The seed of every room; `None` for a random one.
    pub seed: Option<u64>,
    /// Where rooms are recorded; `None` to record none.
    pub recording: Option<RecordingSettings>,
    /// How players' paths are stored; `None` to store none.
    pub paths: Option<PathSettings>,
    /// What of a room is kept when the process ends.
    pub survival: RoomSurvival,
    /// Time between two checkpoints.
    pub checkpoint_interval_ms: u64,
    /// Maximum size of a checkpoint, and of the log record of one tick.
    pub checkpoint_bytes_max: usize,
    /// Maximum number of ticks whose messages wait for the log.
    pub held_ticks_max: usize,
    /// How long a player stays in a room without its client.
    pub seat_grace_ms: u64,
    /// Maximum number of players of one user that stay in a room without their clients.
    pub away_per_user_max: u32,
}

/// Where rooms are recorded, and how much of it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingSettings {
    /// The directory.
    pub directory: PathBuf,
    /// Maximum bytes of all recordings in the directory; 0 for no limit.
    pub bytes_max: u64,
    /// Time after its end for which a recording is kept; 0 for no limit.
    pub ttl_ms: u64,
}

/// What happens while the ticks of a room take longer than their interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverrunPolicy {
    /// Ticks are skipped.
    #[default]
    Skip,
    /// The room's clock runs slower, and its clients learn the rate.
    Dilate {
        /// The lowest rate. Below it, ticks are skipped.
        rate_min: ClockRate,
    },
}

/// What of a room is kept when the process ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RoomSurvival {
    /// Nothing.
    #[default]
    None,
    /// Its last checkpoint.
    Checkpoint,
    /// Everything that its players have seen.
    Exact,
}

/// How the paths of a room's players are stored (`room.paths` in the channel options).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSettings {
    /// Ticks between two points of a moving player.
    pub interval_ticks: u32,
    /// Maximum time that a block spans.
    pub block_ms: u64,
    /// How long blocks are stored.
    pub retention_ms: u64,
}

/// Options of a node's room threads.
#[derive(Clone, Debug)]
pub struct RoomsOptions {
    /// The known simulations.
    pub registry: Arc<Registry>,
    /// Capacity of a ring between a shard and a room thread, and the number of further messages that may wait for a
    /// shard before the rooms with messages for it stop ticking.
    pub ring_messages: usize,
    /// Maximum number of threads that rooms of one namespace may block for ever. When it is reached, no further room of
    /// the namespace opens.
    pub lost_threads_max: u32,
    /// Maximum memory of all rooms in bytes; above it no room is created.
    pub memory_bytes_max: u64,
    /// Maximum number of blocks of players' paths that wait for the storage; more are dropped.
    pub path_blocks_max: usize,
    /// Indexed by the engine's number of a namespace; index 0 is for channels without a namespace. `None` for
    /// namespaces without rooms.
    pub namespaces: Vec<Option<Arc<RoomSettings>>>,
}

impl Default for RoomSettings {
    fn default() -> Self {
        Self {
            namespace: "".into(),
            simulation: String::new(),
            params: serde_json::Value::Null,
            room: RoomOptions::default(),
            call_proxy: None,
            empty_timeout_ms: 30_000,
            tick_stuck_timeout_ms: 2_000,
            catch_up_ticks: 5,
            overrun: OverrunPolicy::Skip,
            overrun_ticks_max: 600,
            memory_bytes_max: 256 << 20,
            seed: None,
            recording: None,
            survival: RoomSurvival::None,
            checkpoint_interval_ms: 10_000,
            checkpoint_bytes_max: 16 << 20,
            held_ticks_max: 30,
            seat_grace_ms: 30_000,
            away_per_user_max: 4,
            paths: None,
        }
    }
}

impl Default for RoomsOptions {
    fn default() -> Self {
        Self {
            registry: Arc::new(Registry::default()),
            ring_messages: 1_024,
            lost_threads_max: 4,
            memory_bytes_max: 4 << 30,
            path_blocks_max: 16_384,
            namespaces: Vec::new(),
        }
    }
}
