//! The simulated node, its log, its clients and its publishers.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use bytes::Bytes;
use dunlin_engine::{
    Effect, Event, Options, Refused,
    api::{ApiAnswer, ApiRequest, ApiResult, HistoryQuery},
    backend::PublishHow,
    event::Ticket,
    log::{LogLimits, LogRecord, LogTerms, PublicationLog},
    options::{ClientOptions, NamespaceOptions},
};
use dunlin_protocol::{ErrorCode, Payload, Publication, Tags};

use crate::{
    chance::Chance,
    harness::{Harness, PromptWorld, RestTimes, ShardThread, SimNode, World},
    session::ClientSession,
    wire::ClientCommand,
};

use super::{
    ChannelTruth, KEY_TAG, REMOVAL_TAG, SeenKeys, Truth,
    actor::{LogActor, ORDERED_BY_LOG},
    client::{LogClient, check_complete},
    flaw::{LogFlaw, LogSeam},
    keyed_data,
};

const KEYS: [&str; 3] = ["k0", "k1", "k2"];
const CHANNELS: [&str; 5] = ["own:a", "own:b", "log:a", "log:b", "log:c"];
/// Longer than the retention of publications and of results of idempotency keys.
const LONG_PAUSE_US: u64 = 310_000_000;

/// Longer than all timeouts and retention times.
const LATER_US: u64 = 400_000_000;

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
pub struct LoggedWorld {
    harness: Harness,
    node: SimNode,
    log: LogActor,
    seam: LogSeam,
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
}

impl LoggedWorld {
    /// Creates the world of `seed`.
    pub fn new(seed: u64, prints: bool) -> Self {
        let mut chance = Chance::new(seed ^ 0x6c6f_6767_6564);
        let options = Arc::new(options(&mut chance));
        let count = chance.between(1, 3) as u16;
        let mut node = SimNode::new(options, chance.number());
        let log = LogActor::new(Chance::new(chance.number()));
        let clients = (0..chance.between(2, 6)).map(|_| LogClient::default()).collect();
        node.start(count, &mut chance);
        Self {
            harness: Harness::new(chance, prints, "log"),
            node,
            log,
            seam: LogSeam::default(),
            truth: Truth::new(),
            clients,
            requests: BTreeMap::new(),
            removed: BTreeMap::new(),
            gone: BTreeMap::new(),
            published: 0,
            told: BTreeMap::new(),
            removals: 0,
            tickets: 0,
        }
    }

    /// Plants a bug between the shards and the log.
    pub fn plant(&mut self, flaw: LogFlaw) {
        self.seam.flaw = Some(flaw);
    }

    /// Crashes and restarts the node. Everything that the log committed is kept.
    fn crash(&mut self) {
        self.harness.count("crash");
        self.harness.line(|| "the node crashes".to_owned());
        self.log.crash(self.harness.now_us, &mut self.truth);
        self.seam.crash();
        self.keys_may_be_gone();
        self.removals = 0;
        self.requests.clear();
        self.clients.iter_mut().for_each(LogClient::leave);
        self.node.start(self.node.shard_count(), &mut self.harness.chance);
    }

    fn step(&mut self) -> Result<(), String> {
        self.harness.steps += 1;
        let pause_us = self.harness.chance.between(0, 3_000);
        self.pass_time(pause_us)?;
        match self.harness.chance.weighted(&[30, 25, 30, 4, 4, 2]) {
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

    /// Runs the due tasks of the log, and delivers its due events.
    fn serve_log(&mut self) -> Result<(), String> {
        self.log.step(self.harness.now_us, &mut self.truth)?;
        while let Some((channel, event)) = self.seam.next_early() {
            self.handle(self.node.owner(&channel), event)?;
        }
        while let Some((channel, event)) = self.log.next_event(self.harness.now_us) {
            self.harness.line(|| format!("the log: {event:?}"));
            let case = match &event {
                Event::Committed { outcome: Err(_), .. } => Some("publication rejected"),
                Event::Loaded { outcome: Ok(page), .. } if page.has_more_below => Some("page cut below"),
                Event::Loaded { outcome: Ok(page), .. } if page.through < page.top => Some("page cut above"),
                _ => None,
            };
            if let Some(what) = case {
                self.harness.count(what);
            }
            let told = match &event {
                Event::Committed { outcome: Ok(offset), .. } => *offset,
                Event::Replicated { record, .. } => record.publication.offset,
                _ => 0,
            };
            let known = self.told.entry(channel.clone()).or_insert(0);
            *known = told.max(*known);
            if let Some(event) = self.seam.pass(&self.log, event) {
                self.handle(self.node.owner(&channel), event)?;
            }
        }
        Ok(())
    }

    fn may_reject(&self) -> bool {
        self.log.fails() || self.node.options.log.proposals_max < 100
    }

    fn deliver_some(&mut self) -> Result<(), String> {
        let ring = self.harness.chance.below(self.node.rings.len());
        for _ in 0..3 {
            self.deliver(ring)?;
        }
        Ok(())
    }

    fn deliver(&mut self, ring: usize) -> Result<(), String> {
        match self.node.receive(ring, self.harness.now_us) {
            Some((shard, event)) => self.handle(shard, event),
            None => Ok(()),
        }
    }

    /// Runs a random action of a client.
    fn act(&mut self) -> Result<(), String> {
        let number = self.harness.chance.below(self.clients.len());
        let channel = *self.harness.chance.pick(&CHANNELS);
        if self.clients[number].session.at.is_none() {
            let shard = self.harness.chance.below(self.node.threads.len());
            return self.open_on(number, shard, None);
        }
        if !self.clients[number].session.is_connected {
            return Ok(());
        }
        match self.harness.chance.weighted(&[40, 10, 4, 20, 10]) {
            0 if !self.clients[number].has_or_requested(channel) => self.clients[number].subscribe(channel, false),
            1 => self.clients[number].unsubscribe(channel),
            2 => return self.hang_up(number),
            3 => {
                let data = self.next_data();
                self.clients[number].session.send(ClientCommand::Publish { channel: channel.to_owned(), data });
            }
            4 => {
                let (limit, reverse) = (*self.harness.chance.pick(&[1, 5, -1]), self.harness.chance.percent(30));
                let since = self.clients[number].live.get(channel).cloned().filter(|_| !reverse).map(|mut since| {
                    since.offset = since.offset.saturating_sub(self.harness.chance.between(0, 20));
                    since
                });
                if !reverse {
                    let command = ClientCommand::History { channel: channel.to_owned(), limit, since, reverse };
                    self.clients[number].session.send(command);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn next_data(&mut self) -> Vec<u8> {
        self.published += 1;
        format!(r#"{{"n":{}}}"#, self.published).into_bytes()
    }
}

/// Requests of the application and of other nodes, and checks of the replies.
impl LoggedWorld {
    /// Publishes through the API, sometimes with an idempotency key.
    fn publish(&mut self) -> Result<(), String> {
        for _ in 0..self.harness.chance.between(1, 5) {
            let channel = *self.harness.chance.pick(&CHANNELS);
            let key = self.harness.chance.percent(25).then(|| *self.harness.chance.pick(&KEYS));
            let (data, tags) = self.next_keyed_data();
            let payload = Payload::from_json(Bytes::from(data.clone()));
            let how = PublishHow { idempotency_key: key.map(Box::from), tags, ..PublishHow::default() };
            let request = ApiRequest::Publish { channel: channel.into(), data: payload, how };
            self.call_api(channel, request, PendingRequest::Publish { data, key })?;
        }
        Ok(())
    }

    fn call_api(&mut self, channel: &'static str, request: ApiRequest, pending: PendingRequest) -> Result<(), String> {
        self.tickets += 1;
        self.requests.insert(self.tickets, (channel, pending));
        self.handle(self.node.owner(channel), Event::Api { ticket: Ticket(self.tickets), request })
    }

    fn on_api_reply(&mut self, ticket: Ticket, answer: &ApiResult) -> Result<(), String> {
        let (channel, pending) = self.requests.remove(&ticket.0).ok_or("a reply to an unknown request")?;
        let may_reject = self.may_reject();
        match (pending, answer) {
            (PendingRequest::Publish { data, key }, Ok(ApiAnswer::Published { offset, .. })) => {
                self.check_acknowledged(channel, &data, key, *offset)
            }
            (pending, Err(Refused { code: ErrorCode::Internal | ErrorCode::TooManyRequests, .. })) if may_reject => {
                self.harness.count("request rejected");
                if let PendingRequest::Remove { .. } = pending {
                    self.note_removed(channel);
                    self.removals -= 1;
                    self.keys_may_be_gone();
                }
                Ok(())
            }
            (PendingRequest::History { query, top }, Ok(ApiAnswer::History { publications, is_cut: false, .. })) => {
                self.harness.count("history");
                self.check_history(channel, publications)?;
                self.check_whole(channel, &query, top, publications)
            }
            (PendingRequest::Remove { through }, Ok(ApiAnswer::Done { .. })) => {
                self.removals -= 1;
                self.harness.count("history removed");
                let gone = self.gone.entry(channel).or_default();
                *gone = through.max(*gone);
                self.keys_may_be_gone();
                Ok(())
            }
            (_, answer) => Err(format!("{answer:?}")),
        }
    }

    /// Checks that a history has committed publications without gaps, in either direction.
    fn check_history(&self, channel: &str, publications: &[Arc<Publication>]) -> Result<(), String> {
        let empty = ChannelTruth::default();
        let truth = self.truth.get(channel).unwrap_or(&empty);
        let gone = self.gone.get(channel).copied().unwrap_or(0);
        for publication in publications {
            truth.check(channel, publication.offset, publication.data.bytes())?;
            if publication.offset <= gone {
                return Err(format!("{channel}: {} is back after its removal was acknowledged", publication.offset));
            }
        }
        let mut offsets: Vec<u64> = publications.iter().map(|publication| publication.offset).collect();
        if offsets.first() > offsets.last() {
            offsets.reverse();
        }
        match offsets.windows(2).find(|pair| truth.next(pair[0]) != Some(pair[1])) {
            Some(pair) => Err(format!("{channel}: {} follows {} in a history, which is a gap", pair[1], pair[0])),
            None => Ok(()),
        }
    }

    /// Checks that a history has everything that was asked for: it begins where it was to begin, and has the requested
    /// number of publications, or all.
    fn check_whole(
        &self,
        channel: &'static str,
        query: &HistoryQuery,
        top: u64,
        publications: &[Arc<Publication>],
    ) -> Result<(), String> {
        // A removal that fails later may have removed from memory what the log keeps.
        if self.removals > 0 && self.log.fails() {
            return Ok(());
        }
        let Some(truth) = self.truth.get(channel) else { return Ok(()) };
        let floor = self.log.kept(channel).0.max(self.removed.get(channel).copied().unwrap_or(0));
        let since = query.since.as_ref().map(|(offset, _)| *offset);
        let is_in_range = |offset: u64| match since {
            Some(since) if query.reverse => offset < since,
            Some(since) => offset > since,
            None => true,
        };
        // Publications that were committed meanwhile may be in the answer.
        let expected = truth.data.keys().copied().filter(|offset| (floor + 1..=top).contains(offset));
        let mut expected: Vec<u64> = expected.filter(|offset| is_in_range(*offset)).collect();
        if query.reverse {
            expected.reverse();
        }
        let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
        if limit == 0 {
            expected.clear();
        }
        let found: Vec<u64> = publications.iter().map(|publication| publication.offset).collect();
        let is_outside = |offset: &u64| !is_in_range(*offset);
        let missing = expected.iter().find(|offset| !found.contains(offset)).filter(|missing| {
            let is_beyond = |last: &u64| if query.reverse { *missing < last } else { *missing > last };
            !(found.len() >= limit && found.last().is_some_and(is_beyond))
        });
        match (missing, found.iter().find(|offset| is_outside(offset))) {
            _ if found.len() > limit => Err(format!("{channel}: more than {limit} publications in a history")),
            (Some(missing), _) => {
                Err(format!("{channel}: {missing} is missing in the history of {query:?}: {found:?}"))
            }
            (None, Some(outside)) => Err(format!("{channel}: {outside} is in the history of {query:?}")),
            (None, None) => Ok(()),
        }
    }

    /// Notes that the present publications of a channel may be missing from now on.
    fn note_removed(&mut self, channel: &'static str) {
        let top = self.truth.get(channel).map_or(0, ChannelTruth::top);
        self.removed.insert(channel, top);
    }

    /// Checks that an acknowledged publication, or an earlier one with its key, is committed.
    fn check_acknowledged(
        &mut self,
        channel: &str,
        data: &[u8],
        key: Option<&'static str>,
        offset: u64,
    ) -> Result<(), String> {
        let known = self.truth.get(channel);
        let Some(committed) = known.and_then(|truth| truth.data.get(&offset)) else {
            return Err(format!("{channel}: {offset} is acknowledged, but not committed"));
        };
        if **committed == *data {
            return Ok(());
        }
        let same_key = key.and_then(|key| known?.uses_of(key).iter().find(|known| known.offset == offset));
        let Some(earlier) = same_key else {
            return Err(format!("{channel}: {offset} is another publication"));
        };
        let is_across_crash = earlier.crashes < self.log.crashes();
        self.harness.count(if is_across_crash { "published once across a crash" } else { "published once" });
        Ok(())
    }

    /// Publishes through another node of the cluster.
    fn publish_through_other_node(&mut self) {
        let channel = *self.harness.chance.pick(&CHANNELS);
        if !channel.starts_with(ORDERED_BY_LOG) {
            return;
        }
        self.harness.count("published by another node");
        let (data, tags) = self.next_keyed_data();
        let (data, epoch) = (Payload::from_json(data.into()), Box::default());
        let publication = Arc::new(Publication { data, info: None, offset: 0, tags, time_ms: 0, epoch, version: 0 });
        let record = LogRecord { publication, version_epoch: Box::default(), idempotency_key: None };
        let terms = self.terms(channel);
        self.log.publish_through_other_node(self.harness.now_us, channel, record, terms, &mut self.truth);
    }

    fn terms(&self, channel: &str) -> LogTerms {
        let namespace = channel.split(':').next().unwrap_or_default();
        let options = self.node.options.namespaces.iter().find(|options| options.name == namespace);
        options.expect("each channel has a namespace").log_terms()
    }

    fn next_keyed_data(&mut self) -> (Vec<u8>, Tags) {
        self.published += 1;
        keyed_data(self.published)
    }

    /// Keys of publications up to now may be missing in later replies.
    fn keys_may_be_gone(&mut self) {
        for truth in self.truth.values_mut() {
            truth.keys_gone_through = truth.top();
        }
    }

    /// Checks a subscribe reply with the newest publications of keys. While a history is being removed, keys may be
    /// missing.
    fn check_keys(&mut self, seen: &SeenKeys) -> Result<(), String> {
        let Some(truth) = self.truth.get(&seen.channel) else { return Ok(()) };
        let is_removing = self.removals > 0;
        let (kept_after, _) = self.log.kept(&seen.channel);
        let floor = if is_removing { u64::MAX } else { kept_after.max(truth.keys_gone_through) };
        seen.check(truth, floor)?;
        self.harness.count("newest of keys");
        Ok(())
    }

    fn request_history(&mut self) -> Result<(), String> {
        let channel = *self.harness.chance.pick(&CHANNELS);
        // What is stored and not yet known to the node need not be in the answer.
        let top = self.told.get(channel).copied().unwrap_or(0);
        let limit = *self.harness.chance.pick(&[-1, 0, 1, 3, 12]);
        let since = self.harness.chance.percent(60).then(|| (self.harness.chance.between(1, top + 1), Box::default()));
        let query = HistoryQuery { limit, since, reverse: self.harness.chance.percent(50), bytes_max: None };
        let pending = PendingRequest::History { query: query.clone(), top };
        self.call_api(channel, ApiRequest::History { channel: channel.into(), query }, pending)
    }

    fn remove_history(&mut self) -> Result<(), String> {
        if !self.harness.chance.percent(20) {
            return Ok(());
        }
        let channel = *self.harness.chance.pick(&CHANNELS);
        self.note_removed(channel);
        self.removals += 1;
        let through = self.told.get(channel).copied().unwrap_or(0);
        let pending = PendingRequest::Remove { through };
        self.call_api(channel, ApiRequest::HistoryRemove { channel: channel.into() }, pending)
    }
}

/// Runs until nothing is in flight, and checks the final state.
impl LoggedWorld {
    /// Delivers everything that is in flight, and checks that no reply and no publication is missing. Clients at a
    /// position that the log retained must recover from it.
    fn settle(&mut self) -> Result<(), String> {
        self.run_until_idle()?;
        self.check_at_rest()?;
        self.resubscribe()?;
        self.run_until_idle()?;
        self.check_at_rest()
    }

    fn check_at_rest(&self) -> Result<(), String> {
        check_complete(&self.clients, &self.truth, |_, _| true)?;
        self.node.threads.iter().try_for_each(ShardThread::check_log_at_rest)
    }

    fn resubscribe(&mut self) -> Result<(), String> {
        if self.log.fails() {
            return Ok(());
        }
        for number in 0..self.clients.len() {
            for channel in self.clients[number].missed_channels() {
                let (floor, top) = self.log.kept(&channel);
                let client = &mut self.clients[number];
                let must_recover = (floor..=top).contains(&client.positions[&channel].offset);
                client.subscribe(&channel, must_recover);
            }
            self.serve_client(number)?;
        }
        Ok(())
    }

    /// Disconnects all clients, and checks that the node holds nothing.
    fn end(&mut self) -> Result<(), String> {
        self.settle()?;
        (0..self.clients.len()).try_for_each(|number| self.hang_up(number))?;
        self.settle()?;
        self.pass_time(LATER_US)?;
        self.settle()?;
        self.pass_time(LATER_US)?;
        let left: HashSet<[usize; 4]> = self.node.threads.iter().map(|shard| shard.shard.holdings()).collect();
        if left.iter().all(|held| *held == [0; 4]) { Ok(()) } else { Err(format!("shards still hold {left:?}")) }
    }
}

impl World for LoggedWorld {
    fn run(&mut self) -> Result<(), String> {
        for _ in 0..self.harness.chance.between(1, 4) {
            for _ in 0..self.harness.chance.between(50, 400) {
                self.step()?;
            }
            if self.harness.chance.percent(40) {
                self.crash();
            }
            if self.harness.chance.percent(10) {
                self.harness.count("long pause");
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

    fn harness(&mut self) -> &mut Harness {
        &mut self.harness
    }

    fn reached(&self) -> BTreeMap<String, u64> {
        let of_clients = |what: fn(&LogClient) -> u64| self.clients.iter().map(what).sum();
        self.harness.reached_with([
            ("recovered", of_clients(|client| client.recoveries.0)),
            ("not recovered", of_clients(|client| client.recoveries.1)),
        ])
    }
}

impl PromptWorld for LoggedWorld {
    // A log with pages of one publication, each some 45 ms late, answers a session's commands one after the other in
    // some 20 s.
    const REST: RestTimes = RestTimes { round_us: 2_000, least_us: 0, most_us: 30_000_000 };

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
        self.clients[client].leave();
    }

    fn perform(&mut self, shard: usize, effect: Effect) -> Result<(), String> {
        self.harness.line(|| format!("shard {shard}: {effect:?}"));
        let now_us = self.harness.now_us;
        let Some(effect) = self.perform_on_session(shard, effect)? else { return Ok(()) };
        match effect {
            Effect::Send { to, message } => self.node.send(shard, to, message),
            Effect::Propose { channel, proposal, record, begins: _, terms } => {
                self.harness.count("proposal");
                self.seam.on_propose(&channel, proposal, &record);
                self.log.propose(now_us, &channel, proposal, record, terms);
            }
            Effect::Load { channel, load, query, terms: _ } => {
                self.harness.count(if query.after.is_some() { "older page" } else { "newest page" });
                self.log.load(now_us, &channel, load, query);
            }
            Effect::Trim { channel, through, ticket } => self.log.trim(now_us, &channel, through, ticket),
            Effect::Follow { channel } => self.log.follow(&channel, true),
            Effect::Unfollow { channel, .. } => {
                self.harness.count("unfollowed");
                self.log.follow(&channel, false);
            }
            Effect::Answer { ticket, answer, .. } => self.on_api_reply(ticket, &answer)?,
            Effect::Finish { session } | Effect::HangUp { session } => {
                return Err(format!("the session {session:?} is closed"));
            }
            other => return Err(format!("{other:?}")),
        }
        Ok(())
    }

    fn read(&mut self, client: usize, bytes: Vec<u8>) -> Result<(), String> {
        let may_fail = self.may_reject();
        self.clients[client].read(&self.truth, may_fail, bytes)?;
        for seen in std::mem::take(&mut self.clients[client].seen_keys) {
            self.check_keys(&seen)?;
        }
        Ok(())
    }

    fn pass_time(&mut self, pause_us: u64) -> Result<(), String> {
        self.harness.now_us += pause_us;
        (0..self.node.threads.len()).try_for_each(|shard| self.wake(shard))
    }

    fn serve_all(&mut self) -> Result<(), String> {
        (0..self.node.rings.len()).try_for_each(|ring| self.deliver(ring))?;
        self.serve_log()?;
        self.serve_clients()
    }

    fn is_at_rest(&mut self) -> bool {
        self.log.is_at_rest() && self.node.is_still() && self.requests.is_empty()
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
