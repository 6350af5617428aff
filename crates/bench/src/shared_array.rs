//! An array of counters that all processes of a run share: a file in memory.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;

/// What several processes may use at a time.
///
/// # Safety
///
/// The type consists of atomics alone, so that zero is valid and every access is one of an atomic.
pub unsafe trait SharedItem {}

// SAFETY: it is one atomic.
unsafe impl SharedItem for AtomicU64 {}

/// The array.
pub struct SharedArray<T> {
    items: NonNull<T>,
    length: usize,
    /// The file, if this process created it and must remove it.
    owned: Option<PathBuf>,
}

// SAFETY: the mapping is plain memory of atomics; it lives until the array is dropped.
unsafe impl<T: SharedItem> Send for SharedArray<T> {}
// SAFETY: as above; all access is through atomics.
unsafe impl<T: SharedItem> Sync for SharedArray<T> {}

impl<T: SharedItem> SharedArray<T> {
    /// Creates the file for a new run, full of zeros. `what` is a part of its name.
    pub fn create(what: &str, length: usize) -> Result<Self, Error> {
        static FILES: AtomicU64 = AtomicU64::new(0);
        let folder = if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("dunlin-bench-{what}-{}-{number}", std::process::id()));
        let failed =
            |source| Error::os(format!("make {}", path.display()), source, "check the space and rights of that folder");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).map_err(failed)?;
        // An empty file cannot be mapped.
        file.set_len((length.max(1) * size_of::<T>()) as u64).map_err(failed)?;
        let (items, length) = map(&file).map_err(failed)?;
        Ok(SharedArray { items, length, owned: Some(path) })
    }

    /// Opens the file of a run.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::os(format!("open {}", path.display()), source, "start the run again");
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
        let (items, length) = map(&file).map_err(failed)?;
        Ok(SharedArray { items, length, owned: None })
    }

    /// The path of the file, for other processes.
    pub fn path(&self) -> &Path {
        self.owned.as_deref().expect("only the process that made the file hands its path on")
    }

    pub fn items(&self) -> &[T] {
        // SAFETY: the mapping holds `length` items, zero-initialised (valid for atomics), until drop.
        unsafe { std::slice::from_raw_parts(self.items.as_ptr(), self.length) }
    }
}

/// Maps a file, and returns the number of items in it.
fn map<T>(file: &File) -> io::Result<(NonNull<T>, usize)> {
    let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)? / size_of::<T>();
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let bytes = length * size_of::<T>();
    // SAFETY: a new mapping of an open file, not longer than the file.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let items = NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at zero"))?;
    Ok((items, length))
}

impl<T> Drop for SharedArray<T> {
    fn drop(&mut self) {
        // SAFETY: this is the address and length from mmap, and no reference into the mapping can exist any more.
        unsafe { libc::munmap(self.items.as_ptr().cast(), self.length * size_of::<T>()) };
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
        let ours = SharedArray::<AtomicU64>::create("test", 3).unwrap();
        let path = ours.path().to_owned();
        let theirs = SharedArray::<AtomicU64>::open(&path).unwrap();
        theirs.items()[2].store(5, Ordering::Relaxed);
        assert_eq!((ours.items().len(), ours.items()[2].load(Ordering::Relaxed)), (3, 5));
        drop(theirs);
        assert!(path.exists());
        drop(ours);
        assert!(!path.exists());
    }
}
