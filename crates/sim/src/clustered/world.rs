//! The simulated cluster, its clients and its publishers.

mod act;
mod api;
mod broadcasts;
mod faults;
mod keys;
mod leases;
mod peers;
mod settle;
mod users;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use dunlin_cluster::{
    core::{Core, CoreEffect, CoreEvent, CoreLimits, StreamChange, leases::LeaseNames, peers::PeerEvent},
    link::{LinkEffect, LinkName},
    names::PartitionNames,
};
use dunlin_engine::{
    Effect, Event, Now, Options, Seed, SessionKey, Shard, api::ApiRequest, backend::PublishHow, event::ConnectionClaims,
};
use dunlin_protocol::Payload;

use crate::{
    chance::Chance,
    logged::{LogClient, Truth},
    trace::Trace,
};

use super::{
    broadcasts::BroadcastModel,
    jetstream::{JetStream, UNIX_MS},
    link_queues::LinkQueues,
    node::ClusterNode,
    options::options,
};
use faults::ReceivedSequences;
use keys::KeysState;
use peers::PeersState;

const CHANNELS: [&str; 4] = ["log:a", "log:b", "log:c", "log:d"];
const KEYS: [&str; 3] = ["k0", "k1", "k2"];
const LATER_US: u64 = 400_000_000;

/// Functions of tests that prepare the shard and the core of each node.
pub struct Prepare<'a> {
    pub shard: &'a dyn Fn(&mut Shard),
    pub core: &'a dyn Fn(&mut Core),
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
pub struct ClusteredWorld<'a> {
    prepare: Prepare<'a>,
    chance: Chance,
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
    keyed: BTreeMap<(String, &'static str), u64>,
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
    now_us: u64,
    steps: u64,
    trace: Trace,
    reached: BTreeMap<String, u64>,
}

impl<'a> ClusteredWorld<'a> {
    /// Creates the world of `seed`.
    pub fn new(seed: u64, prints: bool, prepare: Prepare<'a>) -> Self {
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
            leases::prepare(&mut jetstream, seed);
        }
        let mut stream_faults = Chance::new(seed ^ 0x7374_7265_616d);
        let mut world = Self {
            prepare,
            partitions,
            nodes: Vec::new(),
            links: Vec::new(),
            jetstream,
            truth: Truth::new(),
            broadcasts: BroadcastModel::default(),
            peers: PeersState::new(has_peers),
            keys: KeysState::new(seed),
            clients: (0..chance.between(2, 6)).map(|_| LogClient::of_cluster()).collect(),
            requests: BTreeMap::new(),
            keyed: BTreeMap::new(),
            has_broadcasts,
            removes_history: chance.percent(30),
            truncates: chance.percent(40),
            was_truncated: false,
            loses_streams: stream_faults.percent(25),
            stream_faults,
            has_damages,
            has_lost_stream: false,
            restarts: None,
            removed_epochs: BTreeSet::new(),
            received: Vec::new(),
            is_calm: chance.percent(30),
            thread_delay_max_us: *chance.pick(&[0, 2_000, 20_000]),
            runs: 0,
            published: 0,
            tickets: 0,
            now_us: 1_000_000,
            steps: 0,
            trace: Trace::new(prints),
            reached: BTreeMap::new(),
            options,
            chance,
        };
        for _ in 0..world.chance.between(2, 3) {
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
                Self::user_of(number).clone_into(&mut client.user);
            }
        }
        world
    }

    fn new_node(&mut self) -> ClusterNode {
        self.runs += 1;
        let seed = Seed { node: self.chance.number(), shard: self.chance.seed() };
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
        ClusterNode::new(&self.options, self.runs, seed, self.partitions, limits, self.peers.is_on, &self.prepare)
    }

    /// Runs the whole simulation.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn run(&mut self) -> Result<(), String> {
        for _ in 0..self.chance.between(1, 3) {
            self.jetstream.has_faults = !self.is_calm;
            self.jetstream.has_stale_replicas = true;
            if self.is_calm && self.chance.percent(70) {
                self.attach_under_load()?;
            } else {
                for _ in 0..self.chance.between(50, 300) {
                    self.step()?;
                }
            }
            self.settle()?;
            self.was_truncated = false;
        }
        self.end()
    }

    /// The number of steps so far and the hash of the trace.
    pub fn record(&self) -> (u64, u64) {
        (self.steps, self.trace.hash())
    }

    /// How often each labelled case occurred.
    pub fn reached(&self) -> BTreeMap<String, u64> {
        let mut reached = self.reached.clone();
        let of_clients = |what: fn(&LogClient) -> u64| self.clients.iter().map(what).sum();
        reached.insert("cluster: recovered".to_owned(), of_clients(|client| client.recoveries.0));
        reached.insert("cluster: not recovered".to_owned(), of_clients(|client| client.recoveries.1));
        reached.insert("cluster: interrupted".to_owned(), of_clients(|client| client.interrupted));
        for (what, times) in &self.jetstream.reached {
            reached.insert(format!("cluster: {what}"), *times);
        }
        for node in &self.nodes {
            let counters = node.core.counters();
            let counted = [
                ("gap", counters.gaps),
                ("lost tail", counters.lost_tails),
                ("late", counters.late),
                ("truncation detected", counters.truncations),
                ("hole detected", counters.holes),
                ("ahead", counters.ahead),
                ("silence", counters.silences),
                ("key answered", counters.keys_answered),
                ("shared read", counters.shared_reads),
                ("peer window", counters.peer_windows),
                ("audit", counters.audits),
                ("retry", counters.retries),
            ];
            for (what, times) in counted {
                *reached.entry(format!("cluster: {what}")).or_insert(0) += times;
            }
        }
        reached
    }

    fn count(&mut self, what: &str) {
        *self.reached.entry(format!("cluster: {what}")).or_insert(0) += 1;
    }

    fn now(&self) -> Now {
        Now { mono_us: self.now_us, unix_ms: UNIX_MS + self.now_us / 1_000 }
    }

    fn step(&mut self) -> Result<(), String> {
        self.steps += 1;
        let pause_us = self.chance.between(0, 4_000);
        self.pass_time(pause_us)?;
        let live = if self.has_broadcasts { 12 } else { 0 };
        let (surveys, waits) = match (self.peers.is_on, self.is_calm) {
            (true, true) => (4, 0),
            (true, false) => (8, 2),
            (false, _) => (0, 0),
        };
        match self.chance.weighted(&[30, 40, 6, 2, 2, 1, 1, live, 1, surveys, waits]) {
            0 => self.act()?,
            1 => self.publish()?,
            2 => self.request_history()?,
            3..=4 | 6 | 8 if self.is_calm => {}
            3 => self.cut_link(),
            4 => self.jetstream.kill_leader(self.now_us, &mut self.links),
            5 => self.remove_history()?,
            6 => self.crash(),
            7 => self.act_live()?,
            9 => self.start_survey()?,
            10 => {
                // Lets heartbeats arrive or time out.
                let wait_us = self.chance.between(100_000, 800_000);
                self.run_for(wait_us)?;
            }
            _ if self.truncates && self.chance.percent(50) => self.truncate_stream(),
            _ => {}
        }
        if self.loses_streams && !self.is_calm && self.stream_faults.percent(1) {
            self.lose_stream();
        }
        if self.restarts.as_mut().is_some_and(|restarts| restarts.percent(3)) {
            self.restart_servers();
        }
        if self.has_damages && !self.is_calm && self.steps.is_multiple_of(64) {
            self.damage_replica();
        }
        self.serve()
    }

    /// Subscribes clients on all nodes while one node publishes. Nothing is published afterwards, so that a publication
    /// that an attach missed stays missing.
    fn attach_under_load(&mut self) -> Result<(), String> {
        for number in 0..self.clients.len() {
            if self.clients[number].session.is_none() {
                self.open(number)?;
            }
        }
        for _ in 0..self.chance.between(4, 16) {
            let number = self.chance.below(self.clients.len());
            let channel = *self.chance.pick(&CHANNELS);
            if self.clients[number].session.is_none() {
                self.open(number)?;
            } else if self.clients[number].is_open() && !self.clients[number].has_or_requested(channel) {
                let must_recover = self.must_recover(number, channel, 20);
                self.clients[number].subscribe(channel, must_recover);
            }
            if self.has_broadcasts {
                self.act_live()?;
            }
            let (channel, data) = (*self.chance.pick(&CHANNELS), self.next_data());
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
            for _ in 0..self.chance.between(1, 12) {
                self.steps += 1;
                self.pass_time(4_000)?;
                self.serve()?;
            }
            if self.peers.is_on {
                self.start_survey()?;
            }
        }
        Ok(())
    }

    fn pass_time(&mut self, pause_us: u64) -> Result<(), String> {
        self.now_us += pause_us;
        for node_index in 0..self.nodes.len() {
            while self.nodes[node_index].shard.next_deadline_us().is_some_and(|due_us| due_us <= self.now_us) {
                self.handle(node_index, Event::Woke)?;
            }
            while self.nodes[node_index].core.next_deadline_us().is_some_and(|due_us| due_us <= self.now_us) {
                self.handle_core(node_index, CoreEvent::Woke);
            }
        }
        Ok(())
    }

    /// Delivers everything that is due.
    fn serve(&mut self) -> Result<(), String> {
        self.jetstream.step(self.now_us, &mut self.links, &mut self.truth);
        for node_index in 0..self.nodes.len() {
            while let Some(event) = self.links[node_index].take_event(self.now_us) {
                self.trace.line(self.now_us, || format!("node {node_index}: {event:?}"));
                self.record_received(node_index, &event);
                self.handle_core(node_index, CoreEvent::Link(event));
            }
            self.serve_threads(node_index)?;
        }
        self.serve_clients()?;
        self.end_closed()?;
        self.serve_peers()
    }

    fn handle(&mut self, node_index: usize, event: Event<'_>) -> Result<(), String> {
        let now = self.now();
        self.nodes[node_index].handle_shard(now, event);
        for effect in std::mem::take(&mut self.nodes[node_index].effects.list) {
            self.perform(node_index, effect)?;
        }
        self.read_dirty(node_index)?;
        while let Some(session) = self.nodes[node_index].recalled.pop() {
            self.handle(node_index, Event::Recalled { session })?;
        }
        Ok(())
    }

    fn handle_core(&mut self, node_index: usize, event: CoreEvent) {
        let now = self.nodes[node_index].on_own_clock(self.now());
        self.nodes[node_index].handle_core(now, event);
        for effect in std::mem::take(&mut self.nodes[node_index].core_effects) {
            self.perform_core(node_index, effect);
        }
    }

    fn perform_core(&mut self, node_index: usize, effect: CoreEffect) {
        self.trace.line(self.now_us, || format!("node {node_index}: {effect:?}"));
        let event = match effect {
            CoreEffect::Link(effect) => {
                let is_live =
                    matches!(effect, LinkEffect::Subscribe { .. } | LinkEffect::Publish { link: LinkName::Live, .. });
                // Subscriptions have to propagate between servers.
                let factor = if is_live { 4 } else { 1 };
                let ready_us = self.now_us + factor * self.jetstream.delay_us();
                self.links[node_index].send(self.now_us, ready_us, effect);
                return;
            }
            CoreEffect::Committed { channel, proposal, outcome, .. } => {
                self.count(if outcome.is_ok() { "committed" } else { "not committed" });
                Event::Committed { channel, proposal, outcome }
            }
            CoreEffect::TrimCommitted { ticket, outcome, .. } => {
                self.count(if outcome.is_ok() { "removal committed" } else { "removal not committed" });
                Event::TrimCommitted { ticket, outcome }
            }
            CoreEffect::Loaded { channel, load, outcome, .. } => Event::Loaded { channel, load, outcome },
            CoreEffect::Replicated { channel, record, .. } => Event::Replicated { channel, record },
            CoreEffect::Followed { channel, .. } => {
                self.count("followed");
                Event::Followed { channel }
            }
            CoreEffect::BroadcastReceived { channel, message, .. } => Event::BroadcastReceived { channel, message },
            CoreEffect::StreamChanged { change, .. } => {
                self.count(match change {
                    StreamChange::Unusable(_) => "stream unusable",
                    StreamChange::Usable => "stream usable again",
                    StreamChange::Created { .. } => "stream created by a node",
                });
                return;
            }
            CoreEffect::Trimmed { channel, through, .. } => Event::Trimmed { channel, through },
            CoreEffect::Interrupted { channel, .. } => Event::Interrupted { channel },
            CoreEffect::Peers(effect) => return self.perform_peers(node_index, effect),
        };
        self.trace.bytes(format!("{event:?}").as_bytes());
        let ready_us = self.now_us + self.thread_delay_us();
        self.nodes[node_index].to_shard.push_back((ready_us, event));
    }

    /// The delay of a message between the threads of the shard and the core.
    fn thread_delay_us(&mut self) -> u64 {
        self.chance.between(0, self.thread_delay_max_us)
    }

    /// Delivers due messages between the shard and the core of a node.
    fn serve_threads(&mut self, node_index: usize) -> Result<(), String> {
        let now_us = self.now_us;
        while let Some((_, event)) = self.nodes[node_index].to_core.pop_front_if(|(ready_us, _)| *ready_us <= now_us) {
            self.handle_core(node_index, event);
        }
        while let Some((_, event)) = self.nodes[node_index].to_shard.pop_front_if(|(ready_us, _)| *ready_us <= now_us) {
            self.handle(node_index, event)?;
        }
        Ok(())
    }

    fn perform(&mut self, node_index: usize, effect: Effect) -> Result<(), String> {
        self.trace.line(self.now_us, || format!("node {node_index}: {effect:?}"));
        let shard = dunlin_engine::ShardIndex(0);
        let namespace_of = |channel: &str| match channel.split_once(':') {
            Some(("live", _)) => 2,
            Some(("kept", _)) => 3,
            _ => 1,
        };
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
            Effect::Pause { session } => {
                self.client_of(node_index, session)?.paused = true;
                return Ok(());
            }
            Effect::Resume { session } => {
                self.client_of(node_index, session)?.paused = false;
                return Ok(());
            }
            Effect::Recall { session } => {
                self.nodes[node_index].recalled.push(session);
                return Ok(());
            }
            Effect::Answer { ticket, answer, .. } => return self.on_api_reply(ticket, &answer),
            Effect::Authenticate { session, token } => {
                let claims = ConnectionClaims { user: token.into(), ..ConnectionClaims::default() };
                let ready_us = self.now_us + self.thread_delay_us();
                let event = Event::Authenticated { session, outcome: Ok(claims) };
                self.nodes[node_index].to_shard.push_back((ready_us, event));
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
        let ready_us = self.now_us + self.thread_delay_us();
        self.nodes[node_index].to_core.push_back((ready_us, event));
        Ok(())
    }

    fn client_of(&mut self, node_index: usize, session: SessionKey) -> Result<&mut LogClient, String> {
        let mut clients = self.clients.iter_mut();
        clients
            .find(|client| client.session == Some((node_index, session)))
            .ok_or_else(|| format!("{session:?} is gone"))
    }

    fn serve_clients(&mut self) -> Result<(), String> {
        for number in 0..self.clients.len() {
            while let Some((node_index, session)) = self.clients[number].session
                && !self.clients[number].paused
                && !self.clients[number].to_server.is_empty()
            {
                let frame = self.clients[number].to_server.remove(0);
                self.handle(node_index, Event::Received { session, frame: &frame })?;
            }
        }
        Ok(())
    }
}
