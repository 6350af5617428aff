//! Sends broadcasts, joins and leaves, and checks that they arrive. Broadcasts are publications without an offset.

use bytes::Bytes;
use dunlin_engine::{api::ApiRequest, backend::PublishHow};
use dunlin_protocol::Payload;

use crate::{
    clustered::broadcasts::BroadcastSource,
    harness::PromptWorld as _,
    logged::{LogClient, is_without_history},
    wire::ClientCommand,
};

use super::{CHANNELS, ClusteredWorld, PendingPublish};

pub(super) const LIVE_CHANNELS: [&str; 3] = ["live:x", "live:y", "live:z"];

/// Time after which a subscription or a broadcast has reached all nodes without faults.
pub(super) const SPREAD_US: u64 = 400_000;
/// Time after [`SPREAD_US`] within which each subscription has its reply, without faults. A follow may wait for the check of
/// subscriptions in flight. Its own check repeats a question after pauses that double, so it takes up to twice as long as
/// the subscription to reach all servers. Then the other nodes may be asked for keys. All this ends before a follow or a
/// survey times out.
const REPLIES_LATE_US: u64 = 600_000;
/// Time between publications while clients subscribe.
const PUBLISH_INTERVAL_US: u64 = 20_000;
/// Time of a step while nothing happens but what is in flight.
const ROUND_US: u64 = 4_000;

impl ClusteredWorld {
    /// Runs a random action: subscribes to or unsubscribes from a channel without history, or publishes a broadcast.
    pub(super) fn act_live(&mut self) -> Result<(), String> {
        let (number, channel) =
            (self.harness.chance.below(self.clients.len()), *self.harness.chance.pick(&LIVE_CHANNELS));
        match self.harness.chance.weighted(&[30, 8, 20, 20]) {
            0 => self.subscribe_live(number, channel),
            1 if self.clients[number].is_open() => self.clients[number].unsubscribe(channel),
            2 if self.clients[number].is_open() => {
                let node_index = self.clients[number].session.at.map_or(0, |(node_index, _)| node_index);
                let source = BroadcastSource::Client { number, run: self.nodes[node_index].run };
                let data = self.next_data();
                // The client may disconnect before it sends this, so no client must receive it.
                self.broadcasts.on_sent(channel, &data, self.published, source, 0);
                self.clients[number].session.send(ClientCommand::Publish { channel: channel.to_owned(), data });
            }
            _ => {
                let node = self.harness.chance.below(self.nodes.len());
                let channel =
                    if self.harness.chance.percent(70) { channel } else { *self.harness.chance.pick(&CHANNELS) };
                self.publish_live(node, channel)?;
            }
        }
        Ok(())
    }

    fn subscribe_live(&mut self, number: usize, channel: &str) {
        if self.clients[number].is_open() && !self.clients[number].has_or_requested(channel) {
            self.clients[number].subscribe(channel, false);
        }
    }

    /// Publishes a broadcast through the API.
    fn publish_live(&mut self, node: usize, channel: &str) -> Result<(), String> {
        let data = self.next_data();
        let how = PublishHow { skip_history: !is_without_history(channel), ..PublishHow::default() };
        self.publish_broadcast(node, channel, data, how)
    }

    pub(super) fn publish_broadcast(
        &mut self,
        node: usize,
        channel: &str,
        data: Vec<u8>,
        how: PublishHow,
    ) -> Result<(), String> {
        let source = BroadcastSource::Node { run: self.nodes[node].run };
        self.broadcasts.on_sent(channel, &data, self.published, source, self.harness.now_us);
        let payload = Payload::from_json(Bytes::from(data.clone()));
        let request = ApiRequest::Publish { channel: channel.into(), data: payload, how };
        let publish =
            PendingPublish { channel: channel.to_owned(), data, key: None, is_versioned: false, is_broadcast: true };
        self.call_api(node, request, Some(publish))
    }

    /// Checks and records the messages that a client received.
    pub(super) fn check_seen(&mut self, number: usize) -> Result<(), String> {
        let Self { harness, clients, broadcasts, keys, is_calm, published, .. } = self;
        let now_us = harness.now_us;
        let client = &mut clients[number];
        keys.on_read(number, client, now_us)?;
        for channel in client.live.keys() {
            if let Some(period) = client.periods.get(channel) {
                broadcasts.on_subscribed(number, *period, now_us, *published);
            }
        }
        for seen in std::mem::take(&mut client.broadcasts) {
            broadcasts.on_seen(number, seen, *is_calm)?;
        }
        Ok(())
    }

    /// Checks that, without faults, each broadcast, join and leave reaches each subscriber exactly once.
    pub(super) fn check_broadcasts(&mut self) -> Result<(), String> {
        if !self.is_calm {
            self.broadcasts.forget_sent_before(self.harness.now_us);
        }
        let calm_from_us = if self.is_calm { 0 } else { self.harness.now_us };
        for number in 0..self.clients.len() {
            self.subscribe_live(number, LIVE_CHANNELS[0]);
        }
        self.publish_while_subscribing()?;
        self.await_replies(LIVE_CHANNELS[0])?;
        let before = self.broadcasts.announced.clone();
        let mover = (0..self.clients.len()).find(|number| self.clients[*number].live.contains_key(LIVE_CHANNELS[0]));
        for round in 0..2 {
            for node in 0..self.nodes.len() {
                for channel in LIVE_CHANNELS.iter().chain(&CHANNELS[..1]) {
                    self.publish_live(node, channel)?;
                }
            }
            if let Some(mover) = mover {
                match round {
                    0 => self.clients[mover].unsubscribe(LIVE_CHANNELS[0]),
                    _ => self.subscribe_live(mover, LIVE_CHANNELS[0]),
                }
            }
            self.run_for(SPREAD_US)?;
            self.await_replies(LIVE_CHANNELS[0])?;
        }
        for number in 0..self.clients.len() {
            let periods: Vec<(String, u64)> = self.clients[number]
                .live
                .keys()
                .filter_map(|channel| Some((channel.clone(), *self.clients[number].periods.get(channel)?)))
                .collect();
            for (channel, period) in periods {
                // In a channel with history, the subscribe reply does not wait until other nodes forward broadcasts.
                let calm_from_us = if is_without_history(&channel) { calm_from_us } else { u64::MAX };
                let times_us = (calm_from_us, SPREAD_US);
                let complete = self.broadcasts.check_complete(number, period, &channel, times_us)?;
                self.harness.count_times("broadcast seen", complete as u64);
                let is_watching = channel == LIVE_CHANNELS[0] && mover.is_some_and(|mover| mover != number);
                let (joins, leaves) = before.get(&(number, period)).copied().unwrap_or_default();
                let announced = self.broadcasts.announced.get(&(number, period)).copied().unwrap_or_default();
                if is_watching && announced != (joins + 1, leaves + 1) {
                    return Err(format!(
                        "{channel}: client {number} received {announced:?} joins and leaves, before {joins}, {leaves}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Subscribes all clients to a new channel while all nodes publish to it.
    fn publish_while_subscribing(&mut self) -> Result<(), String> {
        let channel = format!("live:{}", self.published);
        for number in 0..self.clients.len() {
            self.subscribe_live(number, &channel);
        }
        for _ in 0..SPREAD_US / PUBLISH_INTERVAL_US {
            for node in 0..self.nodes.len() {
                self.publish_live(node, &channel)?;
            }
            self.run_for(PUBLISH_INTERVAL_US)?;
        }
        Ok(())
    }

    /// Runs until each client has the reply to its subscription to a channel, and everything that follows from late
    /// replies has arrived.
    pub(super) fn await_replies(&mut self, channel: &str) -> Result<(), String> {
        let is_waiting = |client: &LogClient| {
            client.is_open() && client.has_or_requested(channel) && !client.live.contains_key(channel)
        };
        let begin_us = self.harness.now_us;
        while let Some(number) = self.clients.iter().position(is_waiting) {
            if self.harness.now_us >= begin_us + REPLIES_LATE_US {
                return Err(format!("{channel}: client {number} has no reply"));
            }
            self.run_for(ROUND_US)?;
        }
        if self.harness.now_us > begin_us { self.run_for(SPREAD_US) } else { Ok(()) }
    }

    pub(super) fn run_for(&mut self, time_us: u64) -> Result<(), String> {
        let end_us = self.harness.now_us + time_us;
        while self.harness.now_us < end_us {
            self.harness.steps += 1;
            self.pass_time(ROUND_US)?;
            self.serve_all()?;
        }
        Ok(())
    }
}
