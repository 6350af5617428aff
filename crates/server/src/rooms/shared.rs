//! State that all room threads of a node share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use dunlin_config::RoomsOptions;

use super::{FailureReason, job::Failure, record_retention::Recordings, survival::KeptRooms};
use crate::otlp::Tracer;

/// State that all room threads share.
pub(super) struct Shared {
    pub(super) options: RoomsOptions,
    pub(super) shard_count: u16,
    pub(super) node_seed: u64,
    pub(super) origin: Instant,
    pub(super) stopping: AtomicBool,
    /// The node is shutting down: players whose clients are gone stay in stored rooms.
    pub(super) draining: AtomicBool,
    /// The stored rooms; `None` without a storage.
    pub(super) kept: Option<Arc<KeptRooms>>,
    /// The directories with recordings.
    pub(super) recordings: Recordings,
    /// Traces the creation of rooms; `None` if it is not traced.
    pub(super) tracer: Option<Arc<Tracer>>,
    /// Added to the system's randomness, so that seeds differ even if the system returns none.
    pub(super) rooms_seeded: AtomicU64,
    /// Memory of all rooms in bytes.
    memory_bytes: Arc<AtomicU64>,
    /// By namespace: threads that were abandoned because of its rooms and have not returned.
    lost_threads: Vec<AtomicU32>,
}

impl Shared {
    pub(super) fn new(options: RoomsOptions, shard_count: u16, node_seed: u64, kept: Option<Arc<KeptRooms>>) -> Self {
        Self {
            recordings: Recordings::of(options.namespaces.iter().flatten()),
            lost_threads: options.namespaces.iter().map(|_| AtomicU32::new(0)).collect(),
            options,
            shard_count,
            node_seed,
            origin: Instant::now(),
            stopping: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            kept,
            tracer: None,
            rooms_seeded: AtomicU64::new(0),
            memory_bytes: Arc::default(),
        }
    }

    /// Counts an abandoned thread because of a room of this namespace.
    pub(super) fn lose_thread(&self, namespace: u16) {
        self.lost_of(namespace).fetch_add(1, Ordering::AcqRel);
    }

    /// Counts the return of such a thread.
    pub(super) fn regain_thread(&self, namespace: u16) {
        self.lost_of(namespace).fetch_sub(1, Ordering::AcqRel);
    }

    /// The number of threads that have not returned.
    pub(super) fn lost_threads(&self, namespace: u16) -> u32 {
        self.lost_of(namespace).load(Ordering::Acquire)
    }

    /// Whether rooms of this namespace have blocked the maximum number of threads, so that no more rooms are opened. A
    /// blocked thread keeps its world in memory, and uses processor time if the game loops.
    pub(super) fn is_barred(&self, namespace: u16) -> bool {
        self.lost_threads(namespace) >= self.options.lost_threads_max
    }

    /// Why no room of this namespace may be created now; `None` if one may be.
    pub(super) fn refusal_of_room(&self, namespace: u16) -> Option<Failure> {
        if self.is_barred(namespace) {
            let detail = format!("{} threads are lost to its namespace", self.lost_threads(namespace));
            return Some(Failure { reason: FailureReason::Barred, detail });
        }
        let (bytes, bytes_max) = (self.memory_bytes(), self.options.memory_bytes_max);
        (bytes >= bytes_max).then(|| {
            let detail = format!("all rooms take {bytes} bytes, and room.total_memory_limit is {bytes_max}");
            Failure { reason: FailureReason::TotalMemory, detail }
        })
    }

    /// Memory of all rooms in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// The share of a new room.
    pub(super) fn share_of_memory(&self) -> MemoryShare {
        MemoryShare { all_bytes: Arc::clone(&self.memory_bytes), bytes: 0, world_bytes: 0 }
    }

    fn lost_of(&self, namespace: u16) -> &AtomicU32 {
        self.lost_threads.get(usize::from(namespace)).expect("rooms are of namespaces that there are")
    }

    /// Monotonic time, the same on all room threads.
    pub(super) fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The Unix time of a moment that is not after `now_ns`.
    pub(super) fn unix_us_at(moment_ns: u64, now_ns: u64) -> u64 {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let unix_us = u64::try_from(unix.as_micros()).unwrap_or(u64::MAX);
        unix_us.saturating_sub((now_ns - moment_ns) / 1_000)
    }

    /// A random seed for a room.
    pub(super) fn random_seed(&self) -> u64 {
        let mut bytes = [0; 8];
        // Without randomness the node would not have started. If it fails later, the node's own counter remains.
        let is_random = getrandom::fill(&mut bytes).is_ok();
        let drawn = if is_random { u64::from_ne_bytes(bytes) } else { self.node_seed };
        drawn.wrapping_add(self.rooms_seeded.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

/// One room's part of the memory of all rooms, subtracted on drop.
#[derive(Debug)]
pub(super) struct MemoryShare {
    all_bytes: Arc<AtomicU64>,
    bytes: u64,
    /// What the world has of them.
    world_bytes: u64,
}

impl MemoryShare {
    /// The memory of the room in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The memory of the room's world in bytes.
    pub(super) fn world_bytes(&self) -> u64 {
        self.world_bytes
    }

    /// Sets the memory of the room in bytes: its world, and what the game reports.
    pub(super) fn set(&mut self, world_bytes: u64, game_bytes: u64) {
        self.world_bytes = world_bytes;
        let bytes = world_bytes.saturating_add(game_bytes);
        if bytes != self.bytes {
            // Wraps around if the room shrinks; the sum is correct.
            self.all_bytes.fetch_add(bytes.wrapping_sub(self.bytes), Ordering::Relaxed);
            self.bytes = bytes;
        }
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.set(0, 0);
    }
}
