//! The body of the fuzz target `engine_session`, which a plain test also runs over the committed corpus: bytes become what
//! happens to a node of two shards. A broken promise is a failed assertion.

mod command;

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use dunlin_protocol::{Disconnect, Encoding, Payload, Tags, UnsubscribeCode};

use crate::{
    Effect, Effects, Event, Now, Options, Seed, SessionKey, Shard, ShardIdentity, ShardIndex,
    api::{ApiRequest, HistoryQuery, SessionFilter},
    backend::{BackendRefusal, PublishHow},
    event::{ConnectionClaims, SubscriptionClaims, Ticket, TokenError},
    message::ShardMessage,
    options::{ChannelOptions, ClientOptions, Lane, NamespaceOptions, RecoveryMode},
    owner_of,
};

use command::Command;

const SHARDS: u16 = 2;
const NODE_SEED: u64 = 7;
/// Sessions at a time.
const SEATS: usize = 4;
const CHANNELS: [&str; 8] = ["a", "b", "keyed:a", "keyed:b", "cache:a", "$a", "nowhere:a", "\u{fc}"];
const USERS: [&str; 3] = ["", "ann", "bob"];
const QUEUE_BYTES_MAX: usize = 4_096;
const QUEUE_FRAMES_MAX: usize = 16;
/// What closing may add to a full queue: the tags of its slots and the goodbye.
const CLOSING_BYTES_MAX: usize = QUEUE_FRAMES_MAX * 32 + 127;

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
    encoding: Encoding,
    /// Frames that came while it was paused.
    unread: VecDeque<Vec<u8>>,
    is_paused: bool,
    /// Whether a connection token (`true`) or a subscription token is being verified.
    asks: Option<bool>,
    finished: bool,
    received: Vec<u8>,
}

struct Node {
    shards: Vec<Shard>,
    now: Now,
    seats: [Option<Seat>; SEATS],
    generation: u32,
    rings: [VecDeque<ShardMessage>; SHARDS as usize],
    /// To be performed, in order.
    effects: VecDeque<(u16, Effect)>,
    is_busy: bool,
}

fn options() -> Options {
    let open = NamespaceOptions {
        allow_subscribe_for_client: true,
        allow_publish_for_subscriber: true,
        allow_presence_for_client: true,
        allow_history_for_client: true,
        allow_subscribe_for_anonymous: true,
        presence: true,
        join_leave: true,
        force_recovery: true,
        history_size: 3,
        history_ttl_ms: 20_000,
        history_meta_ttl_ms: 60_000,
        ..NamespaceOptions::default()
    };
    let client = ClientOptions {
        channel_limit: 3,
        queue_bytes_max: QUEUE_BYTES_MAX,
        queue_frames_max: QUEUE_FRAMES_MAX,
        commands_per_frame_max: 8,
        expired_close_delay_ms: 1_000,
        expired_sub_close_delay_ms: 1_000,
        allow_anonymous_connect_without_token: true,
        ..ClientOptions::default()
    };
    let keyed = NamespaceOptions {
        name: "keyed".to_owned(),
        delivery: Lane::Latest,
        conflation_key: Some("k".to_owned()),
        force_push_join_leave: true,
        ..open.clone()
    };
    let cache = NamespaceOptions { name: "cache".to_owned(), recovery_mode: RecoveryMode::Cache, ..open.clone() };
    Options {
        client,
        channel: ChannelOptions { channels_max: 6, ..ChannelOptions::default() },
        without_namespace: open,
        namespaces: vec![keyed, cache],
        ..Options::default()
    }
}

impl Node {
    fn new(seed: u8) -> Self {
        let options = Arc::new(options());
        let shards = (0..SHARDS).map(|index| {
            let identity = ShardIdentity { index: ShardIndex(index), count: SHARDS };
            Shard::new(identity, Arc::clone(&options), Seed { node: NODE_SEED, shard: [seed ^ index as u8; 32] })
        });
        Self {
            shards: shards.collect(),
            now: Now { mono_us: 1_000_000, unix_ms: 1_700_000_000_000 },
            seats: [const { None }; SEATS],
            generation: 0,
            rings: Default::default(),
            effects: VecDeque::new(),
            is_busy: false,
        }
    }

    fn act(&mut self, script: &mut Script<'_>) {
        let what = script.next();
        let place = usize::from(script.next()) % SEATS;
        match what % 16 {
            0 => self.open(place, script.next()),
            1..=4 => self.say_commands(place, script),
            5 => {
                let length = usize::from(script.next());
                let frame = script.take(length).to_vec();
                self.say(place, frame);
            }
            6 => self.verify(place, script.next()),
            7 => self.write(place, usize::from(script.next())),
            8 => self.write(place, usize::MAX),
            9 => self.wait(script.next()),
            10 => self.leave(place),
            11 => self.control(place, script),
            12 | 13 => self.pass(usize::from(script.next()) % self.rings.len()),
            14 => self.ask(script),
            _ if script.next() == 7 => (0..SHARDS).for_each(|shard| self.handle(shard, Event::Drain)),
            _ => (0..SHARDS).for_each(|shard| self.handle(shard, Event::TurnEnded)),
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
                assert_ne!(to.0, shard, "a shard says nothing to itself");
                self.rings[usize::from(to.0)].push_back(message);
            }
            Effect::AskBackend { session, question } => {
                let (question, outcome) = (question.id, Err(BackendRefusal::Failed));
                self.handle(shard, Event::BackendAnswered { session, question, outcome });
            }
            Effect::Authenticate { session, .. } => {
                assert_eq!(self.seat(session).asks.replace(true), None, "one token at a time");
            }
            Effect::AuthorizeSubscription { session, .. } => {
                assert_eq!(self.seat(session).asks.replace(false), None, "one token at a time");
            }
            Effect::Pause { session } => self.seat(session).is_paused = true,
            Effect::Resume { session } => self.seat(session).is_paused = false,
            Effect::Finish { session } => {
                assert!(!std::mem::replace(&mut self.seat(session).finished, true), "finished once");
            }
            Effect::HangUp { session } => {
                self.seat(session);
                self.leave(session.index as usize);
            }
            Effect::ToRoom { .. } => unreachable!("no namespace here has rooms"),
            Effect::Answer { .. } => {}
        }
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
        let encoding = Encoding::ALL[usize::from(how % 2)];
        let shard = u16::from(how / 2) % SHARDS;
        self.seats[place] = Some(Seat {
            shard,
            key,
            encoding,
            unread: VecDeque::new(),
            is_paused: false,
            asks: None,
            finished: false,
            received: Vec::new(),
        });
        self.handle(shard, Event::Opened { session: key, wire: encoding.into() });
        if how >= 128 {
            let command = Command { id: 1, kind: 0, channel: "", number: 0, flag: false };
            self.say(place, command.frame(encoding));
        }
    }

    fn say_commands(&mut self, place: usize, script: &mut Script<'_>) {
        let Some(encoding) = self.seats[place].as_ref().map(|seat| seat.encoding) else { return };
        let mut frame = Vec::new();
        for number in 0..=script.next() % 4 {
            if number > 0 && encoding == Encoding::Json {
                frame.push(b'\n');
            }
            frame.extend(Command::read(script).frame(encoding));
        }
        self.say(place, frame);
    }

    fn say(&mut self, place: usize, frame: Vec<u8>) {
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

    fn verify(&mut self, place: usize, how: u8) {
        let Some(seat) = &mut self.seats[place] else { return };
        let (shard, session) = (seat.shard, seat.key);
        let Some(is_connection) = seat.asks.take() else { return };
        let user = USERS[usize::from(how / 4) % USERS.len()].to_owned();
        let expires_at_s = (how >= 128).then_some(self.now.unix_ms / 1_000 + u64::from(how % 64));
        let info = (how % 4 == 3).then(|| Payload::from_opaque(Bytes::from_static(b"{}")));
        if is_connection {
            let outcome = match how % 4 {
                0 => Err(TokenError::Expired),
                1 => Err(TokenError::Invalid),
                _ => Ok(ConnectionClaims { user, info, expires_at_s, ..ConnectionClaims::default() }),
            };
            self.handle(shard, Event::Authenticated { session, outcome });
        } else {
            let channel = CHANNELS[usize::from(how / 12) % CHANNELS.len()].to_owned();
            let claims = SubscriptionClaims { user, channel, info, expires_at_s, ..SubscriptionClaims::default() };
            let outcome = match how % 4 {
                0 => Err(TokenError::Expired),
                1 => Err(TokenError::Invalid),
                _ => Ok(claims),
            };
            self.handle(shard, Event::SubscriptionAuthorized { session, outcome });
        }
    }

    fn write(&mut self, place: usize, bytes_max: usize) {
        let Some(seat) = &mut self.seats[place] else { return };
        let (shard, session) = (seat.shard, seat.key);
        let offered: Vec<u8> = self.shards[usize::from(shard)].outgoing(session).flatten().copied().collect();
        let written = &offered[..offered.len().min(bytes_max)];
        seat.received.extend_from_slice(written);
        check_frames(seat.encoding, &mut seat.received);
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

    fn leave(&mut self, place: usize) {
        let Some(seat) = self.seats[place].take() else { return };
        self.handle(seat.shard, Event::Gone { session: seat.key });
    }

    fn control(&mut self, place: usize, script: &mut Script<'_>) {
        let Some(seat) = &self.seats[place] else { return };
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
    }

    fn ask(&mut self, script: &mut Script<'_>) {
        let channel = script.pick(&CHANNELS);
        let user = Box::from(script.pick(&USERS));
        let how = script.next();
        let request = match how % 8 {
            0..=2 => {
                let length = usize::from(script.next());
                let data = Payload::from_opaque(Bytes::copy_from_slice(script.take(length)));
                let tags: Tags = vec![("k".into(), script.next().to_string().into())];
                let how = PublishHow { tags, skip_history: how >= 128, ..PublishHow::default() };
                ApiRequest::Publish { channel: channel.into(), data, how }
            }
            3 => ApiRequest::History {
                channel: channel.into(),
                query: HistoryQuery { limit: i32::from(how) - 128, reverse: how >= 64, ..HistoryQuery::default() },
            },
            4 => ApiRequest::HistoryRemove { channel: channel.into() },
            5 => ApiRequest::Unsubscribe {
                channel: if how >= 128 { Box::default() } else { channel.into() },
                user,
                only: SessionFilter::default(),
                code: UnsubscribeCode::SERVER,
            },
            6 => ApiRequest::Disconnect {
                user,
                only: SessionFilter::default(),
                whitelist: Vec::new(),
                disconnect: Disconnect::FORCE_NO_RECONNECT,
            },
            _ => ApiRequest::Survey,
        };
        let ticket = Ticket(1);
        match &request {
            ApiRequest::Unsubscribe { .. } | ApiRequest::Disconnect { .. } | ApiRequest::Survey => {
                for shard in 0..SHARDS {
                    self.handle(shard, Event::Api { ticket, request: request.clone() });
                }
            }
            _ => self.handle(owner_of(channel, SHARDS, NODE_SEED).0, Event::Api { ticket, request }),
        }
    }

    fn check(&mut self) {
        for seat in self.seats.iter().flatten() {
            let shard = &mut self.shards[usize::from(seat.shard)];
            let (bytes, frames) = shard.waiting(seat.key).expect("a session that has not gone");
            assert!(bytes <= QUEUE_BYTES_MAX + CLOSING_BYTES_MAX, "{bytes} bytes wait");
            assert!(frames <= QUEUE_FRAMES_MAX + 1, "{frames} frames wait");
        }
        for shard in &self.shards {
            let [sessions, local_channels, channels, users] = shard.holdings();
            assert!(sessions <= SEATS && users <= sessions, "{sessions} sessions, {users} users");
            assert!(local_channels <= sessions * 3, "{local_channels} local channels");
            assert!(channels <= 3, "{channels} channels");
            let entries = shard.timer_entries();
            assert!(entries <= 2 * (sessions + channels) + 130, "{entries} timer entries");
        }
    }

    /// When all have left and all streams are forgotten, nothing is left.
    fn end(&mut self) {
        (0..SEATS).for_each(|place| self.leave(place));
        while self.rings.iter().any(|ring| !ring.is_empty()) {
            (0..self.rings.len()).for_each(|to| self.pass(to));
        }
        for _ in 0..4 {
            self.wait(6);
        }
        for shard in &self.shards {
            assert_eq!(shard.holdings(), [0; 4]);
            assert!(shard.counters().namespaces.iter().all(|counters| counters.subscriptions == 0));
        }
    }
}

/// Takes whole frames off `received`; each is one that a server may send.
fn check_frames(encoding: Encoding, received: &mut Vec<u8>) {
    while let [first, second, rest @ ..] = &received[..] {
        let (length, head) = match (second, rest) {
            (126, [high, low, ..]) => (usize::from(u16::from_be_bytes([*high, *low])), 4),
            (126 | 127, _) => return,
            (length, _) => (usize::from(*length), 2),
        };
        let Some(payload) = received.get(head..head + length) else { return };
        let is_data = match encoding {
            Encoding::Json => *first == 0x81 && std::str::from_utf8(payload).is_ok(),
            Encoding::Protobuf => *first == 0x82,
        };
        assert!(is_data || matches!(first, 0x88 | 0x8a), "a frame that begins with {first:#x}");
        received.drain(..head + length);
    }
}
