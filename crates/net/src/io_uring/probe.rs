//! Tests whether `io_uring` is available with all features that the reactor needs.

use std::{
    fmt, fs, io,
    io::{Read as _, Write as _},
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use ::io_uring::{opcode, squeue::Entry};

use super::{
    buffers::{Buffers, GROUP},
    ring::Ring,
    slots::Subject,
    socket::Target,
    table::{SocketTable, installation},
};

/// The file with the kernel's `io_uring` setting.
const SWITCH: &str = "/proc/sys/kernel/io_uring_disabled";

/// Why `io_uring` is unavailable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// The operation that failed.
    what: &'static str,
    /// The error number of the operation.
    errno: i32,
    /// The value of `io_uring_disabled`, if it can be read and is not 0.
    switch: Option<u8>,
}

/// Tests a multishot receive into provided buffers, and checks its result. Returns the setup flags for rings.
///
/// # Errors
/// Why `io_uring` is unavailable.
pub fn probe() -> Result<&'static str, Unavailable> {
    on_ring(|ring, buffers| {
        let (mut near, far) = pair()?;
        near.write_all(MESSAGE).map_err(failed("a pair of sockets"))?;
        receive(ring, buffers, Target::Descriptor(far.as_raw_fd()))?;
        Ok(ring.set_up().name())
    })
}

/// Tests all that the reactor does with a socket of a ring's table: moving it there, receiving, sending, opening a descriptor
/// of it, and closing it.
///
/// # Errors
/// What the kernel cannot do.
pub fn probe_table() -> Result<(), Unavailable> {
    on_ring(|ring, buffers| {
        let table = SocketTable::new(ring, 2);
        let mut table = table.map_err(failed("IORING_REGISTER_FILES2"))?;
        let (mut near, far) = pair()?;
        let place = Target::Registered(0);
        table.insert(ring, 0, far.into()).map_err(failed("a table with a place"))?;
        near.write_all(MESSAGE).map_err(failed("a pair of sockets"))?;
        receive(ring, buffers, place)?;
        // Its receive goes on from here to the end.
        close_another(ring, &mut table)?;
        let mut read = [0; MESSAGE.len()];
        let send = place.request(|fd| opcode::Send::new(fd, MESSAGE.as_ptr(), MESSAGE.len() as u32).build());
        // SAFETY: the message is a constant.
        unsafe { ask(ring, "IORING_OP_SEND with a direct descriptor", send)? };
        near.read_exact(&mut read).map_err(failed("IORING_OP_SEND with a direct descriptor"))?;
        // SAFETY: the request contains no pointers. The kernel opens the descriptor for this process, and nothing else owns it.
        let mut far = UnixStream::from(unsafe {
            OwnedFd::from_raw_fd(ask(ring, "IORING_OP_FIXED_FD_INSTALL", installation(0))?)
        });
        ring.close(place);
        ring.look().map_err(failed("io_uring_enter"))?;
        far.write_all(MESSAGE).map_err(failed("IORING_OP_FIXED_FD_INSTALL"))?;
        near.read_exact(&mut read).map_err(failed("IORING_OP_FIXED_FD_INSTALL"))
    })
}

/// Closes a second socket. Before Linux 6.13, the kernel does that only when all earlier requests about sockets of the table have
/// ended, and the receive of an idle connection does not end.
fn close_another(ring: &mut Ring, table: &mut SocketTable) -> Result<(), Unavailable> {
    let what = "closing a direct descriptor while another one receives";
    let (mut near, far) = pair()?;
    table.insert(ring, 1, far.into()).map_err(failed("a table with two places"))?;
    ring.close(Target::Registered(1));
    ring.look().map_err(failed("io_uring_enter"))?;
    near.set_read_timeout(Some(CLOSE_PATIENCE)).map_err(failed("a pair of sockets"))?;
    // Not `read`: the kernel closes the socket in work of this thread, for which a call that waits may return `EINTR`.
    let is_closed = near.read_to_end(&mut Vec::new()).is_ok_and(|bytes| bytes == 0);
    if is_closed { Ok(()) } else { Err(Unavailable::new(what, &io::Error::from_raw_os_error(libc::ETIMEDOUT))) }
}

const MESSAGE: &[u8] = b"dunlin";

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> Unavailable {
    move |error| Unavailable::new(what, &error)
}

fn pair() -> Result<(UnixStream, UnixStream), Unavailable> {
    let (near, far) = UnixStream::pair().map_err(failed("a pair of sockets"))?;
    near.set_read_timeout(Some(PATIENCE)).map_err(failed("a pair of sockets"))?;
    Ok((near, far))
}

/// How long a start waits for a socket to be closed, on a kernel that does not do it.
const CLOSE_PATIENCE: Duration = Duration::from_millis(100);

/// How long a probe waits for what the kernel does at once.
const PATIENCE: Duration = Duration::from_secs(1);

fn on_ring<T>(probe: impl FnOnce(&mut Ring, &mut Buffers) -> Result<T, Unavailable>) -> Result<T, Unavailable> {
    let mut ring = Ring::new().map_err(failed("io_uring_setup"))?;
    ring.enable().map_err(failed("io_uring_register"))?;
    // SAFETY: the code below ends all requests of the ring before the buffers are dropped.
    let mut buffers = unsafe { Buffers::new(&ring, usize::MAX).map_err(failed("a ring of provided buffers"))? };
    let found = probe(&mut ring, &mut buffers);
    if !ring.cancel_all() {
        std::mem::forget(buffers);
    }
    found
}

fn receive(ring: &mut Ring, buffers: &mut Buffers, socket: Target) -> Result<(), Unavailable> {
    let receive = socket.request(|fd| opcode::RecvMulti::new(fd, GROUP).build());
    // SAFETY: the kernel receives into the provided buffers.
    unsafe { ring.push(&receive) };
    ring.wait(Some(PATIENCE)).map_err(failed("io_uring_enter"))?;
    let what = "a receive into provided buffers that goes on";
    let unheard = || Unavailable::new(what, &io::Error::from_raw_os_error(libc::ETIMEDOUT));
    let cqe = ring.pop().ok_or_else(unheard)?;
    let Some(buffer) = cqe.buffer().filter(|_| cqe.has_more()) else {
        let errno = if cqe.result < 0 { -cqe.result } else { libc::EINVAL };
        return Err(Unavailable::new(what, &io::Error::from_raw_os_error(errno)));
    };
    buffers.take_alone(buffer, usize::try_from(cqe.result).unwrap_or(0));
    let is_whole = buffers.bytes(buffer) == MESSAGE;
    if is_whole { Ok(()) } else { Err(Unavailable::new(what, &io::Error::from_raw_os_error(libc::EIO))) }
}

/// Submits a request and waits for its result.
///
/// # Safety
/// Memory that the request refers to stays valid until this returns, or forever if it fails.
unsafe fn ask(ring: &mut Ring, what: &'static str, request: Entry) -> Result<i32, Unavailable> {
    // SAFETY: guaranteed by the caller.
    unsafe { ring.push(&request.user_data(Subject::Awaited.user_data())) };
    ring.wait(Some(PATIENCE)).map_err(failed(what))?;
    while let Some(cqe) = ring.pop() {
        if cqe.user_data == Subject::Awaited.user_data() {
            let error = || io::Error::from_raw_os_error(-cqe.result);
            return if cqe.result < 0 { Err(Unavailable::new(what, &error())) } else { Ok(cqe.result) };
        }
    }
    Err(Unavailable::new(what, &io::Error::from_raw_os_error(libc::ETIMEDOUT)))
}

impl Unavailable {
    /// `what` failed with `error`.
    pub fn new(what: &'static str, error: &io::Error) -> Self {
        let switch = fs::read_to_string(SWITCH).ok().and_then(|text| text.trim().parse().ok()).filter(|at| *at > 0);
        Self { what, errno: error.raw_os_error().unwrap_or(libc::EIO), switch }
    }

    /// What the operator can change to make it available.
    pub fn remedy(&self) -> &'static str {
        match (self.errno, self.switch) {
            (libc::EPERM, Some(_)) => "set the sysctl kernel.io_uring_disabled to 0",
            (libc::EPERM | libc::EACCES | libc::ENOSYS, _) => {
                "allow io_uring_setup, io_uring_enter and io_uring_register in the container's seccomp profile, or use a \
                 kernel that has them"
            }
            (libc::ENOMEM, _) => "raise the limit of locked memory (ulimit -l)",
            (libc::EMFILE | libc::ENFILE, _) => "raise the limit of open files (ulimit -n)",
            _ => "use Linux 6.0 or newer",
        }
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: {}", self.what, io::Error::from_raw_os_error(self.errno))?;
        match self.switch {
            Some(at) => write!(f, " (kernel.io_uring_disabled is {at})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Unavailable {}
