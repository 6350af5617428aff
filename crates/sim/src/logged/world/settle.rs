//! Runs until nothing is in flight, and checks the final state.

use std::collections::HashSet;

use crate::{
    harness::{PromptWorld as _, ShardThread},
    logged::check_complete,
};

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
        check_complete(&self.clients, &self.truth, |_, _| true)?;
        self.node.threads.iter().try_for_each(ShardThread::check_log_at_rest)
    }

    fn resubscribe(&mut self) -> Result<(), String> {
        if self.log.fails() {
            return Ok(());
        }
        for number in 0..self.clients.len() {
            for channel in self.clients[number].missed_channels() {
                let (floor, top) = self.log.kept(&channel);
                let client = &mut self.clients[number];
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
