//! Compares the state of the node with the state of its clients when nothing is in flight.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_engine::{
    Wire,
    api::{ApiAnswer, ApiRequest, Survey},
};

use crate::{
    client::{Client, ClientPhase},
    model::{Outcome, Publisher},
    socket::ServerSide,
};

use super::NodeWorld;

impl NodeWorld {
    /// Runs all checks. The node must be at rest.
    pub(super) fn check_at_rest(&mut self) -> Result<(), String> {
        for client in &self.clients {
            if client.phase == ClientPhase::Live && !client.pending.is_empty() {
                return Err(format!("client {} waits for replies to {:?}", client.index, client.pending));
            }
        }
        for client in self.clients.iter().filter(|client| self.is_live(client)) {
            let (ordered, received) = client.refreshes;
            if received < ordered {
                return Err(format!("client {} received {received} of {ordered} expiries", client.index));
            }
        }
        self.check_streams()?;
        self.check_presence()?;
        self.check_channels()?;
        self.check_survey()?;
        self.check_history_bytes()?;
        self.check_encodes()
    }

    /// Checks that the byte counters of the shards match the size of their histories.
    fn check_history_bytes(&self) -> Result<(), String> {
        for thread in &self.node.threads {
            let [counted, held] = thread.shard.history_bytes();
            if counted != held {
                return Err(format!("histories hold {held} bytes, but {counted} are counted"));
            }
        }
        Ok(())
    }

    pub(super) fn is_live(&self, client: &Client) -> bool {
        client.phase == ClientPhase::Live
            && client.connection.is_some_and(|number| self.connections[number].server == ServerSide::Open)
    }

    /// Live subscribers by channel.
    fn subscribers(&self) -> BTreeMap<String, Vec<usize>> {
        let mut subscribers: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for client in self.clients.iter().filter(|client| self.is_live(client)) {
            for channel in client.subscriptions.keys() {
                subscribers.entry(channel.clone()).or_default().push(client.index);
            }
        }
        subscribers
    }

    /// Checks that no subscriber misses a publication, and that each stream has as many offsets as publications.
    fn check_streams(&mut self) -> Result<(), String> {
        let subscribers = self.subscribers();
        for channel in self.plan.channels.clone() {
            let here = subscribers.get(&channel).cloned().unwrap_or_default();
            let positioned = here.iter().any(|&index| self.clients[index].subscriptions[&channel].positioned);
            // A history request counts as use of the stream. Most idle streams are not queried, so that they can
            // expire.
            let top = if positioned || self.harness.chance.percent(5) {
                self.history(&channel, -1, None, false)?
            } else {
                None
            };
            for index in here {
                let top = top.as_ref().map(|(epoch, top)| (epoch.as_str(), *top));
                self.clients[index].subscriptions[&channel]
                    .check_complete(&self.model, top)
                    .map_err(|error| format!("client {index} at rest: {error}"))?;
            }
            if let Some((epoch, top)) = top {
                self.check_count(&channel, &epoch, top)?;
            }
        }
        Ok(())
    }

    /// Checks that the current epoch of a channel has as many offsets as publications.
    fn check_count(&self, channel: &str, epoch: &str, top: u64) -> Result<(), String> {
        let epoch_from = self.model.channel(channel).ok_or("an unknown channel")?.epoch_from;
        let (mut least, mut most) = (0, 0);
        for (number, published) in (0..).zip(&self.model.published) {
            if published.channel != channel || !published.has_offset || published.outcome == Outcome::Rejected {
                continue;
            }
            let is_here = published.position.as_ref().map(|(of, _)| of == epoch);
            // A publication that nobody received may be in an earlier epoch, unless it was sent after this one began.
            let surely = is_here.unwrap_or(published.outcome == Outcome::Accepted && number >= epoch_from);
            least += u64::from(surely);
            most += u64::from(is_here.unwrap_or(true));
        }
        if (least..=most).contains(&top) {
            return Ok(());
        }
        Err(format!("{channel}: epoch {epoch} has {least} to {most} publications, but its top offset is {top}"))
    }

    fn check_presence(&mut self) -> Result<(), String> {
        let subscribers = self.subscribers();
        for channel in self.plan.channels.clone() {
            let has_presence = self
                .model
                .channel(&channel)
                .is_some_and(|facts| facts.rules.as_ref().is_some_and(|rules| rules.presence));
            if !has_presence {
                continue;
            }
            let here = subscribers.get(&channel).map_or(&[][..], Vec::as_slice);
            let expected: BTreeSet<&str> = here.iter().map(|&index| &*self.clients[index].id).collect();
            let users: BTreeSet<&str> = here.iter().map(|&index| &*self.clients[index].profile.user).collect();
            let (expected, users) = (expected.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), users.len());
            let owner = self.node.owner(&channel);
            let answer = self.call_api(owner, ApiRequest::Presence { channel: channel.as_str().into() })?;
            let Ok(ApiAnswer::Presence(clients)) = answer else { return Err(format!("{answer:?}: no presence")) };
            let present: BTreeSet<String> = clients.iter().map(|info| info.client.to_string()).collect();
            let answer = self.call_api(owner, ApiRequest::PresenceStats { channel: channel.as_str().into() })?;
            let Ok(ApiAnswer::PresenceStats { num_clients, num_users }) = answer else {
                return Err(format!("{answer:?}: no presence stats"));
            };
            let counts = (num_clients as usize, num_users as usize);
            if present != expected || counts != (expected.len(), users) {
                return Err(format!(
                    "{channel}: present {present:?}, {counts:?} instead of {expected:?}, {users} users"
                ));
            }
        }
        Ok(())
    }

    fn check_channels(&mut self) -> Result<(), String> {
        let subscribers = self.subscribers();
        let expected: BTreeMap<String, u32> =
            subscribers.iter().map(|(channel, clients)| (channel.clone(), clients.len() as u32)).collect();
        let mut listed = BTreeMap::new();
        for shard in 0..self.node.threads.len() {
            let answer = self.call_api(shard, ApiRequest::Channels)?;
            let Ok(ApiAnswer::Channels(channels)) = answer else { return Err(format!("{answer:?}: no channels")) };
            listed.extend(channels.iter().map(|(name, count)| (name.to_string(), *count)));
        }
        if listed == expected { Ok(()) } else { Err(format!("channels {listed:?} instead of {expected:?}")) }
    }

    fn check_survey(&mut self) -> Result<(), String> {
        let live: Vec<&Client> = self.clients.iter().filter(|client| self.is_live(client)).collect();
        let subscriptions: usize = live.iter().map(|client| client.subscriptions.len()).sum();
        let users = live.iter().map(|client| &*client.profile.user).collect::<BTreeSet<_>>().len();
        let expected = (live.len() as u32, subscriptions as u32, users, 0, 0);
        let mut sum = Survey::default();
        for shard in 0..self.node.threads.len() {
            let answer = self.call_api(shard, ApiRequest::Survey)?;
            let Ok(ApiAnswer::Survey(survey)) = answer else { return Err(format!("{answer:?}: no survey")) };
            sum.sessions += survey.sessions;
            sum.subscriptions += survey.subscriptions;
            sum.users.extend(survey.users);
            sum.queued_bytes += survey.queued_bytes;
            sum.queued_frames += survey.queued_frames;
        }
        let users = sum.users.iter().collect::<BTreeSet<_>>().len();
        let got = (sum.sessions, sum.subscriptions, users, sum.queued_bytes, sum.queued_frames);
        if got == expected { Ok(()) } else { Err(format!("the survey returns {got:?} instead of {expected:?}")) }
    }

    /// Publishes to every channel and checks that each publication is encoded once for each encoding of its
    /// subscribers, and delivered once to each of them.
    fn check_encodes(&mut self) -> Result<(), String> {
        let subscribers = self.subscribers();
        let (mut encodes, mut deltas, mut deliveries) = (0, 0, 0);
        let before = self.delivered();
        for channel in self.plan.channels.clone() {
            if self.plan.rarely_used.contains(&channel) && !self.harness.chance.percent(10) {
                continue;
            }
            let published = self.model.published.len();
            self.publish(&channel)?;
            let last = &self.model.published[published];
            if last.outcome != Outcome::Accepted || last.publisher != Publisher::Api || last.data.starts_with(&[1]) {
                return self.settle();
            }
            let here = subscribers.get(&channel).map_or(&[][..], Vec::as_slice);
            let last = &self.model.published[published];
            let subscriptions =
                here.iter().map(|&index| (&self.clients[index].profile, &self.clients[index].subscriptions[&channel]));
            let classes = subscriptions.clone().map(|(profile, subscription)| {
                (profile.wire, subscription.number > 0, subscription.delta_state.is_some())
            });
            let classes: BTreeSet<(Wire, bool, bool)> = classes.collect();
            encodes += classes.len() as u64;
            // A delta may be encoded in addition to the full data.
            deltas += classes.iter().filter(|(_, _, has_delta)| *has_delta).count() as u64;
            let receivers = subscriptions.filter(|(_, subscription)| last.passes(subscription.filter.as_ref()));
            deliveries += receivers.count() as u64;
        }
        let sessions = self.connections.len();
        self.settle()?;
        let after = self.delivered();
        // Joins and leaves are encoded and delivered too, so the counters only match if nobody joined or left.
        let is_undisturbed =
            sessions == self.connections.len() && subscribers == self.subscribers() && after.2 == before.2;
        let got = (after.0 - before.0, after.1 - before.1);
        let encodes = encodes..=encodes + deltas;
        if is_undisturbed && !(encodes.contains(&got.0) && got.1 == deliveries) {
            return Err(format!("encodes and deliveries {got:?} instead of {:?}", (encodes, deliveries)));
        }
        Ok(())
    }

    /// The counters of encodes, deliveries, and deliveries of joins and leaves.
    fn delivered(&self) -> (u64, u64, u64) {
        // Rooms keep publishing. Their namespace is the last one, after the channels without a namespace.
        let count = self.plan.options.namespaces.len() + usize::from(self.plan.rooms.is_none());
        let namespaces =
            self.node.threads.iter().flat_map(|thread| thread.shard.counters().namespaces.iter().take(count));
        namespaces.fold((0, 0, 0), |(encodes, deliveries, joins), counters| {
            (encodes + counters.encodes, deliveries + counters.deliveries, joins + counters.join_leave_deliveries)
        })
    }

    /// Checks that the node holds nothing after all clients left and all timeouts passed.
    pub(super) fn check_nothing_left(&mut self) -> Result<(), String> {
        let mut written_bytes = 0;
        if !self.room_requests.is_empty() {
            return Err(format!("no reply to the room requests {:?}", self.room_requests));
        }
        for (index, thread) in self.node.threads.iter().enumerate() {
            let holdings = thread.shard.holdings();
            if holdings.iter().any(|&held| held > 0)
                || thread.shard.next_deadline_us().is_some()
                || !thread.shard.is_empty()
            {
                return Err(format!(
                    "shard {index} still holds {holdings:?}: sessions, channels, owned channels, users"
                ));
            }
            if thread.shard.answers_kept() != [0, 0] {
                return Err(format!(
                    "shard {index} still keeps shared recovery replies, count and bytes: {:?}",
                    thread.shard.answers_kept()
                ));
            }
            written_bytes += thread.shard.counters().written_bytes;
            let open: u64 = thread.shard.counters().namespaces.iter().map(|counters| counters.subscriptions).sum();
            if open > 0 {
                return Err(format!("shard {index} counts {open} subscriptions"));
            }
        }
        if written_bytes != self.written_bytes {
            return Err(format!(
                "the shards counted {written_bytes} written bytes, but the sockets took {}",
                self.written_bytes
            ));
        }
        Ok(())
    }
}
