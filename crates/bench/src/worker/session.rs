//! One client session with a socket of its own, from the TCP connect to its last publication.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};

use mio::net::TcpStream;
use socket2::{Domain, Socket, Type};

use super::dialogue::{Dialogue, Ended, LoadSessionStage, Observer};
use super::outbox::Outbox;
use super::secure::{DecryptedRead, Secure};
use crate::control::Target;

/// A client session. Its caller provides the read buffer, so that idle sessions have none.
pub struct Session {
    socket: TcpStream,
    secure: Option<Secure>,
    dialogue: Dialogue,
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
            dialogue: Dialogue::new(subscribes),
            outbox: Outbox::default(),
        })
    }

    pub fn stage(&self) -> LoadSessionStage {
        self.dialogue.stage
    }

    /// Sets the commands to send when the WebSocket is open: connect and subscribe with the default ids.
    pub fn greet_with(&mut self, greeting: Vec<u8>) {
        self.dialogue.greet_with(greeting, None);
    }

    /// Sets the commands to send when the WebSocket is open, and their number. The session is ready when all are
    /// answered.
    pub fn greet_with_answers(&mut self, greeting: Vec<u8>, answers: usize) {
        self.dialogue.greet_with(greeting, Some(answers));
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
        self.dialogue.connected(target, &mut self.outbox);
        self.flush()
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
        let kept = self.dialogue.partial().len();
        let Some((head, free)) = buffer.split_at_mut_checked(kept) else {
            return Err("a frame of the server is too long".into());
        };
        head.copy_from_slice(self.dialogue.partial());
        if free.is_empty() {
            return Err("a frame of the server is too long".into());
        }
        let Some(DecryptedRead { raw_bytes, bytes, more }) = self.read_socket(free)? else { return Ok(Taken::Nothing) };
        let all = buffer.get(..kept + bytes).unwrap_or_default();
        self.dialogue.take(target, all, observer, &mut self.outbox)?;
        self.flush()?;
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
    use crate::commands::{self, EncodingOption};
    use crate::control::MessageContent;

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
        session.dialogue.stage = LoadSessionStage::Ready;
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
