//! Compares the node's state with its clients' when nothing is in flight.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_engine::{
    Wire,
    api::{ApiAnswer, ApiRequest, Survey},
};

use crate::{
    client::{Client, ClientPhase},
    model::{Fate, Publisher},
    socket::ServerSide,
};

use super::NodeWorld;

impl NodeWorld {
    /// Compares everything. The node must be at rest.
    pub(super) fn census(&mut self) -> Result<(), String> {
        for client in &self.clients {
            if client.phase == ClientPhase::Live && !client.pending.is_empty() {
                return Err(format!("client {} waits for replies to {:?}", client.index, client.pending));
            }
        }
        for client in self.clients.iter().filter(|client| self.is_live(client)) {
            let (ordered, received) = client.refreshes;
            if received < ordered {
                return Err(format!("client {} was told {received} of {ordered} expiries", client.index));
            }
        }
        self.check_streams()?;
        self.check_presence()?;
        self.check_channels()?;
        self.check_survey()?;
        self.check_history_bytes()?;
        self.probe()
    }

    /// What shards have counted of their histories is what they hold.
    fn check_history_bytes(&self) -> Result<(), String> {
        for shard in &self.places {
            let [counted, held] = shard.shard.history_bytes();
            if counted != held {
                return Err(format!("histories hold {held} bytes, and {counted} are counted"));
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

    /// Nothing is missing at any subscriber; offsets are as many as publications.
    fn check_streams(&mut self) -> Result<(), String> {
        let subscribers = self.subscribers();
        for channel in self.plan.channels.clone() {
            let here = subscribers.get(&channel).cloned().unwrap_or_default();
            let positioned = here.iter().any(|&index| self.clients[index].subscriptions[&channel].positioned);
            // To ask is to use the stream, so it is left alone now and then, and forgotten.
            let top =
                if positioned || self.chance.percent(5) { self.history(&channel, -1, None, false)? } else { None };
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

    /// In the current epoch of a channel there are as many offsets as publications.
    fn check_count(&self, channel: &str, epoch: &str, top: u64) -> Result<(), String> {
        let epoch_from = self.model.channel(channel).ok_or("an unknown channel")?.epoch_from;
        let (mut least, mut most) = (0, 0);
        for (number, published) in (0..).zip(&self.model.published) {
            if published.channel != channel || !published.has_offset || published.fate == Fate::Refused {
                continue;
            }
            let is_here = published.position.as_ref().map(|(of, _)| of == epoch);
            // One that nobody saw may be in an earlier epoch, unless it was sent later.
            let surely = is_here.unwrap_or(published.fate == Fate::Accepted && number >= epoch_from);
            least += u64::from(surely);
            most += u64::from(is_here.unwrap_or(true));
        }
        if (least..=most).contains(&top) {
            return Ok(());
        }
        Err(format!("{channel}: there are {least} to {most} publications in {epoch}, and the top is {top}"))
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
            let owner = self.owner(&channel);
            let answer = self.ask(owner, ApiRequest::Presence { channel: channel.as_str().into() })?;
            let Ok(ApiAnswer::Presence(clients)) = answer else { return Err(format!("{answer:?}: no presence")) };
            let present: BTreeSet<String> = clients.iter().map(|info| info.client.to_string()).collect();
            let answer = self.ask(owner, ApiRequest::PresenceStats { channel: channel.as_str().into() })?;
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
        for shard in 0..self.places.len() {
            let answer = self.ask(shard, ApiRequest::Channels)?;
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
        for shard in 0..self.places.len() {
            let answer = self.ask(shard, ApiRequest::Survey)?;
            let Ok(ApiAnswer::Survey(survey)) = answer else { return Err(format!("{answer:?}: no survey")) };
            sum.sessions += survey.sessions;
            sum.subscriptions += survey.subscriptions;
            sum.users.extend(survey.users);
            sum.queued_bytes += survey.queued_bytes;
            sum.queued_frames += survey.queued_frames;
        }
        let users = sum.users.iter().collect::<BTreeSet<_>>().len();
        let got = (sum.sessions, sum.subscriptions, users, sum.queued_bytes, sum.queued_frames);
        if got == expected { Ok(()) } else { Err(format!("the survey says {got:?} instead of {expected:?}")) }
    }

    /// Publishes into every channel: each publication is encoded once for each encoding that its subscribers have, and
    /// delivered to each of them once.
    fn probe(&mut self) -> Result<(), String> {
        let subscribers = self.subscribers();
        let (mut encodes, mut differences, mut deliveries) = (0, 0, 0);
        let before = self.delivered();
        for channel in self.plan.channels.clone() {
            if self.plan.quiet.contains(&channel) && !self.chance.percent(10) {
                continue;
            }
            let published = self.model.published.len();
            self.publish(&channel)?;
            let last = &self.model.published[published];
            if last.fate != Fate::Accepted || last.publisher != Publisher::Api || last.data.starts_with(&[1]) {
                return self.settle();
            }
            let here = subscribers.get(&channel).map_or(&[][..], Vec::as_slice);
            let last = &self.model.published[published];
            let subscriptions =
                here.iter().map(|&index| (&self.clients[index].profile, &self.clients[index].subscriptions[&channel]));
            let classes = subscriptions.clone().map(|(profile, subscription)| {
                (profile.wire, subscription.number > 0, subscription.differences.is_some())
            });
            let classes: BTreeSet<(Wire, bool, bool)> = classes.collect();
            encodes += classes.len() as u64;
            // There may be a difference beside the whole.
            differences += classes.iter().filter(|(_, _, differs)| *differs).count() as u64;
            let wanted = subscriptions.filter(|(_, subscription)| last.passes(subscription.filter.as_ref()));
            deliveries += wanted.count() as u64;
        }
        let sessions = self.connections.len();
        self.settle()?;
        let after = self.delivered();
        // Who comes or leaves meanwhile is told to others, which is encoded as well.
        let is_undisturbed =
            sessions == self.connections.len() && subscribers == self.subscribers() && after.2 == before.2;
        let got = (after.0 - before.0, after.1 - before.1);
        let encodes = encodes..=encodes + differences;
        if is_undisturbed && !(encodes.contains(&got.0) && got.1 == deliveries) {
            return Err(format!("encodes and deliveries {got:?} instead of {:?}", (encodes, deliveries)));
        }
        Ok(())
    }

    /// Encodes, deliveries, and deliveries of joins and leaves so far.
    fn delivered(&self) -> (u64, u64, u64) {
        // Rooms tell their players something meanwhile; their namespace is the last one, behind the channels without one.
        let count = self.plan.options.namespaces.len() + usize::from(self.plan.rooms.is_none());
        let namespaces = self.places.iter().flat_map(|place| place.shard.counters().namespaces.iter().take(count));
        namespaces.fold((0, 0, 0), |(encodes, deliveries, joins), counters| {
            (encodes + counters.encodes, deliveries + counters.deliveries, joins + counters.join_leave_deliveries)
        })
    }

    /// Everybody has left, and everything that is remembered for a time is forgotten.
    pub(super) fn check_nothing_left(&mut self) -> Result<(), String> {
        let mut written_bytes = 0;
        if !self.room_requests.is_empty() {
            return Err(format!("the requests {:?} about rooms are not answered", self.room_requests));
        }
        for (index, place) in self.places.iter().enumerate() {
            let holdings = place.shard.holdings();
            if holdings.iter().any(|&held| held > 0)
                || place.shard.next_deadline_us().is_some()
                || !place.shard.is_empty()
            {
                return Err(format!(
                    "shard {index} still holds {holdings:?}: sessions, channels, owned channels, users"
                ));
            }
            if place.shard.answers_kept() != [0, 0] {
                return Err(format!("shard {index} keeps {:?} answers and bytes of them", place.shard.answers_kept()));
            }
            written_bytes += place.shard.counters().written_bytes;
            let open: u64 = place.shard.counters().namespaces.iter().map(|counters| counters.subscriptions).sum();
            if open > 0 {
                return Err(format!("shard {index} counts {open} subscriptions"));
            }
        }
        if written_bytes != self.written_bytes {
            return Err(format!("{written_bytes} bytes written were counted, {} taken", self.written_bytes));
        }
        Ok(())
    }
}
