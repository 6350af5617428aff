//! The end of all sessions of a shard, before the node ends.

use dunlin_protocol::Disconnect;

use crate::{SessionKey, session::Phase};

use super::{Context, open_sessions::OpenSessions};

/// The state of a drain, which ends all sessions.
#[derive(Default)]
pub(super) struct Drain {
    /// Whether new sessions are closed at once.
    pub(super) admits_none: bool,
    /// The position of a staged drain in the table.
    next: u32,
    /// Whether the first pass over the table, which closes idle sessions, is complete.
    idle_are_gone: bool,
}

impl Drain {
    /// Closes up to `sessions_max` sessions. The first pass over the table closes idle sessions, which have nothing
    /// queued and wait for no answer. So no session has to store when it was last used. A second pass closes the rest.
    pub(super) fn close_some(&mut self, context: &mut Context, sessions: &mut OpenSessions, sessions_max: usize) {
        let mut left = sessions_max;
        while left > 0 {
            let Self { next, idle_are_gone, .. } = *self;
            let Some(key) = sessions.table.next_from(next) else {
                (self.next, self.idle_are_gone) = (0, true);
                if idle_are_gone {
                    return;
                }
                continue;
            };
            self.next = key.index + 1;
            let session = sessions.table.at(key.index);
            let (is_open, is_paused) = (session.phase != Phase::Closing, session.paused.is_some());
            let is_idle = !is_paused && sessions.table.outbox(key.index).is_empty();
            if is_open && (idle_are_gone || is_idle) {
                sessions.close(context, key, &Disconnect::SHUTDOWN);
                left -= 1;
            }
        }
    }

    /// Closes every session and admits none.
    pub(super) fn close_all(&mut self, context: &mut Context, sessions: &mut OpenSessions) {
        self.admits_none = true;
        let keys: Vec<SessionKey> = sessions.table.iter().map(|session| session.key).collect();
        for key in keys {
            sessions.close(context, key, &Disconnect::SHUTDOWN);
        }
    }
}
