//! Tests whether `io_uring` is available with all features that the reactor needs.

use std::{
    fmt, fs, io,
    io::Write as _,
    os::{fd::AsRawFd as _, unix::net::UnixStream},
    time::Duration,
};

use ::io_uring::{opcode, types::Fd};

use super::{
    buffers::{Buffers, GROUP},
    ring::Ring,
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
    let failed = |what| move |error: io::Error| Unavailable::new(what, &error);
    let mut ring = Ring::new().map_err(failed("io_uring_setup"))?;
    ring.enable().map_err(failed("io_uring_register"))?;
    // SAFETY: the code below ends all requests of the ring before the buffers are dropped.
    let mut buffers = unsafe { Buffers::new(&ring, usize::MAX).map_err(failed("a ring of provided buffers"))? };
    let found = round_trip(&mut ring, &mut buffers);
    let set_up = ring.set_up().name();
    if !ring.cancel_all() {
        std::mem::forget(buffers);
    }
    found.map(|()| set_up)
}

fn round_trip(ring: &mut Ring, buffers: &mut Buffers) -> Result<(), Unavailable> {
    const MESSAGE: &[u8] = b"dunlin";
    let failed = |what| move |error: io::Error| Unavailable::new(what, &error);
    let (mut near, far) = UnixStream::pair().map_err(failed("a pair of sockets"))?;
    near.write_all(MESSAGE).map_err(failed("a pair of sockets"))?;
    let receive = opcode::RecvMulti::new(Fd(far.as_raw_fd()), GROUP).build();
    // SAFETY: the kernel receives into the provided buffers.
    unsafe { ring.push(&receive) };
    ring.wait(Some(Duration::from_secs(1))).map_err(failed("io_uring_enter"))?;
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
