//! A node of shards without sockets and threads: effects are performed at once, in order, unless a test holds some
//! back.
#![allow(dead_code, reason = "each test uses its part")]

#[path = "../../../protocol/tests/schema/mod.rs"]
mod schema;

pub mod api;
pub mod backend;
pub mod broadcasts;
mod lifecycle;
mod log;
pub mod options;
mod records;
pub mod script;
mod tokens;
pub mod wire;

use std::{
    collections::{BTreeMap, VecDeque},
    net::Ipv4Addr,
    sync::Arc,
};

use dunlin_engine::{
    Effect, Effects, Event, Now, Options, Seed, SessionKey, Shard, ShardIdentity, ShardIndex, Wire, api::ApiResult,
    backend::ProxyRequestId, event::PeerQueryNumber, event::PresenceKind, event::SourceKey, event::Ticket,
    message::ShardMessage, owner_of, room::ToRoom,
};
use dunlin_protocol::Encoding;
use serde_json::Value;

pub const NODE_SEED: u64 = 7;

/// The shard of a session, and its key there.
pub type Place = (u16, SessionKey);

/// The client side of a session.
pub struct Client {
    pub place: Place,
    pub encoding: Encoding,
    pub wire: Wire,
    /// Bytes that its socket still accepts.
    pub room_bytes: usize,
    pub is_paused: bool,
    /// Frames that wait while the session is paused.
    pub unread: VecDeque<Vec<u8>>,
    /// Bytes written to the client and not parsed yet.
    pub received: Vec<u8>,
    pub finished: bool,
    pub is_gone: bool,
    /// A pending token check, which the test answers.
    pub open_question: Option<Question>,
    /// Pending requests to backends, which the test answers, in order.
    pub proxy_requests: VecDeque<ProxyRequestId>,
}

/// The kind of a pending token check.
#[derive(Clone, Copy, Debug)]
pub enum Question {
    Connection,
    Subscription,
}

pub struct Node {
    pub shards: Vec<Shard>,
    pub now: Now,
    pub clients: BTreeMap<String, Client>,
    /// Messages in flight, while they are held back.
    pub rings: BTreeMap<(u16, u16), VecDeque<ShardMessage>>,
    pub holds_rings: bool,
    /// Events other than bytes, by client.
    pub sent: Vec<String>,
    pub answers: Vec<ApiResult>,
    /// Pending queries to all nodes, which the test answers.
    pub peer_queries: Vec<(u16, PeerQueryNumber, Arc<str>, PresenceKind)>,
    pub room_queries: Vec<(u16, Arc<str>)>,
    pub log: log::Log,
    /// Whether `follow` and `unfollow` effects are shown.
    is_clustered: bool,
    /// Whether the test itself answers `follow` effects.
    pub holds_following: bool,
    /// Messages to room threads, for the test to answer.
    pub to_rooms: VecDeque<(u16, ToRoom)>,
    /// The address of the next sessions.
    pub source: Option<SourceKey>,
    sessions_opened: u32,
    /// Effects to perform, and sessions to write to, in order.
    effects: VecDeque<(u16, Effect)>,
    dirty: VecDeque<Place>,
    is_busy: bool,
}

impl Node {
    pub fn new(shard_count: u16, options: Options) -> Self {
        let options = Arc::new(options);
        let shards = (0..shard_count)
            .map(|index| {
                let identity = ShardIdentity { index: ShardIndex(index), count: shard_count };
                Shard::new(identity, Arc::clone(&options), Seed { node: NODE_SEED, shard: [index as u8 + 1; 32] })
            })
            .collect();
        Self {
            shards,
            now: Now { mono_us: 1_000_000, unix_ms: 1_700_000_000_000 },
            clients: BTreeMap::new(),
            rings: BTreeMap::new(),
            holds_rings: false,
            sent: Vec::new(),
            answers: Vec::new(),
            peer_queries: Vec::new(),
            room_queries: Vec::new(),
            log: log::Log::default(),
            is_clustered: options.without_namespace.is_clustered,
            holds_following: false,
            to_rooms: VecDeque::new(),
            source: None,
            sessions_opened: 0,
            effects: VecDeque::new(),
            dirty: VecDeque::new(),
            is_busy: false,
        }
    }

    pub fn open(&mut self, name: &str, encoding: Encoding, shard: u16) {
        self.open_on(name, encoding.into(), shard);
    }

    pub fn open_on(&mut self, name: &str, wire: Wire, shard: u16) {
        let key = SessionKey { index: self.sessions_opened, generation: 1 };
        self.sessions_opened += 1;
        let client = Client {
            place: (shard, key),
            encoding: wire.encoding(),
            wire,
            room_bytes: usize::MAX,
            is_paused: false,
            unread: VecDeque::new(),
            received: Vec::new(),
            finished: false,
            is_gone: false,
            open_question: None,
            proxy_requests: VecDeque::new(),
        };
        assert!(self.clients.insert(name.to_owned(), client).is_none(), "{name} is there already");
        // `NAME@7` comes from address 7.
        let number = name.split_once('@').and_then(|(_, number)| number.parse().ok());
        let source = number.map(SourceKey).or(self.source);
        let address = source.map(|SourceKey(number)| Ipv4Addr::from(number.get() as u32).into());
        self.handle(shard, Event::Opened { session: key, wire, source, address });
    }

    pub fn client(&mut self, name: &str) -> &mut Client {
        self.clients.get_mut(name).unwrap_or_else(|| panic!("no client {name}"))
    }

    pub fn receive(&mut self, name: &str, frame: Vec<u8>) {
        let client = self.client(name);
        if client.is_paused {
            return client.unread.push_back(frame);
        }
        let (shard, session) = client.place;
        self.handle(shard, Event::Received { session, frame: &frame });
    }

    /// Passes an event to a shard, and performs its effects.
    pub fn handle(&mut self, shard: u16, event: Event<'_>) {
        let mut effects = Effects::default();
        self.shards[usize::from(shard)].handle(self.now, event, &mut effects);
        for effect in effects.list {
            if let Effect::Pause { session } = effect {
                // Takes effect at once: frames that were already received have to wait too.
                self.at((shard, session)).is_paused = true;
            }
            self.effects.push_back((shard, effect));
        }
        for record in &effects.records {
            self.send((shard, record.session), &records::shown(record));
        }
        self.sent.extend(effects.lifecycle.iter().map(lifecycle::shown));
        self.dirty.extend(effects.dirty.into_iter().map(|session| (shard, session)));
        self.settle();
    }

    /// Performs effects, delivers messages between shards unless they are held back, and writes.
    pub fn settle(&mut self) {
        if std::mem::replace(&mut self.is_busy, true) {
            return;
        }
        loop {
            if let Some((shard, effect)) = self.effects.pop_front() {
                self.perform(shard, effect);
            } else if let Some((from, to, message)) = self.next_message() {
                self.handle(to, Event::Message { from: ShardIndex(from), message });
            } else if let Some(place) = self.dirty.pop_front() {
                self.write(place);
            } else {
                break;
            }
        }
        self.is_busy = false;
    }

    fn next_message(&mut self) -> Option<(u16, u16, ShardMessage)> {
        if self.holds_rings {
            return None;
        }
        self.rings.iter_mut().find_map(|(&(from, to), ring)| Some((from, to, ring.pop_front()?)))
    }

    fn perform(&mut self, shard: u16, effect: Effect) {
        match effect {
            Effect::Send { to, message } => self.rings.entry((shard, to.0)).or_default().push_back(message),
            Effect::ToRoom { thread, message } => self.to_rooms.push_back((thread.0, message)),
            Effect::Authenticate { session, token } => match tokens::connection(&token, self.now) {
                Some(outcome) => self.handle(shard, Event::Authenticated { session, outcome }),
                None => self.at((shard, session)).open_question = Some(Question::Connection),
            },
            Effect::AuthorizeSubscription { session, token } => match tokens::subscription(&token, self.now) {
                Some(outcome) => self.handle(shard, Event::SubscriptionAuthorized { session, outcome }),
                None => self.at((shard, session)).open_question = Some(Question::Subscription),
            },
            Effect::SendProxyRequest { session, request } => {
                let shown = format!("asks {}", backend::request(&request));
                self.send((shard, session), &shown);
                self.at((shard, session)).proxy_requests.push_back(request.id);
            }
            Effect::Pause { .. } => {}
            Effect::Resume { session } => self.resume((shard, session)),
            Effect::Recall { session } => self.handle(shard, Event::Recalled { session }),
            Effect::Finish { session } => {
                self.at((shard, session)).finished = true;
                self.send((shard, session), "finish");
            }
            Effect::HangUp { session } => {
                self.send((shard, session), "hang up");
                self.at((shard, session)).is_gone = true;
                self.handle(shard, Event::Gone { session });
            }
            effect @ (Effect::Follow { .. } | Effect::Unfollow { .. }) if self.is_clustered => {
                self.sent.push(broadcasts::shown_following(&effect));
                if let Effect::Follow { channel } = effect
                    && !self.holds_following
                {
                    self.handle(shard, Event::Followed { channel });
                }
            }
            effect @ (Effect::Propose { .. }
            | Effect::Load { .. }
            | Effect::Trim { .. }
            | Effect::Follow { .. }
            | Effect::Unfollow { .. }) => {
                if let Some(event) = self.log.answer(shard, effect) {
                    self.handle(shard, event);
                }
            }
            Effect::Broadcast { channel, message } => self.sent.push(broadcasts::shown(&channel, &message)),
            Effect::ShareUserSessions { user, sessions } => self.sent.push(format!("share {user} {sessions}")),
            Effect::QueryPeers { query, channel, kind } => self.peer_queries.push((shard, query, channel, kind)),
            Effect::QueryRoom { channel } => self.room_queries.push((shard, channel)),
            Effect::QueryKeys { channel } => self.sent.push(format!("ask keys {channel}")),
            Effect::Answer { ticket: Ticket(_), answer, .. } => self.answers.push(answer),
        }
    }

    fn resume(&mut self, place: Place) {
        let client = self.at(place);
        client.is_paused = false;
        let name = self.name(place);
        while let Some(frame) = self.client(&name).unread.pop_front() {
            self.receive(&name, frame);
            if self.client(&name).is_paused {
                break;
            }
        }
    }

    /// Answers the pending token check with `token`.
    pub fn answer(&mut self, name: &str, token: &str) {
        let now = self.now;
        let client = self.client(name);
        let (shard, session) = client.place;
        match client.open_question.take().expect("an open question") {
            Question::Connection => {
                let outcome = tokens::connection(token, now).expect("an answer");
                self.handle(shard, Event::Authenticated { session, outcome });
            }
            Question::Subscription => {
                let outcome = tokens::subscription(token, now).expect("an answer");
                self.handle(shard, Event::SubscriptionAuthorized { session, outcome });
            }
        }
    }

    /// Answers the client's oldest request to a backend.
    pub fn answer_backend(&mut self, name: &str, answer: &Value) {
        let outcome = backend::outcome(answer, self.now);
        let client = self.client(name);
        let (shard, session) = client.place;
        let Some(request_id) = client.proxy_requests.pop_front() else {
            return self.sent.push(format!("{name} has asked nothing"));
        };
        self.handle(shard, Event::ProxyResponded { session, request_id, outcome });
    }

    /// Writes a session's queued bytes, as far as its socket accepts them.
    pub fn write(&mut self, place: Place) {
        let (shard, session) = place;
        loop {
            let Some(client) = self.clients.values_mut().find(|client| client.place == place && !client.is_gone) else {
                return;
            };
            if client.room_bytes == 0 {
                return;
            }
            let engine = &mut self.shards[usize::from(shard)];
            let mut offered: Vec<u8> = engine.outgoing(session).flatten().copied().collect();
            offered.truncate(client.room_bytes);
            if offered.is_empty() {
                return;
            }
            if client.room_bytes != usize::MAX {
                client.room_bytes -= offered.len();
            }
            client.received.extend_from_slice(&offered);
            self.handle(shard, Event::Wrote { session, bytes: offered.len() });
        }
    }

    /// Advances the time, and wakes shards at their deadlines.
    pub fn wait(&mut self, ms: u64) {
        let end_us = self.now.mono_us + ms * 1_000;
        loop {
            let next = self.shards.iter().filter_map(Shard::next_deadline_us).min().filter(|due_us| *due_us <= end_us);
            let Some(due_us) = next else { break };
            self.step_to(due_us);
            for shard in 0..self.shards.len() as u16 {
                if self.shards[usize::from(shard)].next_deadline_us().is_some_and(|own_us| own_us <= due_us) {
                    self.handle(shard, Event::Woke);
                }
            }
        }
        self.step_to(end_us);
    }

    /// Advances the time, and wakes the shards only at the end.
    pub fn jump(&mut self, ms: u64) {
        self.step_to(self.now.mono_us + ms * 1_000);
        for shard in 0..self.shards.len() as u16 {
            self.handle(shard, Event::Woke);
        }
    }

    /// Sends an API request to the channel's owner, or to all shards.
    pub fn ask_api(&mut self, request: &Value) {
        let request = api::request(request, self.now);
        let shard_count = self.shards.len() as u16;
        let shards = match api::channel(&request) {
            Some(channel) => owner_of(channel, shard_count, NODE_SEED).0..=owner_of(channel, shard_count, NODE_SEED).0,
            None => 0..=shard_count - 1,
        };
        for shard in shards {
            self.handle(shard, Event::Api { ticket: Ticket(1), request: request.clone() });
        }
    }

    /// Sets the clocks, but never back.
    pub fn step_to(&mut self, mono_us: u64) {
        let mono_us = mono_us.max(self.now.mono_us);
        let since_start_us = mono_us - 1_000_000;
        self.now = Now { mono_us, unix_ms: 1_700_000_000_000 + since_start_us / 1_000 };
    }

    fn at(&mut self, place: Place) -> &mut Client {
        self.clients.values_mut().find(|client| client.place == place).expect("a client there")
    }

    fn name(&self, place: Place) -> String {
        let (name, _) = self.clients.iter().find(|(_, client)| client.place == place).expect("a client there");
        name.clone()
    }

    fn send(&mut self, place: Place, what: &str) {
        let name = self.name(place);
        self.sent.push(format!("{name} {what}"));
    }
}
