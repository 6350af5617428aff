//! The simulated cluster, its clients and its publishers.

mod api;
mod broadcasts;
mod faults;
mod idempotency;
mod keys;
mod peers;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use dunlin_cluster::{
    core::{CoreEffect, CoreEvent, CoreLimits, StreamChange, leases::LeaseNames, peers::PeerEvent},
    link::{LinkEffect, LinkName},
    names::{PartitionNames, part_of},
};
use dunlin_engine::{
    Effect, Event, Options, Seed,
    api::ApiRequest,
    backend::PublishHow,
    broadcast::BroadcastMessage,
    event::{ConnectionClaims, PeerKeys},
};
use dunlin_protocol::Payload;

use crate::{
    chance::Chance,
    harness::{Harness, PromptWorld, RestTimes, ShardThread, World},
    logged::{ChannelTruth, LogClient, Truth, check_complete},
    session::ClientSession,
    wire::ClientCommand,
};

use super::{
    broadcasts::BroadcastModel,
    jetstream::JetStream,
    link_queues::LinkQueues,
    node::{ClusterNode, NodeTerms},
    options::options,
};
use faults::ReceivedSequences;
use idempotency::IdempotencyKeys;
use keys::KeysState;
use peers::PeersState;

const CHANNELS: [&str; 4] = ["log:a", "log:b", "log:c", "log:d"];
const KEYS: [&str; 3] = ["k0", "k1", "k2"];
const LATER_US: u64 = 400_000_000;

/// A bug between the shard and the core of each node, which tests plant to verify that the checks find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterFlaw {
    /// A broadcast of another node is broadcast again.
    BroadcastRepeated,
    /// Other nodes are not asked for the newest publications of keys.
    KeysNotGathered,
}

/// A publish request to the API without a reply.
struct PendingPublish {
    channel: String,
    data: Vec<u8>,
    key: Option<&'static str>,
    /// Whether it has a version, so that it may be suppressed.
    is_versioned: bool,
    /// Whether it has no offset.
    is_broadcast: bool,
}

/// The whole simulation.
pub struct ClusteredWorld {
    harness: Harness,
    flaw: Option<ClusterFlaw>,
    options: Arc<Options>,
    partitions: u16,
    nodes: Vec<ClusterNode>,
    links: Vec<LinkQueues>,
    jetstream: JetStream,
    truth: Truth,
    broadcasts: BroadcastModel,
    peers: PeersState,
    keys: KeysState,
    clients: Vec<LogClient>,
    /// Requests without a reply, by ticket: the node, and the publication if it is a publish request.
    requests: BTreeMap<u64, (usize, Option<PendingPublish>)>,
    idempotency: IdempotencyKeys,
    has_broadcasts: bool,
    removes_history: bool,
    /// Whether servers may lose power.
    truncates: bool,
    was_truncated: bool,
    /// Chooses the streams that are removed or emptied, and when the store is full.
    stream_faults: Chance,
    /// Whether any of this happens.
    loses_streams: bool,
    /// Whether replicas may lose messages.
    has_damages: bool,
    has_lost_stream: bool,
    /// Chooses when the servers restart in turn; `None` if they never do.
    restarts: Option<Chance>,
    /// The epochs of removed streams.
    removed_epochs: BTreeSet<String>,
    received: Vec<ReceivedSequences>,
    /// Whether no faults happen and no audits run. The fence and the chain must detect all gaps.
    is_calm: bool,
    thread_delay_max_us: u64,
    runs: u64,
    published: u64,
    tickets: u64,
}

impl ClusteredWorld {
    /// Creates the world of `seed`.
    pub fn new(seed: u64, prints: bool, flaw: Option<ClusterFlaw>) -> Self {
        let mut chance = Chance::new(seed ^ 0x636c_7573_7465);
        // Broadcasts change the timing of everything else, and would make faults of the chain rarer.
        let has_broadcasts = seed.is_multiple_of(3);
        // Seeds with peers have no broadcasts, because connections are only partitioned without broadcasts.
        let has_peers = seed % 3 == 1;
        let sessions_max = if has_peers { chance.between(1, 3) as usize } else { 0 };
        let options = Arc::new(options(&mut chance, has_broadcasts, sessions_max));
        let partitions = chance.between(1, 2) as u16;
        let mut streams: Vec<Box<str>> =
            (0..partitions).map(|part| PartitionNames::new("dn", "log", part).stream).collect();
        streams.extend(has_peers.then(|| LeaseNames::new("dn").stream));
        let history_size = options.namespaces[0].history_size as u64;
        let routes = Chance::new(seed ^ 0x726f_7574_6573);
        let mut damages = Chance::new(seed ^ 0x6461_6d61_6765);
        let has_damages = damages.percent(20);
        let mut jetstream = JetStream::new(Chance::new(chance.number()), routes, damages, &streams, history_size);
        if has_peers {
            peers::prepare_leases(&mut jetstream, seed);
        }
        let mut stream_faults = Chance::new(seed ^ 0x7374_7265_616d);
        let clients = (0..chance.between(2, 6)).map(|_| LogClient::of_cluster()).collect();
        let (removes_history, truncates, is_calm) = (chance.percent(30), chance.percent(40), chance.percent(30));
        let thread_delay_max_us = *chance.pick(&[0, 2_000, 20_000]);
        let mut world = Self {
            harness: Harness::new(chance, prints, "cluster"),
            flaw,
            partitions,
            nodes: Vec::new(),
            links: Vec::new(),
            jetstream,
            truth: Truth::new(),
            broadcasts: BroadcastModel::default(),
            peers: PeersState::new(has_peers),
            keys: KeysState::new(seed),
            clients,
            requests: BTreeMap::new(),
            idempotency: IdempotencyKeys::default(),
            has_broadcasts,
            removes_history,
            truncates,
            was_truncated: false,
            loses_streams: stream_faults.percent(25),
            stream_faults,
            has_damages,
            has_lost_stream: false,
            restarts: None,
            removed_epochs: BTreeSet::new(),
            received: Vec::new(),
            is_calm,
            thread_delay_max_us,
            runs: 0,
            published: 0,
            tickets: 0,
            options,
        };
        for _ in 0..world.harness.chance.between(2, 3) {
            let node = world.new_node();
            world.nodes.push(node);
            world.links.push(LinkQueues::default());
            world.received.push(ReceivedSequences::default());
            world.announce(world.nodes.len() - 1);
        }
        // A node that begins a new epoch forgets the keys of the old one. So keys are checked in streams that lose nothing.
        if has_peers && !(world.truncates || world.loses_streams || world.has_damages) {
            let mut restarts = Chance::new(seed ^ 0x7265_7374_6172);
            world.restarts = restarts.percent(50).then_some(restarts);
        }
        if has_peers {
            for (number, client) in world.clients.iter_mut().enumerate() {
                Self::user_of(number).clone_into(&mut client.session.user);
            }
        }
        world
    }

    fn new_node(&mut self) -> ClusterNode {
        self.runs += 1;
        let seed = Seed { node: self.harness.chance.number(), shard: self.harness.chance.seed() };
        let limits = CoreLimits {
            publish_timeout_ms: 3_000,
            linger_ms: 200,
            follow_timeout_ms: 3_000,
            silence_timeout_ms: 1_500,
            shared_reads_min: 2,
            audit_interval_ms: if self.is_calm { LATER_US } else { 3_000 },
            publish_window_max: 16,
            // Messages that do not fit may be gone from the stream when it is read.
            buffered_max: if self.is_calm { 1_024 } else { 8 },
            // A publication counts some 300 bytes: windows of seven, or all.
            window_bytes_max: if self.runs.is_multiple_of(2) { 4_200 } else { usize::MAX },
            wide_channels_min: if self.runs.is_multiple_of(3) { 2 } else { 1_000 },
            ..CoreLimits::default()
        };
        let terms = NodeTerms { partitions: self.partitions, limits, has_leases: self.peers.is_on };
        ClusterNode::new(&self.options, self.runs, seed, terms)
    }

    fn step(&mut self) -> Result<(), String> {
        self.harness.steps += 1;
        let pause_us = self.harness.chance.between(0, 4_000);
        self.pass_time(pause_us)?;
        let live = if self.has_broadcasts { 12 } else { 0 };
        let (surveys, waits) = match (self.peers.is_on, self.is_calm) {
            (true, true) => (4, 0),
            (true, false) => (8, 2),
            (false, _) => (0, 0),
        };
        match self.harness.chance.weighted(&[30, 40, 6, 2, 2, 1, 1, live, 1, surveys, waits]) {
            0 => self.act()?,
            1 => self.publish()?,
            2 => self.request_history()?,
            3..=4 | 6 | 8 if self.is_calm => {}
            3 => self.cut_link(),
            4 => self.jetstream.kill_leader(self.harness.now_us, &mut self.links),
            5 => self.remove_history()?,
            6 => self.crash(),
            7 => self.act_live()?,
            9 => self.start_survey()?,
            10 => {
                // Lets heartbeats arrive or time out.
                let wait_us = self.harness.chance.between(100_000, 800_000);
                self.run_for(wait_us)?;
            }
            _ if self.truncates && self.harness.chance.percent(50) => self.truncate_stream(),
            _ => {}
        }
        if self.loses_streams && !self.is_calm && self.stream_faults.percent(1) {
            self.lose_stream();
        }
        if self.restarts.as_mut().is_some_and(|restarts| restarts.percent(3)) {
            self.restart_servers();
        }
        if self.has_damages && !self.is_calm && self.harness.steps.is_multiple_of(64) {
            self.damage_replica();
        }
        self.serve_all()
    }

    /// Subscribes clients on all nodes while one node publishes. Nothing is published afterwards, so that a publication
    /// that an attach missed stays missing.
    fn attach_under_load(&mut self) -> Result<(), String> {
        for number in 0..self.clients.len() {
            if self.clients[number].session.at.is_none() {
                self.open(number)?;
            }
        }
        for _ in 0..self.harness.chance.between(4, 16) {
            let number = self.harness.chance.below(self.clients.len());
            let channel = *self.harness.chance.pick(&CHANNELS);
            if self.clients[number].session.at.is_none() {
                self.open(number)?;
            } else if self.clients[number].is_open() && !self.clients[number].has_or_requested(channel) {
                let must_recover = self.must_recover(number, channel, 20);
                self.clients[number].subscribe(channel, must_recover);
            }
            if self.has_broadcasts {
                self.act_live()?;
            }
            let (channel, data) = (*self.harness.chance.pick(&CHANNELS), self.next_data());
            let payload = Payload::from_json(Bytes::from(data.clone()));
            let request = ApiRequest::Publish { channel: channel.into(), data: payload, how: PublishHow::default() };
            self.call_api(
                0,
                request,
                Some(PendingPublish {
                    channel: channel.to_owned(),
                    data,
                    key: None,
                    is_versioned: false,
                    is_broadcast: false,
                }),
            )?;
            for _ in 0..self.harness.chance.between(1, 12) {
                self.harness.steps += 1;
                self.pass_time(4_000)?;
                self.serve_all()?;
            }
            if self.peers.is_on {
                self.start_survey()?;
            }
        }
        Ok(())
    }

    fn handle_core(&mut self, node_index: usize, event: CoreEvent) {
        let now = self.nodes[node_index].on_own_clock(self.harness.now());
        self.nodes[node_index].handle_core(now, event);
        for effect in std::mem::take(&mut self.nodes[node_index].core_effects) {
            self.perform_core(node_index, effect);
        }
    }

    fn perform_core(&mut self, node_index: usize, effect: CoreEffect) {
        self.harness.line(|| format!("node {node_index}: {effect:?}"));
        let event = match effect {
            CoreEffect::Link(effect) => {
                let is_live =
                    matches!(effect, LinkEffect::Subscribe { .. } | LinkEffect::Publish { link: LinkName::Live, .. });
                // Subscriptions have to propagate between servers.
                let factor = if is_live { 4 } else { 1 };
                let ready_us = self.harness.now_us + factor * self.jetstream.delay_us();
                self.links[node_index].send(self.harness.now_us, ready_us, effect);
                return;
            }
            CoreEffect::ToShard { event, .. } => event,
            CoreEffect::StreamChanged { change, .. } => {
                self.harness.count(match change {
                    StreamChange::Unusable(_) => "stream unusable",
                    StreamChange::Usable => "stream usable again",
                    StreamChange::Created { .. } => "stream created by a node",
                });
                return;
            }
            CoreEffect::Peers(effect) => return self.perform_peers(node_index, effect),
            CoreEffect::RoomLog(_) => unreachable!("this world keeps no rooms"),
        };
        match &event {
            Event::Committed { outcome, .. } => {
                self.harness.count(if outcome.is_ok() { "committed" } else { "not committed" });
            }
            Event::TrimCommitted { outcome, .. } => {
                self.harness.count(if outcome.is_ok() { "removal committed" } else { "removal not committed" });
            }
            Event::Followed { .. } => self.harness.count("followed"),
            Event::BroadcastReceived { channel, message } => self.repeat_broadcast(node_index, channel, message),
            _ => {}
        }
        self.harness.trace.bytes(format!("{event:?}").as_bytes());
        self.send_to_shard(node_index, event);
    }

    /// A shard that repeats what another node has broadcast.
    fn repeat_broadcast(&mut self, node_index: usize, channel: &Arc<str>, message: &BroadcastMessage) {
        let repeats = self.flaw == Some(ClusterFlaw::BroadcastRepeated);
        if repeats && matches!(message, BroadcastMessage::Publication(_)) {
            let (namespace, channel, message) = (namespace_of(channel), Arc::clone(channel), message.clone());
            self.send_to_core(node_index, CoreEvent::Broadcast { namespace, channel, message });
        }
    }

    /// The delay of a message between the threads of the shard and the core.
    fn thread_delay_us(&mut self) -> u64 {
        self.harness.chance.between(0, self.thread_delay_max_us)
    }

    /// Sends an event from the thread of the core to that of the shard.
    fn send_to_shard(&mut self, node_index: usize, event: Event<'static>) {
        let ready_us = self.harness.now_us + self.thread_delay_us();
        self.nodes[node_index].to_shard.push_back((ready_us, event));
    }

    /// Sends an event from the thread of the shard to that of the core.
    fn send_to_core(&mut self, node_index: usize, event: CoreEvent) {
        let ready_us = self.harness.now_us + self.thread_delay_us();
        self.nodes[node_index].to_core.push_back((ready_us, event));
    }

    /// Delivers due messages between the shard and the core of a node.
    fn serve_threads(&mut self, node_index: usize) -> Result<(), String> {
        let now_us = self.harness.now_us;
        while let Some((_, event)) = self.nodes[node_index].to_core.pop_front_if(|(ready_us, _)| *ready_us <= now_us) {
            self.handle_core(node_index, event);
        }
        while let Some((_, event)) = self.nodes[node_index].to_shard.pop_front_if(|(ready_us, _)| *ready_us <= now_us) {
            self.handle(node_index, event)?;
        }
        Ok(())
    }
}

/// The actions of clients.
impl ClusteredWorld {
    /// Runs a random action of a client.
    fn act(&mut self) -> Result<(), String> {
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
    fn open(&mut self, number: usize) -> Result<(), String> {
        let node_index = self.harness.chance.below(self.nodes.len());
        self.open_on(number, node_index, None)
    }

    fn next_data(&mut self) -> Vec<u8> {
        self.published += 1;
        format!(r#"{{"n":{}}}"#, self.published).into_bytes()
    }

    /// Allows the pending recoveries of a client to fail if so much was published since the request that the stream
    /// cannot prove that it is complete. If it can when the reply arrives, it could at any time before.
    fn excuse_recoveries(&mut self, number: usize) {
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

/// Runs until nothing is in flight, and checks the final state.
impl ClusteredWorld {
    /// Disables faults, and checks that all clients receive what they missed. Clients at a position that can be proven
    /// must recover from it.
    fn settle(&mut self) -> Result<(), String> {
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
    fn must_recover(&self, number: usize, channel: &str, in_flight: u64) -> bool {
        let Some(position) = self.clients[number].positions.get(channel) else { return false };
        let names = PartitionNames::new("dn", "log", part_of(channel, self.partitions));
        let truth = self.truth.get(channel);
        let is_invalid = truth.is_some_and(|truth| truth.invalid_epochs.contains(&position.epoch));
        let has_all = |truth: &ChannelTruth| {
            let subject = names.publish_subject(channel);
            self.jetstream.has_all_after(&names.stream, &subject, position.offset, in_flight, &truth.data)
        };
        // A loss of messages begins a new epoch. Nodes cannot tell that the sequences of an emptied stream continue.
        let is_replaced = self.jetstream.is_replaced_after_a_loss(&names.stream, &position.epoch);
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
    fn end(&mut self) -> Result<(), String> {
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

impl World for ClusteredWorld {
    fn run(&mut self) -> Result<(), String> {
        for _ in 0..self.harness.chance.between(1, 3) {
            self.jetstream.has_faults = !self.is_calm;
            self.jetstream.has_stale_replicas = true;
            if self.is_calm && self.harness.chance.percent(70) {
                self.attach_under_load()?;
            } else {
                for _ in 0..self.harness.chance.between(50, 300) {
                    self.step()?;
                }
            }
            self.settle()?;
            self.was_truncated = false;
        }
        self.end()
    }

    fn harness(&mut self) -> &mut Harness {
        &mut self.harness
    }

    fn reached(&self) -> BTreeMap<String, u64> {
        let of_clients = |what: fn(&LogClient) -> u64| self.clients.iter().map(what).sum();
        let counted = [
            ("recovered", of_clients(|client| client.recoveries.0)),
            ("not recovered", of_clients(|client| client.recoveries.1)),
            ("interrupted", of_clients(|client| client.interrupted)),
        ];
        let of_servers = self.jetstream.reached.iter().map(|(what, times)| (*what, *times));
        let of_nodes = self.nodes.iter().flat_map(|node| {
            let counters = node.core.counters();
            [
                ("gap", counters.gaps),
                ("lost tail", counters.lost_tails),
                ("late", counters.late),
                ("truncation detected", counters.truncations),
                ("hole detected", counters.holes),
                ("ahead", counters.ahead),
                ("silence", counters.silent_connections),
                ("key answered", counters.keys_answered),
                ("key answered", counters.keys_answered),
                ("shared read", counters.shared_reads),
                ("peer window", counters.peer_windows),
                ("audit", counters.audits),
                ("retry", counters.retries),
            ]
        });
        self.harness.reached_with(counted.into_iter().chain(of_servers).chain(of_nodes))
    }
}

/// The number of a channel's namespace.
fn namespace_of(channel: &str) -> u16 {
    match channel.split_once(':') {
        Some(("live", _)) => 2,
        Some(("kept", _)) => 3,
        _ => 1,
    }
}

/// The shards are those of the nodes: each node has one.
impl PromptWorld for ClusteredWorld {
    // In the first half, a cluster without faults must have recovered everything.
    const REST: RestTimes = RestTimes { round_us: 4_000, least_us: 9_000_000, most_us: 18_000_000 };

    fn thread(&mut self, node_index: usize) -> &mut ShardThread {
        &mut self.nodes[node_index].thread
    }

    fn session(&mut self, client: usize) -> &mut ClientSession {
        &mut self.clients[client].session
    }

    fn client_count(&self) -> usize {
        self.clients.len()
    }

    fn leave(&mut self, client: usize) {
        self.clients[client].leave();
    }

    fn perform(&mut self, node_index: usize, effect: Effect) -> Result<(), String> {
        self.harness.line(|| format!("node {node_index}: {effect:?}"));
        let shard = dunlin_engine::ShardIndex(0);
        let Some(effect) = self.perform_on_session(node_index, effect)? else { return Ok(()) };
        let event = match effect {
            Effect::Propose { channel, proposal, record, begins: _, terms: _ } => {
                CoreEvent::Propose { shard, channel, namespace: 1, proposal, record }
            }
            Effect::Load { channel, load, query, terms: _ } => CoreEvent::Load { shard, channel, load, query },
            Effect::Trim { channel, ticket, .. } => CoreEvent::Trim { shard, channel, namespace: 1, ticket },
            Effect::Follow { channel } => CoreEvent::Follow { shard, namespace: namespace_of(&channel), channel },
            Effect::Unfollow { channel, only_user } => CoreEvent::Unfollow { channel, only_user },
            Effect::Broadcast { channel, message } => {
                CoreEvent::Broadcast { namespace: namespace_of(&channel), channel, message }
            }
            Effect::Answer { ticket, answer, .. } => return self.on_api_reply(ticket, &answer),
            Effect::Authenticate { session, token } => {
                let claims = ConnectionClaims { user: token.into(), ..ConnectionClaims::default() };
                self.send_to_shard(node_index, Event::Authenticated { session, outcome: Ok(claims) });
                return Ok(());
            }
            Effect::QueryKeys { channel } if self.flaw == Some(ClusterFlaw::KeysNotGathered) => {
                let found = PeerKeys { keys: Vec::new(), is_partial: false };
                self.send_to_shard(node_index, Event::KeysAnswered { channel, found });
                return Ok(());
            }
            Effect::QueryKeys { channel } => self.survey_keys(node_index, channel),
            Effect::ShareUserSessions { user, sessions } => {
                CoreEvent::Peers(PeerEvent::UserSessions { user, sessions })
            }
            // The client reads the close frame.
            Effect::Finish { .. } | Effect::HangUp { .. } => return Ok(()),
            other => return Err(format!("{other:?}")),
        };
        self.send_to_core(node_index, event);
        Ok(())
    }

    fn read(&mut self, client: usize, bytes: Vec<u8>) -> Result<(), String> {
        self.excuse_recoveries(client);
        self.clients[client].read(&self.truth, true, bytes)?;
        self.check_seen(client)?;
        self.check_admitted(client)
    }

    fn pass_time(&mut self, pause_us: u64) -> Result<(), String> {
        self.harness.now_us += pause_us;
        for node_index in 0..self.nodes.len() {
            self.wake(node_index)?;
            while self.nodes[node_index].core.next_deadline_us().is_some_and(|due_us| due_us <= self.harness.now_us) {
                self.handle_core(node_index, CoreEvent::Woke);
            }
        }
        Ok(())
    }

    fn serve_all(&mut self) -> Result<(), String> {
        self.jetstream.step(self.harness.now_us, &mut self.links, &mut self.truth);
        for node_index in 0..self.nodes.len() {
            while let Some(event) = self.links[node_index].take_event(self.harness.now_us) {
                self.harness.line(|| format!("node {node_index}: {event:?}"));
                self.record_received(node_index, &event);
                self.handle_core(node_index, CoreEvent::Link(event));
            }
            self.serve_threads(node_index)?;
        }
        self.serve_clients()?;
        self.end_closed()?;
        self.serve_peers()
    }

    fn is_at_rest(&mut self) -> bool {
        self.requests.is_empty() && self.peers.is_idle()
    }
}
