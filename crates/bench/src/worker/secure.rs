//! The client side of TLS, between a session and its socket.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::{ClientConfig, ClientConnection};

use crate::error::Error;
use crate::tls;

/// If rustls had at least this space left after a read, the socket is empty.
const ROOM_BYTES_MIN: usize = 1_024;

/// The TLS state of a connection.
pub struct Secure(Box<ClientConnection>);

/// The result of a read.
pub struct DecryptedRead {
    /// Bytes read from the socket.
    pub raw_bytes: usize,
    /// Decrypted bytes at the beginning of the buffer.
    pub bytes: usize,
    /// Whether more data may be available at once.
    pub more: bool,
}

/// The TLS configuration of a worker's connections.
pub fn tls_config() -> Result<Arc<ClientConfig>, Error> {
    tls::client_config().map_err(unfit)
}

/// The TLS state for a new connection.
pub fn secure(config: &Arc<ClientConfig>) -> Result<Secure, Error> {
    tls::client(Arc::clone(config)).map(|connection| Secure(Box::new(connection))).map_err(unfit)
}

fn unfit(error: rustls::Error) -> Error {
    Error::os("speak TLS", io::Error::other(error), "leave out --tls")
}

impl Secure {
    /// Encrypts and sends. Data that is written during the handshake is sent after it. Returns how many of the bytes are
    /// taken; what is taken and not sent yet follows with the next flush or read.
    pub fn write(&mut self, socket: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
        let mut taken = 0;
        loop {
            let more = self.0.writer().write(bytes.get(taken..).unwrap_or_default())?;
            taken += more;
            self.flush(socket)?;
            if more == 0 || taken == bytes.len() || self.has_unsent() {
                return Ok(taken);
            }
        }
    }

    /// Whether encrypted bytes wait for the socket.
    pub fn has_unsent(&self) -> bool {
        self.0.wants_write()
    }

    /// Reads once; `None` if there is nothing to read.
    pub fn read(&mut self, socket: &mut TcpStream, buffer: &mut [u8]) -> io::Result<Option<DecryptedRead>> {
        let raw_bytes = match self.0.read_tls(socket) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => bytes,
            Err(err) if err.kind() == ErrorKind::WouldBlock => 0,
            Err(err) => return Err(err),
        };
        self.0.process_new_packets().map_err(io::Error::other)?;
        self.flush(socket)?;
        let bytes = match self.0.reader().read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => bytes,
            Err(err) if err.kind() == ErrorKind::WouldBlock => 0,
            Err(err) => return Err(err),
        };
        let more = raw_bytes >= ROOM_BYTES_MIN || bytes == buffer.len();
        Ok((raw_bytes > 0 || bytes > 0).then_some(DecryptedRead { raw_bytes, bytes, more }))
    }

    /// Sends what is encrypted, as much as the kernel accepts.
    pub fn flush(&mut self, socket: &mut TcpStream) -> io::Result<()> {
        while self.0.wants_write() {
            match self.0.write_tls(socket) {
                Ok(_) => {}
                Err(err) if err.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(err) => return Err(err),
            }
        }
        Ok(())
    }
}
