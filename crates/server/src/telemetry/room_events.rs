//! Log lines about stored rooms.

use std::time::Duration;

use dunlin_protocol::ErrorCode;
use dunlin_storage::StorageError;
use tracing::{info, warn};

use super::{events::now_s, log::Outside, throttle::Throttle};

/// A room could not be saved, or its stored state could not be deleted.
pub struct CheckpointFailed<'a> {
    /// Channel of the room, unescaped.
    pub channel: &'a str,
    /// The reason.
    pub detail: &'a str,
}

impl CheckpointFailed<'_> {
    /// Logs it, at most once a second.
    pub fn emit(&self) {
        static THROTTLE: Throttle = Throttle::new();
        if let Some(suppressed) = THROTTLE.admit(now_s()) {
            warn!(channel = %Outside(self.channel), suppressed, detail = %Outside(self.detail),
                "checkpoint of a room failed");
        }
    }
}

/// A room continues from its checkpoint.
pub struct RoomRestored<'a> {
    /// Channel of the room, unescaped.
    pub channel: &'a str,
    /// The tick from which it continues.
    pub tick: u32,
    /// Number of replayed ticks.
    pub replayed_ticks: u64,
    /// Number of players that wait for their clients.
    pub players: usize,
}

impl RoomRestored<'_> {
    /// Logs it. There is one line for each room, because an operator looks for the one that is missing.
    pub fn emit(&self) {
        info!(channel = %Outside(self.channel), tick = self.tick, replayed_ticks = self.replayed_ticks,
            players = self.players, "room restored");
    }
}

/// A room continues from its checkpoint with other rules.
pub struct RoomMigrated<'a> {
    /// Channel of the room, unescaped.
    pub channel: &'a str,
    /// The tick from which it continues.
    pub tick: u32,
    /// The version of the game that saved it.
    pub from_version: u32,
    /// The version of the game now.
    pub version: u32,
    /// Number of ticks after the checkpoint that are lost.
    pub lost_ticks: u64,
    /// Number of players that wait for their clients.
    pub players: usize,
}

impl RoomMigrated<'_> {
    /// Logs it. There is one line for each room, as when it is restored.
    pub fn emit(&self) {
        let Self { tick, from_version, version, lost_ticks, players, .. } = *self;
        let channel = Outside(self.channel);
        if lost_ticks == 0 {
            info!(%channel, tick, from_version, version, players, "room migrated");
        } else {
            warn!(%channel, tick, from_version, version, lost_ticks, players, "room migrated without the end of its log");
        }
    }
}

/// The rooms with a checkpoint were opened at the start.
pub struct StoredRoomsOpened {
    /// Rooms that are open.
    pub opened: u64,
    /// Rooms that could not be opened.
    pub not_opened: u64,
    /// How long it took.
    pub took: Duration,
}

impl StoredRoomsOpened {
    /// Logs it.
    pub fn emit(&self) {
        let Self { opened, not_opened, took } = *self;
        let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        if not_opened == 0 {
            info!(opened, duration_ms, "all stored rooms opened");
        } else {
            warn!(opened, not_opened, duration_ms, "stored rooms opened, but not all of them");
        }
    }
}

/// The storage cannot say which rooms it has. The node asks it again.
pub struct StoredRoomsNotListed<'a> {
    /// Why not.
    pub error: &'a StorageError,
}

impl StoredRoomsNotListed<'_> {
    /// Logs it, at most once a second.
    pub fn emit(&self) {
        static THROTTLE: Throttle = Throttle::new();
        if let Some(suppressed) = THROTTLE.admit(now_s()) {
            warn!(error = %self.error, suppressed, "stored rooms not listed, so they wait for their first join");
        }
    }
}

/// This node may not write the log of a room any more, and ends the room.
pub struct RoomLogLost<'a> {
    /// Channel of the room, unescaped.
    pub channel: &'a str,
    /// The reason.
    pub detail: &'a str,
}

impl RoomLogLost<'_> {
    /// Logs it. There is one line for each room, as when it is restored elsewhere.
    pub fn emit(&self) {
        warn!(channel = %Outside(self.channel), detail = %Outside(self.detail), "log of a room lost");
    }
}

/// A room of `dunlin dev` does not continue from its checkpoint.
pub struct RoomBeginsAnew<'a> {
    /// Channel of the room, unescaped.
    pub channel: &'a str,
    /// Why its checkpoint cannot be used.
    pub detail: &'a str,
}

impl RoomBeginsAnew<'_> {
    /// Logs it, at most once a second.
    pub fn emit(&self) {
        static THROTTLE: Throttle = Throttle::new();
        if let Some(suppressed) = THROTTLE.admit(now_s()) {
            warn!(channel = %Outside(self.channel), suppressed, detail = %Outside(self.detail),
                "room begins anew: the game cannot read its state");
        }
    }
}

/// A room with a checkpoint was not opened at the start.
pub struct RoomNotReopened<'a> {
    /// Channel of the room, unescaped.
    pub channel: &'a str,
    /// The answer of the room's owner.
    pub code: ErrorCode,
}

impl RoomNotReopened<'_> {
    /// Logs it, at most once a second.
    pub fn emit(&self) {
        static THROTTLE: Throttle = Throttle::new();
        if let Some(suppressed) = THROTTLE.admit(now_s()) {
            warn!(channel = %Outside(self.channel), code = self.code as u32, reason = self.code.message(), suppressed,
                "room with a checkpoint not opened; it opens with its first join");
        }
    }
}
