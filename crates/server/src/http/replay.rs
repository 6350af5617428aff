//! A socket of which a part has been read already: that part is read again first.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Buf as _, Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::connection::Activity;

/// The socket of an HTTP connection.
pub struct Replay {
    stream: TcpStream,
    /// Read by the shard, and not yet by us.
    head: Bytes,
    activity: Arc<Activity>,
}

impl Replay {
    /// Of `stream`, from which `head` was read. Bytes that come are told to `activity`.
    pub fn new(stream: TcpStream, head: Vec<u8>, activity: Arc<Activity>) -> Self {
        Self { stream, head: head.into(), activity }
    }

    /// The socket, and what was read and not yet taken.
    pub fn into_parts(self) -> (TcpStream, Bytes) {
        (self.stream, self.head)
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
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if polled.is_ready() && buf.filled().len() > before {
            self.activity.bytes_came();
        }
        polled
    }
}

impl AsyncWrite for Replay {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
