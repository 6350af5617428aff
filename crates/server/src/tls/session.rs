//! The TLS of one connection. Bytes go through it; it holds what is not whole yet, and what the socket has not taken.

// Bytes from outside are read here.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::unreachable)
)]

use std::{
    fmt,
    io::{self, Read as _, Write as _},
    sync::Arc,
};

use rustls::{ServerConfig, ServerConnection};

/// One connection's TLS.
pub struct TlsSession {
    connection: ServerConnection,
    /// Encrypted, and not with the kernel. Empty, without memory, between two writes.
    waiting: Vec<u8>,
    /// How much of it the kernel has.
    written: usize,
    /// The handshake is not done.
    shaking: bool,
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

impl TlsSession {
    /// Of a connection that has just been accepted.
    ///
    /// # Errors
    /// If rustls finds the configuration unfit.
    pub fn new(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        let mut connection = ServerConnection::new(config)?;
        // What is written is bounded by whoever writes.
        connection.set_buffer_limit(None);
        Ok(Self { connection, waiting: Vec::new(), written: 0, shaking: true, at_end: false, said_goodbye: false })
    }

    /// Takes what came from the socket, and appends what it says to `plain`. There may be something to write afterwards.
    pub fn decrypt(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>) -> Decrypted {
        while !bytes.is_empty() && !self.at_end {
            // An error, or nothing taken: its buffer is full of what is no record.
            let is_read = matches!(self.connection.read_tls(&mut bytes), Ok(read) if read > 0);
            let Some(state) = Some(self.connection.process_new_packets()).filter(|_| is_read) else {
                return Decrypted::Failed;
            };
            let Ok(state) = state else {
                self.collect();
                return Decrypted::Failed;
            };
            let room = state.plaintext_bytes_to_read();
            let start = plain.len();
            plain.resize(start + room, 0);
            let (_, room) = plain.split_at_mut(start);
            if self.connection.reader().read_exact(room).is_err() {
                return Decrypted::Failed;
            }
            self.at_end = state.peer_has_closed();
        }
        self.collect();
        let shook = self.shaking && !self.connection.is_handshaking();
        self.shaking = self.connection.is_handshaking();
        Decrypted::Taken { shook, at_end: self.at_end }
    }

    /// Encrypts `plain`, to be written.
    pub fn encrypt(&mut self, plain: &[u8]) {
        // Without a bound of its own, it takes everything.
        let taken = self.connection.writer().write_all(plain);
        debug_assert!(taken.is_ok(), "there is no bound");
        self.collect();
    }

    /// Says that nothing more will be written.
    pub fn say_goodbye(&mut self) {
        if !std::mem::replace(&mut self.said_goodbye, true) {
            self.connection.send_close_notify();
            self.collect();
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

    /// Moves what rustls has to send to what waits.
    fn collect(&mut self) {
        while self.connection.wants_write() {
            let written: io::Result<usize> = self.connection.write_tls(&mut self.waiting);
            debug_assert!(written.is_ok(), "memory takes everything");
            if !matches!(written, Ok(bytes) if bytes > 0) {
                return;
            }
        }
    }
}

impl fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSession").field("shaking", &self.shaking).finish_non_exhaustive()
    }
}
