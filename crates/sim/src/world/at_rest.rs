//! Runs a node until nothing is in flight, and compares its state with the state of its clients. Each room has exactly the
//! players of the clients that joined it, and their replicas equal the world.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_engine::{
    Event, Wire,
    api::{ApiAnswer, ApiRequest, Survey},
    room::RoomKey,
};
use dunlin_rooms::PlayerId;

use crate::{
    client::{Client, ClientPhase},
    model::{Outcome, Publisher},
    socket::ServerSide,
};

use super::{NodeWorld, connections::Service};

/// Rounds after which nothing may be in flight: longer than all stalls, token verifications, timeouts and answers of a backend.
const ROUNDS_MAX: u32 = 4_000;
/// Longer than all timeouts and retention times.
const EXPIRE_ALL_US: u64 = 400_000_000;
/// Rounds of two milliseconds after which each subscription with a pace has had its turn.
const TURN_ROUNDS: u32 = 30;
/// Rounds of two milliseconds after which each player with a bandwidth limit has paid its debt of one snapshot, and saved as much as
/// it may.
const SAVING_ROUNDS: u32 = 2_000;
/// Ticks after which all replicas must equal the world.
const QUIET_TICKS: u32 = 2;
/// Ticks within which a room without players must be closed, in addition to its timeouts.
const CLOSING_TICKS: u32 = 50;

/// When what is in flight at the end of a run last went on.
#[derive(Default)]
struct Progress {
    newest_request: Option<u64>,
    ticks: Option<u64>,
    active_round: u32,
    ticked_round: u32,
}

impl Progress {
    /// A session's commands to a backend wait for each other, so each of them has the whole time. A player with a limit has to save
    /// again after a tick, which a session that ends now causes.
    fn note(&mut self, round: u32, newest_request: Option<u64>, ticks: Option<u64>) {
        if ticks.is_some() && ticks != self.ticks {
            (self.ticks, self.ticked_round, self.active_round) = (ticks, round, round);
        }
        if newest_request.is_some() && newest_request != self.newest_request {
            (self.newest_request, self.active_round) = (newest_request, round);
        }
    }
}

impl NodeWorld {
    /// Delivers everything that is in flight, without new actions of clients.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        self.reconfigure_all()?;
        for ring in &mut self.node.rings {
            ring.stall(0);
        }
        (0..self.threads.rings.len()).for_each(|ring| self.threads.rings.stall(ring, 0));
        // Otherwise rooms would tick forever.
        self.threads.is_settling = true;
        let mut quiet_ticks = 0;
        let mut progress = Progress::default();
        for round in 0..10 * ROUNDS_MAX {
            progress.note(round, self.newest_blocking_request(), (quiet_ticks == 0).then(|| self.ticks()));
            if round - progress.active_round > ROUNDS_MAX {
                break;
            }
            self.settle_messages()?;
            for number in 0..self.connections.len() {
                if !self.connections[number].is_over() {
                    self.serve(number, Service::Full)?;
                }
            }
            (0..self.node.threads.len()).try_for_each(|shard| self.end_turn(shard, Service::Full))?;
            let have_turns_passed = (!self.model.has_paces || round > TURN_ROUNDS)
                && (!self.has_limited_players() || round > progress.ticked_round + SAVING_ROUNDS);
            if have_turns_passed && self.is_at_rest() && self.settle_rooms(&mut quiet_ticks)? {
                self.threads.is_settling = false;
                return Ok(());
            }
            self.pass_time(2_000)?;
        }
        Err("messages are still in flight after the maximum number of rounds".to_owned())
    }

    /// The ticks of all rooms.
    fn ticks(&self) -> u64 {
        let room_model = self.model.rooms.lock();
        self.threads.hosted().map(|hosted| u64::from(room_model.records[&hosted.record].tick)).sum()
    }

    fn newest_blocking_request(&self) -> Option<u64> {
        let requests = self.proxy_requests.iter().map(|request| &request.0);
        requests.filter(|request| request.blocks_command()).map(|request| request.number).max()
    }

    /// Delivers messages of all rings.
    pub(super) fn settle_messages(&mut self) -> Result<(), String> {
        self.harness.steps += 1;
        for ring in 0..self.node.rings.len() {
            for _ in 0..4 {
                self.deliver(ring)?;
            }
        }
        self.deliver_all_room_messages()
    }

    fn is_at_rest(&self) -> bool {
        let is_still = |connection: &crate::socket::SimConnection| {
            connection.is_over()
                || connection.server == ServerSide::Open
                    && connection.client_is_there
                    && connection.to_server.is_empty()
                    && connection.kernel.is_empty()
                    && !connection.is_dirty
        };
        self.node.is_still()
            && self.node.threads.iter().all(|thread| thread.recalled.is_empty())
            && self.threads.is_at_rest()
            && self.verifications.is_empty()
            && self.other_nodes.are_still()
            && self.node.threads.iter().all(|thread| thread.shard.unanswered_joins() == 0)
            && !self.proxy_requests.iter().any(|request| request.0.blocks_command())
            && self.connections.iter().all(is_still)
    }

    /// Ends a run: all clients leave, and the node must not hold anything.
    pub(super) fn end(&mut self) -> Result<(), String> {
        self.settle()?;
        self.check_at_rest()?;
        if self.plan.drains {
            self.actions.drained = true;
            for shard in 0..self.node.threads.len() {
                self.handle(shard, Event::Drain)?;
            }
            for _ in 0..60 {
                self.step()?;
            }
        }
        for index in 0..self.clients.len() {
            match self.clients[index].phase {
                ClientPhase::Live if self.harness.chance.percent(40) => self.send_close(index, Some(1000)),
                _ => self.drop_client(index),
            }
        }
        self.settle()?;
        self.await_closed_rooms()?;
        self.pass_time(EXPIRE_ALL_US)?;
        self.check_nothing_left()
    }

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

    /// Ticks all rooms a few more times while the rest of the node is at rest, and checks them each time. Returns
    /// whether all ticks are done.
    pub(super) fn settle_rooms(&mut self, quiet_ticks: &mut u32) -> Result<bool, String> {
        if self.plan.rooms.is_none() {
            return Ok(true);
        }
        let is_limited = self.has_limited_players();
        // A player with a limit may have missed the last tick. It has saved enough for a whole snapshot by now, but not for two.
        if !is_limited || *quiet_ticks > 0 {
            self.check_rooms().map_err(|error| format!("after {quiet_ticks} quiet ticks: {error}"))?;
        }
        if *quiet_ticks == if is_limited { 1 } else { QUIET_TICKS } {
            return Ok(true);
        }
        *quiet_ticks += 1;
        self.tick_rooms(&|_| true)?;
        Ok(false)
    }

    fn has_limited_players(&self) -> bool {
        self.plan.rooms.as_ref().is_some_and(|rooms| rooms.limits.frame_bytes_per_second.is_some())
    }

    /// Checks all rooms. The node must be at rest.
    fn check_rooms(&self) -> Result<(), String> {
        let room_model = self.model.rooms.lock();
        let mut expected: BTreeMap<RoomKey, BTreeSet<PlayerId>> = BTreeMap::new();
        for client in self.clients.iter().filter(|client| self.is_live(client)) {
            for subscription in client.subscriptions.values() {
                let Some(seat) = &subscription.seat else { continue };
                seat.check_complete(&room_model)
                    .map_err(|error| format!("client {} in {} at rest: {error}", client.index, subscription.channel))?;
                if !expected.entry(seat.room).or_default().insert(seat.player) {
                    return Err(format!("two clients have {:?} of {:?}", seat.player, seat.room));
                }
            }
        }
        let seated: usize = expected.values().map(BTreeSet::len).sum();
        for hosted in self.threads.hosted() {
            let room = hosted.record;
            let record = &room_model.records[&room];
            let expected = expected.remove(&room).unwrap_or_default();
            // Players that are away are in the world, but have no client.
            let in_world = hosted.runner.room().player_count().saturating_sub(record.away.len());
            let counts = (hosted.host.player_count(), in_world);
            let players: BTreeSet<PlayerId> =
                record.players.keys().filter(|player| !record.away.contains(player)).copied().collect();
            if players != expected || counts != (expected.len(), expected.len()) {
                return Err(format!("{room:?} has {counts:?} players, {players:?} instead of {expected:?}"));
            }
            if hosted.runner.undecodable_inputs() != record.rejected_inputs {
                let counted = hosted.runner.undecodable_inputs();
                return Err(format!(
                    "the room counted {counted} inputs that the game rejected, but there were {}",
                    record.rejected_inputs
                ));
            }
        }
        let seats: usize = self.node.threads.iter().map(|thread| thread.shard.room_holdings()[0]).sum();
        if seats != seated {
            return Err(format!("{seats} seats are taken instead of {seated}"));
        }
        match expected.first_key_value() {
            Some((room, players)) => Err(format!("clients of {players:?} are in {room:?}, which does not exist")),
            None => Ok(()),
        }
    }

    /// Waits until all rooms are closed because they have no players, and checks the counters.
    pub(super) fn await_closed_rooms(&mut self) -> Result<(), String> {
        let Some(rooms) = &self.plan.rooms else { return Ok(()) };
        let (tick_us, ticks) = (rooms.tick_us, rooms.empty_ticks_max + rooms.seat_grace_ticks + CLOSING_TICKS);
        for _ in 0..ticks {
            self.pass_time(tick_us)?;
            self.settle_messages()?;
        }
        let room_model = self.model.rooms.lock();
        let left = self
            .threads
            .hosted()
            .map(|hosted| hosted.record)
            .chain(room_model.records.iter().filter(|(_, record)| record.ended.is_empty()).map(|(room, _)| *room));
        // Without players here, a room goes on elsewhere.
        let left: Vec<RoomKey> = left.filter(|room| !self.moving.has(*room)).collect();
        if !left.is_empty() {
            return Err(format!("the rooms {left:?} are still open"));
        }
        let (mut held, mut opened, mut over) = ([0; 2], 0, 0);
        for thread in &self.node.threads {
            let [seats, rooms] = thread.shard.room_holdings();
            held = [held[0] + seats, held[1] + rooms];
            for counters in &thread.shard.counters().namespaces {
                opened += counters.rooms.opened;
                over += counters.rooms.closed + counters.rooms.failed;
            }
        }
        let records = self.threads.opened_here;
        if held == [0; 2] && (opened, over) == (records, records) {
            Ok(())
        } else {
            Err(format!("seats and rooms left {held:?}, opened {opened}, ended {over}, of {records}"))
        }
    }
}
