//! Closes sessions whose clients are too slow.

use dunlin_protocol::Disconnect;

use crate::{SessionKey, planted::Bug};

use super::{Context, Sessions, close::QueuedFrames};

impl Sessions {
    /// Ends a session that is too far behind, and drops its queue.
    pub(super) fn close_slow(&mut self, context: &mut Context, key: SessionKey) {
        let outbox = self.table.outbox(key.index);
        if outbox.has_too_many_bytes(&context.options.client) {
            context.counters.slow_bytes += 1;
        } else {
            context.counters.slow_frames += 1;
        }
        if context.planted.is(Bug::SlowCloseCutsFrame) {
            self.table.outbox(key.index).forget_begun();
        }
        self.close_with(context, key, &Disconnect::SLOW, QueuedFrames::Discard);
    }
}
