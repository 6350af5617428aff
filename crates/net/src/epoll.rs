//! The reactor on epoll, through mio: edge-triggered; each socket is registered once for both directions.
//!
//! The slot of a socket stores its edges. So a turn can read a limited number of bytes from each socket, and a pause
//! needs no system call. A socket is read again only after the kernel has reported new data.

use std::{
    collections::VecDeque,
    io::{self, IoSlice, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    os::fd::{AsFd as _, AsRawFd as _},
    sync::Arc,
    time::{Duration, Instant},
};

use mio::{Events, Interest, Poll, Token, event::Event, unix::SourceFd};

use super::{
    listener::{Accept, Listener},
    reactor::{
        Completion, ConnectionKey, OFFERED_TWICE, READ_BUFFER_BYTES, Reactor, Released, SEND_SLICES_MAX,
        SendCompletion, SendOutcome, SocketDescriptor,
    },
    waker::Waker,
};

const LISTENER: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);

/// Events taken from the kernel in one turn.
const EVENTS_PER_TURN: usize = 1_024;
/// Connections accepted per turn. The limit leaves time for the existing connections during a connection storm.
const ACCEPTS_PER_TURN: usize = 64;
/// Bytes read per turn from all connections together.
const READ_BYTES_PER_TURN: usize = 1 << 20;
/// Pause of the listener after an accept failed for a lasting reason.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// The reactor.
#[derive(Debug)]
pub struct Epoll {
    poll: Poll,
    events: Events,
    acceptor: Acceptor,
    woken: bool,
    /// Indexed by `ConnectionKey::index`.
    slots: Vec<Slot>,
    reads: Reads,
    writable: Vec<ConnectionKey>,
    sent: VecDeque<SendCompletion>,
    /// A buffer to join small slices; reused to keep its capacity.
    together: Vec<u8>,
}

#[derive(Debug)]
struct Acceptor {
    listener: Option<Listener>,
    /// The listener may have pending connections.
    acceptable: bool,
    rests_until: Option<Instant>,
    left_in_turn: usize,
}

#[derive(Debug)]
struct Reads {
    /// Connections that may have data to read, without duplicates, the longest-waiting first.
    queue: VecDeque<ConnectionKey>,
    /// How many connections at the front of the queue are read in this turn.
    left_in_turn: usize,
    bytes_left_in_turn: usize,
    /// Of one read.
    bytes_max: usize,
    buffer: Box<[u8]>,
}

/// A socket and its state.
#[derive(Debug, Default)]
struct Slot {
    stream: Option<TcpStream>,
    generation: u32,
    /// The kernel has reported data, and not all of it was read.
    readable: bool,
    /// The kernel has reported that the peer has shut down its sending side. Reads continue until one returns 0.
    read_closed: bool,
    queued: bool,
    paused: bool,
    full: bool,
    /// A send was offered in the current batch.
    offered: bool,
}

const _: () = assert!(size_of::<Slot>() <= 16, "an idle session pays for this");

impl Epoll {
    /// A reactor with a listener. It reads at most `read_bytes_max` bytes from one connection per turn.
    ///
    /// # Errors
    /// The error of the system call that failed.
    pub fn new(listener: TcpListener, read_bytes_max: usize) -> io::Result<(Self, Arc<Waker>)> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::Epoll(mio::Waker::new(poll.registry(), WAKER)?));
        let mut listener = Listener::new(listener)?;
        poll.registry().register(listener.source(), LISTENER, Interest::READABLE)?;
        let reactor = Self {
            poll,
            events: Events::with_capacity(EVENTS_PER_TURN),
            acceptor: Acceptor { listener: Some(listener), acceptable: true, rests_until: None, left_in_turn: 0 },
            woken: false,
            slots: Vec::new(),
            reads: Reads {
                queue: VecDeque::new(),
                left_in_turn: 0,
                bytes_left_in_turn: 0,
                bytes_max: read_bytes_max.clamp(1, READ_BUFFER_BYTES),
                buffer: vec![0; READ_BUFFER_BYTES].into_boxed_slice(),
            },
            writable: Vec::new(),
            sent: VecDeque::new(),
            together: Vec::new(),
        };
        Ok((reactor, waker))
    }

    fn take_events(&mut self) {
        for event in &self.events {
            match event.token() {
                WAKER => self.woken = true,
                LISTENER => self.acceptor.acceptable = true,
                token => note(&mut self.slots, &mut self.reads, &mut self.writable, key_of(token), event),
            }
        }
    }
}

impl Acceptor {
    fn begin_turn(&mut self) {
        if self.rests_until.is_some_and(|until| until <= Instant::now()) {
            self.rests_until = None;
        }
        self.left_in_turn = ACCEPTS_PER_TURN;
    }

    fn accept(&mut self) -> Option<Completion<'static>> {
        if !self.may_accept() || self.left_in_turn == 0 {
            return None;
        }
        self.left_in_turn -= 1;
        match self.listener.as_mut()?.accept() {
            Accept::Stream(stream) => Some(Completion::Accepted { stream }),
            Accept::Nobody => {
                self.acceptable = false;
                None
            }
            Accept::Failed { out_of_files, lasting } => {
                if lasting {
                    self.rests_until = Some(Instant::now() + ACCEPT_REST);
                }
                Some(Completion::AcceptFailed { out_of_files })
            }
        }
    }

    fn may_accept(&self) -> bool {
        self.acceptable && self.rests_until.is_none() && self.listener.is_some()
    }
}

impl Reads {
    fn begin_turn(&mut self) {
        self.left_in_turn = self.queue.len();
        self.bytes_left_in_turn = READ_BYTES_PER_TURN;
    }

    fn enqueue(&mut self, slot: &mut Slot, key: ConnectionKey) {
        if slot.readable && !slot.queued && !slot.paused {
            slot.queued = true;
            self.queue.push_back(key);
        }
    }

    /// Reads from the next readable connection. Each connection has one read per turn.
    fn read(&mut self, slots: &mut [Slot]) -> Option<(ConnectionKey, usize)> {
        while self.left_in_turn > 0 && self.bytes_left_in_turn > 0 {
            self.left_in_turn -= 1;
            let key = self.queue.pop_front()?;
            let Some(slot) = live(slots, key) else { continue };
            slot.queued = false;
            if slot.paused {
                continue;
            }
            let Some(stream) = &mut slot.stream else { continue };
            let (room, _) = self.buffer.split_at_mut(self.bytes_max);
            let length = match stream.read(room) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    slot.readable = false;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    slot.queued = true;
                    self.queue.push_back(key);
                    continue;
                }
                // Treated as the end of the stream: unread data of a broken connection is lost.
                Err(_) => 0,
            };
            // A read that does not fill the buffer has emptied the socket, so the next byte causes another edge. The
            // end of the stream does not if the kernel has already reported it.
            slot.readable = length > 0 && (length == self.bytes_max || slot.read_closed);
            if slot.readable {
                slot.queued = true;
                self.queue.push_back(key);
            }
            self.bytes_left_in_turn = self.bytes_left_in_turn.saturating_sub(length);
            return Some((key, length));
        }
        None
    }
}

impl Slot {
    fn is_of(&self, connection: ConnectionKey) -> bool {
        self.generation == connection.generation && self.stream.is_some()
    }
}

impl Reactor for Epoll {
    /// Every send is made at once. Larger batches would save nothing and use more of the caches.
    const BATCH_MAX: usize = 16;

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let rest = self.acceptor.rests_until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = match (timeout, rest) {
            (Some(timeout), Some(rest)) => Some(timeout.min(rest)),
            (timeout, rest) => timeout.or(rest),
        };
        if let Err(error) = self.poll.poll(&mut self.events, timeout)
            && error.kind() != io::ErrorKind::Interrupted
        {
            return Err(error);
        }
        self.take_events();
        self.acceptor.begin_turn();
        self.reads.begin_turn();
        Ok(())
    }

    fn next(&mut self, intake: bool) -> Option<Completion<'_>> {
        if std::mem::take(&mut self.woken) {
            return Some(Completion::Woken);
        }
        while let Some(connection) = self.writable.pop() {
            if live(&mut self.slots, connection).is_some() {
                return Some(Completion::Writable { connection });
            }
        }
        if !intake {
            return None;
        }
        if let Some(accepted) = self.acceptor.accept() {
            return Some(accepted);
        }
        let (connection, length) = self.reads.read(&mut self.slots)?;
        if length == 0 {
            return Some(Completion::Ended { connection });
        }
        let (bytes, _) = self.reads.buffer.split_at_mut(length);
        Some(Completion::Received { connection, bytes })
    }

    fn has_more(&self) -> bool {
        self.acceptor.may_accept() || !self.reads.queue.is_empty()
    }

    fn stop_listening(&mut self) {
        if let Some(mut listener) = self.acceptor.listener.take() {
            // Closing the descriptor deregisters it as well, so a failure is harmless.
            let _ = self.poll.registry().deregister(listener.source());
        }
    }

    fn open(&mut self, connection: ConnectionKey, stream: TcpStream) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut SourceFd(&stream.as_raw_fd()), token_of(connection), interest)?;
        let index = connection.index as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, Slot::default);
        }
        let slot = self.slots.get_mut(index).expect("the table has just been made long enough");
        assert!(slot.stream.is_none(), "an index is used again only after its connection was closed");
        *slot = Slot { stream: Some(stream), generation: connection.generation, ..Slot::default() };
        Ok(())
    }

    fn pause(&mut self, connection: ConnectionKey) {
        if let Some(slot) = live(&mut self.slots, connection) {
            slot.paused = true;
        }
    }

    fn resume(&mut self, connection: ConnectionKey) {
        if let Some(slot) = live(&mut self.slots, connection) {
            slot.paused = false;
            self.reads.enqueue(slot, connection);
        }
    }

    fn has_unread(&self, connection: ConnectionKey) -> bool {
        self.slots.get(connection.index as usize).is_some_and(|slot| slot.is_of(connection) && slot.readable)
    }

    #[inline]
    fn takes_bytes(&self, connection: ConnectionKey) -> bool {
        self.slots.get(connection.index as usize).is_some_and(|slot| slot.is_of(connection) && !slot.full)
    }

    fn socket(&mut self, connection: ConnectionKey) -> Option<SocketDescriptor<'_>> {
        let slot = live(&mut self.slots, connection)?;
        slot.stream.as_ref().map(|stream| SocketDescriptor::Own(stream.as_fd()))
    }

    #[inline]
    unsafe fn send<'a>(&mut self, connection: ConnectionKey, mut slices: impl Iterator<Item = &'a [u8]>) {
        let Some(slot) = live(&mut self.slots, connection).filter(|slot| !slot.full) else { return };
        let (Some(stream), Some(first)) = (&mut slot.stream, slices.next()) else { return };
        if std::mem::replace(&mut slot.offered, true) {
            debug_assert!(false, "{OFFERED_TWICE}");
            return;
        }
        // One slice is the common case, and a plain send is cheaper than a vectored one.
        let (count, offered_bytes, result) = match slices.next() {
            None => (1, first.len(), send_slice(stream, first)),
            Some(second) => send_slices(stream, [first, second].into_iter().chain(slices), &mut self.together),
        };
        let written_bytes = *result.as_ref().unwrap_or(&0);
        let outcome = match result {
            Ok(_) if written_bytes == offered_bytes => SendOutcome::All,
            // The kernel takes less than offered only when the socket is full, and reports when the socket is writable
            // again.
            Ok(_) => SendOutcome::Full,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => SendOutcome::Full,
            Err(_) => SendOutcome::Broken,
        };
        slot.full = outcome == SendOutcome::Full;
        self.sent.push_back(SendCompletion { connection, slices: count, offered_bytes, written_bytes, outcome });
    }

    #[inline]
    fn sent(&mut self) -> Option<SendCompletion> {
        let sent = self.sent.pop_front()?;
        if let Some(slot) = live(&mut self.slots, sent.connection) {
            slot.offered = false;
        }
        Some(sent)
    }

    fn finish(&mut self, connection: ConnectionKey) {
        if let Some(stream) = live(&mut self.slots, connection).and_then(|slot| slot.stream.as_ref()) {
            // An error means that the connection is broken; the next read reports it.
            let _ = stream.shutdown(Shutdown::Write);
        }
    }

    fn release(&mut self, connection: ConnectionKey) -> io::Result<Released> {
        let stream = live(&mut self.slots, connection).and_then(|slot| slot.stream.take());
        let stream = stream.ok_or(io::ErrorKind::NotConnected)?;
        // Fails only for a socket that is not registered, which is harmless.
        let _ = self.poll.registry().deregister(&mut SourceFd(&stream.as_raw_fd()));
        Ok(Released { stream, read: Vec::new() })
    }

    fn close(&mut self, connection: ConnectionKey) {
        // Closing the only descriptor of a socket deregisters it.
        drop(live(&mut self.slots, connection).and_then(|slot| slot.stream.take()));
    }
}

/// The slot of an open connection.
#[inline]
fn live(slots: &mut [Slot], key: ConnectionKey) -> Option<&mut Slot> {
    slots.get_mut(key.index as usize).filter(|slot| slot.is_of(key))
}

fn note(slots: &mut [Slot], reads: &mut Reads, writable: &mut Vec<ConnectionKey>, key: ConnectionKey, event: &Event) {
    // `None`: the connection was closed after the kernel had reported this event, in the same batch.
    let Some(slot) = live(slots, key) else { return };
    let ended = event.is_read_closed() || event.is_error();
    slot.read_closed |= ended;
    if event.is_readable() || ended {
        slot.readable = true;
        reads.enqueue(slot, key);
    }
    // Every event includes the writable state. It matters only for a socket that was full.
    if slot.full && (event.is_writable() || event.is_error()) {
        slot.full = false;
        writable.push(key);
    }
}

/// `send` with `MSG_NOSIGNAL`, on a socket in non-blocking mode.
#[inline]
fn send_slice(stream: &mut TcpStream, slice: &[u8]) -> io::Result<usize> {
    loop {
        match stream.write(slice) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Sends several slices in one system call. Small slices are copied into one buffer, because the copy costs less than
/// the difference between `writev` and `send`. Returns the number of slices and bytes offered, and the result.
fn send_slices<'a>(
    stream: &mut TcpStream,
    slices: impl Iterator<Item = &'a [u8]>,
    together: &mut Vec<u8>,
) -> (usize, usize, io::Result<usize>) {
    let mut gathered = [IoSlice::new(&[]); SEND_SLICES_MAX];
    let (mut count, mut bytes) = (0, 0);
    for (place, slice) in gathered.iter_mut().zip(slices) {
        *place = IoSlice::new(slice);
        count += 1;
        bytes += slice.len();
    }
    let (gathered, _) = gathered.split_at(count);
    if bytes <= TOGETHER_BYTES_MAX {
        together.clear();
        for slice in gathered {
            together.extend_from_slice(slice);
        }
        return (count, bytes, send_slice(stream, together));
    }
    loop {
        match stream.write_vectored(gathered) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return (count, bytes, result),
        }
    }
}

/// Maximum number of bytes that are copied for one send. Fits into the first-level cache.
const TOGETHER_BYTES_MAX: usize = 8 * 1024;

/// The epoll token of a connection. The index stays below 2^32 - 2, so it differs from the two tokens above.
fn token_of(key: ConnectionKey) -> Token {
    Token((key.generation as usize) << 32 | key.index as usize)
}

fn key_of(token: Token) -> ConnectionKey {
    ConnectionKey { index: token.0 as u32, generation: (token.0 >> 32) as u32 }
}
