//! The TLS state of one connection. It stores incomplete records, and encrypted bytes that the socket has not taken.

// This module parses bytes from outside.
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

/// Maximum number of bytes of an incomplete record or handshake message. Exceeds the limits of rustls.
const UNREAD_BYTES_MAX: usize = 96 * 1024;

/// Maximum overhead of a record: header, nonce, type, tag.
const RECORD_BYTES_MAX: usize = 40;

/// Maximum plaintext length of a record.
const RECORD_PLAIN_BYTES_MAX: usize = 16_384;

/// The TLS state of one connection. An idle connection holds no buffers.
pub struct TlsSession {
    connection: UnbufferedServerConnection,
    /// Received bytes of an incomplete record.
    unread: Vec<u8>,
    /// Encrypted bytes that the kernel has not taken. Empty, without memory, between two writes.
    waiting: Vec<u8>,
    /// How many of these bytes the kernel has taken.
    written: usize,
    /// The handshake is in progress.
    shaking: bool,
    /// TLS has failed. rustls must not be called again.
    failed: bool,
    /// The peer has sent `close_notify`.
    at_end: bool,
    sent_close_notify: bool,
}

/// The result of decryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decrypted {
    /// The bytes were processed.
    Taken {
        /// They completed the handshake.
        shook: bool,
        /// They end the peer's data.
        at_end: bool,
    },
    /// The bytes are not TLS, or no common parameters exist. The caller must write the alert and close the connection.
    Failed,
}

/// The TLS state cannot continue.
struct Broken;

/// The state after all received bytes were processed.
enum Ready {
    /// More bytes from the peer are needed.
    Blocked,
    /// Data can be written.
    Open,
}

impl TlsSession {
    /// The state of a new connection.
    ///
    /// # Errors
    /// If rustls rejects the configuration.
    pub fn new(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(Self {
            connection: UnbufferedServerConnection::new(config)?,
            unread: Vec::new(),
            waiting: Vec::new(),
            written: 0,
            shaking: true,
            failed: false,
            at_end: false,
            sent_close_notify: false,
        })
    }

    /// Decrypts received `bytes` in place and appends the plaintext to `plain`. Afterwards there may be bytes to write.
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

    /// Encrypts `plain` for writing. Returns `false` if the handshake is in progress or the keys are used up.
    pub fn encrypt(&mut self, plain: &[u8]) -> bool {
        let records = plain.len() / RECORD_PLAIN_BYTES_MAX + 1;
        let room = plain.len() + records * RECORD_BYTES_MAX;
        self.write_record(room, |traffic, room| traffic.encrypt(plain, room))
    }

    /// Sends `close_notify`, if the handshake is complete.
    pub fn send_close_notify(&mut self) {
        if !std::mem::replace(&mut self.sent_close_notify, true) {
            #[expect(clippy::redundant_closure_for_method_calls, reason = "the method is of one lifetime")]
            self.write_record(RECORD_BYTES_MAX, |traffic, room| traffic.queue_close_notify(room));
        }
    }

    /// The encrypted bytes to write next.
    pub fn waiting(&self) -> &[u8] {
        self.waiting.get(self.written..).unwrap_or_default()
    }

    /// Whether there are bytes to write.
    pub fn has_waiting(&self) -> bool {
        self.written < self.waiting.len()
    }

    /// Removes the first `bytes` of [`TlsSession::waiting`], which the kernel has taken.
    pub fn wrote(&mut self, bytes: usize) {
        self.written += bytes;
        if !self.has_waiting() {
            (self.waiting, self.written) = (Vec::new(), 0);
        }
    }

    /// Whether the handshake is in progress.
    pub const fn is_shaking(&self) -> bool {
        self.shaking
    }

    /// Number of buffered bytes for the socket.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting.capacity()
    }

    /// Appends the output of `speak` to the bytes to write. Returns `false` if the connection cannot be written to.
    fn write_record(
        &mut self,
        room: usize,
        mut encode_record: impl FnMut(&mut WriteTraffic<'_, ServerConnectionData>, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> bool {
        if self.failed {
            return false;
        }
        let mut unread = std::mem::take(&mut self.unread);
        // Complete records were processed on arrival, so this decrypts nothing.
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
        let appended = match state {
            Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                append(&mut self.waiting, room, |room| match encode_record(&mut traffic, room) {
                    Err(EncryptError::InsufficientSize(size)) => Err(Some(size)),
                    Err(EncryptError::EncryptExhausted) => Err(None),
                    Ok(bytes) => Ok(bytes),
                })
            }
            _ => Err(Broken),
        };
        self.failed |= appended.is_err();
        self.keep(unread, discard);
        appended.is_ok()
    }

    /// Stores `unread` without its first `used` bytes, which were processed.
    fn keep(&mut self, mut unread: Vec<u8>, used: usize) {
        unread.drain(..used.min(unread.len()));
        self.unread = if unread.is_empty() { Vec::new() } else { unread };
    }

    /// Processes complete records at the front of `bytes` and collects the responses. Returns the number of bytes
    /// processed.
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

    /// Collects the alert for the peer.
    fn collect_alert(&mut self) {
        // While there are bytes to write, rustls processes no received bytes.
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

/// Appends the output of `write`. It gets `room` bytes at first, and then as many as it requests.
fn append(
    out: &mut Vec<u8>,
    room: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Option<InsufficientSizeError>>,
) -> Result<(), Broken> {
    let start = out.len();
    let mut room = room;
    // A second attempt if `write` has returned the required size.
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
