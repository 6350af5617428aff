//! Runs until nothing is in flight, and checks the final state.

use std::collections::HashSet;

use dunlin_engine::Event;

use super::{LogClient, LoggedWorld, ShardRing};

const SETTLE_ROUNDS_MAX: u32 = 10_000;
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

    fn run_until_idle(&mut self) -> Result<(), String> {
        for _ in 0..SETTLE_ROUNDS_MAX {
            self.steps += 1;
            self.pass_time(2_000)?;
            (0..self.rings.len()).try_for_each(|ring| self.deliver(ring))?;
            self.serve_log()?;
            self.serve_clients()?;
            let is_still = |client: &LogClient| client.to_server.is_empty() && client.pending.is_empty();
            if self.log.is_at_rest()
                && self.rings.iter().all(ShardRing::is_empty)
                && self.requests.is_empty()
                && self.clients.iter().all(is_still)
            {
                return Ok(());
            }
        }
        let waiting: Vec<_> = self.clients.iter().map(|client| &client.pending).collect();
        Err(format!("not at rest after the maximum number of rounds: {} requests, {waiting:?}", self.requests.len()))
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
        for shard in &self.shards {
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
            let Some((shard, session)) = client.session.filter(|_| client.is_connected) else { continue };
            let known: Vec<String> =
                client.positions.keys().filter(|channel| !client.has_or_requested(channel)).cloned().collect();
            for channel in known {
                let (floor, top) = self.log.kept(&channel);
                let must_recover = (floor..=top).contains(&client.positions[&channel].offset);
                client.subscribe(&channel, must_recover);
            }
            while !self.clients[number].to_server.is_empty() && !self.clients[number].paused {
                let frame = self.clients[number].to_server.remove(0);
                self.handle(shard, Event::Received { session, frame: &frame })?;
            }
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
        let left: HashSet<[usize; 4]> = self.shards.iter().map(|shard| shard.shard.holdings()).collect();
        if left.iter().all(|held| *held == [0; 4]) { Ok(()) } else { Err(format!("shards still hold {left:?}")) }
    }
}
