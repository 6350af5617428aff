//! Why a request is refused.

/// Why a request about a ticket is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MatchRefusal {
    /// Too many tickets wait.
    QueueFull,
    /// A user has a ticket already.
    UserHasTicket,
    /// The ticket has no users, too many, or one of them twice or without an id.
    Users,
    /// Too many criteria, or one of them, or the region, is too long.
    Criteria,
    /// No ticket has this id, or the user is not in it.
    UnknownTicket,
    /// The ticket is over: its users have joined their room, or it has ended.
    TicketOver,
}

impl MatchRefusal {
    /// All refusals.
    pub const ALL: [Self; 6] =
        [Self::QueueFull, Self::UserHasTicket, Self::Users, Self::Criteria, Self::UnknownTicket, Self::TicketOver];

    /// The refusal as a metric label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::UserHasTicket => "user_has_ticket",
            Self::Users => "users",
            Self::Criteria => "criteria",
            Self::UnknownTicket => "unknown_ticket",
            Self::TicketOver => "ticket_over",
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}
