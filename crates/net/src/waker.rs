//! Wakes a shard's reactor from another thread.

use std::{fs::File, io, io::Write as _, os::fd::FromRawFd as _};

/// Wakes a reactor of either kind. It is called only while the shard sleeps, so messages to a shard that is awake do
/// not pay for the dispatch.
#[derive(Debug)]
pub enum Waker {
    /// For epoll.
    Epoll(mio::Waker),
    /// For `io_uring`: an eventfd that the ring polls.
    Eventfd(File),
}

impl Waker {
    /// A waker with a new eventfd.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn eventfd() -> io::Result<Self> {
        // SAFETY: the call takes no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just opened the descriptor for this process, and nothing else owns it.
        Ok(Self::Eventfd(unsafe { File::from_raw_fd(fd) }))
    }

    /// Wakes the reactor.
    ///
    /// # Errors
    /// The error of the system call, if the counter overflows. The reactor is awake in that case.
    pub fn wake(&self) -> io::Result<()> {
        match self {
            Self::Epoll(waker) => waker.wake(),
            // The counter is never read: each write completes the ring's poll request.
            Self::Eventfd(file) => (&*file).write_all(&1_u64.to_ne_bytes()),
        }
    }
}
