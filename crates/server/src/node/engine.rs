//! The engine's shard, with the effects of the current turn, and what decodes the input of sessions.

use std::sync::Arc;

use dunlin_engine::{
    Effect, Effects, Event, Now, Options, Seed, SessionKey, Shard, ShardIdentity, ShardIndex, Wire, counters::Counters,
    event::RecoveryReport, lifecycle::LifecycleEvent,
};
use dunlin_net::{SessionStage, Unread};
use dunlin_websocket::{ReceiveError, Received, deflate::Inflater};

use super::shard_thread::Shared;
use crate::telemetry::session_events;

/// The engine's shard. The thread passes it events, and performs the effects that it takes from here.
pub(super) struct Engine {
    shard: Shard,
    effects: Effects,
    /// Read after the wait and at the end of the turn.
    now: Now,
    /// Decompresses messages of clients.
    inflater: Inflater,
    shared: Arc<Shared>,
    /// The empty list of [`Engine::take_effects`]; reused to keep its capacity.
    performed: Vec<Effect>,
    /// Sessions whose waiting commands can be executed now.
    recalled: Vec<SessionKey>,
}

impl Engine {
    pub(super) fn new(shared: Arc<Shared>, identity: ShardIdentity, options: Arc<Options>, seed: Seed) -> Self {
        Self {
            shard: Shard::new(identity, options, seed),
            effects: Effects::default(),
            now: shared.clock.now(),
            inflater: Inflater::default(),
            shared,
            performed: Vec::new(),
            recalled: Vec::new(),
        }
    }

    pub(super) const fn now(&self) -> Now {
        self.now
    }

    /// Reads the clocks.
    pub(super) fn read_clock(&mut self) {
        self.now = self.shared.clock.now();
    }

    #[inline]
    pub(super) fn handle(&mut self, event: Event<'_>) {
        self.shard.handle(self.now, event, &mut self.effects);
    }

    /// Adds an effect that is performed after those of the engine.
    pub(super) fn defer(&mut self, effect: Effect) {
        self.effects.list.push(effect);
    }

    /// The effects that were not performed yet; `None` if there are none. [`Engine::performed`] takes the list back.
    pub(super) fn take_effects(&mut self) -> Option<Vec<Effect>> {
        if self.effects.list.is_empty() {
            return None;
        }
        let empty = std::mem::take(&mut self.performed);
        Some(std::mem::replace(&mut self.effects.list, empty))
    }

    /// Keeps the capacity of a list whose effects were performed.
    pub(super) fn performed(&mut self, list: Vec<Effect>) {
        debug_assert!(list.is_empty(), "its effects would be lost");
        self.performed = list;
    }

    pub(super) fn log_records(&mut self, index: ShardIndex) {
        for record in self.effects.records.drain(..) {
            session_events::log_record(index, &record);
        }
    }

    /// Takes the events for the application's backend.
    pub(super) fn take_lifecycle(&mut self) -> impl Iterator<Item = LifecycleEvent> {
        self.effects.lifecycle.drain(..)
    }

    /// Takes the recoveries that were answered.
    pub(super) fn take_recoveries(&mut self) -> impl Iterator<Item = RecoveryReport> {
        self.effects.recoveries.drain(..)
    }

    /// Lists a session that has something to write.
    pub(super) fn mark_dirty(&mut self, session: SessionKey) {
        self.effects.dirty.push(session);
    }

    /// Exchanges the list of dirty sessions for an empty one.
    pub(super) fn swap_dirty(&mut self, empty: &mut Vec<SessionKey>) {
        debug_assert!(empty.is_empty(), "these sessions would be written in the next turn");
        std::mem::swap(&mut self.effects.dirty, empty);
    }

    /// Whether there is something to perform or to write.
    pub(super) fn has_effects(&self) -> bool {
        !self.effects.dirty.is_empty() || !self.effects.list.is_empty()
    }

    #[inline]
    pub(super) fn outgoing(&mut self, session: SessionKey) -> impl Iterator<Item = &[u8]> {
        self.shard.outgoing(session)
    }

    pub(super) fn has_outgoing(&self, session: SessionKey) -> bool {
        self.shard.has_outgoing(session)
    }

    pub(super) fn takes_more(&self) -> bool {
        self.shard.takes_more()
    }

    pub(super) fn can_open(&self, wire: Wire, request: &[u8]) -> bool {
        self.shard.can_open(wire, request)
    }

    pub(super) fn find_session(&self, secret: &str) -> Option<SessionKey> {
        self.shard.find_session(secret)
    }

    pub(super) fn counters(&self) -> &Counters {
        self.shard.counters()
    }

    pub(super) fn next_deadline_us(&self) -> Option<u64> {
        self.shard.next_deadline_us()
    }

    pub(super) fn meet_deadlines(&mut self) {
        if self.shard.next_deadline_us().is_some_and(|due_us| due_us <= self.now.mono_us) {
            self.handle(Event::Woke);
        }
    }

    /// Executes the waiting commands of a session in the next turn that takes input.
    pub(super) fn recall_later(&mut self, session: SessionKey) {
        self.recalled.push(session);
    }

    pub(super) fn has_recalled(&self) -> bool {
        !self.recalled.is_empty()
    }

    /// Executes commands that waited for earlier replies.
    pub(super) fn recall(&mut self) {
        for session in std::mem::take(&mut self.recalled) {
            self.handle(Event::Recalled { session });
        }
    }

    /// Processes bytes read from a session until they are used up or the engine pauses the session. The rest is stored.
    pub(super) fn feed(&mut self, session: &mut SessionStage, key: SessionKey, bytes: &mut [u8]) {
        debug_assert!(session.unread.is_empty(), "what came first is received first");
        let left = self.receive(session, key, bytes);
        if left > 0 {
            session.unread = Unread::new(bytes.get(bytes.len() - left..).unwrap_or_default());
        }
    }

    /// Processes the stored bytes and queued commands of a resumed session until the engine pauses it again.
    pub(super) fn feed_unread(&mut self, session: &mut SessionStage, key: SessionKey) {
        let mut unread = std::mem::take(&mut session.unread);
        let left = self.receive(session, key, unread.rest_mut());
        unread.keep_last(left);
        session.unread = unread;
        self.feed_mail(session, key);
    }

    /// Processes one message of a session that is not paused.
    pub(super) fn feed_message(&mut self, session: &mut SessionStage, key: SessionKey, frame: &[u8]) {
        let event = Event::Received { session: key, frame };
        session.paused = pass_event(&mut self.shard, self.now, key, event, &mut self.effects);
    }

    /// Ends a session that violated the protocol of its transport.
    pub(super) fn violated(&mut self, session: SessionKey, error: ReceiveError) {
        self.handle(violation(session, error));
    }

    /// Processes bytes of a session until they are used up or the engine pauses the session. Returns the number of
    /// remaining bytes.
    fn receive(&mut self, session: &mut SessionStage, key: SessionKey, mut bytes: &mut [u8]) -> usize {
        let limits = self.shared.net.limits(session.wire);
        while !session.paused && !session.deaf {
            let received = session.receiver.receive(self.now.mono_ms(), limits, &mut bytes);
            let event = match &received {
                Ok(None) => return 0,
                Ok(Some(Received::Message { payload, .. })) => Event::Received { session: key, frame: payload },
                Ok(Some(Received::Compressed { kind, payload })) => {
                    match self.inflater.inflate(*kind, payload, limits) {
                        Ok(frame) => Event::Received { session: key, frame },
                        Err(error) => {
                            session.deaf = true;
                            violation(key, error)
                        }
                    }
                }
                Ok(Some(Received::Ping(payload))) => Event::Pinged { session: key, payload },
                Ok(Some(Received::Pong(_))) => continue,
                Ok(Some(Received::Close { code, .. })) => Event::CloseReceived { session: key, code: *code },
                Err(error) => {
                    session.deaf = true;
                    violation(key, *error)
                }
            };
            session.paused = pass_event(&mut self.shard, self.now, key, event, &mut self.effects);
        }
        // Input of a deaf session is dropped when it is read.
        if session.paused && !session.deaf { bytes.len() } else { 0 }
    }

    /// Processes queued commands from separate HTTP requests until the engine pauses the session.
    fn feed_mail(&mut self, session: &mut SessionStage, key: SessionKey) {
        let Some(mut mail) = session.mail.take() else { return };
        while !session.paused
            && let Some(commands) = mail.pop_front()
        {
            self.feed_message(session, key, &commands);
        }
        session.mail = Some(mail).filter(|mail| !mail.is_empty());
    }
}

/// Passes an event to the engine. Returns whether the session is paused afterwards.
fn pass_event(shard: &mut Shard, now: Now, key: SessionKey, event: Event<'_>, effects: &mut Effects) -> bool {
    let performed = effects.list.len();
    shard.handle(now, event, effects);
    effects.list.iter().skip(performed).any(|effect| matches!(effect, Effect::Pause { session } if *session == key))
}

fn violation(session: SessionKey, error: ReceiveError) -> Event<'static> {
    Event::Violated { session, code: error.close_code(), what: error.reason() }
}
