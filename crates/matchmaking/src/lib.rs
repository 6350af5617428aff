//! Matchmaking: puts the tickets of users into rooms. Requests and the time come in, effects go out; the crate has no clock,
//! no I/O and no randomness. A [`Matchmaker`] is the queue of one namespace. A [`LobbyBoard`] decides which listings of rooms
//! are published.

#![forbid(unsafe_code)]
// Requests come from clients.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::string_slice))]

mod bucket;
mod criteria;
mod effect;
mod fill_places;
mod known_rooms;
mod lobby;
mod matchmaker;
mod pass;
mod refusal;
mod room;
mod rules;
mod skill_window;
mod ticket;
mod tickets;

pub use criteria::{CRITERIA_MAX, CRITERION_BYTES_MAX, MatchCriteria};
pub use effect::{MatchCounters, MatchEffect, MatchGauges, OpenFailure, RoomState};
pub use lobby::{LobbyBoard, LobbyEffect, LobbyLimits, RoomListing};
pub use matchmaker::Matchmaker;
pub use refusal::MatchRefusal;
pub use room::{MatchRoomId, OpenedRoom};
pub use rules::MatchRules;
pub use skill_window::SkillWindow;
pub use ticket::{EndReason, HandedTicket, Initiator, TicketId, TicketRequest, TicketStatus, USER_BYTES_MAX};
