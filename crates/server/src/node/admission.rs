//! How a connection becomes a session, somebody else's, or nothing; and how it ends.

mod admitted;
mod entrants;
mod gate;
mod sources;

use std::net::TcpStream;

use dunlin_engine::{Event, Wire};
use tokio::sync::mpsc::error::TrySendError;

pub use admitted::Admitted;
pub use gate::AdmissionOptions;

pub(super) use entrants::Entrants;
pub(super) use gate::Gate;

use crate::backend::PickedHeaders;

use super::{
    Adoption, HandOver,
    inbox::ToShard,
    intake::Feeder,
    shard_thread::{Life, ShardThread},
};
use crate::net::{
    BodyStage, ConnectionKey, HeadBuffer, HeadStage, Reactor, RefusalReason, Refused, Released, SendOutcome,
    SessionStage, Stage, Verdict,
};

/// Bytes that a refused client may still send before it is cut off.
const LINGER_BYTES_MAX: usize = 256 * 1024;

impl<R: Reactor> ShardThread<R> {
    pub(super) fn accept(&mut self, stream: TcpStream) {
        self.counters.accepted += 1;
        let there = self.shared.loads.place(self.index.0);
        if there == self.index.0 {
            return self.settle(stream);
        }
        // Without waiting: a shard whose inbox is full is not the one to wait for.
        let door = &self.doors[usize::from(there)];
        match door.inbox.try_send(ToShard::Accepted { stream }) {
            Ok(()) => {
                self.counters.placed += 1;
                self.counters.wakes += u64::from(door.doorbell.ring());
            }
            Err(TrySendError::Full(message) | TrySendError::Closed(message)) => {
                self.shared.loads.leave(there);
                self.shared.loads.enter(self.index.0);
                let ToShard::Accepted { stream } = message else { unreachable!("it is what was sent") };
                self.settle(stream);
            }
        }
    }

    /// Takes up a socket that is placed here.
    pub(super) fn settle(&mut self, stream: TcpStream) {
        let peer = self.shared.gate.knows_sources().then(|| stream.peer_addr().ok().map(|peer| peer.ip()));
        let connection = self.connections.insert(Stage::Head(HeadStage::default()));
        if self.reactor.open(connection, stream).is_err() {
            self.counters.accepts_failed += 1;
            self.forget(connection);
            return;
        }
        if let Some(peer) = peer {
            self.entrants.came_from(connection, peer);
        }
        if self.secure.as_mut().is_some_and(|secure| !secure.open(connection)) {
            self.counters.tls_failures += 1;
            return self.end(connection);
        }
        self.head_deadlines.set(self.now.mono_us + self.shared.net.head_timeout_ms * 1_000, connection);
    }

    pub(super) fn adopt(&mut self, stream: TcpStream, adoption: Adoption) {
        let Adoption { wire, inflates, response, request, mut read, headers, tls, admitted } = adoption;
        let connection = self.connections.insert(Stage::Session(SessionStage::new(wire, inflates)));
        if !matches!(self.life, Life::Open) {
            // The client may have its 101 already; all that is left is to hang up.
            self.counters.refused[RefusalReason::Draining.index()] += 1;
            self.forget(connection);
            return;
        }
        if self.reactor.open(connection, stream).is_err() {
            self.counters.accepts_failed += 1;
            self.forget(connection);
            return;
        }
        if self.shared.gate.knows_sources() {
            self.entrants.was_found(connection, admitted.source());
        }
        admitted.take_over();
        self.counters.adopted += 1;
        if let (Some(secure), Some(tls)) = (&mut self.secure, tls) {
            secure.insert(connection, tls);
            // Something may have been left over from what was said before.
            self.effects.dirty.push(connection);
        }
        self.keep_headers(connection, headers);
        let is_told = response.is_empty() || self.send_now(connection, &response);
        self.open_session(connection, wire, request.as_deref(), &mut read);
        if !is_told {
            self.end(connection);
        }
    }

    /// Does what was found to be right with a connection's first request.
    pub(super) fn carry_out(&mut self, connection: ConnectionKey, verdict: Verdict) {
        if !matches!(verdict, Verdict::Unfinished)
            && let Some(Stage::Head(HeadStage { buffer })) = self.connections.get_mut(connection)
        {
            self.entrants.find_source(connection, self.shared.gate.proxies(), buffer.bytes());
        }
        match verdict {
            Verdict::Unfinished => {}
            Verdict::Refused(refused) => self.refuse(connection, &refused),
            Verdict::HandOver => self.hand_over(connection),
            Verdict::WebSocket { wire, inflates, response, connect, head_len, headers } => match self.admit(connection)
            {
                Ok(()) => {
                    self.keep_headers(connection, headers);
                    let mut behind_head = self.become_session(connection, SessionStage::new(wire, inflates), head_len);
                    self.counters.upgraded += 1;
                    self.begin_session(connection, wire, &response, connect.as_deref(), &mut behind_head);
                }
                Err(reason) => {
                    let refused = Refused::later(reason, self.shared.gate.retry_after_s());
                    self.refuse(connection, &refused);
                }
            },
            Verdict::Stream { wire, response, body, head_len, headers } => {
                let Some(stage) = self.connections.get_mut(connection) else { return };
                let Stage::Head(HeadStage { buffer }) = stage else { return };
                let behind_head = std::mem::take(buffer).into_bytes().split_off(head_len);
                let due_us = self.now.mono_us + self.shared.net.head_timeout_ms * 1_000;
                let mut body = body;
                let pushed = body.push(&behind_head);
                *stage = Stage::Body(Box::new(BodyStage { wire, response, body, headers, due_us }));
                self.head_deadlines.set(due_us, connection);
                self.body_came(connection, pushed);
            }
        }
    }

    /// More of a request's body came, or what is none; with the last of it the connection becomes a session.
    pub(super) fn body_came(&mut self, connection: ConnectionKey, pushed: Result<(), RefusalReason>) {
        if let Err(reason) = pushed {
            return self.refuse(connection, &reason.into());
        }
        let Some(Stage::Body(stage)) = self.connections.get_mut(connection) else { return };
        if !stage.body.is_whole() {
            return;
        }
        let wire = stage.wire;
        if let Err(reason) = self.admit(connection) {
            let refused = Refused::later(reason, self.shared.gate.retry_after_s());
            return self.refuse(connection, &refused);
        }
        let Some(stage) = self.connections.get_mut(connection) else { return };
        let Stage::Body(request) = std::mem::replace(stage, Stage::Session(SessionStage::new(wire, false))) else {
            unreachable!("it was one just now")
        };
        let BodyStage { response, body, headers, .. } = *request;
        self.keep_headers(connection, headers);
        self.counters.upgraded += 1;
        self.begin_session(connection, wire, &response, Some(&body.into_bytes()), &mut []);
    }

    /// Lets a connection become a session, and counts it, or says why it may not. Before anything is done about the
    /// handshake.
    fn admit(&mut self, connection: ConnectionKey) -> Result<(), RefusalReason> {
        if !matches!(self.life, Life::Open) {
            return Err(RefusalReason::Draining);
        }
        if !self.shared.admit_session() {
            return Err(RefusalReason::SessionLimit);
        }
        let admitted = self.shared.gate.admit(self.entrants.source(connection), self.now.mono_us);
        admitted.inspect_err(|_| self.shared.dismiss_session())
    }

    /// Takes back what [`Self::admit`] counted.
    fn dismiss(&mut self, connection: ConnectionKey) {
        self.shared.dismiss_session();
        self.shared.gate.dismiss(self.entrants.source(connection), self.now.mono_us);
    }

    /// Takes a connection out of the table. What is known of where it came from stays until another has its place.
    fn forget(&mut self, connection: ConnectionKey) -> Option<Stage> {
        let stage = self.connections.remove(connection)?;
        self.shared.loads.leave(self.index.0);
        Some(stage)
    }

    /// Makes a connection whose head was judged a session; returns what came behind the head.
    fn become_session(&mut self, connection: ConnectionKey, session: SessionStage, head_len: usize) -> Vec<u8> {
        let stage = self.connections.get_mut(connection);
        match stage.map(|stage| std::mem::replace(stage, Stage::Session(session))) {
            Some(Stage::Head(HeadStage { buffer })) => buffer.into_bytes().split_off(head_len),
            _ => unreachable!("only a head is judged"),
        }
    }

    fn begin_session(
        &mut self,
        connection: ConnectionKey,
        wire: Wire,
        response: &[u8],
        request: Option<&[u8]>,
        read: &mut [u8],
    ) {
        // The first bytes on a fresh socket: if it does not take them whole, it takes nothing.
        let is_told = self.send_now(connection, response);
        self.open_session(connection, wire, request, read);
        if !is_told {
            self.end(connection);
        }
    }

    fn keep_headers(&mut self, connection: ConnectionKey, headers: Option<PickedHeaders>) {
        if let Some(headers) = headers {
            self.picked_headers.insert(connection.index, headers);
        }
    }

    fn open_session(&mut self, connection: ConnectionKey, wire: Wire, request: Option<&[u8]>, read: &mut [u8]) {
        self.sessions += 1;
        self.counters.opened[wire.index()] += 1;
        self.shard.handle(self.now, Event::Opened { session: connection, wire }, &mut self.effects);
        let Some(session) = self.connections.session_mut(connection) else { return };
        let Self { shard, inflater, shared, effects, now, .. } = self;
        let mut feeder = Feeder { shard, inflater, net: &shared.net, now: *now, effects };
        if let Some(request) = request {
            feeder.feed_message(session, connection, request);
        }
        feeder.feed(session, connection, read);
        self.watch(connection);
    }

    fn hand_over(&mut self, connection: ConnectionKey) {
        let Ok(place) = self.shared.hand_over.clone().try_reserve_owned() else {
            return self.refuse(connection, &RefusalReason::ControlBusy.into());
        };
        let Some(Stage::Head(HeadStage { buffer })) = self.forget(connection) else { return };
        let Some(Released { stream, mut read }) = self.reactor.release(connection) else { return };
        let mut tls = self.secure.as_mut().and_then(|secure| secure.remove(connection));
        match stream.peer_addr() {
            Ok(peer) => {
                self.counters.handed_over += 1;
                let mut head = buffer.into_bytes();
                match &mut tls {
                    // What went wrong with it shows when more is read.
                    Some(tls) => drop(tls.decrypt(&mut read, &mut head)),
                    None => head.extend_from_slice(&read),
                }
                place.send(HandOver { stream, peer, head, tls });
            }
            // It has gone while its request was read.
            Err(_) => self.counters.abandoned += 1,
        }
    }

    /// Answers, and waits for the client to hang up.
    pub(super) fn refuse(&mut self, connection: ConnectionKey, refused: &Refused) {
        self.counters.refused[refused.reason.index()] += 1;
        let is_told = self.send_now(connection, &refused.response);
        self.finish_sending(connection);
        let Some(stage) = self.connections.get_mut(connection) else { return };
        *stage = Stage::Lingering { bytes_left: LINGER_BYTES_MAX };
        if is_told {
            self.linger_deadlines.set(self.now.mono_us + self.shared.net.linger_timeout_ms * 1_000, connection);
        } else {
            self.end(connection);
        }
    }

    fn send_now(&mut self, connection: ConnectionKey, bytes: &[u8]) -> bool {
        if self.send_secure(connection, bytes) {
            return true;
        }
        // SAFETY: the result is asked for at once.
        unsafe { self.reactor.send(connection, std::iter::once(bytes)) };
        let is_told = self.reactor.sent().is_some_and(|sent| sent.outcome == SendOutcome::All);
        let next = self.reactor.sent();
        debug_assert!(next.is_none(), "nobody else's batch is open");
        is_told
    }

    /// Drops a connection, in whatever stage it is.
    pub(super) fn end(&mut self, connection: ConnectionKey) {
        let Some(stage) = self.forget(connection) else { return };
        self.reactor.close(connection);
        if let Some(secure) = &mut self.secure {
            drop(secure.remove(connection));
        }
        match stage {
            Stage::Head(HeadStage { buffer }) => self.counters.abandoned += u64::from(was_begun(&buffer)),
            Stage::Body(_) => self.counters.abandoned += 1,
            Stage::Lingering { .. } => {}
            Stage::Session(_) => {
                self.sessions -= 1;
                self.picked_headers.remove(&connection.index);
                self.dismiss(connection);
                self.shard.handle(self.now, Event::Gone { session: connection }, &mut self.effects);
            }
        }
    }
}

fn was_begun(buffer: &HeadBuffer) -> bool {
    !buffer.bytes().is_empty()
}
