//! The body of the fuzz target `engine_session`, which a unit test runs over the committed corpus: bytes become events
//! of a node with two shards and a room thread. A violated invariant is a failed assertion.

mod answers;
mod command;
mod options;
mod received;
mod requests;
mod rooms;

use std::{collections::VecDeque, sync::Arc};

use dunlin_engine::{
    Effect, Effects, Event, Now, Seed, SessionKey, Shard, ShardIdentity, ShardIndex, Wire,
    backend::{ProxyRequestId, ProxyRequestKind},
    event::Ticket,
    host::RoutedMessage,
    message::ShardMessage,
    owner_of,
    room::{FromRoom, RoomThreadIndex, ToRoom},
};
use dunlin_protocol::Encoding;

use command::Command;
use requests::To;
use rooms::Rooms;

const SHARDS: u16 = 2;
const NODE_SEED: u64 = 7;
/// Sessions at a time.
const SEATS: usize = 4;
const USERS: [&str; 3] = ["", "ann", "bob"];
const QUEUE_BYTES_MAX: usize = 4_096;
const QUEUE_FRAMES_MAX: usize = 16;
/// What closing may add to a full queue: the tags of its slots and the goodbye.
const CLOSING_BYTES_MAX: usize = QUEUE_FRAMES_MAX * 32 + 256;

/// Anything that happens to a node.
pub fn session(data: &[u8]) {
    let mut script = Script(data);
    let mut node = Node::new(script.next());
    while !script.0.is_empty() {
        node.act(&mut script);
        node.check();
    }
    node.end();
}

/// Bytes to decide by; zeros when they are used up.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn next(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().map_or((0, self.0), |(first, rest)| (*first, rest));
        self.0 = rest;
        first
    }

    fn take(&mut self, bytes: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.next()) % choices.len()]
    }
}

/// A session, seen from its client.
struct Seat {
    shard: u16,
    key: SessionKey,
    wire: Wire,
    /// Frames that came while it was paused.
    unread: VecDeque<Vec<u8>>,
    is_paused: bool,
    finished: bool,
    received: Vec<u8>,
}

/// What somebody finds out for a session, which may have gone when it is found.
struct Pending {
    shard: u16,
    session: SessionKey,
    what: Wanted,
}

enum Wanted {
    ConnectionToken,
    SubscriptionToken,
    Answer(ProxyRequestId, ProxyRequestKind),
}

struct Node {
    shards: Vec<Shard>,
    rooms: Rooms,
    now: Now,
    seats: [Option<Seat>; SEATS],
    generation: u32,
    rings: [VecDeque<ShardMessage>; SHARDS as usize],
    to_rooms: VecDeque<ToRoom>,
    from_rooms: [VecDeque<FromRoom>; SHARDS as usize],
    pending: VecDeque<Pending>,
    /// To be performed, in order.
    effects: VecDeque<(u16, Effect)>,
    is_busy: bool,
}

impl Node {
    fn new(seed: u8) -> Self {
        let options = Arc::new(options::options(seed));
        let shards = (0..SHARDS).map(|index| {
            let identity = ShardIdentity { index: ShardIndex(index), count: SHARDS };
            Shard::new(identity, Arc::clone(&options), Seed { node: NODE_SEED, shard: [seed ^ index as u8; 32] })
        });
        Self {
            shards: shards.collect(),
            rooms: Rooms::default(),
            now: Now { mono_us: 1_000_000, unix_ms: 1_700_000_000_000 },
            seats: [const { None }; SEATS],
            generation: 0,
            rings: Default::default(),
            to_rooms: VecDeque::new(),
            from_rooms: Default::default(),
            pending: VecDeque::new(),
            effects: VecDeque::new(),
            is_busy: false,
        }
    }

    fn act(&mut self, script: &mut Script<'_>) {
        let what = script.next();
        let place = usize::from(script.next()) % SEATS;
        match what % 20 {
            0 => self.open(place, script.next()),
            1..=5 => self.send_commands(place, script),
            6 => {
                let length = usize::from(script.next());
                let frame = script.take(length).to_vec();
                self.send_frame(place, frame);
            }
            7 | 8 => self.find_out(script),
            9 => self.write(place, usize::from(script.next())),
            10 => self.write(place, usize::MAX),
            11 => self.wait(script.next()),
            12 => self.leave(place),
            13 => self.control(place, script),
            14 | 15 => self.pass(usize::from(script.next()) % self.rings.len()),
            16 | 17 => self.ask(script),
            18 => self.run_rooms(script.next()),
            _ => match script.next() {
                7 => (0..SHARDS).for_each(|shard| self.handle(shard, Event::Drain)),
                how @ 8..24 => self.drain(how),
                _ => (0..SHARDS).for_each(|shard| self.handle(shard, Event::TurnEnded)),
            },
        }
    }

    fn handle(&mut self, shard: u16, event: Event<'_>) {
        let mut effects = Effects::default();
        self.shards[usize::from(shard)].handle(self.now, event, &mut effects);
        for session in &effects.dirty {
            assert!(self.shards[usize::from(shard)].has_outgoing(*session), "dirty, and has nothing to say");
        }
        self.effects.extend(effects.list.into_iter().map(|effect| (shard, effect)));
        if std::mem::replace(&mut self.is_busy, true) {
            return;
        }
        while let Some((shard, effect)) = self.effects.pop_front() {
            self.perform(shard, effect);
            if self.effects.is_empty() {
                self.read_on();
            }
        }
        self.is_busy = false;
    }

    fn perform(&mut self, shard: u16, effect: Effect) {
        match effect {
            Effect::Send { to, message } => {
                assert_ne!(to.0, shard, "a shard sends no message to itself");
                self.rings[usize::from(to.0)].push_back(message);
            }
            Effect::ToRoom { thread, message } => {
                assert_eq!(thread, RoomThreadIndex(0));
                self.to_rooms.push_back(message);
            }
            Effect::SendProxyRequest { session, request } => {
                self.expect(shard, session, Wanted::Answer(request.id, request.kind));
            }
            Effect::Authenticate { session, .. } => self.expect(shard, session, Wanted::ConnectionToken),
            Effect::AuthorizeSubscription { session, .. } => self.expect(shard, session, Wanted::SubscriptionToken),
            Effect::Pause { session } => self.seat(session).is_paused = true,
            Effect::Resume { session } => self.seat(session).is_paused = false,
            Effect::Recall { session } => {
                self.handle(shard, Event::Recalled { session });
            }
            Effect::Finish { session } => {
                assert!(!std::mem::replace(&mut self.seat(session).finished, true), "finished once");
            }
            Effect::HangUp { session } => {
                self.seat(session);
                self.leave(session.index as usize);
            }
            Effect::Propose { .. }
            | Effect::Load { .. }
            | Effect::Trim { .. }
            | Effect::Follow { .. }
            | Effect::Unfollow { .. }
            | Effect::Broadcast { .. }
            | Effect::ShareUserSessions { .. }
            | Effect::QueryPeers { .. }
            | Effect::QueryKeys { .. }
            | Effect::QueryRoom { .. } => unreachable!("no namespace has a log, or is shared"),
            Effect::Answer { ticket, .. } => assert_eq!(ticket, Ticket(1)),
        }
    }

    fn expect(&mut self, shard: u16, session: SessionKey, what: Wanted) {
        self.seat(session);
        if !matches!(what, Wanted::Answer(..)) {
            let is_token = |pending: &&Pending| !matches!(pending.what, Wanted::Answer(..));
            let waits = self.pending.iter().filter(is_token).any(|pending| pending.session == session);
            assert!(!waits, "one token at a time");
        }
        self.pending.push_back(Pending { shard, session, what });
    }

    /// The session that an effect is about: it has not gone.
    fn seat(&mut self, key: SessionKey) -> &mut Seat {
        let seat = self.seats[key.index as usize].as_mut();
        seat.filter(|seat| seat.key == key).expect("an effect is about a session that is there")
    }

    /// Sessions that were paused read what came meanwhile.
    fn read_on(&mut self) {
        for place in 0..SEATS {
            let Some(seat) = &mut self.seats[place] else { continue };
            if !seat.is_paused
                && let Some(frame) = seat.unread.pop_front()
            {
                let (shard, session) = (seat.shard, seat.key);
                self.handle(shard, Event::Received { session, frame: &frame });
            }
        }
    }

    fn open(&mut self, place: usize, how: u8) {
        if self.seats[place].is_some() {
            return;
        }
        self.generation += 1;
        let key = SessionKey { index: place as u32, generation: self.generation };
        // Half of them the plain WebSocket.
        let wire = Wire::ALL[usize::from(how % 32).saturating_sub(10) % Wire::ALL.len()];
        let shard = u16::from(how / 32) % SHARDS;
        let seat =
            Seat { shard, key, wire, unread: VecDeque::new(), is_paused: false, finished: false, received: Vec::new() };
        self.seats[place] = Some(seat);
        self.handle(shard, Event::Opened { session: key, wire, source: None, address: None });
        if how >= 128 {
            let command = Command::connect();
            let is_alone = wire.is_unidirectional();
            self.send_frame(place, if is_alone { command.bare_connect() } else { command.frame(wire.encoding()) });
        }
    }

    fn send_commands(&mut self, place: usize, script: &mut Script<'_>) {
        let Some(wire) = self.seats[place].as_ref().map(|seat| seat.wire) else { return };
        if wire.is_unidirectional() {
            return self.send_frame(place, Command::read(script).bare_connect());
        }
        let mut frame = Vec::new();
        for number in 0..=script.next() % 4 {
            if number > 0 && wire.encoding() == Encoding::Json {
                frame.push(b'\n');
            }
            frame.extend(Command::read(script).frame(wire.encoding()));
        }
        self.send_frame(place, frame);
    }

    fn send_frame(&mut self, place: usize, frame: Vec<u8>) {
        let Some(seat) = &mut self.seats[place] else { return };
        if seat.is_paused {
            if seat.unread.len() < 8 {
                seat.unread.push_back(frame);
            }
            return;
        }
        let (shard, session) = (seat.shard, seat.key);
        self.handle(shard, Event::Received { session, frame: &frame });
    }

    /// One of the things that sessions wait for is found out.
    fn find_out(&mut self, script: &mut Script<'_>) {
        let at = usize::from(script.next()) % self.pending.len().max(1);
        let Some(Pending { shard, session, what }) = self.pending.remove(at) else { return };
        let now_ms = self.now.unix_ms;
        let event = match what {
            Wanted::ConnectionToken => {
                Event::Authenticated { session, outcome: answers::connection_claims(script, now_ms) }
            }
            Wanted::SubscriptionToken => {
                Event::SubscriptionAuthorized { session, outcome: answers::subscription_claims(script, now_ms) }
            }
            Wanted::Answer(request_id, kind) => {
                Event::ProxyResponded { session, request_id, outcome: answers::outcome(script, kind, now_ms) }
            }
        };
        self.handle(shard, event);
    }

    fn write(&mut self, place: usize, bytes_max: usize) {
        let Some(seat) = &mut self.seats[place] else { return };
        let (shard, session) = (seat.shard, seat.key);
        let offered: Vec<u8> = self.shards[usize::from(shard)].outgoing(session).flatten().copied().collect();
        let written = &offered[..offered.len().min(bytes_max)];
        seat.received.extend_from_slice(written);
        received::check(seat.wire, &mut seat.received);
        if !written.is_empty() {
            self.handle(shard, Event::Wrote { session, bytes: written.len() });
        }
    }

    fn wait(&mut self, how: u8) {
        let ms = [0, 1, 999, 5_000, 13_000, 26_000, 61_000][usize::from(how) % 7];
        self.now.mono_us += ms * 1_000;
        self.now.unix_ms += ms;
        for shard in 0..SHARDS {
            self.handle(shard, Event::Woke);
            let next_us = self.shards[usize::from(shard)].next_deadline_us();
            assert!(next_us.is_none_or(|next_us| next_us > self.now.mono_us), "what is due is dealt with");
        }
    }

    fn drain(&mut self, how: u8) {
        let sessions_max = usize::from(how % 2);
        (0..SHARDS).for_each(|shard| self.handle(shard, Event::DrainSome { sessions_max }));
    }

    fn leave(&mut self, place: usize) {
        let Some(seat) = self.seats[place].take() else { return };
        self.handle(seat.shard, Event::Gone { session: seat.key });
    }

    fn control(&mut self, place: usize, script: &mut Script<'_>) {
        // Only WebSocket clients send these.
        let Some(seat) = self.seats[place].as_ref().filter(|seat| seat.wire.is_websocket()) else { return };
        let (shard, session) = (seat.shard, seat.key);
        let payload = &[script.next(); 125];
        match script.next() % 4 {
            0 => self.handle(shard, Event::CloseReceived { session, code: Some(1_000) }),
            1 => self.handle(shard, Event::CloseReceived { session, code: None }),
            2 => self.handle(shard, Event::Violated { session, code: 1_002, what: "for a test" }),
            _ => self.handle(shard, Event::Pinged { session, payload }),
        }
    }

    /// Carries one message to shard `to`.
    fn pass(&mut self, to: usize) {
        if let Some(message) = self.rings[to].pop_front() {
            let from = ShardIndex(1 - to as u16);
            self.handle(to as u16, Event::Message { from, message });
        }
        if let Some(message) = self.from_rooms[to].pop_front() {
            self.handle(to as u16, Event::FromRoom { from: RoomThreadIndex(0), message });
        }
    }

    /// The room thread takes in what has come, and does something.
    fn run_rooms(&mut self, how: u8) {
        let mut outgoing: Vec<RoutedMessage> = Vec::new();
        for message in self.to_rooms.drain(..) {
            self.rooms.take(message, &mut outgoing);
        }
        match how {
            0..16 => self.rooms.fail(&mut outgoing),
            16..32 => {}
            _ => self.rooms.tick(self.now.unix_ms * 1_000, &mut outgoing),
        }
        for (shard, message) in outgoing {
            self.from_rooms[usize::from(shard.0)].push_back(message);
        }
    }

    fn ask(&mut self, script: &mut Script<'_>) {
        let (to, request) = requests::request(script, self.now.unix_ms);
        let ticket = Ticket(1);
        match to {
            To::Owner(channel) => {
                self.handle(owner_of(channel, SHARDS, NODE_SEED).0, Event::Api { ticket, request });
            }
            To::All => {
                for shard in 0..SHARDS {
                    self.handle(shard, Event::Api { ticket, request: request.clone() });
                }
            }
        }
    }

    fn check(&mut self) {
        for seat in self.seats.iter().flatten() {
            let shard = &mut self.shards[usize::from(seat.shard)];
            let (bytes, frames) = shard.queued(seat.key).expect("a session that has not gone");
            assert!(bytes <= QUEUE_BYTES_MAX + CLOSING_BYTES_MAX, "{bytes} bytes wait");
            assert!(frames <= QUEUE_FRAMES_MAX + 1, "{frames} frames wait");
        }
        for shard in &self.shards {
            let [sessions, local_channels, channels, users] = shard.holdings();
            assert!(sessions <= SEATS && users <= sessions, "{sessions} sessions, {users} users");
            assert!(local_channels <= options::CHANNELS.len(), "{local_channels} local channels");
            assert!(channels <= 4, "{channels} channels");
            let entries = shard.timer_entries();
            assert!(entries <= 2 * (sessions + channels) + 130, "{entries} timer entries");
        }
    }

    /// When all have left and all streams are forgotten, nothing is left.
    fn end(&mut self) {
        (0..SEATS).for_each(|place| self.leave(place));
        while !self.pending.is_empty() {
            self.find_out(&mut Script(&[]));
        }
        for _ in 0..8 {
            while self.rings.iter().any(|ring| !ring.is_empty()) || self.from_rooms.iter().any(|ring| !ring.is_empty())
            {
                (0..self.rings.len()).for_each(|to| self.pass(to));
            }
            self.run_rooms(u8::MAX);
            self.wait(6);
        }
        assert!(self.to_rooms.is_empty() && self.rooms.is_empty(), "rooms that nobody is in are closed");
        for shard in &self.shards {
            assert_eq!(shard.holdings(), [0; 4]);
            assert_eq!(shard.room_holdings(), [0; 2]);
            assert!(shard.counters().namespaces.iter().all(|counters| counters.subscriptions == 0));
        }
    }
}
