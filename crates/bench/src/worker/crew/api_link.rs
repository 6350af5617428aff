//! A kept-alive connection to the HTTP API, through which a publisher sends publications without waiting for answers.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};

use mio::net::TcpStream;

use super::publishing::Awaited;
use crate::api::Responses;
use crate::worker::dialogue::Ended;
use crate::worker::outbox::Outbox;
use crate::worker::session::open_socket;

/// The connection and the publications whose answers are pending, in order.
pub struct ApiLink {
    socket: TcpStream,
    is_connected: bool,
    responses: Responses,
    awaited: VecDeque<Awaited>,
    outbox: Outbox,
}

impl ApiLink {
    /// Begins to connect.
    pub fn open(source: IpAddr, address: SocketAddr) -> std::io::Result<Self> {
        Ok(ApiLink {
            socket: open_socket(source, address, None)?,
            is_connected: false,
            responses: Responses::default(),
            awaited: VecDeque::new(),
            outbox: Outbox::default(),
        })
    }

    pub fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    pub fn is_connected(&self) -> bool {
        self.is_connected
    }

    pub fn awaited(&self) -> usize {
        self.awaited.len()
    }

    /// Sends a publication; its answer is the next one.
    pub fn send(&mut self, publication: Awaited, request: &[u8]) -> Result<(), Ended> {
        self.awaited.push_back(publication);
        self.outbox.push(request);
        self.flush()
    }

    /// Sends as much as the kernel accepts.
    pub fn flush(&mut self) -> Result<(), Ended> {
        let socket = &mut self.socket;
        self.outbox.flush(|bytes| socket.write(bytes))
    }

    /// Whether there are bytes that the kernel has not accepted yet: flush again.
    pub fn is_blocked(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Reads all answers. `answered` receives the publication and the error, 0 for success.
    pub fn on_event(
        &mut self,
        writable: bool,
        buffer: &mut [u8],
        mut answered: impl FnMut(Awaited, u32),
    ) -> Result<(), Ended> {
        if writable && !self.is_connected {
            if let Some(err) = self.socket.take_error().ok().flatten() {
                return Err(format!("connect: {}", err.kind()));
            }
            self.is_connected = true;
        }
        loop {
            let bytes = match self.socket.read(buffer) {
                Ok(0) => return Err("the API connection was closed".into()),
                Ok(bytes) => bytes,
                Err(err) if matches!(err.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => return Ok(()),
                Err(err) => return Err(format!("read: {}", err.kind())),
            };
            self.responses.push(buffer.get(..bytes).unwrap_or_default());
            while let Some(error) = self.responses.next()? {
                let publication = self.awaited.pop_front().ok_or("an answer without a request")?;
                answered(publication, error);
            }
        }
    }
}
