//! How one thread asks to be called and another finds out whether to call.
//!
//! Both look at two things in opposite order: the waiter arms the bell and *then* looks for work; the caller puts work
//! there and *then* looks at the bell. A sequentially consistent fence between the two steps on either side makes it
//! impossible that both see the old state: either the waiter finds the work, or the caller finds the bell armed.

use super::atomics::{AtomicBool, Ordering, fence};

/// A bell that many may ring and one waits for.
#[derive(Debug, Default)]
pub struct Bell {
    armed: AtomicBool,
}

impl Bell {
    /// The waiter's: asks to be called. Whatever it waits for must be looked for once more after this.
    pub fn arm(&self) {
        // A swap and not a store: it takes its place behind every swap of a caller that it has not seen.
        self.armed.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// The waiter's: needs no call any more. One that is under way may still come.
    pub fn disarm(&self) {
        self.armed.store(false, Ordering::Relaxed);
    }

    /// The caller's: whether the waiter has to be called for what the caller has just put there. True to one caller for
    /// each arming.
    pub fn answer(&self) -> bool {
        fence(Ordering::SeqCst);
        self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::AcqRel)
    }
}
