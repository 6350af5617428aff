//! The simulated node and its clients.

mod admin;
mod at_rest;
mod backend;
mod connections;
mod events;
mod flaw;
mod moving_rooms;
mod other_nodes;
mod publish;
mod rooms;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque},
    sync::Arc,
};

use dunlin_engine::{
    Options, SessionKey,
    counters::{CommandKind, Counters},
};

use crate::{
    chance::Chance,
    client::{ActContext, Client, ClientClose, ClientPhase, OperatorAction},
    harness::{Harness, SimNode, World},
    model::Model,
    plan::{LATE_WAKE_US, Plan, RESTRICTED},
    socket::SimConnection,
    token::Tokens,
};

use backend::PendingRequest;
use flaw::NodeSeam;
use moving_rooms::MovingRooms;
use other_nodes::OtherNodes;
use rooms::RoomThreads;

pub use flaw::NodeFlaw;
pub use rooms::SeatFlaw;

/// Unix time at the start of every run.
const START_UNIX_MS: u64 = 1_700_000_000_123;

/// Longer than an idempotency key is valid.
const LONG_PAUSE_US: u64 = 310_000_000;

/// Longer than a session holds a join whose client does not read.
const UNREAD_PAUSE_US_MAX: u64 = 3_500_000;

/// What the thread of a shard has apart from the shard: its inbox and its sockets.
#[derive(Default)]
struct ShardSockets {
    /// New options in its inbox.
    reconfigurations: VecDeque<Arc<Options>>,
    /// Connections by session index.
    connections: Vec<Option<usize>>,
    /// How often each session index was used.
    generations: Vec<u32>,
    /// Sessions that are written at the end of the turn.
    dirty: Vec<SessionKey>,
}

/// A token that is being verified.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Verification {
    due_us: u64,
    number: u64,
    shard: usize,
    session: SessionKey,
    is_subscription: bool,
    token: String,
}

/// Actions of operators and the backend that clients notice.
#[derive(Default)]
struct ExternalActions {
    /// Actions that ended sessions.
    disconnected: Vec<OperatorAction>,
    unsubscribed: Vec<OperatorAction>,
    /// Actions that created subscriptions.
    subscribed: Vec<OperatorAction>,
    /// Channels whose streams lost their positions.
    lost: Vec<String>,
    /// Sessions and subscriptions that the backend expired, by client id and channel. The channel of a session is
    /// empty.
    expired_by_backend: BTreeSet<(String, String)>,
    /// Whether the backend disconnected a session.
    backend_disconnected: bool,
    drained: bool,
    /// Channels with payloads that are not JSON.
    opaque: Vec<String>,
    /// The shard and the time of each close because of a missing pong.
    no_pongs: Vec<(usize, u64)>,
}

/// A node, its clients, and the connections between them.
pub struct NodeWorld {
    harness: Harness,
    plan: Plan,
    /// The options that were last sent to the node.
    running: Arc<Options>,
    node: SimNode,
    /// By shard.
    sockets: Vec<ShardSockets>,
    threads: RoomThreads,
    other_nodes: OtherNodes,
    moving: MovingRooms,
    seam: NodeSeam,
    clients: Vec<Client>,
    connections: Vec<SimConnection>,
    model: Model,
    tokens: Tokens,
    verifications: BinaryHeap<Reverse<Verification>>,
    proxy_requests: BinaryHeap<Reverse<PendingRequest>>,
    actions: ExternalActions,
    next_ticket: u64,
    /// Tickets of requests that wait for a room thread.
    room_requests: BTreeSet<u64>,
    /// Total bytes that the sockets took.
    written_bytes: u64,
}

impl NodeWorld {
    /// Creates the world of `seed`.
    pub fn new(seed: u64, prints: bool) -> Self {
        let mut chance = Chance::new(seed);
        let plan = Plan::new(seed, &mut chance);
        let mut node = SimNode::new(Arc::clone(&plan.options), chance.number());
        node.start(plan.shards, &mut chance);
        let mut harness = Harness::new(chance, prints, "whole");
        harness.start_unix_ms = START_UNIX_MS;
        let clients = plan.clients.iter().enumerate();
        Self {
            harness,
            sockets: node.threads.iter().map(|_| ShardSockets::default()).collect(),
            node,
            threads: RoomThreads::new(&plan),
            other_nodes: OtherNodes::default(),
            moving: MovingRooms::new(plan.rooms.as_ref().is_some_and(|rooms| rooms.moves)),
            clients: clients.map(|(index, profile)| Client::new(index, profile.clone())).collect(),
            connections: Vec::new(),
            model: Model::new(&plan.options, plan.all_channels().chain([RESTRICTED.to_owned()])),
            tokens: Tokens::default(),
            verifications: BinaryHeap::new(),
            proxy_requests: BinaryHeap::new(),
            actions: ExternalActions::default(),
            next_ticket: 0,
            room_requests: BTreeSet::new(),
            written_bytes: 0,
            seam: NodeSeam::default(),
            running: Arc::clone(&plan.options),
            plan,
        }
    }

    /// Plants a bug between the shards, or between a shard and its caller.
    pub fn plant_in_node(&mut self, flaw: NodeFlaw) {
        self.seam.flaw = Some(flaw);
        if flaw == NodeFlaw::OneKeyRemembered {
            for sockets in &mut self.sockets {
                sockets.reconfigurations.push_back(Arc::clone(&self.running));
            }
        }
    }

    /// Plants a bug in the room threads.
    pub fn plant(&mut self, flaw: SeatFlaw) {
        self.threads.flaw = Some(flaw);
    }

    fn step(&mut self) -> Result<(), String> {
        self.harness.steps += 1;
        let pause_us = match self.harness.chance.below(100) {
            _ if self.plan.has_long_pauses && self.harness.chance.below(400) == 0 => LONG_PAUSE_US,
            _ if self.has_seldom_pings() && self.harness.chance.below(15) == 0 => {
                self.harness.chance.between(500_000, UNREAD_PAUSE_US_MAX)
            }
            0..70 => self.harness.chance.between(0, 2_000),
            70..97 => self.harness.chance.between(2_000, 30_000),
            _ => self.harness.chance.between(30_000, 400_000),
        };
        self.pass_time(pause_us)?;
        match self.harness.chance.weighted(&[35, 30, 25, 8, 2]) {
            0 => self.deliver_some()?,
            1 => self.serve_some()?,
            2 => self.act()?,
            3 => self.run_operator_action()?,
            _ => self.stall_something(),
        }
        self.deliver_some_room_messages()?;
        self.reconfigure_some()?;
        self.serve_prompt()
    }

    /// Whether slow clients read nothing until the node settles.
    pub(super) fn has_seldom_pings(&self) -> bool {
        self.plan.rooms.as_ref().is_some_and(|rooms| rooms.seldom_pings)
    }

    /// Advances the clock. No shard wakes later than [`LATE_WAKE_US`] after its deadline.
    fn pass_time(&mut self, pause_us: u64) -> Result<(), String> {
        let until_us = self.harness.now_us + pause_us;
        loop {
            let deadline_us = self.node.threads.iter().filter_map(|thread| thread.shard.next_deadline_us()).min();
            let tick_us = self.threads.next_us().filter(|&tick_us| tick_us <= until_us);
            if let Some(tick_us) =
                tick_us.filter(|&tick_us| deadline_us.is_none_or(|deadline_us| tick_us < deadline_us))
            {
                self.harness.now_us = self.harness.now_us.max(tick_us);
                self.tick_due_rooms()?;
                continue;
            }
            let Some(deadline_us) = deadline_us.filter(|&deadline_us| deadline_us <= until_us) else { break };
            let late_us =
                if self.harness.chance.percent(80) { 0 } else { self.harness.chance.between(0, LATE_WAKE_US) };
            self.harness.now_us = self.harness.now_us.max(deadline_us + late_us);
            self.wake_shards()?;
        }
        self.harness.now_us = self.harness.now_us.max(until_us);
        self.check_waiting_joins()?;
        self.finish_verifications()?;
        self.answer_for_other_nodes()?;
        self.send_proxy_responses()
    }

    /// Checks that no join waits for its client any more whose time is over.
    fn check_waiting_joins(&self) -> Result<(), String> {
        let given_up_us = self.node.threads.iter().filter_map(|thread| thread.shard.next_join_given_up_us()).min();
        match given_up_us.filter(|until_us| until_us + LATE_WAKE_US < self.harness.now_us) {
            Some(until_us) => {
                Err(format!("a join waits at {} for a client, although it ends at {until_us}", self.harness.now_us))
            }
            None => Ok(()),
        }
    }

    /// Runs a random action of a client.
    fn act(&mut self) -> Result<(), String> {
        let index = self.harness.chance.below(self.clients.len());
        if self.harness.chance.below(250) == 0 {
            return self.reconnect_all();
        }
        match self.clients[index].phase {
            ClientPhase::Offline { until_us } if until_us <= self.harness.now_us => self.open(index),
            ClientPhase::Live | ClientPhase::Connecting if self.harness.chance.percent(3) => {
                self.drop_client(index);
                Ok(())
            }
            ClientPhase::Live if self.clients[index].close_reasons.closed != ClientClose::NotSent => Ok(()),
            ClientPhase::Live if self.harness.chance.percent(2) => {
                let code = *self.harness.chance.pick(&[None, Some(1000), Some(1001), Some(4000)]);
                self.send_close(index, code);
                Ok(())
            }
            ClientPhase::Live | ClientPhase::Connecting => {
                self.with_act_context(index, Client::act);
                Ok(())
            }
            ClientPhase::Offline { .. } | ClientPhase::Rejected | ClientPhase::Over => Ok(()),
        }
    }

    /// Closes a session with a close frame, or drops the connection if the transport has no close frames.
    pub(super) fn send_close(&mut self, index: usize, code: Option<u16>) {
        if !self.clients[index].profile.wire.is_websocket() {
            return self.drop_client(index);
        }
        self.clients[index].close(code);
        self.flush_to_server(index);
    }

    /// Drops the connections of all clients and reconnects them at once.
    fn reconnect_all(&mut self) -> Result<(), String> {
        for index in 0..self.clients.len() {
            self.drop_client(index);
            self.clients[index].leave(self.harness.now_us);
        }
        (0..self.clients.len()).try_for_each(|index| self.open(index))
    }

    /// Runs an action of a client and moves the frames that it sent to its connection.
    fn with_act_context(&mut self, index: usize, act: impl FnOnce(&mut Client, &mut ActContext<'_>)) {
        let now_s = self.harness.unix_ms() / 1_000;
        let Self { harness, plan, model, tokens, clients, .. } = self;
        let mut context =
            ActContext { plan, chance: &mut harness.chance, model, tokens, now_us: harness.now_us, now_s };
        act(&mut clients[index], &mut context);
        self.flush_to_server(index);
    }

    fn stall_something(&mut self) {
        let until_us = self.harness.now_us + self.harness.chance.between(1_000, 400_000);
        let ring = self.harness.chance.below(self.node.rings.len() + self.threads.rings.len());
        match self.node.rings.get_mut(ring) {
            Some(ring) => ring.stall(until_us),
            None => self.threads.rings.stall(ring - self.node.rings.len(), until_us),
        }
        if let Some(connection) = self.clients[self.harness.chance.below(self.clients.len())].connection {
            self.connections[connection].idle_until_us = until_us;
        }
    }
}

impl World for NodeWorld {
    fn run(&mut self) -> Result<(), String> {
        let mut until_check = self.harness.chance.between(50, 400);
        for _ in 0..self.plan.steps {
            self.step()?;
            until_check -= 1;
            if until_check == 0 {
                until_check = self.harness.chance.between(50, 400);
                self.settle()?;
                self.check_at_rest()?;
            }
        }
        self.end()
    }

    fn harness(&mut self) -> &mut Harness {
        &mut self.harness
    }

    fn reached(&self) -> BTreeMap<String, u64> {
        let mut reached = BTreeMap::new();
        for thread in &self.node.threads {
            count(thread.shard.counters(), &mut |what, times| *reached.entry(what).or_insert(0) += times);
        }
        let of_clients = &self.model.reached;
        for (what, times) in of_clients.iter().chain(&self.model.rooms.lock().reached) {
            reached.insert((*what).to_owned(), *times);
        }
        reached
    }
}

/// Adds what the counters of a shard tell.
fn count(counters: &Counters, add: &mut impl FnMut(String, u64)) {
    for (kind, times) in CommandKind::ALL.iter().zip(counters.commands) {
        add(format!("command {}", kind.name()), times);
    }
    for (code, times) in (100..).zip(counters.error_replies) {
        add(format!("error {code}"), times);
    }
    for (slot, times) in counters.closes.iter().enumerate() {
        let code = Counters::close_code(slot).map_or("other".to_owned(), |code| code.to_string());
        add(format!("close {code}"), *times);
    }
    add("session opened".to_owned(), counters.sessions_opened);
    add("slow by bytes".to_owned(), counters.slow_bytes);
    add("slow by frames".to_owned(), counters.slow_frames);
    add("late message".to_owned(), counters.late_messages);
    for namespace in &counters.namespaces {
        add("publication".to_owned(), namespace.publications);
        add("delivery".to_owned(), namespace.deliveries);
        add("join or leave delivered".to_owned(), namespace.join_leave_deliveries);
        add("skipped".to_owned(), namespace.skipped);
        add("encoded with skipped".to_owned(), namespace.encodes_skipped);
        add("filtered".to_owned(), namespace.filtered);
        add("delta encoded".to_owned(), namespace.patches);
        add("suppressed by key".to_owned(), namespace.suppressed[0]);
        add("suppressed by version".to_owned(), namespace.suppressed[1]);
        add("recovered".to_owned(), namespace.recovered);
        add("recovery reply shared".to_owned(), namespace.answers_shared);
        add("not recovered".to_owned(), namespace.unrecovered);
        add("join given up: its client does not read".to_owned(), namespace.rooms.joins_unread);
        add("snapshot: a zone waits".to_owned(), namespace.rooms.near_postponed + namespace.rooms.far_postponed);
        add("snapshot: skipped by the limit".to_owned(), namespace.rooms.limited_ticks);
    }
}
