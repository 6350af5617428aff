//! What a session's backend answered.

use crate::{
    Effects, Now, SessionKey,
    backend::{BackendOutcome, QuestionId},
};

use super::Shard;

impl Shard {
    /// A backend was asked and has answered, or has not. What nobody waits for any more is counted and dropped.
    pub(super) fn backend_answered(
        &mut self,
        _now: Now,
        _key: SessionKey,
        _question: QuestionId,
        _outcome: BackendOutcome,
        _effects: &mut Effects,
    ) {
        self.counters.late_messages += 1;
    }
}
