//! The client of a player, across all its connections. It keeps its seat token, and compares each snapshot with the
//! recorded room at that tick.

use dunlin_protocol::Encoding;
use dunlin_rooms::{ObjectId, Replica};

use crate::{
    session::{ClientSession, Received},
    wire::{ClientCommand, ServerMessage, SubscribeCommand, encode_input},
};

use super::room::RoomTruth;

/// The channel of the room.
pub const CHANNEL: &str = "arena:a";

#[derive(Default)]
pub struct RoomClient {
    pub session: ClientSession,
    /// Whether its last join succeeded and it is still in the room.
    pub is_in: bool,
    /// The seat token of that join.
    pub token: Option<String>,
    /// The object that it must have after it resumed.
    pub expects: Option<ObjectId>,
    /// How often it resumed with its object.
    pub returns: u64,
    /// Its copy of the world in this connection.
    pub replica: Replica,
    number: u32,
}

impl RoomClient {
    /// Ends the connection. The token is kept.
    pub fn leave(&mut self) {
        self.session.leave();
        self.replica = Replica::default();
        (self.is_in, self.expects) = (false, None);
    }

    /// Whether a join is pending.
    pub fn waits_for_join(&self) -> bool {
        self.session.pending.values().any(|command| matches!(command, ClientCommand::Subscribe(_)))
    }

    /// Sends an input if the client is in the room.
    pub fn send_input(&mut self) {
        if self.is_in {
            self.number += 1;
            let data = encode_input(Encoding::Json, self.number, &self.number.to_le_bytes(), "");
            self.session.send(ClientCommand::Publish { channel: CHANNEL.to_owned(), data });
        }
    }

    fn join(&mut self) {
        let data = self.token.as_ref().map_or("{}".to_owned(), |token| format!(r#"{{"seat_token":"{token}"}}"#));
        let subscribe = SubscribeCommand { data: data.into_bytes(), ..SubscribeCommand::to(CHANNEL) };
        self.session.send(ClientCommand::Subscribe(subscribe.into()));
    }

    /// Reads bytes and checks the messages. Returns the highest tick in them.
    ///
    /// # Errors
    /// If a snapshot differs from the recorded room, or a command fails.
    pub fn read(&mut self, truth: &RoomTruth, bytes: Vec<u8>) -> Result<u64, String> {
        let mut seen = 0;
        self.session.feed(bytes);
        while let Some(received) = self.session.next()? {
            let messages = match received {
                Received::Messages(messages) => messages,
                Received::Other(frame) => return Err(format!("{frame:?}")),
            };
            for message in messages {
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
        let command = self.session.answered(&message)?;
        if let Some(error) = message.error {
            return Err(format!("unexpected error {} for {command:?}", error.code));
        }
        match (command, message.subscribe) {
            (ClientCommand::Connect { .. }, _) => {
                self.session.is_connected = true;
                self.join();
            }
            (ClientCommand::Subscribe(_), Some(result)) => {
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
