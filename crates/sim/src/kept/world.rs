//! The simulated node with its room, its disk and its players.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use dunlin_engine::{
    Effect, Event, Options, SessionKey,
    host::RoutedMessage,
    options::{ClientOptions, NamespaceOptions, RoomLimits},
    room::{FromRoom, ToRoom},
};

use crate::{
    chance::Chance,
    harness::{Harness, PromptWorld, RestTimes, ShardThread, SimNode, World},
    ring::{RoomMessage, RoomRings},
    session::ClientSession,
};

use super::{
    KeptFlaw,
    client::RoomClient,
    disk::RoomDisk,
    room::{GRACE_TICKS, KeptRoom, KeptTerms, RoomTruth},
};

/// Percentage of players that return at once.
const RETURN_PERCENT: u32 = 80;

/// The whole simulation.
pub struct KeptWorld {
    harness: Harness,
    node: SimNode,
    rings: RoomRings,
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
}

impl KeptWorld {
    /// Creates the world of `seed`.
    pub fn new(seed: u64, prints: bool, flaw: Option<KeptFlaw>) -> Self {
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
        let node = SimNode::new(Arc::new(options()), chance.number());
        let disk = RoomDisk::new(Chance::new(chance.number()));
        let clients = (0..chance.between(1, 6)).map(|_| RoomClient::default()).collect();
        let mut world = Self {
            harness: Harness::new(chance, prints, "kept"),
            node,
            rings: RoomRings::default(),
            terms,
            room: None,
            disk,
            truth: RoomTruth::default(),
            clients,
            half_open: Vec::new(),
            seen: 0,
            stopped_at: None,
            tick_us: 1_000_000 / u64::from(terms.ticks_per_second),
            next_tick_us: 0,
            is_settling: false,
        };
        world.start(count);
        world
    }

    fn step(&mut self) -> Result<(), String> {
        self.harness.steps += 1;
        let pause_us = self.harness.chance.between(0, 4_000);
        self.pass_time(pause_us)?;
        if self.harness.chance.percent(50) {
            self.act()?;
        }
        for _ in 0..4 {
            let ring = self.harness.chance.below(self.node.rings.len() + self.rings.len());
            self.deliver(ring)?;
        }
        self.serve_clients()
    }

    fn act(&mut self) -> Result<(), String> {
        let number = self.harness.chance.below(self.clients.len());
        if !self.half_open.is_empty() && self.harness.chance.percent(10) {
            let index = self.harness.chance.below(self.half_open.len());
            let (shard, session) = self.half_open.swap_remove(index);
            return self.handle(shard, Event::Gone { session });
        }
        match self.harness.chance.weighted(&[70, 6, 4, 3]) {
            _ if self.clients[number].session.at.is_none() => self.open(number),
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
        self.harness.count(if self.terms.is_exact { "crash with a log" } else { "crash with checkpoints" });
        self.harness.line(|| "the node crashes".to_owned());
        self.disk.crash();
        self.restart();
    }

    /// Stops the node in an orderly way and restarts it. Sessions are closed, their players stay, and the room is
    /// saved.
    fn stop(&mut self) -> Result<(), String> {
        self.harness.count("stop");
        self.harness.line(|| "the node stops".to_owned());
        let before: Vec<bool> = self.clients.iter().map(|client| client.is_in).collect();
        if let Some(room) = self.room.as_mut().filter(|_| self.terms.flaw != Some(KeptFlaw::StopsWithoutDrain)) {
            room.host.begin_drain();
        }
        for number in 0..self.clients.len() {
            self.hang_up(number)?;
            if self.harness.chance.percent(50) {
                self.pass_time(self.tick_us)?;
            }
        }
        self.end_half_open()?;
        self.come_to_rest()?;
        if let Some(room) = &mut self.room {
            room.save(self.harness.now_us, &mut self.disk);
            self.stopped_at = Some(room.runner.ticks_run());
        }
        while !self.disk.is_at_rest() {
            self.harness.now_us += self.tick_us;
            self.disk.step(self.harness.now_us);
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
        self.start(self.node.shard_count());
    }

    /// Reconnects most clients that were in the room, while it still has their players. Checks what the disk has.
    fn reconnect_players(&mut self) -> Result<(), String> {
        let were_in: Vec<bool> = self.clients.iter().map(|client| client.is_in).collect();
        self.clients.iter_mut().for_each(RoomClient::leave);
        let saved = self.disk.checkpoint.is_some();
        let last = self.disk.step(self.harness.now_us);
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
            if self.harness.chance.percent(RETURN_PERCENT) {
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
        self.come_to_rest()?;
        self.pass_time(u64::from(GRACE_TICKS + 20) * self.tick_us)?;
        self.come_to_rest()?;
        let Some(room) = &self.room else { return Ok(()) };
        let here = self.truth.ticks.get(&room.runner.ticks_run()).map_or(0, |at| at.avatars.len());
        let players: Vec<&RoomClient> = self.clients.iter().filter(|client| client.is_in).collect();
        if here != players.len() {
            return Err(format!("the room has {here} players at rest, but {} clients are in it", players.len()));
        }
        if let Some(lost) = players.iter().find(|client| client.expects.is_some()) {
            return Err(format!("a client that resumed got no snapshot: {:?}", lost.replica));
        }
        self.harness.count("at rest");
        Ok(())
    }

    fn end_half_open(&mut self) -> Result<(), String> {
        for (shard, session) in std::mem::take(&mut self.half_open) {
            self.handle(shard, Event::Gone { session })?;
        }
        Ok(())
    }

    fn come_to_rest(&mut self) -> Result<(), String> {
        self.is_settling = true;
        let outcome = self.run_until_idle();
        self.is_settling = false;
        outcome
    }

    fn open(&mut self, number: usize) -> Result<(), String> {
        let shard = self.harness.chance.below(self.node.threads.len());
        // Every third client has no address.
        let address = (number % 3 != 2).then(|| client_address(number));
        self.open_on(number, shard, address)
    }

    /// Loses a connection without the node detecting it.
    fn drop_connection(&mut self, number: usize) {
        self.half_open.extend(self.clients[number].session.at);
        self.leave(number);
    }
}

/// The threads of the node.
impl KeptWorld {
    /// Starts the node with empty memory.
    fn start(&mut self, count: u16) {
        self.node.start(count, &mut self.harness.chance);
        self.rings = RoomRings::all(count, 1);
    }

    fn tick(&mut self) -> Result<(), String> {
        let logged = self.disk.step(self.harness.now_us);
        let Some(room) = &mut self.room else { return Ok(()) };
        let mut outgoing = Vec::new();
        room.logged(logged, &mut outgoing);
        if self.next_tick_us <= self.harness.now_us {
            self.next_tick_us = self.harness.now_us + self.tick_us;
            if !self.is_settling || room.host.arrived_len() > 0 {
                room.tick(self.harness.now_us, &mut self.disk, &mut self.truth, &mut outgoing)?;
                self.harness.trace.number(room.runner.room().state_hash());
            }
        }
        self.post(outgoing);
        Ok(())
    }

    fn post(&mut self, outgoing: Vec<RoutedMessage>) {
        for (shard, message) in outgoing {
            self.rings.post(0, shard, message);
        }
    }

    /// Delivers a message of a ring. Those between shards are first.
    fn deliver(&mut self, ring: usize) -> Result<(), String> {
        let now_us = self.harness.now_us;
        let Some(of_rooms) = ring.checked_sub(self.node.rings.len()) else {
            let Some((shard, event)) = self.node.receive(ring, now_us) else { return Ok(()) };
            return self.handle(shard, event);
        };
        match self.rings.pop(of_rooms, now_us) {
            None => Ok(()),
            Some(RoomMessage::To(.., message)) => self.deliver_to_room(message),
            Some(RoomMessage::From(from, to, message)) => self.handle(to.0.into(), Event::FromRoom { from, message }),
        }
    }

    fn deliver_to_room(&mut self, message: ToRoom) -> Result<(), String> {
        self.harness.line(|| format!("to the room: {message:?}"));
        match (message, &mut self.room) {
            (ToRoom::Open { room, channel, .. }, None) => {
                let node = (self.node.shard_count(), self.node.seed, self.harness.chance.number());
                let opened = KeptRoom::open((room, &channel), node, self.terms, &self.disk, &mut self.truth)?;
                if self.terms.is_exact && opened.runner.ticks_run() < self.seen {
                    let last = opened.runner.ticks_run();
                    return Err(format!("tick {} was received, but the room continues after tick {last}", self.seen));
                }
                if opened.runner.ticks_run() > 0 {
                    self.harness.count("restored");
                }
                self.next_tick_us = self.harness.now_us;
                self.room = Some(opened);
                self.post(vec![(room.owner, FromRoom::Made { room, channel })]);
                Ok(())
            }
            (message, Some(room)) if !matches!(message, ToRoom::Open { .. } | ToRoom::Close { .. }) => {
                room.host.take(message);
                Ok(())
            }
            (message, _) => Err(format!("{message:?}")),
        }
    }
}

impl World for KeptWorld {
    fn run(&mut self) -> Result<(), String> {
        for _ in 0..self.harness.chance.between(2, 5) {
            for _ in 0..self.harness.chance.between(20, 300) {
                self.step()?;
            }
            if self.harness.chance.percent(30) {
                self.stop()?;
            } else {
                self.crash();
            }
            self.reconnect_players()?;
            if self.harness.chance.percent(60) {
                self.settle()?;
            }
        }
        self.settle()
    }

    fn harness(&mut self) -> &mut Harness {
        &mut self.harness
    }

    fn reached(&self) -> BTreeMap<String, u64> {
        self.harness.reached_with([("resumed", self.clients.iter().map(|client| client.returns).sum())])
    }
}

impl PromptWorld for KeptWorld {
    const REST: RestTimes = RestTimes { round_us: 2_000, least_us: 0, most_us: 10_000_000 };

    fn thread(&mut self, shard: usize) -> &mut ShardThread {
        &mut self.node.threads[shard]
    }

    fn session(&mut self, client: usize) -> &mut ClientSession {
        &mut self.clients[client].session
    }

    fn client_count(&self) -> usize {
        self.clients.len()
    }

    fn leave(&mut self, client: usize) {
        self.harness.count("connection lost");
        if self.clients[client].waits_for_join() {
            self.harness.count("join reply lost");
        }
        self.clients[client].leave();
    }

    fn perform(&mut self, shard: usize, effect: Effect) -> Result<(), String> {
        self.harness.line(|| format!("shard {shard}: {effect:?}"));
        // Clients send too little to need flow control.
        if matches!(effect, Effect::Pause { .. } | Effect::Resume { .. }) {
            return Ok(());
        }
        match self.perform_on_session(shard, effect)? {
            None => {}
            Some(Effect::Send { to, message }) => self.node.send(shard, to, message),
            Some(Effect::ToRoom { thread, message }) => self.rings.send(shard, thread, message)?,
            Some(other) => return Err(format!("{other:?}")),
        }
        Ok(())
    }

    fn read(&mut self, client: usize, bytes: Vec<u8>) -> Result<(), String> {
        self.seen = self.clients[client].read(&self.truth, bytes)?.max(self.seen);
        Ok(())
    }

    /// Shards wake, the room ticks, and the disk writes when they are due.
    fn pass_time(&mut self, pause_us: u64) -> Result<(), String> {
        let until_us = self.harness.now_us + pause_us;
        while self.harness.now_us < until_us {
            self.harness.now_us =
                if self.room.is_some() { self.next_tick_us.clamp(self.harness.now_us, until_us) } else { until_us };
            (0..self.node.threads.len()).try_for_each(|shard| self.wake(shard))?;
            self.tick()?;
        }
        Ok(())
    }

    fn serve_all(&mut self) -> Result<(), String> {
        let rings = self.node.rings.len() + self.rings.len();
        (0..rings).try_for_each(|ring| self.deliver(ring))?;
        self.serve_clients()
    }

    fn is_at_rest(&mut self) -> bool {
        self.node.is_still() && self.rings.is_still() && self.room.as_ref().is_none_or(KeptRoom::is_at_rest)
    }
}

fn client_address(number: usize) -> IpAddr {
    let part = number as u8;
    if part.is_multiple_of(2) { Ipv4Addr::new(192, 0, 2, part).into() } else { Ipv6Addr::LOCALHOST.into() }
}

/// Options with a namespace whose rooms issue seat tokens.
fn options() -> Options {
    let limits =
        RoomLimits { inputs_per_second: 1_000, gives_seat_tokens: true, shows_address: true, ..RoomLimits::default() };
    let arena = NamespaceOptions {
        name: "arena".to_owned(),
        allow_subscribe_for_client: true,
        allow_subscribe_for_anonymous: true,
        allow_publish_for_subscriber: true,
        allow_publish_for_anonymous: true,
        history_size: 10,
        history_ttl_ms: 60_000,
        history_meta_ttl_ms: 60_000,
        room: Some(limits),
        ..NamespaceOptions::default()
    };
    let client =
        ClientOptions { allow_anonymous_connect_without_token: true, ping_interval_ms: 0, ..ClientOptions::default() };
    Options { client, namespaces: vec![arena], room_threads: 1, ..Options::default() }
}
