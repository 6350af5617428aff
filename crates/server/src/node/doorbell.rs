//! How a shard is woken.

use std::sync::Arc;

use crate::{net::Waker, ring::Bell};

/// Wakes a shard that sleeps, and costs next to nothing while it does not.
#[derive(Debug)]
pub(crate) struct Doorbell {
    /// Armed while the shard sleeps or is about to.
    pub(crate) sleeping: Bell,
    waker: Arc<Waker>,
}

impl Doorbell {
    pub(crate) fn new(waker: Arc<Waker>) -> Self {
        Self { sleeping: Bell::default(), waker }
    }

    /// To be called after something was put where the shard will find it. Whether the shard had to be woken.
    pub(crate) fn ring(&self) -> bool {
        let sleeps = self.sleeping.answer();
        if sleeps {
            // Fails only if the eventfd's count overflows, and then the shard is woken anyway.
            let _ = self.waker.wake();
        }
        sleeps
    }
}
