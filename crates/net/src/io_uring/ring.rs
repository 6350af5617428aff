//! The submission and completion rings, and the three ways to enter the kernel with them.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
    thread,
    time::Duration,
};

use ::io_uring::{
    EnterFlags, IoUring, cqueue, opcode,
    squeue::{Entry, Flags},
    types::{CancelBuilder, Fd, Fixed, SubmitArgs, Timespec},
};

use super::socket::Target;

/// The identifier of requests whose result nobody waits for. Only their errors have completions.
pub const ASIDE: u64 = 0;

/// Size of the submission queue: room for a batch of sends and the other requests of a turn.
pub(super) const SUBMISSIONS: u32 = 2_048;

/// Size of the completion queue. The kernel keeps further completions and ends multishot requests; nothing is lost, but
/// each of these must be armed again.
const COMPLETIONS: u32 = 8_192;

/// Consecutive refusals after which the ring has failed. The first few attempts are repeated at once.
const REFUSALS_MAX: u32 = 1_000;
const REFUSALS_AT_ONCE: u32 = 16;

/// Pause between two attempts.
const REFUSED_PAUSE: Duration = Duration::from_millis(1);

/// The rings of submissions and completions. One thread uses them.
pub struct Ring {
    inner: IoUring,
    set_up: SetUp,
    /// The ring is created disabled. The thread that enables it is the only one that may use it.
    disabled: bool,
    /// The error with which the kernel last refused submissions. From then on nothing is submitted.
    failed: Option<i32>,
    /// Completions that were moved out of the kernel's queue to make room there, the oldest first.
    reaped: VecDeque<Cqe>,
    /// Consecutive refusals by the kernel.
    refusals: u32,
    /// Results that tests inject in place of the kernel's.
    #[cfg(test)]
    pretended: VecDeque<i32>,
    /// Number of times that the kernel was entered.
    pub(super) calls: u64,
}

/// Ways to create a ring, the best first. Older kernels reject flags that they do not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetUp {
    /// Completions are processed when the shard waits, by the only thread that submits (Linux 6.1).
    Deferred,
    /// Completions are processed whenever the thread enters the kernel (Linux 6.0).
    Cooperative,
    /// Completions interrupt the thread.
    Plain,
}

impl SetUp {
    /// The name of the mode, for the log.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Deferred => "deferred",
            Self::Cooperative => "cooperative",
            Self::Plain => "plain",
        }
    }
}

/// A completion: the kernel's result of a request.
#[derive(Clone, Copy, Debug)]
pub struct Cqe {
    /// The identifier of the request.
    pub user_data: u64,
    /// The result: negative for an error number.
    pub result: i32,
    flags: u32,
}

impl From<&cqueue::Entry> for Cqe {
    #[inline]
    fn from(entry: &cqueue::Entry) -> Self {
        Self { user_data: entry.user_data(), result: entry.result(), flags: entry.flags() }
    }
}

impl Cqe {
    /// Whether the request continues and will have more completions.
    pub fn has_more(self) -> bool {
        cqueue::more(self.flags)
    }

    /// The provided buffer that the request has filled.
    pub fn buffer(self) -> Option<u16> {
        cqueue::buffer_select(self.flags)
    }
}

impl Ring {
    /// Creates a ring. It may be sent to another thread until [`Ring::enable`] is called.
    ///
    /// # Errors
    /// The error of the system call, for the simplest mode.
    pub fn new() -> io::Result<Self> {
        let mut refused = None;
        for set_up in [SetUp::Deferred, SetUp::Cooperative, SetUp::Plain] {
            match build(set_up) {
                Ok(inner) => {
                    let disabled = set_up != SetUp::Plain;
                    return Ok(Self {
                        inner,
                        set_up,
                        disabled,
                        failed: None,
                        reaped: VecDeque::new(),
                        refusals: 0,
                        #[cfg(test)]
                        pretended: VecDeque::new(),
                        calls: 0,
                    });
                }
                // An unknown flag. Any other error would occur in every mode.
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
    /// The error of the system call.
    pub fn enable(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.disabled) {
            self.inner.submitter().register_enable_rings()?;
        }
        Ok(())
    }

    /// Registers a ring of provided buffers.
    ///
    /// # Safety
    /// `entries` buffer entries lie at `address`. They and the buffers that they refer to must stay valid until the
    /// ring is dropped.
    ///
    /// # Errors
    /// The error of the system call.
    pub(super) unsafe fn register_buffers(&self, address: u64, entries: u16, group: u16) -> io::Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.submitter().register_buf_ring_with_flags(address, entries, group, 0) }
    }

    /// Registers a table of files with `size` empty places.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn register_table(&self, size: u32) -> io::Result<()> {
        self.inner.submitter().register_files_sparse(size)
    }

    /// Closes all files of the table. Otherwise the kernel does it some time after the ring is dropped.
    ///
    /// # Errors
    /// The error of the system call; also if there is no table.
    pub fn unregister_table(&self) -> io::Result<()> {
        self.inner.submitter().unregister_files()
    }

    /// Queues a request for the next submission. If the queue is full, it is submitted first. If the kernel accepts no
    /// requests for too long, the ring has failed.
    ///
    /// # Safety
    /// The memory that the request refers to must stay valid and unchanged until the request has completed.
    #[inline]
    pub unsafe fn push(&mut self, entry: &Entry) {
        // SAFETY: guaranteed by the caller.
        let mut is_taken = unsafe { self.inner.submission().push(entry).is_ok() };
        while !is_taken && self.submit().is_ok() {
            if self.inner.submission().is_full() {
                // The kernel may wait for space in the completion queue.
                self.reap();
            }
            // SAFETY: guaranteed by the caller.
            is_taken = unsafe { self.inner.submission().push(entry).is_ok() };
        }
    }

    /// Queues requests of which each begins when the one before has succeeded. The caller has linked them.
    ///
    /// # Safety
    /// As [`Ring::push`].
    pub unsafe fn push_linked<const N: usize>(&mut self, entries: &[Entry; N]) {
        const { assert!(N <= SUBMISSIONS as usize, "they are submitted together") };
        let queue = self.inner.submission();
        let room = queue.capacity() - queue.len();
        drop(queue);
        // The end of a submission ends a link, and `push` submits when the queue is full.
        if room < N {
            // An error stays: `push` does nothing then.
            let _ = self.submit();
        }
        for entry in entries {
            // SAFETY: guaranteed by the caller.
            unsafe { self.push(entry) };
        }
    }

    /// Makes the kernel write to an eventfd when there are completions, or when [`Ring::look`] would find some.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn register_eventfd(&self, eventfd: BorrowedFd<'_>) -> io::Result<()> {
        self.inner.submitter().register_eventfd(eventfd.as_raw_fd())
    }

    /// Cancels the request with this identifier, whose own completion reports the end.
    pub fn cancel(&mut self, user_data: u64) {
        let entry = opcode::AsyncCancel::new(user_data).build().user_data(ASIDE);
        // SAFETY: the request contains no pointers.
        unsafe { self.push(&entry.flags(Flags::SKIP_SUCCESS)) };
    }

    /// Closes a file after all requests that were queued before. Submitted requests hold their own reference to the
    /// file; queued requests refer to it by its descriptor or its place, which must still be its own when they are submitted.
    pub fn close(&mut self, target: Target) {
        let close = match target {
            Target::Descriptor(fd) => opcode::Close::new(Fd(fd)),
            Target::Registered(place) => opcode::Close::new(Fixed(place)),
        };
        let entry = close.build().user_data(ASIDE);
        // SAFETY: the request contains no pointers.
        unsafe { self.push(&entry.flags(Flags::SKIP_SUCCESS)) };
    }

    /// Submits all queued requests. Requests that can complete at once have completed when this returns.
    ///
    /// # Errors
    /// The error of the system call. The ring cannot be used afterwards.
    #[inline]
    pub fn submit(&mut self) -> io::Result<()> {
        if self.inner.submission().is_empty() {
            return Ok(());
        }
        self.enter(IoUring::submit)
    }

    /// Submits all queued requests and fetches available completions without waiting.
    ///
    /// # Errors
    /// As [`Ring::submit`].
    pub fn look(&mut self) -> io::Result<()> {
        let queued = self.inner.submission().len() as u32;
        if queued == 0 && !self.has_work() {
            return Ok(());
        }
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: the queue contains `queued` requests, and there is no argument.
        self.enter(|inner| unsafe { inner.submitter().enter::<libc::sigset_t>(queued, 0, flags, None) })
    }

    /// Whether the kernel has completions that it publishes only when it is entered. Without deferred completions,
    /// these are only the ones that exceeded the queue.
    pub fn has_work(&mut self) -> bool {
        let queue = self.inner.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    /// Whether [`Ring::pop`] has a completion.
    pub fn has_completions(&mut self) -> bool {
        !self.reaped.is_empty() || !self.inner.completion().is_empty()
    }

    /// Submits all queued requests and waits for a completion, or for `timeout`.
    ///
    /// # Errors
    /// As [`Ring::submit`].
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
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
        #[cfg(test)]
        let answered = match self.pretended.pop_front() {
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => call(&self.inner),
        };
        #[cfg(not(test))]
        let answered = call(&self.inner);
        match answered.map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL)) {
            Ok(_) => {
                self.refusals = 0;
                Ok(())
            }
            // Interrupted or timed out.
            Err(libc::EINTR | libc::ETIME) => Ok(()),
            // Temporarily out of memory, or the completion queue is full.
            Err(libc::EAGAIN | libc::EBUSY) if self.refusals < REFUSALS_MAX => {
                self.refusals += 1;
                self.reap();
                if self.refusals > REFUSALS_AT_ONCE {
                    thread::sleep(REFUSED_PAUSE);
                }
                Ok(())
            }
            Err(errno) => {
                self.failed = Some(errno);
                Err(io::Error::from_raw_os_error(errno))
            }
        }
    }

    /// Moves completions out of the kernel's queue.
    fn reap(&mut self) {
        while let Some(entry) = self.inner.completion().next() {
            self.reaped.push_back(Cqe::from(&entry));
        }
    }

    /// The next available completion.
    #[inline]
    pub fn pop(&mut self) -> Option<Cqe> {
        if let Some(reaped) = self.reaped.pop_front() {
            return Some(reaped);
        }
        self.inner.completion().next().map(|entry| Cqe::from(&entry))
    }

    /// Ends every request. Returns whether certainly no request is left that could access memory.
    pub fn cancel_all(&mut self) -> bool {
        // The kernel does not know requests that were queued and never submitted.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring, unless the kernel or its profile for this process forbids all rings.
    fn ring() -> Option<Ring> {
        let mut ring = Ring::new().ok()?;
        ring.enable().ok()?;
        Some(ring)
    }

    fn push(ring: &mut Ring, count: u64) {
        for number in 0..count {
            let entry = opcode::Nop::new().build().user_data(number);
            // SAFETY: the request points at nothing.
            unsafe { ring.push(&entry) };
        }
    }

    fn completed(ring: &mut Ring) -> Vec<u64> {
        let mut completed = Vec::new();
        while let Some(cqe) = ring.pop() {
            completed.push(cqe.user_data);
        }
        completed
    }

    const MORE_THAN_FIT: u64 = SUBMISSIONS as u64 + 100;

    #[test]
    fn a_temporarily_busy_kernel_loses_nothing() {
        let Some(mut ring) = ring() else { return };
        ring.pretended.extend([libc::EBUSY, libc::EAGAIN, libc::EBUSY, libc::EAGAIN]);
        push(&mut ring, MORE_THAN_FIT);
        assert!(ring.pretended.is_empty(), "the kernel was asked again");
        ring.wait(None).expect("the ring works");
        let mut all = completed(&mut ring);
        all.sort_unstable();
        assert_eq!(all, (0..MORE_THAN_FIT).collect::<Vec<_>>());
    }

    #[test]
    fn submission_fails_when_the_kernel_stays_busy() {
        let Some(mut ring) = ring() else { return };
        ring.pretended.extend(std::iter::repeat_n(libc::EBUSY, 10 * REFUSALS_MAX as usize));
        push(&mut ring, MORE_THAN_FIT);
        assert_eq!(ring.calls, u64::from(REFUSALS_MAX) + 1, "the number of attempts");
        assert_eq!(ring.submit().unwrap_err().raw_os_error(), Some(libc::EBUSY));
        assert_eq!(ring.wait(None).unwrap_err().raw_os_error(), Some(libc::EBUSY));
    }

    #[test]
    fn linked_requests_are_submitted_together() {
        let Some(mut ring) = ring() else { return };
        push(&mut ring, u64::from(SUBMISSIONS) - 1);
        let broken = opcode::Close::new(Fd(-1)).build().flags(Flags::IO_LINK).user_data(MORE_THAN_FIT);
        let behind = opcode::Nop::new().build().user_data(MORE_THAN_FIT + 1);
        // SAFETY: the requests point at nothing.
        unsafe { ring.push_linked(&[broken, behind]) };
        ring.wait(None).expect("the ring works");
        let last: Vec<_> = std::iter::from_fn(|| ring.pop()).filter(|cqe| cqe.user_data >= MORE_THAN_FIT).collect();
        assert_eq!(last.iter().map(|cqe| -cqe.result).collect::<Vec<_>>(), [libc::EBADF, libc::ECANCELED]);
    }

    #[test]
    fn completions_are_reaped_when_submission_is_busy() {
        let Some(mut ring) = ring() else { return };
        push(&mut ring, 10);
        ring.wait(None).expect("the ring works");
        ring.pretended.extend([libc::EBUSY]);
        push(&mut ring, MORE_THAN_FIT);
        assert_eq!(ring.reaped.len(), 10, "they are kept in their order");
        assert_eq!(completed(&mut ring)[..10], (0..10).collect::<Vec<_>>());
    }
}
