//! Wakeups by other threads, through an eventfd that the ring polls.

use std::{os::fd::AsRawFd as _, sync::Arc};

use ::io_uring::{opcode, types::Fd};

use super::{
    ring::{Cqe, Ring},
    slots::Subject,
};
use crate::Waker;

pub(super) struct Wakeups {
    waker: Arc<Waker>,
    /// The poll request is pending.
    is_armed: bool,
    is_woken: bool,
}

impl Wakeups {
    pub(super) fn new(waker: Arc<Waker>) -> Self {
        Self { waker, is_armed: false, is_woken: false }
    }

    /// Queues a missing request before a wait.
    pub(super) fn prepare(&mut self, ring: &mut Ring) {
        if !self.is_armed
            && let Waker::Eventfd(file) = &*self.waker
        {
            self.is_armed = true;
            let poll = opcode::PollAdd::new(Fd(file.as_raw_fd()), libc::POLLIN as u32).multi(true).build();
            // SAFETY: the request contains no pointers.
            unsafe { ring.push(&poll.user_data(Subject::Wake.user_data())) };
        }
    }

    /// Processes the completion of the request.
    pub(super) fn on_readable(&mut self, cqe: Cqe) {
        self.is_woken = true;
        self.is_armed = cqe.has_more();
    }

    pub(super) fn has_news(&self) -> bool {
        self.is_woken
    }

    /// Whether there was a wakeup since the last call.
    pub(super) fn take(&mut self) -> bool {
        std::mem::take(&mut self.is_woken)
    }
}
