//! Runs until nothing is in flight, and checks the final state.

use std::collections::HashSet;

use crate::harness::PromptWorld as _;

use super::LoggedWorld;

const LATER_US: u64 = 400_000_000;

impl LoggedWorld<'_> {
    /// Delivers everything that is in flight, and checks that no reply and no publication is missing. Clients at a
    /// position that the log retained must recover from it.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        self.run_until_idle()?;
        self.check_at_rest()?;
        self.resubscribe()?;
        self.run_until_idle()?;
        self.check_at_rest()
    }

    fn check_at_rest(&self) -> Result<(), String> {
        for (number, client) in self.clients.iter().enumerate() {
            for (channel, position) in &client.live {
                let missing = self.truth.get(channel).and_then(|truth| truth.next(position.offset));
                if let Some(missing) = missing {
                    return Err(format!(
                        "client {number} at rest: {channel} at {}, without {missing}",
                        position.offset
                    ));
                }
            }
        }
        for shard in &self.node.threads {
            if shard.shard.log_holdings() != [0; 3] {
                return Err(format!("proposals, bytes and parked requests at rest: {:?}", shard.shard.log_holdings()));
            }
        }
        Ok(())
    }

    fn resubscribe(&mut self) -> Result<(), String> {
        if self.log.fails() {
            return Ok(());
        }
        for number in 0..self.clients.len() {
            let client = &mut self.clients[number];
            if !client.session.is_connected {
                continue;
            }
            let known: Vec<String> =
                client.positions.keys().filter(|channel| !client.has_or_requested(channel)).cloned().collect();
            for channel in known {
                let (floor, top) = self.log.kept(&channel);
                let must_recover = (floor..=top).contains(&client.positions[&channel].offset);
                client.subscribe(&channel, must_recover);
            }
            self.serve_client(number)?;
        }
        Ok(())
    }

    /// Disconnects all clients, and checks that the node holds nothing.
    pub(super) fn end(&mut self) -> Result<(), String> {
        self.settle()?;
        (0..self.clients.len()).try_for_each(|number| self.hang_up(number))?;
        self.settle()?;
        self.pass_time(LATER_US)?;
        self.settle()?;
        self.pass_time(LATER_US)?;
        let left: HashSet<[usize; 4]> = self.node.threads.iter().map(|shard| shard.shard.holdings()).collect();
        if left.iter().all(|held| *held == [0; 4]) { Ok(()) } else { Err(format!("shards still hold {left:?}")) }
    }
}
