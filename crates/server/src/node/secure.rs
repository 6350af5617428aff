//! TLS between the sockets of a shard and the rest of the shard.
//!
//! Received data is decrypted before any other code reads it. Sent data is encrypted when a session is written and
//! counts as written from then on. If the socket does not take all of it, the rest waits with the connection, and the
//! session's lanes provide no more data until it is sent. So at most one write waits here.

use std::sync::Arc;

use dunlin_engine::{Effect, Event, SessionKey};
use dunlin_net::{Certificates, ConnectionKey, ConnectionStage, Decrypted, Reactor, TlsSession};

use super::shard_thread::ShardThread;

/// The TLS states of a shard's connections.
pub(super) struct Secure {
    certificates: Arc<Certificates>,
    /// Indexed by `ConnectionKey::index`.
    entries: Vec<Option<Entry>>,
    /// A buffer for plaintext; reused to keep its capacity.
    plain: Vec<u8>,
}

struct Entry {
    generation: u32,
    /// The sending side is shut down when nothing is left to send.
    finishes: bool,
    tls: Box<TlsSession>,
}

/// A larger capacity is freed after use.
const PLAIN_BYTES_KEPT: usize = 128 * 1024;

impl Secure {
    pub(super) fn new(certificates: Arc<Certificates>) -> Self {
        Self { certificates, entries: Vec::new(), plain: Vec::new() }
    }

    /// Begins TLS on a new connection. Returns `false` if that fails.
    pub(super) fn open(&mut self, connection: ConnectionKey) -> bool {
        match TlsSession::new(self.certificates.now()) {
            Ok(tls) => {
                self.insert(connection, Box::new(tls));
                true
            }
            Err(_) => false,
        }
    }

    /// Continues the TLS of a connection from the control thread.
    pub(super) fn insert(&mut self, connection: ConnectionKey, tls: Box<TlsSession>) {
        let index = connection.index as usize;
        if index >= self.entries.len() {
            self.entries.resize_with(index + 1, || None);
        }
        self.entries[index] = Some(Entry { generation: connection.generation, finishes: false, tls });
    }

    pub(super) fn remove(&mut self, connection: ConnectionKey) -> Option<Box<TlsSession>> {
        self.entry(connection)?;
        self.entries[connection.index as usize].take().map(|entry| entry.tls)
    }

    /// Decrypts received bytes. [`ShardThread::take_decrypted`] returns the plaintext.
    pub(super) fn decrypt(&mut self, connection: ConnectionKey, bytes: &mut [u8]) -> Decrypted {
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let decrypted = match self.entry(connection) {
            Some(entry) => entry.tls.decrypt(bytes, &mut plain),
            None => Decrypted::Taken { shook: false, at_end: false },
        };
        self.plain = plain;
        decrypted
    }

    /// The encrypted bytes for the connection's socket.
    pub(super) fn waiting(&self, connection: ConnectionKey) -> &[u8] {
        self.entries
            .get(connection.index as usize)
            .and_then(Option::as_ref)
            .filter(|entry| entry.generation == connection.generation)
            .map_or(&[], |entry| entry.tls.waiting())
    }

    fn entry(&mut self, connection: ConnectionKey) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(connection.index as usize)?.as_mut()?;
        Some(entry).filter(|entry| entry.generation == connection.generation)
    }
}

impl<R: Reactor> ShardThread<R> {
    /// Processes the result of a decryption.
    pub(super) fn take_decrypted(&mut self, connection: ConnectionKey, decrypted: Decrypted) {
        let Some(secure) = &mut self.secure else { return };
        if !secure.waiting(connection).is_empty() {
            self.engine.mark_dirty(connection);
        }
        let Decrypted::Taken { shook, at_end } = decrypted else {
            self.counters.tls_failures += 1;
            return self.hang_up_insecure(connection);
        };
        self.counters.tls_handshakes += u64::from(shook);
        let mut plain = std::mem::take(&mut secure.plain);
        if !plain.is_empty() {
            self.on_bytes(connection, &mut plain);
        }
        plain.clear();
        plain.shrink_to(PLAIN_BYTES_KEPT);
        if let Some(secure) = &mut self.secure {
            secure.plain = plain;
        }
        if at_end {
            self.end(connection);
        }
    }

    /// Closes a connection whose TLS has failed, after sending an alert if possible.
    fn hang_up_insecure(&mut self, connection: ConnectionKey) {
        match self.connections.get_mut(connection) {
            Some(stage @ (ConnectionStage::Head(_) | ConnectionStage::Body(_))) => {
                *stage = ConnectionStage::Lingering { bytes_left: 0 };
                self.finish_sending(connection);
                let due_us = self.engine.now().mono_us + self.shared.net.linger_timeout_ms * 1_000;
                self.deadlines.linger.set(due_us, connection);
            }
            Some(ConnectionStage::Session(_) | ConnectionStage::Lingering { .. }) => self.end(connection),
            None => {}
        }
    }

    /// Encrypts `bytes` for the connection, if it uses TLS. Returns whether it does.
    pub(super) fn send_secure(&mut self, connection: ConnectionKey, bytes: &[u8]) -> bool {
        let Some(entry) = self.secure.as_mut().and_then(|secure| secure.entry(connection)) else { return false };
        // Nothing is sent to a connection with an incomplete handshake.
        entry.tls.encrypt(bytes);
        self.engine.mark_dirty(connection);
        true
    }

    /// Shuts down the sending side after all pending bytes.
    pub(super) fn finish_sending(&mut self, connection: ConnectionKey) {
        if let Some(entry) = self.secure.as_mut().and_then(|secure| secure.entry(connection)) {
            entry.tls.send_close_notify();
            entry.finishes = entry.tls.has_waiting();
            if entry.finishes {
                self.engine.mark_dirty(connection);
                return;
            }
        }
        self.reactor.finish(connection);
    }

    /// Whether encrypted bytes wait for the connection's socket.
    pub(super) fn has_secure_waiting(&self, connection: ConnectionKey) -> bool {
        self.secure.as_ref().is_some_and(|secure| !secure.waiting(connection).is_empty())
    }

    /// Encrypts the output of sessions that have no pending bytes. From then on the engine counts it as written.
    pub(super) fn encrypt_outgoing(&mut self, flushing: &mut Vec<SessionKey>) {
        let Self { secure: Some(secure), engine, .. } = self else { return };
        // The list may contain duplicates, and each session must be offered once.
        flushing.sort_unstable();
        flushing.dedup();
        let mut plain = std::mem::take(&mut secure.plain);
        for session in flushing.iter() {
            let Some(entry) = secure.entry(*session) else { continue };
            if entry.tls.has_waiting() {
                continue;
            }
            plain.clear();
            for slice in engine.outgoing(*session) {
                plain.extend_from_slice(slice);
            }
            if !plain.is_empty() {
                if entry.tls.encrypt(&plain) {
                    engine.handle(Event::Wrote { session: *session, bytes: plain.len() });
                } else {
                    engine.defer(Effect::HangUp { session: *session });
                }
            }
        }
        plain.clear();
        plain.shrink_to(PLAIN_BYTES_KEPT);
        secure.plain = plain;
    }

    /// Removes the first `bytes` of the pending bytes, which the kernel has taken.
    pub(super) fn wrote_secure(&mut self, connection: ConnectionKey, bytes: usize) {
        let Some(entry) = self.secure.as_mut().and_then(|secure| secure.entry(connection)) else { return };
        entry.tls.wrote(bytes);
        if entry.finishes && !entry.tls.has_waiting() {
            self.engine.defer(Effect::Finish { session: connection });
        }
    }
}
