//! The part of a tick that runs game code, without the scheduler's lock.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use dunlin_config::RoomSettings;
use dunlin_engine::host::{CompletedTick, Step, TickBatch};
use dunlin_rooms::TickTime;

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
    pub(super) time: TickTime,
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
        let Self { place, live, batch, time, .. } = self;
        let outcome = tick(live, &batch, time);
        Finished { place, steps: batch.steps, outcome }
    }
}

fn tick(mut live: Box<Live>, batch: &TickBatch, time: TickTime) -> Result<(Box<Live>, CompletedTick), Failure> {
    let Live { runner, recorder, writer, paths, share, .. } = &mut *live;
    let steps = &batch.steps;
    if let Some(writer) = writer
        && let Err(failure) = writer.before_tick(runner, steps)
    {
        discard(live);
        return Err(failure);
    }
    if let Some(recorder) = recorder {
        // Before the steps: they may end the seats that are told of.
        recorder.carried(&batch.carried);
        recorder.begin_tick(runner.expiring(), steps);
        recorder.keep(0);
    }
    let ran = catch_unwind(AssertUnwindSafe(|| (runner.run(batch, time), runner.room().game_bytes())));
    let done = match ran {
        Ok((done, game_bytes)) => {
            share.set(runner.room().world_bytes() as u64, game_bytes as u64);
            done
        }
        Err(payload) => {
            discard(live);
            return Err(panicked(payload));
        }
    };
    if let Some(recorder) = recorder {
        // The hash covers the game's saved state, so this runs game code as well.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| recorder.end_tick(steps, &done, runner.room()))) {
            discard(live);
            return Err(panicked(payload));
        }
        recorder.keep(1);
    }
    if let Some(paths) = paths {
        // No game code runs here.
        paths.end_tick(steps, &done, runner.room(), time.unix_us);
    }
    if let Some(writer) = writer
        && let Err(failure) = writer.after_tick(runner)
    {
        discard(live);
        return Err(failure);
    }
    Ok((live, done))
}

/// Saves a stored room when the node stops, and drops it.
pub(super) fn save_and_discard(mut live: Box<Live>) {
    let Live { runner, writer, .. } = &mut *live;
    if let Some(writer) = writer {
        // The room ends in any case, and an earlier checkpoint remains. The storage writes its queue before it closes.
        let _ = writer.save(runner, CheckpointPieces::One);
        writer.entries.end(false);
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

/// The beginning of a game's message.
pub(super) fn shortened(text: &str) -> String {
    text.chars().take(DETAIL_CHARS_MAX).collect()
}

/// Dropping a panic payload may itself panic, so it is leaked.
fn forget(payload: Box<dyn Any + Send>) {
    std::mem::forget(payload);
}
