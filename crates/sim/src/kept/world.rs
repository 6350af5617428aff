//! The simulated node with its room, its disk and its players.

mod node;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use dunlin_engine::{Effects, Event, Options, SessionKey, Shard};

use crate::{
    chance::Chance,
    ring::{FromRoomRing, ShardRing, ToRoomRing},
    trace::Trace,
};

use super::{
    KeptFlaw,
    client::RoomClient,
    disk::RoomDisk,
    room::{GRACE_TICKS, KeptRoom, KeptTerms, RoomTruth},
};

/// Rounds after which nothing may be in flight.
const SETTLE_ROUNDS_MAX: u32 = 5_000;
/// Percentage of players that return at once.
const RETURN_PERCENT: u32 = 80;

/// A shard with the state of its thread.
struct KeptShard {
    shard: Shard,
    effects: Effects,
    sessions: u32,
    recalled: Vec<SessionKey>,
}

/// The whole simulation.
pub struct KeptWorld<'a> {
    prepare: &'a dyn Fn(&mut Shard),
    chance: Chance,
    options: Arc<Options>,
    node: u64,
    shards: Vec<KeptShard>,
    rings: Vec<ShardRing>,
    to: Vec<ToRoomRing>,
    from: Vec<FromRoomRing>,
    terms: KeptTerms,
    room: Option<KeptRoom>,
    disk: RoomDisk,
    truth: RoomTruth,
    clients: Vec<RoomClient>,
    /// Sessions whose clients are gone without the node having detected it.
    half_open: Vec<(usize, SessionKey)>,
    /// The last tick that a client received.
    seen: u64,
    /// The last tick before an orderly stop. The room must continue from it.
    stopped_at: Option<u64>,
    tick_us: u64,
    next_tick_us: u64,
    /// Whether the room only ticks if it has queued messages.
    is_settling: bool,
    now_us: u64,
    steps: u64,
    trace: Trace,
    reached: BTreeMap<String, u64>,
}

impl<'a> KeptWorld<'a> {
    /// Creates the world of `seed`. Applies `prepare` to each shard.
    pub fn new(seed: u64, prints: bool, prepare: &'a dyn Fn(&mut Shard), flaw: Option<KeptFlaw>) -> Self {
        let mut chance = Chance::new(seed ^ 0x6b65_7074);
        let count = chance.between(1, 3) as u16;
        let terms = KeptTerms {
            is_exact: chance.percent(60),
            checkpoint_ticks: chance.between(2, 60),
            ticks_per_second: 100,
            // The grace period is at least one tick, and often shorter than the delay of a message.
            seat_grace_ticks: if chance.percent(20) { 0 } else { chance.between(1, GRACE_TICKS.into()) as u32 },
            flaw,
        };
        let mut world = Self {
            prepare,
            options: Arc::new(node::options()),
            node: chance.number(),
            shards: Vec::new(),
            rings: Vec::new(),
            to: Vec::new(),
            from: Vec::new(),
            terms,
            room: None,
            disk: RoomDisk::new(Chance::new(chance.number())),
            truth: RoomTruth::default(),
            clients: (0..chance.between(1, 6)).map(|_| RoomClient::new()).collect(),
            half_open: Vec::new(),
            seen: 0,
            stopped_at: None,
            tick_us: 1_000_000 / u64::from(terms.ticks_per_second),
            next_tick_us: 0,
            is_settling: false,
            now_us: 1_000_000,
            steps: 0,
            trace: Trace::new(prints),
            reached: BTreeMap::new(),
            chance,
        };
        world.start(count);
        world
    }

    /// Runs the whole simulation.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn run(&mut self) -> Result<(), String> {
        for _ in 0..self.chance.between(2, 5) {
            for _ in 0..self.chance.between(20, 300) {
                self.step()?;
            }
            if self.chance.percent(30) {
                self.stop()?;
            } else {
                self.crash();
            }
            self.reconnect_players()?;
            if self.chance.percent(60) {
                self.settle()?;
            }
        }
        self.settle()
    }

    /// The number of steps so far and the hash of the trace.
    pub fn record(&self) -> (u64, u64) {
        (self.steps, self.trace.hash())
    }

    /// How often each labelled case occurred.
    pub fn reached(&self) -> BTreeMap<String, u64> {
        let mut reached = self.reached.clone();
        reached.insert("kept: resumed".to_owned(), self.clients.iter().map(|client| client.returns).sum());
        reached
    }

    fn count(&mut self, what: &str) {
        *self.reached.entry(format!("kept: {what}")).or_insert(0) += 1;
    }

    fn step(&mut self) -> Result<(), String> {
        self.steps += 1;
        let pause_us = self.chance.between(0, 4_000);
        self.pass_time(pause_us)?;
        if self.chance.percent(50) {
            self.act()?;
        }
        for _ in 0..4 {
            let ring = self.chance.below(self.rings.len() + self.to.len() + self.from.len());
            self.deliver(ring)?;
        }
        self.serve_clients()
    }

    fn act(&mut self) -> Result<(), String> {
        let number = self.chance.below(self.clients.len());
        if !self.half_open.is_empty() && self.chance.percent(10) {
            let index = self.chance.below(self.half_open.len());
            let (shard, session) = self.half_open.swap_remove(index);
            return self.handle(shard, Event::Gone { session });
        }
        match self.chance.weighted(&[70, 6, 4, 3]) {
            _ if self.clients[number].session.is_none() => self.open(number),
            0 => {
                self.clients[number].send_input();
                Ok(())
            }
            1 => self.hang_up(number),
            2 => {
                self.drop_connection(number);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Crashes and restarts the node.
    fn crash(&mut self) {
        self.count(if self.terms.is_exact { "crash with a log" } else { "crash with checkpoints" });
        self.trace.line(self.now_us, || "the node crashes".to_owned());
        self.disk.crash();
        self.restart();
    }

    /// Stops the node in an orderly way and restarts it. Sessions are closed, their players stay, and the room is
    /// saved.
    fn stop(&mut self) -> Result<(), String> {
        self.count("stop");
        self.trace.line(self.now_us, || "the node stops".to_owned());
        let before: Vec<bool> = self.clients.iter().map(|client| client.is_in).collect();
        if let Some(room) = self.room.as_mut().filter(|_| self.terms.flaw != Some(KeptFlaw::StopsWithoutDrain)) {
            room.host.begin_drain();
        }
        for number in 0..self.clients.len() {
            self.hang_up(number)?;
            if self.chance.percent(50) {
                self.pass_time(self.tick_us)?;
            }
        }
        self.end_half_open()?;
        self.run_until_idle()?;
        if let Some(room) = &mut self.room {
            room.save(self.now_us, &mut self.disk);
            self.stopped_at = Some(room.runner.ticks_run());
        }
        while !self.disk.is_at_rest() {
            self.now_us += self.tick_us;
            self.disk.step(self.now_us);
        }
        for (client, was_in) in self.clients.iter_mut().zip(before) {
            client.is_in = was_in;
        }
        self.restart();
        Ok(())
    }

    fn restart(&mut self) {
        self.room = None;
        self.half_open.clear();
        self.start(self.shards.len() as u16);
    }

    /// Reconnects most clients that were in the room, while it still has their players. Checks what the disk has.
    fn reconnect_players(&mut self) -> Result<(), String> {
        let were_in: Vec<bool> = self.clients.iter().map(|client| client.is_in).collect();
        self.clients.iter_mut().for_each(RoomClient::leave);
        let saved = self.disk.checkpoint.is_some();
        let last = self.disk.step(self.now_us);
        let stopped_at = self.stopped_at.take();
        if stopped_at.is_some_and(|stopped_at| saved && last != stopped_at) {
            return Err(format!("the node stopped after tick {stopped_at:?}, but the disk has tick {last}"));
        }
        if self.terms.is_exact && last < self.seen {
            return Err(format!("tick {} was received, but the disk only has ticks up to {last}", self.seen));
        }
        for (number, was_in) in were_in.into_iter().enumerate() {
            if !was_in {
                continue;
            }
            let expects = self.object_at(number, last)?;
            if stopped_at.is_some() && expects.is_none() {
                return Err(format!("the player of client {number} left while the node stopped"));
            }
            if self.chance.percent(RETURN_PERCENT) {
                self.clients[number].expects = expects;
                self.open(number)?;
            }
        }
        Ok(())
    }

    /// The object of a client's player after a tick, if its last join happened by then.
    fn object_at(&self, number: usize, last: u64) -> Result<Option<dunlin_rooms::ObjectId>, String> {
        let token = self.clients[number].token.as_ref();
        let Some((joined, player)) = token.and_then(|token| self.truth.joins.get(token)) else {
            return Err(format!("client {number} has an unknown token"));
        };
        match self.truth.ticks.get(&last).filter(|_| *joined <= last) {
            Some(at) => Ok(at.avatars.get(player).copied()),
            None if self.terms.is_exact => {
                Err(format!("client {number} joined at tick {joined}, but only {last} is logged"))
            }
            None => Ok(None),
        }
    }

    /// Delivers everything that is in flight, and waits until the grace period of all players has ended. Then the room
    /// must have exactly the players of the joined clients.
    fn settle(&mut self) -> Result<(), String> {
        self.end_half_open()?;
        self.pass_time(u64::from(GRACE_TICKS + 20) * self.tick_us)?;
        self.run_until_idle()?;
        self.pass_time(u64::from(GRACE_TICKS + 20) * self.tick_us)?;
        self.run_until_idle()?;
        let Some(room) = &self.room else { return Ok(()) };
        let here = self.truth.ticks.get(&room.runner.ticks_run()).map_or(0, |at| at.avatars.len());
        let players: Vec<&RoomClient> = self.clients.iter().filter(|client| client.is_in).collect();
        if here != players.len() {
            return Err(format!("the room has {here} players at rest, but {} clients are in it", players.len()));
        }
        if let Some(lost) = players.iter().find(|client| client.expects.is_some()) {
            return Err(format!("a client that resumed got no snapshot: {:?}", lost.replica));
        }
        self.count("at rest");
        Ok(())
    }

    fn end_half_open(&mut self) -> Result<(), String> {
        for (shard, session) in std::mem::take(&mut self.half_open) {
            self.handle(shard, Event::Gone { session })?;
        }
        Ok(())
    }

    fn run_until_idle(&mut self) -> Result<(), String> {
        self.is_settling = true;
        let outcome = self.run_rounds_until_idle();
        self.is_settling = false;
        outcome
    }

    fn run_rounds_until_idle(&mut self) -> Result<(), String> {
        for _ in 0..SETTLE_ROUNDS_MAX {
            self.steps += 1;
            self.pass_time(2_000)?;
            (0..self.rings.len() + self.to.len() + self.from.len()).try_for_each(|ring| self.deliver(ring))?;
            self.serve_clients()?;
            if self.rings.iter().all(ShardRing::is_empty)
                && self.to.iter().all(ToRoomRing::is_empty)
                && self.from.iter().all(FromRoomRing::is_empty)
                && self.room.as_ref().is_none_or(KeptRoom::is_at_rest)
                && self.clients.iter().all(RoomClient::is_still)
            {
                return Ok(());
            }
        }
        Err("not at rest after the maximum number of rounds".to_owned())
    }

    fn open(&mut self, number: usize) -> Result<(), String> {
        let shard = self.chance.below(self.shards.len());
        let session = SessionKey { index: self.shards[shard].sessions, generation: 1 };
        self.shards[shard].sessions += 1;
        self.clients[number].open(shard, session);
        let wire = dunlin_protocol::Encoding::Json.into();
        // Every third client has no address.
        let address = (number % 3 != 2).then(|| client_address(number));
        self.handle(shard, Event::Opened { session, wire, source: None, address })
    }

    /// Loses a connection without the node detecting it.
    fn drop_connection(&mut self, number: usize) {
        self.half_open.extend(self.clients[number].session);
        self.count_lost_connection(number);
        self.clients[number].leave();
    }

    fn count_lost_connection(&mut self, number: usize) {
        self.count("connection lost");
        if self.clients[number].waits_for_join() {
            self.count("join reply lost");
        }
    }

    fn hang_up(&mut self, number: usize) -> Result<(), String> {
        let Some((shard, session)) = self.clients[number].session else { return Ok(()) };
        self.count_lost_connection(number);
        self.clients[number].leave();
        self.handle(shard, Event::Gone { session })
    }
}

fn client_address(number: usize) -> IpAddr {
    let part = number as u8;
    if part.is_multiple_of(2) { Ipv4Addr::new(192, 0, 2, part).into() } else { Ipv6Addr::LOCALHOST.into() }
}
