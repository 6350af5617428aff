//! How a connection becomes a session, somebody else's, or nothing; and how it ends.

mod entrants;
mod gate;
mod sources;

use std::net::TcpStream;

use dunlin_engine::Event;
use dunlin_protocol::Encoding;
use tokio::sync::mpsc::error::TrySendError;

pub use gate::AdmissionOptions;

pub(super) use entrants::Entrants;
pub(super) use gate::Gate;

use crate::backend::PickedHeaders;

use super::{
    HandOver,
    inbox::ToShard,
    intake::feed,
    shard_thread::{Life, ShardThread},
};
use crate::net::{
    ConnectionKey, HeadBuffer, HeadStage, Reactor, RefusalReason, Refused, Released, SendOutcome, SessionStage, Stage,
    Verdict,
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
        self.head_deadlines.set(self.now.mono_us + self.shared.net.head_timeout_ms * 1_000, connection);
    }

    pub(super) fn adopt(
        &mut self,
        stream: TcpStream,
        encoding: Encoding,
        mut read: Vec<u8>,
        headers: Option<PickedHeaders>,
    ) {
        let peer = self.shared.gate.knows_sources().then(|| stream.peer_addr().ok().map(|peer| peer.ip()));
        let connection = self.connections.insert(Stage::Session(SessionStage::default()));
        if let Some(peer) = peer {
            self.entrants.came_from(connection, peer);
            self.entrants.find_source(connection, self.shared.gate.proxies(), &[]);
        }
        if let Err(reason) = self.admit(connection) {
            // The client has its 101 already; all that is left is to hang up.
            self.counters.refused[reason.index()] += 1;
            self.forget(connection);
            return;
        }
        if self.reactor.open(connection, stream).is_err() {
            self.counters.accepts_failed += 1;
            self.forget(connection);
            self.dismiss(connection);
            return;
        }
        self.counters.adopted += 1;
        self.keep_headers(connection, headers);
        self.open_session(connection, encoding, &mut read);
    }

    /// Does what was found to be right with a connection's first request.
    pub(super) fn carry_out(&mut self, connection: ConnectionKey, verdict: Verdict) {
        if let Some(Stage::Head(HeadStage { buffer })) = self.connections.get_mut(connection) {
            self.entrants.find_source(connection, self.shared.gate.proxies(), buffer.bytes());
        }
        match verdict {
            Verdict::Unfinished => {}
            Verdict::Refused(refused) => self.refuse(connection, &refused),
            Verdict::HandOver => self.hand_over(connection),
            Verdict::WebSocket { encoding, response, head_len, headers } => match self.admit(connection) {
                Ok(()) => {
                    self.keep_headers(connection, headers);
                    self.upgrade(connection, encoding, &response, head_len);
                }
                Err(reason) => {
                    let refused = Refused::later(reason, self.shared.gate.retry_after_s());
                    self.refuse(connection, &refused);
                }
            },
        }
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

    fn upgrade(&mut self, connection: ConnectionKey, encoding: Encoding, response: &[u8], head_len: usize) {
        let Some(stage) = self.connections.get_mut(connection) else { return };
        let Stage::Head(HeadStage { buffer }) = std::mem::replace(stage, Stage::Session(SessionStage::default()))
        else {
            unreachable!("only a head is judged")
        };
        self.counters.upgraded += 1;
        // The first bytes on a fresh socket: if it does not take them whole, it takes nothing.
        let is_told = self.send_now(connection, response);
        let mut behind_head = buffer.into_bytes().split_off(head_len);
        self.open_session(connection, encoding, &mut behind_head);
        if !is_told {
            self.end(connection);
        }
    }

    fn keep_headers(&mut self, connection: ConnectionKey, headers: Option<PickedHeaders>) {
        if let Some(headers) = headers {
            self.picked_headers.insert(connection.index, headers);
        }
    }

    fn open_session(&mut self, connection: ConnectionKey, encoding: Encoding, read: &mut [u8]) {
        self.sessions += 1;
        self.shard.handle(self.now, Event::Opened { session: connection, wire: encoding.into() }, &mut self.effects);
        let Some(session) = self.connections.session_mut(connection) else { return };
        let limits = &self.shared.net.websocket_limits;
        feed(&mut self.shard, session, connection, read, self.now, limits, &mut self.effects);
        self.watch(connection);
    }

    fn hand_over(&mut self, connection: ConnectionKey) {
        let Ok(place) = self.shared.hand_over.clone().try_reserve_owned() else {
            return self.refuse(connection, &RefusalReason::ControlBusy.into());
        };
        let Some(Stage::Head(HeadStage { buffer })) = self.forget(connection) else { return };
        let Some(Released { stream, read }) = self.reactor.release(connection) else { return };
        match stream.peer_addr() {
            Ok(peer) => {
                self.counters.handed_over += 1;
                let mut head = buffer.into_bytes();
                head.extend_from_slice(&read);
                place.send(HandOver { stream, peer, head });
            }
            // It has gone while its request was read.
            Err(_) => self.counters.abandoned += 1,
        }
    }

    /// Answers, and waits for the client to hang up.
    pub(super) fn refuse(&mut self, connection: ConnectionKey, refused: &Refused) {
        self.counters.refused[refused.reason.index()] += 1;
        let is_told = self.send_now(connection, &refused.response);
        self.reactor.finish(connection);
        let Some(stage) = self.connections.get_mut(connection) else { return };
        *stage = Stage::Lingering { bytes_left: LINGER_BYTES_MAX };
        if is_told {
            self.linger_deadlines.set(self.now.mono_us + self.shared.net.linger_timeout_ms * 1_000, connection);
        } else {
            self.end(connection);
        }
    }

    fn send_now(&mut self, connection: ConnectionKey, bytes: &[u8]) -> bool {
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
        match stage {
            Stage::Head(HeadStage { buffer }) => self.counters.abandoned += u64::from(was_begun(&buffer)),
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
