//! Connections that come: accepted by the kernel as long as that goes well, one by one by hand when it does not.

use std::{
    collections::VecDeque,
    io,
    net::{TcpListener, TcpStream},
    os::fd::FromRawFd as _,
    time::{Duration, Instant},
};

use ::io_uring::{opcode, types::Fd};

use super::{
    super::{
        listener::{Accept, Listener},
        reactor::Completion,
    },
    ring::{Cqe, Ring},
    slots::Subject,
};

/// Connections told of in one turn, so that a storm of them leaves room for those that are there.
const ACCEPTS_PER_TURN: usize = 64;

/// Connections that may wait to be told before the kernel is asked to accept no more.
const ACCEPTED_MAX: usize = 4 * ACCEPTS_PER_TURN;

/// How long the listener rests when accepting fails for a reason that will not go away by itself.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// The listener.
pub(super) struct Door {
    /// `None` when it has been closed.
    listener: Option<Listener>,
    accepted: VecDeque<TcpStream>,
    left_in_turn: usize,
    /// The kernel accepts.
    armed: bool,
    /// It has been told to stop that.
    ending: bool,
    by_hand: ByHand,
}

/// Why and how connections are accepted one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ByHand {
    /// They are not.
    No,
    /// An accept of the kernel's failed; it is to be asked to tell when somebody waits.
    Asked,
    /// It has been asked.
    Waits,
    /// Somebody may wait.
    Knocked,
    /// That failed as well, in a way that lasts.
    Rests { until: Instant },
}

impl Door {
    pub(super) fn new(listener: TcpListener) -> io::Result<Self> {
        Ok(Self {
            listener: Some(Listener::new(listener)?),
            accepted: VecDeque::new(),
            left_in_turn: 0,
            armed: false,
            ending: false,
            by_hand: ByHand::No,
        })
    }

    /// How long a wait may be.
    pub(super) fn rest(&self) -> Option<Duration> {
        match self.by_hand {
            ByHand::Rests { until } => Some(until.saturating_duration_since(Instant::now())),
            _ => None,
        }
    }

    /// Asks the kernel for what is missing, before a wait.
    pub(super) fn prepare(&mut self, ring: &mut Ring) {
        let Some(listener) = &self.listener else { return };
        let fd = Fd(listener.as_raw_fd());
        let request = match self.by_hand {
            ByHand::No if !self.armed && self.accepted.len() < ACCEPTS_PER_TURN => {
                self.armed = true;
                let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
                opcode::AcceptMulti::new(fd).flags(flags).build().user_data(Subject::Accept.user_data())
            }
            ByHand::Asked => {
                self.by_hand = ByHand::Waits;
                opcode::PollAdd::new(fd, libc::POLLIN as u32).build().user_data(Subject::Door.user_data())
            }
            _ => return,
        };
        // SAFETY: neither request points at anything.
        unsafe { ring.push(&request) };
    }

    /// Begins a turn.
    pub(super) fn begin_turn(&mut self) {
        self.left_in_turn = ACCEPTS_PER_TURN;
        if let ByHand::Rests { until } = self.by_hand
            && until <= Instant::now()
        {
            self.by_hand = ByHand::Knocked;
        }
    }

    /// Takes in what came of accepting.
    pub(super) fn accepted(&mut self, cqe: Cqe, ring: &mut Ring) {
        if !cqe.has_more() {
            (self.armed, self.ending) = (false, false);
        }
        if cqe.result >= 0 {
            // SAFETY: the kernel has just opened it for us, and nobody else knows of it.
            let stream = unsafe { TcpStream::from_raw_fd(cqe.result) };
            if self.listener.is_some() {
                self.accepted.push_back(stream);
            }
            if self.accepted.len() >= ACCEPTED_MAX && self.armed && !self.ending {
                self.ending = true;
                ring.cancel(Subject::Accept);
            }
        } else if -cqe.result != libc::ECANCELED && self.by_hand == ByHand::No {
            // By hand it can be told what the matter is, and the connection that can't be had is not left to wait.
            self.by_hand = ByHand::Asked;
        }
    }

    /// Somebody waits, or the listener is broken, which accepting tells.
    pub(super) fn knocked(&mut self) {
        if self.by_hand == ByHand::Waits {
            self.by_hand = ByHand::Knocked;
        }
    }

    /// The next connection, as far as it belongs into this turn.
    pub(super) fn next(&mut self) -> Option<Completion<'static>> {
        if self.left_in_turn == 0 {
            return None;
        }
        if let Some(stream) = self.accepted.pop_front() {
            self.left_in_turn -= 1;
            return Some(Completion::Accepted { stream });
        }
        if self.by_hand != ByHand::Knocked {
            return None;
        }
        self.left_in_turn -= 1;
        match self.listener.as_mut()?.accept() {
            Accept::Stream(stream) => {
                self.by_hand = ByHand::No;
                Some(Completion::Accepted { stream })
            }
            Accept::Nobody => {
                self.by_hand = ByHand::No;
                None
            }
            Accept::Failed { out_of_files, lasting } => {
                let until = Instant::now() + ACCEPT_REST;
                self.by_hand = if lasting { ByHand::Rests { until } } else { ByHand::Asked };
                Some(Completion::AcceptFailed { out_of_files })
            }
        }
    }

    /// Whether there is somebody to tell of.
    pub(super) fn has_more(&self) -> bool {
        !self.accepted.is_empty() || (self.by_hand == ByHand::Knocked && self.listener.is_some())
    }

    /// Accepts no more. Who was accepted and not told of is hung up on, as are those who still wait in the kernel's queue.
    pub(super) fn close(&mut self, ring: &mut Ring) {
        let Some(listener) = self.listener.take() else { return };
        self.accepted.clear();
        if self.armed {
            ring.cancel(Subject::Accept);
        }
        if self.by_hand == ByHand::Waits {
            ring.cancel(Subject::Door);
        }
        self.by_hand = ByHand::No;
        ring.close(listener.into_raw_fd());
    }
}
