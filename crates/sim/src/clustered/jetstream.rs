//! A simulated `JetStream`. It has these properties, which were measured on real servers:
//!
//! - A message that no stream stores may be held back by a server that is paused, and arrives behind later ones.
//! - A stream orders and stores messages after a delay. The republished message and the acknowledgement arrive on
//!   different connections.
//! - A republished message may arrive twice or late, or may be lost, when the leader of the stream changes.
//! - Without a leader, publishing fails, but reads succeed.
//! - A replica that serves a read may lack messages that are already stored.
//! - A subscription takes effect some time after it was sent.
//! - A message with a known id is not stored again. The acknowledgement has the sequence of the first one.
//! - A stream limits the number and the age of the messages of a subject.
//! - When servers lose power, a stream may lose its newest messages and reuse their sequences.
//! - A stream that was removed, or whose servers lost their disk, does not exist until a node creates it again.
//! - A stream that was emptied keeps its sequences.
//! - One of three replicas may have lost messages that the stream has.
//! - Servers that restart in turn know the ids of the messages that the stream still has, and no others.
//! - A store that is full refuses all messages, and serves reads.

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

use crate::{chance::Chance, harness::UNIX_MS, logged::Truth};

use super::{
    link_queues::{LinkQueues, link_of, timeout_of},
    stream::Stream,
};

/// The prefix of the subjects of leases.
const LEASE_SUBJECTS: &str = "dn.l.";

/// Number of removed messages that are kept for lagging replicas.
const REMOVED_KEPT: usize = 64;

/// Whether no stream stores the messages of a subject: broadcasts, heartbeats, surveys, replies and others.
fn is_not_stored(subject: &str) -> bool {
    matches!(subject.split('.').nth(1), Some("e" | "i" | "n" | "q" | "s" | "u" | "w"))
}

/// The simulated servers.
pub struct JetStream {
    chance: Chance,
    /// Draws the delays of subscriptions between servers.
    routes: Chance,
    /// Chooses the messages that a replica loses, and the reads that it serves.
    damages: Chance,
    streams: BTreeMap<Box<str>, Stream>,
    /// The maximum delay of a message.
    delay_max_us: u64,
    /// Percentage of reads that a lagging replica serves.
    stale_reads: u32,
    /// Percentage of messages that are not acknowledged in time.
    pub timeouts: u32,
    /// Percentage of messages that arrive behind later ones.
    held_back: u32,
    /// Whether streams have one replica. Then the expected last sequence is checked before duplicates are detected.
    pub is_single: bool,
    history_size: u64,
    pub age_max_ms: u64,
    election_until_us: u64,
    /// Until then, the store is full.
    pub full_until_us: u64,
    /// The maximum time without a leader.
    pub election_max_us: u64,
    leader_is_new: bool,
    /// Streams that were truncated, removed or emptied, damaged replicas, and answers that hid a newest message.
    pub losses: u64,
    /// Epochs that nodes have begun.
    epochs: BTreeSet<String>,
    /// Whether faults are enabled.
    pub has_faults: bool,
    pub has_stale_replicas: bool,
    /// Whether the next publication is not republished.
    pub skips_next_republish: bool,
    pub reached: BTreeMap<&'static str, u64>,
}

/// A message that a node publishes.
struct Sent {
    subject: Box<str>,
    headers: MessageHeaders,
    payload: Bytes,
}

impl JetStream {
    pub fn new(
        mut chance: Chance,
        mut routes: Chance,
        damages: Chance,
        streams: &[Box<str>],
        history_size: u64,
    ) -> Self {
        let streams = streams.iter().map(|name| {
            let stream = Stream { epoch: format!("of-{name}"), ..Stream::default() };
            (name.clone(), stream)
        });
        Self {
            streams: streams.collect(),
            delay_max_us: *chance.pick(&[500, 3_000, 20_000]),
            stale_reads: *chance.pick(&[0, 10, 40]),
            timeouts: *chance.pick(&[0, 0, 2, 10]),
            held_back: *routes.pick(&[1, 2, 2, 20]),
            is_single: false,
            history_size,
            age_max_ms: 180_000,
            election_until_us: 0,
            full_until_us: 0,
            election_max_us: 600_000,
            leader_is_new: false,
            losses: 0,
            epochs: BTreeSet::new(),
            has_faults: true,
            has_stale_replicas: true,
            skips_next_republish: false,
            reached: BTreeMap::new(),
            damages,
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

    /// Kills the leader of all streams until one is elected. Some stored messages are never republished.
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

    /// Removes the newest messages of a stream, as a loss of power does. Returns its name, last sequence and the
    /// epochs in which nodes may be.
    pub fn truncate_stream(
        &mut self,
        now_us: u64,
        nodes: &mut [LinkQueues],
    ) -> Option<(Box<str>, u64, BTreeSet<String>)> {
        let chosen = self.chance.below(self.streams.len().max(1));
        let (name, stream) = self.streams.iter_mut().nth(chosen)?;
        let kept = stream.last.saturating_sub(self.chance.between(1, 12));
        if kept == stream.last {
            // An empty stream loses nothing, and its epoch stays valid.
            return None;
        }
        let epochs = stream.used_epochs();
        for message in stream.messages.split_off(&(kept + 1)).into_values() {
            if let Some(of_subject) = stream.by_subject.get_mut(&message.subject) {
                of_subject.remove(&message.sequence);
            }
        }
        stream.ids.retain(|_, sequence| *sequence <= kept);
        stream.removed.clear();
        stream.damaged.retain(|sequence| *sequence <= kept);
        stream.last = kept;
        let name = name.clone();
        nodes.iter_mut().for_each(LinkQueues::forget_late);
        self.election_until_us = now_us + self.chance.between(120_000, 600_000);
        self.leader_is_new = true;
        self.losses += 1;
        self.count("stream truncated");
        Some((name, kept, epochs))
    }

    /// Has one replica of a stream lose messages that later ones name. Returns the stream's name and the messages.
    pub fn damage_replica(&mut self) -> Option<(Box<str>, BTreeSet<u64>)> {
        let chosen = self.damages.below(self.streams.len().max(1));
        let (name, stream) = self.streams.iter_mut().nth(chosen)?;
        let named: Vec<u64> = stream.named().into_iter().collect();
        let (first, count) = (self.damages.below(named.len().max(1)), self.damages.between(1, 8) as usize);
        let damaged: BTreeSet<u64> = named.into_iter().skip(first).take(count).collect();
        if damaged.is_empty() {
            return None;
        }
        stream.damaged.extend(&damaged);
        stream.lossy_epochs.insert(stream.newest_epoch());
        let name = name.clone();
        self.losses += 1;
        self.count("replica damaged");
        Some((name, damaged))
    }

    /// Restarts all servers in turn. Returns whether they have forgotten the id of a message.
    pub fn restart_in_turn(&mut self) -> bool {
        self.count("servers restarted in turn");
        let mut has_forgotten = false;
        for stream in self.streams.values_mut() {
            let known = stream.ids.len();
            stream.ids.retain(|_, sequence| stream.messages.contains_key(sequence));
            has_forgotten |= stream.ids.len() < known;
        }
        has_forgotten
    }

    pub fn newest_epoch(&self, stream: &str) -> Option<String> {
        self.streams.get(stream).map(Stream::newest_epoch)
    }

    /// Whether a replica of a stream has lost messages.
    pub fn is_damaged(&self, stream: &str) -> bool {
        self.streams.get(stream).is_some_and(|stream| !stream.damaged.is_empty())
    }

    /// Removes a stream. Returns its name and the epochs in which nodes may be.
    pub fn remove_stream(&mut self, chosen: usize, nodes: &mut [LinkQueues]) -> Option<(Box<str>, BTreeSet<String>)> {
        let name = self.streams.keys().nth(chosen % self.streams.len().max(1))?.clone();
        let stream = self.streams.remove(&name)?;
        nodes.iter_mut().for_each(LinkQueues::forget_late);
        self.losses += 1;
        self.count("stream removed");
        // One in which nothing was stored loses nothing, and its epoch stays valid: the record that its creator sends may begin the
        // next stream.
        let epochs = if stream.last == 0 { BTreeSet::new() } else { stream.used_epochs() };
        Some((name, epochs))
    }

    /// Removes all messages of a stream. Returns its name.
    pub fn empty_stream(&mut self, chosen: usize) -> Option<Box<str>> {
        let place = chosen % self.streams.len().max(1);
        let (name, stream) = self.streams.iter_mut().nth(place)?;
        stream.empty();
        let name = name.clone();
        self.losses += 1;
        self.count("stream emptied");
        Some(name)
    }

    /// Whether another epoch has begun since a stream was emptied or a replica damaged in `epoch`.
    pub fn is_replaced_after_a_loss(&self, stream: &str, epoch: &str) -> bool {
        self.streams
            .get(stream)
            .is_some_and(|stream| stream.lossy_epochs.contains(epoch) && stream.newest_epoch() != epoch)
    }

    /// The number of epochs that nodes have begun.
    pub fn epochs_begun(&self) -> u64 {
        self.epochs.len() as u64
    }

    fn create(&mut self, now_us: u64, name: &str, epoch: &str) -> Result<Box<StreamState>, ReadFault> {
        if self.streams.contains_key(name) {
            let description = "stream name already in use with a different configuration".into();
            return Err(ReadFault::Refused { code: 400, error_code: 10_058, description });
        }
        self.streams.insert(name.into(), Stream { epoch: epoch.to_owned(), ..Stream::default() });
        self.count("stream created");
        self.describe(now_us, name)
    }

    /// Whether the stored messages prove that the message `seen`, which a node received, was lost.
    pub fn is_loss_provable(&self, stream: &str, seen: u64) -> bool {
        self.streams.get(stream).is_some_and(|stream| stream.last < seen || stream.messages.contains_key(&seen))
    }

    /// Processes everything that reached the servers.
    pub fn step(&mut self, now_us: u64, nodes: &mut [LinkQueues], truth: &mut Truth) {
        if self.leader_is_new && self.election_until_us <= now_us {
            self.leader_is_new = false;
            self.announce_leader(now_us, nodes);
        }
        self.forget_old(now_us);
        for node_index in 0..nodes.len() {
            let delay_us = self.delay_us();
            nodes[node_index].reconnect(now_us, delay_us);
            for link in LinkName::ALL {
                while let Some(effect) = nodes[node_index].take_sent(now_us, link) {
                    self.perform(now_us, node_index, effect, nodes, truth);
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

    fn perform(
        &mut self,
        now_us: u64,
        node_index: usize,
        effect: LinkEffect,
        nodes: &mut [LinkQueues],
        truth: &mut Truth,
    ) {
        let ready_us = now_us + self.delay_us();
        if nodes[node_index].is_partitioned(link_of(&effect)) {
            self.count("partitioned");
            if let Some(timeout) = timeout_of(&effect) {
                nodes[node_index].reply(now_us + 1_000_000, link_of(&effect), timeout);
            }
            return;
        }
        match effect {
            LinkEffect::Subscribe { subject } => {
                self.spread(now_us, node_index, &subject, nodes);
                nodes[node_index].interest.insert(subject);
            }
            LinkEffect::Unsubscribe { subject } => drop(nodes[node_index].interest.remove(&subject)),
            LinkEffect::Publish { request: None, subject, headers, payload, .. } if is_not_stored(&subject) => {
                self.relay(now_us, node_index, &Sent { subject, headers, payload }, nodes);
            }
            LinkEffect::Publish { link, request, subject, headers, payload } => {
                let outcome = self.publish(now_us, Sent { subject, headers, payload }, nodes, truth);
                if let Some(request) = request {
                    let is_late = self.has_faults && self.chance.percent(self.timeouts);
                    let (ready_us, outcome) =
                        if is_late { (now_us + 1_000_000, Err(PublishFault::TimedOut)) } else { (ready_us, outcome) };
                    nodes[node_index].reply(ready_us, link, LinkEvent::Acknowledged { request, outcome });
                }
            }
            LinkEffect::Purge { .. } => unreachable!("this world keeps no rooms"),
            LinkEffect::Create { request, terms, epoch } => {
                let outcome = self.create(now_us, &terms.name, &epoch);
                nodes[node_index].reply(ready_us, LinkName::Read, LinkEvent::StreamInfo { request, outcome });
            }
            LinkEffect::Describe { request, stream } => {
                let outcome = self.describe(now_us, &stream);
                nodes[node_index].reply(ready_us, LinkName::Read, LinkEvent::StreamInfo { request, outcome });
            }
            read => {
                if let Some((request, outcome)) = self.read(&read) {
                    nodes[node_index].reply(ready_us, LinkName::Read, LinkEvent::Answered { request, outcome });
                }
            }
        }
    }

    /// Propagates a subscription to the servers of all nodes, which it reaches at different times.
    fn spread(&mut self, now_us: u64, node_index: usize, subject: &str, nodes: &mut [LinkQueues]) {
        if is_not_stored(subject) {
            let count = nodes.len();
            let delay_max_us = 2 * self.delay_max_us;
            let routes = &mut self.routes;
            nodes[node_index].spread(subject, (0..count).map(|_| now_us + routes.between(0, delay_max_us)));
        }
    }

    /// Delivers a message that no stream stores to each matching subscription.
    fn relay(&mut self, now_us: u64, node_index: usize, message: &Sent, nodes: &mut [LinkQueues]) {
        let Sent { subject, headers, payload } = message;
        let subject = &**subject;
        let wildcard = subject.rsplit_once('.').map_or_else(String::new, |(all, _)| format!("{all}.*"));
        for node in nodes {
            for (pattern, is_by_wildcard) in [(subject, false), (wildcard.as_str(), true)] {
                if !node.is_known_at(node_index, now_us, pattern) {
                    continue;
                }
                let event = LinkEvent::Delivered {
                    subject: subject.into(),
                    reply: None,
                    headers: headers.clone(),
                    payload: payload.clone(),
                    is_by_wildcard,
                };
                let delay_us = self.chance.between(50, self.delay_max_us);
                if self.has_faults && self.routes.percent(self.held_back) {
                    *self.reached.entry("held back").or_insert(0) += 1;
                    node.reply_late(now_us + delay_us + self.routes.between(0, 300_000), event);
                } else {
                    node.reply(now_us + delay_us, LinkName::Live, event);
                }
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
        message: Sent,
        nodes: &mut [LinkQueues],
        truth: &mut Truth,
    ) -> Result<PublishAck, PublishFault> {
        let Sent { subject, headers, payload } = message;
        let subject = &*subject;
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
        if self.full_until_us > now_us {
            *self.reached.entry("store full").or_insert(0) += 1;
            let description = "insufficient resources".into();
            return Err(PublishFault::Refused { code: 503, error_code: 10_023, description });
        }
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
        if let Some(epoch) = message.headers.get(record::EPOCH) {
            self.epochs.insert(epoch.to_owned());
            // The damage is still there, and a node that finds it ends this epoch as well.
            stream.lossy_epochs.extend((!stream.damaged.is_empty()).then(|| epoch.to_owned()));
        }
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
        // A leader that dies after the commit does not republish the message.
        let is_hidden = message.headers.get(record::FENCE).is_none() && std::mem::take(&mut self.skips_next_republish);
        if is_hidden || self.has_faults && self.chance.percent(1) {
            self.count("never republished");
            return;
        }
        let wildcard: Box<str> =
            subject.rsplit_once('.').map_or_else(String::new, |(all, _)| format!("{all}.>")).into();
        for node in
            nodes.iter_mut().filter(|node| node.interest.contains(&subject) || node.interest.contains(&wildcard))
        {
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
            duplicate_window_ms: 300_000,
            ..StreamShape::default()
        };
        let Some(stream) = self.streams.get(stream) else {
            return Err(ReadFault::Refused { code: 404, error_code: 10_059, description: "stream not found".into() });
        };
        Ok(Box::new(StreamState {
            shape,
            first_sequence: stream.messages.first_key_value().map_or(0, |(first, _)| *first),
            last_sequence: stream.last,
            metadata: vec![("dunlin.epoch".into(), stream.epoch.as_str().into())],
            has_leader: true,
        }))
    }

    /// Serves a read from a replica that may lag.
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
        let is_of_damaged = !stream.damaged.is_empty() && self.damages.percent(33);
        // The state of a replica is an earlier state of the stream.
        let is_damaged = |message: &StoredMessage| is_of_damaged && stream.damaged.contains(&message.sequence);
        // It leaves out what it cannot read. A damaged length is not noticed, and only moves the begin of the data.
        let is_shifted = |message: &StoredMessage| message.sequence % 2 == 1 && !message.payload.is_empty();
        let since_removed = stream.removed.iter().filter(|(by, message)| *by > through && message.sequence <= through);
        let stored = stream.messages.range(..=through).map(|(_, message)| message);
        let view: BTreeMap<u64, &StoredMessage> = stored
            .chain(since_removed.map(|(_, message)| message))
            .filter(|message| !is_damaged(message) || is_shifted(message))
            .map(|message| (message.sequence, message))
            .collect();
        let known = || view.values().copied();
        let mut pending = 0;
        let mut messages: Vec<StoredMessage> = match effect {
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
        if let LinkEffect::LastOf { subjects, .. } = effect {
            self.losses += u64::from(hides_newest(stream, subjects, &view, through));
        }
        let mut shifted = 0;
        for message in messages.iter_mut().filter(|message| is_damaged(message)) {
            message.payload = message.payload.slice(1..);
            shifted += 1;
        }
        for _ in 0..shifted {
            self.count("damaged message");
        }
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

    /// The names of the nodes that hold a lease.
    pub fn held_leases(&self) -> BTreeSet<String> {
        self.streams.get(&LeaseNames::new("dn").stream).map(Stream::held_leases).unwrap_or_default()
    }

    /// Whether a channel's history after an offset is stored and, with `in_flight`, small enough to be complete.
    pub fn has_all_after(
        &self,
        stream: &str,
        subject: &str,
        offset: u64,
        in_flight: u64,
        truth: &BTreeMap<u64, Vec<u8>>,
    ) -> bool {
        let Some(stream) = self.streams.get(stream) else { return false };
        let stored = stream.by_subject.get(subject).cloned().unwrap_or_default();
        let after: Vec<u64> = stored.range(offset + 1..).copied().collect();
        let committed: Vec<u64> = truth.range(offset + 1..).map(|(sequence, _)| *sequence).collect();
        let is_provable = (stream.emptied_through..=stream.last).contains(&offset);
        let is_small = after.len() as u64 + in_flight <= self.history_size;
        after == committed && is_small && is_provable && !stream.names_lost(subject, offset)
    }
}

/// Whether the answer of a damaged replica lacks the newest message of a subject. No other message names that one, once the stream has
/// lost those that did. A node cannot tell this replica from one that is right, so it may end an epoch with each such answer, until the
/// replica is repaired; `docs/clustering.md` says so among the limits. Only a loss that all replicas agree on begins one epoch.
fn hides_newest(stream: &Stream, subjects: &[Box<str>], view: &BTreeMap<u64, &StoredMessage>, through: u64) -> bool {
    let mut newest =
        subjects.iter().filter_map(|subject| stream.by_subject.get(subject)?.range(..=through).next_back());
    newest.any(|newest| !view.contains_key(newest))
}

fn record_truth(message: &StoredMessage, truth: &mut Truth) {
    let token = message.subject.rsplit('.').next().unwrap_or_default();
    let is_publication =
        message.headers.get(record::OPERATION).is_none() && message.headers.get(record::FENCE).is_none();
    if let (Some(channel), true) = (decode_token(token), is_publication) {
        truth.entry(channel.into_owned()).or_default().data.insert(message.sequence, message.payload.to_vec());
    }
}
