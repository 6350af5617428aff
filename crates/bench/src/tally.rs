//! Counters shared by all processes of a run, with one cache line per worker.
//!
//! They show the state of the run (progress, the end of a phase, the window of a saturating publisher) at the cost of
//! one store per turn of a worker's loop. The results themselves are sent over the control pipe.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;
use crate::shared_array::{SharedArray, SharedItem};

/// Maximum number of workers of a run.
pub const WORKERS_MAX: usize = 64;

/// Written by one worker, and read by all processes.
#[repr(C, align(128))]
pub struct Slot {
    /// Publications that reached a reader that is expected to keep up, since the start.
    pub deliveries: AtomicU64,
    /// Sessions that are connected and subscribed.
    pub ready: AtomicU64,
}

// SAFETY: it consists of atomics alone.
unsafe impl SharedItem for Slot {}

/// The shared counters.
pub struct Tally(SharedArray<Slot>);

impl Tally {
    /// Creates the file for a new run.
    pub fn create() -> Result<Self, Error> {
        Ok(Tally(SharedArray::create(WORKERS_MAX)?))
    }

    /// Opens the file of a run.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Ok(Tally(SharedArray::open(path)?))
    }

    /// The path of the file, for other processes.
    pub fn path(&self) -> PathBuf {
        self.0.path()
    }

    /// The counters of one worker.
    pub fn slot(&self, worker: usize) -> &Slot {
        self.0.items().get(worker).expect("workers are numbered below WORKERS_MAX")
    }

    /// All deliveries so far.
    pub fn deliveries(&self) -> u64 {
        self.0.items().iter().map(|slot| slot.deliveries.load(Ordering::Relaxed)).sum()
    }

    /// All sessions that are ready now.
    pub fn ready(&self) -> u64 {
        self.0.items().iter().map(|slot| slot.ready.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_all_workers_are_added() {
        let ours = Tally::create().unwrap();
        let theirs = Tally::open(&ours.path()).unwrap();
        theirs.slot(0).deliveries.store(5, Ordering::Relaxed);
        theirs.slot(WORKERS_MAX - 1).deliveries.store(7, Ordering::Relaxed);
        theirs.slot(3).ready.store(2, Ordering::Relaxed);
        assert_eq!((ours.deliveries(), ours.ready()), (12, 2));
    }
}
