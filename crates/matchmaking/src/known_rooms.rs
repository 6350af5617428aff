//! The rooms that a matchmaker knows: those that it has opened, and those that it has adopted.

use std::{collections::BTreeMap, sync::Arc};

use crate::{MatchRoomId, TicketId, room::MatchRoom};

/// How long no room is opened after the node refused to open one.
const OPEN_PAUSE_MS: u64 = 500;

#[derive(Debug, Default)]
pub(crate) struct KnownRooms {
    by_id: BTreeMap<MatchRoomId, MatchRoom>,
    channels: BTreeMap<Arc<str>, MatchRoomId>,
    /// Rooms that are being opened.
    opening: usize,
    /// No room is opened before.
    opens_from_ms: u64,
    /// Number of reports.
    reports: u64,
    last: u64,
}

impl KnownRooms {
    pub(crate) fn get(&self, id: MatchRoomId) -> Option<&MatchRoom> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: MatchRoomId) -> Option<&mut MatchRoom> {
        self.by_id.get_mut(&id)
    }

    pub(crate) fn of_channel(&self, channel: &str) -> Option<MatchRoomId> {
        self.channels.get(channel).copied()
    }

    /// Whether a room is known. The parameters are those of a room that others have opened.
    pub(crate) fn has(&self, channel: &str, params: &str) -> bool {
        let room = self.channels.get(channel).and_then(|id| self.by_id.get(id));
        room.is_some_and(|room| room.adopted.as_deref().is_none_or(|adopted| *adopted == *params))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn reserved_places(&self) -> u64 {
        let places = self.by_id.values().flat_map(|room| &room.reservations);
        places.map(|reservation| u64::from(reservation.places)).sum()
    }

    /// Number of reports so far.
    pub(crate) const fn reports(&self) -> u64 {
        self.reports
    }

    pub(crate) const fn next_id(&mut self) -> MatchRoomId {
        self.last += 1;
        MatchRoomId(self.last)
    }

    pub(crate) fn insert(&mut self, id: MatchRoomId, room: MatchRoom) {
        self.opening += usize::from(room.opening.is_some());
        self.channels.insert(Arc::clone(&room.channel), id);
        self.by_id.insert(id, room);
    }

    pub(crate) const fn may_open(&self, now_ms: u64, opening_max: usize) -> bool {
        now_ms >= self.opens_from_ms && self.opening < opening_max
    }

    pub(crate) fn is_opening(&self, id: MatchRoomId) -> bool {
        self.by_id.get(&id).is_some_and(|room| room.opening.is_some())
    }

    /// Opens no room for a while.
    pub(crate) const fn pause_opening(&mut self, now_ms: u64) {
        self.opens_from_ms = now_ms.saturating_add(OPEN_PAUSE_MS);
    }

    /// A room is open. Returns the tickets for which it was opened; `None` if it was not being opened.
    pub(crate) fn set_open(&mut self, id: MatchRoomId, now_ms: u64) -> Option<Vec<TicketId>> {
        let room = self.by_id.get_mut(&id)?;
        let tickets = room.opening.take()?;
        room.opened_ms = now_ms;
        self.opening -= 1;
        Some(tickets)
    }

    pub(crate) fn remove(&mut self, id: MatchRoomId) -> Option<MatchRoom> {
        let room = self.by_id.remove(&id)?;
        self.channels.remove(&room.channel);
        self.opening -= usize::from(room.opening.is_some());
        Some(room)
    }

    pub(crate) const fn begin_report(&mut self) {
        self.reports += 1;
    }

    /// The rooms that the report does not contain. A room that was opened lately may appear in a later one.
    pub(crate) fn missing(&self, now_ms: u64, reserve_timeout_ms: u64) -> Vec<MatchRoomId> {
        let is_gone = |room: &MatchRoom| {
            let is_missing = room.opening.is_none() && room.report != self.reports;
            is_missing && (room.was_reported || now_ms >= room.opened_ms.saturating_add(reserve_timeout_ms))
        };
        self.by_id.iter().filter(|(_, room)| is_gone(room)).map(|(id, _)| *id).collect()
    }
}
