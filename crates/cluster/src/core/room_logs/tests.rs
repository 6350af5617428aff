//! Nodes with rooms, and servers that lose answers, lag and elect leaders. What a room has shown its players must be in
//! its log, whoever holds it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::{BufMut, Bytes, BytesMut};
use dunlin_engine::Now;
use dunlin_proof::chance::Xorshift;

use super::{KeptRoom, RoomLogEffect, RoomLogEvent, RoomLogFault, RoomLogNumber};
use crate::{
    core::{
        Core, CoreEffect, CoreEvent, CoreLimits, CoreOptions,
        peers::{NodeDescription, PeerEvent},
    },
    link::{
        LinkEffect, LinkEvent, LinkName, MessageHeaders, PublishAck, PublishFault, ReadAnswer, ReadFault,
        RequestNumber, StoredMessage, StreamState,
    },
    record::{EXPECTED_LAST, MESSAGE_ID},
};

const STEP_US: u64 = 1_000;
const TICK_US: u64 = 16_000;
/// Ticks that may wait for the log.
const HELD_MAX: u64 = 30;
/// Parts of checkpoints have 64 bytes.
const MAX_PAYLOAD: usize = 4_096 + 64;
const NAMES: [&str; 3] = ["game:a", "game:b", "game:c"];

/// The streams of leases and of rooms.
#[derive(Default)]
struct Servers {
    messages: Vec<StoredMessage>,
    /// Messages that were purged, which a lagging replica still has.
    purged: Vec<StoredMessage>,
    ids: BTreeMap<Box<str>, u64>,
    last: u64,
    leaderless_until_us: u64,
    /// With one replica, conditions are checked before duplicates are detected.
    is_single: bool,
    refusals: u64,
}

impl Servers {
    fn newest(&self, subject: &str, below: u64) -> Option<&StoredMessage> {
        self.messages.iter().rev().find(|message| *message.subject == *subject && message.sequence <= below)
    }

    fn store(&mut self, now_us: u64, message: &Published) -> Result<PublishAck, PublishFault> {
        if now_us < self.leaderless_until_us {
            return Err(PublishFault::NoResponders);
        }
        let id = message.headers.get(MESSAGE_ID).expect("each message has an id");
        let newest = self.newest(&message.subject, u64::MAX).map_or(0, |newest| newest.sequence);
        let is_expected = message.headers.number(EXPECTED_LAST) == Some(newest);
        let ack = |sequence, is_duplicate| PublishAck { stream: "s".into(), sequence, is_duplicate };
        if let Some(sequence) = self.ids.get(id).filter(|_| !self.is_single || is_expected) {
            return Ok(ack(*sequence, true));
        }
        if !is_expected {
            self.refusals += 1;
            let description = format!("wrong last sequence: {newest}").into();
            return Err(PublishFault::Refused { code: 400, error_code: 10_071, description });
        }
        self.last += 1;
        self.ids.insert(id.into(), self.last);
        let Published { subject, headers, payload } = message.clone();
        self.messages.push(StoredMessage {
            subject,
            sequence: self.last,
            last_sequence: 0,
            time_ms: 0,
            headers,
            payload,
        });
        Ok(ack(self.last, false))
    }

    fn purge(&mut self, subject: &str, below: u64) {
        let is_old = |message: &StoredMessage| *message.subject == *subject && message.sequence < below;
        self.purged.extend(self.messages.iter().filter(|message| is_old(message)).cloned());
        self.messages.retain(|message| !is_old(message));
    }

    /// The newest message of each subject, of a replica that has the messages up to `known`.
    fn last_of(&self, pattern: &str, known: u64) -> Vec<StoredMessage> {
        let start = pattern.trim_end_matches('*');
        let is_asked = |subject: &str| if pattern == start { subject == pattern } else { subject.starts_with(start) };
        let subjects: BTreeSet<&str> =
            self.messages.iter().map(|message| &*message.subject).filter(|subject| is_asked(subject)).collect();
        subjects.into_iter().filter_map(|subject| self.newest(subject, known).cloned()).collect()
    }
}

#[derive(Clone)]
struct Published {
    subject: Box<str>,
    headers: MessageHeaders,
    payload: Bytes,
}

/// A room of a node. Its state is a hash of all steps.
#[derive(Debug)]
struct RunningRoom {
    channel: Arc<str>,
    /// How many rooms of the channel were closed before.
    life: u64,
    tick: u64,
    hash: u64,
    /// The hashes of ticks that are not stored yet.
    held: BTreeMap<u64, u64>,
    next_tick_us: u64,
    next_checkpoint: u64,
    is_ending: bool,
    /// Another node has claimed the room since, and has shown more. So the stream must refuse each message of this one.
    is_behind: bool,
}

struct Node {
    core: Core,
    rooms: BTreeMap<RoomLogNumber, RunningRoom>,
    opening: BTreeMap<RoomLogNumber, Arc<str>>,
    /// The claims of channels that have not ended.
    claimed: BTreeSet<Arc<str>>,
    logs: u64,
    paused_until_us: u64,
    is_dead: bool,
}

/// What players have seen of a room: the hash after each tick.
#[derive(Default)]
struct Shown {
    by_tick: BTreeMap<u64, u64>,
}

struct World {
    chance: Xorshift,
    servers: Servers,
    nodes: Vec<Node>,
    now_us: u64,
    /// Events on their way to nodes.
    arriving: BTreeMap<(u64, u64), (usize, LinkEvent)>,
    sent: u64,
    /// By channel and life.
    shown: BTreeMap<(Arc<str>, u64), Shown>,
    lives: BTreeMap<Arc<str>, u64>,
    reached: BTreeMap<&'static str, u64>,
    has_faults: bool,
    /// The nodes whose game cannot run the rooms that are stored.
    refusing: BTreeSet<usize>,
    /// How long the lists of all logs are on their way.
    list_delay_us: u64,
}

fn step_hash(hash: u64, step: u64) -> u64 {
    (hash ^ step).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
}

impl World {
    fn new(seed: u64, nodes: usize) -> Self {
        let mut chance = Xorshift::new(seed);
        let is_single = chance.below(2) == 0;
        let mut world = Self {
            chance,
            servers: Servers { is_single, ..Servers::default() },
            nodes: Vec::new(),
            now_us: 1_000_000,
            arriving: BTreeMap::new(),
            sent: 0,
            shown: BTreeMap::new(),
            lives: BTreeMap::new(),
            reached: BTreeMap::new(),
            has_faults: true,
            refusing: BTreeSet::new(),
            list_delay_us: 0,
        };
        (0..nodes).for_each(|_| world.start());
        world
    }

    fn start(&mut self) {
        let index = self.nodes.len();
        let core = Core::new(CoreOptions {
            prefix: "dn".into(),
            node: format!("n{index}").into(),
            namespaces: vec![None],
            broadcasts: vec![None],
            has_leases: true,
            has_room_logs: true,
            creatable: Vec::new(),
            limits: CoreLimits::default(),
        });
        self.nodes.push(Node {
            core,
            rooms: BTreeMap::new(),
            opening: BTreeMap::new(),
            claimed: BTreeSet::new(),
            logs: 0,
            paused_until_us: 0,
            is_dead: false,
        });
        for link in LinkName::ALL {
            self.handle(index, CoreEvent::Link(LinkEvent::Connected { link, max_payload: MAX_PAYLOAD }));
        }
        self.handle(index, CoreEvent::Peers(PeerEvent::Announce { about: NodeDescription::default() }));
        self.handle(index, CoreEvent::RoomLog(RoomLogEvent::FindOrphans));
    }

    fn count(&mut self, what: &'static str) {
        *self.reached.entry(what).or_default() += 1;
    }

    fn handle(&mut self, index: usize, event: CoreEvent) {
        let now = Now { mono_us: self.now_us, unix_ms: 1_700_000_000_000 + self.now_us / 1_000 };
        let mut effects = Vec::new();
        self.nodes[index].core.handle(now, event, &mut effects);
        for effect in effects {
            match effect {
                CoreEffect::Link(effect) => self.perform(index, effect),
                CoreEffect::RoomLog(effect) => self.told(index, effect),
                _ => {}
            }
        }
    }

    fn reply(&mut self, index: usize, event: LinkEvent) {
        let delay_us = 200 + self.chance.below(3_000);
        self.reply_after(index, delay_us, event);
    }

    fn reply_after(&mut self, index: usize, delay_us: u64, event: LinkEvent) {
        self.sent += 1;
        self.arriving.insert((self.now_us + delay_us, self.sent), (index, event));
    }

    fn perform(&mut self, index: usize, effect: LinkEffect) {
        match effect {
            LinkEffect::Publish { request: Some(request), subject, headers, payload, .. } => {
                self.publish(index, request, &Published { subject, headers, payload });
            }
            // A connection receives its own messages as well, and so do the others.
            LinkEffect::Publish { request: None, subject, headers, payload, .. } => {
                for to in 0..self.nodes.len() {
                    let (subject, headers, payload) = (subject.clone(), headers.clone(), payload.clone());
                    let event = LinkEvent::Delivered { subject, reply: None, headers, payload, is_by_wildcard: false };
                    self.reply(to, event);
                }
            }
            LinkEffect::Purge { subject, below, .. } => {
                let is_lost = self.has_faults && self.chance.below(4) == 0;
                self.servers.purge(&subject, if is_lost { 0 } else { below });
            }
            LinkEffect::Describe { request, .. } => {
                let metadata = vec![("dunlin.epoch".into(), "e".into())];
                let outcome = Ok(Box::new(StreamState { metadata, ..StreamState::default() }));
                self.reply(index, LinkEvent::StreamInfo { request, outcome });
            }
            LinkEffect::LastOf { request, subjects, .. } => {
                let known = self.known_to_replica();
                let messages = self.servers.last_of(&subjects[0], known);
                if self.list_delay_us > 0 && subjects[0].ends_with('*') {
                    let outcome = Ok(ReadAnswer { messages, ..ReadAnswer::default() });
                    return self.reply_after(index, self.list_delay_us, LinkEvent::Answered { request, outcome });
                }
                self.answer(index, request, messages);
            }
            LinkEffect::Range { request, subject, from, messages_max, .. } => {
                let known = self.known_to_replica();
                let subject = subject.expect("a log is one subject");
                let is_asked =
                    |message: &&StoredMessage| message.subject == subject && (from..=known).contains(&message.sequence);
                // Answers are short, so that a log has several.
                let messages = self.servers.messages.iter().filter(is_asked).take(messages_max.min(5)).cloned();
                let messages = messages.collect();
                self.answer(index, request, messages);
            }
            _ => {}
        }
    }

    fn known_to_replica(&mut self) -> u64 {
        let is_lagging = self.has_faults && !self.servers.is_single && self.chance.below(5) == 0;
        self.servers.last - if is_lagging { self.chance.below(20).min(self.servers.last) } else { 0 }
    }

    fn answer(&mut self, index: usize, request: RequestNumber, messages: Vec<StoredMessage>) {
        let is_lost = self.has_faults && self.chance.below(30) == 0;
        let outcome =
            if is_lost { Err(ReadFault::TimedOut) } else { Ok(ReadAnswer { messages, ..ReadAnswer::default() }) };
        self.reply(index, LinkEvent::Answered { request, outcome });
    }

    fn publish(&mut self, index: usize, request: RequestNumber, message: &Published) {
        let is_lost = self.has_faults && self.chance.below(60) == 0;
        if is_lost {
            return self.reply_after(
                index,
                50_000,
                LinkEvent::Acknowledged { request, outcome: Err(PublishFault::TimedOut) },
            );
        }
        let last = self.servers.last;
        let outcome = self.servers.store(self.now_us, message);
        if self.servers.last > last
            && let Some(live) = message.subject.strip_prefix("dn.l.")
        {
            let headers = message.headers.clone().with("Nats-Sequence", self.servers.last.to_string());
            for to in 0..self.nodes.len() {
                let (subject, headers) = (format!("dn.lw.{live}").into(), headers.clone());
                let payload = message.payload.clone();
                self.reply(to, LinkEvent::Delivered { subject, reply: None, headers, payload, is_by_wildcard: true });
            }
        }
        let is_answer_lost = self.has_faults && self.chance.below(30) == 0;
        if is_answer_lost {
            self.count("answer lost");
            let outcome = Err(PublishFault::TimedOut);
            return self.reply_after(index, 50_000, LinkEvent::Acknowledged { request, outcome });
        }
        self.reply(index, LinkEvent::Acknowledged { request, outcome });
    }

    /// A node opens a room, unless it has it.
    fn open(&mut self, index: usize, channel: &Arc<str>) {
        let node = &mut self.nodes[index];
        if node.is_dead || !node.claimed.insert(Arc::clone(channel)) {
            return;
        }
        node.logs += 1;
        let log = RoomLogNumber(node.logs);
        node.opening.insert(log, Arc::clone(channel));
        self.handle(index, CoreEvent::RoomLog(RoomLogEvent::Open { log, channel: Arc::clone(channel) }));
    }

    fn told(&mut self, index: usize, effect: RoomLogEffect) {
        match effect {
            RoomLogEffect::Opened { log, outcome: Ok(kept) } => self.restore(index, log, &kept),
            RoomLogEffect::Opened { log, outcome: Err(fault) } => {
                self.count(match fault {
                    RoomLogFault::Held { .. } => "held by another node",
                    _ => "not opened in time",
                });
                self.nodes[index].opening.remove(&log).expect("it was opened");
                // Its channel is free when a claim that may be stored is released.
                if matches!(fault, RoomLogFault::Held { .. }) {
                    self.free(index, None);
                }
            }
            RoomLogEffect::Recorded { log, tick } => self.recorded(index, log, tick),
            RoomLogEffect::CheckpointStored { .. } => self.count("checkpoint stored"),
            RoomLogEffect::Lost { log, why } => {
                self.count(if matches!(why, RoomLogFault::Taken { .. }) { "taken by another node" } else { "lost" });
                assert!(!matches!(why, RoomLogFault::Gone), "no message was removed that a log needs");
                let room = self.nodes[index].rooms.remove(&log);
                self.free(index, room.map(|room| room.channel));
            }
            RoomLogEffect::Ended { log } => {
                self.count("ended");
                let room = self.nodes[index].rooms.remove(&log);
                self.free(index, room.map(|room| room.channel));
            }
            RoomLogEffect::Orphans { channels } => {
                for channel in channels {
                    self.count("orphan found");
                    self.open(index, &channel.into());
                }
            }
        }
    }

    fn free(&mut self, index: usize, channel: Option<Arc<str>>) {
        let node = &mut self.nodes[index];
        let used: BTreeSet<Arc<str>> =
            node.rooms.values().map(|room| Arc::clone(&room.channel)).chain(node.opening.values().cloned()).collect();
        let freed: Vec<Arc<str>> = match channel {
            Some(channel) => vec![channel],
            None => node.claimed.difference(&used).cloned().collect(),
        };
        node.claimed.retain(|channel| !freed.contains(channel));
    }

    /// Compares what is stored of a room with what its players have seen.
    fn restore(&mut self, index: usize, log: RoomLogNumber, kept: &KeptRoom) {
        let channel = self.nodes[index].opening.remove(&log).expect("it was opened");
        if self.refusing.contains(&index) {
            self.count("refused");
            self.handle(index, CoreEvent::RoomLog(RoomLogEvent::Refuse { log }));
            return self.handle(index, CoreEvent::RoomLog(RoomLogEvent::End { log, keeps: true }));
        }
        let (mut tick, mut hash) = (0, 0);
        if let Some((at, bytes)) = &kept.checkpoint {
            (tick, hash) = (*at, u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")));
        }
        let life = self.lives.get(&channel).copied().unwrap_or_default();
        let shown = self.shown.entry((Arc::clone(&channel), life)).or_default();
        let check = |tick: u64, hash: u64, shown: &Shown| {
            if let Some(seen) = shown.by_tick.get(&tick) {
                assert_eq!(*seen, hash, "{channel}: tick {tick} is another one than players have seen");
            }
        };
        check(tick, hash, shown);
        for (at, record) in &kept.records {
            assert_eq!(*at, tick + 1, "{channel}: the records have no gap");
            (tick, hash) = (*at, step_hash(hash, u64::from_le_bytes(record[..8].try_into().expect("eight bytes"))));
            check(tick, hash, shown);
        }
        let newest = shown.by_tick.last_key_value().map_or(0, |(tick, _)| *tick);
        let is_behind = tick < newest;
        self.count(if tick == 0 { "new room" } else { "continued" });
        let next_checkpoint = tick + 1;
        let room = RunningRoom {
            channel,
            life,
            tick,
            hash,
            held: BTreeMap::new(),
            next_tick_us: self.now_us,
            next_checkpoint,
            is_ending: false,
            is_behind,
        };
        self.nodes[index].rooms.insert(log, room);
    }

    /// Ticks are stored, so players see them.
    fn recorded(&mut self, index: usize, log: RoomLogNumber, tick: u64) {
        let room = self.nodes[index].rooms.get_mut(&log).expect("it runs until its log ends");
        assert!(!room.is_behind, "{}: players have seen a later tick than {tick}", room.channel);
        let later = room.held.split_off(&(tick + 1));
        let stored = std::mem::replace(&mut room.held, later);
        let shown = self.shown.entry((Arc::clone(&room.channel), room.life)).or_default();
        for (tick, hash) in stored {
            let before = shown.by_tick.insert(tick, hash);
            assert_eq!(before, None, "{}: tick {tick} was shown before", room.channel);
        }
        self.count("ticks shown");
    }

    fn tick_rooms(&mut self, index: usize) {
        let due: Vec<RoomLogNumber> = self.nodes[index]
            .rooms
            .iter()
            .filter(|(_, room)| !room.is_ending && room.next_tick_us <= self.now_us)
            .map(|(log, _)| *log)
            .collect();
        for log in due {
            let step = self.chance.draw();
            let padding = self.chance.below(300) as usize;
            let ends = if self.has_faults { self.chance.below(3_000) } else { u64::MAX };
            let room = self.nodes[index].rooms.get_mut(&log).expect("it is due");
            room.next_tick_us = self.now_us + TICK_US;
            if room.held.len() as u64 >= HELD_MAX {
                continue;
            }
            room.tick += 1;
            room.hash = step_hash(room.hash, step);
            room.held.insert(room.tick, room.hash);
            let (tick, hash) = (room.tick, room.hash);
            let is_due = tick >= room.next_checkpoint;
            if is_due {
                room.next_checkpoint = tick + 20 + padding as u64 % 30;
            }
            let bytes = Bytes::copy_from_slice(&step.to_le_bytes());
            self.handle(index, CoreEvent::RoomLog(RoomLogEvent::Record { log, tick, bytes }));
            if is_due && self.nodes[index].rooms.contains_key(&log) {
                let mut bytes = BytesMut::new();
                bytes.put_u64_le(hash);
                bytes.put_bytes(0, padding);
                self.handle(
                    index,
                    CoreEvent::RoomLog(RoomLogEvent::Checkpoint {
                        log,
                        tick,
                        bytes: bytes.freeze(),
                        goes_first: false,
                    }),
                );
            }
            if ends == 0 {
                self.end_room(index, log, false);
            } else if ends == 1 {
                self.end_room(index, log, true);
            }
        }
    }

    fn end_room(&mut self, index: usize, log: RoomLogNumber, keeps: bool) {
        let Some(room) = self.nodes[index].rooms.get_mut(&log) else { return };
        room.is_ending = true;
        if !keeps {
            // Its players see its end, and a new room begins at tick 0.
            *self.lives.entry(Arc::clone(&room.channel)).or_default() += 1;
            room.held.clear();
        }
        self.count(if keeps { "released" } else { "closed" });
        self.handle(index, CoreEvent::RoomLog(RoomLogEvent::End { log, keeps }));
    }

    fn inject(&mut self) {
        if !self.has_faults {
            return;
        }
        let index = self.chance.below(self.nodes.len() as u64) as usize;
        match self.chance.below(4_000) {
            0..4 => {
                self.servers.leaderless_until_us = self.now_us + self.chance.below(2_000_000);
                self.count("no leader");
            }
            4..8 => {
                self.nodes[index].paused_until_us = self.now_us + self.chance.below(5_000_000);
                self.count("paused");
            }
            8 => self.kill(index),
            9 => self.kill_holder(),
            10..60 => {
                let channel: Arc<str> = NAMES[self.chance.below(NAMES.len() as u64) as usize].into();
                self.open(index, &channel);
            }
            _ => {}
        }
    }

    fn kill_holder(&mut self) {
        let holder = self.nodes.iter().position(|node| !node.is_dead && !node.rooms.is_empty());
        if let Some(index) = holder {
            self.kill(index);
        }
    }

    /// A node dies, and another one starts.
    fn kill(&mut self, index: usize) {
        if self.nodes[index].is_dead {
            return;
        }
        self.count("killed");
        self.nodes[index].is_dead = true;
        self.nodes[index].rooms.clear();
        self.start();
    }

    fn pass_us(&mut self, time_us: u64) {
        let until_us = self.now_us + time_us;
        while self.now_us < until_us {
            self.now_us += STEP_US;
            self.inject();
            self.deliver();
            for index in 0..self.nodes.len() {
                if self.is_running(index) {
                    if self.nodes[index].core.next_deadline_us().is_some_and(|due_us| due_us <= self.now_us) {
                        self.handle(index, CoreEvent::Woke);
                    }
                    self.tick_rooms(index);
                }
            }
        }
    }

    fn is_running(&self, index: usize) -> bool {
        !self.nodes[index].is_dead && self.nodes[index].paused_until_us <= self.now_us
    }

    fn deliver(&mut self) {
        let due: Vec<(u64, u64)> = self.arriving.range(..=(self.now_us, u64::MAX)).map(|(key, _)| *key).collect();
        for key in due {
            let (index, event) = self.arriving.remove(&key).expect("it was found");
            if self.nodes[index].is_dead {
                continue;
            }
            let paused_until_us = self.nodes[index].paused_until_us;
            if paused_until_us > self.now_us {
                self.arriving.insert((paused_until_us, key.1), (index, event));
            } else {
                self.handle(index, CoreEvent::Link(event));
            }
        }
    }

    /// Ends the faults, and checks that each room that has shown something runs once.
    fn settle(&mut self) {
        self.has_faults = false;
        self.servers.leaderless_until_us = 0;
        self.nodes.iter_mut().for_each(|node| node.paused_until_us = 0);
        self.pass_us(12_000_000);
        let before = self.ticks_shown();
        for name in NAMES {
            let index = self.nodes.iter().position(|node| !node.is_dead).expect("one node lives");
            let channel: Arc<str> = name.into();
            let has_it = |node: &Node| !node.is_dead && node.claimed.contains(&channel);
            if !self.nodes.iter().any(has_it) {
                self.open(index, &channel);
            }
        }
        self.pass_us(12_000_000);
        for name in NAMES {
            let running = self.nodes.iter().filter(|node| !node.is_dead).flat_map(|node| node.rooms.values());
            let holders = running.filter(|room| *room.channel == *name && !room.is_ending).count();
            assert!(holders <= 1, "{name} runs on {holders} nodes");
            assert!(holders == 1, "{name} runs nowhere");
        }
        let rooms: Vec<_> =
            self.nodes.iter().map(|node| (node.is_dead, &node.rooms, &node.opening, &node.claimed)).collect();
        assert!(self.ticks_shown() > before + 300, "rooms go on after the faults: {rooms:?}");
    }

    fn ticks_shown(&self) -> usize {
        self.shown.values().map(|shown| shown.by_tick.len()).sum()
    }
}

fn play(seed: u64) -> BTreeMap<&'static str, u64> {
    let mut world = World::new(seed, 3);
    world.pass_us(1_500_000);
    for (index, name) in NAMES.into_iter().enumerate() {
        world.open(index, &name.into());
    }
    world.pass_us(20_000_000);
    world.settle();
    world.reached
}

#[test]
fn rooms_go_on_elsewhere_with_all_that_players_have_seen() {
    let mut reached: BTreeMap<&'static str, u64> = BTreeMap::new();
    let seeds = std::env::var("DUNLIN_ROOM_LOG_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(30);
    for seed in 1..=seeds {
        let outcome = std::panic::catch_unwind(|| play(seed));
        let counts = outcome.unwrap_or_else(|payload| {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(payload)
        });
        for (what, count) in counts {
            *reached.entry(what).or_default() += count;
        }
    }
    for what in [
        "answer lost",
        "checkpoint stored",
        "closed",
        "continued",
        "held by another node",
        "killed",
        "new room",
        "no leader",
        "not opened in time",
        "orphan found",
        "paused",
        "released",
        "taken by another node",
        "ticks shown",
    ] {
        assert!(reached.contains_key(what), "no seed has reached: {what}; {reached:?}");
    }
}

#[test]
fn a_room_moves_past_nodes_that_cannot_run_it_to_one_that_can() {
    for seed in 1..=20 {
        let mut world = World::new(seed, 4);
        world.has_faults = false;
        world.pass_us(1_500_000);
        for name in NAMES {
            world.open(0, &name.into());
        }
        world.pass_us(500_000);
        assert_eq!(world.nodes[0].rooms.len(), NAMES.len());
        // An update has reached two nodes, and cannot read what the old version has saved.
        world.refusing.extend([1, 2]);
        let logs: Vec<RoomLogNumber> = world.nodes[0].rooms.keys().copied().collect();
        for log in logs {
            world.end_room(0, log, true);
        }
        world.kill(0);
        world.refusing.insert(4);
        world.pass_us(40_000_000);
        assert_eq!(world.nodes[3].rooms.len(), NAMES.len(), "seed {seed}: {:?}", world.reached);
        assert_eq!(world.reached.get("continued"), Some(&(NAMES.len() as u64)), "seed {seed}");
        let refused = world.reached.get("refused").copied().unwrap_or_default();
        assert!(refused <= 3 * NAMES.len() as u64, "seed {seed}: each node tries once, and {refused} tries were made");
    }
}

#[test]
fn a_room_that_no_node_can_run_is_not_tried_for_ever() {
    let mut world = World::new(1, 2);
    world.has_faults = false;
    world.pass_us(1_500_000);
    let channel: Arc<str> = NAMES[0].into();
    world.open(0, &channel);
    world.pass_us(500_000);
    world.refusing.extend([0, 1, 2]);
    world.kill(0);
    world.pass_us(60_000_000);
    assert_eq!(world.reached.get("refused"), Some(&2), "both nodes that live have tried: {:?}", world.reached);
    // A node that can is asked by a join.
    world.refusing.remove(&1);
    world.open(1, &channel);
    world.pass_us(1_000_000);
    assert_eq!(world.nodes[1].rooms.len(), 1);
}

/// A world with one node, which has released a room and cannot run it. It lists the logs, which takes a second.
fn world_with_slow_list() -> (World, Arc<str>) {
    let mut world = World::new(1, 1);
    world.has_faults = false;
    world.pass_us(1_500_000);
    let channel: Arc<str> = NAMES[0].into();
    world.open(0, &channel);
    world.pass_us(500_000);
    let log = *world.nodes[0].rooms.keys().next().expect("it is open");
    world.end_room(0, log, true);
    world.pass_us(500_000);
    world.refusing.insert(0);
    world.list_delay_us = 1_000_000;
    world.handle(0, CoreEvent::RoomLog(RoomLogEvent::FindOrphans));
    (world, channel)
}

fn times(world: &World, what: &str) -> u64 {
    world.reached.get(what).copied().unwrap_or_default()
}

#[test]
fn a_list_from_before_a_refusal_does_not_undo_it() {
    let (mut world, channel) = world_with_slow_list();
    world.open(0, &channel);
    world.pass_us(900_000);
    assert_eq!((times(&world, "refused"), times(&world, "orphan found")), (1, 0), "the list is on its way");
    world.pass_us(30_000_000);
    assert_eq!((times(&world, "refused"), times(&world, "orphan found")), (1, 0));
    // It has run since, and nobody has refused it.
    world.refusing.clear();
    world.open(0, &channel);
    world.pass_us(500_000);
    let log = *world.nodes[0].rooms.keys().next().expect("it is open");
    world.end_room(0, log, true);
    world.handle(0, CoreEvent::RoomLog(RoomLogEvent::FindOrphans));
    world.pass_us(500_000);
    world.handle(0, CoreEvent::RoomLog(RoomLogEvent::FindOrphans));
    world.pass_us(5_000_000);
    assert_eq!((times(&world, "orphan found"), world.nodes[0].rooms.len()), (1, 1));
}

#[test]
fn a_list_does_not_have_rooms_that_a_join_is_opening() {
    let (mut world, channel) = world_with_slow_list();
    world.pass_us(998_000);
    world.open(0, &channel);
    world.pass_us(3_000);
    assert_eq!((times(&world, "refused"), times(&world, "orphan found")), (0, 0), "the list arrives in between");
    world.pass_us(30_000_000);
    assert_eq!((times(&world, "refused"), times(&world, "orphan found")), (1, 0));
}

#[test]
fn a_room_whose_records_overfill_the_queue_is_released_and_goes_on_where_it_was_stored() {
    // The servers are slow: a message is in flight when the queue is full.
    for servers_away in [false, true] {
        let mut world = World::new(1, 2);
        world.has_faults = false;
        world.servers.is_single = true;
        world.pass_us(1_500_000);
        let channel: Arc<str> = NAMES[0].into();
        world.open(0, &channel);
        world.pass_us(500_000);
        let (&log, room) = world.nodes[0].rooms.first_key_value().expect("it is open");
        let tick = room.tick;
        if servers_away {
            world.servers.leaderless_until_us = world.now_us + 1_000_000;
        }
        let steps = Bytes::from(vec![7; 1 << 20]);
        let mut next = tick + 1;
        while world.nodes[0].rooms.contains_key(&log) {
            // The first one is small, so that it is in flight.
            let bytes = if next == tick + 1 { Bytes::from_static(b"12345678") } else { steps.clone() };
            let hash =
                step_hash(world.nodes[0].rooms[&log].hash, u64::from_le_bytes(bytes[..8].try_into().expect("8")));
            let room = world.nodes[0].rooms.get_mut(&log).expect("it was found");
            (room.hash, room.tick) = (hash, next);
            room.held.insert(next, hash);
            world.handle(0, CoreEvent::RoomLog(RoomLogEvent::Record { log, tick: next, bytes }));
            next += 1;
        }
        // The room does not know it yet.
        for tick in next..next + 3 {
            let bytes = Bytes::from_static(b"87654321");
            world.handle(0, CoreEvent::RoomLog(RoomLogEvent::Record { log, tick, bytes: bytes.clone() }));
            world.handle(0, CoreEvent::RoomLog(RoomLogEvent::Checkpoint { log, tick, bytes, goes_first: false }));
        }
        world.handle(0, CoreEvent::RoomLog(RoomLogEvent::End { log, keeps: true }));
        world.pass_us(3_000_000);
        assert_eq!(world.reached.get("lost"), Some(&1), "the room is told once");
        assert_eq!(world.reached.get("ended"), Some(&1), "the log is released");
        assert_eq!(world.nodes[0].core.counters().room_logs.held, 0);
        world.open(1, &channel);
        world.pass_us(1_000_000);
        assert_eq!((world.reached.get("continued"), world.nodes[1].rooms.len()), (Some(&1), 1), "another node has it");
    }
}
