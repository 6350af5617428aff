//! The TLS states of a shard's connections.

use std::sync::Arc;

use dunlin_engine::{Effect, Event, SessionKey};
use dunlin_net::{Certificates, ConnectionKey, Decrypted, TlsSession};

use super::engine::Engine;

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

    /// Decrypts received bytes. [`Secure::decrypted`] returns the plaintext.
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

    /// The plaintext of the last [`Secure::decrypt`].
    pub(super) fn decrypted(&mut self) -> &mut [u8] {
        &mut self.plain
    }

    /// Discards the plaintext, and the memory of a large one.
    pub(super) fn forget_decrypted(&mut self) {
        self.plain.clear();
        self.plain.shrink_to(PLAIN_BYTES_KEPT);
    }

    /// The encrypted bytes for the connection's socket.
    pub(super) fn waiting(&self, connection: ConnectionKey) -> &[u8] {
        self.entries
            .get(connection.index as usize)
            .and_then(Option::as_ref)
            .filter(|entry| entry.generation == connection.generation)
            .map_or(&[], |entry| entry.tls.waiting())
    }

    pub(super) fn has_waiting(&self, connection: ConnectionKey) -> bool {
        !self.waiting(connection).is_empty()
    }

    /// Encrypts `bytes` for the connection, if it uses TLS. Returns whether it does.
    pub(super) fn encrypt(&mut self, connection: ConnectionKey, bytes: &[u8]) -> bool {
        let Some(entry) = self.entry(connection) else { return false };
        // Nothing is sent to a connection with an incomplete handshake.
        entry.tls.encrypt(bytes);
        true
    }

    /// Announces the end of what is sent. Returns whether bytes have to be sent before the sending side is shut down.
    pub(super) fn finish(&mut self, connection: ConnectionKey) -> bool {
        let Some(entry) = self.entry(connection) else { return false };
        entry.tls.send_close_notify();
        entry.finishes = entry.tls.has_waiting();
        entry.finishes
    }

    /// Encrypts the output of sessions that have no pending bytes. From then on the engine counts it as written.
    pub(super) fn encrypt_outgoing(&mut self, flushing: &mut Vec<SessionKey>, engine: &mut Engine) {
        // The list may contain duplicates, and each session must be offered once.
        flushing.sort_unstable();
        flushing.dedup();
        let mut plain = std::mem::take(&mut self.plain);
        for session in flushing.iter() {
            let Some(entry) = self.entry(*session) else { continue };
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
        self.plain = plain;
        self.forget_decrypted();
    }

    /// Removes the first `bytes` of the pending bytes, which the kernel has taken. Returns whether they were the last
    /// before the sending side is shut down.
    pub(super) fn wrote(&mut self, connection: ConnectionKey, bytes: usize) -> bool {
        let Some(entry) = self.entry(connection) else { return false };
        entry.tls.wrote(bytes);
        entry.finishes && !entry.tls.has_waiting()
    }

    fn entry(&mut self, connection: ConnectionKey) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(connection.index as usize)?.as_mut()?;
        Some(entry).filter(|entry| entry.generation == connection.generation)
    }
}
