//! Sockets of clients that rings of `io_uring` make directly in their tables of registered files (*direct descriptors*). They
//! have no file descriptors: the limit of open files bounds each table, and a process has as many rings as it needs.

use std::collections::HashMap;
use std::io;
use std::mem::ManuallyDrop;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::thread;
use std::time::{Duration, Instant};

use dunlin_net::uring::{ASIDE, Buffers, Cqe, GROUP, Ring, Target as Place, size_for};
use io_uring::opcode;
use io_uring::squeue::{Entry, Flags};
use io_uring::types::DestinationSlot;
use socket2::{SockAddr, Type};

/// How long the probe waits for what the kernel does at once.
const PROBE_PATIENCE: Duration = Duration::from_secs(1);

/// A socket. The number is its place among those of the process; the generation tells it from earlier ones there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectKey {
    pub number: u32,
    generation: u32,
}

const GENERATION_MAX: u32 = (1 << 28) - 1;

/// What the kernel has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectEvent {
    /// The socket could not be made or bound: an error number.
    NotOpened(i32),
    /// The result of the connect: an error number, 0 for success.
    Connected(i32),
    Received(ReceivedBuffer),
    /// The receive has ended: an error number, 0 at the end of the stream.
    ReceiveEnded(i32),
    /// The result of the send: the number of bytes, or negative for an error number.
    Sent(i32),
}

/// Bytes in a buffer of a ring, to be given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedBuffer {
    ring: usize,
    buffer: u16,
    /// Whether the receive goes on.
    pub goes_on: bool,
}

/// The kind of a request, in its identifier.
const OPEN: u64 = 1;
const CONNECT: u64 = 2;
const RECEIVE: u64 = 3;
const SEND: u64 = 4;

fn identifier(kind: u64, key: DirectKey) -> u64 {
    kind << 60 | u64::from(key.generation) << 32 | u64::from(key.number)
}

/// The sockets of a process.
pub struct DirectSockets {
    rings: Vec<ClientRing>,
    /// Places of each table.
    table_size: u32,
    /// Readable when a ring has something.
    notice: OwnedFd,
    /// The kernel reads these addresses when it takes a request.
    address: Box<SockAddr>,
    /// Local addresses in turn; none: the kernel chooses.
    sources: Box<[SockAddr]>,
    generation: u32,
    /// What is being sent, by the identifier of the request.
    sending: HashMap<u64, Vec<u8>>,
    /// The ring that is asked first for completions.
    next_ring: usize,
}

struct ClientRing {
    ring: Ring,
    /// The kernel uses this memory as long as the ring exists.
    buffers: ManuallyDrop<Buffers>,
}

impl DirectSockets {
    /// Rings for so many sockets that connect to `address` from these addresses.
    pub fn new(sockets: usize, address: SocketAddr, sources: &[IpAddr]) -> io::Result<Self> {
        let table_size = size_for(u32::try_from(sockets.max(1)).unwrap_or(u32::MAX));
        // SAFETY: a plain system call; the descriptor is new, and nothing else owns it.
        let notice = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let rings = (0..sockets.max(1).div_ceil(table_size as usize)).map(|_| ClientRing::new(table_size, &notice));
        Ok(DirectSockets {
            rings: rings.collect::<io::Result<_>>()?,
            table_size,
            notice,
            address: Box::new(address.into()),
            sources: sources.iter().map(|source| SocketAddr::from((*source, 0)).into()).collect(),
            generation: 0,
            sending: HashMap::new(),
            next_ring: 0,
        })
    }

    /// Readable when there is something to look for.
    pub fn notice(&self) -> RawFd {
        self.notice.as_raw_fd()
    }

    fn at(&mut self, key: DirectKey) -> (&mut ClientRing, Place) {
        let (ring, place) = (key.number / self.table_size, key.number % self.table_size);
        (&mut self.rings[ring as usize], Place::Registered(place))
    }

    /// Makes a socket and begins to connect. → [`DirectEvent::Connected`] or [`DirectEvent::NotOpened`]
    pub fn open(&mut self, number: u32) -> DirectKey {
        self.generation = (self.generation + 1) & GENERATION_MAX;
        let key = DirectKey { number, generation: self.generation };
        let domain = self.address.domain();
        let slot = DestinationSlot::try_from_slot_target(number % self.table_size);
        let socket = opcode::Socket::new(domain.into(), Type::STREAM.into(), 0);
        let socket = socket.file_index(Some(slot.expect("a table is smaller than that"))).build();
        let (address, length) = (self.address.as_ptr().cast(), self.address.len());
        let bound = (!self.sources.is_empty()).then(|| {
            let source = &self.sources[number as usize % self.sources.len()];
            (source.as_ptr().cast(), source.len())
        });
        let (of, place) = self.at(key);
        let connect = place.request(|fd| opcode::Connect::new(fd, address, length).build());
        let connect = connect.user_data(identifier(CONNECT, key));
        // Only an error of these has a completion. The requests behind it are cancelled then.
        let step = |entry: Entry| entry.flags(Flags::IO_LINK | Flags::SKIP_SUCCESS).user_data(identifier(OPEN, key));
        let socket = step(socket);
        // SAFETY: the addresses are in boxes that live as long as the rings.
        unsafe {
            match bound {
                Some((source, length)) => {
                    let bind = place.request(|fd| opcode::Bind::new(fd, source, length).build());
                    of.ring.push_linked(&[socket, step(bind), connect]);
                }
                None => of.ring.push_linked(&[socket, connect]),
            }
        }
        key
    }

    /// Receives until the stream ends. → [`DirectEvent::Received`] for each buffer
    pub fn receive(&mut self, key: DirectKey) {
        let (of, place) = self.at(key);
        let receive = place.request(|fd| opcode::RecvMulti::new(fd, GROUP).build());
        // SAFETY: the kernel receives into buffers that exist as long as the ring.
        unsafe { of.ring.push(&receive.user_data(identifier(RECEIVE, key))) };
    }

    /// Sends bytes. → [`DirectEvent::Sent`], before which nothing else may be sent to this socket
    pub fn send(&mut self, key: DirectKey, bytes: Vec<u8>) {
        let identifier = identifier(SEND, key);
        let (start, length) = (bytes.as_ptr(), u32::try_from(bytes.len()).expect("an outbox is smaller than that"));
        let earlier = self.sending.insert(identifier, bytes);
        assert!(earlier.is_none(), "the kernel may send later bytes first");
        let (of, place) = self.at(key);
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let send = place.request(|fd| opcode::Send::new(fd, start, length).flags(flags).build());
        // SAFETY: the bytes stay in `sending` until the request has completed.
        unsafe { of.ring.push(&send.user_data(identifier)) };
    }

    /// Closes the socket. What the kernel still reports about it finds no session.
    pub fn close(&mut self, key: DirectKey) {
        let (of, place) = self.at(key);
        for kind in [CONNECT, RECEIVE, SEND] {
            of.ring.cancel(identifier(kind, key));
        }
        of.ring.close(place);
    }

    /// Submits what is queued, and lets the kernel report what is done.
    pub fn look(&mut self) -> io::Result<()> {
        self.rings.iter_mut().try_for_each(|of| of.ring.look())
    }

    /// Whether [`Self::look`] or [`Self::next_event`] has something at once.
    pub fn is_busy(&mut self) -> bool {
        self.rings.iter_mut().any(|of| of.ring.has_completions() || of.ring.has_work())
    }

    /// What the kernel has done next.
    pub fn next_event(&mut self) -> Option<(DirectKey, DirectEvent)> {
        for _ in 0..self.rings.len() {
            let number = self.next_ring;
            while let Some(cqe) = self.rings[number].ring.pop() {
                if let Some(event) = self.event(number, cqe) {
                    return Some(event);
                }
            }
            self.next_ring = (number + 1) % self.rings.len();
        }
        None
    }

    fn event(&mut self, ring: usize, cqe: Cqe) -> Option<(DirectKey, DirectEvent)> {
        if cqe.user_data == ASIDE {
            return None;
        }
        let key = DirectKey { number: cqe.user_data as u32, generation: (cqe.user_data >> 32) as u32 & GENERATION_MAX };
        let event = match cqe.user_data >> 60 {
            OPEN => DirectEvent::NotOpened(-cqe.result),
            CONNECT => DirectEvent::Connected(-cqe.result),
            SEND => {
                drop(self.sending.remove(&cqe.user_data));
                DirectEvent::Sent(cqe.result)
            }
            RECEIVE => match cqe.buffer() {
                Some(buffer) => {
                    let bytes = usize::try_from(cqe.result).unwrap_or(0);
                    self.rings[ring].buffers.take_alone(buffer, bytes);
                    DirectEvent::Received(ReceivedBuffer { ring, buffer, goes_on: cqe.has_more() })
                }
                None => DirectEvent::ReceiveEnded(-cqe.result),
            },
            kind => unreachable!("there are no requests of kind {kind}"),
        };
        Some((key, event))
    }

    /// The bytes in a buffer.
    pub fn bytes(&mut self, received: ReceivedBuffer) -> &[u8] {
        self.rings[received.ring].buffers.bytes(received.buffer)
    }

    /// Lets the kernel fill a buffer again.
    pub fn give_back(&mut self, received: ReceivedBuffer) {
        self.rings[received.ring].buffers.give_back(received.buffer);
    }
}

impl ClientRing {
    fn new(table_size: u32, notice: &OwnedFd) -> io::Result<Self> {
        let mut ring = Ring::new()?;
        ring.register_table(table_size)?;
        // SAFETY: `drop` below ends all requests before it frees the buffers.
        let buffers = unsafe { Buffers::new(&ring, usize::MAX)? };
        let buffers = ManuallyDrop::new(buffers);
        ring.register_eventfd(notice.as_fd())?;
        ring.enable()?;
        Ok(ClientRing { ring, buffers })
    }
}

impl Drop for DirectSockets {
    fn drop(&mut self) {
        for of in &mut self.rings {
            if of.ring.cancel_all() {
                // SAFETY: they are not used again, and the kernel has no request left that refers to them.
                unsafe { ManuallyDrop::drop(&mut of.buffers) };
            } else {
                // The kernel may still read what is being sent.
                std::mem::forget(std::mem::take(&mut self.sending));
            }
            // An error leaves this to the kernel.
            let _ = of.ring.unregister_table();
        }
    }
}

/// Tries on a connection of its own whether the kernel can do all that these sockets need. Runs on a temporary thread, because the
/// kernel interrupts a system call of the thread that made a ring when it is dropped.
pub fn probe() -> Result<(), String> {
    thread::spawn(try_connection).join().unwrap_or_else(|_| Err("the probe has panicked".into()))
}

fn try_connection() -> Result<(), String> {
    let failed = |what: &'static str| move |err: io::Error| format!("{what} failed: {err}");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed("a listener on 127.0.0.1"))?;
    let address = listener.local_addr().map_err(failed("a listener on 127.0.0.1"))?;
    let sources = [IpAddr::V4(Ipv4Addr::LOCALHOST)];
    let mut sockets = DirectSockets::new(2, address, &sources).map_err(failed("a ring with a table of files"))?;
    let key = sockets.open(0);
    expect(&mut sockets, "IORING_OP_SOCKET, IORING_OP_BIND and IORING_OP_CONNECT in a table", |event| {
        event == DirectEvent::Connected(0)
    })?;
    sockets.receive(key);
    sockets.send(key, b"dunlin".to_vec());
    expect(&mut sockets, "IORING_OP_SEND in a table", |event| event == DirectEvent::Sent(6))?;
    let (mut accepted, _) = listener.accept().map_err(failed("accept"))?;
    io::Write::write_all(&mut accepted, b"dunlin").map_err(failed("write"))?;
    expect(&mut sockets, "a receive into provided buffers that goes on", |event| {
        matches!(event, DirectEvent::Received(ReceivedBuffer { goes_on: true, .. }))
    })?;
    // Before Linux 6.13, the kernel closes a socket of a table only when all earlier requests about the table have ended. The
    // receive of an idle client does not end, so closed clients would stay open at the server.
    let idle = sockets.open(1);
    expect(&mut sockets, "a second socket in a table", |event| event == DirectEvent::Connected(0))?;
    sockets.receive(idle);
    sockets.close(key);
    sockets.look().map_err(failed("io_uring_enter"))?;
    accepted.set_read_timeout(Some(PROBE_PATIENCE)).map_err(failed("a timeout"))?;
    let mut rest = Vec::new();
    io::Read::read_to_end(&mut accepted, &mut rest).map_err(failed("closing a direct descriptor")).map(drop)
}

fn expect(sockets: &mut DirectSockets, what: &str, is_expected: impl Fn(DirectEvent) -> bool) -> Result<(), String> {
    let deadline = Instant::now() + PROBE_PATIENCE;
    while Instant::now() < deadline {
        sockets.look().map_err(|err| format!("{what} failed: {err}"))?;
        match sockets.next_event() {
            Some((_, event)) if is_expected(event) => return Ok(()),
            Some((_, event)) => return Err(format!("{what} failed: {event:?}")),
            None => thread::sleep(Duration::from_millis(1)),
        }
    }
    Err(format!("{what} failed: no answer"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    /// The next event; `None` where the probe fails.
    fn wait(sockets: &mut DirectSockets) -> (DirectKey, DirectEvent) {
        loop {
            sockets.look().unwrap();
            if let Some(event) = sockets.next_event() {
                return event;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_place_is_used_again_and_what_comes_late_has_the_old_key() {
        if let Err(why) = probe() {
            println!("not tested: {why}");
            return;
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let source: IpAddr = [127, 0, 0, 9].into();
        let mut sockets = DirectSockets::new(2, listener.local_addr().unwrap(), &[source]).unwrap();
        let first = sockets.open(1);
        assert_eq!(wait(&mut sockets), (first, DirectEvent::Connected(0)));
        sockets.receive(first);
        let (mut server, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip(), source);
        sockets.close(first);
        let second = sockets.open(1);
        assert_ne!(first, second);
        let mut connected = false;
        while !connected {
            let (key, event) = wait(&mut sockets);
            connected = key == second && event == DirectEvent::Connected(0);
            assert!(connected || key == first, "{event:?}");
        }
        assert_eq!(server.read(&mut [0; 8]).unwrap(), 0, "the first one is closed");
        let (mut server, _) = listener.accept().unwrap();
        sockets.receive(second);
        server.write_all(b"hello").unwrap();
        let (key, DirectEvent::Received(received)) = wait(&mut sockets) else { panic!("nothing received") };
        assert_eq!((key, sockets.bytes(received)), (second, &b"hello"[..]));
        sockets.give_back(received);
        drop(server);
        assert_eq!(wait(&mut sockets), (second, DirectEvent::ReceiveEnded(0)));
    }

    #[test]
    fn a_socket_that_cannot_be_made_is_reported_once() {
        if probe().is_err() {
            return;
        }
        // This address belongs to no interface.
        let source: IpAddr = [192, 0, 2, 1].into();
        let mut sockets = DirectSockets::new(1, ([127, 0, 0, 1], 9).into(), &[source]).unwrap();
        let key = sockets.open(0);
        assert_eq!(wait(&mut sockets), (key, DirectEvent::NotOpened(libc::EADDRNOTAVAIL)));
        sockets.close(key);
        let mut sockets = DirectSockets::new(1, ([127, 0, 0, 1], 9).into(), &[]).unwrap();
        let key = sockets.open(0);
        assert_eq!(wait(&mut sockets), (key, DirectEvent::Connected(libc::ECONNREFUSED)));
    }
}
