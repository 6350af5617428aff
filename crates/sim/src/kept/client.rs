//! The client of a player, across all its connections. It keeps its seat token, and compares each snapshot with the
//! recorded room at that tick.

use dunlin_engine::{SessionKey, Wire};
use dunlin_protocol::Encoding;
use dunlin_rooms::{ObjectId, Replica};

use crate::wire::{ClientCommand, FrameReader, ServerMessage, WireFrame, decode, encode, encode_input};

use super::room::RoomTruth;

/// The channel of the room.
pub const CHANNEL: &str = "arena:a";

pub struct RoomClient {
    /// Its session, if it is connected.
    pub session: Option<(usize, SessionKey)>,
    /// Frames that it sent and the shard has not read yet.
    pub to_server: Vec<Vec<u8>>,
    /// Whether its last join succeeded and it is still in the room.
    pub is_in: bool,
    /// The seat token of that join.
    pub token: Option<String>,
    /// The object that it must have after it resumed.
    pub expects: Option<ObjectId>,
    /// How often it resumed with its object.
    pub returns: u64,
    /// Its copy of the world.
    pub replica: Replica,
    is_connected: bool,
    pending: Vec<(u32, ClientCommand)>,
    reader: FrameReader,
    next_id: u32,
    number: u32,
}

impl RoomClient {
    /// Creates a client that is not connected.
    pub fn new() -> Self {
        Self {
            session: None,
            to_server: Vec::new(),
            is_in: false,
            token: None,
            expects: None,
            returns: 0,
            replica: Replica::default(),
            is_connected: false,
            pending: Vec::new(),
            reader: FrameReader::new(Wire::WebSocketJson),
            next_id: 1,
            number: 0,
        }
    }

    /// Begins a connection. The client joins the room once it is connected.
    pub fn open(&mut self, shard: usize, session: SessionKey) {
        self.session = Some((shard, session));
        self.reader = FrameReader::new(Wire::WebSocketJson);
        self.replica = Replica::default();
        self.send(ClientCommand::Connect { token: String::new(), subs: Vec::new() });
    }

    /// Ends the connection. The token is kept.
    pub fn leave(&mut self) {
        self.session = None;
        self.to_server.clear();
        self.pending.clear();
        (self.is_in, self.is_connected, self.expects) = (false, false, None);
    }

    /// Whether nothing is queued or pending.
    pub fn is_still(&self) -> bool {
        self.to_server.is_empty() && self.pending.is_empty()
    }

    /// Whether a join is pending.
    pub fn waits_for_join(&self) -> bool {
        self.pending.iter().any(|(_, command)| matches!(command, ClientCommand::Subscribe { .. }))
    }

    /// Sends an input if the client is in the room.
    pub fn send_input(&mut self) {
        if self.is_in {
            self.number += 1;
            let data = encode_input(Encoding::Json, self.number, &self.number.to_le_bytes(), "");
            self.send(ClientCommand::Publish { channel: CHANNEL.to_owned(), data });
        }
    }

    fn join(&mut self) {
        let data = self.token.as_ref().map_or("{}".to_owned(), |token| format!(r#"{{"seat_token":"{token}"}}"#));
        self.send(ClientCommand::Subscribe {
            channel: CHANNEL.to_owned(),
            token: String::new(),
            recover: None,
            positioned: false,
            recoverable: false,
            join_leave: false,
            reject_unrecoverable: false,
            delta: "",
            compact: false,
            filter: None,
            data: data.into_bytes(),
        });
    }

    fn send(&mut self, command: ClientCommand) {
        let id = self.next_id;
        self.next_id += 1;
        self.to_server.push(encode(Encoding::Json, &[(id, command.clone())]));
        self.pending.push((id, command));
    }

    /// Reads bytes and checks the messages. Returns the highest tick in them.
    ///
    /// # Errors
    /// If a snapshot differs from the recorded room, or a command fails.
    pub fn read(&mut self, truth: &RoomTruth, bytes: impl Iterator<Item = u8>) -> Result<u64, String> {
        let mut seen = 0;
        self.reader.feed(bytes);
        while let Some(frame) = self.reader.next()? {
            let WireFrame::Text(payload) = frame else { return Err(format!("{frame:?}")) };
            for message in decode(Encoding::Json, &payload)? {
                seen = seen.max(self.on_message(truth, message)?);
            }
        }
        Ok(seen)
    }

    fn on_message(&mut self, truth: &RoomTruth, message: ServerMessage) -> Result<u64, String> {
        if let Some(push) = message.push {
            let publication = push.publication.ok_or_else(|| format!("an unexpected push for {}", push.channel))?;
            return self.snapshot(truth, &publication.data);
        }
        let index = self.pending.iter().position(|(id, _)| *id == message.id);
        let (_, command) = self.pending.remove(index.ok_or("a reply to an unknown command")?);
        if let Some(error) = message.error {
            return Err(format!("unexpected error {} for {command:?}", error.code));
        }
        match (command, message.subscribe) {
            (ClientCommand::Connect { .. }, _) => {
                self.is_connected = true;
                self.join();
            }
            (ClientCommand::Subscribe { .. }, Some(result)) => {
                let answer: serde_json::Value = serde_json::from_slice(&result.data).map_err(|_| "no token")?;
                self.token = answer["seat_token"].as_str().map(str::to_owned);
                self.is_in = true;
            }
            (ClientCommand::Publish { .. }, _) => {}
            (command, _) => return Err(format!("{command:?} gets a reply of another kind")),
        }
        Ok(0)
    }

    fn snapshot(&mut self, truth: &RoomTruth, data: &[u8]) -> Result<u64, String> {
        let before = self.replica.tick();
        self.replica.apply(Encoding::Json, data).map_err(|error| error.to_string())?;
        let tick = self.replica.tick();
        let at = truth.ticks.get(&tick.into()).ok_or_else(|| format!("tick {tick} is received, but was never run"))?;
        let is_valid = |(id, seen): (ObjectId, &dunlin_rooms::SeenObject)| {
            at.objects.get(&id) == Some(&(seen.position, seen.state.clone()))
        };
        if tick <= before || self.replica.objects().count() != at.objects.len() || !self.replica.objects().all(is_valid)
        {
            return Err(format!("tick {tick} after {before} is seen as {:?} instead of {at:?}", self.replica));
        }
        let own = self.token.as_ref().and_then(|token| truth.joins.get(token));
        if let Some((_, player)) = own.filter(|_| self.is_in)
            && at.avatars.get(player).copied() != self.replica.avatar()
        {
            return Err(format!("tick {tick}: the client of {player:?} has {:?} of {at:?}", self.replica.avatar()));
        }
        if let Some(mine) = self.expects.take() {
            if self.replica.avatar() != Some(mine) {
                return Err(format!("a client that had {mine:?} resumes with {:?}", self.replica.avatar()));
            }
            self.returns += 1;
        }
        Ok(tick.into())
    }
}
