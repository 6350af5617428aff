//! The session of a client that reads at once: a WebSocket with JSON.

use std::collections::BTreeMap;

use dunlin_engine::{SessionKey, Wire};
use dunlin_protocol::Encoding;

use crate::wire::{ClientCommand, FrameReader, ServerMessage, WireFrame, decode, encode};

/// What a client receives.
pub enum Received {
    Messages(Vec<ServerMessage>),
    /// A frame without messages.
    Other(WireFrame),
}

/// A client's sessions, one after the other.
pub struct ClientSession {
    /// The shard and the key of the session, if the client is connected.
    pub at: Option<(usize, SessionKey)>,
    /// The user of the client, which is also its token. Empty for an anonymous client.
    pub user: String,
    /// Whether the shard paused reading.
    pub is_paused: bool,
    /// Frames that the client sent and the shard has not read yet.
    pub to_server: Vec<Vec<u8>>,
    /// Whether the client got a connect reply.
    pub is_connected: bool,
    /// Commands without a reply, by id.
    pub pending: BTreeMap<u32, ClientCommand>,
    reader: FrameReader,
    next_id: u32,
}

impl Default for ClientSession {
    fn default() -> Self {
        Self {
            at: None,
            user: String::new(),
            is_paused: false,
            to_server: Vec::new(),
            is_connected: false,
            pending: BTreeMap::new(),
            reader: FrameReader::new(Wire::WebSocketJson),
            next_id: 1,
        }
    }
}

impl ClientSession {
    /// Begins a session and sends the connect command.
    pub fn open(&mut self, shard: usize, session: SessionKey) {
        self.at = Some((shard, session));
        self.reader = FrameReader::new(Wire::WebSocketJson);
        (self.is_paused, self.is_connected) = (false, false);
        self.send(ClientCommand::Connect { token: self.user.clone(), subs: Vec::new() });
    }

    /// Ends the session.
    pub fn leave(&mut self) {
        self.at = None;
        self.to_server.clear();
        self.pending.clear();
        self.is_connected = false;
    }

    /// Whether nothing is queued or pending.
    pub fn is_still(&self) -> bool {
        self.to_server.is_empty() && self.pending.is_empty()
    }

    /// Sends a command and returns its id.
    pub fn send(&mut self, command: ClientCommand) -> u32 {
        let id = self.next_id;
        self.next_id += 1;
        self.to_server.push(encode(Encoding::Json, &[(id, command.clone())]));
        self.pending.insert(id, command);
        id
    }

    /// The next frame that the shard reads, with the shard and the session.
    pub fn next_frame(&mut self) -> Option<(usize, SessionKey, Vec<u8>)> {
        let (shard, session) = self.at.filter(|_| !self.is_paused && !self.to_server.is_empty())?;
        Some((shard, session, self.to_server.remove(0)))
    }

    /// Adds bytes that the shard wrote.
    pub fn feed(&mut self, bytes: Vec<u8>) {
        self.reader.feed(bytes.into_iter());
    }

    /// Reads the next complete frame.
    ///
    /// # Errors
    /// If it is not valid.
    pub fn next(&mut self) -> Result<Option<Received>, String> {
        Ok(match self.reader.next()? {
            Some(WireFrame::Text(payload)) => Some(Received::Messages(decode(Encoding::Json, &payload)?)),
            other => other.map(Received::Other),
        })
    }

    /// The command that a message answers.
    ///
    /// # Errors
    /// If no command waits for it.
    pub fn answered(&mut self, message: &ServerMessage) -> Result<ClientCommand, String> {
        self.pending.remove(&message.id).ok_or_else(|| "a reply to an unknown command".to_owned())
    }
}
