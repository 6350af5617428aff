//! What an operator decides about rooms, as room threads need it.

use std::{path::PathBuf, sync::Arc};

use dunlin_games::Registry;
use dunlin_rooms::RoomOptions;

/// Rooms of one namespace (`room` in the channel options).
#[derive(Clone, Debug)]
pub struct RoomSettings {
    /// The simulation's name in the registry.
    pub simulation: String,
    /// What it is made with.
    pub params: serde_json::Value,
    /// Ticks in a second, and the bounds of the world.
    pub room: RoomOptions,
    /// How long a room stays without players.
    pub empty_timeout_ms: u64,
    /// How long a tick may take before its room is given up.
    pub tick_stuck_timeout_ms: u64,
    /// Ticks that are made up for after a delay; those before are passed over.
    pub catch_up_ticks: u32,
    /// Ticks in a row that may take longer than their interval, before the room ends.
    pub overrun_ticks_max: u32,
    /// Bytes that a room may take.
    pub memory_bytes_max: u64,
    /// Seed of every room; `None` for one from the system's randomness.
    pub seed: Option<u64>,
    /// Where recordings are written; `None` for nowhere.
    pub record_dir: Option<PathBuf>,
}

/// What the room threads of a node are started with.
#[derive(Clone, Debug)]
pub struct RoomsOptions {
    /// The games.
    pub registry: Arc<Registry>,
    /// Messages in one ring between a shard and a room thread; and how many more may wait for one shard before the
    /// rooms stop that have something for it.
    pub ring_messages: usize,
    /// Threads that rooms of one namespace may cost by not coming back. While so many are lost, none of them is opened.
    pub lost_threads_max: u32,
    /// By the number that the engine gives namespaces: 0 is for channels without one. Those without rooms have `None`.
    pub namespaces: Vec<Option<Arc<RoomSettings>>>,
}

impl Default for RoomSettings {
    fn default() -> Self {
        Self {
            simulation: String::new(),
            params: serde_json::Value::Null,
            room: RoomOptions::default(),
            empty_timeout_ms: 30_000,
            tick_stuck_timeout_ms: 2_000,
            catch_up_ticks: 5,
            overrun_ticks_max: 600,
            memory_bytes_max: 256 << 20,
            seed: None,
            record_dir: None,
        }
    }
}

impl Default for RoomsOptions {
    fn default() -> Self {
        Self {
            registry: Arc::new(Registry::default()),
            ring_messages: 1_024,
            lost_threads_max: 4,
            namespaces: Vec::new(),
        }
    }
}
