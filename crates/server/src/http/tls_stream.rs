//! A socket of the control thread, with TLS or without.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use dunlin_net::{Decrypted, TlsSession};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// Maximum number of bytes per read from the socket.
const READ_BYTES: usize = 8_192;

/// Maximum number of bytes that one write encrypts.
const WRITE_BYTES_MAX: usize = 16_384;

/// A connection whose TLS handshake, if any, may have begun on a shard.
#[derive(Debug)]
pub struct TlsStream {
    socket: TcpStream,
    tls: Option<Box<TlsSession>>,
    /// Decrypted bytes that are not read yet.
    plain: Vec<u8>,
    read: usize,
    ended: bool,
}

impl TlsStream {
    /// Wraps a socket and its TLS state.
    pub const fn new(socket: TcpStream, tls: Option<Box<TlsSession>>) -> Self {
        Self { socket, tls, plain: Vec::new(), read: 0, ended: false }
    }

    /// The socket, its TLS state, and the decrypted bytes that were not read.
    pub fn into_parts(mut self) -> (TcpStream, Option<Box<TlsSession>>, Vec<u8>) {
        let rest = self.plain.split_off(self.read);
        (self.socket, self.tls, rest)
    }

    fn poll_write_waiting(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(tls) = &mut self.tls else { return Poll::Ready(Ok(())) };
        while tls.has_waiting() {
            match ready!(Pin::new(&mut self.socket).poll_write(cx, tls.waiting()))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                bytes => tls.wrote(bytes),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.tls.is_none() && this.plain.is_empty() {
            return Pin::new(&mut this.socket).poll_read(cx, buf);
        }
        loop {
            if this.read < this.plain.len() {
                let unread = this.plain.get(this.read..).unwrap_or_default();
                let (taken, _) = unread.split_at(unread.len().min(buf.remaining()));
                buf.put_slice(taken);
                this.read += taken.len();
                if this.read == this.plain.len() {
                    (this.plain, this.read) = (Vec::new(), 0);
                }
                return Poll::Ready(Ok(()));
            }
            let Some(tls) = this.tls.as_mut().filter(|_| !this.ended) else { return Poll::Ready(Ok(())) };
            let mut bytes = [0; READ_BYTES];
            let mut encrypted = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut this.socket).poll_read(cx, &mut encrypted))?;
            if encrypted.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            match tls.decrypt(encrypted.filled_mut(), &mut this.plain) {
                Decrypted::Taken { at_end, .. } => this.ended = at_end,
                Decrypted::Failed => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
            }
            // Pending TLS messages, such as new keys, are sent at once. Bytes that the socket does not take follow with
            // the next write.
            if let Poll::Ready(Err(error)) = this.poll_write_waiting(cx) {
                return Poll::Ready(Err(error));
            }
        }
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.tls.is_none() {
            return Pin::new(&mut this.socket).poll_write(cx, bytes);
        }
        ready!(this.poll_write_waiting(cx))?;
        let (now, _) = bytes.split_at(bytes.len().min(WRITE_BYTES_MAX));
        if !this.tls.as_mut().is_none_or(|tls| tls.encrypt(now)) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if let Poll::Ready(Err(error)) = this.poll_write_waiting(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(now.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_write_waiting(cx))?;
        Pin::new(&mut this.socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(tls) = &mut this.tls {
            tls.send_close_notify();
        }
        ready!(this.poll_write_waiting(cx))?;
        Pin::new(&mut this.socket).poll_shutdown(cx)
    }
}
