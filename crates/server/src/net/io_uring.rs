//! The reactor on `io_uring`: the kernel accepts and receives by itself, and a batch of sends is one system call.
//!
//! A receive is armed once for each connection and fills buffers of a ring that all share. What was received hangs in its
//! connection's list until its turn, as it would in the socket; a connection that fills more than its share of the ring, or
//! is paused, has its receive ended, so that the rest stays in the socket and the peer feels it.

mod buffers;
mod door;
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
    os::fd::{AsRawFd as _, IntoRawFd as _},
    sync::Arc,
    time::Duration,
};

use ::io_uring::{opcode, types::Fd};

pub use probe::{Unavailable, probe};

use self::{
    buffers::Buffers,
    door::Door,
    intake::{Lent, Stash},
    ring::{Cqe, Ring},
    sends::{BATCH_MAX, Sends},
    slots::{ARMED, ENDED, ENDING, FRESH, FULL, INDEX_MAX, PAUSED, Slot, Subject, WAITS_TO_ARM, live},
};
use super::{
    reactor::{Completion, ConnectionKey, READ_BUFFER_BYTES, Reactor, ReactorCounters, Released, SendOutcome, Sent},
    waker::Waker,
};

/// Calls of one turn for what the kernel has to tell beyond the first. It tells some twenty things at a time (Linux 6.18).
const LOOKS_PER_TURN: usize = 16;

/// The reactor.
pub struct Uring {
    ring: Ring,
    /// Its memory is the kernel's as long as the ring is there.
    buffers: ManuallyDrop<Buffers>,
    sends: ManuallyDrop<Sends>,
    /// By the index of the connection's key.
    slots: Vec<Slot>,
    door: Door,
    waker: Arc<Waker>,
    /// The kernel tells of the waker.
    listens_to_waker: bool,
    woken: bool,
    writable: Vec<ConnectionKey>,
    /// Connections that have something to tell, each once, the longest-waiting first.
    readable: VecDeque<ConnectionKey>,
    /// How many at the front of `readable` have their turn in this one.
    reads_left: usize,
    read_bytes_left: usize,
    read_bytes_max: usize,
    /// Connections whose receive waits for buffers, or for the next wait.
    to_arm: VecDeque<ConnectionKey>,
    /// Connections whose receive is not yet submitted.
    fresh: Vec<ConnectionKey>,
    /// What paused connections had received when they were paused, by index.
    stashes: HashMap<u32, Stash>,
    lent: Lent,
    /// Lends its capacity to reads of several buffers.
    together: Vec<u8>,
    counters: ReactorCounters,
}

impl Uring {
    /// A reactor with a listener, which reads at most `read_bytes_max` from one connection in a turn. The thread that
    /// first waits is the one that may use it.
    ///
    /// # Errors
    /// Of the system.
    pub fn new(listener: TcpListener, read_bytes_max: usize) -> io::Result<(Self, Arc<Waker>)> {
        let ring = Ring::new()?;
        let read_bytes_max = read_bytes_max.clamp(1, READ_BUFFER_BYTES);
        // SAFETY: the drop below ends all requests before it lets go of the buffers.
        let buffers = unsafe { Buffers::new(&ring, read_bytes_max)? };
        let waker = Arc::new(Waker::eventfd()?);
        let reactor = Self {
            ring,
            buffers: ManuallyDrop::new(buffers),
            sends: ManuallyDrop::new(Sends::new()),
            slots: Vec::new(),
            door: Door::new(listener)?,
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
            stashes: HashMap::new(),
            lent: Lent::Nothing,
            together: Vec::new(),
            counters: ReactorCounters::default(),
        };
        Ok((reactor, waker))
    }

    /// How the ring was set up.
    pub fn set_up(&self) -> &'static str {
        self.ring.set_up().name()
    }

    /// Asks the kernel for what is missing, before a wait.
    fn prepare(&mut self) {
        if !self.listens_to_waker
            && let Waker::Eventfd(file) = &*self.waker
        {
            self.listens_to_waker = true;
            let poll = opcode::PollAdd::new(Fd(file.as_raw_fd()), libc::POLLIN as u32).multi(true).build();
            // SAFETY: the request points at nothing.
            unsafe { self.ring.push(&poll.user_data(Subject::Wake.user_data())) };
        }
        self.door.prepare(&mut self.ring);
        self.arm_waiting();
    }

    /// Takes in all that the kernel has put down.
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
            Subject::Accept => self.door.accepted(cqe, &mut self.ring),
            Subject::Door => self.door.knocked(),
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

    /// Submits the batch, and takes in its results. All of it is done when the submission returns, because none of it may
    /// wait; should a kernel ever see that differently, it is waited for here, since the memory is lent for no longer.
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
            // The next wait says so as well, and ends the shard. Nothing more is submitted.
            self.sends.give_up();
        }
        self.sends.reuse();
    }

    /// What was pushed is with the kernel.
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
        // What a submission of this turn brought along is not told a second time.
        let has_news = self.woken || !self.writable.is_empty();
        let timeout = match (timeout, self.door.rest()) {
            (Some(timeout), Some(rest)) => Some(timeout.min(rest)),
            (timeout, rest) => timeout.or(rest),
        };
        if has_news || timeout == Some(Duration::ZERO) {
            self.ring.look()?;
        } else {
            self.ring.wait(timeout)?;
        }
        self.drain();
        // The kernel tells only so much at a time.
        for _ in 0..LOOKS_PER_TURN {
            if !self.ring.has_work() {
                break;
            }
            self.ring.look()?;
            self.drain();
        }
        self.door.begin_turn();
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
        if let Some(accepted) = self.door.next() {
            return Some(accepted);
        }
        self.read()
    }

    fn has_more(&self) -> bool {
        self.door.has_more() || !self.readable.is_empty()
    }

    fn stop_listening(&mut self) {
        self.door.close(&mut self.ring);
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
            self.stash(connection);
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
        // Of a socket at which the kernel has not looked, nothing is known; so it may have something.
        let may_have = |slot: &Slot| slot.has_news() || slot.has(WAITS_TO_ARM | FRESH) || !slot.has(ARMED);
        self.slots.get(connection.index as usize).is_some_and(|slot| slot.is_of(connection) && may_have(slot))
    }

    #[inline]
    fn takes_bytes(&self, connection: ConnectionKey) -> bool {
        self.slots.get(connection.index as usize).is_some_and(|slot| slot.is_of(connection) && !slot.has(FULL))
    }

    #[inline]
    unsafe fn send<'a>(&mut self, connection: ConnectionKey, mut slices: impl Iterator<Item = &'a [u8]>) {
        let Some(slot) = live(&mut self.slots, connection).filter(|slot| !slot.has(FULL)) else { return };
        let (Some(fd), Some(first)) = (slot.fd(), slices.next()) else { return };
        let entry = match slices.next() {
            None => self.sends.one(connection, fd, first),
            Some(second) => {
                if !self.sends.has_room() {
                    self.submit_sends();
                }
                self.sends.several(connection, fd, [first, second].into_iter().chain(slices))
            }
        };
        // SAFETY: the caller promises that the slices stay until the results were asked for, which is not before all
        // sends have completed; what is not the caller's stays until `Sends::reuse`, which is not before that either.
        unsafe { self.ring.push(&entry) };
    }

    #[inline]
    fn sent(&mut self) -> Option<Sent> {
        if self.sends.outstanding() > 0 {
            self.submit_sends();
        }
        let sent = self.sends.next()?;
        if sent.outcome == SendOutcome::Full
            && let Some(slot) = live(&mut self.slots, sent.connection)
            && let Some(fd) = slot.fd()
        {
            slot.set(FULL, true);
            let poll = opcode::PollAdd::new(fd, libc::POLLOUT as u32).build();
            // SAFETY: the request points at nothing.
            unsafe { self.ring.push(&poll.user_data(Subject::Writable(sent.connection).user_data())) };
        }
        Some(sent)
    }

    fn finish(&mut self, connection: ConnectionKey) {
        if let Some(stream) = live(&mut self.slots, connection).and_then(|slot| slot.stream.as_ref()) {
            // If the connection is broken already, the next read says so.
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
        // Until the receive has ended it may take bytes from under the next owner of the socket.
        while self.slots.get(connection.index as usize).is_some_and(|slot| slot.has(ARMED)) {
            if self.ring.wait(None).is_err() {
                return None;
            }
            self.drain();
        }
        self.stash(connection);
        let read = self.stashes.remove(&connection.index).map_or_else(Vec::new, Stash::into_rest);
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
        self.stashes.remove(&connection.index);
        // In order with what was pushed before, which may name the socket by its number.
        self.ring.close(stream.into_raw_fd());
    }

    fn counters(&self) -> ReactorCounters {
        ReactorCounters { calls: self.ring.calls, ..self.counters }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if self.sends.outstanding() == 0 {
            // Sockets that are to be closed.
            let _ = self.ring.submit();
        }
        if self.ring.cancel_all() {
            // SAFETY: neither is used again, and the kernel has no request left that could.
            unsafe {
                ManuallyDrop::drop(&mut self.buffers);
                ManuallyDrop::drop(&mut self.sends);
            }
        }
        // Otherwise their memory is left to the kernel for good. It is the process's end in any case.
    }
}
