//! The simulated node and its clients.

mod admin;
mod backend;
mod census;
mod connections;
mod events;
mod flush;
mod publish;
mod reached;
mod reconfigure;
mod room_census;
mod rooms;
mod seats;
mod settle;

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, VecDeque},
    sync::Arc,
};

use dunlin_engine::{Effects, Now, Options, Seed, SessionKey, Shard, ShardIdentity, ShardIndex};

use crate::{
    chance::Chance,
    client::{Client, ClientClose, ClientPhase, Initiative, OperatorAction},
    model::Model,
    plan::{LATE_WAKE_US, Plan, RESTRICTED},
    ring::ShardRing,
    socket::SimConnection,
    token::Tokens,
    trace::Trace,
};

use backend::OpenQuestion;
use rooms::RoomThreads;

pub use seats::SeatFlaw;

/// Unix time at the start of every run.
const START_UNIX_MS: u64 = 1_700_000_000_123;

/// Longer than an idempotency key counts.
const NIGHT_US: u64 = 310_000_000;

/// A shard with what its thread would keep.
struct Place {
    shard: Shard,
    effects: Effects,
    /// Options that its inbox holds.
    reconfigurations: VecDeque<Arc<Options>>,
    /// Connections by session index.
    connections: Vec<Option<usize>>,
    /// How often each index was used.
    generations: Vec<u32>,
    /// Sessions that are written to at the end of the turn.
    dirty: Vec<SessionKey>,
    /// Sessions whose commands can be carried out that waited.
    recalled: Vec<SessionKey>,
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

/// What operators did that clients notice.
#[derive(Default)]
struct Deeds {
    /// Sessions and subscriptions that were ended.
    disconnected: Vec<OperatorAction>,
    unsubscribed: Vec<OperatorAction>,
    /// Subscriptions that were made.
    subscribed: Vec<OperatorAction>,
    /// Channels whose streams went under their subscribers.
    lost: Vec<String>,
    /// Sessions by id, and their subscriptions by channel, that the backend said are over; of the session, the channel is
    /// empty.
    lapsed: BTreeSet<(String, String)>,
    /// Whether the backend had sessions closed.
    backend_disconnected: bool,
    drained: bool,
    /// Channels that carried payloads which are not JSON.
    opaque: Vec<String>,
    /// Closes for want of a pong, by shard.
    no_pongs: Vec<(usize, u64)>,
}

/// A node, its clients, and everything between them.
pub struct NodeWorld {
    plan: Plan,
    /// What the node was last told to go on with.
    running: Arc<Options>,
    chance: Chance,
    now_us: u64,
    /// Seed that the shards of the node share.
    node: u64,
    places: Vec<Place>,
    rings: Vec<ShardRing>,
    threads: RoomThreads,
    clients: Vec<Client>,
    connections: Vec<SimConnection>,
    model: Model,
    tokens: Tokens,
    verifications: BinaryHeap<Reverse<Verification>>,
    questions: BinaryHeap<Reverse<OpenQuestion>>,
    deeds: Deeds,
    trace: Trace,
    steps: u64,
    next_ticket: u64,
    /// Requests that wait for a room thread.
    room_requests: BTreeSet<u64>,
    /// What the kernels took.
    written_bytes: u64,
}

impl NodeWorld {
    /// The world of `seed`, before its first step. `prepare` is applied to each shard.
    pub fn new(seed: u64, prints: bool, prepare: &dyn Fn(&mut Shard)) -> Self {
        let mut chance = Chance::new(seed);
        let plan = Plan::new(seed, &mut chance);
        let node = chance.number();
        let places = (0..plan.shards).map(|index| {
            let identity = ShardIdentity { index: ShardIndex(index), count: plan.shards };
            let seed = Seed { node, shard: chance.seed() };
            let mut shard = Shard::new(identity, Arc::clone(&plan.options), seed);
            prepare(&mut shard);
            Place {
                shard,
                effects: Effects::default(),
                reconfigurations: VecDeque::new(),
                connections: Vec::new(),
                generations: Vec::new(),
                dirty: Vec::new(),
                recalled: Vec::new(),
            }
        });
        let places = places.collect();
        let clients = plan.clients.iter().enumerate();
        Self {
            node,
            places,
            rings: ShardRing::all(plan.shards),
            threads: RoomThreads::new(&plan),
            clients: clients.map(|(index, profile)| Client::new(index, profile.clone())).collect(),
            connections: Vec::new(),
            model: Model::new(&plan.options, plan.all_channels().chain([RESTRICTED.to_owned()])),
            tokens: Tokens::default(),
            verifications: BinaryHeap::new(),
            questions: BinaryHeap::new(),
            deeds: Deeds::default(),
            trace: Trace::new(prints),
            now_us: 1_000_000,
            steps: 0,
            next_ticket: 0,
            room_requests: BTreeSet::new(),
            written_bytes: 0,
            chance,
            running: Arc::clone(&plan.options),
            plan,
        }
    }

    /// Gives its room threads a mistake.
    pub fn plant(&mut self, flaw: SeatFlaw) {
        self.threads.flaw = Some(flaw);
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// The first thing that should not have been.
    pub fn run(&mut self) -> Result<(), String> {
        let mut until_census = self.chance.between(50, 400);
        for _ in 0..self.plan.steps {
            self.step()?;
            until_census -= 1;
            if until_census == 0 {
                until_census = self.chance.between(50, 400);
                self.settle()?;
                self.census()?;
            }
        }
        self.end()
    }

    /// Steps taken so far, and the hash of all that happened.
    pub fn record(&self) -> (u64, u64) {
        (self.steps, self.trace.hash())
    }

    fn step(&mut self) -> Result<(), String> {
        self.steps += 1;
        let pause_us = match self.chance.below(100) {
            _ if self.plan.has_nights && self.chance.below(400) == 0 => NIGHT_US,
            0..70 => self.chance.between(0, 2_000),
            70..97 => self.chance.between(2_000, 30_000),
            _ => self.chance.between(30_000, 400_000),
        };
        self.pass_time(pause_us)?;
        match self.chance.weighted(&[35, 30, 25, 8, 2]) {
            0 => self.deliver_some()?,
            1 => self.serve_some()?,
            2 => self.act()?,
            3 => self.administer()?,
            _ => self.stall_something(),
        }
        self.deliver_some_of_rooms()?;
        self.reconfigure_some()?;
        self.serve_prompt()
    }

    /// Lets time pass; no shard sleeps longer past its deadline than [`LATE_WAKE_US`].
    fn pass_time(&mut self, pause_us: u64) -> Result<(), String> {
        let until_us = self.now_us + pause_us;
        loop {
            let deadline_us = self.places.iter().filter_map(|place| place.shard.next_deadline_us()).min();
            let tick_us = self.threads.next_us().filter(|&tick_us| tick_us <= until_us);
            if let Some(tick_us) =
                tick_us.filter(|&tick_us| deadline_us.is_none_or(|deadline_us| tick_us < deadline_us))
            {
                self.now_us = self.now_us.max(tick_us);
                self.tick_due_rooms()?;
                continue;
            }
            let Some(deadline_us) = deadline_us.filter(|&deadline_us| deadline_us <= until_us) else { break };
            let late_us = if self.chance.percent(80) { 0 } else { self.chance.between(0, LATE_WAKE_US) };
            self.now_us = self.now_us.max(deadline_us + late_us);
            self.wake_shards()?;
        }
        self.now_us = self.now_us.max(until_us);
        self.finish_verifications()?;
        self.answer_questions()
    }

    fn now(&self) -> Now {
        Now { mono_us: self.now_us, unix_ms: self.unix_ms() }
    }

    fn unix_ms(&self) -> u64 {
        START_UNIX_MS + self.now_us / 1_000
    }

    /// A client does something of its own accord.
    fn act(&mut self) -> Result<(), String> {
        let index = self.chance.below(self.clients.len());
        if self.chance.below(250) == 0 {
            return self.storm();
        }
        match self.clients[index].phase {
            ClientPhase::Offline { until_us } if until_us <= self.now_us => self.open(index),
            ClientPhase::Live | ClientPhase::Connecting if self.chance.percent(3) => {
                self.drop_client(index);
                Ok(())
            }
            ClientPhase::Live if self.clients[index].misdeeds.closed != ClientClose::NotSent => Ok(()),
            ClientPhase::Live if self.chance.percent(2) => {
                let code = *self.chance.pick(&[None, Some(1000), Some(1001), Some(4000)]);
                self.send_close(index, code);
                Ok(())
            }
            ClientPhase::Live | ClientPhase::Connecting => {
                self.with_initiative(index, Client::act);
                Ok(())
            }
            ClientPhase::Offline { .. } | ClientPhase::Refused | ClientPhase::Over => Ok(()),
        }
    }

    /// A client closes its session, or just goes where the transport has no close frame.
    pub(super) fn send_close(&mut self, index: usize, code: Option<u16>) {
        if !self.clients[index].profile.wire.is_websocket() {
            return self.drop_client(index);
        }
        self.clients[index].close(code);
        self.send_upward(index);
    }

    /// All lose their connections, and come back at once.
    fn storm(&mut self) -> Result<(), String> {
        for index in 0..self.clients.len() {
            self.drop_client(index);
            self.clients[index].leave(self.now_us);
        }
        (0..self.clients.len()).try_for_each(|index| self.open(index))
    }

    /// Lends a client all it needs to act, and puts what it says on the wire.
    fn with_initiative(&mut self, index: usize, act: impl FnOnce(&mut Client, &mut Initiative<'_>)) {
        let now_s = self.unix_ms() / 1_000;
        let Self { plan, chance, model, tokens, now_us, clients, .. } = self;
        let mut initiative = Initiative { plan, chance, model, tokens, now_us: *now_us, now_s };
        act(&mut clients[index], &mut initiative);
        self.send_upward(index);
    }

    fn stall_something(&mut self) {
        let until_us = self.now_us + self.chance.between(1_000, 400_000);
        let ring = self.chance.below(self.rings.len() + self.threads.ring_count());
        match self.rings.get_mut(ring) {
            Some(ring) => ring.stall(until_us),
            None => self.threads.stall(ring - self.rings.len(), until_us),
        }
        if let Some(connection) = self.clients[self.chance.below(self.clients.len())].connection {
            self.connections[connection].idle_until_us = until_us;
        }
    }
}
