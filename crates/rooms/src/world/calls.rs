//! Calls of a game to the application's backend.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::WorldError;
use crate::{
    Refusal, RoomOptions,
    binary::{Reader, Unreadable, put_bytes, put_number},
    hash::Hasher,
};

/// A call's number in its room; never 0, and never reused.
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use std::collections::BTreeMap;
///
/// use dunlin_game::{CallId, PlayerId};
///
/// /// Who a call to the backend is about, for its answer.
/// #[derive(Default)]
/// struct Purchases(BTreeMap<CallId, PlayerId>);
///
/// let mut purchases = Purchases::default();
/// purchases.0.insert(CallId(1), PlayerId(7));
/// assert_eq!(purchases.0.remove(&CallId(1)), Some(PlayerId(7)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub u32);

/// A call that leaves the room.
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::GameCall;
///
/// /// A test looks for the call that its game must have made.
/// fn result_of(calls: &[GameCall]) -> Option<&[u8]> {
///     calls.iter().find(|call| &*call.method == "round_over").map(|call| &*call.data)
/// }
/// assert_eq!(result_of(&[]), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GameCall {
    /// The number of the call, which the answer repeats.
    pub id: CallId,
    /// The method, for the backend.
    pub method: Box<str>,
    /// The data, for the backend.
    pub data: Bytes,
}

/// Why a call has no answer.
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::CallError;
///
/// /// Whether the backend certainly did nothing, so that the game can call it again.
/// fn may_be_repeated(error: &CallError) -> bool {
///     matches!(error, CallError::Busy | CallError::Refused(_))
/// }
/// assert!(!may_be_repeated(&CallError::Timeout));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The answer did not arrive in time. The backend may have carried out the call.
    Timeout,
    /// The backend could not be reached, did not answer within the timeout of its proxy, or its answer was malformed.
    /// It may have carried out the call.
    Failed,
    /// The proxy's request queue was full. The backend was not called.
    Busy,
    /// The answer is longer than `room.call_size_limit`. The backend has carried out the call.
    TooLong,
    /// The room has continued after a restart, and the answer was lost. The backend may have carried out the call.
    Lost,
    /// The backend's own error: a code from 100 to 1,999, and a message.
    Refused(Refusal),
}

impl CallError {
    /// A one-word name for logs.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::CallError;
    ///
    /// assert_eq!(CallError::TooLong.name(), "too_long");
    /// ```
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Failed => "failed",
            Self::Busy => "busy",
            Self::TooLong => "too_long",
            Self::Lost => "lost",
            Self::Refused(_) => "refused",
        }
    }
}

/// The calls of a tick.
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::CallsOfTick;
///
/// /// What a test of a game expects: each call was made, and none is late.
/// fn check(calls: &CallsOfTick) {
///     assert_eq!((calls.refused, calls.timed_out), (0, 0));
/// }
/// check(&CallsOfTick::default());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallsOfTick {
    /// Calls that leave the room, in the order in which the game made them.
    pub sent: Vec<GameCall>,
    /// Calls that timed out.
    pub timed_out: u32,
    /// Calls that were refused because of a limit.
    pub refused: u32,
}

/// The pending calls of a room.
#[derive(Debug)]
pub(crate) struct Calls {
    calls_max: usize,
    bytes_max: usize,
    last_id: u32,
    /// Calls that leave at the end of the tick, with their timeouts in ticks.
    pending: Vec<(GameCall, u32)>,
    /// The bytes of the methods and the data of all pending calls.
    pending_bytes: usize,
    /// The remaining ticks of each call.
    waiting: BTreeMap<CallId, u32>,
    /// Not part of the world's state.
    of_tick: CallsOfTick,
}

impl Calls {
    pub(super) fn new(options: &RoomOptions) -> Self {
        let (calls_max, bytes_max) = (options.calls_max, options.call_bytes_max);
        let (pending, waiting, of_tick) = (Vec::new(), BTreeMap::new(), CallsOfTick::default());
        Self { calls_max, bytes_max, last_id: 0, pending, pending_bytes: 0, waiting, of_tick }
    }

    /// The number of calls without an answer.
    pub(super) fn len(&self) -> usize {
        self.pending.len() + self.waiting.len()
    }

    pub(super) fn add(&mut self, method: &str, data: &[u8], timeout_ticks: u32) -> Result<CallId, WorldError> {
        let id = self.check(method, data).inspect_err(|_| self.of_tick.refused += 1)?;
        self.last_id = id.0;
        let call = GameCall { id, method: method.into(), data: Bytes::copy_from_slice(data) };
        self.wait_for_end_of_tick(call, timeout_ticks.max(1));
        Ok(id)
    }

    fn wait_for_end_of_tick(&mut self, call: GameCall, timeout_ticks: u32) {
        self.pending_bytes += call.method.len() + call.data.len();
        self.pending.push((call, timeout_ticks));
    }

    fn check(&self, method: &str, data: &[u8]) -> Result<CallId, WorldError> {
        if self.calls_max == 0 {
            return Err(WorldError::NoBackend);
        }
        if method.len().saturating_add(data.len()) > self.bytes_max {
            return Err(WorldError::CallTooLong);
        }
        if self.len() >= self.calls_max {
            return Err(WorldError::TooManyCalls);
        }
        self.last_id.checked_add(1).map(CallId).ok_or(WorldError::TooManyCalls)
    }

    /// Starts a tick. Returns the calls that time out, in the order in which they were made.
    pub(crate) fn begin_tick(&mut self) -> Vec<CallId> {
        self.waiting.values_mut().for_each(|ticks_left| *ticks_left -= 1);
        let late: Vec<CallId> =
            self.waiting.extract_if(.., |_, ticks_left| *ticks_left == 0).map(|(id, _)| id).collect();
        self.of_tick.timed_out += late.len() as u32;
        late
    }

    /// Ends a call. Returns whether it was pending.
    pub(crate) fn end(&mut self, id: CallId) -> bool {
        self.waiting.remove(&id).is_some()
    }

    /// Ends all calls: their answers are lost, and pending ones are not sent. Returns them in the order in which they
    /// were made.
    pub(crate) fn lose_all(&mut self) -> Vec<CallId> {
        self.pending_bytes = 0;
        let waiting = std::mem::take(&mut self.waiting).into_keys();
        waiting.chain(std::mem::take(&mut self.pending).into_iter().map(|(call, _)| call.id)).collect()
    }

    /// Ends a tick: pending calls leave, and their timeouts start.
    pub(crate) fn end_tick(&mut self) {
        self.pending_bytes = 0;
        for (call, timeout_ticks) in self.pending.drain(..) {
            self.waiting.insert(call.id, timeout_ticks);
            self.of_tick.sent.push(call);
        }
    }

    /// Takes the calls and counts of this tick.
    pub(crate) fn take_of_tick(&mut self) -> CallsOfTick {
        std::mem::take(&mut self.of_tick)
    }

    pub(super) fn save(&self, out: &mut Vec<u8>) {
        put_number(u64::from(self.last_id), out);
        put_number(self.pending.len() as u64, out);
        for (call, timeout_ticks) in &self.pending {
            put_number(u64::from(call.id.0), out);
            put_bytes(call.method.as_bytes(), out);
            put_bytes(&call.data, out);
            put_number(u64::from(*timeout_ticks), out);
        }
        put_number(self.waiting.len() as u64, out);
        for (id, ticks_left) in &self.waiting {
            put_number(u64::from(id.0), out);
            put_number(u64::from(*ticks_left), out);
        }
    }

    /// Restores what [`Calls::save`] wrote. There may be more calls than the current limit.
    pub(super) fn restore(&mut self, saved: &mut Reader<'_>) -> Result<(), Unreadable> {
        self.last_id = saved.number_of()?;
        for _ in 0..saved.count()? {
            let id = self.restore_id(saved)?;
            let (method, data) = (saved.text()?.into(), Bytes::copy_from_slice(saved.bytes()?));
            self.wait_for_end_of_tick(GameCall { id, method, data }, restore_ticks(saved)?);
        }
        for _ in 0..saved.count()? {
            let id = self.restore_id(saved)?;
            self.waiting.insert(id, restore_ticks(saved)?);
        }
        Ok(())
    }

    fn restore_id(&self, saved: &mut Reader<'_>) -> Result<CallId, Unreadable> {
        let id = saved.number_of()?;
        if (1..=self.last_id).contains(&id) { Ok(CallId(id)) } else { Err(Unreadable::Wrong) }
    }

    /// Adds everything that the future depends on to a hash; nothing if the game has never made a call.
    pub(super) fn hash(&self, hasher: Hasher) -> Hasher {
        if self.last_id == 0 {
            return hasher;
        }
        let hasher = hasher.number(u64::from(self.last_id)).number(self.pending.len() as u64);
        let hasher = self.pending.iter().fold(hasher, |hasher, (call, timeout_ticks)| {
            let hasher = hasher.number(u64::from(call.id.0)).bytes(call.method.as_bytes());
            hasher.bytes(&call.data).number(u64::from(*timeout_ticks))
        });
        self.waiting
            .iter()
            .fold(hasher, |hasher, (id, ticks_left)| hasher.number(u64::from(id.0)).number(u64::from(*ticks_left)))
    }

    /// Approximate memory in bytes, without the calls that have left the room.
    pub(super) fn memory_bytes(&self) -> usize {
        self.pending_bytes
            + self.pending.capacity() * size_of::<(GameCall, u32)>()
            + self.waiting.len() * size_of::<(CallId, u32)>()
    }
}

fn restore_ticks(saved: &mut Reader<'_>) -> Result<u32, Unreadable> {
    match saved.number_of()? {
        0 => Err(Unreadable::Wrong),
        ticks => Ok(ticks),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory as it is counted, and as a walk over all calls finds it.
    fn assert_counted(calls: &Calls) {
        let bytes: usize = calls.pending.iter().map(|(call, _)| call.method.len() + call.data.len()).sum();
        assert_eq!(calls.pending_bytes, bytes);
    }

    #[test]
    fn the_memory_of_calls_is_counted_until_they_leave() {
        let options = RoomOptions { calls_max: 64, call_bytes_max: 1_024, ..RoomOptions::default() };
        let mut calls = Calls::new(&options);
        assert_eq!(calls.memory_bytes(), 0);
        for _ in 0..10 {
            calls.add("reward", &[7; 1_000], 60).expect("within the limits");
            assert_counted(&calls);
        }
        let pending = calls.memory_bytes();
        assert!((10_060..20_000).contains(&pending), "{pending}");

        let mut saved = Vec::new();
        calls.save(&mut saved);
        let mut restored = Calls::new(&options);
        restored.restore(&mut Reader::new(&saved)).expect("as it was saved");
        assert_counted(&restored);

        calls.end_tick();
        assert_counted(&calls);
        assert_eq!(calls.take_of_tick().sent.len(), 10);
        // The list keeps its memory, and each call waits for its answer.
        assert_eq!(calls.memory_bytes(), pending - 10_060 + 10 * size_of::<(CallId, u32)>());
        restored.lose_all();
        assert_eq!(restored.memory_bytes(), 0);
    }
}
