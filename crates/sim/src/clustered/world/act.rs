//! What clients do.

use dunlin_engine::{Event, SessionKey};
use dunlin_protocol::Encoding;

use crate::wire::ClientCommand;

use super::{CHANNELS, ClusteredWorld};

impl ClusteredWorld<'_> {
    /// A client does something.
    pub(super) fn act(&mut self) -> Result<(), String> {
        let number = self.chance.below(self.clients.len());
        let channel = *self.chance.pick(&CHANNELS);
        if self.clients[number].session.is_none() {
            return self.open(number);
        }
        if !self.clients[number].is_connected {
            return Ok(());
        }
        match self.chance.weighted(&[50, 10, 8, 20]) {
            0 if !self.clients[number].knows(channel) => {
                // Where nothing fails, a client that moves from node to node misses nothing.
                let must_recover = self.is_calm && self.must_recover(number, channel, 20);
                self.clients[number].subscribe(channel, must_recover);
            }
            1 => self.clients[number].unsubscribe(channel),
            2 => return self.hang_up(number),
            3 => {
                let data = self.next_data();
                self.clients[number].send(ClientCommand::Publish { channel: channel.to_owned(), data }, false);
            }
            _ => {}
        }
        Ok(())
    }

    /// A client connects to any node.
    pub(super) fn open(&mut self, number: usize) -> Result<(), String> {
        let place = self.chance.below(self.nodes.len());
        let session = SessionKey { index: self.nodes[place].sessions, generation: 1 };
        self.nodes[place].sessions += 1;
        self.clients[number].open(place, session);
        self.handle(place, Event::Opened { session, wire: Encoding::Json.into(), source: None, address: None })
    }

    pub(super) fn hang_up(&mut self, number: usize) -> Result<(), String> {
        let Some((place, session)) = self.clients[number].session else { return Ok(()) };
        self.clients[number].leave();
        self.handle(place, Event::Gone { session })
    }

    pub(super) fn next_data(&mut self) -> Vec<u8> {
        self.published += 1;
        format!(r#"{{"n":{}}}"#, self.published).into_bytes()
    }

    /// Every byte is written and read at once.
    pub(super) fn read_dirty(&mut self, place: usize) -> Result<(), String> {
        for session in std::mem::take(&mut self.nodes[place].effects.dirty) {
            let slices: Vec<u8> = self.nodes[place].shard.outgoing(session).flatten().copied().collect();
            self.trace.bytes(&slices);
            let now = self.now();
            self.nodes[place].handle_shard(now, Event::Wrote { session, bytes: slices.len() });
            for effect in std::mem::take(&mut self.nodes[place].effects.list) {
                self.perform(place, effect)?;
            }
            let number = self.clients.iter().position(|client| client.session == Some((place, session)));
            if let Some(number) = number {
                self.excuse_recoveries(number);
                let Self { clients, truth, .. } = self;
                clients[number].read(truth, true, slices.into_iter())?;
                self.check_seen(number)?;
                self.check_admitted(number)?;
            }
        }
        Ok(())
    }

    /// Recoveries of a client that do not have to be complete any more: so much was published since they were asked for that
    /// their streams have lost some of it, or could not prove that they have not. What is still provable when the answer
    /// comes was so all the time.
    fn excuse_recoveries(&mut self, number: usize) {
        let asks = self.clients[number].pending.iter();
        let due = asks.filter_map(|(id, (command, must_recover))| match command {
            ClientCommand::Subscribe { channel, .. } if *must_recover => Some((*id, channel)),
            _ => None,
        });
        let due: Vec<(u32, bool)> = due.map(|(id, channel)| (id, self.must_recover(number, channel, 0))).collect();
        for (id, is_due) in due {
            if !is_due && let Some((_, must_recover)) = self.clients[number].pending.get_mut(&id) {
                *must_recover = false;
                self.count("too much meanwhile");
            }
        }
    }
}
