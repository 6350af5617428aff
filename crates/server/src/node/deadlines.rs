//! Deadlines of connections that the engine does not manage, such as incomplete handshakes.

use std::collections::VecDeque;

use dunlin_net::ConnectionKey;

/// The deadlines of a shard's connections.
#[derive(Debug, Default)]
pub(super) struct ConnectionDeadlines {
    /// For requests.
    pub(super) head: Deadlines,
    /// For peers to close connections to which nothing more is sent.
    pub(super) linger: Deadlines,
    /// For the rest of incomplete messages.
    pub(super) message: Deadlines,
}

impl ConnectionDeadlines {
    pub(super) fn next_us(&self) -> Option<u64> {
        [&self.head, &self.linger, &self.message].into_iter().filter_map(Deadlines::next_us).min()
    }
}

/// Deadlines of one kind. All have the same timeout, so a queue keeps them in order. An obsolete deadline is ignored
/// when it expires.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    queue: VecDeque<(u64, ConnectionKey)>,
}

impl Deadlines {
    pub(super) fn set(&mut self, due_us: u64, connection: ConnectionKey) {
        self.queue.push_back((due_us, connection));
    }

    fn next_us(&self) -> Option<u64> {
        self.queue.front().map(|(due_us, _)| *due_us)
    }

    /// Removes a deadline that has passed.
    pub(super) fn pop_due(&mut self, now_us: u64) -> Option<ConnectionKey> {
        let (_, connection) = self.queue.pop_front_if(|(due_us, _)| *due_us <= now_us)?;
        Some(connection)
    }
}
