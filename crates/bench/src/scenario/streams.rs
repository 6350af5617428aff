//! Counters of streams, shared by all processes of a run: a file in memory.
//!
//! A publisher counts a publication before it sends it. So a client that reads the counter after its subscription was
//! confirmed knows from which number on it must receive everything, and at the end of a phase it knows what is missing.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;
use crate::tally::map_shared;

/// The counters of one stream, written by its publisher.
#[repr(C)]
struct Counts {
    sent: AtomicU64,
    refused: AtomicU64,
}

/// The counters of all streams.
pub struct Streams {
    counts: NonNull<Counts>,
    length: usize,
    /// The file, if this process created it and must remove it.
    owned: Option<PathBuf>,
}

impl Streams {
    /// Creates the file for a new run.
    pub fn create(streams: usize) -> Result<Self, Error> {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let folder = if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("dunlin-bench-streams-{}-{run}", std::process::id()));
        let failed =
            |source| Error::os(format!("make {}", path.display()), source, "check the space and rights of that folder");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).map_err(failed)?;
        // An empty file cannot be mapped.
        file.set_len((streams.max(1) * size_of::<Counts>()) as u64).map_err(failed)?;
        let (counts, length) = map(&file).map_err(failed)?;
        Ok(Streams { counts, length, owned: Some(path) })
    }

    /// Opens the file of a run.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::os(format!("open {}", path.display()), source, "start the run again");
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
        let (counts, length) = map(&file).map_err(failed)?;
        Ok(Streams { counts, length, owned: None })
    }

    /// The path of the file, for other processes.
    pub fn path(&self) -> &Path {
        self.owned.as_deref().expect("only the process that made the file hands its path on")
    }

    /// The number of publications sent in this stream.
    pub fn sent(&self, stream: u32) -> u64 {
        self.counts(stream).sent.load(Ordering::SeqCst)
    }

    /// The number of publications that the target refused in this stream.
    pub fn refused(&self, stream: u32) -> u64 {
        self.counts(stream).refused.load(Ordering::SeqCst)
    }

    /// Counts a publication, which must be sent afterwards. Returns its number.
    pub fn count_sent(&self, stream: u32) -> u64 {
        self.counts(stream).sent.fetch_add(1, Ordering::SeqCst)
    }

    /// Counts a refused publication.
    pub fn count_refused(&self, stream: u32) {
        self.counts(stream).refused.fetch_add(1, Ordering::SeqCst);
    }

    fn counts(&self, stream: u32) -> &Counts {
        // SAFETY: the mapping holds `length` counts, zero-initialised (valid for atomics), until drop.
        let all = unsafe { std::slice::from_raw_parts(self.counts.as_ptr(), self.length) };
        all.get(stream as usize).expect("streams are numbered below the length of the file")
    }
}

fn map(file: &File) -> io::Result<(NonNull<Counts>, usize)> {
    let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)? / size_of::<Counts>();
    Ok((map_shared(file, length * size_of::<Counts>())?.cast(), length))
}

impl Drop for Streams {
    fn drop(&mut self) {
        // SAFETY: this is the address and length from mmap, and no reference into the mapping can exist any more.
        unsafe { libc::munmap(self.counts.as_ptr().cast(), self.length * size_of::<Counts>()) };
        if let Some(path) = &self.owned {
            // Fails only if the file is already gone.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_shared_and_the_file_is_removed_by_its_creator() {
        let ours = Streams::create(3).unwrap();
        let path = ours.path().to_owned();
        let theirs = Streams::open(&path).unwrap();
        assert_eq!((theirs.count_sent(2), theirs.count_sent(2), theirs.count_sent(0)), (0, 1, 0));
        theirs.count_refused(2);
        assert_eq!((ours.sent(0), ours.sent(1), ours.sent(2), ours.refused(2)), (1, 0, 2, 1));
        drop((theirs, ours));
        assert!(!path.exists());
    }
}
