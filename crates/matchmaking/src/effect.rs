//! What has to be done for a matchmaker, what rooms report to it, and its counters.

use std::sync::Arc;

use crate::{EndReason, MatchCriteria, MatchRefusal, MatchRoomId, TicketId};

/// What has to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MatchEffect {
    /// Open a room, then call [`Matchmaker::on_room_opened`] or [`Matchmaker::on_open_failed`].
    OpenRoom {
        /// The room.
        room: MatchRoomId,
        /// Its channel.
        channel: Arc<str>,
        /// The criteria of its tickets.
        criteria: Arc<MatchCriteria>,
        /// The region of its oldest ticket.
        region: Option<Arc<str>>,
    },
    /// Inform the users that places in a room are reserved for them.
    Placed {
        /// Their ticket.
        ticket: TicketId,
        /// The users.
        users: Vec<Arc<str>>,
        /// The channel of the room.
        channel: Arc<str>,
    },
    /// Release the places of a ticket, which waits again: other players had taken them before the reservation reached the room.
    Withdrawn {
        /// The ticket.
        ticket: TicketId,
        /// The channel of the room.
        channel: Arc<str>,
    },
    /// Inform the users that their ticket has ended.
    Ended {
        /// Their ticket.
        ticket: TicketId,
        /// The users.
        users: Vec<Arc<str>>,
        /// The reason.
        reason: EndReason,
        /// The channel of the room in which places were reserved for them.
        channel: Option<Arc<str>>,
    },
}

/// Why a room was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenFailure {
    /// The node opens no more rooms for now. The tickets wait.
    Busy,
    /// The room cannot be opened.
    Failed,
}

/// A room as a report describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoomState<'r> {
    /// Its channel.
    pub channel: &'r str,
    /// Number of players, also those who are away.
    pub players: u32,
    /// Number of players that have ever joined. A player that comes back is not counted again.
    pub players_joined: u64,
    /// Maximum number of players.
    pub players_max: u32,
    /// For a room that binds places to users: the tickets whose reservations have reached it, and how many users of each have not
    /// joined. `None`: places are counted.
    pub reservations: Option<&'r [(u64, u32)]>,
    /// Takes players: it is neither locked nor unlisted.
    pub accepts: bool,
}

/// Counters. All are monotonic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatchCounters {
    /// Tickets that were accepted.
    pub submitted: u64,
    /// Requests that were refused, in the order of [`MatchRefusal::ALL`].
    pub refused: [u64; MatchRefusal::ALL.len()],
    /// Tickets that were placed in a room, once for each time.
    pub placed: u64,
    /// Comparisons of a waiting ticket with another one or with open rooms.
    pub compared: u64,
    /// Tickets whose users joined.
    pub joined: u64,
    /// Tickets that lost their places to other players, once for each time.
    pub withdrawn: u64,
    /// Tickets that ended otherwise, in the order of [`EndReason::ALL`].
    pub ended: [u64; EndReason::ALL.len()],
    /// Rooms that were opened.
    pub rooms_opened: u64,
    /// Rooms that could not be opened, or closed before all users came.
    pub rooms_failed: u64,
}

/// Sizes at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatchGauges {
    /// Tickets that are unconfirmed or wait for a room.
    pub pending: usize,
    /// Rooms of the matchmaker, also those that others have opened.
    pub rooms: usize,
    /// Reserved places.
    pub reserved_places: u64,
}
