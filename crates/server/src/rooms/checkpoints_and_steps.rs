//! Stores one room: saves checkpoints at intervals, and logs the steps at the start of each tick. Moves with the room's
//! runner.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use dunlin_config::{RoomSettings, RoomSurvival};
use dunlin_engine::host::{RoomOrigin, Runner, Step, TickRecord};

use super::{
    FailureReason,
    job::{Failure, panicked},
    survival::{CheckpointPieces, RoomEntries},
};

/// Seconds between two state hashes in the log.
const HASH_INTERVAL_S: u64 = 1;

/// Stores one room; see the module's documentation.
pub(super) struct RoomWriter {
    pub(super) entries: Arc<RoomEntries>,
    /// Whether the room continues from a checkpoint, and its players wait for their clients.
    pub(super) is_restored: bool,
    origin: RoomOrigin,
    is_exact: bool,
    checkpoint_ticks: u64,
    hash_ticks: u64,
    bytes_max: usize,
    /// The number of ticks after which the next checkpoint is due.
    next_checkpoint: u64,
}

/// The simulation, the parameters and the options of new rooms in this namespace.
pub(super) fn origin_of(settings: &RoomSettings) -> RoomOrigin {
    RoomOrigin {
        simulation: settings.simulation.clone(),
        params: settings.params.to_string(),
        options: settings.room.clone(),
    }
}

/// A duration in ticks.
pub(super) fn ticks_of(duration_ms: u64, settings: &RoomSettings) -> u64 {
    duration_ms.saturating_mul(settings.room.ticks_per_second.into()) / 1_000
}

impl RoomWriter {
    /// Creates a writer for a room that has run `ticks_run` ticks.
    pub(super) fn new(entries: Arc<RoomEntries>, settings: &RoomSettings, ticks_run: u64, is_restored: bool) -> Self {
        Self {
            entries,
            is_restored,
            origin: origin_of(settings),
            is_exact: settings.survival == RoomSurvival::Exact,
            checkpoint_ticks: ticks_of(settings.checkpoint_interval_ms, settings).max(1),
            hash_ticks: (u64::from(settings.room.ticks_per_second) * HASH_INTERVAL_S).max(1),
            bytes_max: settings.checkpoint_bytes_max,
            // A checkpoint is due at once, so that replayed ticks need not be replayed again.
            next_checkpoint: ticks_run + 1,
        }
    }

    /// Whether the messages of a tick wait for its record.
    pub(super) fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// Logs the steps of the next tick. At intervals, calls the game for its state.
    pub(super) fn before_tick(&self, runner: &Runner, steps: &[Step]) -> Result<(), Failure> {
        if !self.is_exact {
            return Ok(());
        }
        let state_hash = if runner.ticks_run().is_multiple_of(self.hash_ticks) {
            Some(guarded(|| runner.room().state_hash())?)
        } else {
            None
        };
        let mut record = Vec::new();
        TickRecord::write(steps, state_hash, &mut record);
        let failed = |detail: String| Failure { reason: FailureReason::Storage, detail };
        if record.len() > self.bytes_max {
            return Err(failed(too_large("the log record of a tick", record.len(), self.bytes_max)));
        }
        let queued = self.entries.write_record(runner.ticks_run() + 1, record);
        queued.map_err(|detail| failed(detail.to_owned()))
    }

    /// Saves the room if a checkpoint is due.
    pub(super) fn after_tick(&mut self, runner: &Runner) -> Result<(), Failure> {
        if runner.ticks_run() < self.next_checkpoint {
            return Ok(());
        }
        self.next_checkpoint = runner.ticks_run() + self.checkpoint_ticks;
        self.save(runner, CheckpointPieces::Parts)
    }

    /// Saves the room.
    ///
    /// # Errors
    /// The game panics; or with `exact`, the checkpoint is too large; or records may follow that are worth nothing without
    /// this checkpoint, and it cannot be queued.
    pub(super) fn save(&self, runner: &Runner, pieces: CheckpointPieces) -> Result<(), Failure> {
        let mut saved = guarded(|| {
            let mut saved = Vec::new();
            runner.save(&self.origin, &mut saved);
            saved
        })?;
        if saved.len() <= self.bytes_max {
            // The queue of the storage counts the length.
            saved.shrink_to_fit();
            let queued = self.entries.write_checkpoint(runner.ticks_run(), saved, pieces);
            return match (queued, pieces) {
                (Err(detail), CheckpointPieces::One | CheckpointPieces::WithoutLog) => {
                    Err(Failure { reason: FailureReason::Storage, detail: detail.to_owned() })
                }
                // The checkpoint before remains, with all records.
                (Ok(()), _) | (Err(_), CheckpointPieces::Parts) => Ok(()),
            };
        }
        let detail = too_large("the checkpoint", saved.len(), self.bytes_max);
        self.entries.checkpoint_failed(&detail);
        // Without a checkpoint, the log would grow without limit.
        if self.is_exact { Err(Failure { reason: FailureReason::Memory, detail }) } else { Ok(()) }
    }
}

/// Calls the game.
fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(call)).map_err(panicked)
}

fn too_large(what: &str, size_bytes: usize, bytes_max: usize) -> String {
    format!("{what} has {size_bytes} bytes, and room.checkpoint_size_limit is {bytes_max}: raise it")
}
