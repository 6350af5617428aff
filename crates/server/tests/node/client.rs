//! A client that writes and reads bytes.

use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpStream},
};

use crate::node::rig::PATIENCE;

pub const TEXT: u8 = 1;
pub const CLOSE: u8 = 8;
pub const PING: u8 = 9;
pub const PONG: u8 = 10;

/// A connection, with the bytes that were read but not used yet.
pub struct Client {
    stream: TcpStream,
    read: Vec<u8>,
}

/// An upgrade request.
pub fn upgrade_request(more_fields: &str) -> String {
    format!(
        "GET /connection/websocket HTTP/1.1\r\nHost: dunlin.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more_fields}\r\n"
    )
}

/// A complete masked frame.
pub fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    const MASK: [u8; 4] = [0x12, 0x34, 0x56, 0x78];
    let mut bytes = vec![0x80 | opcode];
    match payload.len() {
        length @ 0..126 => bytes.push(0x80 + length as u8),
        length => {
            bytes.push(0xfe);
            bytes.extend_from_slice(&u16::try_from(length).expect("a short frame").to_be_bytes());
        }
    }
    bytes.extend_from_slice(&MASK);
    bytes.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).expect("the node listens"))
    }

    pub fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Self { stream, read: Vec::new() }
    }

    /// Opens a WebSocket.
    pub fn open(address: SocketAddr) -> Self {
        let mut client = Self::connect(address);
        client.write(upgrade_request("").as_bytes());
        let response = client.read_head();
        assert!(response.starts_with("HTTP/1.1 101 "), "{response}");
        client
    }

    /// Opens a session: a WebSocket with a `connect`.
    pub fn session(address: SocketAddr) -> Self {
        let mut client = Self::open(address);
        client.send(r#"{"id":1,"connect":{}}"#);
        let reply = client.read_line();
        assert!(reply.starts_with(r#"{"id":1,"connect":{"#), "{reply}");
        client
    }

    /// Opens a session that is subscribed to `channels`.
    pub fn subscribed(address: SocketAddr, channels: &[String]) -> Self {
        let mut client = Self::session(address);
        for (id, channel) in (2..).zip(channels) {
            client.send(&format!(r#"{{"id":{id},"subscribe":{{"channel":"{channel}"}}}}"#));
            let reply = client.read_line();
            assert!(reply.starts_with(&format!(r#"{{"id":{id},"subscribe":{{"#)), "{reply}");
        }
        client
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the node takes it");
    }

    /// Writes bytes. The server may have closed the connection.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a text frame.
    pub fn send(&mut self, text: &str) {
        self.write(&frame(TEXT, text.as_bytes()));
    }

    pub fn finish(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("the node has not gone");
    }

    /// Reads the head of a response.
    pub fn read_head(&mut self) -> String {
        loop {
            if let Some(end) = self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = self.read.drain(..end + 4).collect();
                return String::from_utf8(head).expect("ASCII");
            }
            assert!(self.read_more() > 0, "ended within a head: {:?}", String::from_utf8_lossy(&self.read));
        }
    }

    /// Reads the opcode and the payload of a frame; `None` at the end.
    pub fn read_frame(&mut self) -> Option<(u8, Vec<u8>)> {
        self.read_raw_frame().map(|(first, payload)| (first & 0x0f, payload))
    }

    /// Reads a chunk of a response, as text.
    pub fn read_chunk(&mut self) -> String {
        loop {
            if let Some(at) = self.read.windows(2).position(|window| window == b"\r\n") {
                let size = std::str::from_utf8(&self.read[..at]).expect("ASCII");
                let size = usize::from_str_radix(size, 16).expect("a chunk's size");
                if self.read.len() >= at + 2 + size + 2 {
                    let chunk: Vec<u8> = self.read.drain(..at + 2 + size + 2).collect();
                    assert_eq!(&chunk[at + 2 + size..], b"\r\n");
                    return String::from_utf8(chunk[at + 2..at + 2 + size].to_vec()).expect("text");
                }
            }
            assert!(self.read_more() > 0, "ended within a chunk");
        }
    }

    /// Reads the first byte and the payload of a frame; `None` at the end.
    pub fn read_raw_frame(&mut self) -> Option<(u8, Vec<u8>)> {
        while self.read.len() < 2 {
            if self.read_more() == 0 {
                assert!(self.read.is_empty(), "ended within a frame");
                return None;
            }
        }
        let (header_len, length) = loop {
            match *self.read.as_slice() {
                [_, 126, high, low, ..] => break (4, usize::from(u16::from_be_bytes([high, low]))),
                [_, 126 | 127, ..] if self.read.len() < 10 => assert!(self.read_more() > 0, "ended within a header"),
                [_, 127, ..] => break (10, u64::from_be_bytes(self.read[2..10].try_into().expect("8 bytes")) as usize),
                [_, length, ..] => break (2, usize::from(length)),
                _ => unreachable!("two bytes are there"),
            }
        };
        while self.read.len() < header_len + length {
            assert!(self.read_more() > 0, "ended within a frame");
        }
        let first = self.read[0];
        let payload = self.read.drain(..header_len + length).skip(header_len).collect();
        Some((first, payload))
    }

    /// Reads a text frame.
    pub fn read_line(&mut self) -> String {
        let (opcode, payload) = self.read_frame().expect("a frame");
        let text = String::from_utf8(payload).expect("text");
        assert_eq!(opcode, TEXT, "{text:?}");
        text
    }

    /// Reads text frames until they contain `count` lines.
    pub fn read_lines(&mut self, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        while lines.len() < count {
            lines.extend(self.read_line().lines().map(str::to_owned));
        }
        assert_eq!(lines.len(), count, "more than expected: {lines:?}");
        lines
    }

    /// Reads the code of a close frame.
    pub fn read_close(&mut self) -> u16 {
        let (opcode, payload) = self.read_frame().expect("a frame");
        assert_eq!(opcode, CLOSE, "{:?}", String::from_utf8_lossy(&payload));
        u16::from_be_bytes([payload[0], payload[1]])
    }

    /// Reads everything until the end. A reset counts as the end.
    pub fn read_to_end(&mut self) -> String {
        while self.read_more() > 0 {}
        String::from_utf8_lossy(&std::mem::take(&mut self.read)).into_owned()
    }

    /// Reads the status of a response; `None` if the connection ends first.
    pub fn try_read_status(&mut self) -> Option<String> {
        while self.read.len() < 12 {
            if self.read_more() == 0 {
                return None;
            }
        }
        Some(String::from_utf8_lossy(&self.read[9..12]).into_owned())
    }

    fn read_more(&mut self) -> usize {
        let mut bytes = vec![0; 65_536];
        let length = match self.stream.read(&mut bytes) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            Err(error) => panic!("nothing came: {error}"),
        };
        self.read.extend_from_slice(&bytes[..length]);
        length
    }
}
