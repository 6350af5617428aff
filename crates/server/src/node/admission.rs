//! Decides whether a connection becomes a session, is passed to the HTTP server, or is refused. Also closes
//! connections.

mod admitted;
mod entrants;
mod handshake_limits;
mod pending;
mod sources;

use std::{io, net::TcpStream};

use dunlin_engine::{Event, Wire};
use dunlin_net::{
    BodyStage, ConnectionKey, ConnectionStage, HeadBuffer, HeadStage, HeadVerdict, PickedHeaders, Reactor,
    RefusalReason, Refused, Released, SendOutcome, SessionStage, is_out_of_files,
};

pub use admitted::Admitted;
pub use sources::SourceNetwork;

pub(super) use entrants::Entrants;
pub(super) use handshake_limits::Gate;
pub(super) use pending::PendingConnections;

use crate::telemetry::session_events::{ConnectionAccepted, ConnectionEnded, ConnectionRefused};

use super::{Adoption, HandOver, shard_thread::ShardThread};

/// Maximum number of bytes that are read from a refused client.
const LINGER_BYTES_MAX: usize = 256 * 1024;

impl<R: Reactor> ShardThread<R> {
    /// Registers a socket on this shard.
    pub(super) fn settle(&mut self, stream: TcpStream) {
        let peer = stream.peer_addr().ok().map(|peer| peer.ip());
        let connection = self.connections.insert(ConnectionStage::Head(HeadStage::default()));
        if let Err(error) = self.reactor.open(connection, stream) {
            self.count_failed_accept(&error);
            self.forget(connection);
            return;
        }
        self.entrants.came_from(connection, peer);
        ConnectionAccepted { shard: self.index, connection }.emit();
        if self.secure.as_mut().is_some_and(|secure| !secure.open(connection)) {
            self.counters.tls_failures += 1;
            return self.end(connection);
        }
        self.deadlines.head.set(self.engine.now().mono_us + self.shared.net.head_timeout_ms * 1_000, connection);
        if let Some(oldest) = peer.and_then(|peer| self.pending.insert(connection, peer)) {
            self.evict_pending(oldest);
        }
    }

    /// Closes a connection without a session, because its address has too many of them.
    fn evict_pending(&mut self, connection: ConnectionKey) {
        let refused = Refused::from(RefusalReason::AddressPending);
        self.counters.refused[refused.reason.index()] += 1;
        ConnectionRefused { shard: self.index, connection, reason: refused.reason.name() }.emit();
        if matches!(self.connections.get_mut(connection), Some(ConnectionStage::Head(_) | ConnectionStage::Body(_))) {
            self.send_now(connection, &refused.response);
        }
        self.end(connection);
    }

    pub(super) fn adopt(&mut self, stream: TcpStream, adoption: Adoption) {
        let Adoption { wire, inflates, response, request, mut read, headers, tls, admitted } = adoption;
        let connection = self.connections.insert(ConnectionStage::Session(SessionStage::new(wire, inflates)));
        if !self.life.is_open() {
            // The client may have received status 101 already, so the only option is to close the connection.
            self.counters.refused[RefusalReason::Draining.index()] += 1;
            self.forget(connection);
            return;
        }
        if let Err(error) = self.reactor.open(connection, stream) {
            self.count_failed_accept(&error);
            self.forget(connection);
            return;
        }
        self.entrants.was_found(connection, admitted.address());
        if let (Some(secure), Some(tls)) = (&mut self.secure, tls) {
            secure.insert(connection, tls);
            // Earlier bytes may be left to write.
            self.engine.mark_dirty(connection);
        }
        if request.as_ref().is_some_and(|request| !self.engine.can_open(wire, request)) {
            return self.refuse(connection, &RefusalReason::Connect.into());
        }
        admitted.take_over();
        self.counters.adopted += 1;
        self.keep_headers(connection, headers);
        let is_sent = response.is_empty() || self.send_now(connection, &response);
        self.open_session(connection, wire, request.as_deref(), &mut read);
        if !is_sent {
            self.end(connection);
        }
    }

    fn count_failed_accept(&mut self, error: &io::Error) {
        let count = if is_out_of_files(error) {
            &mut self.counters.accepts_out_of_files
        } else {
            &mut self.counters.accepts_failed
        };
        *count += 1;
    }

    /// Carries out the decision about a connection's first request.
    pub(super) fn carry_out(&mut self, connection: ConnectionKey, verdict: HeadVerdict) {
        if !matches!(verdict, HeadVerdict::Unfinished)
            && let Some(ConnectionStage::Head(HeadStage { buffer })) = self.connections.get_mut(connection)
        {
            self.entrants.find_source(connection, self.shared.gate.proxies(), buffer.bytes());
        }
        match verdict {
            HeadVerdict::Unfinished => {}
            HeadVerdict::Refused(refused) => self.refuse(connection, &refused),
            HeadVerdict::HandOver => self.hand_over(connection),
            HeadVerdict::WebSocket { wire, inflates, response, connect, head_len, headers } => match self
                .admit(connection)
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
            HeadVerdict::Stream { wire, response, body, head_len, headers } => {
                let Some(stage) = self.connections.get_mut(connection) else { return };
                let ConnectionStage::Head(HeadStage { buffer }) = stage else { return };
                let behind_head = std::mem::take(buffer).into_bytes().split_off(head_len);
                let due_us = self.engine.now().mono_us + self.shared.net.head_timeout_ms * 1_000;
                let mut body = body;
                let pushed = body.push(&behind_head);
                *stage = ConnectionStage::Body(Box::new(BodyStage { wire, response, body, headers, due_us }));
                self.deadlines.head.set(due_us, connection);
                self.body_came(connection, pushed);
            }
        }
    }

    /// Processes a piece of a request's body, or its error. The last piece makes the connection a session.
    pub(super) fn body_came(&mut self, connection: ConnectionKey, pushed: Result<(), RefusalReason>) {
        if let Err(reason) = pushed {
            return self.refuse(connection, &reason.into());
        }
        let Some(ConnectionStage::Body(stage)) = self.connections.get_mut(connection) else { return };
        if !stage.body.is_whole() {
            return;
        }
        let wire = stage.wire;
        if !self.engine.can_open(wire, stage.body.bytes()) {
            return self.refuse(connection, &RefusalReason::Connect.into());
        }
        if let Err(reason) = self.admit(connection) {
            let refused = Refused::later(reason, self.shared.gate.retry_after_s());
            return self.refuse(connection, &refused);
        }
        let Some(stage) = self.connections.get_mut(connection) else { return };
        let ConnectionStage::Body(request) =
            std::mem::replace(stage, ConnectionStage::Session(SessionStage::new(wire, false)))
        else {
            unreachable!("it was one just now")
        };
        let BodyStage { response, body, headers, .. } = *request;
        self.keep_headers(connection, headers);
        self.counters.upgraded += 1;
        self.begin_session(connection, wire, &response, Some(&body.into_bytes()), &mut []);
    }

    /// Admits a connection as a session and counts it, or returns the reason for a refusal. Must be called before the
    /// handshake is processed.
    fn admit(&mut self, connection: ConnectionKey) -> Result<(), RefusalReason> {
        if !self.life.is_open() {
            return Err(RefusalReason::Draining);
        }
        if !self.shared.admit_session() {
            return Err(RefusalReason::SessionLimit);
        }
        let admitted = self.shared.gate.admit(self.entrants.source(connection), self.engine.now().mono_us);
        admitted.inspect_err(|_| self.shared.dismiss_session())
    }

    /// Reverts the counting of [`Self::admit`].
    fn dismiss(&mut self, connection: ConnectionKey) {
        self.shared.dismiss_session();
        self.shared.gate.dismiss(self.entrants.source(connection), self.engine.now().mono_us);
    }

    /// Removes a connection from the table. Its source address is kept until the index is reused.
    fn forget(&mut self, connection: ConnectionKey) -> Option<ConnectionStage> {
        let stage = self.connections.remove(connection)?;
        self.pending.remove(connection);
        self.shared.loads.leave(self.index.0);
        Some(stage)
    }

    /// Makes a connection a session. Returns the bytes after the head.
    fn become_session(&mut self, connection: ConnectionKey, session: SessionStage, head_len: usize) -> Vec<u8> {
        let stage = self.connections.get_mut(connection);
        match stage.map(|stage| std::mem::replace(stage, ConnectionStage::Session(session))) {
            Some(ConnectionStage::Head(HeadStage { buffer })) => buffer.into_bytes().split_off(head_len),
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
        // The first bytes on a new socket fit into its buffer, or the socket is broken.
        let is_sent = self.send_now(connection, response);
        self.open_session(connection, wire, request, read);
        if !is_sent {
            self.end(connection);
        }
    }

    fn keep_headers(&mut self, connection: ConnectionKey, headers: Option<PickedHeaders>) {
        if let Some(headers) = headers {
            self.picked_headers.insert(connection.index, headers);
        }
    }

    fn open_session(&mut self, connection: ConnectionKey, wire: Wire, request: Option<&[u8]>, read: &mut [u8]) {
        self.pending.remove(connection);
        self.sessions += 1;
        self.counters.opened[wire.index()] += 1;
        let source = self.entrants.source(connection).map(SourceNetwork::key);
        let address = self.entrants.address(connection).map(|address| address.to_canonical());
        let opened = Event::Opened { session: connection, wire, source, address };
        self.engine.handle(opened);
        let Some(session) = self.connections.session_mut(connection) else { return };
        if let Some(request) = request {
            self.engine.feed_message(session, connection, request);
        }
        self.engine.feed(session, connection, read);
        self.watch(connection);
    }

    /// Whether the queue to the control thread has space for this connection.
    fn may_hand_over(&mut self, connection: ConnectionKey) -> bool {
        let net = &self.shared.net;
        if self.shared.hand_over.capacity() > net.handed_over_reserved {
            return true;
        }
        match self.connections.get_mut(connection) {
            Some(ConnectionStage::Head(HeadStage { buffer })) => {
                net.operators_paths.iter().any(|path| is_request_for(buffer.bytes(), path))
            }
            _ => false,
        }
    }

    fn hand_over(&mut self, connection: ConnectionKey) {
        let may_hand_over = self.may_hand_over(connection);
        let place = self.shared.hand_over.clone().try_reserve_owned().ok();
        let Some(place) = place.filter(|_| may_hand_over) else {
            return self.refuse(connection, &RefusalReason::ControlBusy.into());
        };
        let Some(ConnectionStage::Head(HeadStage { buffer })) = self.forget(connection) else { return };
        let Some(Released { stream, mut read }) = self.reactor.release(connection) else { return };
        let mut tls = self.secure.as_mut().and_then(|secure| secure.remove(connection));
        match stream.peer_addr() {
            Ok(peer) => {
                self.counters.handed_over += 1;
                let mut head = buffer.into_bytes();
                match &mut tls {
                    // The next read reports an error.
                    Some(tls) => drop(tls.decrypt(&mut read, &mut head)),
                    None => head.extend_from_slice(&read),
                }
                place.send(HandOver { stream, peer, head, tls });
            }
            // The peer has closed the connection during the request.
            Err(_) => self.counters.abandoned += 1,
        }
    }

    /// Responds, and waits for the client to close the connection.
    pub(super) fn refuse(&mut self, connection: ConnectionKey, refused: &Refused) {
        self.counters.refused[refused.reason.index()] += 1;
        ConnectionRefused { shard: self.index, connection, reason: refused.reason.name() }.emit();
        let is_sent = self.send_now(connection, &refused.response);
        self.finish_sending(connection);
        let Some(stage) = self.connections.get_mut(connection) else { return };
        *stage = ConnectionStage::Lingering { bytes_left: LINGER_BYTES_MAX };
        if is_sent {
            self.deadlines
                .linger
                .set(self.engine.now().mono_us + self.shared.net.linger_timeout_ms * 1_000, connection);
        } else {
            self.end(connection);
        }
    }

    fn send_now(&mut self, connection: ConnectionKey, bytes: &[u8]) -> bool {
        if self.send_secure(connection, bytes) {
            return true;
        }
        // SAFETY: the results are fetched at once.
        unsafe { self.reactor.send(connection, std::iter::once(bytes)) };
        let is_sent = self.reactor.sent().is_some_and(|sent| sent.outcome == SendOutcome::All);
        let next = self.reactor.sent();
        debug_assert!(next.is_none(), "nobody else's batch is open");
        is_sent
    }

    /// Shuts down the sending side of a session's socket, and keeps reading for a short time.
    pub(super) fn finish(&mut self, session: ConnectionKey) {
        self.finish_sending(session);
        // With TLS, encrypted bytes may be left. This method is called again when they are sent.
        if self.has_secure_waiting(session) {
            return;
        }
        if let Some(stage) = self.connections.session_mut(session)
            && !std::mem::replace(&mut stage.finished, true)
        {
            let due_us = self.engine.now().mono_us + self.shared.net.linger_timeout_ms * 1_000;
            self.deadlines.linger.set(due_us, session);
        }
    }

    /// Closes a connection in any stage.
    pub(super) fn end(&mut self, connection: ConnectionKey) {
        let Some(stage) = self.forget(connection) else { return };
        self.reactor.close(connection);
        if let Some(secure) = &mut self.secure {
            drop(secure.remove(connection));
        }
        ConnectionEnded { shard: self.index, connection, stage: stage.name() }.emit();
        match stage {
            ConnectionStage::Head(HeadStage { buffer }) => self.counters.abandoned += u64::from(was_begun(&buffer)),
            ConnectionStage::Body(_) => self.counters.abandoned += 1,
            ConnectionStage::Lingering { .. } => {}
            ConnectionStage::Session(_) => {
                self.sessions -= 1;
                self.picked_headers.remove(&connection.index);
                self.dismiss(connection);
                self.engine.handle(Event::Gone { session: connection });
            }
        }
    }
}

/// Whether a request is for `path` or for a path below it.
fn is_request_for(head: &[u8], path: &str) -> bool {
    let mut words = head.trim_ascii_start().split(u8::is_ascii_whitespace);
    let rest = words.nth(1).and_then(|target| target.strip_prefix(path.as_bytes()));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'/' | b'?')))
}

fn was_begun(buffer: &HeadBuffer) -> bool {
    !buffer.bytes().is_empty()
}

#[cfg(test)]
mod tests {
    use super::is_request_for;

    #[test]
    fn a_path_prefix_matches_itself_and_its_subpaths() {
        for (line, path, expected) in [
            ("GET /health HTTP/1.1\r\n", "/health", true),
            ("\r\nGET /health?a=b HTTP/1.1\r\n", "/health", true),
            ("POST /api/publish HTTP/1.1\r\n", "/api", true),
            ("POST /apis HTTP/1.1\r\n", "/api", false),
            ("GET /elsewhere/health HTTP/1.1\r\n", "/health", false),
            ("GET", "/health", false),
            ("", "/health", false),
        ] {
            assert_eq!(is_request_for(line.as_bytes(), path), expected, "{line:?} {path}");
        }
    }
}
