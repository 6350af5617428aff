//! Counters shared by all processes of a run: a file in memory, with one cache line per worker.
//!
//! They show the state of the run (progress, the end of a phase, the window of a saturating publisher) at the cost of
//! one store per turn of a worker's loop. The results themselves are sent over the control pipe.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;

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

/// The shared counters.
pub struct Tally {
    slots: NonNull<Slot>,
    /// The file, if this process created it and must remove it.
    owned: Option<PathBuf>,
}

// SAFETY: the mapping is plain memory of atomics; it lives until the Tally is dropped.
unsafe impl Send for Tally {}
// SAFETY: as above; all access is through atomics.
unsafe impl Sync for Tally {}

const FILE_BYTES: usize = WORKERS_MAX * size_of::<Slot>();

impl Tally {
    /// Creates the file for a new run.
    pub fn create() -> Result<Self, Error> {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let folder = if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("dunlin-bench-{}-{run}", std::process::id()));
        let failed =
            |source| Error::os(format!("make {}", path.display()), source, "check the space and rights of that folder");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).map_err(failed)?;
        file.set_len(FILE_BYTES as u64).map_err(failed)?;
        let slots = map_shared(&file, FILE_BYTES).map_err(failed)?.cast();
        Ok(Tally { slots, owned: Some(path) })
    }

    /// Opens the file of a run.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::os(format!("open {}", path.display()), source, "start the run again");
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
        let long_enough = file.metadata().map_err(failed)?.len() >= FILE_BYTES as u64;
        if !long_enough {
            return Err(failed(io::Error::other("it is too short")));
        }
        Ok(Tally { slots: map_shared(&file, FILE_BYTES).map_err(failed)?.cast(), owned: None })
    }

    /// The path of the file, for other processes.
    pub fn path(&self) -> &Path {
        self.owned.as_deref().expect("only the process that made the tally hands its path on")
    }

    /// The counters of one worker.
    pub fn slot(&self, worker: usize) -> &Slot {
        self.slots().get(worker).expect("workers are numbered below WORKERS_MAX")
    }

    /// All deliveries so far.
    pub fn deliveries(&self) -> u64 {
        self.slots().iter().map(|slot| slot.deliveries.load(Ordering::Relaxed)).sum()
    }

    /// All sessions that are ready now.
    pub fn ready(&self) -> u64 {
        self.slots().iter().map(|slot| slot.ready.load(Ordering::Relaxed)).sum()
    }

    fn slots(&self) -> &[Slot] {
        // SAFETY: the mapping holds WORKERS_MAX slots, zero-initialised (valid for atomics), until drop.
        unsafe { std::slice::from_raw_parts(self.slots.as_ptr(), WORKERS_MAX) }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        // SAFETY: this is the address and length from mmap, and no reference into the mapping can exist any more.
        unsafe { libc::munmap(self.slots.as_ptr().cast(), FILE_BYTES) };
        if let Some(path) = &self.owned {
            // Fails only if the file is already gone.
            let _ = fs::remove_file(path);
        }
    }
}

/// Maps this many bytes of a file, so that all processes that do so share them.
pub fn map_shared(file: &File, bytes: usize) -> io::Result<NonNull<u8>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of an open file; the callers have checked its length.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at zero"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_shared_and_the_file_is_removed_by_its_creator() {
        let ours = Tally::create().unwrap();
        let path = ours.path().to_owned();
        let theirs = Tally::open(&path).unwrap();
        theirs.slot(0).deliveries.store(5, Ordering::Relaxed);
        theirs.slot(WORKERS_MAX - 1).deliveries.store(7, Ordering::Relaxed);
        theirs.slot(3).ready.store(2, Ordering::Relaxed);
        assert_eq!((ours.deliveries(), ours.ready()), (12, 2));
        drop(theirs);
        drop(ours);
        assert!(!path.exists());
    }
}
