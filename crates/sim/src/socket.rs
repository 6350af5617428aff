//! A connection between a client and a shard: the kernel's buffers, the bytes in flight, and which side is still open.

use std::collections::VecDeque;

use dunlin_engine::SessionKey;

use crate::client::ToServer;

/// One connection. Its number is never reused.
pub struct SimConnection {
    /// The index of the client.
    pub client: usize,
    /// The index of the shard.
    pub shard: usize,
    /// The session on the shard.
    pub session: SessionKey,
    /// Bytes that the server wrote and the client has not read yet.
    pub kernel: VecDeque<u8>,
    /// The size of the kernel buffer.
    pub kernel_bytes_max: usize,
    /// Frames that the client sent and the server has not read yet.
    pub to_server: VecDeque<ToServer>,
    /// Whether the shard paused reading.
    pub paused: bool,
    /// Whether the shard listed the session for writing.
    pub is_dirty: bool,
    /// Whether the kernel did not take all offered bytes, and has not become writable since.
    pub is_full: bool,
    /// The state of the server's side.
    pub server: ServerSide,
    /// Whether the client's side is open.
    pub client_is_there: bool,
    /// No bytes are transferred before this time.
    pub idle_until_us: u64,
    /// When pongs reached the shard.
    pub pongs_us: Vec<u64>,
    pub opened_us: u64,
    /// Whether it was closed as slow, or may have been when another session was.
    pub may_be_slow: bool,
    /// Queued bytes and frames after the last event.
    pub queued: (usize, usize),
}

/// The state of the server's side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerSide {
    Open,
    /// The server shut down its sending side.
    Finished,
    /// The socket is closed, but the shard has not been notified.
    HungUp,
    /// The shard has been notified.
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

    /// The number of bytes that the kernel takes. If the client is gone, it takes and discards all bytes.
    pub fn room(&self) -> usize {
        if self.client_is_there { self.kernel_bytes_max.saturating_sub(self.kernel.len()) } else { usize::MAX }
    }

    /// Whether the client has read everything that the server sent before it closed its side.
    pub fn is_at_end(&self) -> bool {
        self.kernel.is_empty() && self.server != ServerSide::Open
    }

    /// Whether both sides are closed.
    pub fn is_over(&self) -> bool {
        !self.is_known() && !self.client_is_there
    }
}
