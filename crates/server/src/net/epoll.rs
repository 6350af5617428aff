//! The reactor on epoll, through mio: edge-triggered, every socket registered once for both directions.
//!
//! Edges are remembered in the sockets' slots, so that a turn reads a bounded part from each and a pause costs no system
//! call. A socket is asked again only after the kernel has said that there is something.

use std::{
    collections::VecDeque,
    io::{self, IoSlice, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    os::fd::AsRawFd as _,
    sync::Arc,
    time::{Duration, Instant},
};

use mio::{Events, Interest, Poll, Token, event::Event, unix::SourceFd};

use super::{
    listener::{Accept, Listener},
    reactor::{Completion, ConnectionKey, READ_BUFFER_BYTES, Reactor, Released, SEND_SLICES_MAX, SendOutcome, Sent},
    waker::Waker,
};

const LISTENER: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);

/// Events taken from the kernel in one turn.
const EVENTS_PER_TURN: usize = 1_024;
/// Connections accepted in one turn, so that a storm of them leaves room for those that are there.
const ACCEPTS_PER_TURN: usize = 64;
/// Bytes read in one turn over all connections.
const READ_BYTES_PER_TURN: usize = 1 << 20;
/// How long the listener rests when accepting fails for a reason that will not go away by itself.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// The reactor.
#[derive(Debug)]
pub struct Epoll {
    poll: Poll,
    events: Events,
    listener: Option<Listener>,
    /// The listener may have somebody to accept.
    acceptable: bool,
    accept_rests_until: Option<Instant>,
    accepts_left: usize,
    woken: bool,
    /// By the index of the connection's key.
    slots: Vec<Slot>,
    /// Connections that may have something to read, each once, the longest-waiting first.
    readable: VecDeque<ConnectionKey>,
    /// How many at the front of `readable` have their turn in this one.
    reads_left: usize,
    read_bytes_left: usize,
    read_bytes_max: usize,
    writable: Vec<ConnectionKey>,
    sent: VecDeque<Sent>,
    /// Lends its capacity to writes of several slices.
    together: Vec<u8>,
    buffer: Box<[u8]>,
}

/// A socket, and what is known about it.
#[derive(Debug, Default)]
struct Slot {
    stream: Option<TcpStream>,
    generation: u32,
    /// The kernel has said that there is something to read, and it was not all read since.
    readable: bool,
    /// The kernel has said that the peer has ended its side: reads go on until they say so too.
    read_closed: bool,
    queued: bool,
    paused: bool,
    full: bool,
}

const _: () = assert!(size_of::<Slot>() <= 16, "an idle session pays for this");

impl Epoll {
    /// A reactor with a listener, which reads at most `read_bytes_max` from one connection in a turn.
    ///
    /// # Errors
    /// Of the system.
    pub fn new(listener: TcpListener, read_bytes_max: usize) -> io::Result<(Self, Arc<Waker>)> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::Epoll(mio::Waker::new(poll.registry(), WAKER)?));
        let mut listener = Listener::new(listener)?;
        poll.registry().register(listener.source(), LISTENER, Interest::READABLE)?;
        let reactor = Self {
            poll,
            events: Events::with_capacity(EVENTS_PER_TURN),
            listener: Some(listener),
            acceptable: true,
            accept_rests_until: None,
            accepts_left: 0,
            woken: false,
            slots: Vec::new(),
            readable: VecDeque::new(),
            reads_left: 0,
            read_bytes_left: 0,
            read_bytes_max: read_bytes_max.clamp(1, READ_BUFFER_BYTES),
            writable: Vec::new(),
            sent: VecDeque::new(),
            together: Vec::new(),
            buffer: vec![0; READ_BUFFER_BYTES].into_boxed_slice(),
        };
        Ok((reactor, waker))
    }

    fn take_events(&mut self) {
        for event in &self.events {
            match event.token() {
                WAKER => self.woken = true,
                LISTENER => self.acceptable = true,
                token => note(&mut self.slots, &mut self.readable, &mut self.writable, key_of(token), event),
            }
        }
    }

    fn accept(&mut self) -> Option<Completion<'static>> {
        if !self.may_accept() || self.accepts_left == 0 {
            return None;
        }
        self.accepts_left -= 1;
        match self.listener.as_mut()?.accept() {
            Accept::Stream(stream) => Some(Completion::Accepted { stream }),
            Accept::Nobody => {
                self.acceptable = false;
                None
            }
            Accept::Failed { out_of_files, lasting } => {
                if lasting {
                    self.accept_rests_until = Some(Instant::now() + ACCEPT_REST);
                }
                Some(Completion::AcceptFailed { out_of_files })
            }
        }
    }

    fn may_accept(&self) -> bool {
        self.acceptable && self.accept_rests_until.is_none() && self.listener.is_some()
    }

    /// Reads from the next connection that has something; each has one read in a turn.
    fn read(&mut self) -> Option<(ConnectionKey, usize)> {
        while self.reads_left > 0 && self.read_bytes_left > 0 {
            self.reads_left -= 1;
            let key = self.readable.pop_front()?;
            let Some(slot) = live(&mut self.slots, key) else { continue };
            slot.queued = false;
            if slot.paused {
                continue;
            }
            let Some(stream) = &mut slot.stream else { continue };
            let (room, _) = self.buffer.split_at_mut(self.read_bytes_max);
            let length = match stream.read(room) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    slot.readable = false;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    slot.queued = true;
                    self.readable.push_back(key);
                    continue;
                }
                // As good as the end: what the peer sent before it broke is lost to us as well.
                Err(_) => 0,
            };
            // A read that did not fill the buffer has emptied the socket: the next byte is another edge. The end of
            // the stream is not, if the kernel has told it already.
            slot.readable = length > 0 && (length == self.read_bytes_max || slot.read_closed);
            if slot.readable {
                slot.queued = true;
                self.readable.push_back(key);
            }
            self.read_bytes_left = self.read_bytes_left.saturating_sub(length);
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
    /// Every send is made at once, so there is nothing to gain from larger batches than the caches like.
    const BATCH_MAX: usize = 16;

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let rest = self.accept_rests_until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = match (timeout, rest) {
            (Some(timeout), Some(rest)) => Some(timeout.min(rest)),
            (timeout, rest) => timeout.or(rest),
        };
        if let Err(error) = self.poll.poll(&mut self.events, timeout)
            && error.kind() != io::ErrorKind::Interrupted
        {
            return Err(error);
        }
        if self.accept_rests_until.is_some_and(|until| until <= Instant::now()) {
            self.accept_rests_until = None;
        }
        self.take_events();
        self.accepts_left = ACCEPTS_PER_TURN;
        self.reads_left = self.readable.len();
        self.read_bytes_left = READ_BYTES_PER_TURN;
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
        if let Some(accepted) = self.accept() {
            return Some(accepted);
        }
        let (connection, length) = self.read()?;
        if length == 0 {
            return Some(Completion::Ended { connection });
        }
        let (bytes, _) = self.buffer.split_at_mut(length);
        Some(Completion::Received { connection, bytes })
    }

    fn has_more(&self) -> bool {
        self.may_accept() || !self.readable.is_empty()
    }

    fn stop_listening(&mut self) {
        if let Some(mut listener) = self.listener.take() {
            // Closing it deregisters it as well; a failure here changes nothing.
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
            queue_read(slot, &mut self.readable, connection);
        }
    }

    fn has_unread(&self, connection: ConnectionKey) -> bool {
        self.slots.get(connection.index as usize).is_some_and(|slot| slot.is_of(connection) && slot.readable)
    }

    #[inline]
    fn takes_bytes(&self, connection: ConnectionKey) -> bool {
        self.slots.get(connection.index as usize).is_some_and(|slot| slot.is_of(connection) && !slot.full)
    }

    #[inline]
    unsafe fn send<'a>(&mut self, connection: ConnectionKey, mut slices: impl Iterator<Item = &'a [u8]>) {
        let Some(slot) = live(&mut self.slots, connection).filter(|slot| !slot.full) else { return };
        let (Some(stream), Some(first)) = (&mut slot.stream, slices.next()) else { return };
        // One slice is the common case, and a plain send is cheaper than a vectored one.
        let (count, offered_bytes, result) = match slices.next() {
            None => (1, first.len(), send_slice(stream, first)),
            Some(second) => send_slices(stream, [first, second].into_iter().chain(slices), &mut self.together),
        };
        let written_bytes = *result.as_ref().unwrap_or(&0);
        let outcome = match result {
            Ok(_) if written_bytes == offered_bytes => SendOutcome::All,
            // The kernel takes less than was offered only when the socket is full, and tells when it no longer is.
            Ok(_) => SendOutcome::Full,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => SendOutcome::Full,
            Err(_) => SendOutcome::Broken,
        };
        slot.full = outcome == SendOutcome::Full;
        self.sent.push_back(Sent { connection, slices: count, offered_bytes, written_bytes, outcome });
    }

    #[inline]
    fn sent(&mut self) -> Option<Sent> {
        self.sent.pop_front()
    }

    fn finish(&mut self, connection: ConnectionKey) {
        if let Some(stream) = live(&mut self.slots, connection).and_then(|slot| slot.stream.as_ref()) {
            // If the connection is broken already, the next read says so.
            let _ = stream.shutdown(Shutdown::Write);
        }
    }

    fn release(&mut self, connection: ConnectionKey) -> Option<Released> {
        let stream = live(&mut self.slots, connection)?.stream.take()?;
        // Fails only for a socket that is not registered, and then there is nothing to undo.
        let _ = self.poll.registry().deregister(&mut SourceFd(&stream.as_raw_fd()));
        Some(Released { stream, read: Vec::new() })
    }

    fn close(&mut self, connection: ConnectionKey) {
        // Closing the only descriptor of a socket deregisters it.
        drop(live(&mut self.slots, connection).and_then(|slot| slot.stream.take()));
    }
}

/// The slot of a connection that is still there.
#[inline]
fn live(slots: &mut [Slot], key: ConnectionKey) -> Option<&mut Slot> {
    slots.get_mut(key.index as usize).filter(|slot| slot.is_of(key))
}

fn note(
    slots: &mut [Slot],
    readable: &mut VecDeque<ConnectionKey>,
    writable: &mut Vec<ConnectionKey>,
    key: ConnectionKey,
    event: &Event,
) {
    // None: the event is from before the connection was closed, in this same turn's batch.
    let Some(slot) = live(slots, key) else { return };
    let ended = event.is_read_closed() || event.is_error();
    slot.read_closed |= ended;
    if event.is_readable() || ended {
        slot.readable = true;
        queue_read(slot, readable, key);
    }
    // Every event tells that the socket is writable, if it is. It is news only to one that was full.
    if slot.full && (event.is_writable() || event.is_error()) {
        slot.full = false;
        writable.push(key);
    }
}

fn queue_read(slot: &mut Slot, readable: &mut VecDeque<ConnectionKey>, key: ConnectionKey) {
    if slot.readable && !slot.queued && !slot.paused {
        slot.queued = true;
        readable.push_back(key);
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

/// Several slices in one system call: copied together where they are small, for a copy costs less than what `writev` does
/// beyond a plain send. The number of slices and of bytes that were offered, and the result.
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

/// Bytes that are copied to be sent together. Stays in the first-level cache.
const TOGETHER_BYTES_MAX: usize = 8 * 1024;

/// A connection's key as epoll carries it. The index stays below 2^32 - 2, so the two tokens above are never met.
fn token_of(key: ConnectionKey) -> Token {
    Token((key.generation as usize) << 32 | key.index as usize)
}

fn key_of(token: Token) -> ConnectionKey {
    ConnectionKey { index: token.0 as u32, generation: (token.0 >> 32) as u32 }
}
