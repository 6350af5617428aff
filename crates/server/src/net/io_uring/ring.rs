//! The ring itself: set up as well as the kernel can, and entered in the three ways that a shard needs.

use std::{io, os::fd::RawFd, time::Duration};

use ::io_uring::{
    EnterFlags, IoUring, cqueue, opcode,
    squeue::{Entry, Flags},
    types::{CancelBuilder, Fd, SubmitArgs, Timespec},
};

use super::slots::Subject;

/// Requests that are collected before they are submitted anyway: a batch of sends, and what else a turn asks for.
const SUBMISSIONS: u32 = 2_048;

/// Completions that the kernel can put down. Beyond that it keeps them, and ends what repeats itself; nothing is lost, but
/// every such end costs a request.
const COMPLETIONS: u32 = 8_192;

/// The rings of submissions and completions, to be used by one thread.
pub(super) struct Ring {
    inner: IoUring,
    set_up: SetUp,
    /// Set up disabled, so that the thread that enables it is the one that may use it.
    disabled: bool,
    /// What the kernel said when it took nothing any more. From then on it is given nothing.
    failed: Option<i32>,
    /// Times that the kernel was entered.
    pub(super) calls: u64,
}

/// Ways to set a ring up, the best first. Older kernels refuse the flags that they don't know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetUp {
    /// Completions are worked on when the shard waits for them, by the only thread that submits (Linux 6.1).
    Deferred,
    /// They are worked on when the thread enters the kernel anyway (Linux 6.0).
    Cooperative,
    /// They interrupt the thread.
    Plain,
}

impl SetUp {
    /// For the log.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Deferred => "deferred",
            Self::Cooperative => "cooperative",
            Self::Plain => "plain",
        }
    }
}

/// What the kernel tells of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cqe {
    pub(super) user_data: u64,
    pub(super) result: i32,
    flags: u32,
}

impl Cqe {
    /// Whether the request goes on, and will tell more.
    pub(super) fn has_more(self) -> bool {
        cqueue::more(self.flags)
    }

    /// The provided buffer that the request has filled.
    pub(super) fn buffer(self) -> Option<u16> {
        cqueue::buffer_select(self.flags)
    }
}

impl Ring {
    /// Sets a ring up. It may be sent to another thread until [`Ring::enable`] is called.
    ///
    /// # Errors
    /// Of the system, for the plainest way.
    pub(super) fn new() -> io::Result<Self> {
        let mut refused = None;
        for set_up in [SetUp::Deferred, SetUp::Cooperative, SetUp::Plain] {
            match build(set_up) {
                Ok(inner) => {
                    let disabled = set_up != SetUp::Plain;
                    return Ok(Self { inner, set_up, disabled, failed: None, calls: 0 });
                }
                // An unknown flag. Any other error is one of all ways.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refused = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(refused.unwrap_or_else(|| io::Error::from_raw_os_error(libc::EINVAL)))
    }

    pub(super) fn set_up(&self) -> SetUp {
        self.set_up
    }

    /// Makes the calling thread the one that uses the ring.
    ///
    /// # Errors
    /// Of the system.
    pub(super) fn enable(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.disabled) {
            self.inner.submitter().register_enable_rings()?;
        }
        Ok(())
    }

    /// Registers a ring of provided buffers.
    ///
    /// # Safety
    /// `entries` buffer entries lie at `address`, and they and the buffers that they name stay until the ring is gone.
    ///
    /// # Errors
    /// Of the system.
    pub(super) unsafe fn register_buffers(&self, address: u64, entries: u16, group: u16) -> io::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.submitter().register_buf_ring_with_flags(address, entries, group, 0) }
    }

    /// Takes in a request for the next submission. A full queue is submitted first.
    ///
    /// # Safety
    /// What the request points at stays valid and unchanged until it has completed.
    #[inline]
    pub(super) unsafe fn push(&mut self, entry: &Entry) {
        // SAFETY: the caller's promise.
        let mut is_taken = unsafe { self.inner.submission().push(entry).is_ok() };
        while !is_taken && self.submit().is_ok() {
            // SAFETY: the caller's promise.
            is_taken = unsafe { self.inner.submission().push(entry).is_ok() };
        }
    }

    /// Ends a request, which tells of it by itself.
    pub(super) fn cancel(&mut self, subject: Subject) {
        let entry = opcode::AsyncCancel::new(subject.user_data()).build().user_data(Subject::Aside.user_data());
        // SAFETY: the request points at nothing.
        unsafe { self.push(&entry.flags(Flags::SKIP_SUCCESS)) };
    }

    /// Closes a file, after everything that was pushed before. Requests of which the kernel knows hold on to it by
    /// themselves; those that it does not know yet, and that name its number, must find it open.
    pub(super) fn close(&mut self, fd: RawFd) {
        let entry = opcode::Close::new(Fd(fd)).build().user_data(Subject::Aside.user_data());
        // SAFETY: the request points at nothing.
        unsafe { self.push(&entry.flags(Flags::SKIP_SUCCESS)) };
    }

    /// Hands the kernel all that was pushed. What can be done at once is done when this returns.
    ///
    /// # Errors
    /// Of the system. There is no going on after it.
    #[inline]
    pub(super) fn submit(&mut self) -> io::Result<()> {
        if self.inner.submission().is_empty() {
            return Ok(());
        }
        self.enter(IoUring::submit)
    }

    /// Submits what was pushed, and lets the kernel tell what has happened, without waiting for it.
    ///
    /// # Errors
    /// As [`Ring::submit`].
    pub(super) fn look(&mut self) -> io::Result<()> {
        let queued = self.inner.submission().len() as u32;
        if queued == 0 && !self.has_work() {
            return Ok(());
        }
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: so many requests are in the queue, and there is no argument.
        self.enter(|inner| unsafe { inner.submitter().enter::<libc::sigset_t>(queued, 0, flags, None) })
    }

    /// Whether the kernel has something to tell that it has not put down, and will when it is entered. Without a deferral
    /// there is nothing of the kind but what it found no room for.
    pub(super) fn has_work(&mut self) -> bool {
        let queue = self.inner.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    /// Submits what was pushed, and waits until something has happened, or for `timeout`.
    ///
    /// # Errors
    /// As [`Ring::submit`].
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        match timeout {
            None => self.enter(|inner| inner.submit_and_wait(1)),
            Some(timeout) => {
                let timespec = Timespec::from(timeout);
                let args = SubmitArgs::new().timespec(&timespec);
                self.enter(|inner| inner.submitter().submit_with_args(1, &args))
            }
        }
    }

    fn enter(&mut self, call: impl FnOnce(&IoUring) -> io::Result<usize>) -> io::Result<()> {
        if let Some(errno) = self.failed {
            return Err(io::Error::from_raw_os_error(errno));
        }
        self.calls += 1;
        match call(&self.inner).map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL)) {
            // Interrupted, timed out, out of memory for now, or completions have to be taken first: all pass.
            Ok(_) | Err(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY) => Ok(()),
            Err(errno) => {
                self.failed = Some(errno);
                Err(io::Error::from_raw_os_error(errno))
            }
        }
    }

    /// The next completion that the kernel has put down.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Cqe> {
        let entry = self.inner.completion().next()?;
        Some(Cqe { user_data: entry.user_data(), result: entry.result(), flags: entry.flags() })
    }

    /// Ends every request. Whether it is certain that none is left that could still touch memory.
    pub(super) fn cancel_all(&mut self) -> bool {
        // What was pushed and never submitted is not known to the kernel.
        self.failed = Some(libc::ECANCELED);
        if self.disabled {
            return true;
        }
        match self.inner.submitter().register_sync_cancel(None, CancelBuilder::any()) {
            Ok(()) => true,
            Err(error) => error.raw_os_error() == Some(libc::ENOENT),
        }
    }
}

fn build(set_up: SetUp) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_cqsize(COMPLETIONS);
    match set_up {
        SetUp::Deferred => {
            builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
            builder.setup_submit_all().setup_r_disabled();
        }
        SetUp::Cooperative => {
            builder.setup_single_issuer().setup_coop_taskrun().setup_taskrun_flag();
            builder.setup_submit_all().setup_r_disabled();
        }
        SetUp::Plain => {}
    }
    builder.build(SUBMISSIONS)
}
