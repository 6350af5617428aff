//! Runs until nothing is in flight, and checks the final state.

use crate::{
    harness::PromptWorld as _,
    logged::{ChannelTruth, check_complete},
};
use dunlin_cluster::names::{PartitionNames, part_of};

use super::{ClusteredWorld, LATER_US, LinkQueues};

impl ClusteredWorld<'_> {
    /// Disables faults, and checks that all clients receive what they missed. Clients at a position that can be proven
    /// must recover from it.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        // No later publication reveals the loss of these.
        let last_actions = if self.is_calm { 0 } else { self.harness.chance.between(0, 12) };
        for _ in 0..last_actions {
            self.act()?;
            self.publish()?;
            let pause_us = self.harness.chance.between(0, 5_000);
            self.pass_time(pause_us)?;
            self.serve_all()?;
        }
        if !self.is_calm {
            self.jetstream.kill_leader(self.harness.now_us, &mut self.links);
        }
        self.jetstream.has_faults = false;
        self.jetstream.full_until_us = 0;
        self.jetstream.has_stale_replicas = false;
        self.links.iter_mut().for_each(LinkQueues::reconnect_all);
        self.run_until_idle()?;
        self.check_at_rest()?;
        if !self.is_calm && self.harness.chance.percent(30) {
            // No later publication shows that it is missing.
            self.jetstream.skips_next_republish = true;
            self.publish()?;
            self.run_until_idle()?;
            self.check_at_rest()?;
        }
        self.resubscribe()?;
        self.run_until_idle()?;
        self.check_at_rest()?;
        self.check_users()?;
        if !self.has_broadcasts {
            return Ok(());
        }
        self.check_broadcasts()?;
        self.check_keys()
    }

    fn check_at_rest(&self) -> Result<(), String> {
        check_complete(&self.clients, &self.truth, |channel, epoch| self.is_loss_provable(channel, epoch))?;
        let (epochs, losses) = (self.jetstream.epochs_begun(), self.jetstream.losses);
        if epochs > losses {
            return Err(format!("{losses} losses of streams have begun {epochs} epochs"));
        }
        self.check_live_nodes()?;
        self.check_leases()?;
        let was_truncated = self.has_lost_stream || self.truth.values().any(|truth| !truth.invalid_epochs.is_empty());
        for (node_index, node) in self.nodes.iter().enumerate() {
            let is_up = self.links[node_index].delivers_since_us().is_some();
            if is_up && !node.core.are_streams_usable() {
                return Err(format!("node {node_index} at rest: unusable streams {:?}", node.core.unusable_streams()));
            }
            if node.core.counters().truncations > 0 && !was_truncated {
                return Err("a node detected a truncation, but no stream was truncated".to_owned());
            }
            node.thread.check_log_at_rest()?;
        }
        Ok(())
    }

    /// Whether a client's recovery must succeed even if `in_flight` more publications are stored before the reply.
    pub(super) fn must_recover(&self, number: usize, channel: &str, in_flight: u64) -> bool {
        let Some(position) = self.clients[number].positions.get(channel) else { return false };
        let names = PartitionNames::new("dn", "log", part_of(channel, self.partitions));
        let truth = self.truth.get(channel);
        let is_invalid = truth.is_some_and(|truth| truth.invalid_epochs.contains(&position.epoch));
        let has_all = |truth: &ChannelTruth| {
            let subject = names.publish_subject(channel);
            self.jetstream.has_all_after(&names.stream, &subject, position.offset, in_flight, &truth.data)
        };
        // A loss of messages begins a new epoch. Nodes cannot tell that the sequences of an emptied stream continue.
        let is_replaced = self.jetstream.is_replaced_after_emptying(&names.stream, &position.epoch);
        // A read of the damaged replica begins an epoch as well.
        let is_damaged = self.jetstream.is_damaged(&names.stream);
        !self.removes_history && !is_invalid && !is_replaced && !is_damaged && truth.is_none_or(has_all)
    }

    fn resubscribe(&mut self) -> Result<(), String> {
        for number in 0..self.clients.len() {
            for channel in self.clients[number].missed_channels() {
                let must_recover = self.must_recover(number, &channel, 0);
                self.clients[number].subscribe(&channel, must_recover);
            }
            self.serve_client(number)?;
        }
        Ok(())
    }

    /// Disconnects all clients, and checks that the nodes hold nothing.
    pub(super) fn end(&mut self) -> Result<(), String> {
        (0..self.clients.len()).try_for_each(|number| self.hang_up(number))?;
        self.pass_time(LATER_US)?;
        self.run_until_idle()?;
        self.pass_time(LATER_US)?;
        self.run_until_idle()?;
        for (node_index, node) in self.nodes.iter().enumerate() {
            let (held, counters) = (node.thread.shard.holdings(), node.core.counters());
            let followed = counters.followed + counters.broadcast_channels;
            if held != [0; 4] || followed > 0 {
                return Err(format!("node {node_index} still holds {held:?} and follows {followed} channels"));
            }
        }
        Ok(())
    }
}
