//! What comes in: completions of the reactor, messages of other shards, requests of the control thread, deadlines.

use std::sync::atomic::Ordering;

use dunlin_engine::{
    Effect, Effects, Event, Now, SessionKey, Shard, ShardIndex, api::ApiRequest, message::ShardMessage,
    room::RoomThreadIndex,
};
use dunlin_websocket::{Limits, Received};
use tokio::sync::mpsc::error::TryRecvError;

use super::{
    deadlines::Deadlines,
    drain::{Stages, Step},
    inbox::{Asker, ToShard},
    shard_thread::{Life, ShardThread},
};
use crate::net::{Completion, ConnectionKey, HeadStage, Reactor, RefusalReason, SessionStage, Stage};

/// Messages taken from one ring in one turn: about as many as one write takes frames.
const MESSAGES_PER_TURN: usize = 64;

/// Requests of the control thread taken in one turn.
const REQUESTS_PER_TURN: usize = 64;

impl<R: Reactor> ShardThread<R> {
    pub(super) fn take_completions(&mut self, intake: bool) {
        while let Some(completion) = self.reactor.next(intake && self.shard.takes_more()) {
            match completion {
                // What it was called for is looked for in every turn.
                Completion::Woken => {}
                Completion::Accepted { stream } => self.accept(stream),
                Completion::AcceptFailed { out_of_files: true } => self.counters.accepts_out_of_files += 1,
                Completion::AcceptFailed { out_of_files: false } => self.counters.accepts_failed += 1,
                Completion::Writable { connection } => {
                    if self.connections.session_mut(connection).is_some() {
                        self.effects.dirty.push(connection);
                    }
                }
                Completion::Ended { connection } => self.end(connection),
                Completion::Received { connection, bytes } => {
                    self.counters.read_bytes += bytes.len() as u64;
                    match self.connections.get_mut(connection) {
                        Some(Stage::Session(session)) => {
                            let limits = &self.shared.net.websocket_limits;
                            feed(&mut self.shard, session, connection, bytes, self.now, limits, &mut self.effects);
                            self.watch(connection);
                        }
                        Some(Stage::Head(HeadStage { buffer })) => {
                            let verdict = self.shared.door.judge(buffer, bytes);
                            self.carry_out(connection, verdict);
                        }
                        Some(Stage::Lingering { bytes_left }) => match bytes_left.checked_sub(bytes.len()) {
                            Some(fewer) => *bytes_left = fewer,
                            None => self.end(connection),
                        },
                        None => {}
                    }
                }
            }
        }
    }

    pub(super) fn take_messages(&mut self) {
        for place in 0..self.peers.len() {
            let from = ShardIndex(place as u16);
            for _ in 0..MESSAGES_PER_TURN {
                if !self.shard.takes_more() {
                    return;
                }
                let Some(notice) = self.peers.next_notice(place) else { break };
                let message = ShardMessage::Notice(notice);
                self.shard.handle(self.now, Event::Message { from, message }, &mut self.effects);
            }
            // What requests led to so far is still among the effects; it counts in the next turn.
            for _ in 0..if self.peers.may_take_requests() { MESSAGES_PER_TURN } else { 0 } {
                if !self.shard.takes_more() {
                    return;
                }
                let Some(request) = self.peers.next_request(place) else { break };
                let message = ShardMessage::Request(request);
                self.shard.handle(self.now, Event::Message { from, message }, &mut self.effects);
            }
        }
    }

    /// As many from each thread as from a shard, so that no room holds up the rest.
    pub(super) fn take_room_messages(&mut self) {
        for place in 0..self.room_links.len() {
            let from = RoomThreadIndex(place as u16);
            for _ in 0..if self.peers.may_take_requests() { MESSAGES_PER_TURN } else { 0 } {
                if !self.shard.takes_more() {
                    return;
                }
                let Some(message) = self.room_links.next(place) else { break };
                self.shard.handle(self.now, Event::FromRoom { from, message }, &mut self.effects);
            }
        }
    }

    pub(super) fn take_requests(&mut self) {
        for _ in 0..REQUESTS_PER_TURN {
            if self.tickets.is_full() || !self.shard.takes_more() {
                return;
            }
            let request = match self.inbox.try_recv() {
                Ok(request) => request,
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            };
            match request {
                ToShard::Api { request, reply } => self.ask_engine(Asker::Api(reply), request),
                ToShard::Report { reply } => self.ask_engine(Asker::Report(reply), ApiRequest::Survey),
                ToShard::Accepted { stream } => self.settle(stream),
                ToShard::Adopt { stream, encoding, read, headers } => self.adopt(stream, encoding, read, headers),
                ToShard::Drain { plan, gone } => {
                    let of_node = self.shared.sessions.load(Ordering::Relaxed);
                    let stages = Stages::begin(plan, self.sessions, of_node, self.now.mono_us);
                    self.life = Life::Draining { gone: Some(gone), stages: Some(stages) };
                    self.reactor.stop_listening();
                }
            }
        }
    }

    /// Tells the engine what others have found out for its sessions.
    pub(super) fn take_answers(&mut self) {
        for _ in 0..REQUESTS_PER_TURN {
            if !self.shard.takes_more() {
                return;
            }
            let Some(answered) = self.answers.next() else { return };
            self.shard.handle(self.now, answered.into(), &mut self.effects);
        }
    }

    fn ask_engine(&mut self, asker: Asker, request: ApiRequest) {
        let ticket = self.tickets.issue(asker);
        self.shard.handle(self.now, Event::Api { ticket, request }, &mut self.effects);
    }

    /// When the next deadline is. Those of connections count only with `intake`: nobody can be late whom nobody reads.
    pub(super) fn next_deadline_us(&self, intake: bool) -> Option<u64> {
        let own = [&self.head_deadlines, &self.linger_deadlines, &self.message_deadlines];
        let own = own.into_iter().filter_map(Deadlines::next_us).filter(|_| intake);
        let stages = match &self.life {
            Life::Draining { stages: Some(stages), .. } => Some(stages.next_us()),
            _ => None,
        };
        own.chain(self.shard.next_deadline_us()).chain(stages).min()
    }

    /// Closes those sessions whose turn it is, when the node is going.
    pub(super) fn drain_on(&mut self) {
        let Life::Draining { stages, .. } = &mut self.life else { return };
        match stages.as_mut().map(|stages| stages.step(self.now.mono_us)) {
            Some(Step::Some(sessions_max)) => {
                self.shard.handle(self.now, Event::DrainSome { sessions_max }, &mut self.effects);
            }
            Some(Step::All) => {
                *stages = None;
                self.shard.handle(self.now, Event::Drain, &mut self.effects);
            }
            Some(Step::Wait) | None => {}
        }
    }

    pub(super) fn meet_engine_deadlines(&mut self) {
        if self.shard.next_deadline_us().is_some_and(|due_us| due_us <= self.now.mono_us) {
            self.shard.handle(self.now, Event::Woke, &mut self.effects);
        }
    }

    /// To be called after the sockets were read.
    pub(super) fn meet_own_deadlines(&mut self) {
        let now_us = self.now.mono_us;
        while let Some(connection) = self.head_deadlines.pop_due(now_us) {
            if let Some(Stage::Head(_)) = self.connections.get_mut(connection) {
                self.refuse(connection, &RefusalReason::HeadTimeout.into());
            }
        }
        while let Some(connection) = self.linger_deadlines.pop_due(now_us) {
            if let Some(Stage::Lingering { .. }) = self.connections.get_mut(connection) {
                self.end(connection);
            }
        }
        while let Some(connection) = self.message_deadlines.pop_due(now_us) {
            self.check_message_age(connection);
        }
    }

    /// Receives what paused sessions had left when they were paused, each once a turn.
    pub(super) fn feed_resumed(&mut self) {
        for connection in std::mem::take(&mut self.resumed) {
            let Some(session) = self.connections.session_mut(connection) else { continue };
            if session.paused {
                continue;
            }
            let mut unread = std::mem::take(&mut session.unread);
            let limits = &self.shared.net.websocket_limits;
            feed(&mut self.shard, session, connection, &mut unread, self.now, limits, &mut self.effects);
            if !session.paused {
                self.reactor.resume(connection);
            }
            self.watch(connection);
        }
    }

    /// Sees to it that a message that has begun is finished in time.
    pub(super) fn watch(&mut self, connection: ConnectionKey) {
        let Some(session) = self.connections.session_mut(connection) else { return };
        if session.receiver.unfinished_since_ms().is_some() && !session.watched {
            session.watched = true;
            let age_max_us = self.shared.net.websocket_limits.unfinished_age_max_ms * 1_000;
            // The receiver counts in whole milliseconds, and "longer than" begins with the next.
            self.message_deadlines.set(self.now.mono_us + age_max_us + 1_000, connection);
        }
    }

    fn check_message_age(&mut self, connection: ConnectionKey) {
        let limits = &self.shared.net.websocket_limits;
        let Some(session) = self.connections.session_mut(connection) else { return };
        session.watched = false;
        // Whose rest is here already, but could not be looked at, is not late.
        let is_waiting_for_us = session.paused || !session.unread.is_empty() || self.reactor.has_unread(connection);
        if session.receiver.overdue(self.now.mono_ms(), limits) && !is_waiting_for_us {
            session.deaf = true;
            let error = dunlin_websocket::ReceiveError::MessageOverdue;
            self.shard.handle(self.now, violated(connection, error), &mut self.effects);
        } else {
            // Another message may have begun since; it is looked at again after the same time.
            self.watch(connection);
        }
    }
}

/// Tells the engine what a session said, until all bytes are used up or it has had enough; the rest is kept.
pub(super) fn feed(
    shard: &mut Shard,
    session: &mut SessionStage,
    key: SessionKey,
    mut bytes: &mut [u8],
    now: Now,
    limits: &Limits,
    effects: &mut Effects,
) {
    debug_assert!(session.unread.is_empty(), "what came first is received first");
    while !session.paused && !session.deaf {
        let performed = effects.list.len();
        let received = session.receiver.receive(now.mono_ms(), limits, &mut bytes);
        let event = match &received {
            Ok(None) => return,
            Ok(Some(Received::Message { payload, .. })) => Event::Received { session: key, frame: payload },
            Ok(Some(Received::Ping(payload))) => Event::Pinged { session: key, payload },
            // Compression is agreed on with nobody, so nothing comes compressed.
            Ok(Some(Received::Pong(_) | Received::Compressed { .. })) => continue,
            Ok(Some(Received::Close { code, .. })) => Event::CloseReceived { session: key, code: *code },
            Err(error) => {
                session.deaf = true;
                violated(key, *error)
            }
        };
        shard.handle(now, event, effects);
        let mut new = effects.list.iter().skip(performed);
        session.paused = new.any(|effect| matches!(effect, Effect::Pause { session } if *session == key));
    }
    if session.paused {
        session.unread = Box::from(&*bytes);
    }
}

fn violated(session: SessionKey, error: dunlin_websocket::ReceiveError) -> Event<'static> {
    Event::Violated { session, code: error.close_code(), what: error.reason() }
}
