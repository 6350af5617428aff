//! Room openings that are reserved for joins of this shard's sessions.

use crate::{
    SessionKey,
    room::{JoinParams, Opening},
};

use super::Sessions;

impl Sessions {
    /// Reserves an opening for a join of this session.
    pub(super) fn reserve_opening(&mut self, key: SessionKey, now_us: u64) -> Opening {
        let source = self.table.at(key.index).source;
        self.openers.reserve(key, source, now_us)
    }

    /// Releases an opening that a join of this session did not use. If the session has ended, its openings are only
    /// refilled by time.
    pub(super) fn release_opening(&mut self, key: SessionKey, join: &JoinParams, now_us: u64) {
        if join.opening == Opening::Reserved
            && let Some(session) = self.table.get(key)
        {
            let source = session.source;
            self.openers.release(key, source, now_us);
        }
    }
}
