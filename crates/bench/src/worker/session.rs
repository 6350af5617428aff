//! One client session, from the TCP connect to its last publication.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};

use mio::net::TcpStream;
use socket2::{Domain, Socket, Type};

use super::outbox::Outbox;
use super::secure::{DecryptedRead, Secure};
use crate::commands::{self, CONNECT_ID, EncodingOption};
use crate::control::{MessageContent, Target};
use crate::peer::{PeerProtocol, PeerReaction};
use crate::wire::{self, Frame, UnstampedMessage, Walk};

/// The stage of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadSessionStage {
    /// The TCP connection is being established.
    Connecting,
    /// The upgrade request is sent.
    Upgrading,
    /// Connect (and subscribe) are sent.
    Greeting,
    /// All commands are answered, and publications can arrive.
    Ready,
}

/// A client session. Its caller provides the read buffer, so that idle sessions have none.
pub struct Session {
    socket: TcpStream,
    secure: Option<Secure>,
    pub stage: LoadSessionStage,
    /// Whether the session subscribes to the channel of the run.
    subscribes: bool,
    /// Commands of the greeting without an answer.
    answers_left: usize,
    /// Commands that replace the default connect and subscribe.
    greeting: Option<Vec<u8>>,
    /// The beginning of a frame whose rest has not arrived.
    partial: Vec<u8>,
    outbox: Outbox,
}

/// The result of one read.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// Bytes, and whether there may be more to read at once.
    Bytes {
        bytes: usize,
        /// Whether the buffer was filled.
        more: bool,
    },
    /// Nothing to read.
    Nothing,
}

/// Events of a session for its driver.
pub trait Observer {
    /// A WebSocket frame was received.
    fn frame(&mut self) {}
    /// A message was received. Returns whether it is a publication, which needs no reaction.
    fn message(&mut self, _message: &[u8]) -> bool {
        false
    }
    /// A reply to a command was received after the session was ready.
    fn reply(&mut self, _id: u32, _error: u32) {}
}

/// Why a session ended: the close code or the error.
pub type Ended = String;

impl Session {
    /// Begins to connect from `source`, with a receive buffer of the given size, if any. With `channel`, the session
    /// subscribes to it.
    pub fn open(
        source: IpAddr,
        address: SocketAddr,
        receive_bytes: Option<usize>,
        subscribes: bool,
    ) -> io::Result<Self> {
        Ok(Session {
            socket: open_socket(source, address, receive_bytes)?,
            secure: None,
            stage: LoadSessionStage::Connecting,
            subscribes,
            answers_left: 1 + usize::from(subscribes),
            greeting: None,
            partial: Vec::new(),
            outbox: Outbox::default(),
        })
    }

    /// Sets the commands to send when the WebSocket is open: connect and subscribe with the default ids.
    pub fn greet_with(&mut self, greeting: Vec<u8>) {
        self.greeting = Some(greeting);
    }

    /// Sets the commands to send when the WebSocket is open, and their number. The session is ready when all are
    /// answered.
    pub fn greet_with_answers(&mut self, greeting: Vec<u8>, answers: usize) {
        self.greeting = Some(greeting);
        self.answers_left = answers;
    }

    /// Makes the session use TLS from its first byte on.
    pub fn speak_tls(&mut self, secure: Secure) {
        self.secure = Some(secure);
    }

    /// The socket, for registering it.
    pub fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    /// Called when the socket has become writable, because the connection is established or has failed.
    pub fn connected(&mut self, target: &Target) -> Result<(), Ended> {
        if let Some(err) = self.socket.take_error().ok().flatten() {
            return Err(format!("connect: {}", err.kind()));
        }
        self.stage = LoadSessionStage::Upgrading;
        self.send(&commands::upgrade_request(&target.address.to_string(), &target.path, target.encoding))
    }

    /// Allows so many unsent bytes instead of the default.
    pub fn allow_unsent(&mut self, bytes_max: usize) {
        self.outbox = Outbox::with_max(bytes_max);
    }

    /// Adds bytes that the next flush sends.
    pub fn queue(&mut self, bytes: &[u8]) {
        self.outbox.push(bytes);
    }

    /// Sends as much as the kernel accepts.
    pub fn flush(&mut self) -> Result<(), Ended> {
        let (socket, secure) = (&mut self.socket, &mut self.secure);
        if let Some(secure) = secure {
            secure.flush(socket).map_err(|err| format!("write: {}", err.kind()))?;
        }
        self.outbox.flush(|bytes| match secure {
            Some(secure) => secure.write(socket, bytes),
            None => socket.write(bytes),
        })
    }

    /// Whether there are bytes that the kernel has not accepted yet: flush again.
    pub fn is_blocked(&self) -> bool {
        !self.outbox.is_empty() || self.secure.as_ref().is_some_and(Secure::has_unsent)
    }

    /// Sends bytes behind all earlier ones. What the kernel does not accept follows with the next flush or read.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        self.queue(bytes);
        self.flush()
    }

    /// Sends a frame, unless the kernel accepts nothing at the moment. Returns whether it is on its way.
    pub fn offer(&mut self, frame: &[u8]) -> Result<bool, Ended> {
        let (socket, secure) = (&mut self.socket, &mut self.secure);
        self.outbox.offer(frame, |bytes| match secure {
            Some(secure) => secure.write(socket, bytes),
            None => socket.write(bytes),
        })
    }

    /// Reads once, and processes the received data.
    pub fn read(&mut self, target: &Target, buffer: &mut [u8], observer: &mut impl Observer) -> Result<Taken, Ended> {
        if self.is_blocked() {
            self.flush()?;
        }
        let kept = self.partial.len();
        let Some((head, free)) = buffer.split_at_mut_checked(kept) else {
            return Err("a frame of the server is too long".into());
        };
        head.copy_from_slice(&self.partial);
        if free.is_empty() {
            return Err("a frame of the server is too long".into());
        }
        let Some(DecryptedRead { raw_bytes, bytes, more }) = self.read_socket(free)? else { return Ok(Taken::Nothing) };
        let all = buffer.get(..kept + bytes).unwrap_or_default();
        let used = self.consume(target, all, observer)?;
        self.partial.clear();
        self.partial.extend_from_slice(all.get(used..).unwrap_or_default());
        Ok(Taken::Bytes { bytes: raw_bytes, more })
    }

    /// Reads until the socket is empty, and processes the received data.
    pub fn read_all(
        &mut self,
        target: &Target,
        buffer: &mut [u8],
        observer: &mut impl Observer,
        read_closed: bool,
    ) -> Result<(), Ended> {
        loop {
            match self.read(target, buffer, observer)? {
                Taken::Nothing => return Ok(()),
                // A read that did not fill the buffer has emptied the socket (epoll(7)), unless the end follows.
                Taken::Bytes { more, .. } if !more && !read_closed => return Ok(()),
                Taken::Bytes { .. } => {}
            }
        }
    }

    /// One read, through TLS if there is any.
    fn read_socket(&mut self, buffer: &mut [u8]) -> Result<Option<DecryptedRead>, Ended> {
        let read = match &mut self.secure {
            Some(secure) => secure.read(&mut self.socket, buffer),
            None => self.socket.read(buffer).and_then(|bytes| match bytes {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                _ => Ok(Some(DecryptedRead { raw_bytes: bytes, bytes, more: bytes == buffer.len() })),
            }),
        };
        match read {
            Err(err) if err.kind() == io::ErrorKind::UnexpectedEof => Err("closed without a code".into()),
            Err(err) if err.kind() == io::ErrorKind::WouldBlock => Ok(None),
            read => read.map_err(|err| format!("read: {}", err.kind())),
        }
    }

    /// Processes the complete frames at the beginning. Returns their number of bytes.
    fn consume(&mut self, target: &Target, all: &[u8], observer: &mut impl Observer) -> Result<usize, Ended> {
        let mut used = 0;
        if self.stage == LoadSessionStage::Upgrading {
            match Self::upgraded(all)? {
                Some(head_bytes) => used = head_bytes,
                None => return Ok(0),
            }
            self.stage = match target.content {
                MessageContent::Bare => LoadSessionStage::Ready,
                MessageContent::Peer(peer) if peer.is_ready_at_once() => LoadSessionStage::Ready,
                // The server speaks first.
                MessageContent::Peer(_) => LoadSessionStage::Greeting,
                MessageContent::Protocol => {
                    self.greet(target)?;
                    LoadSessionStage::Greeting
                }
            };
        }
        loop {
            match wire::walk(all.get(used..).unwrap_or_default()) {
                Walk::Frame(frame, bytes) => {
                    used += bytes;
                    observer.frame();
                    self.on_frame(target, &frame, observer)?;
                }
                Walk::Partial { .. } => return Ok(used),
                Walk::Broken(why) => return Err(format!("broken: {why}")),
            }
        }
    }

    /// Sends the first commands.
    fn greet(&mut self, target: &Target) -> Result<(), Ended> {
        let channel = self.subscribes.then_some(target.channel.as_str());
        let usual = || commands::hello(target.encoding, channel, target.join.as_deref());
        let greeting = self.greeting.take().unwrap_or_else(usual);
        self.send(&greeting)
    }

    /// The length of the response head, if it is complete.
    fn upgraded(all: &[u8]) -> Result<Option<usize>, Ended> {
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut response = httparse::Response::new(&mut headers);
        match response.parse(all) {
            Ok(httparse::Status::Complete(bytes)) => match response.code {
                Some(101) => Ok(Some(bytes)),
                code => Err(format!("upgrade: HTTP {}", code.unwrap_or(0))),
            },
            Ok(httparse::Status::Partial) => Ok(None),
            Err(err) => Err(format!("upgrade: {err}")),
        }
    }

    fn on_frame(&mut self, target: &Target, frame: &Frame<'_>, observer: &mut impl Observer) -> Result<(), Ended> {
        match frame {
            Frame::Messages(payload) => self.on_messages(target, payload, observer),
            Frame::Ping(payload) => self.send(&commands::websocket_pong(payload)),
            Frame::Pong => Ok(()),
            Frame::Close(code) => Err(code.to_string()),
        }
    }

    fn on_messages(&mut self, target: &Target, payload: &[u8], observer: &mut impl Observer) -> Result<(), Ended> {
        match target.content {
            MessageContent::Bare => {
                observer.message(payload);
            }
            MessageContent::Peer(peer) => {
                if !observer.message(payload) {
                    self.on_peer(peer, payload)?;
                }
            }
            MessageContent::Protocol => {
                let encoding = target.encoding;
                for message in wire::messages(encoding, payload) {
                    if !observer.message(message) {
                        self.on_answer(encoding, &wire::answer(encoding, message), observer)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn on_peer(&mut self, peer: PeerProtocol, message: &[u8]) -> Result<(), Ended> {
        match peer.reaction(message) {
            PeerReaction::Send(bytes) => self.send(&bytes),
            PeerReaction::Ready => {
                self.stage = LoadSessionStage::Ready;
                Ok(())
            }
            PeerReaction::Refused => Err("refused by the server".into()),
            PeerReaction::Nothing => Ok(()),
        }
    }

    fn on_answer(
        &mut self,
        encoding: EncodingOption,
        answer: &UnstampedMessage,
        observer: &mut impl Observer,
    ) -> Result<(), Ended> {
        match *answer {
            UnstampedMessage::Ping => self.send(&commands::pong(encoding)),
            UnstampedMessage::Reply { id, error } if self.stage == LoadSessionStage::Greeting => match error {
                0 => {
                    self.answers_left = self.answers_left.saturating_sub(1);
                    if self.answers_left == 0 {
                        self.stage = LoadSessionStage::Ready;
                    }
                    Ok(())
                }
                _ if id == CONNECT_ID => Err(format!("connect: error {error}")),
                _ => Err(format!("subscribe: error {error}")),
            },
            UnstampedMessage::Reply { id, error } => {
                observer.reply(id, error);
                Ok(())
            }
            UnstampedMessage::Other => Ok(()),
        }
    }
}

/// Begins to connect from `source`, with a receive buffer of the given size, if any.
pub fn open_socket(source: IpAddr, address: SocketAddr, receive_bytes: Option<usize>) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if let Some(bytes) = receive_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    if address.ip().is_loopback() && address.is_ipv4() {
        socket.bind(&SocketAddr::from((source, 0)).into())?;
    }
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    match socket.connect(&address.into()) {
        Err(err) if err.raw_os_error() != Some(libc::EINPROGRESS) => return Err(err),
        _ => {}
    }
    Ok(TcpStream::from_std(socket.into()))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;
    use std::time::Duration;

    use super::*;

    struct Nobody;

    impl Observer for Nobody {}

    fn target(address: SocketAddr) -> Target {
        Target {
            address,
            path: "/".to_owned(),
            encoding: EncodingOption::Json,
            channel: "c".to_owned(),
            join: None,
            content: MessageContent::Protocol,
            tls: false,
        }
    }

    /// Opcode and payload of each frame of a client.
    fn frames(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let mut found = Vec::new();
        while let [opcode, length, rest @ ..] = bytes {
            let (length, rest) = match length & 0x7f {
                126 => (usize::from(u16::from_be_bytes([rest[0], rest[1]])), &rest[2..]),
                length => (usize::from(length), rest),
            };
            let (mask, rest) = rest.split_at(4);
            let (payload, rest) = rest.split_at(length);
            found.push((*opcode, payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect()));
            bytes = rest;
        }
        found
    }

    #[test]
    fn a_pong_follows_the_frame_that_the_kernel_has_taken_in_part() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let target = target(listener.local_addr().unwrap());
        let mut session = Session::open(Ipv4Addr::LOCALHOST.into(), target.address, None, false).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        session.stage = LoadSessionStage::Ready;
        let publication = commands::publish(target.encoding, 5, "c", &vec![b'7'; 50_000]);
        let mut publications = 0;
        // The server does not read, until a frame is stuck in the middle.
        while !session.is_blocked() {
            session.send(&publication).unwrap();
            publications += 1;
        }
        server.write_all(b"\x89\x02hi\x81\x02{}").unwrap();
        let mut buffer = vec![0; 1 << 20];
        while session.read(&target, &mut buffer, &mut Nobody).unwrap() == Taken::Nothing {
            thread::sleep(Duration::from_millis(1));
        }
        let reader = thread::spawn(move || {
            let mut bytes = Vec::new();
            server.read_to_end(&mut bytes).unwrap();
            bytes
        });
        while session.is_blocked() {
            session.flush().unwrap();
            thread::sleep(Duration::from_millis(1));
        }
        drop(session);
        let mut found = frames(&reader.join().unwrap());
        let pongs = found.split_off(publications);
        assert_eq!(pongs, [(0x8a, b"hi".to_vec()), (0x81, b"{}".to_vec())]);
        assert!(found.iter().all(|(opcode, payload)| *opcode == 0x81 && payload.len() > 50_000), "they are whole");
    }
}
