//! The interface between a shard and the kernel's I/O, modelled on completions.
//!
//! A turn consists of one call of [`Reactor::wait`], calls of [`Reactor::next`] until it returns `None`, and then
//! batches of [`Reactor::send`] followed by [`Reactor::sent`]. A completion contains the bytes that were read, rather
//! than the information that a socket is readable. So a reactor may read into one shared buffer on demand, or into a
//! ring of buffers in advance.

use std::{
    io,
    net::TcpStream,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use dunlin_engine::SessionKey;

/// The key of a connection. The shard assigns it when it opens a socket; the connection's session has the same key.
pub type ConnectionKey = SessionKey;

/// Size of the buffer that a shard uses for all reads.
pub const READ_BUFFER_BYTES: usize = 65_536;

/// Maximum number of slices in one send. Further slices are sent later.
pub const SEND_SLICES_MAX: usize = 64;

/// The message of an assertion: a caller offered twice for one connection in a batch.
pub(super) const OFFERED_TWICE: &str = "a connection is offered for at most once in a batch";

/// Something that happened on a socket.
#[derive(Debug)]
pub enum Completion<'a> {
    /// Another thread woke this shard.
    Woken,
    /// A client connected.
    Accepted {
        /// Its socket, non-blocking. The shard passes it to [`Reactor::open`].
        stream: TcpStream,
    },
    /// A connection could not be accepted.
    AcceptFailed {
        /// Whether no file descriptors are left.
        out_of_files: bool,
    },
    /// Bytes arrived. Reported at most once per turn and connection.
    Received {
        /// The sending connection.
        connection: ConnectionKey,
        /// The bytes, valid until the next call. They may be modified in place.
        bytes: &'a mut [u8],
    },
    /// A socket that was full is writable again.
    Writable {
        /// The connection.
        connection: ConnectionKey,
    },
    /// The peer has shut down its sending side, or the connection is broken. Nothing more is received.
    Ended {
        /// The connection.
        connection: ConnectionKey,
    },
}

/// The result of one send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendCompletion {
    /// The connection of the send.
    pub connection: ConnectionKey,
    /// Number of slices offered.
    pub slices: usize,
    /// Number of bytes offered.
    pub offered_bytes: usize,
    /// Number of bytes that the kernel took.
    pub written_bytes: usize,
    /// Whether the kernel took all bytes.
    pub outcome: SendOutcome,
}

/// The outcome of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// The kernel has taken all bytes.
    All,
    /// The socket is full. Sends are ignored until [`Completion::Writable`].
    Full,
    /// The connection is broken.
    Broken,
}

/// The sockets of one shard.
pub trait Reactor {
    /// The number of sends after which a caller should fetch the results.
    const BATCH_MAX: usize;

    /// Waits for a completion, or for `timeout`; `None` waits indefinitely. Begins a turn.
    ///
    /// # Errors
    /// The error of the system call. The reactor cannot be used afterwards.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    /// The next completion of this turn. Without `intake`, no connection is accepted and no socket is read.
    fn next(&mut self, intake: bool) -> Option<Completion<'_>>;

    /// Whether completions are left for the next turn, so that the next wait must not block.
    fn has_more(&self) -> bool;

    /// Stops accepting connections.
    fn stop_listening(&mut self);

    /// Registers a connection.
    ///
    /// # Errors
    /// The error of the system call, or [`io::ErrorKind::QuotaExceeded`] if the reactor has no place with this index. The
    /// stream is closed.
    fn open(&mut self, connection: ConnectionKey, stream: TcpStream) -> io::Result<()>;

    /// Stops reading from the connection until [`Reactor::resume`].
    fn pause(&mut self, connection: ConnectionKey);

    /// Resumes reading.
    fn resume(&mut self, connection: ConnectionKey);

    /// Whether unread bytes of the connection are known to exist, because it is paused or its turn has not come.
    fn has_unread(&self, connection: ConnectionKey) -> bool;

    /// Whether the connection is open and its socket is not full.
    fn takes_bytes(&self, connection: ConnectionKey) -> bool;

    /// The socket of an open connection, to read what the kernel knows about it. `None` also if the socket has no descriptor
    /// and none is left. Must not be called between two sends of a batch.
    fn socket(&mut self, connection: ConnectionKey) -> Option<SocketDescriptor<'_>>;

    /// Offers `slices` to the connection's socket, as one send of the current batch. Ignored while the socket is full,
    /// and when there are no slices. A connection may occur once per batch: a second send would send the same slices
    /// twice. It is ignored, and fails in a debug build.
    ///
    /// # Safety
    /// The reactor may read the slices after this method has returned. They must stay valid and unchanged until the
    /// first call of [`Reactor::sent`], or until the reactor is dropped. Until then the caller may call only this
    /// method.
    unsafe fn send<'a>(&mut self, connection: ConnectionKey, slices: impl Iterator<Item = &'a [u8]>);

    /// The next result of the current batch; `None` ends the batch. The first call completes all sends of the batch.
    fn sent(&mut self) -> Option<SendCompletion>;

    /// Shuts down the sending side of the connection. Reading continues.
    fn finish(&mut self, connection: ConnectionKey);

    /// Removes the connection and returns its socket, without sending anything. Must not be called between two sends of
    /// a batch.
    ///
    /// # Errors
    /// The connection is not open, or its socket has no descriptor and none is left. Nothing has changed then.
    fn release(&mut self, connection: ConnectionKey) -> io::Result<Released>;

    /// Closes the connection.
    fn close(&mut self, connection: ConnectionKey);

    /// The reactor's counters.
    fn counters(&self) -> ReactorCounters {
        ReactorCounters::default()
    }
}

/// A descriptor of an open connection's socket.
#[derive(Debug)]
pub enum SocketDescriptor<'a> {
    /// The only one.
    Own(BorrowedFd<'a>),
    /// One that was opened for this call.
    Opened(OwnedFd),
}

impl AsFd for SocketDescriptor<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(fd) => *fd,
            Self::Opened(fd) => fd.as_fd(),
        }
    }
}

/// A socket that the reactor has returned.
#[derive(Debug)]
pub struct Released {
    /// The socket, in non-blocking mode.
    pub stream: TcpStream,
    /// Bytes that were received and not reported.
    pub read: Vec<u8>,
}

/// Counters of a reactor that submits batches; zero for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReactorCounters {
    /// Number of times that the kernel was entered.
    pub calls: u64,
    /// How many of these calls submitted sends.
    pub batches: u64,
    /// Number of submitted sends.
    pub batched_sends: u64,
    /// Number of receives that found no free buffer and were armed again later.
    pub buffers_ran_out: u64,
}

#[cfg(test)]
mod tests;
