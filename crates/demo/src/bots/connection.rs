//! A bot's connection: the subset of the WebSocket protocol and of the Protobuf client protocol that a bot needs.
//!
//! Field numbers are from `centrifugal/protocol`, `definitions/client.proto`.

use std::{
    borrow::Cow,
    io::{ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use dunlin_protocol::{
    DecodeError, Encoding,
    protobuf::wire::{Reader, write_bytes, write_entry_bytes, write_number},
};
use dunlin_rooms::wire::{Input, encode_input};

use crate::response::ResponseHead;

/// The path of the WebSocket endpoint.
const PATH: &str = "/connection/websocket";

/// All bots wait while one of them connects.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of bytes of an incomplete frame.
const UNREAD_BYTES_MAX: usize = 4 << 20;

/// The status of a handshake that has succeeded.
const UPGRADED_STATUS: u32 = 101;

const CONNECT_ID: u64 = 1;
const SUBSCRIBE_ID: u64 = 2;

pub struct BotConnection {
    socket: TcpStream,
    upgraded: bool,
    unread: Vec<u8>,
    number: u32,
}

/// A message from the room.
pub enum BotUpdate<'a> {
    Snapshot(&'a [u8]),
    /// An event as JSON.
    Event(&'a [u8]),
    /// The data of the answer to the join.
    Joined(&'a [u8]),
}

/// Why a connection has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The server closed it, or sent invalid data.
    Closed,
    /// The server rejected the bot with this error code, or the handshake with this HTTP status.
    Refused { code: u32, message: Box<str> },
}

impl From<DecodeError> for Lost {
    fn from(_: DecodeError) -> Self {
        Self::Closed
    }
}

impl BotConnection {
    /// Connects and sends the WebSocket handshake.
    pub fn open(node: SocketAddr) -> std::io::Result<Self> {
        let mut socket = TcpStream::connect_timeout(&node, CONNECT_TIMEOUT)?;
        socket.set_nodelay(true)?;
        let request = format!(
            "GET {PATH} HTTP/1.1\r\nHost: {node}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: ZHVubGluLWRlbW8tYm90cw==\r\nSec-WebSocket-Protocol: centrifuge-protobuf\r\n\r\n"
        );
        socket.write_all(request.as_bytes())?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, upgraded: false, unread: Vec::new(), number: 0 })
    }

    /// Reads the available data. When the WebSocket is open, joins `room` with `join`.
    ///
    /// # Errors
    /// [`Lost`], also from `on_update`.
    pub fn read(
        &mut self,
        room: &str,
        join: &str,
        buffer: &mut [u8],
        mut on_update: impl FnMut(BotUpdate<'_>) -> Result<(), Lost>,
    ) -> Result<(), Lost> {
        loop {
            let bytes = match self.socket.read(buffer) {
                Ok(0) => return Err(Lost::Closed),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(_) => return Err(Lost::Closed),
            };
            self.unread.extend_from_slice(buffer.get(..bytes).unwrap_or_default());
            self.take_in(room, join, &mut on_update)?;
            if self.unread.len() > UNREAD_BYTES_MAX {
                return Err(Lost::Closed);
            }
            if bytes < buffer.len() {
                return Ok(());
            }
        }
    }

    /// Sends an input.
    ///
    /// # Errors
    /// [`Lost::Closed`]
    pub fn input(&mut self, data: &[u8]) -> Result<(), Lost> {
        self.number += 1;
        let input = Input { number: self.number, room: Cow::Borrowed(""), data: Cow::Borrowed(data) };
        let mut encoded = Vec::new();
        encode_input(Encoding::Protobuf, &input, &mut encoded);
        let mut send = Vec::new();
        write_bytes(&mut send, 1, &encoded);
        let mut commands = Vec::new();
        append_command(0, 12, &send, &mut commands);
        self.write(BINARY, &commands)
    }

    fn take_in(
        &mut self,
        room: &str,
        join: &str,
        on_update: &mut impl FnMut(BotUpdate<'_>) -> Result<(), Lost>,
    ) -> Result<(), Lost> {
        let unread = std::mem::take(&mut self.unread);
        let mut rest = unread.as_slice();
        if !self.upgraded {
            let Some(head) = ResponseHead::parse(rest).map_err(|_| Lost::Closed)? else {
                self.unread = unread;
                return Ok(());
            };
            if head.status != UPGRADED_STATUS {
                return Err(Lost::Refused { code: head.status, message: head.reason });
            }
            rest = rest.get(head.bytes..).unwrap_or_default();
            self.upgraded = true;
            self.greet(room, join)?;
        }
        while let Some((opcode, payload, after)) = split_frame(rest) {
            rest = after;
            match opcode {
                BINARY => self.messages(payload, on_update)?,
                PING => self.write(PONG, payload)?,
                PONG => {}
                _ => return Err(Lost::Closed),
            }
        }
        let used = unread.len() - rest.len();
        self.unread = unread;
        self.unread.drain(..used);
        Ok(())
    }

    fn greet(&mut self, room: &str, join: &str) -> Result<(), Lost> {
        let (mut connect, mut subscribe, mut commands) = (Vec::new(), Vec::new(), Vec::new());
        write_bytes(&mut connect, 4, b"demo-bot");
        append_command(CONNECT_ID, 4, &connect, &mut commands);
        write_bytes(&mut subscribe, 1, room.as_bytes());
        write_bytes(&mut subscribe, 8, join.as_bytes());
        append_command(SUBSCRIBE_ID, 5, &subscribe, &mut commands);
        self.write(BINARY, &commands)
    }

    fn messages(
        &mut self,
        payload: &[u8],
        on_update: &mut impl FnMut(BotUpdate<'_>) -> Result<(), Lost>,
    ) -> Result<(), Lost> {
        let mut messages = Reader::new(payload);
        while !messages.rest().is_empty() {
            let reply = messages.length_prefixed()?;
            if reply.is_empty() {
                // The server's ping. Send a pong.
                self.write(BINARY, &[0])?;
            }
            let mut fields = Reader::new(reply);
            while let Some((number, value)) = fields.field()? {
                match number {
                    2 => return Err(read_error(value.bytes()?)?),
                    4 => read_push(value.bytes()?, on_update)?,
                    6 => read_subscribed(value.bytes()?, on_update)?,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Sends all bytes or fails. A bot sends so little that the socket is full only if nothing was read there for a while.
    fn write(&mut self, opcode: u8, payload: &[u8]) -> Result<(), Lost> {
        let mut frame = vec![0x80 | opcode];
        if let Ok(length @ 0..TWO_BYTES_FOLLOW) = u8::try_from(payload.len()) {
            frame.push(MASKED | length);
        } else {
            let length = u16::try_from(payload.len()).map_err(|_| Lost::Closed)?;
            frame.push(MASKED | TWO_BYTES_FOLLOW);
            frame.extend_from_slice(&length.to_be_bytes());
        }
        // A zero mask leaves the payload unchanged. Masks keep a web page from choosing the bytes that a faulty proxy sees; no web
        // page chooses what a bot sends.
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(payload);
        let written = self.socket.write(&frame).map_err(|_| Lost::Closed)?;
        if written == frame.len() { Ok(()) } else { Err(Lost::Closed) }
    }
}

const BINARY: u8 = 2;
const PING: u8 = 9;
const PONG: u8 = 10;
const MASKED: u8 = 0x80;
/// The value of the length byte if the length follows in two bytes (RFC 6455, section 5.2).
const TWO_BYTES_FOLLOW: u8 = 0x7e;

/// The opcode and payload of the first frame, and the bytes after it (RFC 6455, section 5.2). Servers do not mask, and
/// this one does not fragment messages.
fn split_frame(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[first, length], rest) = bytes.split_first_chunk()?;
    let (length, rest) = match length {
        126 => rest.split_first_chunk().map(|(length, rest)| (u64::from(u16::from_be_bytes(*length)), rest))?,
        127 => rest.split_first_chunk().map(|(length, rest)| (u64::from_be_bytes(*length), rest))?,
        length => (length.into(), rest),
    };
    let (payload, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    Some((first & 0x0f, payload, rest))
}

/// Appends a command with parameters in the field `method`.
fn append_command(id: u64, method: u32, params: &[u8], out: &mut Vec<u8>) {
    use dunlin_protocol::protobuf::wire::ProtobufSink as _;
    let mut command = Vec::new();
    write_number(&mut command, 1, id);
    write_entry_bytes(&mut command, method, params);
    out.varint(command.len() as u64);
    out.extend_from_slice(&command);
}

/// Parses an error reply.
fn read_error(error: &[u8]) -> Result<Lost, Lost> {
    let (mut code, mut message) = (0, Box::default());
    let mut fields = Reader::new(error);
    while let Some((number, value)) = fields.field()? {
        match number {
            1 => code = value.varint()? as u32,
            2 => message = String::from_utf8_lossy(value.bytes()?).into(),
            _ => {}
        }
    }
    Ok(Lost::Refused { code, message })
}

/// Parses a push: a publication, or for example the end of the subscription.
fn read_push(push: &[u8], on_update: &mut impl FnMut(BotUpdate<'_>) -> Result<(), Lost>) -> Result<(), Lost> {
    let mut fields = Reader::new(push);
    while let Some((number, value)) = fields.field()? {
        match number {
            4 => read_publication(value.bytes()?, on_update)?,
            7 => return Err(Lost::Closed),
            _ => {}
        }
    }
    Ok(())
}

/// Parses the answer to the join.
fn read_subscribed(result: &[u8], on_update: &mut impl FnMut(BotUpdate<'_>) -> Result<(), Lost>) -> Result<(), Lost> {
    let mut fields = Reader::new(result);
    while let Some((number, value)) = fields.field()? {
        if number == 11 {
            on_update(BotUpdate::Joined(value.bytes()?))?;
        }
    }
    Ok(())
}

/// A publication with an offset is an event; one without is a snapshot.
fn read_publication(
    publication: &[u8],
    on_update: &mut impl FnMut(BotUpdate<'_>) -> Result<(), Lost>,
) -> Result<(), Lost> {
    let (mut data, mut offset) = (&[][..], 0);
    let mut fields = Reader::new(publication);
    while let Some((number, value)) = fields.field()? {
        match number {
            4 => data = value.bytes()?,
            6 => offset = value.varint()?,
            _ => {}
        }
    }
    on_update(if offset == 0 { BotUpdate::Snapshot(data) } else { BotUpdate::Event(data) })
}

#[cfg(test)]
mod tests;
