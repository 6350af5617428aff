//! Accepts connections with a multishot request, and one by one after that has failed.

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
    socket::Target,
};

/// Connections reported per turn. The limit leaves time for the existing connections during a connection storm.
const ACCEPTS_PER_TURN: usize = 64;

/// Accepted connections that may wait to be reported before the multishot request is cancelled.
const ACCEPTED_MAX: usize = 4 * ACCEPTS_PER_TURN;

/// Pause of the listener after an accept failed for a lasting reason.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// The listener.
pub(super) struct MultishotAcceptor {
    /// `None` after [`Self::close`].
    listener: Option<Listener>,
    accepted: VecDeque<TcpStream>,
    left_in_turn: usize,
    /// The multishot request is with the kernel.
    armed: bool,
    /// The multishot request is being cancelled.
    ending: bool,
    by_hand: ByHand,
}

/// The state of accepting connections one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ByHand {
    /// The multishot request is in use.
    No,
    /// The multishot request failed; a poll request for the listener is to be submitted.
    Asked,
    /// The poll request is with the kernel.
    Waits,
    /// The listener may have a pending connection.
    Knocked,
    /// Accepting one by one failed as well, for a lasting reason.
    Rests { until: Instant },
}

impl MultishotAcceptor {
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

    /// The time until the next attempt, which limits the next wait.
    pub(super) fn rest(&self) -> Option<Duration> {
        match self.by_hand {
            ByHand::Rests { until } => Some(until.saturating_duration_since(Instant::now())),
            _ => None,
        }
    }

    /// Queues missing requests before a wait.
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
                opcode::PollAdd::new(fd, libc::POLLIN as u32).build().user_data(Subject::Listener.user_data())
            }
            _ => return,
        };
        // SAFETY: neither request contains pointers.
        unsafe { ring.push(&request) };
    }

    pub(super) fn begin_turn(&mut self) {
        self.left_in_turn = ACCEPTS_PER_TURN;
        if let ByHand::Rests { until } = self.by_hand
            && until <= Instant::now()
        {
            self.by_hand = ByHand::Knocked;
        }
    }

    /// Processes a completion of the multishot request.
    pub(super) fn accepted(&mut self, cqe: Cqe, ring: &mut Ring) {
        if !cqe.has_more() {
            (self.armed, self.ending) = (false, false);
        }
        if cqe.result >= 0 {
            // SAFETY: the kernel has just opened the descriptor for this process, and nothing else owns it.
            let stream = unsafe { TcpStream::from_raw_fd(cqe.result) };
            if self.listener.is_some() {
                self.accepted.push_back(stream);
            }
            if self.accepted.len() >= ACCEPTED_MAX && self.armed && !self.ending {
                self.ending = true;
                ring.cancel(Subject::Accept.user_data());
            }
        } else if -cqe.result != libc::ECANCELED && self.by_hand == ByHand::No {
            // A single accept returns the exact error, and can drop a connection for which no descriptor is left.
            self.by_hand = ByHand::Asked;
        }
    }

    /// Processes the completion of the poll request: a connection is pending, or the listener is broken.
    pub(super) fn on_readable(&mut self) {
        if self.by_hand == ByHand::Waits {
            self.by_hand = ByHand::Knocked;
        }
    }

    /// The next connection, within the limit of this turn.
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

    /// Whether a connection waits to be reported.
    pub(super) fn has_more(&self) -> bool {
        !self.accepted.is_empty() || (self.by_hand == ByHand::Knocked && self.listener.is_some())
    }

    /// Stops accepting. Closes accepted connections that were not reported, and resets those in the kernel's queue.
    pub(super) fn close(&mut self, ring: &mut Ring) {
        let Some(listener) = self.listener.take() else { return };
        self.accepted.clear();
        if self.armed {
            ring.cancel(Subject::Accept.user_data());
        }
        if self.by_hand == ByHand::Waits {
            ring.cancel(Subject::Listener.user_data());
        }
        self.by_hand = ByHand::No;
        ring.close(Target::Descriptor(listener.into_raw_fd()));
    }
}
