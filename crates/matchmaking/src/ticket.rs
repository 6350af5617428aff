//! Tickets: who wants to be placed, and how.

use std::sync::Arc;

use crate::{MatchCriteria, room::MatchRoomId};

/// Maximum size of a user id in bytes.
pub const USER_BYTES_MAX: usize = 255;

/// The number of a ticket. Lower numbers are older.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TicketId(pub u64);

/// Who requests a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Initiator {
    /// The backend, which answers for all users: none has to confirm.
    Backend,
    /// One of the users. The others have to confirm.
    User(Arc<str>),
}

/// A request to place users together.
#[derive(Clone, Debug)]
pub struct TicketRequest {
    /// Who requests it.
    pub initiator: Initiator,
    /// The users.
    pub users: Vec<Arc<str>>,
    /// Equal for all tickets of a room.
    pub criteria: MatchCriteria,
    /// Where the users want to play; `None` if they do not mind.
    pub region: Option<Arc<str>>,
    /// How good the users are.
    pub skill: i32,
}

/// A ticket without a room, which the queue of another node goes on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedTicket {
    /// The users, and whether each has confirmed.
    pub users: Vec<(Arc<str>, bool)>,
    /// As in the request.
    pub criteria: MatchCriteria,
    /// As in the request.
    pub region: Option<Arc<str>>,
    /// As in the request.
    pub skill: i32,
    /// Time since it was submitted.
    pub age_ms: u64,
    /// Time after which it ends.
    pub left_ms: u64,
}

/// Why a ticket has ended without its users in a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EndReason {
    /// A user or the backend cancelled it.
    Cancelled,
    /// It found no room in time.
    TimedOut,
    /// A user did not confirm in time.
    Unconfirmed,
    /// Its users did not join the room in time.
    NotJoined,
    /// Its rooms could not be opened, or closed before the users came.
    RoomFailed,
    /// It was on its way to the queue of another node, and neither queue can go on with it.
    Lost,
}

/// The state of a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TicketStatus {
    /// These users have not confirmed yet.
    Unconfirmed(Vec<Arc<str>>),
    /// It waits for a room.
    Waiting,
    /// Places in this room are reserved.
    Placed(Arc<str>),
    /// As many users as it has joined this room.
    Joined(Arc<str>),
    /// It is over.
    Ended(EndReason),
}

/// A user of a ticket.
#[derive(Clone, Debug)]
pub(crate) struct TicketUser {
    pub(crate) id: Arc<str>,
    pub(crate) is_confirmed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Unconfirmed,
    Waiting,
    Opening(MatchRoomId),
    Placed(MatchRoomId, Arc<str>),
    Joined(Arc<str>),
    Ended(EndReason),
}

#[derive(Debug)]
pub(crate) struct MatchTicket {
    pub(crate) users: Vec<TicketUser>,
    pub(crate) criteria: Arc<MatchCriteria>,
    pub(crate) region: Option<Arc<str>>,
    pub(crate) skill: i32,
    pub(crate) submitted_ms: u64,
    /// When it ends unless it has been placed.
    pub(crate) deadline_ms: u64,
    /// Accepts rooms of any region.
    pub(crate) is_roaming: bool,
    /// Rooms that failed before its users came.
    pub(crate) failures: u8,
    pub(crate) stage: Stage,
    /// When something happens without a request; `None` for never.
    pub(crate) timer_ms: Option<u64>,
}

impl EndReason {
    /// All reasons.
    pub const ALL: [Self; 6] =
        [Self::Cancelled, Self::TimedOut, Self::Unconfirmed, Self::NotJoined, Self::RoomFailed, Self::Lost];

    /// The reason as a metric label and in responses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed_out",
            Self::Unconfirmed => "unconfirmed",
            Self::NotJoined => "not_joined",
            Self::RoomFailed => "room_failed",
            Self::Lost => "lost",
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl MatchTicket {
    pub(crate) fn size(&self) -> u32 {
        u32::try_from(self.users.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn user_ids(&self) -> Vec<Arc<str>> {
        self.users.iter().map(|user| Arc::clone(&user.id)).collect()
    }

    pub(crate) fn has_user(&self, id: &str) -> bool {
        self.users.iter().any(|user| *user.id == *id)
    }

    /// When it ends without a room.
    pub(crate) fn ends_ms(&self) -> u64 {
        match self.stage {
            Stage::Unconfirmed => self.timer_ms.unwrap_or(self.deadline_ms),
            _ => self.deadline_ms,
        }
    }

    /// Whether it has not been placed and may be.
    pub(crate) const fn is_pending(&self) -> bool {
        matches!(self.stage, Stage::Unconfirmed | Stage::Waiting | Stage::Opening(_))
    }

    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Joined(_) | Stage::Ended(_))
    }

    pub(crate) fn status(&self) -> TicketStatus {
        match &self.stage {
            Stage::Unconfirmed => {
                let missing = self.users.iter().filter(|user| !user.is_confirmed);
                TicketStatus::Unconfirmed(missing.map(|user| Arc::clone(&user.id)).collect())
            }
            Stage::Waiting | Stage::Opening(_) => TicketStatus::Waiting,
            Stage::Placed(_, channel) => TicketStatus::Placed(Arc::clone(channel)),
            Stage::Joined(channel) => TicketStatus::Joined(Arc::clone(channel)),
            Stage::Ended(reason) => TicketStatus::Ended(*reason),
        }
    }
}
