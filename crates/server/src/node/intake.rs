//! Reads the input of a turn: completions of the reactor, messages of other shards, requests of the control thread,
//! deadlines.

use std::{net::TcpStream, os::fd::AsRawFd, sync::atomic::Ordering};

use dunlin_engine::{Event, ShardIndex, api::ApiRequest, message::ShardMessage, room::RoomThreadIndex};
use dunlin_net::{
    Acceptor, Completion, ConnectionKey, ConnectionStage, HeadStage, HeadVerdict, Reactor, RefusalReason,
};
use tokio::sync::mpsc::error::TryRecvError;

use super::{
    deadlines::Deadlines,
    drain::{Stages, Step},
    engine::Engine,
    inbox::{Asker, ToShard},
    shard_thread::{Life, ShardThread},
};

/// Maximum number of messages read from one ring per turn: about the number of frames that one write sends.
const MESSAGES_PER_TURN: usize = 64;

/// Requests of the control thread processed per turn.
const REQUESTS_PER_TURN: usize = 64;

fn is_below(stream: &TcpStream, descriptor: u32) -> bool {
    u32::try_from(stream.as_raw_fd()).is_ok_and(|found| found < descriptor)
}

impl<R: Reactor> ShardThread<R> {
    pub(super) fn take_completions(&mut self, intake: bool) {
        while let Some(completion) = self.reactor.next(intake && self.engine.takes_more()) {
            match completion {
                // Every turn checks all sources, so no other action is necessary.
                Completion::Woken => {}
                Completion::Accepted { stream } if !is_below(&stream, self.shared.net.descriptors_below) => {
                    self.counters.accepts_reserved += 1;
                }
                Completion::Accepted { stream } => self.accept(stream),
                Completion::AcceptFailed { out_of_files: true } => self.counters.accepts_out_of_files += 1,
                Completion::AcceptFailed { out_of_files: false } => self.counters.accepts_failed += 1,
                Completion::Writable { connection } => {
                    if self.connections.session_mut(connection).is_some() || self.has_secure_waiting(connection) {
                        self.engine.mark_dirty(connection);
                    }
                }
                Completion::Ended { connection } => self.end(connection),
                Completion::Received { connection, bytes } => {
                    self.counters.read_bytes += bytes.len() as u64;
                    if let Some(secure) = &mut self.secure {
                        let decrypted = secure.decrypt(connection, bytes);
                        self.take_decrypted(connection, decrypted);
                    } else {
                        let Some(stage) = self.connections.get_mut(connection) else { continue };
                        let outcome = on_bytes(stage, &mut self.engine, &self.shared.acceptor, connection, bytes);
                        self.follow(connection, outcome);
                    }
                }
            }
        }
    }

    /// Processes bytes of a connection.
    pub(super) fn on_bytes(&mut self, connection: ConnectionKey, bytes: &mut [u8]) {
        let Some(stage) = self.connections.get_mut(connection) else { return };
        let outcome = on_bytes(stage, &mut self.engine, &self.shared.acceptor, connection, bytes);
        self.follow(connection, outcome);
    }

    fn follow(&mut self, connection: ConnectionKey, outcome: IntakeOutcome) {
        match outcome {
            IntakeOutcome::Nothing => {}
            IntakeOutcome::Session => self.watch(connection),
            IntakeOutcome::Head(verdict) => self.carry_out(connection, verdict),
            IntakeOutcome::Body(pushed) => self.body_came(connection, pushed),
            IntakeOutcome::TooMuch => self.end(connection),
        }
    }

    pub(super) fn take_messages(&mut self) {
        for place in 0..self.peers.len() {
            let from = ShardIndex(place as u16);
            for _ in 0..MESSAGES_PER_TURN {
                if !self.engine.takes_more() {
                    return;
                }
                let Some(notice) = self.peers.next_notice(place) else { break };
                let message = ShardMessage::Notice(notice);
                self.engine.handle(Event::Message { from, message });
            }
            // The messages caused by requests are still in the effects; they count in the next turn.
            for _ in 0..if self.peers.may_take_requests() { MESSAGES_PER_TURN } else { 0 } {
                if !self.engine.takes_more() {
                    return;
                }
                let Some(request) = self.peers.next_request(place) else { break };
                let message = ShardMessage::Request(request);
                self.engine.handle(Event::Message { from, message });
            }
        }
    }

    /// Reads the same number of messages from each room thread, so that no room delays the others.
    pub(super) fn take_room_messages(&mut self) {
        for place in 0..self.room_links.len() {
            let from = RoomThreadIndex(place as u16);
            for _ in 0..if self.peers.may_take_requests() { MESSAGES_PER_TURN } else { 0 } {
                if !self.engine.takes_more() {
                    return;
                }
                let Some(message) = self.room_links.next(place) else { break };
                self.engine.handle(Event::FromRoom { from, message });
            }
        }
    }

    pub(super) fn take_requests(&mut self) {
        for _ in 0..REQUESTS_PER_TURN {
            if self.tickets.is_full() || !self.engine.takes_more() {
                return;
            }
            let request = match self.inbox.try_recv() {
                Ok(request) => request,
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            };
            match request {
                ToShard::Api { request, reply } => self.ask_engine(Asker::Api(reply), request),
                ToShard::Accepted { stream } => self.settle(stream),
                ToShard::Adopt { stream, adoption } => self.adopt(stream, *adoption),
                ToShard::Emulate { secret, commands, reply } => {
                    let emulated = self.emulate(&secret, commands);
                    // An error means that the requester has stopped waiting.
                    let _ = reply.send(emulated);
                }
                ToShard::Reconfigure { options, done } => {
                    self.engine.handle(Event::Reconfigured { options });
                    // An error means that the requester has stopped waiting. It asks the shard again.
                    let _ = done.send(());
                }
                ToShard::Drain { plan, gone } => {
                    let of_node = self.shared.sessions.load(Ordering::Relaxed);
                    let stages = Stages::begin(plan, self.sessions, of_node, self.engine.now().mono_us);
                    self.life = Life::Draining { gone: Some(gone), stages: Some(stages) };
                    self.reactor.stop_listening();
                }
            }
        }
    }

    /// Sends reports even while an overflow waits, because a report causes no message.
    pub(super) fn take_report_requests(&mut self) {
        while let Ok(reply) = self.report_requests.try_recv() {
            self.ask_engine(Asker::Report(reply), ApiRequest::Survey);
        }
    }

    /// Passes events from other threads to the engine.
    pub(super) fn take_events(&mut self) {
        for _ in 0..REQUESTS_PER_TURN {
            if !self.engine.takes_more() {
                return;
            }
            let Some(event) = self.events.next() else { return };
            self.engine.handle(event);
        }
    }

    fn ask_engine(&mut self, asker: Asker, request: ApiRequest) {
        let ticket = self.tickets.issue(asker);
        self.engine.handle(Event::Api { ticket, request });
    }

    /// The next deadline. Deadlines of connections count only with `intake`, because without it nothing is read.
    pub(super) fn next_deadline_us(&self, intake: bool) -> Option<u64> {
        let own = [&self.head_deadlines, &self.linger_deadlines, &self.message_deadlines];
        let own = own.into_iter().filter_map(Deadlines::next_us).filter(|_| intake);
        let stages = match &self.life {
            Life::Draining { stages: Some(stages), .. } => Some(stages.next_us()),
            _ => None,
        };
        own.chain(self.engine.next_deadline_us()).chain(stages).min()
    }

    /// Closes the sessions of the current step during a drain.
    pub(super) fn drain_on(&mut self) {
        let Life::Draining { stages, .. } = &mut self.life else { return };
        match stages.as_mut().map(|stages| stages.step(self.engine.now().mono_us)) {
            Some(Step::Some(sessions_max)) => {
                self.engine.handle(Event::DrainSome { sessions_max });
            }
            Some(Step::All) => {
                *stages = None;
                self.engine.handle(Event::Drain);
            }
            Some(Step::Wait) | None => {}
        }
    }

    /// Must be called after the sockets were read.
    pub(super) fn meet_own_deadlines(&mut self) {
        let now_us = self.engine.now().mono_us;
        while let Some(connection) = self.head_deadlines.pop_due(now_us) {
            match self.connections.get_mut(connection) {
                Some(ConnectionStage::Head(_)) => self.refuse(connection, &RefusalReason::HeadTimeout.into()),
                // The deadline of the head has passed, but that of the body has not.
                Some(ConnectionStage::Body(stage)) if stage.due_us <= now_us => {
                    self.refuse(connection, &RefusalReason::BodyTimeout.into());
                }
                _ => {}
            }
        }
        while let Some(connection) = self.linger_deadlines.pop_due(now_us) {
            match self.connections.get_mut(connection) {
                Some(ConnectionStage::Lingering { .. }) => self.end(connection),
                Some(ConnectionStage::Session(session)) if session.finished => self.end(connection),
                _ => {}
            }
        }
        while let Some(connection) = self.message_deadlines.pop_due(now_us) {
            self.check_message_age(connection);
        }
    }

    /// Processes the unread bytes of resumed sessions, once per turn each.
    pub(super) fn feed_resumed(&mut self) {
        for connection in std::mem::take(&mut self.resumed) {
            let Some(session) = self.connections.session_mut(connection) else { continue };
            if session.paused {
                continue;
            }
            self.engine.feed_unread(session, connection);
            if !session.paused {
                self.reactor.resume(connection);
            }
            self.watch(connection);
        }
    }

    /// Sets a deadline for an incomplete message.
    pub(super) fn watch(&mut self, connection: ConnectionKey) {
        let Some(session) = self.connections.session_mut(connection) else { return };
        if session.receiver.unfinished_since_ms().is_some() && !session.watched {
            session.watched = true;
            let age_max_us = self.shared.net.limits(session.wire).unfinished_age_max_ms * 1_000;
            // The receiver counts whole milliseconds, so "longer than" begins with the next one.
            self.message_deadlines.set(self.engine.now().mono_us + age_max_us + 1_000, connection);
        }
    }

    fn check_message_age(&mut self, connection: ConnectionKey) {
        let Some(session) = self.connections.session_mut(connection) else { return };
        let limits = self.shared.net.limits(session.wire);
        session.watched = false;
        // A message whose rest has arrived but was not processed is not late.
        let is_waiting_for_us = session.paused || !session.unread.is_empty() || self.reactor.has_unread(connection);
        if session.receiver.overdue(self.engine.now().mono_ms(), limits) && !is_waiting_for_us {
            session.deaf = true;
            let error = dunlin_websocket::ReceiveError::MessageOverdue;
            self.engine.violated(connection, error);
        } else {
            // A different message may have begun since; check again after the same time.
            self.watch(connection);
        }
    }
}

/// Input that needs more than the connection's own state to be processed.
enum IntakeOutcome {
    Nothing,
    Session,
    Head(HeadVerdict),
    Body(Result<(), RefusalReason>),
    TooMuch,
}

fn on_bytes(
    stage: &mut ConnectionStage,
    engine: &mut Engine,
    acceptor: &Acceptor,
    connection: ConnectionKey,
    bytes: &mut [u8],
) -> IntakeOutcome {
    match stage {
        ConnectionStage::Session(session) => {
            if !session.take_ignored_bytes(bytes.len()) {
                return IntakeOutcome::TooMuch;
            }
            // An HTTP client sends no commands after its request.
            if !session.wire.is_websocket() {
                return IntakeOutcome::Nothing;
            }
            engine.feed(session, connection, bytes);
            IntakeOutcome::Session
        }
        ConnectionStage::Body(stage) => IntakeOutcome::Body(stage.body.push(bytes)),
        ConnectionStage::Head(HeadStage { buffer }) => IntakeOutcome::Head(acceptor.judge(buffer, bytes)),
        ConnectionStage::Lingering { bytes_left } => match bytes_left.checked_sub(bytes.len()) {
            Some(fewer) => {
                *bytes_left = fewer;
                IntakeOutcome::Nothing
            }
            None => IntakeOutcome::TooMuch,
        },
    }
}
