//! The part of a tick that runs game code, without the scheduler's lock.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use dunlin_config::RoomSettings;
use dunlin_engine::host::{CompletedTick, Step, TickBatch};

use super::{FailureReason, scheduled_room::Live, survival::CheckpointPieces};

/// A tick to run.
pub(super) struct Job {
    /// The room's index in the scheduler.
    pub(super) place: usize,
    /// The room's namespace.
    pub(super) namespace: u16,
    pub(super) settings: Arc<RoomSettings>,
    /// Expected duration from previous ticks; the maximum if it is unknown.
    pub(super) expected_ns: u64,
    pub(super) live: Box<Live>,
    pub(super) batch: TickBatch,
    pub(super) time_us: u64,
}

/// A completed tick.
pub(super) struct Finished {
    pub(super) place: usize,
    /// The steps at its begin.
    pub(super) steps: Vec<Step>,
    pub(super) outcome: Result<(Box<Live>, CompletedTick), Failure>,
}

/// Why a room failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) reason: FailureReason,
    /// The game's own message, if any.
    pub(super) detail: String,
}

/// Maximum number of characters of a game's message.
const DETAIL_CHARS_MAX: usize = 200;

impl Job {
    /// Runs the tick. Returns when the game's code returns or panics.
    pub(super) fn run(self) -> Finished {
        let Self { place, settings, live, batch, time_us, .. } = self;
        // Prevents memory of shards from being freed on the room's account.
        let steps = batch.steps.clone();
        // A room above its limit after a call ends. A single call may allocate as much again before its thread is
        // stopped.
        let outcome = tick(live, batch, &steps, time_us, settings.memory_bytes_max);
        Finished { place, steps, outcome }
    }
}

fn tick(
    mut live: Box<Live>,
    batch: TickBatch,
    steps: &[Step],
    time_us: u64,
    growth_bytes_max: u64,
) -> Result<(Box<Live>, CompletedTick), Failure> {
    let Live { runner, account, recorder, keeper, paths, .. } = &mut *live;
    if let Some(keeper) = keeper
        && let Err(failure) = keeper.before_tick(runner, account, steps, growth_bytes_max)
    {
        discard(live);
        return Err(failure);
    }
    if let Some(recorder) = recorder {
        account.charge(u64::MAX, || recorder.begin_tick(runner.expiring(), steps));
        recorder.keep(0);
    }
    let ran = catch_unwind(AssertUnwindSafe(|| account.charge(growth_bytes_max, || runner.run(batch, time_us))));
    let done = match ran {
        Ok(done) => done,
        Err(payload) => {
            discard(live);
            return Err(panicked(payload));
        }
    };
    // Data that leaves the room is copied, so that the room's own memory is freed on its account.
    let copy = done.detached();
    done.updates().for_each(|update| account.lend(update));
    account.charge(u64::MAX, || drop(done));
    account.collect();
    if let Some(recorder) = recorder {
        // The hash covers the game's saved state, so this runs game code as well.
        let end_tick = || account.charge(growth_bytes_max, || recorder.end_tick(steps, &copy, runner.room()));
        if let Err(payload) = catch_unwind(AssertUnwindSafe(end_tick)) {
            discard(live);
            return Err(panicked(payload));
        }
        recorder.keep(1);
    }
    if let Some(paths) = paths {
        // No game code runs here, and the memory is not the room's.
        paths.end_tick(steps, &copy, runner.room(), time_us);
    }
    if let Some(keeper) = keeper
        && let Err(failure) = keeper.after_tick(runner, account, growth_bytes_max)
    {
        discard(live);
        return Err(failure);
    }
    Ok((live, copy))
}

/// Saves a stored room when the node stops, and drops it.
pub(super) fn save_and_discard(mut live: Box<Live>) {
    let Live { runner, account, keeper, settings, .. } = &mut *live;
    if let Some(keeper) = keeper {
        // The room ends in any case, and an earlier checkpoint remains. The storage writes its queue before it closes.
        let _ = keeper.save(runner, account, settings.memory_bytes_max, CheckpointPieces::One);
    }
    discard(live);
}

/// Drops a room. Its game's drop may panic or block.
pub(super) fn discard(live: Box<Live>) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(live))) {
        forget(payload);
    }
}

/// The message of a game's panic.
pub(super) fn panicked(payload: Box<dyn Any + Send>) -> Failure {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or_default();
    let detail = shortened(text);
    forget(payload);
    Failure { reason: FailureReason::Panic, detail }
}

/// The beginning of a game's message, copied so that it does not use the game's memory.
pub(super) fn shortened(text: &str) -> String {
    text.chars().take(DETAIL_CHARS_MAX).collect()
}

/// Dropping a panic payload may itself panic, so it is leaked.
fn forget(payload: Box<dyn Any + Send>) {
    std::mem::forget(payload);
}
