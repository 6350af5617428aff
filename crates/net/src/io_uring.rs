//! The reactor on `io_uring`: the kernel accepts and receives by itself, and a batch of sends is one system call.
//!
//! A receive is armed once for each connection and fills buffers of a ring that all connections share. Filled buffers
//! stay in the connection's list until its turn. The receive of a connection that is paused, or that uses more than its
//! share of the ring, is cancelled. Further data then stays in the socket, and flow control reaches the peer.

mod acceptor;
mod buffers;
mod intake;
mod probe;
mod ring;
mod sends;
mod slots;

use std::{
    collections::{HashMap, VecDeque},
    io,
    mem::ManuallyDrop,
    net::{Shutdown, TcpListener, TcpStream},
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, IntoRawFd as _},
    sync::Arc,
    time::Duration,
};

use ::io_uring::{opcode, types::Fd};

pub use probe::{Unavailable, probe};

use self::{
    acceptor::MultishotAcceptor,
    buffers::Buffers,
    intake::{BorrowedBuffer, HeldBytes},
    ring::{Cqe, Ring},
    sends::{BATCH_MAX, Sends},
    slots::{ARMED, ENDED, ENDING, FRESH, FULL, INDEX_MAX, OFFERED, PAUSED, Slot, Subject, WAITS_TO_ARM, live},
};
use super::{
    reactor::{
        Completion, ConnectionKey, OFFERED_TWICE, READ_BUFFER_BYTES, Reactor, ReactorCounters, Released,
        SendCompletion, SendOutcome,
    },
    waker::Waker,
};

/// Maximum number of further calls per turn to fetch completions. The kernel returns about twenty at a time (Linux
/// 6.18).
const LOOKS_PER_TURN: usize = 16;

/// The reactor.
pub struct Uring {
    ring: Ring,
    /// The kernel uses this memory as long as the ring exists.
    buffers: ManuallyDrop<Buffers>,
    sends: ManuallyDrop<Sends>,
    /// Indexed by `ConnectionKey::index`.
    slots: Vec<Slot>,
    acceptor: MultishotAcceptor,
    waker: Arc<Waker>,
    /// A poll request for the waker is pending.
    listens_to_waker: bool,
    woken: bool,
    writable: Vec<ConnectionKey>,
    /// Connections with completions, without duplicates, the longest-waiting first.
    readable: VecDeque<ConnectionKey>,
    /// How many connections at the front of `readable` have their turn in this one.
    reads_left: usize,
    read_bytes_left: usize,
    read_bytes_max: usize,
    /// Connections whose receive is armed when buffers are available, or before the next wait.
    to_arm: VecDeque<ConnectionKey>,
    /// Connections whose receive is not submitted yet.
    fresh: Vec<ConnectionKey>,
    /// Data that was received before a connection was paused, by index.
    held: HashMap<u32, HeldBytes>,
    borrowed: BorrowedBuffer,
    /// A buffer to join the bytes of several buffers; reused to keep its capacity.
    together: Vec<u8>,
    counters: ReactorCounters,
}

impl Uring {
    /// A reactor with a listener. It reads at most `read_bytes_max` bytes from one connection per turn. Only the thread
    /// that first waits may use it.
    ///
    /// # Errors
    /// The error of the system call that failed.
    pub fn new(listener: TcpListener, read_bytes_max: usize) -> io::Result<(Self, Arc<Waker>)> {
        let ring = Ring::new()?;
        let read_bytes_max = read_bytes_max.clamp(1, READ_BUFFER_BYTES);
        // SAFETY: `drop` below ends all requests before it frees the buffers.
        let buffers = unsafe { Buffers::new(&ring, read_bytes_max)? };
        let waker = Arc::new(Waker::eventfd()?);
        let reactor = Self {
            ring,
            buffers: ManuallyDrop::new(buffers),
            sends: ManuallyDrop::new(Sends::new()),
            slots: Vec::new(),
            acceptor: MultishotAcceptor::new(listener)?,
            waker: Arc::clone(&waker),
            listens_to_waker: false,
            woken: false,
            writable: Vec::new(),
            readable: VecDeque::new(),
            reads_left: 0,
            read_bytes_left: 0,
            read_bytes_max,
            to_arm: VecDeque::new(),
            fresh: Vec::new(),
            held: HashMap::new(),
            borrowed: BorrowedBuffer::Nothing,
            together: Vec::new(),
            counters: ReactorCounters::default(),
        };
        Ok((reactor, waker))
    }

    /// The setup flags of the ring, for the log.
    pub fn set_up(&self) -> &'static str {
        self.ring.set_up().name()
    }

    /// Queues missing requests before a wait.
    fn prepare(&mut self) {
        if !self.listens_to_waker
            && let Waker::Eventfd(file) = &*self.waker
        {
            self.listens_to_waker = true;
            let poll = opcode::PollAdd::new(Fd(file.as_raw_fd()), libc::POLLIN as u32).multi(true).build();
            // SAFETY: the request contains no pointers.
            unsafe { self.ring.push(&poll.user_data(Subject::Wake.user_data())) };
        }
        self.acceptor.prepare(&mut self.ring);
        self.arm_waiting();
    }

    /// Processes all available completions.
    fn drain(&mut self) {
        self.are_submitted();
        while let Some(cqe) = self.ring.pop() {
            self.take(cqe);
        }
    }

    #[inline]
    fn take(&mut self, cqe: Cqe) {
        match Subject::from_user_data(cqe.user_data) {
            Subject::Send(place) => self.sends.complete(place, cqe.result),
            Subject::Receive(connection) => self.received(connection, cqe),
            Subject::Accept => self.acceptor.accepted(cqe, &mut self.ring),
            Subject::Listener => self.acceptor.on_readable(),
            Subject::Wake => {
                self.woken = true;
                self.listens_to_waker = cqe.has_more();
            }
            Subject::Writable(connection) => {
                if let Some(slot) = live(&mut self.slots, connection)
                    && slot.has(FULL)
                {
                    slot.set(FULL, false);
                    self.writable.push(connection);
                }
            }
            Subject::Aside => {}
        }
    }

    /// Submits the batch and processes its results. All sends complete before the submission returns, because none of
    /// them may block. If a kernel ever behaves differently, this method waits for the completions, because the memory
    /// is borrowed only until then.
    fn submit_sends(&mut self) {
        let before = self.sends.outstanding();
        self.counters.batches += 1;
        self.counters.batched_sends += before as u64;
        let mut entered = self.ring.submit();
        self.drain();
        while self.sends.outstanding() > 0 && entered.is_ok() {
            entered = self.ring.wait(None);
            self.drain();
        }
        if entered.is_err() {
            // The next wait returns the same error and ends the shard. Nothing more is submitted.
            self.sends.give_up();
        }
        self.sends.reuse();
    }

    /// The kernel has taken all queued requests.
    fn are_submitted(&mut self) {
        for connection in self.fresh.drain(..) {
            if let Some(slot) = live(&mut self.slots, connection) {
                slot.set(FRESH, false);
            }
        }
    }
}

impl Reactor for Uring {
    const BATCH_MAX: usize = BATCH_MAX;

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        debug_assert_eq!(self.sends.outstanding(), 0, "a batch ends before the turn does");
        self.give_back_lent();
        self.ring.enable()?;
        self.prepare();
        // Completions that arrived with a submission in this turn are not reported twice.
        let has_news = self.woken || !self.writable.is_empty();
        let timeout = match (timeout, self.acceptor.rest()) {
            (Some(timeout), Some(rest)) => Some(timeout.min(rest)),
            (timeout, rest) => timeout.or(rest),
        };
        if has_news || timeout == Some(Duration::ZERO) {
            self.ring.look()?;
        } else {
            self.ring.wait(timeout)?;
        }
        self.drain();
        // The kernel returns a limited number of completions at a time.
        for _ in 0..LOOKS_PER_TURN {
            if !self.ring.has_work() {
                break;
            }
            self.ring.look()?;
            self.drain();
        }
        self.acceptor.begin_turn();
        self.reads_left = self.readable.len();
        self.read_bytes_left = intake::READ_BYTES_PER_TURN;
        Ok(())
    }

    fn next(&mut self, intake: bool) -> Option<Completion<'_>> {
        self.give_back_lent();
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
        if let Some(accepted) = self.acceptor.next() {
            return Some(accepted);
        }
        self.read()
    }

    fn has_more(&self) -> bool {
        self.acceptor.has_more() || !self.readable.is_empty()
    }

    fn stop_listening(&mut self) {
        self.acceptor.close(&mut self.ring);
    }

    fn open(&mut self, connection: ConnectionKey, stream: TcpStream) -> io::Result<()> {
        assert!(connection.index <= INDEX_MAX, "there are fewer files than that");
        let index = connection.index as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, Slot::default);
        }
        let slot = self.slots.get_mut(index).expect("the table has just been made long enough");
        assert!(slot.stream.is_none(), "an index is used again only after its connection was closed");
        *slot = Slot::new(stream, connection.generation);
        self.arm(connection);
        Ok(())
    }

    fn pause(&mut self, connection: ConnectionKey) {
        if let Some(slot) = live(&mut self.slots, connection) {
            slot.set(PAUSED, true);
            self.end_receive(connection);
            self.hold_bytes(connection);
        }
    }

    fn resume(&mut self, connection: ConnectionKey) {
        if let Some(slot) = live(&mut self.slots, connection) {
            slot.set(PAUSED, false);
            self.queue_read(connection);
            self.want_receive(connection);
        }
    }

    fn has_unread(&self, connection: ConnectionKey) -> bool {
        // The kernel has not examined this socket yet, so it may have data.
        let may_have = |slot: &Slot| slot.has_news() || slot.has(WAITS_TO_ARM | FRESH) || !slot.has(ARMED);
        self.slots.get(connection.index as usize).is_some_and(|slot| slot.is_of(connection) && may_have(slot))
    }

    #[inline]
    fn takes_bytes(&self, connection: ConnectionKey) -> bool {
        self.slots.get(connection.index as usize).is_some_and(|slot| slot.is_of(connection) && !slot.has(FULL))
    }

    fn socket(&self, connection: ConnectionKey) -> Option<BorrowedFd<'_>> {
        let slot = self.slots.get(connection.index as usize).filter(|slot| slot.is_of(connection))?;
        slot.stream.as_ref().map(TcpStream::as_fd)
    }

    #[inline]
    unsafe fn send<'a>(&mut self, connection: ConnectionKey, mut slices: impl Iterator<Item = &'a [u8]>) {
        let Some(slot) = live(&mut self.slots, connection).filter(|slot| !slot.has(FULL)) else { return };
        let (Some(fd), Some(first)) = (slot.fd(), slices.next()) else { return };
        if slot.has(OFFERED) {
            debug_assert!(false, "{OFFERED_TWICE}");
            return;
        }
        slot.set(OFFERED, true);
        let entry = match slices.next() {
            None => self.sends.one(connection, fd, first),
            Some(second) => {
                if !self.sends.has_room() {
                    self.submit_sends();
                }
                self.sends.several(connection, fd, [first, second].into_iter().chain(slices))
            }
        };
        // SAFETY: the caller guarantees that the slices stay valid until it fetches the results, which it does after
        // all sends have completed. Memory of `self` stays valid until `Sends::reuse`, which is not called earlier
        // either.
        unsafe { self.ring.push(&entry) };
    }

    #[inline]
    fn sent(&mut self) -> Option<SendCompletion> {
        if self.sends.outstanding() > 0 {
            self.submit_sends();
        }
        let sent = self.sends.next()?;
        let Some(slot) = live(&mut self.slots, sent.connection) else { return Some(sent) };
        slot.set(OFFERED, false);
        if sent.outcome == SendOutcome::Full
            && let Some(fd) = slot.fd()
        {
            slot.set(FULL, true);
            let poll = opcode::PollAdd::new(fd, libc::POLLOUT as u32).build();
            // SAFETY: the request contains no pointers.
            unsafe { self.ring.push(&poll.user_data(Subject::Writable(sent.connection).user_data())) };
        }
        Some(sent)
    }

    fn finish(&mut self, connection: ConnectionKey) {
        if let Some(stream) = live(&mut self.slots, connection).and_then(|slot| slot.stream.as_ref()) {
            // An error means that the connection is broken; the next read reports it.
            let _ = stream.shutdown(Shutdown::Write);
        }
    }

    fn release(&mut self, connection: ConnectionKey) -> Option<Released> {
        let slot = live(&mut self.slots, connection)?;
        slot.set(PAUSED, true);
        if slot.has(FULL) {
            self.ring.cancel(Subject::Writable(connection));
        }
        self.end_receive(connection);
        // Until its receive has ended, it could consume bytes of the socket's next owner.
        while self.slots.get(connection.index as usize).is_some_and(|slot| slot.has(ARMED)) {
            if self.ring.wait(None).is_err() {
                return None;
            }
            self.drain();
        }
        self.hold_bytes(connection);
        let read = self.held.remove(&connection.index).map_or_else(Vec::new, HeldBytes::into_rest);
        let stream = live(&mut self.slots, connection)?.stream.take()?;
        Some(Released { stream, read })
    }

    fn close(&mut self, connection: ConnectionKey) {
        let Some(slot) = live(&mut self.slots, connection) else { return };
        let is_full = slot.has(FULL);
        self.end_receive(connection);
        if is_full {
            self.ring.cancel(Subject::Writable(connection));
        }
        let Some(slot) = live(&mut self.slots, connection) else { return };
        let Some(stream) = slot.stream.take() else { return };
        self.buffers.discard(&mut slot.received);
        self.held.remove(&connection.index);
        // Queued after earlier requests, which may refer to the socket by its descriptor.
        self.ring.close(stream.into_raw_fd());
    }

    fn counters(&self) -> ReactorCounters {
        ReactorCounters { calls: self.ring.calls, ..self.counters }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if self.sends.outstanding() == 0 {
            // Submits the pending close requests.
            let _ = self.ring.submit();
        }
        if self.ring.cancel_all() {
            // SAFETY: neither is used again, and the kernel has no request left that refers to them.
            unsafe {
                ManuallyDrop::drop(&mut self.buffers);
                ManuallyDrop::drop(&mut self.sends);
            }
        }
        // Otherwise the memory is leaked, because the kernel may still use it. The process is about to end.
    }
}
