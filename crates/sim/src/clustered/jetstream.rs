//! `JetStream` as an actor. Measured of the real one, and done here:
//!
//! - a stream orders and stores after a delay; a republication and the acknowledgement follow on different connections;
//! - what is republished arrives at most once, twice, or late, when the stream's leader changes; some is never republished;
//! - while there is no leader, nothing can be published, and reads go on;
//! - a replica that answers a read may lack what is stored already;
//! - a subscription is in force some time after it was sent;
//! - a copy of a message with the same id is not stored, and answered with the sequence of the first one;
//! - a stream keeps so many messages of a subject, for so long;
//! - servers that lose power may lose the end of a stream, and give its sequences again.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use dunlin_cluster::{
    core::leases::LeaseNames,
    link::{
        LinkEffect, LinkEvent, LinkName, MessageHeaders, PublishAck, PublishFault, ReadAnswer, ReadFault,
        RequestNumber, StoredMessage, StreamShape, StreamState,
    },
    names::decode_token,
    record,
    timestamps::timestamp,
};

use crate::{chance::Chance, logged::Truth};

use super::{
    link_queues::{LinkQueues, link_of, silence_of},
    stream::Stream,
};

/// The unix time at which the simulation's clock is 0.
pub const UNIX_MS: u64 = 1_700_000_000_000;

/// Begins the subjects of leases.
const LEASE_SUBJECTS: &str = "dn.l.";

/// Removed messages that are kept for replicas that lag.
const REMOVED_KEPT: usize = 64;

/// Whether no stream listens to a subject: broadcasts, heartbeats, users, surveys, checks of
/// subscriptions, windows, and answers.
fn is_stored_nowhere(subject: &str) -> bool {
    matches!(subject.split('.').nth(1), Some("e" | "i" | "n" | "q" | "s" | "u" | "w"))
}

/// The servers.
pub struct JetStream {
    chance: Chance,
    /// How subscriptions travel from server to server.
    routes: Chance,
    streams: BTreeMap<Box<str>, Stream>,
    /// Subjects begin with it, then comes the stream's namespace and partition.
    delay_max_us: u64,
    /// Of 100 reads, how many are answered by a replica that lags.
    stale_reads: u32,
    /// Of 100 messages, how many are not acknowledged in time.
    pub timeouts: u32,
    /// Streams have one replica: conditions are compared before copies are looked for.
    pub is_single: bool,
    history_size: u64,
    pub age_max_ms: u64,
    election_until_us: u64,
    /// How long a stream is without a leader at most.
    pub election_max_us: u64,
    leader_is_new: bool,
    /// Whether it still does what it should not.
    pub has_faults: bool,
    pub has_stale_replicas: bool,
    /// The next publication is not republished.
    pub hides_next: bool,
    pub reached: BTreeMap<&'static str, u64>,
}

impl JetStream {
    pub fn new(mut chance: Chance, routes: Chance, streams: &[Box<str>], history_size: u64) -> Self {
        let streams = streams.iter().map(|name| {
            let stream = Stream { epoch: format!("of-{name}"), ..Stream::default() };
            (name.clone(), stream)
        });
        Self {
            streams: streams.collect(),
            delay_max_us: *chance.pick(&[500, 3_000, 20_000]),
            stale_reads: *chance.pick(&[0, 10, 40]),
            timeouts: *chance.pick(&[0, 0, 2, 10]),
            is_single: false,
            history_size,
            age_max_ms: 180_000,
            election_until_us: 0,
            election_max_us: 600_000,
            leader_is_new: false,
            has_faults: true,
            has_stale_replicas: true,
            hides_next: false,
            reached: BTreeMap::new(),
            routes,
            chance,
        }
    }

    pub fn delay_us(&mut self) -> u64 {
        self.chance.between(50, self.delay_max_us)
    }

    fn count(&mut self, what: &'static str) {
        *self.reached.entry(what).or_insert(0) += 1;
    }

    /// The leader of all streams dies: nothing is stored until there is a new one. Some of what it has stored is never
    /// republished.
    pub fn kill_leader(&mut self, now_us: u64, nodes: &mut [LinkQueues]) {
        self.election_until_us = now_us + self.chance.between(20_000, self.election_max_us);
        self.leader_is_new = true;
        self.count("leader killed");
        let from = self.streams.values().map(|stream| stream.last).max().unwrap_or(0);
        let lost_from = from.saturating_sub(self.chance.between(0, 3));
        let is_lost = |event: &LinkEvent| {
            matches!(event, LinkEvent::Delivered { headers, .. }
                if headers.number("Nats-Sequence").is_some_and(|sequence| sequence > lost_from))
        };
        for node in nodes {
            let lost = node.lose_republished(is_lost);
            *self.reached.entry("never republished").or_insert(0) += lost as u64;
        }
    }

    /// The servers lose power: a stream loses its newest messages, and there is no leader for a while. Returns the stream, its
    /// last sequence, and the epoch whose positions are void.
    pub fn lose_end(&mut self, now_us: u64, nodes: &mut [LinkQueues]) -> Option<(Box<str>, u64, String)> {
        let place = self.chance.below(self.streams.len());
        let (name, stream) = self.streams.iter_mut().nth(place)?;
        let kept = stream.last.saturating_sub(self.chance.between(1, 12));
        let epoch = stream.newest_epoch();
        for message in stream.messages.split_off(&(kept + 1)).into_values() {
            if let Some(of_subject) = stream.by_subject.get_mut(&message.subject) {
                of_subject.remove(&message.sequence);
            }
        }
        stream.ids.retain(|_, sequence| *sequence <= kept);
        stream.removed.clear();
        stream.last = kept;
        let name = name.clone();
        nodes.iter_mut().for_each(LinkQueues::forget_late);
        self.election_until_us = now_us + self.chance.between(120_000, 600_000);
        self.leader_is_new = true;
        self.count("end lost");
        Some((name, kept, epoch))
    }

    /// Whether what is stored shows that a message with this sequence, which a node saw, was lost.
    pub fn is_loss_provable(&self, stream: &str, seen: u64) -> bool {
        self.streams.get(stream).is_some_and(|stream| stream.last < seen || stream.messages.contains_key(&seen))
    }

    /// Does what has reached the servers.
    pub fn step(&mut self, now_us: u64, nodes: &mut [LinkQueues], truth: &mut Truth) {
        if self.leader_is_new && self.election_until_us <= now_us {
            self.leader_is_new = false;
            self.announce_leader(now_us, nodes);
        }
        self.forget_old(now_us);
        for place in 0..nodes.len() {
            let delay_us = self.delay_us();
            nodes[place].reconnect(now_us, delay_us);
            for link in LinkName::ALL {
                while let Some(effect) = nodes[place].take_sent(now_us, link) {
                    self.perform(now_us, place, effect, nodes, truth);
                }
            }
        }
    }

    fn announce_leader(&mut self, now_us: u64, nodes: &mut [LinkQueues]) {
        let names: Vec<Box<str>> = self.streams.keys().cloned().collect();
        for name in names {
            let subject: Box<str> = format!("$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.{name}").into();
            for node in nodes.iter_mut().filter(|node| node.interest.contains(&subject)) {
                let event = LinkEvent::Delivered {
                    subject: subject.clone(),
                    reply: None,
                    headers: MessageHeaders::new(),
                    payload: Bytes::new(),
                    is_by_wildcard: false,
                };
                node.reply(now_us + self.chance.between(50, self.delay_max_us), LinkName::Live, event);
            }
        }
    }

    fn perform(&mut self, now_us: u64, place: usize, effect: LinkEffect, nodes: &mut [LinkQueues], truth: &mut Truth) {
        let ready_us = now_us + self.delay_us();
        if nodes[place].is_parted(link_of(&effect)) {
            self.count("parted");
            if let Some(silence) = silence_of(&effect) {
                nodes[place].reply(now_us + 1_000_000, link_of(&effect), silence);
            }
            return;
        }
        match effect {
            LinkEffect::Subscribe { subject } => {
                self.spread(now_us, place, &subject, nodes);
                nodes[place].interest.insert(subject);
            }
            LinkEffect::Unsubscribe { subject } => drop(nodes[place].interest.remove(&subject)),
            LinkEffect::Publish { request: None, subject, headers, payload, .. } if is_stored_nowhere(&subject) => {
                self.relay(now_us, place, &subject, &headers, &payload, nodes);
            }
            LinkEffect::Publish { link, request, subject, headers, payload } => {
                let outcome = self.publish(now_us, &subject, headers, payload, nodes, truth);
                if let Some(request) = request {
                    let is_late = self.has_faults && self.chance.percent(self.timeouts);
                    let (ready_us, outcome) =
                        if is_late { (now_us + 1_000_000, Err(PublishFault::TimedOut)) } else { (ready_us, outcome) };
                    nodes[place].reply(ready_us, link, LinkEvent::Acknowledged { request, outcome });
                }
            }
            LinkEffect::Describe { request, stream } => {
                let outcome = self.describe(now_us, &stream);
                nodes[place].reply(ready_us, LinkName::Read, LinkEvent::StreamInfo { request, outcome });
            }
            read => {
                if let Some((request, outcome)) = self.read(&read) {
                    nodes[place].reply(ready_us, LinkName::Read, LinkEvent::Answered { request, outcome });
                }
            }
        }
    }

    /// A subscription reaches the servers of all nodes at different times.
    fn spread(&mut self, now_us: u64, place: usize, subject: &str, nodes: &mut [LinkQueues]) {
        if is_stored_nowhere(subject) {
            let count = nodes.len();
            let delay_max_us = 2 * self.delay_max_us;
            let routes = &mut self.routes;
            nodes[place].spread(subject, (0..count).map(|_| now_us + routes.between(0, delay_max_us)));
        }
    }

    /// What no stream stores goes to each subscription that matches.
    fn relay(
        &mut self,
        now_us: u64,
        place: usize,
        subject: &str,
        headers: &MessageHeaders,
        payload: &Bytes,
        nodes: &mut [LinkQueues],
    ) {
        let wide = subject.rsplit_once('.').map_or_else(String::new, |(all, _)| format!("{all}.*"));
        for node in nodes {
            for (pattern, is_by_wildcard) in [(subject, false), (wide.as_str(), true)] {
                if !node.is_known_at(place, now_us, pattern) {
                    continue;
                }
                let event = LinkEvent::Delivered {
                    subject: subject.into(),
                    reply: None,
                    headers: headers.clone(),
                    payload: payload.clone(),
                    is_by_wildcard,
                };
                node.reply(now_us + self.chance.between(50, self.delay_max_us), LinkName::Live, event);
                self.count(match is_by_wildcard {
                    _ if !subject.starts_with("dn.e.") => "message of a node",
                    true => "broadcast by wildcard",
                    false => "broadcast",
                });
            }
        }
    }

    fn stream_of(subject: &str) -> Option<Box<str>> {
        if subject.starts_with(LEASE_SUBJECTS) {
            return Some(LeaseNames::new("dn").stream);
        }
        let mut tokens = subject.split('.');
        let (prefix, _, namespace, part) = (tokens.next()?, tokens.next()?, tokens.next()?, tokens.next()?);
        Some(format!("{prefix}_{namespace}_{part}").into())
    }

    fn publish(
        &mut self,
        now_us: u64,
        subject: &str,
        headers: MessageHeaders,
        payload: Bytes,
        nodes: &mut [LinkQueues],
        truth: &mut Truth,
    ) -> Result<PublishAck, PublishFault> {
        if self.election_until_us > now_us {
            self.count("no leader");
            return Err(PublishFault::NoResponders);
        }
        if self.has_faults && self.chance.percent(self.timeouts / 2) {
            self.count("message lost");
            return Err(PublishFault::TimedOut);
        }
        let name = Self::stream_of(subject).ok_or(PublishFault::NoResponders)?;
        let stream = self.streams.get_mut(&name).ok_or(PublishFault::NoResponders)?;
        let of_subject = stream.by_subject.entry(subject.into()).or_default();
        let newest = of_subject.last().copied().unwrap_or(0);
        let is_expected = headers.number(record::EXPECTED_LAST).is_none_or(|expected| expected == newest);
        let known = headers.get(record::MESSAGE_ID).and_then(|id| stream.ids.get(id)).copied();
        if let Some(known) = known.filter(|_| is_expected || !self.is_single) {
            return Ok(PublishAck { stream: name, sequence: known, is_duplicate: true });
        }
        if !is_expected {
            return Err(PublishFault::Refused { code: 400, error_code: 10_071, description: "wrong last".into() });
        }
        stream.last += 1;
        let sequence = stream.last;
        if headers.get(record::ROLLUP).is_some() {
            for gone in std::mem::take(of_subject) {
                stream.removed.extend(stream.messages.remove(&gone).map(|message| (sequence, message)));
            }
        }
        of_subject.insert(sequence);
        while of_subject.len() as u64 > self.history_size + 1
            && let Some(oldest) = of_subject.pop_first()
        {
            stream.removed.extend(stream.messages.remove(&oldest).map(|message| (sequence, message)));
        }
        stream.removed.drain(..stream.removed.len().saturating_sub(REMOVED_KEPT));
        if let Some(id) = headers.get(record::MESSAGE_ID) {
            stream.ids.insert(id.into(), sequence);
        }
        let message = StoredMessage {
            subject: subject.into(),
            sequence,
            last_sequence: newest,
            time_ms: UNIX_MS + now_us / 1_000,
            headers,
            payload,
        };
        stream.messages.insert(sequence, message.clone());
        if !subject.starts_with(LEASE_SUBJECTS) {
            record_truth(&message, truth);
        }
        self.republish(now_us, &name, &message, nodes);
        Ok(PublishAck { stream: name, sequence, is_duplicate: false })
    }

    fn republish(&mut self, now_us: u64, stream: &str, message: &StoredMessage, nodes: &mut [LinkQueues]) {
        let subject: Box<str> = message.subject.replacen(".p.", ".r.", 1).replacen("dn.l.", "dn.lw.", 1).into();
        let headers = message
            .headers
            .clone()
            .with("Nats-Stream", stream)
            .with("Nats-Subject", message.subject.clone())
            .with("Nats-Sequence", message.sequence.to_string())
            .with("Nats-Last-Sequence", message.last_sequence.to_string())
            .with("Nats-Time-Stamp", timestamp(message.time_ms));
        // A leader that dies behind the commit does not republish; no node sees the message come.
        let is_hidden = message.headers.get(record::FENCE).is_none() && std::mem::take(&mut self.hides_next);
        if is_hidden || self.has_faults && self.chance.percent(1) {
            self.count("never republished");
            return;
        }
        let wide: Box<str> = subject.rsplit_once('.').map_or_else(String::new, |(all, _)| format!("{all}.>")).into();
        for node in nodes.iter_mut().filter(|node| node.interest.contains(&subject) || node.interest.contains(&wide)) {
            let event = LinkEvent::Delivered {
                subject: subject.clone(),
                reply: None,
                headers: headers.clone(),
                payload: message.payload.clone(),
                is_by_wildcard: !node.interest.contains(&subject),
            };
            let ready_us = now_us + self.chance.between(50, self.delay_max_us);
            if self.has_faults && self.chance.percent(1) {
                node.reply_late(now_us + self.chance.between(0, 300_000), event.clone());
            }
            node.reply(ready_us, LinkName::Live, event);
        }
    }

    fn describe(&mut self, now_us: u64, stream: &str) -> Result<Box<StreamState>, ReadFault> {
        if self.election_until_us > now_us {
            return Err(ReadFault::NoResponders);
        }
        let shape = StreamShape {
            messages_per_subject_max: Some(self.history_size + 1),
            age_max_ms: Some(self.age_max_ms),
            ..StreamShape::default()
        };
        let stream = self.streams.get(stream).ok_or(ReadFault::NoResponders)?;
        Ok(Box::new(StreamState {
            shape,
            first_sequence: stream.messages.first_key_value().map_or(0, |(first, _)| *first),
            last_sequence: stream.last,
            metadata: vec![("dunlin.epoch".into(), stream.epoch.as_str().into())],
            has_leader: true,
        }))
    }

    /// A replica answers, perhaps one that lags.
    fn read(&mut self, effect: &LinkEffect) -> Option<(RequestNumber, Result<ReadAnswer, ReadFault>)> {
        let is_stale = self.has_stale_replicas && self.chance.percent(self.stale_reads);
        let lag = if is_stale { self.chance.between(1, 4) } else { 0 };
        let (request, name) = match effect {
            LinkEffect::LastOf { request, stream, .. }
            | LinkEffect::Range { request, stream, .. }
            | LinkEffect::Sequences { request, stream, .. }
            | LinkEffect::FirstSince { request, stream, .. } => (*request, stream),
            _ => return None,
        };
        if lag > 0 {
            self.count("stale replica");
        }
        let Some(stream) = self.streams.get(name) else { return Some((request, Err(ReadFault::NoResponders))) };
        let through = stream.last.saturating_sub(lag);
        // The state of a replica is one that the stream was in.
        let since_removed = stream.removed.iter().filter(|(by, message)| *by > through && message.sequence <= through);
        let stored = stream.messages.range(..=through).map(|(_, message)| message);
        let view: BTreeMap<u64, &StoredMessage> = stored
            .chain(since_removed.map(|(_, message)| message))
            .map(|message| (message.sequence, message))
            .collect();
        let known = || view.values().copied();
        let mut pending = 0;
        let messages: Vec<StoredMessage> = match effect {
            LinkEffect::LastOf { subjects, .. } => {
                let newest = |subject: &str| known().rfind(|message| *message.subject == *subject).cloned();
                let named = subjects.iter().flat_map(|subject| stream.subjects_like(subject));
                let mut found: Vec<StoredMessage> = named.filter_map(|subject| newest(&subject)).collect();
                found.sort_by_key(|message| message.sequence);
                found
            }
            LinkEffect::Range { subject, from, messages_max, .. } => {
                let is_asked =
                    |message: &&StoredMessage| subject.as_ref().is_none_or(|subject| message.subject == *subject);
                let from = known().filter(|message| message.sequence >= *from);
                let mut found: Vec<StoredMessage> = from.filter(is_asked).cloned().collect();
                pending = found.len().saturating_sub(*messages_max) as u64;
                found.truncate(*messages_max);
                found
            }
            LinkEffect::Sequences { sequences, .. } => {
                known().filter(|message| sequences.contains(&message.sequence)).cloned().collect()
            }
            LinkEffect::FirstSince { time_ms, .. } => {
                known().find(|message| message.time_ms >= *time_ms).cloned().into_iter().collect()
            }
            _ => Vec::new(),
        };
        Some((request, Ok(ReadAnswer { messages, up_to_sequence: through, pending, is_in_parts: false })))
    }

    fn forget_old(&mut self, now_us: u64) {
        let oldest_ms = (UNIX_MS + now_us / 1_000).saturating_sub(self.age_max_ms);
        for stream in self.streams.values_mut() {
            while let Some(first) = stream.messages.first_entry()
                && first.get().time_ms < oldest_ms
            {
                let message = first.remove();
                if let Some(of_subject) = stream.by_subject.get_mut(&message.subject) {
                    of_subject.remove(&message.sequence);
                }
            }
        }
    }

    /// The nodes whose leases are held.
    pub fn held_leases(&self) -> BTreeSet<String> {
        self.streams.get(&LeaseNames::new("dn").stream).map(Stream::held_leases).unwrap_or_default()
    }

    /// Whether everything of a channel behind an offset is stored, and few enough to be proven complete, with some that are
    /// published meanwhile.
    pub fn has_all_behind(
        &self,
        stream: &str,
        subject: &str,
        offset: u64,
        meanwhile: u64,
        truth: &BTreeMap<u64, Vec<u8>>,
    ) -> bool {
        let Some(stream) = self.streams.get(stream) else { return false };
        let stored = stream.by_subject.get(subject).cloned().unwrap_or_default();
        let behind: Vec<u64> = stored.range(offset + 1..).copied().collect();
        let committed: Vec<u64> = truth.range(offset + 1..).map(|(sequence, _)| *sequence).collect();
        behind == committed && behind.len() as u64 + meanwhile <= self.history_size && offset <= stream.last
    }
}

fn record_truth(message: &StoredMessage, truth: &mut Truth) {
    let token = message.subject.rsplit('.').next().unwrap_or_default();
    let is_publication =
        message.headers.get(record::OPERATION).is_none() && message.headers.get(record::FENCE).is_none();
    if let (Some(channel), true) = (decode_token(token), is_publication) {
        truth.entry(channel.into_owned()).or_default().data.insert(message.sequence, message.payload.to_vec());
    }
}
