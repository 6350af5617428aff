//! The ring's table of registered files. A socket in it uses no file descriptor of the process; the connection's index is
//! its place. The limit of open files bounds each table by itself.
//!
//! A socket is accepted with a descriptor, because the kernel tells the peer's address only for one (up to Linux 6.18), and
//! because the shard may pass the socket to another shard. It is moved when the connection is opened.

use std::{
    io,
    os::fd::{IntoRawFd as _, OwnedFd, RawFd},
};

use ::io_uring::{
    opcode,
    squeue::{Entry, Flags},
    types::Fixed,
};

use super::{
    ring::{Ring, SUBMISSIONS},
    slots::Subject,
    socket::{Socket, Target},
};

/// Maximum size of a table that the kernel supports.
const SIZE_MAX: u32 = 1 << 20;

/// The table of a ring.
pub(super) struct SocketTable {
    size: u32,
    /// Descriptors of the sockets that queued requests move into the table. The kernel reads them when it takes the request.
    /// There are as many as requests fit into the queue, so that an element is used again only after that.
    moving: Box<[RawFd]>,
    next: usize,
}

impl SocketTable {
    /// Registers a table with `ring`.
    ///
    /// # Errors
    /// The error of the system call.
    pub(super) fn new(ring: &Ring, size: u32) -> io::Result<Self> {
        ring.register_table(size)?;
        Ok(Self { size, moving: vec![-1; SUBMISSIONS as usize].into_boxed_slice(), next: 0 })
    }

    /// Moves a socket into the table, and closes its descriptor. If the kernel cannot do that, requests for the place report that
    /// there is no socket.
    ///
    /// # Errors
    /// The table has no such place. The socket is closed.
    pub(super) fn insert(&mut self, ring: &mut Ring, place: u32, socket: OwnedFd) -> io::Result<Socket> {
        if place >= self.size {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let fd = socket.into_raw_fd();
        let moving = &mut self.moving[self.next];
        *moving = fd;
        self.next = (self.next + 1) % SUBMISSIONS as usize;
        let request = opcode::FilesUpdate::new(moving, 1).offset(place.cast_signed()).build();
        // SAFETY: the kernel reads the descriptor when it takes the request. The element is unchanged until then: it is used
        // again after as many further requests as the queue has room for.
        unsafe { ring.push(&request.flags(Flags::SKIP_SUCCESS).user_data(Subject::Aside.user_data())) };
        ring.close(Target::Descriptor(fd));
        Ok(Socket::registered())
    }
}

/// The request for a descriptor of the socket at this place. Its result is the descriptor.
pub(super) fn installation(place: u32) -> Entry {
    opcode::FixedFdInstall::new(Fixed(place), 0).build()
}

/// The size of a table for at most `connections_max` connections: the kernel allows no larger one than the limit of open
/// files.
pub fn size_for(connections_max: u32) -> u32 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is valid for the call, which writes to it.
    let is_known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0;
    let files_max = if is_known { u32::try_from(limit.rlim_cur).unwrap_or(u32::MAX) } else { u32::MAX };
    connections_max.min(files_max).min(SIZE_MAX)
}
