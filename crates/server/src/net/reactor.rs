//! What a shard asks of the system: one narrow interface, in the shape of completions.
//!
//! A turn is: [`Reactor::wait`] once, [`Reactor::next`] until it has no more to say, then batches of [`Reactor::send`] with
//! their results from [`Reactor::sent`]. A completion carries the bytes that were read, not the news that there is something
//! to read; so a reactor may have read into one shared buffer just now, or into a ring of buffers long before.

use std::{io, net::TcpStream, time::Duration};

use dunlin_engine::SessionKey;

/// Which connection. It is given by the shard when a socket is opened, and the session that the connection becomes has the
/// same key.
pub type ConnectionKey = SessionKey;

/// The one buffer that a shard reads all its sockets with.
pub const READ_BUFFER_BYTES: usize = 65_536;

/// Slices that one send takes; what else is offered is left for the next.
pub const SEND_SLICES_MAX: usize = 64;

/// Something that has happened.
#[derive(Debug)]
pub enum Completion<'a> {
    /// Another thread called.
    Woken,
    /// A client connected.
    Accepted {
        /// Its socket, non-blocking, to be given back with [`Reactor::open`].
        stream: TcpStream,
    },
    /// A connection could not be accepted.
    AcceptFailed {
        /// Whether that was for want of file descriptors.
        out_of_files: bool,
    },
    /// Bytes came. Told at most once a turn for a connection.
    Received {
        /// From whom.
        connection: ConnectionKey,
        /// Which; good until the next call. They may be changed in place.
        bytes: &'a mut [u8],
    },
    /// A socket that was full takes bytes again.
    Writable {
        /// Which.
        connection: ConnectionKey,
    },
    /// The peer has ended its side, or the connection broke. Nothing more is received.
    Ended {
        /// Which.
        connection: ConnectionKey,
    },
}

/// How one send of a batch went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Whose.
    pub connection: ConnectionKey,
    /// Slices that were offered.
    pub slices: usize,
    /// Bytes that were offered.
    pub offered_bytes: usize,
    /// Bytes that the kernel took.
    pub written_bytes: usize,
    /// Whether the rest was taken or not.
    pub outcome: SendOutcome,
}

/// What became of what was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// All of it is with the kernel.
    All,
    /// The socket is full. [`Completion::Writable`] will tell when it no longer is; until then sends are ignored.
    Full,
    /// The connection is broken.
    Broken,
}

/// The sockets of one shard.
pub trait Reactor {
    /// Sends that are worth collecting before their results are asked for.
    const BATCH_MAX: usize;

    /// Waits until something happens, or for `timeout`; `None` is for ever. Begins a turn.
    ///
    /// # Errors
    /// Of the system. There is no going on after it.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    /// The next thing that has happened, as far as it belongs into this turn. Without `intake` nothing is accepted or read:
    /// what came stays where it is.
    fn next(&mut self, intake: bool) -> Option<Completion<'_>>;

    /// Whether something is known to be left for the next turn's [`Reactor::next`], so that waiting for it would be wrong.
    fn has_more(&self) -> bool;

    /// Accepts no more connections.
    fn stop_listening(&mut self);

    /// Takes up a connection.
    ///
    /// # Errors
    /// Of the system; the stream is closed.
    fn open(&mut self, connection: ConnectionKey, stream: TcpStream) -> io::Result<()>;

    /// Reads no more from the connection until [`Reactor::resume`].
    fn pause(&mut self, connection: ConnectionKey);

    /// Reads again.
    fn resume(&mut self, connection: ConnectionKey);

    /// Whether bytes of the connection are known to wait, because it is paused or its turn has not come.
    fn has_unread(&self, connection: ConnectionKey) -> bool;

    /// Whether the connection is there and its socket is not full.
    fn takes_bytes(&self, connection: ConnectionKey) -> bool;

    /// Offers `slices` to the connection's socket, as one send of the current batch. Ignored while the socket is full, and
    /// when there is nothing to send. A connection is offered for at most once in a batch.
    ///
    /// # Safety
    /// The reactor may read the slices after this has returned: they stay valid and unchanged until [`Reactor::sent`] has
    /// been asked for the first result of the batch, or the reactor is gone. Until then it is asked for nothing but sends.
    unsafe fn send<'a>(&mut self, connection: ConnectionKey, slices: impl Iterator<Item = &'a [u8]>);

    /// The next result of the current batch; `None` ends it. With the first, all sends of the batch have been made.
    fn sent(&mut self) -> Option<Sent>;

    /// Ends the sending side of the connection; it is still received from.
    fn finish(&mut self, connection: ConnectionKey);

    /// Gives the connection's socket back, without a word to the peer. Not to be asked for between two sends of a batch.
    fn release(&mut self, connection: ConnectionKey) -> Option<Released>;

    /// Closes the connection.
    fn close(&mut self, connection: ConnectionKey) {
        drop(self.release(connection));
    }

    /// What the reactor has counted.
    fn counters(&self) -> ReactorCounters {
        ReactorCounters::default()
    }
}

/// A socket that was given back.
#[derive(Debug)]
pub struct Released {
    /// It, in non-blocking mode.
    pub stream: TcpStream,
    /// What had been received from it and not been told.
    pub read: Vec<u8>,
}

/// Counts of a reactor that works in batches; zero for one that does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReactorCounters {
    /// Times that the kernel was entered.
    pub calls: u64,
    /// Of these, how often to submit sends.
    pub batches: u64,
    /// Sends that were submitted in all of these.
    pub batched_sends: u64,
    /// Receives that found no buffer free, and were armed again later.
    pub buffers_ran_out: u64,
}

#[cfg(test)]
mod tests;
