//! Rooms that tickets are placed in, and their places.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use crate::{MatchCriteria, RoomState, TicketId, bucket::RoomEntry};

/// The number of a room of a matchmaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MatchRoomId(pub u64);

/// A room that the matchmaker has not opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedRoom {
    /// Its channel.
    pub channel: Arc<str>,
    /// What it was opened with. A room keeps it when it moves to another node; another room of the channel may have others.
    pub params: Arc<str>,
    /// What its tickets must have in common; `None` if no ticket can have it.
    pub criteria: Option<MatchCriteria>,
    /// Its region.
    pub region: Option<Arc<str>>,
}

/// Places in a room that are reserved for the users of a ticket.
#[derive(Debug)]
pub(crate) struct Reservation {
    pub(crate) ticket: TicketId,
    /// Number of its users.
    pub(crate) size: u32,
    /// How many of its users have not come yet.
    pub(crate) places: u32,
}

#[derive(Debug)]
pub(crate) struct MatchRoom {
    pub(crate) channel: Arc<str>,
    pub(crate) criteria: Arc<MatchCriteria>,
    pub(crate) region: Option<Arc<str>>,
    /// The tickets for which it is being opened; `None` once it is open.
    pub(crate) opening: Option<Vec<TicketId>>,
    pub(crate) opened_ms: u64,
    /// The parameters of a room that others have opened; `None` for one that the matchmaker has opened.
    pub(crate) adopted: Option<Arc<str>>,
    /// Tickets can have its criteria.
    pub(crate) takes_tickets: bool,
    pub(crate) players: u32,
    /// Players that have ever joined.
    pub(crate) players_joined: u64,
    pub(crate) players_max: u32,
    /// Takes players: it is neither locked nor unlisted.
    pub(crate) accepts: bool,
    /// Has been in a report.
    pub(crate) was_reported: bool,
    /// The last report that contained it.
    pub(crate) report: u64,
    /// Oldest first.
    pub(crate) reservations: VecDeque<Reservation>,
    /// Sum of the compared skills of all users that were placed in it.
    pub(crate) skill_sum: i64,
    pub(crate) skill_users: u32,
    /// Under what its bucket lists it.
    pub(crate) listed: Option<RoomEntry>,
}

impl MatchRoom {
    /// A room without players, as of the last report. It takes tickets with `criteria`.
    pub(crate) fn new(
        channel: Arc<str>,
        criteria: Arc<MatchCriteria>,
        region: Option<Arc<str>>,
        opened_ms: u64,
        (players_max, report): (u32, u64),
    ) -> Self {
        Self {
            channel,
            criteria,
            region,
            opening: None,
            opened_ms,
            adopted: None,
            takes_tickets: true,
            players: 0,
            players_joined: 0,
            players_max,
            accepts: true,
            was_reported: false,
            report,
            reservations: VecDeque::new(),
            skill_sum: 0,
            skill_users: 0,
            listed: None,
        }
    }

    /// Places that are neither taken nor reserved.
    pub(crate) fn free(&self) -> u32 {
        self.players_max.saturating_sub(self.places_used())
    }

    /// Places that are taken or reserved.
    fn places_used(&self) -> u32 {
        let reserved = self.reservations.iter().map(|reservation| reservation.places).fold(0, u32::saturating_add);
        self.players.saturating_add(reserved)
    }

    /// Whether the skill of its players is known. Of a room that others have opened it is not, before tickets are placed there.
    pub(crate) const fn has_skill(&self) -> bool {
        self.skill_users > 0
    }

    /// The mean skill.
    pub(crate) fn skill(&self) -> i64 {
        self.skill_sum / i64::from(self.skill_users.max(1))
    }

    pub(crate) fn reserve(&mut self, ticket: TicketId, places: u32, skill: i64) {
        self.reservations.push_back(Reservation { ticket, size: places, places });
        self.skill_sum = self.skill_sum.saturating_add(skill.saturating_mul(places.into()));
        self.skill_users = self.skill_users.saturating_add(places);
    }

    /// Gives up the places of a ticket.
    pub(crate) fn release(&mut self, ticket: TicketId) {
        self.reservations.retain(|reservation| reservation.ticket != ticket);
    }

    /// Takes over a reported number of players. Returns the tickets all of whose places are used.
    pub(crate) fn set_players(&mut self, state: &RoomState<'_>) -> Vec<TicketId> {
        match state.reservations {
            Some(reported) => self.set_places(reported),
            None => self.use_places(state.players_joined.saturating_sub(self.players_joined)),
        }
        (self.players, self.players_joined) = (state.players, state.players_joined);
        let complete = self.reservations.iter().filter(|reservation| reservation.places == 0);
        let complete = complete.map(|reservation| reservation.ticket).collect();
        self.reservations.retain(|reservation| reservation.places > 0);
        complete
    }

    /// Takes over who has joined. A reservation that is not reported has not reached the room, or has expired there.
    fn set_places(&mut self, reported: &[(u64, u32)]) {
        let reported: BTreeMap<u64, u32> = reported.iter().copied().collect();
        for reservation in &mut self.reservations {
            if let Some(places) = reported.get(&reservation.ticket.0) {
                reservation.places = *places;
            }
        }
    }

    /// Each player that has joined uses a place of the oldest reservation.
    fn use_places(&mut self, arrived: u64) {
        let mut arrived = u32::try_from(arrived).unwrap_or(u32::MAX);
        for reservation in &mut self.reservations {
            let used = arrived.min(reservation.places);
            reservation.places -= used;
            arrived -= used;
        }
    }

    /// Removes the newest tickets for which the room, with `places`, has none, because others have joined before the reservations
    /// reached it. Tickets with users who have joined stay.
    pub(crate) fn remove_overbooked(&mut self, places: u32) -> Vec<TicketId> {
        let mut excess = self.places_used().saturating_sub(places);
        let mut overbooked = Vec::new();
        for reservation in self.reservations.iter().rev().filter(|reservation| reservation.places == reservation.size) {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(reservation.places);
            overbooked.push(reservation.ticket);
        }
        self.reservations.retain(|reservation| !overbooked.contains(&reservation.ticket));
        overbooked
    }
}
