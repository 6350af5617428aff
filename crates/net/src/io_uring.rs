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
mod socket;
mod table;
mod wakeups;

use std::{
    io,
    mem::ManuallyDrop,
    net::{Shutdown, TcpListener, TcpStream},
    os::fd::{BorrowedFd, FromRawFd as _, OwnedFd},
    sync::Arc,
    time::Duration,
};

use ::io_uring::{opcode, squeue::Entry};

pub use buffers::{Buffers, GROUP};
pub use probe::{Unavailable, probe, probe_table};
pub use ring::{ASIDE, Cqe, Ring};
pub use socket::Target;
pub use table::size_for;

use self::{
    acceptor::MultishotAcceptor,
    intake::Intake,
    sends::{BATCH_MAX, Sends},
    slots::{ARMED, FRESH, FULL, OFFERED, PAUSED, Slot, Sockets, Subject, WAITS_TO_ARM},
    table::installation,
    wakeups::Wakeups,
};
use super::{
    reactor::{
        Completion, ConnectionKey, OFFERED_TWICE, READ_BUFFER_BYTES, Reactor, ReactorCounters, Released,
        SendCompletion, SendOutcome, SocketDescriptor,
    },
    waker::Waker,
};

/// Maximum number of further calls per turn to fetch completions. The kernel returns about twenty at a time (Linux
/// 6.18).
const LOOKS_PER_TURN: usize = 16;

/// The reactor.
pub struct Uring {
    ring: Ring,
    sockets: Sockets,
    intake: Intake,
    /// The kernel uses this memory as long as the ring exists.
    sends: ManuallyDrop<Sends>,
    /// Connections whose full socket is writable again.
    writable: Vec<ConnectionKey>,
    acceptor: MultishotAcceptor,
    wakeups: Wakeups,
    /// The result of the request that this reactor waits for.
    awaited: Option<i32>,
    counters: ReactorCounters,
    /// Whether a test pretends that no descriptor is left for a socket of the table.
    #[cfg(test)]
    pub(super) pretends_no_descriptor: bool,
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
        let intake = unsafe { Intake::new(&ring, read_bytes_max)? };
        let waker = Arc::new(Waker::eventfd()?);
        let reactor = Self {
            ring,
            sockets: Sockets::new(),
            intake,
            sends: ManuallyDrop::new(Sends::new()),
            writable: Vec::new(),
            acceptor: MultishotAcceptor::new(listener)?,
            wakeups: Wakeups::new(Arc::clone(&waker)),
            awaited: None,
            counters: ReactorCounters::default(),
            #[cfg(test)]
            pretends_no_descriptor: false,
        };
        Ok((reactor, waker))
    }

    /// Keeps the sockets of connections in a table of the ring from now on, so that they use no descriptors. Must be called
    /// before a connection is opened. Returns the maximum number of connections, which is at most the limit of open files.
    ///
    /// # Errors
    /// The error of the system call. Connections use descriptors then.
    pub fn use_table(&mut self, connections_max: u32) -> io::Result<u32> {
        self.sockets.use_table(&self.ring, connections_max)
    }

    /// Queues missing requests before a wait.
    fn prepare(&mut self) {
        self.wakeups.prepare(&mut self.ring);
        self.acceptor.prepare(&mut self.ring);
        self.intake.arm_waiting(&mut self.ring, &mut self.sockets);
    }

    /// Processes all available completions.
    fn drain(&mut self) {
        self.intake.are_submitted(&mut self.sockets);
        while let Some(cqe) = self.ring.pop() {
            self.take(cqe);
        }
    }

    #[inline]
    fn take(&mut self, cqe: Cqe) {
        match Subject::from_user_data(cqe.user_data) {
            Subject::Send(place) => self.sends.complete(place, cqe.result),
            Subject::Awaited => self.awaited = Some(cqe.result),
            Subject::Receive(connection) => {
                self.intake.received(&mut self.ring, &mut self.sockets, connection, cqe);
            }
            Subject::Accept => self.acceptor.accepted(cqe, &mut self.ring),
            Subject::Listener => self.acceptor.on_readable(),
            Subject::Wake => self.wakeups.on_readable(cqe),
            Subject::Writable(connection) => {
                if let Some(slot) = self.sockets.live(connection)
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

    /// Submits a request and waits for its result.
    ///
    /// # Safety
    /// The request refers to no memory.
    ///
    /// # Errors
    /// The error of the request, or of the ring.
    unsafe fn ask(&mut self, request: Entry) -> io::Result<i32> {
        debug_assert_eq!(self.sends.outstanding(), 0, "a batch is complete before something else is asked");
        self.awaited = None;
        // SAFETY: guaranteed by the caller.
        unsafe { self.ring.push(&request.user_data(Subject::Awaited.user_data())) };
        let mut entered = self.ring.submit();
        loop {
            self.drain();
            match self.awaited.take() {
                Some(result) if result < 0 => return Err(io::Error::from_raw_os_error(-result)),
                Some(result) => return Ok(result),
                None => entered?,
            }
            entered = self.ring.wait(None);
        }
    }

    /// A new descriptor of the socket at this place of the table.
    pub(super) fn open_descriptor(&mut self, place: u32) -> io::Result<OwnedFd> {
        #[cfg(test)]
        if self.pretends_no_descriptor {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        // SAFETY: the request contains no pointers. The kernel opens the descriptor for this process, and nothing else owns
        // it.
        unsafe { Ok(OwnedFd::from_raw_fd(self.ask(installation(place))?)) }
    }
}

impl Reactor for Uring {
    const BATCH_MAX: usize = BATCH_MAX;

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        debug_assert_eq!(self.sends.outstanding(), 0, "a batch ends before the turn does");
        self.intake.give_back_lent();
        self.ring.enable()?;
        self.prepare();
        // Completions that arrived with a submission in this turn are not reported twice.
        let has_news = self.wakeups.has_news() || !self.writable.is_empty();
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
        self.intake.begin_turn();
        Ok(())
    }

    fn next(&mut self, intake: bool) -> Option<Completion<'_>> {
        self.intake.give_back_lent();
        if self.wakeups.take() {
            return Some(Completion::Woken);
        }
        while let Some(connection) = self.writable.pop() {
            if self.sockets.live(connection).is_some() {
                return Some(Completion::Writable { connection });
            }
        }
        if !intake {
            return None;
        }
        if let Some(accepted) = self.acceptor.next() {
            return Some(accepted);
        }
        self.intake.read(&mut self.sockets)
    }

    fn has_more(&self) -> bool {
        self.acceptor.has_more() || self.intake.has_more()
    }

    fn stop_listening(&mut self) {
        self.acceptor.close(&mut self.ring);
    }

    fn open(&mut self, connection: ConnectionKey, stream: TcpStream) -> io::Result<()> {
        self.sockets.open(&mut self.ring, connection, stream)?;
        self.intake.arm(&mut self.ring, &mut self.sockets, connection);
        Ok(())
    }

    fn pause(&mut self, connection: ConnectionKey) {
        if let Some(slot) = self.sockets.live(connection) {
            slot.set(PAUSED, true);
            self.sockets.end_receive(&mut self.ring, connection);
            self.intake.hold_bytes(&mut self.sockets, connection);
        }
    }

    fn resume(&mut self, connection: ConnectionKey) {
        if let Some(slot) = self.sockets.live(connection) {
            slot.set(PAUSED, false);
            self.intake.queue_read(&mut self.sockets, connection);
            self.intake.want_receive(&mut self.sockets, connection);
        }
    }

    fn has_unread(&self, connection: ConnectionKey) -> bool {
        // The kernel has not examined this socket yet, so it may have data.
        let may_have = |slot: &Slot| slot.has_news() || slot.has(WAITS_TO_ARM | FRESH) || !slot.has(ARMED);
        self.sockets.get(connection).is_some_and(may_have)
    }

    #[inline]
    fn takes_bytes(&self, connection: ConnectionKey) -> bool {
        self.sockets.get(connection).is_some_and(|slot| !slot.has(FULL))
    }

    fn socket(&mut self, connection: ConnectionKey) -> Option<SocketDescriptor<'_>> {
        match self.sockets.target(connection)? {
            // SAFETY: the connection's slot owns the descriptor, and cannot close it while the result borrows the reactor.
            Target::Descriptor(fd) => Some(SocketDescriptor::Own(unsafe { BorrowedFd::borrow_raw(fd) })),
            Target::Registered(place) => self.open_descriptor(place).ok().map(SocketDescriptor::Opened),
        }
    }

    #[inline]
    unsafe fn send<'a>(&mut self, connection: ConnectionKey, mut slices: impl Iterator<Item = &'a [u8]>) {
        let Some(slot) = self.sockets.live(connection).filter(|slot| !slot.has(FULL)) else { return };
        let (Some(target), Some(first)) = (slot.socket.target(connection.index), slices.next()) else { return };
        if slot.has(OFFERED) {
            debug_assert!(false, "{OFFERED_TWICE}");
            return;
        }
        slot.set(OFFERED, true);
        let entry = match slices.next() {
            None => self.sends.one(connection, target, first),
            Some(second) => {
                if !self.sends.has_room() {
                    self.submit_sends();
                }
                self.sends.several(connection, target, [first, second].into_iter().chain(slices))
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
        let Some(slot) = self.sockets.live(sent.connection) else { return Some(sent) };
        slot.set(OFFERED, false);
        if sent.outcome == SendOutcome::Full
            && let Some(target) = slot.socket.target(sent.connection.index)
        {
            slot.set(FULL, true);
            let poll = target.request(|fd| opcode::PollAdd::new(fd, libc::POLLOUT as u32).build());
            // SAFETY: the request contains no pointers.
            unsafe { self.ring.push(&poll.user_data(Subject::Writable(sent.connection).user_data())) };
        }
        Some(sent)
    }

    fn finish(&mut self, connection: ConnectionKey) {
        if let Some(socket) = self.socket(connection) {
            // An error means that the connection is broken; the next read reports it.
            let _ = socket2::SockRef::from(&socket).shutdown(Shutdown::Write);
        } else if let Some(target) = self.sockets.target(connection) {
            // No descriptor is left. The ring can do it without one, but on another thread: until that is done, the place
            // must not be used again.
            let request = target.request(|fd| opcode::Shutdown::new(fd, libc::SHUT_WR).build());
            // SAFETY: the request contains no pointers.
            let _ = unsafe { self.ask(request) };
        }
    }

    fn release(&mut self, connection: ConnectionKey) -> io::Result<Released> {
        let gone = || io::Error::from(io::ErrorKind::NotConnected);
        let opened = match self.sockets.target(connection).ok_or_else(gone)? {
            Target::Descriptor(_) => None,
            Target::Registered(place) => Some(TcpStream::from(self.open_descriptor(place)?)),
        };
        let slot = self.sockets.live(connection).ok_or_else(gone)?;
        slot.set(PAUSED, true);
        if slot.has(FULL) {
            self.ring.cancel(Subject::Writable(connection).user_data());
        }
        self.sockets.end_receive(&mut self.ring, connection);
        // Until its receive has ended, it could consume bytes of the socket's next owner.
        while self.sockets.get(connection).is_some_and(|slot| slot.has(ARMED)) {
            self.ring.wait(None)?;
            self.drain();
        }
        self.intake.hold_bytes(&mut self.sockets, connection);
        let read = self.intake.take_rest(connection);
        let socket = &mut self.sockets.live(connection).ok_or_else(gone)?.socket;
        let Some(stream) = opened else { return Ok(Released { stream: socket.take_stream().ok_or_else(gone)?, read }) };
        if let Some(target) = socket.take(connection.index) {
            self.ring.close(target);
            // From now on, the socket ends when its new owner closes it.
            self.ring.submit()?;
            self.drain();
        }
        Ok(Released { stream, read })
    }

    fn close(&mut self, connection: ConnectionKey) {
        let Some(slot) = self.sockets.live(connection) else { return };
        let is_full = slot.has(FULL);
        self.sockets.end_receive(&mut self.ring, connection);
        if is_full {
            self.ring.cancel(Subject::Writable(connection).user_data());
        }
        let Some(slot) = self.sockets.live(connection) else { return };
        let Some(target) = slot.socket.take(connection.index) else { return };
        self.intake.discard(connection, &mut slot.received);
        // Queued after earlier requests, which may refer to the socket by its descriptor or its place.
        self.ring.close(target);
    }

    fn counters(&self) -> ReactorCounters {
        let buffers_ran_out = self.intake.buffers_ran_out;
        ReactorCounters { calls: self.ring.calls, buffers_ran_out, ..self.counters }
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
                self.intake.free_buffers();
                ManuallyDrop::drop(&mut self.sends);
            }
        }
        if self.sockets.has_table() {
            // An error leaves this to the kernel.
            let _ = self.ring.unregister_table();
        }
        // Otherwise the memory is leaked, because the kernel may still use it. The process is about to end.
    }
}
