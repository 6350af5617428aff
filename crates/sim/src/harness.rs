//! What all worlds share: virtual time, randomness, the trace, and the shards of a node with the rings between them.
//!
//! The worlds differ in what surrounds the shards. [`World`] is what the program needs of a world. [`PromptWorld`] is the
//! part of a world whose clients read at once what a shard writes. The world in [`crate::world`] is not one: its sockets
//! fill up, and its shards end their turns at random.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use dunlin_engine::{
    Effect, Effects, Event, Now, Options, Seed, SessionKey, Shard, ShardIdentity, ShardIndex, message::ShardMessage,
    owner_of,
};
use dunlin_protocol::Encoding;

use crate::{chance::Chance, ring::ShardRing, session::ClientSession, trace::Trace};

/// The virtual time at which every run begins. Zero would hide a deadline that was never set.
const BEGIN_US: u64 = 1_000_000;

/// The Unix time of virtual time 0, unless a world begins at another one.
pub const UNIX_MS: u64 = 1_700_000_000_000;

/// The state of a run that every world has.
pub struct Harness {
    pub chance: Chance,
    pub now_us: u64,
    /// The Unix time of virtual time 0.
    pub start_unix_ms: u64,
    pub steps: u64,
    pub trace: Trace,
    /// How often each labelled case occurred.
    reached: BTreeMap<String, u64>,
    /// Begins the labels of the world.
    label: &'static str,
}

impl Harness {
    /// Begins a run. `label` is the name of the world in the labels of the cases.
    pub fn new(chance: Chance, prints: bool, label: &'static str) -> Self {
        Self {
            chance,
            now_us: BEGIN_US,
            start_unix_ms: UNIX_MS,
            steps: 0,
            trace: Trace::new(prints),
            reached: BTreeMap::new(),
            label,
        }
    }

    pub fn now(&self) -> Now {
        Now { mono_us: self.now_us, unix_ms: self.unix_ms() }
    }

    pub fn unix_ms(&self) -> u64 {
        self.start_unix_ms + self.now_us / 1_000
    }

    /// Prints a line if the trace is printed.
    pub fn line(&self, line: impl FnOnce() -> String) {
        self.trace.line(self.now_us, line);
    }

    /// Counts one occurrence of a case of this world.
    pub fn count(&mut self, what: &str) {
        self.count_times(what, 1);
    }

    pub fn count_times(&mut self, what: &str, times: u64) {
        *self.reached.entry(format!("{}: {what}", self.label)).or_insert(0) += times;
    }

    /// The counted cases, and cases of this world that others counted.
    pub fn reached_with<'a>(&self, counted: impl IntoIterator<Item = (&'a str, u64)>) -> BTreeMap<String, u64> {
        let mut reached = self.reached.clone();
        for (what, times) in counted {
            *reached.entry(format!("{}: {what}", self.label)).or_insert(0) += times;
        }
        reached
    }
}

/// A shard with the state of its thread.
pub struct ShardThread {
    pub shard: Shard,
    pub effects: Effects,
    /// Number of sessions that were opened.
    pub sessions: u32,
    /// Sessions whose queued commands can run now.
    pub recalled: Vec<SessionKey>,
}

impl ShardThread {
    pub fn new(identity: ShardIdentity, options: &Arc<Options>, seed: Seed) -> Self {
        let shard = Shard::new(identity, Arc::clone(options), seed);
        Self { shard, effects: Effects::default(), sessions: 0, recalled: Vec::new() }
    }

    /// Checks that no proposal is in flight and no request waits for the log.
    ///
    /// # Errors
    /// If there is one.
    pub fn check_log_at_rest(&self) -> Result<(), String> {
        let held = self.shard.log_holdings();
        if held == [0; 3] { Ok(()) } else { Err(format!("proposals, bytes and parked requests at rest: {held:?}")) }
    }

    /// Whether the shard has to wake by now.
    pub fn is_due(&self, now_us: u64) -> bool {
        self.shard.next_deadline_us().is_some_and(|due_us| due_us <= now_us)
    }
}

/// A node: its shards and the rings between them.
pub struct SimNode {
    pub options: Arc<Options>,
    /// The seed that all shards of the node share.
    pub seed: u64,
    pub threads: Vec<ShardThread>,
    pub rings: Vec<ShardRing>,
}

impl SimNode {
    /// Creates a node that has not started.
    pub fn new(options: Arc<Options>, seed: u64) -> Self {
        Self { options, seed, threads: Vec::new(), rings: Vec::new() }
    }

    /// Starts the node with `count` shards and empty memory.
    pub fn start(&mut self, count: u16, chance: &mut Chance) {
        let threads = (0..count).map(|index| {
            let identity = ShardIdentity { index: ShardIndex(index), count };
            let seed = Seed { node: self.seed, shard: chance.seed() };
            ShardThread::new(identity, &self.options, seed)
        });
        self.threads = threads.collect();
        self.rings = ShardRing::all(count);
    }

    pub fn shard_count(&self) -> u16 {
        self.threads.len() as u16
    }

    /// The shard that owns a channel.
    pub fn owner(&self, channel: &str) -> usize {
        usize::from(owner_of(channel, self.shard_count(), self.seed).0)
    }

    /// Pushes a message of a shard to its ring.
    pub fn send(&mut self, from: usize, to: ShardIndex, message: ShardMessage) {
        let ring = ShardRing::index(ShardIndex(from as u16), to, self.shard_count(), &message);
        self.rings[ring].push(message);
    }

    /// Removes the next message of a ring. Returns its reader and the event for it.
    pub fn receive(&mut self, ring: usize, now_us: u64) -> Option<(usize, Event<'static>)> {
        let ring = &mut self.rings[ring];
        let message = ring.pop(now_us)?;
        Some((usize::from(ring.to.0), Event::Message { from: ring.from, message }))
    }

    /// Whether no message is in flight.
    pub fn is_still(&self) -> bool {
        self.rings.iter().all(ShardRing::is_empty)
    }
}

/// A world that a seed determines.
pub trait World {
    /// Runs the whole simulation.
    ///
    /// # Errors
    /// The first check that fails.
    fn run(&mut self) -> Result<(), String>;

    fn harness(&mut self) -> &mut Harness;

    /// How often each labelled case occurred.
    fn reached(&self) -> BTreeMap<String, u64>;
}

/// How long a world may take to come to rest.
#[derive(Clone, Copy)]
pub struct RestTimes {
    /// The time between two rounds.
    pub round_us: u64,
    /// The time that passes at least.
    pub least_us: u64,
    /// The time after which the world fails if it is not at rest.
    pub most_us: u64,
}

/// A world whose clients read at once what a shard writes, and whose shards end their turn after each event.
pub trait PromptWorld: World {
    const REST: RestTimes;

    fn thread(&mut self, shard: usize) -> &mut ShardThread;

    fn session(&mut self, client: usize) -> &mut ClientSession;

    fn client_count(&self) -> usize;

    /// Ends the session of a client on its side.
    fn leave(&mut self, client: usize);

    /// Performs an effect of a shard.
    fn perform(&mut self, shard: usize, effect: Effect) -> Result<(), String>;

    /// Lets a client read what a shard wrote to it.
    fn read(&mut self, client: usize, bytes: Vec<u8>) -> Result<(), String>;

    /// Advances the clock, and runs what becomes due.
    fn pass_time(&mut self, pause_us: u64) -> Result<(), String>;

    /// Delivers everything that is in flight and due, in one round of coming to rest.
    fn serve_all(&mut self) -> Result<(), String>;

    /// Whether nothing is in flight, apart from what clients sent and wait for.
    fn is_at_rest(&mut self) -> bool;

    /// Passes an event to a shard, performs the effects, and ends the shard's turn.
    fn handle(&mut self, shard: usize, event: Event<'_>) -> Result<(), String> {
        self.perform_all(shard, event)?;
        for session in std::mem::take(&mut self.thread(shard).effects.dirty) {
            let bytes: Vec<u8> = self.thread(shard).shard.outgoing(session).flatten().copied().collect();
            self.harness().trace.bytes(&bytes);
            self.perform_all(shard, Event::Wrote { session, bytes: bytes.len() })?;
            if let Some(client) = self.client_of(shard, session) {
                self.read(client, bytes)?;
            }
        }
        while let Some(session) = self.thread(shard).recalled.pop() {
            self.handle(shard, Event::Recalled { session })?;
        }
        Ok(())
    }

    /// Passes an event to a shard and performs the effects.
    fn perform_all(&mut self, shard: usize, event: Event<'_>) -> Result<(), String> {
        let now = self.harness().now();
        let thread = self.thread(shard);
        thread.shard.handle(now, event, &mut thread.effects);
        for effect in std::mem::take(&mut thread.effects.list) {
            self.perform(shard, effect)?;
        }
        Ok(())
    }

    /// Performs an effect on a session that every world performs in the same way. Gives back any other one.
    fn perform_on_session(&mut self, shard: usize, effect: Effect) -> Result<Option<Effect>, String> {
        match effect {
            Effect::Pause { session } => self.known(shard, session)?.is_paused = true,
            Effect::Resume { session } => self.known(shard, session)?.is_paused = false,
            Effect::Recall { session } => self.thread(shard).recalled.push(session),
            other => return Ok(Some(other)),
        }
        Ok(None)
    }

    /// Wakes a shard until its deadline is in the future.
    fn wake(&mut self, shard: usize) -> Result<(), String> {
        let now_us = self.harness().now_us;
        while self.thread(shard).is_due(now_us) {
            self.handle(shard, Event::Woke)?;
        }
        Ok(())
    }

    fn client_of(&mut self, shard: usize, session: SessionKey) -> Option<usize> {
        (0..self.client_count()).find(|client| self.session(*client).at == Some((shard, session)))
    }

    /// The session of a client that is connected.
    fn known(&mut self, shard: usize, session: SessionKey) -> Result<&mut ClientSession, String> {
        let client = self.client_of(shard, session).ok_or_else(|| format!("{session:?} is gone"))?;
        Ok(self.session(client))
    }

    /// Connects a client to a shard.
    fn open_on(&mut self, client: usize, shard: usize, address: Option<IpAddr>) -> Result<(), String> {
        let thread = self.thread(shard);
        let session = SessionKey { index: thread.sessions, generation: 1 };
        thread.sessions += 1;
        self.session(client).open(shard, session);
        self.handle(shard, Event::Opened { session, wire: Encoding::Json.into(), source: None, address })
    }

    /// Closes the connection of a client.
    fn hang_up(&mut self, client: usize) -> Result<(), String> {
        let Some((shard, session)) = self.session(client).at else { return Ok(()) };
        self.leave(client);
        self.handle(shard, Event::Gone { session })
    }

    /// Delivers the frames of all clients to their shards.
    fn serve_clients(&mut self) -> Result<(), String> {
        (0..self.client_count()).try_for_each(|client| self.serve_client(client))
    }

    /// Delivers the frames of a client to its shard, until the shard pauses the session.
    fn serve_client(&mut self, client: usize) -> Result<(), String> {
        while let Some((shard, session, frame)) = self.session(client).next_frame() {
            self.handle(shard, Event::Received { session, frame: &frame })?;
        }
        Ok(())
    }

    /// Runs until nothing is in flight.
    fn run_until_idle(&mut self) -> Result<(), String> {
        let RestTimes { round_us, least_us, most_us } = Self::REST;
        let begin_us = self.harness().now_us;
        loop {
            self.harness().steps += 1;
            self.pass_time(round_us)?;
            self.serve_all()?;
            let passed_us = self.harness().now_us - begin_us;
            let is_idle = |world: &mut Self, client| world.session(client).is_still();
            if passed_us >= least_us
                && self.is_at_rest()
                && (0..self.client_count()).all(|client| is_idle(self, client))
            {
                return Ok(());
            }
            if passed_us > most_us {
                let waiting: Vec<_> =
                    (0..self.client_count()).map(|client| format!("{:?}", self.session(client).pending)).collect();
                return Err(format!("not at rest after the maximum time: {waiting:?}"));
            }
        }
    }
}
