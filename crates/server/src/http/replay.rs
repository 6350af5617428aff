//! A socket of which a part has been read already: that part is read again first.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::Activity;
use crate::tls::TlsStream;

/// A socket that can be taken away from whoever reads and writes it; then it is at its end for them.
#[derive(Clone, Debug)]
pub struct Socket(Arc<Mutex<Option<TlsStream>>>);

impl Socket {
    /// Of a connection.
    pub fn new(stream: TlsStream) -> Self {
        Self(Arc::new(Mutex::new(Some(stream))))
    }

    /// Takes it away, if nobody has before.
    pub fn take(&self) -> Option<TlsStream> {
        self.stream().take()
    }

    fn stream(&self) -> MutexGuard<'_, Option<TlsStream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `act` does with it; an error once it has been taken away.
    fn poll<T>(&self, act: impl FnOnce(Pin<&mut TlsStream>) -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match self.stream().as_mut() {
            Some(stream) => act(Pin::new(stream)),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

/// The socket of an HTTP connection.
pub struct Replay {
    socket: Socket,
    /// Read by the shard, and not yet by us.
    head: Bytes,
    activity: Arc<Activity>,
}

impl Replay {
    /// Of `socket`, from which `head` was read. Bytes that come are told to `activity`.
    pub fn new(socket: Socket, head: Vec<u8>, activity: Arc<Activity>) -> Self {
        Self { socket, head: head.into(), activity }
    }

    /// The socket, and what was read and not yet taken.
    pub fn into_parts(self) -> Option<(TlsStream, Bytes)> {
        Some((self.socket.take()?, self.head))
    }
}

impl AsyncRead for Replay {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.head.is_empty() {
            let taken = self.head.len().min(buf.remaining());
            buf.put_slice(self.head.get(..taken).unwrap_or_default());
            self.head.advance(taken);
            self.activity.bytes_came();
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let polled = self.socket.poll(|stream| stream.poll_read(cx, buf));
        if polled.is_ready() && buf.filled().len() > before {
            self.activity.bytes_came();
        }
        polled
    }
}

impl AsyncWrite for Replay {
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
