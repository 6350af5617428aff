//! Runs until nothing is in flight, and checks the final state.

use dunlin_cluster::names::{PartitionNames, part_of};
use dunlin_engine::Event;

use crate::logged::{ChannelTruth, LogClient};

use super::{ClusteredWorld, LATER_US, LinkQueues};

/// Simulated time in which a cluster without faults finds everything that it has missed.
const REST_US: u64 = 9_000_000;

impl ClusteredWorld<'_> {
    /// No more faults: everybody gets what is missing, and whoever was at a position that can be proven goes on from there.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        // What happens last is what nothing later reveals.
        let last_actions = if self.is_calm { 0 } else { self.chance.between(0, 12) };
        for _ in 0..last_actions {
            self.act()?;
            self.publish()?;
            let pause_us = self.chance.between(0, 5_000);
            self.pass_time(pause_us)?;
            self.serve()?;
        }
        if !self.is_calm {
            self.jetstream.kill_leader(self.now_us, &mut self.links);
        }
        self.jetstream.has_faults = false;
        self.jetstream.has_stale_replicas = false;
        self.links.iter_mut().for_each(LinkQueues::heal);
        self.come_to_rest()?;
        self.check_rest()?;
        if !self.is_calm && self.chance.percent(30) {
            // Nothing behind it shows that it is missing.
            self.jetstream.hides_next = true;
            self.publish()?;
            self.come_to_rest()?;
            self.check_rest()?;
        }
        self.subscribe_again()?;
        self.come_to_rest()?;
        self.check_rest()?;
        self.check_users()?;
        if self.has_broadcasts { self.check_broadcasts() } else { Ok(()) }
    }

    fn come_to_rest(&mut self) -> Result<(), String> {
        let rest_us = self.now_us + REST_US;
        let is_idle = |client: &LogClient| client.upward.is_empty() && client.pending.is_empty();
        while self.now_us < rest_us
            || !self.asked.is_empty()
            || !self.peers.is_idle()
            || !self.clients.iter().all(is_idle)
        {
            self.steps += 1;
            self.pass_time(4_000)?;
            self.serve()?;
            if self.now_us > rest_us + REST_US {
                let waiting: Vec<_> = self.clients.iter().map(|client| &client.pending).collect();
                return Err(format!("never comes to rest: {} requests, {waiting:?}", self.asked.len()));
            }
        }
        Ok(())
    }

    fn check_rest(&self) -> Result<(), String> {
        for (number, client) in self.clients.iter().enumerate() {
            for (channel, position) in &client.live {
                let is_void = |truth: &ChannelTruth| truth.void_epochs.contains(&position.epoch);
                if self.truth.get(channel).is_some_and(is_void) {
                    if self.is_loss_provable(channel, &position.epoch) {
                        return Err(format!(
                            "client {number} at rest: {channel} goes on from a lost position {position:?}"
                        ));
                    }
                    continue;
                }
                let missing = self.truth.get(channel).and_then(|truth| truth.next(position.offset));
                if let Some(missing) = missing {
                    return Err(format!(
                        "client {number} at rest: {channel} at {}, without {missing}",
                        position.offset
                    ));
                }
            }
        }
        self.check_live_nodes()?;
        self.check_leases()?;
        let has_lost_end = self.truth.values().any(|truth| !truth.void_epochs.is_empty());
        for node in &self.nodes {
            if node.core.counters().truncations > 0 && !has_lost_end {
                return Err("a stream that has lost nothing is taken for one that has lost its end".to_owned());
            }
            if node.shard.log_holdings() != [0; 3] {
                return Err(format!("{:?} proposals, bytes, parked requests at rest", node.shard.log_holdings()));
            }
        }
        Ok(())
    }

    /// Whether a client's recovery has to be complete, though so many publications may come meanwhile.
    pub(super) fn must_recover(&self, number: usize, channel: &str, meanwhile: u64) -> bool {
        let Some(position) = self.clients[number].positions.get(channel) else { return false };
        let names = PartitionNames::new("dn", "log", part_of(channel, self.partitions));
        let truth = self.truth.get(channel);
        let is_void = truth.is_some_and(|truth| truth.void_epochs.contains(&position.epoch));
        let has_all = |truth: &ChannelTruth| {
            let subject = names.publish_subject(channel);
            self.jetstream.has_all_behind(&names.stream, &subject, position.offset, meanwhile, &truth.data)
        };
        !self.purges && !is_void && truth.is_none_or(has_all)
    }

    fn subscribe_again(&mut self) -> Result<(), String> {
        for number in 0..self.clients.len() {
            let client = &self.clients[number];
            let Some((place, session)) = client.session.filter(|_| client.is_connected) else { continue };
            let known: Vec<String> =
                client.positions.keys().filter(|channel| !client.knows(channel)).cloned().collect();
            for channel in known {
                let must_recover = self.must_recover(number, &channel, 0);
                self.clients[number].subscribe(&channel, must_recover);
            }
            while !self.clients[number].upward.is_empty() && !self.clients[number].paused {
                let frame = self.clients[number].upward.remove(0);
                self.handle(place, Event::Received { session, frame: &frame })?;
            }
        }
        Ok(())
    }

    /// Everybody leaves; nothing stays behind.
    pub(super) fn end(&mut self) -> Result<(), String> {
        (0..self.clients.len()).try_for_each(|number| self.hang_up(number))?;
        self.pass_time(LATER_US)?;
        self.come_to_rest()?;
        self.pass_time(LATER_US)?;
        self.come_to_rest()?;
        for (place, node) in self.nodes.iter().enumerate() {
            let (held, counters) = (node.shard.holdings(), node.core.counters());
            let followed = counters.followed + counters.broadcast_channels;
            if held != [0; 4] || followed > 0 {
                return Err(format!("node {place} still holds {held:?} and follows {followed} channels"));
            }
        }
        Ok(())
    }
}
