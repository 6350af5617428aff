//! The TLS of one connection. Bytes go through it; it holds what is not whole yet, and what the socket has not taken.

// Bytes from outside are read here.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::unreachable)
)]

use std::{fmt, sync::Arc};

use rustls::{
    ServerConfig,
    server::{ServerConnectionData, UnbufferedServerConnection},
    unbuffered::{
        ConnectionState, EncodeError, EncodeTlsData, EncryptError, InsufficientSizeError, UnbufferedStatus,
        WriteTraffic,
    },
};

/// Bytes that may wait for the rest of a record or of a message of the handshake: more than rustls takes of either.
const UNREAD_BYTES_MAX: usize = 96 * 1024;

/// What a record adds at the most to the bytes in it: header, nonce, type, tag.
const RECORD_BYTES_MAX: usize = 40;

/// Bytes of one record.
const RECORD_PLAIN_BYTES_MAX: usize = 16_384;

/// One connection's TLS. It holds no buffer while nothing is under way.
pub struct TlsSession {
    connection: UnbufferedServerConnection,
    /// Came, and is not whole.
    unread: Vec<u8>,
    /// Encrypted, and not with the kernel. Empty, without memory, between two writes.
    waiting: Vec<u8>,
    /// How much of it the kernel has.
    written: usize,
    /// The handshake is not done.
    shaking: bool,
    /// It is over: rustls is not asked again, which might look for what is no longer there.
    failed: bool,
    /// The peer has said that it will send nothing more.
    at_end: bool,
    said_goodbye: bool,
}

/// What became of bytes that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decrypted {
    /// They were taken.
    Taken {
        /// The handshake was finished with them.
        shook: bool,
        /// The peer ends with them.
        at_end: bool,
    },
    /// They are no TLS, or none that is spoken here. What is to be written says so; after that it is over.
    Failed,
}

/// It cannot go on.
struct Broken;

/// What a connection says when it has done what it could.
enum Ready {
    /// It needs more from the peer first.
    Blocked,
    /// It may be written to.
    Open,
}

impl TlsSession {
    /// Of a connection that has just been accepted.
    ///
    /// # Errors
    /// If rustls finds the configuration unfit.
    pub fn new(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(Self {
            connection: UnbufferedServerConnection::new(config)?,
            unread: Vec::new(),
            waiting: Vec::new(),
            written: 0,
            shaking: true,
            failed: false,
            at_end: false,
            said_goodbye: false,
        })
    }

    /// Takes what came from the socket, which it is decrypted in, and appends what it says to `plain`. There may be something
    /// to write afterwards.
    pub fn decrypt(&mut self, bytes: &mut [u8], plain: &mut Vec<u8>) -> Decrypted {
        if self.failed {
            return Decrypted::Failed;
        }
        if self.at_end {
            return Decrypted::Taken { shook: false, at_end: true };
        }
        let is_taken = if self.unread.is_empty() {
            self.advance(bytes, plain).map(|(used, _)| {
                let rest = bytes.get(used..).unwrap_or_default();
                if !rest.is_empty() {
                    self.unread = rest.to_vec();
                }
            })
        } else {
            let mut unread = std::mem::take(&mut self.unread);
            unread.extend_from_slice(bytes);
            self.advance(&mut unread, plain).map(|(used, _)| self.keep(unread, used))
        };
        if is_taken.is_err() || self.unread.len() > UNREAD_BYTES_MAX {
            self.collect_alert();
            (self.failed, self.unread) = (true, Vec::new());
            return Decrypted::Failed;
        }
        let shook = self.shaking && !self.connection.is_handshaking();
        self.shaking = self.connection.is_handshaking();
        Decrypted::Taken { shook, at_end: self.at_end }
    }

    /// Encrypts `plain`, to be written. Returns whether that could be: not before the handshake is done, nor when its keys are
    /// used up.
    pub fn encrypt(&mut self, plain: &[u8]) -> bool {
        let records = plain.len() / RECORD_PLAIN_BYTES_MAX + 1;
        let room = plain.len() + records * RECORD_BYTES_MAX;
        self.say(room, |traffic, room| traffic.encrypt(plain, room))
    }

    /// Says that nothing more will be written, if the handshake is done.
    pub fn say_goodbye(&mut self) {
        if !std::mem::replace(&mut self.said_goodbye, true) {
            #[expect(clippy::redundant_closure_for_method_calls, reason = "the method is of one lifetime")]
            self.say(RECORD_BYTES_MAX, |traffic, room| traffic.queue_close_notify(room));
        }
    }

    /// What is to be written next.
    pub fn waiting(&self) -> &[u8] {
        self.waiting.get(self.written..).unwrap_or_default()
    }

    /// Whether anything is to be written.
    pub fn has_waiting(&self) -> bool {
        self.written < self.waiting.len()
    }

    /// The first `bytes` of [`TlsSession::waiting`] are with the kernel.
    pub fn wrote(&mut self, bytes: usize) {
        self.written += bytes;
        if !self.has_waiting() {
            (self.waiting, self.written) = (Vec::new(), 0);
        }
    }

    /// Whether the handshake is not done.
    pub const fn is_shaking(&self) -> bool {
        self.shaking
    }

    /// Bytes held for the socket.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting.capacity()
    }

    /// Appends what `speak` says to what waits, if the connection may be written to. Returns whether that was so.
    fn say(
        &mut self,
        room: usize,
        mut speak: impl FnMut(&mut WriteTraffic<'_, ServerConnectionData>, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> bool {
        if self.failed {
            return false;
        }
        let mut unread = std::mem::take(&mut self.unread);
        // Whole records were taken when they came, so this decrypts nothing.
        let Ok((used, ready)) = self.advance(&mut unread, &mut Vec::new()) else {
            self.failed = true;
            return false;
        };
        unread.drain(..used.min(unread.len()));
        if matches!(ready, Ready::Blocked) {
            self.unread = unread;
            return false;
        }
        let UnbufferedStatus { discard, state, .. } = self.connection.process_tls_records(&mut unread);
        let said = match state {
            Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                append(&mut self.waiting, room, |room| match speak(&mut traffic, room) {
                    Err(EncryptError::InsufficientSize(size)) => Err(Some(size)),
                    Err(EncryptError::EncryptExhausted) => Err(None),
                    Ok(bytes) => Ok(bytes),
                })
            }
            _ => Err(Broken),
        };
        self.failed |= said.is_err();
        self.keep(unread, discard);
        said.is_ok()
    }

    /// Keeps what is not whole of `unread`, of which the first `used` bytes were taken.
    fn keep(&mut self, mut unread: Vec<u8>, used: usize) {
        unread.drain(..used.min(unread.len()));
        self.unread = if unread.is_empty() { Vec::new() } else { unread };
    }

    /// Takes whole records off the front of `bytes`, and collects what is to be said to them. Returns how many bytes they were.
    fn advance(&mut self, bytes: &mut [u8], plain: &mut Vec<u8>) -> Result<(usize, Ready), Broken> {
        let mut used = 0;
        loop {
            let rest = bytes.get_mut(used..).unwrap_or_default();
            let UnbufferedStatus { mut discard, state, .. } = self.connection.process_tls_records(rest);
            let ready = match state.map_err(|_| Broken)? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(|_| Broken)?;
                        discard += record.discard;
                        plain.extend_from_slice(record.payload);
                    }
                    None
                }
                ConnectionState::EncodeTlsData(mut data) => {
                    append_encoded(&mut self.waiting, &mut data)?;
                    None
                }
                ConnectionState::TransmitTlsData(data) => {
                    data.done();
                    None
                }
                ConnectionState::PeerClosed => {
                    self.at_end = true;
                    None
                }
                ConnectionState::WriteTraffic(_) => Some(Ready::Open),
                ConnectionState::BlockedHandshake | ConnectionState::Closed => Some(Ready::Blocked),
                _ => return Err(Broken),
            };
            used += discard;
            if let Some(ready) = ready {
                return Ok((used, ready));
            }
        }
    }

    /// Collects what the peer is told of what was wrong.
    fn collect_alert(&mut self) {
        // While there is something to write, this looks at nothing that came.
        while self.connection.wants_write() {
            let Ok(ConnectionState::EncodeTlsData(mut data)) = self.connection.process_tls_records(&mut []).state
            else {
                return;
            };
            if append_encoded(&mut self.waiting, &mut data).is_err() {
                return;
            }
        }
    }
}

fn append_encoded(out: &mut Vec<u8>, data: &mut EncodeTlsData<'_, ServerConnectionData>) -> Result<(), Broken> {
    append(out, 0, |room| match data.encode(room) {
        Err(EncodeError::InsufficientSize(size)) => Err(Some(size)),
        Err(EncodeError::AlreadyEncoded) => Err(None),
        Ok(bytes) => Ok(bytes),
    })
}

/// Appends what `write` writes into room that there is for it, `room` bytes at first, and as many as it asks for then.
fn append(
    out: &mut Vec<u8>,
    room: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Option<InsufficientSizeError>>,
) -> Result<(), Broken> {
    let start = out.len();
    let mut room = room;
    // Once more when it has said how much it needs.
    for _ in 0..2 {
        out.resize(start + room, 0);
        match write(out.get_mut(start..).unwrap_or_default()) {
            Ok(bytes) => {
                out.truncate(start + bytes);
                return Ok(());
            }
            Err(Some(InsufficientSizeError { required_size })) => room = required_size,
            Err(None) => break,
        }
    }
    out.truncate(start);
    Err(Broken)
}

impl fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSession").field("shaking", &self.shaking).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
