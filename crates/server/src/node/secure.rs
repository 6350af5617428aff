//! TLS between the sockets of a shard and everything else of it.
//!
//! What comes is decrypted before anybody looks at it. What leaves is encrypted when a session is written, and counts as
//! written from then on; what the socket does not take waits with the connection, and nothing more is taken from the
//! session's lanes until it is gone. So one write is the most that waits here.

use std::sync::Arc;

use dunlin_engine::{Effect, Event, SessionKey};

use super::shard_thread::ShardThread;
use crate::{
    net::{ConnectionKey, Reactor, Stage},
    tls::{Certificates, Decrypted, TlsSession},
};

/// The TLS of a shard's connections.
pub(super) struct Secure {
    certificates: Arc<Certificates>,
    /// By the index of the connection's key.
    entries: Vec<Option<Entry>>,
    /// Lends its capacity: what was decrypted, or is to be encrypted.
    plain: Vec<u8>,
}

struct Entry {
    generation: u32,
    /// Ends the sending side when nothing waits any more.
    finishes: bool,
    tls: Box<TlsSession>,
}

/// Capacity beyond this is given back after a use.
const PLAIN_BYTES_KEPT: usize = 128 * 1024;

impl Secure {
    pub(super) fn new(certificates: Arc<Certificates>) -> Self {
        Self { certificates, entries: Vec::new(), plain: Vec::new() }
    }

    /// Begins with a connection that has just been accepted. Returns whether that can be.
    pub(super) fn open(&mut self, connection: ConnectionKey) -> bool {
        match TlsSession::new(self.certificates.now()) {
            Ok(tls) => {
                self.insert(connection, Box::new(tls));
                true
            }
            Err(_) => false,
        }
    }

    /// Goes on with a connection whose TLS was begun elsewhere.
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

    /// Decrypts what came. What it says is put aside for [`ShardThread::take_decrypted`].
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

    /// What waits for the connection's socket.
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
    /// Does what follows from bytes that were decrypted.
    pub(super) fn take_decrypted(&mut self, connection: ConnectionKey, decrypted: Decrypted) {
        let Some(secure) = &mut self.secure else { return };
        if !secure.waiting(connection).is_empty() {
            self.effects.dirty.push(connection);
        }
        let Decrypted::Taken { shook, at_end } = decrypted else {
            self.counters.tls_failures += 1;
            return self.hang_up_insecure(connection);
        };
        self.counters.tls_handshakes += u64::from(shook);
        let mut plain = std::mem::take(&mut secure.plain);
        if !plain.is_empty() {
            self.hear(connection, &mut plain);
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

    /// Ends a connection whose TLS has failed, after it was told so, if it can be.
    fn hang_up_insecure(&mut self, connection: ConnectionKey) {
        match self.connections.get_mut(connection) {
            Some(stage @ (Stage::Head(_) | Stage::Body(_))) => {
                *stage = Stage::Lingering { bytes_left: 0 };
                self.finish_sending(connection);
                let due_us = self.now.mono_us + self.shared.net.linger_timeout_ms * 1_000;
                self.linger_deadlines.set(due_us, connection);
            }
            Some(Stage::Session(_) | Stage::Lingering { .. }) => self.end(connection),
            None => {}
        }
    }

    /// Encrypts `bytes` for the connection, if it has TLS. Returns whether it has.
    pub(super) fn send_secure(&mut self, connection: ConnectionKey, bytes: &[u8]) -> bool {
        let Some(entry) = self.secure.as_mut().and_then(|secure| secure.entry(connection)) else { return false };
        // A connection whose handshake is not done is told nothing.
        entry.tls.encrypt(bytes);
        self.effects.dirty.push(connection);
        true
    }

    /// Ends the sending side of the connection, behind all that waits for it.
    pub(super) fn finish_sending(&mut self, connection: ConnectionKey) {
        if let Some(entry) = self.secure.as_mut().and_then(|secure| secure.entry(connection)) {
            entry.tls.say_goodbye();
            entry.finishes = entry.tls.has_waiting();
            if entry.finishes {
                self.effects.dirty.push(connection);
                return;
            }
        }
        self.reactor.finish(connection);
    }

    /// Whether something encrypted waits for the connection's socket.
    pub(super) fn has_secure_waiting(&self, connection: ConnectionKey) -> bool {
        self.secure.as_ref().is_some_and(|secure| !secure.waiting(connection).is_empty())
    }

    /// Encrypts what sessions have to say of whom nothing waits. From here on it counts as written.
    pub(super) fn encrypt_outgoing(&mut self, flushing: &mut Vec<SessionKey>) {
        let Self { secure: Some(secure), shard, effects, now, .. } = self else { return };
        // Others than the engine list connections too, and each is to be offered for once.
        flushing.sort_unstable();
        flushing.dedup();
        let mut plain = std::mem::take(&mut secure.plain);
        for session in flushing.iter() {
            let Some(entry) = secure.entry(*session) else { continue };
            if entry.tls.has_waiting() {
                continue;
            }
            plain.clear();
            for slice in shard.outgoing(*session) {
                plain.extend_from_slice(slice);
            }
            if !plain.is_empty() {
                if entry.tls.encrypt(&plain) {
                    shard.handle(*now, Event::Wrote { session: *session, bytes: plain.len() }, effects);
                } else {
                    effects.list.push(Effect::HangUp { session: *session });
                }
            }
        }
        plain.clear();
        plain.shrink_to(PLAIN_BYTES_KEPT);
        secure.plain = plain;
    }

    /// The kernel has the first `bytes` of what waited for a connection with TLS.
    pub(super) fn wrote_secure(&mut self, connection: ConnectionKey, bytes: usize) {
        let Some(entry) = self.secure.as_mut().and_then(|secure| secure.entry(connection)) else { return };
        entry.tls.wrote(bytes);
        if entry.finishes && !entry.tls.has_waiting() {
            self.effects.list.push(Effect::Finish { session: connection });
        }
    }
}
