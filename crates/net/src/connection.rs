//! The table of a shard's connections. An idle connection uses no heap memory.

use std::collections::VecDeque;

use dunlin_websocket::Receiver;

use dunlin_engine::Wire;

use super::{PickedHeaders, body::RequestBody, head::HeadBuffer, reactor::ConnectionKey};

/// The connections of a shard, indexed by their keys.
#[derive(Debug, Default)]
pub struct Connections {
    entries: Vec<Connection>,
    /// Unused indices; the last one is reused first.
    free: Vec<u32>,
}

/// One entry of the table.
#[derive(Debug, Default)]
pub struct Connection {
    /// The generation of the current connection, or of the next one if the entry is unused.
    generation: u32,
    stage: Option<ConnectionStage>,
}

const _: () = assert!(size_of::<Connection>() <= 64, "an idle session pays for this");

/// The state of a connection.
#[derive(Debug)]
pub enum ConnectionStage {
    /// The head of its request is incomplete.
    Head(HeadStage),
    /// The body of its request is incomplete.
    Body(Box<BodyStage>),
    /// It is a session.
    Session(SessionStage),
    /// The connection was refused. It is read until the peer closes it; otherwise a reset could destroy the response.
    Lingering {
        /// Bytes that the peer may still send.
        bytes_left: usize,
    },
}

impl ConnectionStage {
    /// The name of the stage in logs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Head(_) => "head",
            Self::Body(_) => "body",
            Self::Session(_) => "session",
            Self::Lingering { .. } => "refused",
        }
    }
}

/// A connection whose request head is incomplete.
#[derive(Debug, Default)]
pub struct HeadStage {
    /// The part of the head that has arrived.
    pub buffer: HeadBuffer,
}

/// A connection that becomes a session when its request body is complete.
#[derive(Debug)]
pub struct BodyStage {
    /// The wire of the future session.
    pub wire: Wire,
    /// The beginning of the response.
    pub response: Vec<u8>,
    /// The part of the body that has arrived.
    pub body: RequestBody,
    /// The header fields that are forwarded to backends.
    pub headers: Option<PickedHeaders>,
    /// The deadline for the whole body, on the shard's clock.
    pub due_us: u64,
}

/// A connection with a session.
#[derive(Debug)]
pub struct SessionStage {
    /// The transport and encoding.
    pub wire: Wire,
    /// Assembles messages from bytes.
    pub receiver: Receiver,
    /// Bytes that were read, and not processed because the session was paused.
    pub unread: Unread,
    /// The engine accepts no input from this session for now.
    pub paused: bool,
    /// The client violated the protocol; further input is read and dropped.
    pub deaf: bool,
    /// Everything was sent and the sending side is shut down. The connection is read until the peer closes it;
    /// otherwise a reset could destroy data that the peer has not read.
    pub finished: bool,
    /// The incomplete message has a deadline.
    pub watched: bool,
    /// Number of bytes to ignore that the peer may still send: after the request of an HTTP client, and from a
    /// [`SessionStage::deaf`] or [`SessionStage::finished`] session.
    pub behind_bytes_left: u32,
    /// Commands from separate HTTP requests that arrived while the session was paused, oldest first.
    pub mail: Option<Box<VecDeque<Vec<u8>>>>,
}

/// Bytes that were read from a session before it was paused. A session can be paused after each message, so unprocessed
/// bytes stay in place.
#[derive(Debug, Default)]
pub struct Unread(Option<Box<UnreadBytes>>);

#[derive(Debug)]
struct UnreadBytes {
    bytes: Box<[u8]>,
    /// Number of bytes that were processed.
    received: usize,
}

impl Unread {
    /// Keeps a copy of `bytes`.
    pub fn new(bytes: &[u8]) -> Self {
        Self((!bytes.is_empty()).then(|| Box::new(UnreadBytes { bytes: bytes.into(), received: 0 })))
    }

    /// Whether all bytes were processed.
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The unprocessed bytes.
    pub fn rest_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Some(unread) => unread.bytes.get_mut(unread.received..).unwrap_or_default(),
            None => &mut [],
        }
    }

    /// Marks all but the last `left` bytes as processed. Frees the memory when `left` is 0.
    pub fn keep_last(&mut self, left: usize) {
        match &mut self.0 {
            Some(unread) if left > 0 => unread.received = unread.bytes.len().saturating_sub(left),
            _ => self.0 = None,
        }
    }
}

/// Bytes that a client may send after the request of its stream. One more byte ends the connection.
pub const STREAM_BEHIND_BYTES_MAX: u32 = 65_536;

/// Bytes that a client may send after its session was closed. One more byte ends the connection.
pub const FINISHED_BYTES_MAX: u32 = 256 * 1_024;

impl SessionStage {
    /// A new session. `inflates`: permessage-deflate was negotiated, so its client may send compressed messages.
    pub fn new(wire: Wire, inflates: bool) -> Self {
        Self {
            wire,
            receiver: if inflates { Receiver::with_deflate() } else { Receiver::new() },
            unread: Unread::default(),
            paused: false,
            // An HTTP client sends no commands after its request.
            deaf: !wire.is_websocket(),
            finished: false,
            watched: false,
            behind_bytes_left: if wire.is_websocket() { FINISHED_BYTES_MAX } else { STREAM_BEHIND_BYTES_MAX },
            mail: None,
        }
    }

    /// Counts ignored bytes. Returns whether the connection may stay open.
    pub fn take_ignored_bytes(&mut self, bytes: usize) -> bool {
        if !self.deaf && !self.finished {
            return true;
        }
        let fewer = u32::try_from(bytes).ok().and_then(|bytes| self.behind_bytes_left.checked_sub(bytes));
        self.behind_bytes_left = fewer.unwrap_or(0);
        fewer.is_some()
    }
}

impl Connections {
    /// Adds a connection.
    pub fn insert(&mut self, stage: ConnectionStage) -> ConnectionKey {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Connection::default());
            u32::try_from(self.entries.len() - 1).expect("there are fewer sockets than that")
        });
        let entry = &mut self.entries[index as usize];
        debug_assert!(entry.stage.is_none());
        entry.stage = Some(stage);
        ConnectionKey { index, generation: entry.generation }
    }

    /// The stage of a connection; `None` if it was removed.
    #[inline]
    pub fn get_mut(&mut self, key: ConnectionKey) -> Option<&mut ConnectionStage> {
        self.entries.get_mut(key.index as usize).filter(|entry| entry.generation == key.generation)?.stage.as_mut()
    }

    /// The connection's session; `None` if it has none.
    #[inline]
    pub fn session_mut(&mut self, key: ConnectionKey) -> Option<&mut SessionStage> {
        match self.get_mut(key) {
            Some(ConnectionStage::Session(session)) => Some(session),
            _ => None,
        }
    }

    /// Removes a connection. Its index may be reused from now on.
    pub fn remove(&mut self, key: ConnectionKey) -> Option<ConnectionStage> {
        self.get_mut(key)?;
        let entry = &mut self.entries[key.index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(key.index);
        entry.stage.take()
    }

    /// The number of connections.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether there are no connections.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_bytes_are_not_copied() {
        let mut unread = Unread::new(b"abcdef");
        let place = unread.rest_mut().as_ptr();
        unread.keep_last(4);
        assert_eq!(unread.rest_mut(), b"cdef");
        assert_eq!(unread.rest_mut().as_ptr(), place.wrapping_add(2));
        unread.keep_last(0);
        assert!(unread.is_empty() && unread.rest_mut().is_empty());
        assert!(Unread::default().is_empty());
    }

    #[test]
    fn a_reused_index_has_another_generation() {
        let mut connections = Connections::default();
        let first = connections.insert(ConnectionStage::Session(SessionStage::new(Wire::WebSocketJson, false)));
        let other = connections.insert(ConnectionStage::Head(HeadStage::default()));
        assert_eq!(connections.len(), 2);
        assert!(connections.session_mut(first).is_some() && connections.session_mut(other).is_none());
        assert!(connections.remove(first).is_some());
        assert!(connections.remove(first).is_none() && connections.get_mut(first).is_none());
        let second = connections.insert(ConnectionStage::Lingering { bytes_left: 0 });
        assert_eq!(second.index, first.index);
        assert_ne!(second.generation, first.generation);
        assert!(connections.get_mut(first).is_none(), "what is late for the first finds nobody");
        assert!(connections.get_mut(second).is_some());
    }
}
