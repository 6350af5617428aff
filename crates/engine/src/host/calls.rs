//! A game's calls to the backend: the calls that leave a room with a tick, and their answers.

use bytes::Bytes;
use dunlin_rooms::{CallError, CallId, GameCall, Refusal};

use super::{CompletedTick, RoomHost, Runner, Step};
use crate::backend::{ProxyError, ProxyResponse, ProxyResult};

/// Counts of a game's calls by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// The backend answered.
    pub answered: u64,
    /// The backend answered with an error.
    pub errors: u64,
    /// The backend could not be reached, did not answer within the timeout of its proxy, or its answer was invalid.
    pub failed: u64,
    /// The proxy's request queue was full.
    pub busy: u64,
    /// The answer was longer than the limit.
    pub too_long: u64,
    /// The answer did not arrive within the number of ticks that the game allowed.
    pub timed_out: u64,
    /// Answers that arrived after that.
    pub late: u64,
    /// Calls whose answers were lost by a restart.
    pub lost: u64,
    /// Calls that the world refused because of a limit.
    pub refused: u64,
}

impl RoomHost {
    /// Queues the backend's result of a call for the next tick.
    pub fn take_answer(&mut self, call: CallId, result: ProxyResult) {
        let outcome = outcome_of(result, self.options.call_bytes_max);
        self.arrived.push_back(Step::Answer { call, outcome });
    }
}

fn outcome_of(result: ProxyResult, bytes_max: usize) -> Result<Bytes, CallError> {
    let (outcome, length) = match result {
        Ok(ProxyResponse::Rpc { data }) => {
            let data = data.map_or_else(Bytes::new, |data| data.bytes().clone());
            let length = data.len();
            (Ok(data), length)
        }
        Err(ProxyError::Error { code, message, .. }) => {
            let length = message.len();
            (Err(CallError::Refused(Refusal { code, message })), length)
        }
        Err(ProxyError::Busy) => (Err(CallError::Busy), 0),
        // A room has no session to close.
        Ok(_) | Err(ProxyError::Failed | ProxyError::Disconnect(_)) => (Err(CallError::Failed), 0),
    };
    if length > bytes_max { Err(CallError::TooLong) } else { outcome }
}

impl Runner {
    pub(super) fn apply_answer(&mut self, call: CallId, outcome: &Result<Bytes, CallError>, counts: &mut CallCounts) {
        let given = outcome.as_ref().map(|data| &data[..]).map_err(Clone::clone);
        let count = match outcome {
            _ if !self.room.answer(call, given) => &mut counts.late,
            Ok(_) => &mut counts.answered,
            Err(CallError::Refused(_)) => &mut counts.errors,
            Err(CallError::Busy) => &mut counts.busy,
            Err(CallError::TooLong) => &mut counts.too_long,
            Err(CallError::Failed | CallError::Timeout | CallError::Lost) => &mut counts.failed,
        };
        *count += 1;
    }
}

impl CompletedTick {
    /// Takes the calls to send to the backend.
    pub fn take_calls(&mut self) -> Vec<GameCall> {
        std::mem::take(&mut self.outcome.calls.sent)
    }

    /// Counts of calls by outcome.
    pub fn calls(&self) -> CallCounts {
        self.calls
    }
}

impl std::ops::AddAssign for CallCounts {
    fn add_assign(&mut self, other: Self) {
        let Self { answered, errors, failed, busy, too_long, timed_out, late, lost, refused } = other;
        self.answered += answered;
        self.errors += errors;
        self.failed += failed;
        self.busy += busy;
        self.too_long += too_long;
        self.timed_out += timed_out;
        self.late += late;
        self.lost += lost;
        self.refused += refused;
    }
}
