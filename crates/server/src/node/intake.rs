//! Reads the input of connections.

use std::{net::TcpStream, os::fd::AsRawFd};

use dunlin_net::{
    Acceptor, Completion, ConnectionKey, ConnectionStage, HeadStage, HeadVerdict, Reactor, RefusalReason,
};

use super::{engine::Engine, shard_thread::ShardThread};

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
                Completion::Accepted { stream } => {
                    self.counters.accepted += 1;
                    if let Some(stream) = self.placement.place(stream) {
                        self.settle(stream);
                    }
                }
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

    /// Stops reading from a session.
    pub(super) fn pause(&mut self, session: ConnectionKey) {
        if let Some(stage) = self.connections.session_mut(session) {
            stage.paused = true;
            self.reactor.pause(session);
        }
    }

    /// Reads from a session again, after its unread bytes.
    pub(super) fn resume(&mut self, session: ConnectionKey) {
        if let Some(stage) = self.connections.session_mut(session) {
            stage.paused = false;
            if stage.unread.is_empty() && stage.mail.is_none() {
                self.reactor.resume(session);
            } else {
                self.resumed.push(session);
            }
        }
    }

    /// Must be called after the sockets were read.
    pub(super) fn meet_own_deadlines(&mut self) {
        let now_us = self.engine.now().mono_us;
        while let Some(connection) = self.deadlines.head.pop_due(now_us) {
            match self.connections.get_mut(connection) {
                Some(ConnectionStage::Head(_)) => self.refuse(connection, &RefusalReason::HeadTimeout.into()),
                // The deadline of the head has passed, but that of the body has not.
                Some(ConnectionStage::Body(stage)) if stage.due_us <= now_us => {
                    self.refuse(connection, &RefusalReason::BodyTimeout.into());
                }
                _ => {}
            }
        }
        while let Some(connection) = self.deadlines.linger.pop_due(now_us) {
            match self.connections.get_mut(connection) {
                Some(ConnectionStage::Lingering { .. }) => self.end(connection),
                Some(ConnectionStage::Session(session)) if session.finished => self.end(connection),
                _ => {}
            }
        }
        while let Some(connection) = self.deadlines.message.pop_due(now_us) {
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
            self.deadlines.message.set(self.engine.now().mono_us + age_max_us + 1_000, connection);
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
