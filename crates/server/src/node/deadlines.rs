//! Deadlines of connections that are not, or not wholly, the engine's business.

use std::collections::VecDeque;

use crate::net::ConnectionKey;

/// Deadlines of one kind. All are set the same time ahead, so they come in the order in which they were set, and a queue is
/// enough; that a connection needs its deadline no more is seen when it has come.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    queue: VecDeque<(u64, ConnectionKey)>,
}

impl Deadlines {
    pub(super) fn set(&mut self, due_us: u64, connection: ConnectionKey) {
        self.queue.push_back((due_us, connection));
    }

    pub(super) fn next_us(&self) -> Option<u64> {
        self.queue.front().map(|(due_us, _)| *due_us)
    }

    /// Takes one that has passed.
    pub(super) fn pop_due(&mut self, now_us: u64) -> Option<ConnectionKey> {
        let (_, connection) = self.queue.pop_front_if(|(due_us, _)| *due_us <= now_us)?;
        Some(connection)
    }
}
