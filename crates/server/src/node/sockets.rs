//! The sockets of a shard, with TLS between them and the rest of the shard.
//!
//! Received data is decrypted before any other code reads it. Sent data is encrypted when a session is written and
//! counts as written from then on. If the socket does not take all of it, the rest waits with the connection, and the
//! session's lanes provide no more data until it is sent. So at most one write waits here.

use std::{io, net::TcpStream, os::fd::AsFd as _, sync::Arc, time::Duration};

use dunlin_engine::{Effect, Event, SessionKey};
use dunlin_net::{
    Certificates, Completion, ConnectionKey, Decrypted, Reactor, Released, SendCompletion, SendOutcome, SocketFacts,
    TlsSession, Traffic,
};

use super::{
    NetCounters, SessionSocket, engine::Engine, recent_retransmissions::RecentRetransmissions, secure::Secure,
};

/// The sockets of one shard.
pub(super) struct Sockets<R> {
    reactor: R,
    /// The TLS states; `None` without TLS.
    secure: Option<Secure>,
    retransmissions: RecentRetransmissions,
    /// The peer of this connection has ended TLS after its last bytes.
    ended: Option<ConnectionKey>,
    /// The buffer of [`Sockets::flush`]; reused to keep its capacity.
    flushing: Vec<SessionKey>,
    /// Counters; see [`NetCounters`].
    tls_handshakes: u64,
    read_bytes: u64,
    writes: u64,
    write_bytes: u64,
    blocked_writes: u64,
}

/// What a socket reports.
pub(super) enum Arrived<'a> {
    /// The bytes of [`Completion::Received`] are decrypted, and may be none.
    Completion(Completion<'a>),
    TlsFailed(ConnectionKey),
}

impl<R: Reactor> Sockets<R> {
    pub(super) fn new(reactor: R, certificates: Option<Arc<Certificates>>) -> Self {
        Self {
            reactor,
            secure: certificates.map(Secure::new),
            retransmissions: RecentRetransmissions::default(),
            ended: None,
            flushing: Vec::new(),
            tls_handshakes: 0,
            read_bytes: 0,
            writes: 0,
            write_bytes: 0,
            blocked_writes: 0,
        }
    }

    /// # Errors
    /// See [`Reactor::wait`].
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.reactor.wait(timeout)
    }

    /// Whether completions are left for the next turn.
    pub(super) fn has_more(&self) -> bool {
        self.reactor.has_more()
    }

    /// What has arrived next in this turn; see [`Reactor::next`].
    #[inline]
    pub(super) fn next(&mut self, intake: bool, engine: &mut Engine) -> Option<Arrived<'_>> {
        if let Some(secure) = &mut self.secure {
            secure.forget_decrypted();
        }
        if let Some(connection) = self.ended.take() {
            return Some(Arrived::Completion(Completion::Ended { connection }));
        }
        let (connection, bytes) = match self.reactor.next(intake)? {
            Completion::Received { connection, bytes } => (connection, bytes),
            other => return Some(Arrived::Completion(other)),
        };
        self.read_bytes += bytes.len() as u64;
        let Some(secure) = &mut self.secure else {
            return Some(Arrived::Completion(Completion::Received { connection, bytes }));
        };
        let decrypted = secure.decrypt(connection, bytes);
        if secure.has_waiting(connection) {
            engine.mark_dirty(connection);
        }
        let Decrypted::Taken { shook, at_end } = decrypted else { return Some(Arrived::TlsFailed(connection)) };
        self.tls_handshakes += u64::from(shook);
        self.ended = at_end.then_some(connection);
        Some(Arrived::Completion(Completion::Received { connection, bytes: secure.decrypted() }))
    }

    pub(super) fn stop_listening(&mut self) {
        self.reactor.stop_listening();
    }

    /// # Errors
    /// See [`Reactor::open`].
    pub(super) fn open(&mut self, connection: ConnectionKey, stream: TcpStream) -> io::Result<()> {
        self.reactor.open(connection, stream)
    }

    /// Begins TLS on a new connection, if the shard uses it. Returns `false` if that fails.
    pub(super) fn begin_tls(&mut self, connection: ConnectionKey) -> bool {
        self.secure.as_mut().is_none_or(|secure| secure.open(connection))
    }

    /// Continues the TLS of a connection from the control thread.
    pub(super) fn continue_tls(&mut self, connection: ConnectionKey, tls: Box<TlsSession>, engine: &mut Engine) {
        if let Some(secure) = &mut self.secure {
            secure.insert(connection, tls);
            // Earlier bytes may be left to write.
            engine.mark_dirty(connection);
        }
    }

    pub(super) fn pause(&mut self, connection: ConnectionKey) {
        self.reactor.pause(connection);
    }

    pub(super) fn resume(&mut self, connection: ConnectionKey) {
        self.reactor.resume(connection);
    }

    /// See [`Reactor::has_unread`].
    pub(super) fn has_unread(&self, connection: ConnectionKey) -> bool {
        self.reactor.has_unread(connection)
    }

    /// Whether encrypted bytes wait for the connection's socket.
    pub(super) fn has_waiting(&self, connection: ConnectionKey) -> bool {
        self.secure.as_ref().is_some_and(|secure| secure.has_waiting(connection))
    }

    /// Adds a sample of the connection's network, if the last one is old enough.
    #[inline]
    pub(super) fn sample(&mut self, connection: ConnectionKey, now_us: u64) {
        if self.retransmissions.is_due(connection, now_us)
            && let Some(kernel) = self.kernel_facts(connection)
        {
            self.retransmissions.note(connection, &kernel, now_us);
        }
    }

    fn kernel_facts(&mut self, connection: ConnectionKey) -> Option<SocketFacts> {
        SocketFacts::read(self.reactor.socket(connection)?.as_fd())
    }

    /// What is known about the connection's socket.
    pub(super) fn facts(&mut self, connection: ConnectionKey, now_us: u64) -> SessionSocket {
        let kernel = self.kernel_facts(connection);
        SessionSocket {
            is_full: !self.reactor.takes_bytes(connection),
            tls_bytes: self.secure.as_ref().map_or(0, |secure| secure.waiting(connection).len()),
            kernel,
            recent: kernel.map(|kernel| self.retransmissions.recent(connection, &kernel, now_us)).unwrap_or_default(),
        }
    }

    /// Sends bytes that are not from the engine. Returns `false` if the socket does not take them.
    pub(super) fn send_now(&mut self, connection: ConnectionKey, bytes: &[u8], engine: &mut Engine) -> bool {
        if self.secure.as_mut().is_some_and(|secure| secure.encrypt(connection, bytes)) {
            engine.mark_dirty(connection);
            return true;
        }
        // SAFETY: the results are fetched at once.
        unsafe { self.reactor.send(connection, std::iter::once(bytes)) };
        let is_sent = self.reactor.sent().is_some_and(|sent| sent.outcome == SendOutcome::All);
        let next = self.reactor.sent();
        debug_assert!(next.is_none(), "nobody else's batch is open");
        is_sent
    }

    /// Shuts down the sending side after all pending bytes.
    pub(super) fn finish(&mut self, connection: ConnectionKey, engine: &mut Engine) {
        if self.secure.as_mut().is_some_and(|secure| secure.finish(connection)) {
            engine.mark_dirty(connection);
        } else {
            self.reactor.finish(connection);
        }
    }

    /// What the kernel has counted about an open connection.
    pub(super) fn traffic(&mut self, connection: ConnectionKey) -> Option<Traffic> {
        Traffic::of(self.reactor.socket(connection)?.as_fd())
    }

    pub(super) fn close(&mut self, connection: ConnectionKey) {
        self.reactor.close(connection);
        self.retransmissions.forget(connection);
        if let Some(secure) = &mut self.secure {
            drop(secure.remove(connection));
        }
    }

    /// Removes a connection, and adds what it has received to `read`. Returns its socket and its TLS state.
    ///
    /// # Errors
    /// See [`Reactor::release`]. Nothing has changed then.
    pub(super) fn release(
        &mut self,
        connection: ConnectionKey,
        read: &mut Vec<u8>,
    ) -> io::Result<(TcpStream, Option<Box<TlsSession>>)> {
        let Released { stream, read: mut left } = self.reactor.release(connection)?;
        let mut tls = self.secure.as_mut().and_then(|secure| secure.remove(connection));
        match &mut tls {
            // The next read reports an error.
            Some(tls) => drop(tls.decrypt(&mut left, read)),
            None => read.extend_from_slice(&left),
        }
        Ok((stream, tls))
    }

    /// Writes every dirty session.
    ///
    /// This is the path of a delivery: two lookups by index and one system call.
    pub(super) fn flush(&mut self, engine: &mut Engine) {
        let mut flushing = std::mem::take(&mut self.flushing);
        engine.swap_dirty(&mut flushing);
        if let Some(secure) = &mut self.secure {
            secure.encrypt_outgoing(&mut flushing, engine);
        }
        for batch in flushing.chunks(R::BATCH_MAX) {
            for session in batch {
                // A session with a full socket is marked dirty when the socket is writable again.
                if self.reactor.takes_bytes(*session) {
                    // SAFETY: until the results are fetched, the engine is called only for the slices of other
                    // sessions, which does not change these (see `Shard::outgoing`), and the reactor only for more
                    // sends.
                    unsafe {
                        match &self.secure {
                            None => self.reactor.send(*session, engine.outgoing(*session)),
                            Some(secure) => {
                                let waiting = Some(secure.waiting(*session)).filter(|waiting| !waiting.is_empty());
                                self.reactor.send(*session, waiting.into_iter());
                            }
                        }
                    }
                }
            }
            while let Some(sent) = self.reactor.sent() {
                self.wrote(sent, engine);
            }
        }
        self.flushing = flushing;
        self.flushing.clear();
    }

    fn wrote(&mut self, sent: SendCompletion, engine: &mut Engine) {
        let session = sent.connection;
        self.writes += 1;
        if sent.written_bytes > 0 {
            self.write_bytes += sent.written_bytes as u64;
            match &mut self.secure {
                Some(secure) => {
                    if secure.wrote(session, sent.written_bytes) {
                        engine.defer(Effect::Finish { session });
                    }
                }
                None => engine.handle(Event::Wrote { session, bytes: sent.written_bytes }),
            }
        }
        match sent.outcome {
            SendOutcome::All => {
                // Any write may leave data behind, even one small slice: the pace of a session limits a write to the bytes
                // that it allows. The engine does not list the session again until all is written.
                if engine.has_outgoing(session) {
                    engine.mark_dirty(session);
                }
            }
            SendOutcome::Full => self.blocked_writes += 1,
            // Deferred: closing a session may queue leaves for other sessions of this batch, whose writes the engine
            // has not processed yet.
            SendOutcome::Broken => engine.defer(Effect::HangUp { session }),
        }
    }

    pub(super) fn count_into(&self, net: &mut NetCounters) {
        net.tls_handshakes += self.tls_handshakes;
        net.read_bytes += self.read_bytes;
        net.writes += self.writes;
        net.write_bytes += self.write_bytes;
        net.blocked_writes += self.blocked_writes;
        net.reactor = self.reactor.counters();
        net.round_trip = *self.retransmissions.round_trip();
    }
}

#[cfg(test)]
mod tests;
