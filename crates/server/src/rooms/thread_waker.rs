//! Wakes a room thread.

use std::{
    sync::{Mutex, PoisonError},
    thread::Thread,
};

use crate::ring::WakeFlag;

/// Wakes a room thread that waits for messages. A thread that waits for a tick is not woken, because it checks for
/// messages then.
#[derive(Debug, Default)]
pub(crate) struct ThreadWaker {
    /// Armed while the thread waits for messages or is about to.
    pub(super) waiting: WakeFlag,
    /// The current thread.
    thread: Mutex<Option<Thread>>,
}

impl ThreadWaker {
    /// Makes the calling thread the one to wake.
    pub(super) fn attend(&self) {
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::thread::current());
    }

    /// Must be called after work was added for the thread. Returns whether the thread had to be woken.
    pub(crate) fn wake(&self) -> bool {
        let waits = self.waiting.try_take();
        if waits {
            self.call();
        }
        waits
    }

    /// Wakes the thread regardless of what it waits for.
    pub(super) fn call(&self) {
        if let Some(thread) = &*self.thread.lock().unwrap_or_else(PoisonError::into_inner) {
            thread.unpark();
        }
    }
}
