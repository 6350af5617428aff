//! Opens a stored room: from its checkpoint and its log, if any, otherwise as a new room.
//!
//! A room whose checkpoint or log is unusable is not opened, because a new room would replace the stored one. It stays
//! closed until an operator discards it (`room_close` of the API).

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use dunlin_config::{RoomSettings, RoomSurvival};
use dunlin_engine::host::{Checkpoint, Continued, NotRestored, RoomOrigin, Runner, TickRecord};
use dunlin_games::Registry;
use dunlin_rooms::{RoomOverrides, Simulation};
use serde_json::{Map, Value};

use super::{
    FailureReason,
    builder::{BuildRequest, make_room},
    checkpoints_and_steps::{RoomWriter, origin_of},
    job::{Failure, panicked, shortened},
    survival::{CheckpointPieces, NotRead, RoomEntries},
};

/// The remedy if a room cannot be restored, for the error message.
const REMEDY: &str = "undo the change of its game or namespace, or give the room up with `room_close` of the API";
/// The same if a log is of other rules: on disk, and in a cluster, where a log is not dropped in part.
const REMEDY_OF_LOG: &str =
    "start that game once more and stop it, or set `survival` to `checkpoint` to go on without them";
const REMEDY_OF_CLUSTER_LOG: &str = "start a node with that game once more, and stop it";
/// What calls the game, for the error message after a panic.
const SIMULATION: &str = "the simulation";
const MIGRATION: &str = "the migration of the simulation";

/// What goes before the reason if the state after a migration cannot be restored.
const NOT_READ_BACK: &str = "the state after the migration cannot be restored";

/// What is logged about parameters that a client may have set, instead of the game's words: content from clients is not logged.
const OWN_PARAMS: &str = "it was opened with parameters of its own";

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
    let not_continued = |detail: String| {
        // SDKs would not come back to a room that is refused, and a node of its version may have it in a moment.
        if entries.leave_to_others() {
            return Failure { reason: FailureReason::Storage, detail: format!("{detail}; {REMEDY}") };
        }
        not_restored(detail)
    };
    let newest = entries.newest_checkpoint(go_on).map_err(|not_read| match not_read {
        NotRead::Unusable(detail) => not_restored(detail),
        NotRead::Unavailable(detail) => Failure { reason: FailureReason::Storage, detail },
    });
    let Some(checkpoint) = newest? else {
        if request.overrides.continues {
            // Its claim is not to be taken for a room that goes on.
            entries.end(true);
            return Err(Failure { reason: FailureReason::NoState, detail: String::new() });
        }
        go_on();
        return open_new(registry, request, entries);
    };
    let restoring = Restoring { registry, settings, go_on };
    let restored = match restoring.restore(&checkpoint.bytes, entries) {
        Ok(restored) => restored,
        // The state of a game that is being written changes its form from one build to the next.
        Err(detail) if entries.is_development() => {
            entries.begin_anew(&detail);
            go_on();
            return open_new(registry, request, entries);
        }
        Err(detail) => return Err(not_continued(detail)),
    };
    let Restored { runner, replayed_ticks, migrated } = restored;
    let writer = RoomWriter::new(Arc::clone(entries), settings, runner.ticks_run(), true);
    match migrated {
        Some(migrated) => {
            // Before the log of the new rules, which cannot be replayed from the old checkpoint.
            let saved = writer.save(&runner, CheckpointPieces::WithoutLog);
            saved.map_err(|failure| match failure.reason {
                FailureReason::Storage => failure,
                // The old checkpoint remains.
                _ => not_continued(failure.detail),
            })?;
            entries.note_migrated(&runner, migrated);
        }
        None => entries.note_restored(&runner, replayed_ticks),
    }
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

/// A room that continues.
struct Restored {
    runner: Runner,
    /// The number of ticks of its log.
    replayed_ticks: u64,
    /// Set if it has another state than in its checkpoint, for a game that has changed.
    migrated: Option<MigratedRoom>,
}

/// A room that continues with other rules.
#[derive(Clone, Copy, Debug)]
pub(super) struct MigratedRoom {
    /// The version of the game in its checkpoint.
    pub(super) from_version: u32,
    /// The number of ticks after the checkpoint that are given up.
    pub(super) lost_ticks: u64,
}

/// A room that is being restored.
struct Restoring<'a> {
    registry: &'a Registry,
    settings: &'a RoomSettings,
    go_on: &'a dyn Fn(),
}

impl Restoring<'_> {
    /// The room after the last tick of its log.
    fn restore(&self, checkpoint: &[u8], entries: &RoomEntries) -> Result<Restored, String> {
        let checkpoint = Checkpoint::read(checkpoint).map_err(|error| error.to_string())?;
        let origin = origin_of(self.settings);
        let difference = checkpoint.check_origin(&origin).err();
        if let Some(other @ NotRestored::OtherSimulation(_)) = difference {
            return Err(other.to_string());
        }
        let from_version = checkpoint.game_version();
        let options = checkpoint.origin().options.clone();
        let params = self.params_of(&checkpoint, &origin).map_err(|error| error.to_string())?;
        let simulation = self.guarded(SIMULATION, || self.make(&params))?;
        let reason = self.guarded(SIMULATION, || Ok(checkpoint.reason_to_migrate(difference, &*simulation)))?;
        // A replay uses the limits stored in the checkpoint, because it may depend on them.
        let limits = if reason.is_some() { &self.settings.room } else { &options };
        let what = if reason.is_some() { MIGRATION } else { SIMULATION };
        let params = params.to_string();
        let continued = self.guarded(what, || checkpoint.migrate(limits.clone(), &params, simulation, reason))?;
        let Continued { mut runner, has_new_state } = continued;
        let begin = runner.ticks_run();
        if has_new_state {
            let lost_ticks = self.ticks_in_log(begin, entries)?;
            self.check_loss(lost_ticks, entries)?;
            // Its checkpoint replaces the one that was good, so this game has to be able to read it.
            let runner = self.saved_and_restored(runner).map_err(|detail| format!("{NOT_READ_BACK}: {detail}"))?;
            return Ok(Restored {
                runner,
                replayed_ticks: 0,
                migrated: Some(MigratedRoom { from_version, lost_ticks }),
            });
        }
        self.replay_log(&mut runner, entries)?;
        let replayed_ticks = runner.ticks_run() - begin;
        if *limits != self.settings.room {
            runner = self.saved_and_restored(runner)?;
        }
        Ok(Restored { runner, replayed_ticks, migrated: None })
    }

    fn replay_log(&self, runner: &mut Runner, entries: &RoomEntries) -> Result<(), String> {
        loop {
            let records = entries.records(runner.ticks_run() + 1, self.settings.checkpoint_bytes_max)?;
            if records.is_empty() {
                return Ok(());
            }
            for record in records {
                self.guarded(SIMULATION, || runner.replay(record.tick, &TickRecord::read(&record.bytes)?))?;
            }
        }
    }

    /// The number of ticks in the log behind a checkpoint.
    fn ticks_in_log(&self, checkpoint_ticks: u64, entries: &RoomEntries) -> Result<u64, String> {
        let mut last = checkpoint_ticks;
        while let Some(newest) = entries.records(last + 1, self.settings.checkpoint_bytes_max)?.last() {
            last = newest.tick;
        }
        Ok(last - checkpoint_ticks)
    }

    /// With `exact`, players have been promised that no tick is lost, so an operator decides. In a cluster, part of a log
    /// cannot be dropped: a node that takes the room over before the next checkpoint would find the rest.
    fn check_loss(&self, ticks: u64, entries: &RoomEntries) -> Result<(), String> {
        let remedy = match self.settings.survival {
            _ if ticks == 0 => return Ok(()),
            _ if entries.is_in_cluster() => REMEDY_OF_CLUSTER_LOG,
            RoomSurvival::Exact => REMEDY_OF_LOG,
            _ => return Ok(()),
        };
        Err(format!("{}: {remedy}", NotRestored::LogOfOtherRules { ticks }))
    }

    /// The parameters of the room now: a room that was opened with parameters of its own keeps them.
    fn params_of(&self, checkpoint: &Checkpoint<'_>, origin: &RoomOrigin) -> Result<Value, NotRestored> {
        let parsed = |params: &str| serde_json::from_str::<Value>(params).map_err(|_| NotRestored::Malformed);
        let (own, were) = (parsed(checkpoint.params())?, parsed(&checkpoint.origin().params)?);
        if checkpoint.origin().params == origin.params {
            return Ok(own);
        }
        let Value::Object(own) = own else { return Ok(self.settings.params.clone()) };
        let own: Map<String, Value> = own.into_iter().filter(|(name, value)| were.get(name) != Some(value)).collect();
        let params = if own.is_empty() { Box::default() } else { Value::Object(own).to_string().into() };
        let own = RoomOverrides { params, ..RoomOverrides::default() };
        own.params_over(&self.settings.params).map_err(|_| NotRestored::UnusableParams(OWN_PARAMS.into()))
    }

    fn make(&self, params: &Value) -> Result<Box<dyn Simulation>, NotRestored> {
        let made = self.registry.make(&self.settings.simulation, params).ok_or(NotRestored::Refused)?;
        made.map_err(|error| {
            let why = if *params == self.settings.params { shortened(&error.0) } else { OWN_PARAMS.to_owned() };
            NotRestored::UnusableParams(why.into())
        })
    }

    /// Saves a room, and restores it with the limits of now.
    fn saved_and_restored(&self, runner: Runner) -> Result<Runner, String> {
        let mut saved = Vec::new();
        let origin = origin_of(self.settings);
        self.guarded(SIMULATION, || {
            runner.save(&origin, &mut saved);
            drop(runner);
            Ok(())
        })?;
        let checkpoint = Checkpoint::read(&saved).map_err(|error| error.to_string())?;
        self.guarded(SIMULATION, || {
            let params = serde_json::from_str(checkpoint.params()).map_err(|_| NotRestored::Malformed)?;
            let simulation = self.make(&params)?;
            checkpoint.restore(self.settings.room.clone(), simulation)
        })
    }

    /// Calls the game.
    fn guarded<T>(&self, what: &str, call: impl FnOnce() -> Result<T, NotRestored>) -> Result<T, String> {
        (self.go_on)();
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(outcome) => outcome.map_err(|error| error.to_string()),
            Err(payload) => Err(format!("{what} panicked: {}", panicked(payload).detail)),
        }
    }
}
