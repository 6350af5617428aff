//! The actions of clients.

use crate::{harness::PromptWorld as _, wire::ClientCommand};

use super::{CHANNELS, ClusteredWorld};

impl ClusteredWorld<'_> {
    /// Runs a random action of a client.
    pub(super) fn act(&mut self) -> Result<(), String> {
        let number = self.harness.chance.below(self.clients.len());
        let channel = *self.harness.chance.pick(&CHANNELS);
        if self.clients[number].session.at.is_none() {
            return self.open(number);
        }
        if !self.clients[number].session.is_connected {
            return Ok(());
        }
        match self.harness.chance.weighted(&[50, 10, 8, 20]) {
            0 if !self.clients[number].has_or_requested(channel) => {
                // Without faults, a client that moves between nodes must recover everything.
                let must_recover = self.is_calm && self.must_recover(number, channel, 20);
                self.clients[number].subscribe(channel, must_recover);
            }
            1 => self.clients[number].unsubscribe(channel),
            2 => return self.hang_up(number),
            3 => {
                let data = self.next_data();
                self.clients[number].session.send(ClientCommand::Publish { channel: channel.to_owned(), data });
            }
            _ => {}
        }
        Ok(())
    }

    /// Connects a client to a random node.
    pub(super) fn open(&mut self, number: usize) -> Result<(), String> {
        let node_index = self.harness.chance.below(self.nodes.len());
        self.open_on(number, node_index, None)
    }

    pub(super) fn next_data(&mut self) -> Vec<u8> {
        self.published += 1;
        format!(r#"{{"n":{}}}"#, self.published).into_bytes()
    }

    /// Allows the pending recoveries of a client to fail if so much was published since the request that the stream
    /// cannot prove that it is complete. If it can when the reply arrives, it could at any time before.
    pub(super) fn excuse_recoveries(&mut self, number: usize) {
        let client = &self.clients[number];
        let is_excused = |id: &&u32| match client.session.pending.get(id) {
            Some(ClientCommand::Subscribe(subscribe)) => !self.must_recover(number, &subscribe.channel, 0),
            _ => false,
        };
        let excused: Vec<u32> = client.must_recover.iter().filter(is_excused).copied().collect();
        for id in excused {
            self.clients[number].must_recover.remove(&id);
            self.harness.count("recovery excused");
        }
    }
}
