//! What all room threads of a node share.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use super::RoomsOptions;

/// Shared by all room threads.
pub(super) struct Shared {
    pub(super) options: RoomsOptions,
    pub(super) shard_count: u16,
    pub(super) node_seed: u64,
    pub(super) origin: Instant,
    pub(super) stopping: AtomicBool,
    /// Added to whatever the system gives as randomness, so that no two rooms share a seed should it give none.
    pub(super) rooms_seeded: AtomicU64,
    /// By namespace: threads that were given up because of its rooms, and have not come back.
    lost_threads: Vec<AtomicU32>,
}

impl Shared {
    pub(super) fn new(options: RoomsOptions, shard_count: u16, node_seed: u64) -> Self {
        Self {
            lost_threads: options.namespaces.iter().map(|_| AtomicU32::new(0)).collect(),
            options,
            shard_count,
            node_seed,
            origin: Instant::now(),
            stopping: AtomicBool::new(false),
            rooms_seeded: AtomicU64::new(0),
        }
    }

    /// A thread was given up because of a room of this namespace.
    pub(super) fn lose_thread(&self, namespace: u16) {
        self.lost_of(namespace).fetch_add(1, Ordering::AcqRel);
    }

    /// Such a thread has come back.
    pub(super) fn regain_thread(&self, namespace: u16) {
        self.lost_of(namespace).fetch_sub(1, Ordering::AcqRel);
    }

    /// How many have not.
    pub(super) fn lost_threads(&self, namespace: u16) -> u32 {
        self.lost_of(namespace).load(Ordering::Acquire)
    }

    /// Whether rooms of this namespace have cost so many threads that no more are opened. Each keeps its world, and takes
    /// processor time if it runs, so there must be an end to it.
    pub(super) fn is_barred(&self, namespace: u16) -> bool {
        self.lost_threads(namespace) >= self.options.lost_threads_max
    }

    fn lost_of(&self, namespace: u16) -> &AtomicU32 {
        self.lost_threads.get(usize::from(namespace)).expect("rooms are of namespaces that there are")
    }

    /// Monotonic, the same on all room threads.
    pub(super) fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The Unix time of a moment that is not after `now_ns`.
    pub(super) fn unix_us_at(moment_ns: u64, now_ns: u64) -> u64 {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let unix_us = u64::try_from(unix.as_micros()).unwrap_or(u64::MAX);
        unix_us.saturating_sub((now_ns - moment_ns) / 1_000)
    }

    /// A seed for a room.
    pub(super) fn random_seed(&self) -> u64 {
        let mut bytes = [0; 8];
        // A system without randomness has not let the node start; if it runs out later, the node's own is left.
        let is_random = getrandom::fill(&mut bytes).is_ok();
        let drawn = if is_random { u64::from_ne_bytes(bytes) } else { self.node_seed };
        drawn.wrapping_add(self.rooms_seeded.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}
