//! Wakes a room thread, or the relay.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::Thread,
};

use tokio::sync::Notify;

use crate::ring::WakeFlag;

/// Wakes a room thread that waits for messages. A thread that waits for a tick is not woken, because it checks for
/// messages then.
#[derive(Debug, Default)]
pub(crate) struct ThreadWaker {
    /// Armed while the thread waits for messages or is about to.
    pub(super) waiting: WakeFlag,
    sleeper: Mutex<Option<Sleeper>>,
}

#[derive(Debug)]
enum Sleeper {
    /// The current thread.
    Thread(Thread),
    /// The relay, which waits for its connection as well.
    Relay(Arc<Notify>),
}

impl ThreadWaker {
    /// Makes the calling thread the one to wake.
    pub(super) fn attend(&self) {
        self.set(Sleeper::Thread(std::thread::current()));
    }

    /// Makes the relay the one to wake.
    pub(super) fn attend_as_relay(&self, notify: Arc<Notify>) {
        self.set(Sleeper::Relay(notify));
    }

    fn set(&self, sleeper: Sleeper) {
        *self.sleeper.lock().unwrap_or_else(PoisonError::into_inner) = Some(sleeper);
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
        match &*self.sleeper.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(Sleeper::Thread(thread)) => thread.unpark(),
            Some(Sleeper::Relay(notify)) => notify.notify_one(),
            None => {}
        }
    }
}
