//! Wakes a sleeping shard.

use std::sync::Arc;

use dunlin_net::Waker;

use crate::ring::WakeFlag;

/// Wakes a sleeping shard. Costs next to nothing while the shard is awake.
#[derive(Debug)]
pub(crate) struct ShardWaker {
    /// Armed while the shard sleeps or is about to.
    pub(crate) sleeping: WakeFlag,
    waker: Arc<Waker>,
}

impl ShardWaker {
    pub(crate) fn new(waker: Arc<Waker>) -> Self {
        Self { sleeping: WakeFlag::default(), waker }
    }

    /// Must be called after work was added for the shard. Returns whether the shard had to be woken.
    pub(crate) fn wake(&self) -> bool {
        let sleeps = self.sleeping.try_take();
        if sleeps {
            // Fails only if the eventfd's counter overflows, and then the shard is awake.
            let _ = self.waker.wake();
        }
        sleeps
    }
}
