//! The backend's answers to a game's calls.

use bytes::Bytes;
use dunlin_rooms::{CallError, Refusal};

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

/// The outcome of a call, from the backend's result.
pub(super) fn outcome_of(result: ProxyResult, bytes_max: usize) -> Result<Bytes, CallError> {
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

impl CallCounts {
    /// Counts an answer that the game has received, or that came too late.
    pub(super) fn count(&mut self, outcome: &Result<Bytes, CallError>, is_late: bool) {
        let count = match outcome {
            _ if is_late => &mut self.late,
            Ok(_) => &mut self.answered,
            Err(CallError::Refused(_)) => &mut self.errors,
            Err(CallError::Busy) => &mut self.busy,
            Err(CallError::TooLong) => &mut self.too_long,
            Err(CallError::Failed | CallError::Timeout | CallError::Lost) => &mut self.failed,
        };
        *count += 1;
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
