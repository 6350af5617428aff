//! A socket from which some bytes have already been read; they are returned first.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use bytes::{Buf as _, Bytes};
use dunlin_net::{RequestScanner, Scanned};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{connection::Activity, tls_stream::TlsStream};

/// A socket that can be detached from its user, which then sees its end.
#[derive(Clone, Debug)]
pub struct Socket(Arc<Mutex<Option<TlsStream>>>);

impl Socket {
    /// The socket of a connection.
    pub fn new(stream: TlsStream) -> Self {
        Self(Arc::new(Mutex::new(Some(stream))))
    }

    /// Detaches the socket, unless it is detached.
    pub fn take(&self) -> Option<TlsStream> {
        self.stream().take()
    }

    fn stream(&self) -> MutexGuard<'_, Option<TlsStream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls the socket; an error if it is detached.
    fn poll<T>(&self, act: impl FnOnce(Pin<&mut TlsStream>) -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match self.stream().as_mut() {
            Some(stream) => act(Pin::new(stream)),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

/// The socket of an HTTP connection.
pub struct ReplaySocket {
    socket: Socket,
    /// Bytes that the shard has read and that are not returned yet.
    head: Bytes,
    activity: Arc<Activity>,
    scanner: RequestScanner,
    /// The result of the next read after the scanner has stopped the connection.
    fault: Option<Fault>,
}

/// How a stopped connection ends for its reader.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The reader receives the end of a head with an invalid byte, to which it responds with 400.
    Head,
    /// The read of the body fails.
    Body,
}

impl ReplaySocket {
    /// Wraps `socket`, from which `head` was read. `activity` is notified of reads, and `scanner` scans the bytes.
    pub fn new(socket: Socket, head: Vec<u8>, activity: Arc<Activity>, scanner: RequestScanner) -> Self {
        Self { socket, head: head.into(), activity, scanner, fault: None }
    }

    /// Scans the bytes after the first `before` bytes of `buf`, and removes those that must not be passed on.
    fn scan(&mut self, before: usize, buf: &mut ReadBuf<'_>) -> io::Result<()> {
        let came = buf.filled().get(before..).unwrap_or_default();
        if came.is_empty() {
            return Ok(());
        }
        self.activity.bytes_came();
        let scanned = self.scanner.scan(came);
        if self.scanner.is_lost() {
            self.activity.close_after_response();
        }
        match scanned {
            Scanned::All => Ok(()),
            Scanned::BadHead { good } => {
                self.fault = Some(Fault::Head);
                self.activity.stop_requests();
                buf.set_filled(before + good);
                self.head = Bytes::from_static(INVALID_HEAD);
                self.put_head(buf);
                Ok(())
            }
            Scanned::BadBody { good } => {
                self.fault = Some(Fault::Body);
                buf.set_filled(before + good);
                if good > 0 { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
            }
        }
    }

    /// Copies as much of `head` to `buf` as fits.
    fn put_head(&mut self, buf: &mut ReadBuf<'_>) {
        let taken = self.head.len().min(buf.remaining());
        buf.put_slice(self.head.get(..taken).unwrap_or_default());
        self.head.advance(taken);
    }

    /// The socket, and the bytes that were read but not returned.
    pub fn into_parts(self) -> Option<(TlsStream, Bytes)> {
        Some((self.socket.take()?, self.head))
    }
}

impl AsyncRead for ReplaySocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.fault {
            None => {}
            Some(Fault::Head) => {
                self.put_head(buf);
                return Poll::Ready(Ok(()));
            }
            Some(Fault::Body) => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
        }
        let before = buf.filled().len();
        if !self.head.is_empty() {
            self.put_head(buf);
            return Poll::Ready(self.scan(before, buf));
        }
        match self.socket.poll(|stream| stream.poll_read(cx, buf)) {
            Poll::Ready(Ok(())) => Poll::Ready(self.scan(before, buf)),
            polled => polled,
        }
    }
}

/// Completes any partial head with a byte that is invalid in a head (RFC 9110, section 5.5).
const INVALID_HEAD: &[u8] = b"\0\r\n\r\n";

impl AsyncWrite for ReplaySocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.socket.poll(|stream| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.socket.poll(|stream| stream.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll(|stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll(|stream| stream.poll_shutdown(cx))
    }
}
