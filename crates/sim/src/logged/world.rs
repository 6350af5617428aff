//! The simulated node, its log, its clients and its publishers.

mod publish;
mod settle;

use std::{collections::BTreeMap, sync::Arc};

use dunlin_engine::{
    Effect, Effects, Event, Now, Options, Seed, SessionKey, Shard, ShardIdentity, ShardIndex,
    api::HistoryQuery,
    log::{LogLimits, PublicationLog},
    options::{ClientOptions, NamespaceOptions},
    owner_of,
};
use dunlin_protocol::Encoding;

use crate::{chance::Chance, ring::ShardRing, trace::Trace, wire::ClientCommand};

use super::{
    KEY_TAG, REMOVAL_TAG, Truth,
    actor::{LogActor, ORDERED_BY_LOG},
    client::LogClient,
};

const CHANNELS: [&str; 5] = ["own:a", "own:b", "log:a", "log:b", "log:c"];
/// Longer than the retention of publications and of results of idempotency keys.
const LONG_PAUSE_US: u64 = 310_000_000;

/// A shard with the state of its thread.
struct LoggedShard {
    shard: Shard,
    effects: Effects,
    sessions: u32,
    /// Sessions whose queued commands can run now.
    recalled: Vec<SessionKey>,
}

/// An API request without a reply.
enum PendingRequest {
    Publish {
        data: Vec<u8>,
        key: Option<&'static str>,
    },
    /// With the newest committed offset at the time of the request.
    History {
        query: HistoryQuery,
        top: u64,
    },
    /// With the newest committed offset at the time of the request.
    Remove {
        through: u64,
    },
}

/// The whole simulation.
pub struct LoggedWorld<'a> {
    prepare: &'a dyn Fn(&mut Shard),
    chance: Chance,
    options: Arc<Options>,
    node: u64,
    shards: Vec<LoggedShard>,
    rings: Vec<ShardRing>,
    log: LogActor,
    truth: Truth,
    clients: Vec<LogClient>,
    /// API requests without a reply, by ticket, with the channel.
    requests: BTreeMap<u64, (&'static str, PendingRequest)>,
    /// By channel: publications up to this offset may be missing in a history, because it was removed or has expired.
    removed: BTreeMap<&'static str, u64>,
    /// By channel: publications up to this offset were removed, and the removal was acknowledged.
    gone: BTreeMap<&'static str, u64>,
    published: u64,
    /// The highest offset that the node was told of, by channel.
    told: BTreeMap<String, u64>,
    /// Requests in flight that remove a history.
    removals: u64,
    tickets: u64,
    now_us: u64,
    steps: u64,
    trace: Trace,
    reached: BTreeMap<String, u64>,
}

impl<'a> LoggedWorld<'a> {
    /// Creates the world of `seed`. Applies `prepare` to each shard.
    pub fn new(seed: u64, prints: bool, prepare: &'a dyn Fn(&mut Shard)) -> Self {
        let mut chance = Chance::new(seed ^ 0x6c6f_6767_6564);
        let options = Arc::new(options(&mut chance));
        let count = chance.between(1, 3) as u16;
        let node = chance.number();
        let log = LogActor::new(Chance::new(chance.number()));
        let clients = (0..chance.between(2, 6)).map(|_| LogClient::new()).collect();
        let mut world = Self {
            prepare,
            options,
            node,
            shards: Vec::new(),
            rings: ShardRing::all(count),
            log,
            truth: Truth::new(),
            clients,
            requests: BTreeMap::new(),
            removed: BTreeMap::new(),
            gone: BTreeMap::new(),
            published: 0,
            told: BTreeMap::new(),
            removals: 0,
            tickets: 0,
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
        for _ in 0..self.chance.between(1, 4) {
            for _ in 0..self.chance.between(50, 400) {
                self.step()?;
            }
            if self.chance.percent(40) {
                self.crash();
            }
            if self.chance.percent(10) {
                self.count("long pause");
                self.pass_time(LONG_PAUSE_US)?;
                for channel in CHANNELS {
                    self.note_removed(channel);
                }
                self.log.expire_all();
                self.keys_may_be_gone();
            }
            self.settle()?;
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
        reached.insert("log: recovered".to_owned(), of_clients(|client| client.recoveries.0));
        reached.insert("log: not recovered".to_owned(), of_clients(|client| client.recoveries.1));
        reached
    }

    fn count(&mut self, what: &str) {
        *self.reached.entry(format!("log: {what}")).or_insert(0) += 1;
    }

    /// Starts the node with empty memory.
    fn start(&mut self, count: u16) {
        let shards = (0..count).map(|index| {
            let identity = ShardIdentity { index: ShardIndex(index), count };
            let seed = Seed { node: self.node, shard: self.chance.seed() };
            let mut shard = Shard::new(identity, Arc::clone(&self.options), seed);
            (self.prepare)(&mut shard);
            LoggedShard { shard, effects: Effects::default(), sessions: 0, recalled: Vec::new() }
        });
        self.shards = shards.collect();
        self.rings = ShardRing::all(count);
    }

    /// Crashes and restarts the node. Everything that the log committed is kept.
    fn crash(&mut self) {
        self.count("crash");
        self.trace.line(self.now_us, || "the node crashes".to_owned());
        self.log.crash(self.now_us, &mut self.truth);
        self.keys_may_be_gone();
        self.removals = 0;
        self.requests.clear();
        self.clients.iter_mut().for_each(LogClient::leave);
        self.start(self.shards.len() as u16);
    }

    fn now(&self) -> Now {
        Now { mono_us: self.now_us, unix_ms: 1_700_000_000_000 + self.now_us / 1_000 }
    }

    fn step(&mut self) -> Result<(), String> {
        self.steps += 1;
        let pause_us = self.chance.between(0, 3_000);
        self.pass_time(pause_us)?;
        match self.chance.weighted(&[30, 25, 30, 4, 4, 2]) {
            0 => self.deliver_some()?,
            1 => self.act()?,
            2 => self.publish()?,
            3 => self.publish_through_other_node(),
            4 => self.request_history()?,
            _ => self.remove_history()?,
        }
        self.serve_log()?;
        self.serve_clients()
    }

    fn pass_time(&mut self, pause_us: u64) -> Result<(), String> {
        self.now_us += pause_us;
        for index in 0..self.shards.len() {
            while self.shards[index].shard.next_deadline_us().is_some_and(|due_us| due_us <= self.now_us) {
                self.handle(index, Event::Woke)?;
            }
        }
        Ok(())
    }

    /// Runs the due tasks of the log, and delivers its due events.
    fn serve_log(&mut self) -> Result<(), String> {
        self.log.step(self.now_us, &mut self.truth)?;
        while let Some((channel, event)) = self.log.next_event(self.now_us) {
            self.trace.line(self.now_us, || format!("the log: {event:?}"));
            match &event {
                Event::Committed { outcome: Err(_), .. } => self.count("publication rejected"),
                Event::Loaded { outcome: Ok(page), .. } if page.has_more_below => self.count("page cut below"),
                Event::Loaded { outcome: Ok(page), .. } if page.through < page.top => self.count("page cut above"),
                _ => {}
            }
            let told = match &event {
                Event::Committed { outcome: Ok(offset), .. } => *offset,
                Event::Replicated { record, .. } => record.publication.offset,
                _ => 0,
            };
            let known = self.told.entry(channel.clone()).or_insert(0);
            *known = told.max(*known);
            self.handle(self.owner(&channel), event)?;
        }
        Ok(())
    }

    fn owner(&self, channel: &str) -> usize {
        usize::from(owner_of(channel, self.shards.len() as u16, self.node).0)
    }

    fn handle(&mut self, index: usize, event: Event<'_>) -> Result<(), String> {
        let now = self.now();
        let LoggedShard { shard, effects, .. } = &mut self.shards[index];
        shard.handle(now, event, effects);
        for effect in std::mem::take(&mut effects.list) {
            self.perform(index, effect)?;
        }
        self.read_dirty(index)?;
        while let Some(session) = self.shards[index].recalled.pop() {
            self.handle(index, Event::Recalled { session })?;
        }
        Ok(())
    }

    fn perform(&mut self, index: usize, effect: Effect) -> Result<(), String> {
        self.trace.line(self.now_us, || format!("shard {index}: {effect:?}"));
        let now_us = self.now_us;
        match effect {
            Effect::Send { to, message } => {
                let ring = ShardRing::index(ShardIndex(index as u16), to, self.shards.len() as u16, &message);
                self.rings[ring].push(message);
            }
            Effect::Propose { channel, proposal, record, begins: _, terms } => {
                self.count("proposal");
                self.log.propose(now_us, &channel, proposal, record, terms);
            }
            Effect::Load { channel, load, query, terms: _ } => {
                self.count(if query.after.is_some() { "older page" } else { "newest page" });
                self.log.load(now_us, &channel, load, query);
            }
            Effect::Trim { channel, through, ticket } => self.log.trim(now_us, &channel, through, ticket),
            Effect::Follow { channel } => self.log.follow(&channel, true),
            Effect::Unfollow { channel, .. } => {
                self.count("unfollowed");
                self.log.follow(&channel, false);
            }
            Effect::Pause { session } => self.client_of(index, session)?.paused = true,
            Effect::Resume { session } => self.client_of(index, session)?.paused = false,
            Effect::Recall { session } => self.shards[index].recalled.push(session),
            Effect::Answer { ticket, answer, .. } => self.on_api_reply(ticket, &answer)?,
            Effect::Finish { session } | Effect::HangUp { session } => {
                return Err(format!("the session {session:?} is closed"));
            }
            other => return Err(format!("{other:?}")),
        }
        Ok(())
    }

    fn client_of(&mut self, shard: usize, session: SessionKey) -> Result<&mut LogClient, String> {
        let mut clients = self.clients.iter_mut();
        clients.find(|client| client.session == Some((shard, session))).ok_or_else(|| format!("{session:?} is gone"))
    }

    /// Writes all queued bytes of the dirty sessions, and lets the clients read them at once.
    fn read_dirty(&mut self, index: usize) -> Result<(), String> {
        for session in std::mem::take(&mut self.shards[index].effects.dirty) {
            let slices: Vec<u8> = self.shards[index].shard.outgoing(session).flatten().copied().collect();
            self.trace.bytes(&slices);
            let now = self.now();
            let LoggedShard { shard, effects, .. } = &mut self.shards[index];
            shard.handle(now, Event::Wrote { session, bytes: slices.len() }, effects);
            for effect in std::mem::take(&mut effects.list) {
                self.perform(index, effect)?;
            }
            let may_fail = self.may_reject();
            let Self { clients, truth, .. } = self;
            let client = clients.iter_mut().find(|client| client.session == Some((index, session)));
            let Some(client) = client else { continue };
            client.read(truth, may_fail, slices.into_iter())?;
            for seen in std::mem::take(&mut client.seen_keys) {
                self.check_keys(&seen)?;
            }
        }
        Ok(())
    }

    fn may_reject(&self) -> bool {
        self.log.fails() || self.options.log.proposals_max < 100
    }

    fn deliver_some(&mut self) -> Result<(), String> {
        let ring = self.chance.below(self.rings.len());
        for _ in 0..3 {
            self.deliver(ring)?;
        }
        Ok(())
    }

    fn deliver(&mut self, ring: usize) -> Result<(), String> {
        let Some(message) = self.rings[ring].pop(self.now_us) else { return Ok(()) };
        let (from, to) = (self.rings[ring].from, self.rings[ring].to);
        self.handle(usize::from(to.0), Event::Message { from, message })
    }

    /// Delivers the frames of clients to their shards.
    fn serve_clients(&mut self) -> Result<(), String> {
        for number in 0..self.clients.len() {
            while let Some((shard, session)) = self.clients[number].session
                && !self.clients[number].paused
                && !self.clients[number].to_server.is_empty()
            {
                let frame = self.clients[number].to_server.remove(0);
                self.handle(shard, Event::Received { session, frame: &frame })?;
            }
        }
        Ok(())
    }

    /// Runs a random action of a client.
    fn act(&mut self) -> Result<(), String> {
        let number = self.chance.below(self.clients.len());
        let channel = *self.chance.pick(&CHANNELS);
        if self.clients[number].session.is_none() {
            return self.open(number);
        }
        if !self.clients[number].is_connected {
            return Ok(());
        }
        match self.chance.weighted(&[40, 10, 4, 20, 10]) {
            0 if !self.clients[number].has_or_requested(channel) => self.clients[number].subscribe(channel, false),
            1 => self.clients[number].unsubscribe(channel),
            2 => return self.hang_up(number),
            3 => {
                let data = self.next_data();
                self.clients[number].send(ClientCommand::Publish { channel: channel.to_owned(), data }, false);
            }
            4 => {
                let (limit, reverse) = (*self.chance.pick(&[1, 5, -1]), self.chance.percent(30));
                let since = self.clients[number].live.get(channel).cloned().filter(|_| !reverse).map(|mut since| {
                    since.offset = since.offset.saturating_sub(self.chance.between(0, 20));
                    since
                });
                if !reverse {
                    self.clients[number]
                        .send(ClientCommand::History { channel: channel.to_owned(), limit, since, reverse }, false);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn open(&mut self, number: usize) -> Result<(), String> {
        let shard = self.chance.below(self.shards.len());
        let session = SessionKey { index: self.shards[shard].sessions, generation: 1 };
        self.shards[shard].sessions += 1;
        self.clients[number].open(shard, session);
        self.handle(shard, Event::Opened { session, wire: Encoding::Json.into(), source: None, address: None })
    }

    fn hang_up(&mut self, number: usize) -> Result<(), String> {
        let Some((shard, session)) = self.clients[number].session else { return Ok(()) };
        self.clients[number].leave();
        self.handle(shard, Event::Gone { session })
    }

    fn next_data(&mut self) -> Vec<u8> {
        self.published += 1;
        format!(r#"{{"n":{}}}"#, self.published).into_bytes()
    }
}

fn options(chance: &mut Chance) -> Options {
    let namespace = |name: &str, log: PublicationLog, chance: &mut Chance| NamespaceOptions {
        name: name.to_owned(),
        log,
        history_size: chance.between(5, 40) as usize,
        history_ttl_ms: 60_000,
        history_meta_ttl_ms: 120_000,
        force_recovery: true,
        allow_subscribe_for_client: true,
        allow_subscribe_for_anonymous: true,
        allow_publish_for_client: true,
        allow_publish_for_anonymous: true,
        allow_history_for_client: true,
        allow_history_for_anonymous: true,
        conflation_key: Some(KEY_TAG.to_owned()),
        removal_tag: Some(REMOVAL_TAG.into()),
        cache_keys_max: 100,
        cache_keys_ttl_ms: 60_000,
        ..NamespaceOptions::default()
    };
    let namespaces = vec![
        namespace("own", PublicationLog::OrderedByOwner, chance),
        namespace("log", PublicationLog::OrderedByLog, chance),
    ];
    let client =
        ClientOptions { allow_anonymous_connect_without_token: true, ping_interval_ms: 0, ..ClientOptions::default() };
    let log = LogLimits {
        proposals_max: *chance.pick(&[3, 1_000, 1_000]),
        tail_publications_max: *chance.pick(&[1, 4, 10, 1_000]),
        ..LogLimits::default()
    };
    Options { client, namespaces, log, ..Options::default() }
}
