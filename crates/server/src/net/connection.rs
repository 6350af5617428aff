//! The table of a shard's connections. Dense, small, and nothing on the heap for one that is idle.

use std::collections::VecDeque;

use dunlin_websocket::Receiver;

use dunlin_engine::Wire;

use crate::backend::PickedHeaders;

use super::{body::Body, head::HeadBuffer, reactor::ConnectionKey};

/// The connections of a shard, by the index of their keys.
#[derive(Debug, Default)]
pub struct Connections {
    entries: Vec<Connection>,
    /// Indices of entries without a stage, used again from the end.
    free: Vec<u32>,
}

/// One place in the table.
#[derive(Debug, Default)]
pub struct Connection {
    /// Of the connection that is here now, or will be next.
    generation: u32,
    stage: Option<Stage>,
}

const _: () = assert!(size_of::<Connection>() <= 64, "an idle session pays for this");

/// How far a connection has come.
#[derive(Debug)]
pub enum Stage {
    /// Its request's head is on its way.
    Head(HeadStage),
    /// The body of its request is on its way.
    Body(Box<BodyStage>),
    /// It is a session.
    Session(SessionStage),
    /// It was refused, and is read until the peer hangs up, lest the answer is lost to a reset.
    Lingering {
        /// Bytes that it may still send.
        bytes_left: usize,
    },
}

/// A connection that waits for its request.
#[derive(Debug, Default)]
pub struct HeadStage {
    /// What has come of it.
    pub buffer: HeadBuffer,
}

/// A connection that becomes a session when its request is whole.
#[derive(Debug)]
pub struct BodyStage {
    /// What the session will speak.
    pub wire: Wire,
    /// The front of the response.
    pub response: Vec<u8>,
    /// What has come of the body.
    pub body: Body,
    /// What the head had in the fields that are kept.
    pub headers: Option<PickedHeaders>,
    /// When all of it has to be there, on the clock of the shard.
    pub due_us: u64,
}

/// A connection that is a session.
#[derive(Debug)]
pub struct SessionStage {
    /// What it speaks.
    pub wire: Wire,
    /// Makes messages out of bytes.
    pub receiver: Receiver,
    /// What was read and not yet received, because the session was paused.
    pub unread: Box<[u8]>,
    /// The engine wants nothing from the session for now.
    pub paused: bool,
    /// It broke the protocol; what still comes is read and dropped.
    pub deaf: bool,
    /// There is a deadline for the message that is on its way.
    pub watched: bool,
    /// Bytes that may still come behind the request of an HTTP client, which nobody looks at.
    pub behind_bytes_left: u32,
    /// What came by requests of their own while the session was paused, oldest first.
    pub mail: Option<Box<VecDeque<Vec<u8>>>>,
}

/// Bytes that a client may send behind the request that its stream answers. One more ends the connection.
pub const STREAM_BEHIND_BYTES_MAX: u32 = 65_536;

impl SessionStage {
    /// One that has just been opened, and whose client may send compressed messages if it was agreed on.
    pub fn new(wire: Wire, inflates: bool) -> Self {
        Self {
            wire,
            receiver: if inflates { Receiver::with_deflate() } else { Receiver::new() },
            unread: Box::default(),
            paused: false,
            // Behind its request, an HTTP client has nothing more to say.
            deaf: !wire.is_websocket(),
            watched: false,
            behind_bytes_left: STREAM_BEHIND_BYTES_MAX,
            mail: None,
        }
    }
}

impl Connections {
    /// Adds a connection that waits for its request.
    pub fn insert(&mut self, stage: Stage) -> ConnectionKey {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Connection::default());
            u32::try_from(self.entries.len() - 1).expect("there are fewer sockets than that")
        });
        let entry = &mut self.entries[index as usize];
        debug_assert!(entry.stage.is_none());
        entry.stage = Some(stage);
        ConnectionKey { index, generation: entry.generation }
    }

    /// The stage of a connection that is still there.
    #[inline]
    pub fn get_mut(&mut self, key: ConnectionKey) -> Option<&mut Stage> {
        self.entries.get_mut(key.index as usize).filter(|entry| entry.generation == key.generation)?.stage.as_mut()
    }

    /// The connection as a session, if it is one.
    #[inline]
    pub fn session_mut(&mut self, key: ConnectionKey) -> Option<&mut SessionStage> {
        match self.get_mut(key) {
            Some(Stage::Session(session)) => Some(session),
            _ => None,
        }
    }

    /// Takes a connection out. Its index may be used again from now on.
    pub fn remove(&mut self, key: ConnectionKey) -> Option<Stage> {
        self.get_mut(key)?;
        let entry = &mut self.entries[key.index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(key.index);
        entry.stage.take()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_comes_back_with_another_generation() {
        let mut connections = Connections::default();
        let first = connections.insert(Stage::Session(SessionStage::new(Wire::WebSocketJson, false)));
        let other = connections.insert(Stage::Head(HeadStage::default()));
        assert_eq!(connections.len(), 2);
        assert!(connections.session_mut(first).is_some() && connections.session_mut(other).is_none());
        assert!(connections.remove(first).is_some());
        assert!(connections.remove(first).is_none() && connections.get_mut(first).is_none());
        let second = connections.insert(Stage::Lingering { bytes_left: 0 });
        assert_eq!(second.index, first.index);
        assert_ne!(second.generation, first.generation);
        assert!(connections.get_mut(first).is_none(), "what is late for the first finds nobody");
        assert!(connections.get_mut(second).is_some());
    }
}
