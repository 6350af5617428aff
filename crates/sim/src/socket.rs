//! A connection between a client and a shard: the kernel's buffers, the bytes in flight, and which side is still open.

use std::collections::VecDeque;

use dunlin_engine::SessionKey;

use crate::client::Upward;

/// One connection. It is numbered once and never used again.
pub struct SimConnection {
    /// The client's number.
    pub client: usize,
    /// The shard's number.
    pub shard: usize,
    /// Its session there.
    pub session: SessionKey,
    /// Written by the server and not read yet.
    pub kernel: VecDeque<u8>,
    /// How much of that there may be.
    pub kernel_bytes_max: usize,
    /// Sent by the client and not taken by the server yet.
    pub upward: VecDeque<Upward>,
    /// The shard wants no commands.
    pub paused: bool,
    /// The shard has listed the session as one with something to write.
    pub is_dirty: bool,
    /// The kernel has not taken all that it was offered, and has not said since that it takes more.
    pub is_full: bool,
    /// Where the server is.
    pub server: ServerSide,
    /// Whether the client is there.
    pub client_is_there: bool,
    /// The client neither reads nor is served before this time.
    pub idle_until_us: u64,
    /// When pongs reached the shard.
    pub pongs_us: Vec<u64>,
    /// When it was opened.
    pub opened_us: u64,
    /// It was closed as slow, or might have been when another one was.
    pub may_be_slow: bool,
    /// Bytes and frames that waited after the last event.
    pub waiting: (usize, usize),
}

/// The server's side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerSide {
    /// Open.
    Open,
    /// It has ended its sending side.
    Finished,
    /// The socket is closed; the shard is still to be told.
    HungUp,
    /// The shard has been told.
    Gone,
}

impl SimConnection {
    /// Whether the shard knows the session.
    pub fn is_known(&self) -> bool {
        self.server != ServerSide::Gone
    }

    /// Whether the server still has a socket.
    pub fn has_socket(&self) -> bool {
        matches!(self.server, ServerSide::Open | ServerSide::Finished)
    }

    /// How many bytes the kernel takes now. Without a client they go nowhere, and it takes them all.
    pub fn room(&self) -> usize {
        if self.client_is_there { self.kernel_bytes_max.saturating_sub(self.kernel.len()) } else { usize::MAX }
    }

    /// Whether the client has read all that it will ever get.
    pub fn is_at_end(&self) -> bool {
        self.kernel.is_empty() && self.server != ServerSide::Open
    }

    /// Whether nothing will come of it any more.
    pub fn is_over(&self) -> bool {
        !self.is_known() && !self.client_is_there
    }
}
