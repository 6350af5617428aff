//! An array of counters that all processes of a run share: a file in memory without a name, which is gone with the last of them, however
//! they end.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

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
    /// The file, if this process created it: others open it by its number here.
    owned: Option<File>,
}

// SAFETY: the mapping is plain memory of atomics; it lives until the array is dropped.
unsafe impl<T: SharedItem> Send for SharedArray<T> {}
// SAFETY: as above; all access is through atomics.
unsafe impl<T: SharedItem> Sync for SharedArray<T> {}

impl<T: SharedItem> SharedArray<T> {
    /// Creates the file for a new run, full of zeros.
    pub fn create(length: usize) -> Result<Self, Error> {
        let failed =
            |source| Error::os("make memory that all processes share", source, "check the limit of open files");
        // SAFETY: the name is a text that ends with zero, for messages of the kernel alone.
        let number = unsafe { libc::memfd_create(c"dunlin-bench".as_ptr(), libc::MFD_CLOEXEC) };
        if number < 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        // SAFETY: the number is that of a new file, which nothing else owns.
        let file = unsafe { File::from_raw_fd(number) };
        // An empty file cannot be mapped.
        file.set_len((length.max(1) * size_of::<T>()) as u64).map_err(failed)?;
        let (items, length) = map(&file).map_err(failed)?;
        Ok(SharedArray { items, length, owned: Some(file) })
    }

    /// Opens the file of a run.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::os(format!("open {}", path.display()), source, "start the run again");
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
        let (items, length) = map(&file).map_err(failed)?;
        Ok(SharedArray { items, length, owned: None })
    }

    /// The path of the file for other processes, as long as this one lives.
    pub fn path(&self) -> PathBuf {
        let file = self.owned.as_ref().expect("only the process that made the file hands its path on");
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()))
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
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn counts_are_shared_and_the_file_has_no_name() {
        let ours = SharedArray::<AtomicU64>::create(3).unwrap();
        let path = ours.path();
        let theirs = SharedArray::<AtomicU64>::open(&path).unwrap();
        theirs.items()[2].store(5, Ordering::Relaxed);
        assert_eq!((ours.items().len(), ours.items()[2].load(Ordering::Relaxed)), (3, 5));
        let target = std::fs::read_link(&path).unwrap();
        assert!(target.starts_with("/memfd:dunlin-bench (deleted)"), "it is in no folder: {}", target.display());
        drop(ours);
        assert_eq!(theirs.items()[2].load(Ordering::Relaxed), 5, "it lives as long as one process has it");
    }
}
