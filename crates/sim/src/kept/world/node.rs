//! The threads of the node: passes events, performs effects, delivers messages and advances the clock.

use std::sync::Arc;

use dunlin_engine::{
    Effect, Effects, Event, Now, Options, Seed, Shard, ShardIdentity, ShardIndex,
    host::RoutedMessage,
    options::{ClientOptions, NamespaceOptions, RoomLimits},
    room::{FromRoom, RoomThreadIndex, ToRoom},
};

use crate::ring::{FromRoomRing, ShardRing, ToRoomRing};

use super::{KeptRoom, KeptShard, KeptWorld};

const THREAD: RoomThreadIndex = RoomThreadIndex(0);

impl KeptWorld<'_> {
    /// Starts the node with empty memory.
    pub(super) fn start(&mut self, count: u16) {
        let shards = (0..count).map(|index| {
            let identity = ShardIdentity { index: ShardIndex(index), count };
            let seed = Seed { node: self.node, shard: self.chance.seed() };
            let mut shard = Shard::new(identity, Arc::clone(&self.options), seed);
            (self.prepare)(&mut shard);
            KeptShard { shard, effects: Effects::default(), sessions: 0, recalled: Vec::new() }
        });
        self.shards = shards.collect();
        self.rings = ShardRing::all(count);
        self.to = (0..count).map(|shard| ToRoomRing::new(ShardIndex(shard), THREAD)).collect();
        self.from = (0..count).map(|shard| FromRoomRing::new(THREAD, ShardIndex(shard))).collect();
    }

    /// Advances the clock. Shards wake, the room ticks, and the disk writes when they are due.
    pub(super) fn pass_time(&mut self, pause_us: u64) -> Result<(), String> {
        let until_us = self.now_us + pause_us;
        while self.now_us < until_us {
            self.now_us = if self.room.is_some() { self.next_tick_us.clamp(self.now_us, until_us) } else { until_us };
            for index in 0..self.shards.len() {
                while self.shards[index].shard.next_deadline_us().is_some_and(|due_us| due_us <= self.now_us) {
                    self.handle(index, Event::Woke)?;
                }
            }
            self.tick()?;
        }
        Ok(())
    }

    fn tick(&mut self) -> Result<(), String> {
        let logged = self.disk.step(self.now_us);
        let Some(room) = &mut self.room else { return Ok(()) };
        let mut outgoing = Vec::new();
        room.logged(logged, &mut outgoing);
        if self.next_tick_us <= self.now_us {
            self.next_tick_us = self.now_us + self.tick_us;
            if !self.is_settling || room.host.arrived_len() > 0 {
                room.tick(self.now_us, &mut self.disk, &mut self.truth, &mut outgoing)?;
                self.trace.number(room.runner.room().state_hash());
            }
        }
        self.post(outgoing);
        Ok(())
    }

    fn post(&mut self, outgoing: Vec<RoutedMessage>) {
        for (shard, message) in outgoing {
            self.from[usize::from(shard.0)].push(message);
        }
    }

    pub(super) fn handle(&mut self, index: usize, event: Event<'_>) -> Result<(), String> {
        let now = self.now();
        let KeptShard { shard, effects, .. } = &mut self.shards[index];
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

    fn now(&self) -> Now {
        Now { mono_us: self.now_us, unix_ms: 1_700_000_000_000 + self.now_us / 1_000 }
    }

    fn perform(&mut self, index: usize, effect: Effect) -> Result<(), String> {
        self.trace.line(self.now_us, || format!("shard {index}: {effect:?}"));
        match effect {
            Effect::Send { to, message } => {
                let ring = ShardRing::index(ShardIndex(index as u16), to, self.shards.len() as u16, &message);
                self.rings[ring].push(message);
            }
            Effect::ToRoom { message, .. } => self.to[index].push(message),
            Effect::Recall { session } => self.shards[index].recalled.push(session),
            // Clients send too little to need flow control.
            Effect::Pause { .. } | Effect::Resume { .. } => {}
            other => return Err(format!("{other:?}")),
        }
        Ok(())
    }

    /// Writes all queued bytes of the dirty sessions, and lets the clients read them at once.
    fn read_dirty(&mut self, index: usize) -> Result<(), String> {
        for session in std::mem::take(&mut self.shards[index].effects.dirty) {
            let bytes: Vec<u8> = self.shards[index].shard.outgoing(session).flatten().copied().collect();
            self.trace.bytes(&bytes);
            let now = self.now();
            let KeptShard { shard, effects, .. } = &mut self.shards[index];
            shard.handle(now, Event::Wrote { session, bytes: bytes.len() }, effects);
            for effect in std::mem::take(&mut effects.list) {
                self.perform(index, effect)?;
            }
            let Self { clients, truth, seen, .. } = self;
            if let Some(client) = clients.iter_mut().find(|client| client.session == Some((index, session))) {
                *seen = client.read(truth, bytes.into_iter())?.max(*seen);
            }
        }
        Ok(())
    }

    /// Delivers the frames of clients to their shards.
    pub(super) fn serve_clients(&mut self) -> Result<(), String> {
        for number in 0..self.clients.len() {
            while let Some((shard, session)) = self.clients[number].session
                && !self.clients[number].to_server.is_empty()
            {
                let frame = self.clients[number].to_server.remove(0);
                self.handle(shard, Event::Received { session, frame: &frame })?;
            }
        }
        Ok(())
    }

    /// Delivers a message of a ring.
    pub(super) fn deliver(&mut self, ring: usize) -> Result<(), String> {
        let (of_shards, to_room) = (self.rings.len(), self.rings.len() + self.to.len());
        if ring < of_shards {
            let Some(message) = self.rings[ring].pop(self.now_us) else { return Ok(()) };
            let (from, to) = (self.rings[ring].from, self.rings[ring].to);
            return self.handle(usize::from(to.0), Event::Message { from, message });
        }
        if ring < to_room {
            let Some(message) = self.to[ring - of_shards].pop(self.now_us) else { return Ok(()) };
            return self.deliver_to_room(message);
        }
        let ring = &mut self.from[ring - to_room];
        let Some(message) = ring.pop(self.now_us) else { return Ok(()) };
        let (from, to) = (ring.from, usize::from(ring.to.0));
        self.handle(to, Event::FromRoom { from, message })
    }

    fn deliver_to_room(&mut self, message: ToRoom) -> Result<(), String> {
        self.trace.line(self.now_us, || format!("to the room: {message:?}"));
        match (message, &mut self.room) {
            (ToRoom::Open { room, channel, .. }, None) => {
                let node = (self.shards.len() as u16, self.node, self.chance.number());
                let opened = KeptRoom::open(room, &channel, node, self.terms, &self.disk, &mut self.truth)?;
                if self.terms.is_exact && opened.runner.ticks_run() < self.seen {
                    let last = opened.runner.ticks_run();
                    return Err(format!("tick {} was received, but the room continues after tick {last}", self.seen));
                }
                if opened.runner.ticks_run() > 0 {
                    self.count("restored");
                }
                self.next_tick_us = self.now_us;
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

/// Options with a namespace whose rooms issue seat tokens.
pub(super) fn options() -> Options {
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
