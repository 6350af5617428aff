//! The rules of a namespace.

use crate::SkillWindow;

/// How tickets are placed. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchRules {
    /// A room is opened for at least this many users.
    pub players_min: u32,
    /// A room gets at most this many users.
    pub players_max: u32,
    /// How long the oldest ticket of a room waits for a full one; then `players_min` users suffice.
    pub fill_wait_ms: u64,
    /// How much the skill of users who play together may differ.
    pub skill: SkillWindow,
    /// How long a ticket waits for a room of its region; 0: regions do not matter.
    pub region_wait_ms: u64,
    /// How long a ticket waits for a room.
    pub ticket_timeout_ms: u64,
    /// How long a party waits for the confirmation of its users.
    pub confirm_timeout_ms: u64,
    /// How long places in a room are reserved.
    pub reserve_timeout_ms: u64,
    /// Maximum number of tickets that are unconfirmed or wait, and of ended tickets whose status is kept.
    pub tickets_max: usize,
    /// Maximum number of users of a ticket.
    pub party_max: u32,
    /// Maximum number of rooms that are being opened.
    pub rooms_opening_max: usize,
}

impl Default for MatchRules {
    fn default() -> Self {
        Self {
            players_min: 2,
            players_max: 8,
            fill_wait_ms: 5_000,
            skill: SkillWindow::default(),
            region_wait_ms: 10_000,
            ticket_timeout_ms: 60_000,
            confirm_timeout_ms: 15_000,
            reserve_timeout_ms: 15_000,
            tickets_max: 10_000,
            party_max: 8,
            rooms_opening_max: 64,
        }
    }
}
