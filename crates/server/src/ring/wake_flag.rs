//! A flag with which a thread that goes to sleep asks to be woken.
//!
//! Both sides access two variables in opposite order: the waiter arms the flag and *then* checks for work; the caller
//! adds work and *then* checks the flag. Each side has a sequentially consistent fence between its two steps, so they
//! cannot both see the old state: either the waiter finds the work, or the caller finds the flag armed.

use super::atomics::{AtomicBool, Ordering, fence};

/// A flag with one waiter and any number of callers.
#[derive(Debug, Default)]
pub struct WakeFlag {
    armed: AtomicBool,
}

impl WakeFlag {
    /// For the waiter: asks to be woken. The waiter must check for work again after this call.
    pub fn arm(&self) {
        // A swap rather than a store, so that it is ordered after every swap of a caller that it did not see.
        self.armed.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// For the waiter: withdraws the request. A wakeup in progress may still arrive.
    pub fn disarm(&self) {
        self.armed.store(false, Ordering::Relaxed);
    }

    /// For a caller: whether the waiter must be woken for the work that was just added. Returns `true` to one caller
    /// per arming.
    pub fn try_take(&self) -> bool {
        fence(Ordering::SeqCst);
        self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::AcqRel)
    }
}
