//! Opens a stored room: from its checkpoint and its log, if any, otherwise as a new room.
//!
//! A room whose checkpoint or log is unusable is not opened, because a new room would replace the stored one. It stays
//! closed until an operator discards it (`room_close` of the API).

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use dunlin_config::{RoomSettings, RoomSurvival};
use dunlin_engine::host::{Checkpoint, NotRestored, Runner, TickRecord};
use dunlin_games::Registry;
use dunlin_rooms::{RoomOptions, Simulation};

use super::{
    FailureReason,
    builder::{BuildRequest, make_room},
    checkpoints_and_steps::{RoomWriter, origin_of},
    job::{Failure, panicked},
    survival::{CheckpointPieces, NotRead, RoomEntries},
};

/// The remedy if a room cannot be restored, for the error message.
const REMEDY: &str = "undo the change of its namespace, or give the room up with `room_close` of the API";

/// A room that is ready to tick.
pub(super) struct OpenedRoom {
    pub(super) runner: Runner,
    /// `None` if the room is not stored.
    pub(super) writer: Option<RoomWriter>,
}

/// Opens a stored room. `go_on` is called between the calls of the game, because there may be many calls.
pub(super) fn open_kept(
    registry: &Registry,
    request: &BuildRequest,
    entries: &Arc<RoomEntries>,
    go_on: &dyn Fn(),
) -> Result<OpenedRoom, Failure> {
    let settings = &*request.settings;
    let not_restored = |detail: String| {
        entries.note_not_restored();
        Failure { reason: FailureReason::Restore, detail: format!("{detail}; {REMEDY}") }
    };
    let newest = entries.newest_checkpoint(go_on).map_err(|not_read| match not_read {
        NotRead::Unusable(detail) => not_restored(detail),
        NotRead::Unavailable(detail) => Failure { reason: FailureReason::Storage, detail },
    });
    let Some(checkpoint) = newest? else {
        go_on();
        return open_new(registry, request, entries);
    };
    let restoring = Restoring { registry, settings, go_on };
    let (runner, replayed_ticks) = match restoring.restore(&checkpoint.bytes, entries) {
        Ok(restored) => restored,
        // The state of a game that is being written changes its form from one build to the next.
        Err(detail) if entries.is_development() => {
            entries.begin_anew(&detail);
            go_on();
            return open_new(registry, request, entries);
        }
        Err(detail) => return Err(not_restored(detail)),
    };
    entries.note_restored(&runner, replayed_ticks);
    let writer = RoomWriter::new(Arc::clone(entries), settings, runner.ticks_run(), true);
    Ok(OpenedRoom { runner, writer: Some(writer) })
}

fn open_new(registry: &Registry, request: &BuildRequest, entries: &Arc<RoomEntries>) -> Result<OpenedRoom, Failure> {
    let settings = &*request.settings;
    let runner = make_room(registry, request)?;
    let writer = RoomWriter::new(Arc::clone(entries), settings, 0, false);
    if settings.survival == RoomSurvival::Exact {
        // The checkpoint precedes the log, which begins with the first tick.
        writer.save(&runner, CheckpointPieces::One)?;
    }
    Ok(OpenedRoom { runner, writer: Some(writer) })
}

/// A room that is being restored.
struct Restoring<'a> {
    registry: &'a Registry,
    settings: &'a RoomSettings,
    go_on: &'a dyn Fn(),
}

impl Restoring<'_> {
    /// The room after the last tick of its log, and the number of replayed ticks.
    fn restore(&self, checkpoint: &[u8], entries: &RoomEntries) -> Result<(Runner, u64), String> {
        let checkpoint = Checkpoint::read(checkpoint).map_err(|error| error.to_string())?;
        checkpoint.check_origin(&origin_of(self.settings)).map_err(|error| error.to_string())?;
        let options = checkpoint.origin().options.clone();
        // Uses the limits stored in the checkpoint, because the replay may depend on them.
        let mut runner = self.make(checkpoint, options.clone())?;
        let begin = runner.ticks_run();
        loop {
            let records = entries.records(runner.ticks_run() + 1, self.settings.checkpoint_bytes_max)?;
            if records.is_empty() {
                break;
            }
            for record in records {
                self.guarded(|| runner.replay(record.tick, &TickRecord::read(&record.bytes)?))?;
            }
        }
        let replayed_ticks = runner.ticks_run() - begin;
        if options != self.settings.room {
            runner = self.with_limits_of_now(runner)?;
        }
        Ok((runner, replayed_ticks))
    }

    fn make(&self, checkpoint: Checkpoint<'_>, options: RoomOptions) -> Result<Runner, String> {
        let Self { registry, settings, .. } = *self;
        self.guarded(|| {
            let params = serde_json::from_str(checkpoint.params()).map_err(|_| NotRestored::Malformed)?;
            let made = registry.make(&settings.simulation, &params).and_then(Result::ok);
            let simulation: Box<dyn Simulation> = made.ok_or(NotRestored::Refused)?;
            checkpoint.restore(options, simulation)
        })
    }

    fn with_limits_of_now(&self, runner: Runner) -> Result<Runner, String> {
        let mut saved = Vec::new();
        let origin = origin_of(self.settings);
        self.guarded(|| {
            runner.save(&origin, &mut saved);
            drop(runner);
            Ok(())
        })?;
        let checkpoint = Checkpoint::read(&saved).map_err(|error| error.to_string())?;
        self.make(checkpoint, self.settings.room.clone())
    }

    /// Calls the game.
    fn guarded<T>(&self, call: impl FnOnce() -> Result<T, NotRestored>) -> Result<T, String> {
        (self.go_on)();
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(outcome) => outcome.map_err(|error| error.to_string()),
            Err(payload) => Err(format!("the simulation panicked: {}", panicked(payload).detail)),
        }
    }
}
