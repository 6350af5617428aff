//! The threads of the node: passes events, performs effects, delivers messages and advances the clock.

use dunlin_engine::{
    Effect, Event, Options,
    host::RoutedMessage,
    options::{ClientOptions, NamespaceOptions, RoomLimits},
    room::{FromRoom, ToRoom},
};

use crate::{
    harness::{PromptWorld, RestTimes, ShardThread},
    ring::{RoomMessage, RoomRings},
    session::ClientSession,
};

use super::{KeptRoom, KeptWorld};

impl KeptWorld<'_> {
    /// Starts the node with empty memory.
    pub(super) fn start(&mut self, count: u16) {
        self.node.start(count, &mut self.harness.chance, self.prepare);
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
    pub(super) fn deliver(&mut self, ring: usize) -> Result<(), String> {
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
                let opened = KeptRoom::open(room, &channel, node, self.terms, &self.disk, &mut self.truth)?;
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

impl PromptWorld for KeptWorld<'_> {
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
