//! How a shard's reactor is woken from another thread.

use std::{fs::File, io, io::Write as _, os::fd::FromRawFd as _};

/// Wakes a reactor, whichever it is. Nobody calls it while the shard is awake, so its kind is looked up for none of the
/// messages that find it so.
#[derive(Debug)]
pub enum Waker {
    /// Of epoll.
    Epoll(mio::Waker),
    /// Of `io_uring`: an eventfd that the ring polls.
    Eventfd(File),
}

impl Waker {
    /// A waker on an eventfd of its own.
    ///
    /// # Errors
    /// Of the system.
    pub fn eventfd() -> io::Result<Self> {
        // SAFETY: the call takes no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it has just been opened for us, and nobody else knows of it.
        Ok(Self::Eventfd(unsafe { File::from_raw_fd(fd) }))
    }

    /// Wakes it.
    ///
    /// # Errors
    /// Of the system, if the count of calls overflows. The reactor is awake then.
    pub fn wake(&self) -> io::Result<()> {
        match self {
            Self::Epoll(waker) => waker.wake(),
            // The count is never read: what the ring hears is each write.
            Self::Eventfd(file) => (&*file).write_all(&1_u64.to_ne_bytes()),
        }
    }
}
