//! The actions of clients.

use dunlin_engine::{Event, SessionKey};
use dunlin_protocol::Encoding;

use crate::wire::ClientCommand;

use super::{CHANNELS, ClusteredWorld};

impl ClusteredWorld<'_> {
    /// Runs a random action of a client.
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
            0 if !self.clients[number].has_or_requested(channel) => {
                // Without faults, a client that moves between nodes must recover everything.
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

    /// Connects a client to a random node.
    pub(super) fn open(&mut self, number: usize) -> Result<(), String> {
        let node_index = self.chance.below(self.nodes.len());
        self.open_on(number, node_index)
    }

    pub(super) fn open_on(&mut self, number: usize, node_index: usize) -> Result<(), String> {
        let session = SessionKey { index: self.nodes[node_index].sessions, generation: 1 };
        self.nodes[node_index].sessions += 1;
        self.clients[number].open(node_index, session);
        self.handle(node_index, Event::Opened { session, wire: Encoding::Json.into(), source: None, address: None })
    }

    pub(super) fn hang_up(&mut self, number: usize) -> Result<(), String> {
        let Some((node_index, session)) = self.clients[number].session else { return Ok(()) };
        self.clients[number].leave();
        self.handle(node_index, Event::Gone { session })
    }

    pub(super) fn next_data(&mut self) -> Vec<u8> {
        self.published += 1;
        format!(r#"{{"n":{}}}"#, self.published).into_bytes()
    }

    /// Writes all queued bytes of the dirty sessions, and lets the clients read them at once.
    pub(super) fn read_dirty(&mut self, node_index: usize) -> Result<(), String> {
        for session in std::mem::take(&mut self.nodes[node_index].effects.dirty) {
            let slices: Vec<u8> = self.nodes[node_index].shard.outgoing(session).flatten().copied().collect();
            self.trace.bytes(&slices);
            let now = self.now();
            self.nodes[node_index].handle_shard(now, Event::Wrote { session, bytes: slices.len() });
            for effect in std::mem::take(&mut self.nodes[node_index].effects.list) {
                self.perform(node_index, effect)?;
            }
            let number = self.clients.iter().position(|client| client.session == Some((node_index, session)));
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

    /// Allows the pending recoveries of a client to fail if so much was published since the request that the stream
    /// cannot prove that it is complete. If it can when the reply arrives, it could at any time before.
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
                self.count("recovery excused");
            }
        }
    }
}
