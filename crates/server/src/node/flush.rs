//! Writes each session with pending data once per turn.

use dunlin_engine::{Effect, Event};
use dunlin_net::{Reactor, SEND_SLICES_MAX, SendCompletion, SendOutcome};

use super::shard_thread::ShardThread;

impl<R: Reactor> ShardThread<R> {
    /// Writes every dirty session.
    ///
    /// This is the path of a delivery: two lookups by index and one system call.
    pub(super) fn flush(&mut self) {
        let mut flushing = std::mem::take(&mut self.flushing);
        self.engine.swap_dirty(&mut flushing);
        if self.secure.is_some() {
            self.encrypt_outgoing(&mut flushing);
        }
        for batch in flushing.chunks(R::BATCH_MAX) {
            for session in batch {
                // A session with a full socket is marked dirty when the socket is writable again.
                if self.reactor.takes_bytes(*session) {
                    // SAFETY: until the results are fetched, the engine is called only for the slices of other
                    // sessions, which does not change these (see `Shard::outgoing`), and the reactor only for more
                    // sends.
                    unsafe {
                        match &self.secure {
                            None => self.reactor.send(*session, self.engine.outgoing(*session)),
                            Some(secure) => {
                                let waiting = Some(secure.waiting(*session)).filter(|waiting| !waiting.is_empty());
                                self.reactor.send(*session, waiting.into_iter());
                            }
                        }
                    }
                }
            }
            while let Some(sent) = self.reactor.sent() {
                self.count_sent(sent);
            }
        }
        self.flushing = flushing;
        self.flushing.clear();
    }

    fn count_sent(&mut self, sent: SendCompletion) {
        let session = sent.connection;
        self.counters.writes += 1;
        if sent.written_bytes > 0 {
            self.counters.write_bytes += sent.written_bytes as u64;
            if self.secure.is_some() {
                self.wrote_secure(session, sent.written_bytes);
            } else {
                let event = Event::Wrote { session, bytes: sent.written_bytes };
                self.engine.handle(event);
            }
        }
        match sent.outcome {
            SendOutcome::All => {
                // Only a write that may have reached the limit per write can leave data behind.
                let is_large = sent.slices > 1 || sent.offered_bytes >= LARGE_BYTES || self.secure.is_some();
                if is_large && self.engine.has_outgoing(session) {
                    self.engine.mark_dirty(session);
                }
            }
            SendOutcome::Full => self.counters.blocked_writes += 1,
            // Deferred: closing a session may queue leaves for other sessions of this batch, whose writes the engine
            // has not processed yet.
            SendOutcome::Broken => self.engine.defer(Effect::HangUp { session }),
        }
    }
}

/// The engine's limit for one write is above this value and above one slice.
const LARGE_BYTES: usize = 65_536;

const _: () = assert!(SEND_SLICES_MAX > 1);

#[cfg(test)]
mod tests;
