//! How a room thread is woken.

use std::{
    sync::{Mutex, PoisonError},
    thread::Thread,
};

use crate::ring::Bell;

/// Wakes a room thread that waits for messages. One that only waits for a tick is left alone: it looks for messages then.
#[derive(Debug, Default)]
pub(crate) struct ThreadDoor {
    /// Armed while the thread waits for messages, or is about to.
    pub(super) waiting: Bell,
    /// The thread that works now.
    thread: Mutex<Option<Thread>>,
}

impl ThreadDoor {
    /// Says that this thread is who is to be woken from now on.
    pub(super) fn attend(&self) {
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::thread::current());
    }

    /// To be called after something was put where the thread will find it. Whether it had to be woken.
    pub(crate) fn ring(&self) -> bool {
        let waits = self.waiting.answer();
        if waits {
            self.call();
        }
        waits
    }

    /// Wakes the thread whatever it waits for.
    pub(super) fn call(&self) {
        if let Some(thread) = &*self.thread.lock().unwrap_or_else(PoisonError::into_inner) {
            thread.unpark();
        }
    }
}
