//! Places in rooms: opening rooms, reserving places, and what becomes of the tickets of a room that closes.

use std::sync::Arc;

use crate::{
    EndReason, MatchEffect, MatchRoomId, Matchmaker, OpenFailure, RoomState, TicketId,
    bucket::{RoomEntry, WaitingTicket},
    room::MatchRoom,
    ticket::Stage,
};

/// Number of rooms that may fail before a ticket ends.
const FAILURES_MAX: u8 = 3;
/// How long no room is opened after the node refused to open one.
const OPEN_PAUSE_MS: u64 = 500;

impl Matchmaker {
    /// A room was opened.
    pub fn on_room_opened(&mut self, now_ms: u64, id: MatchRoomId, effects: &mut Vec<MatchEffect>) {
        let Some(room) = self.rooms.get_mut(&id) else { return };
        let Some(tickets) = room.opening.take() else { return };
        room.opened_ms = now_ms;
        self.rooms_opening -= 1;
        self.counters.rooms_opened += 1;
        for ticket in tickets {
            self.announce(now_ms, ticket, id, effects);
        }
        self.list_room(id);
    }

    /// A room was not opened.
    pub fn on_open_failed(
        &mut self,
        now_ms: u64,
        id: MatchRoomId,
        failure: OpenFailure,
        effects: &mut Vec<MatchEffect>,
    ) {
        let is_opening = self.rooms.get(&id).is_some_and(|room| room.opening.is_some());
        if !is_opening {
            return;
        }
        self.opens_from_ms = now_ms.saturating_add(OPEN_PAUSE_MS);
        self.close_room(now_ms, id, failure, effects);
    }

    /// Takes over the numbers of players of all rooms. A room of the matchmaker that is missing is closed: tickets whose users
    /// have not come wait again.
    pub fn on_rooms_reported<'r>(
        &mut self,
        now_ms: u64,
        rooms: impl IntoIterator<Item = RoomState<'r>>,
        effects: &mut Vec<MatchEffect>,
    ) {
        self.reports += 1;
        for state in rooms {
            if let Some(id) = self.channels.get(state.channel).copied() {
                self.take_report(now_ms, id, &state, effects);
            }
        }
        let reserve_ms = self.rules.reserve_timeout_ms;
        let is_gone = |room: &MatchRoom| {
            let is_missing = room.opening.is_none() && room.report != self.reports;
            is_missing && (room.was_reported || now_ms >= room.opened_ms.saturating_add(reserve_ms))
        };
        let gone: Vec<_> = self.rooms.iter().filter(|(_, room)| is_gone(room)).map(|(id, _)| *id).collect();
        for id in gone {
            self.close_room(now_ms, id, OpenFailure::Failed, effects);
        }
    }

    /// Opens a room for tickets that wait.
    pub(crate) fn open_room(&mut self, now_ms: u64, tickets: Vec<TicketId>, effects: &mut Vec<MatchEffect>) {
        let Some(oldest) = tickets.first().and_then(|id| self.tickets.get(id)) else { return };
        let (criteria, region) = (Arc::clone(&oldest.criteria), oldest.region.clone());
        self.last_room += 1;
        let id = MatchRoomId(self.last_room);
        let channel: Arc<str> = format!("{}{}", self.channel_prefix, id.0).into();
        let limits = (self.rules.players_max, self.reports);
        let mut room = MatchRoom::new(Arc::clone(&channel), Arc::clone(&criteria), region.clone(), now_ms, limits);
        for ticket in &tickets {
            let Some(waiting) = self.waiting(*ticket) else { continue };
            room.reserve(*ticket, waiting.size, waiting.skill);
            self.stop_waiting(&waiting, Stage::Opening(id));
        }
        room.opening = Some(tickets);
        self.rooms_opening += 1;
        self.rooms.insert(id, room);
        self.channels.insert(Arc::clone(&channel), id);
        effects.push(MatchEffect::OpenRoom { room: id, channel, criteria, region });
    }

    /// Reserves places in an open room.
    pub(crate) fn place_in(
        &mut self,
        now_ms: u64,
        waiting: &WaitingTicket,
        id: MatchRoomId,
        effects: &mut Vec<MatchEffect>,
    ) {
        let Some(room) = self.rooms.get_mut(&id) else { return };
        room.reserve(waiting.id, waiting.size, waiting.skill);
        self.stop_waiting(waiting, Stage::Opening(id));
        self.list_room(id);
        self.announce(now_ms, waiting.id, id, effects);
    }

    /// Lists a room under its number of free places, its skill and its region.
    pub(crate) fn list_room(&mut self, id: MatchRoomId) {
        self.unlist_room(id);
        let Some(room) = self.rooms.get_mut(&id) else { return };
        let free = room.free();
        // A mean skill that is not known suits nobody.
        let is_comparable = !self.rules.skill.is_on() || room.has_skill();
        if room.accepts && room.takes_tickets && is_comparable && room.opening.is_none() && free > 0 {
            let entry = RoomEntry { free, skill: room.skill(), room: id, region: room.region.clone() };
            self.buckets.entry(Arc::clone(&room.criteria)).or_default().list_room(&entry);
            room.listed = Some(entry);
        } else {
            let criteria = Arc::clone(&room.criteria);
            self.forget_bucket(&criteria);
        }
    }

    fn take_report(&mut self, now_ms: u64, id: MatchRoomId, state: &RoomState<'_>, effects: &mut Vec<MatchEffect>) {
        let Some(room) = self.rooms.get_mut(&id) else { return };
        room.was_reported = true;
        room.report = self.reports;
        room.players_max = state.players_max.min(self.rules.players_max);
        room.accepts = state.accepts;
        let channel = Arc::clone(&room.channel);
        let complete = room.set_players(state);
        // The room may have more places than tickets fill.
        let overbooked = state.reservations.map_or_else(Vec::new, |_| room.remove_overbooked(state.players_max));
        for ticket in complete {
            self.counters.joined += 1;
            self.finish(now_ms, ticket, Stage::Joined(Arc::clone(&channel)));
        }
        for ticket in overbooked {
            self.counters.withdrawn += 1;
            self.extend_deadline(now_ms, ticket);
            self.wait_again(ticket);
            effects.push(MatchEffect::Withdrawn { ticket, channel: Arc::clone(&channel) });
        }
        self.list_room(id);
    }

    fn announce(&mut self, now_ms: u64, id: TicketId, room: MatchRoomId, effects: &mut Vec<MatchEffect>) {
        let Some(channel) = self.rooms.get(&room).map(|room| Arc::clone(&room.channel)) else { return };
        // A ticket that was cancelled meanwhile is in another stage.
        let Some(ticket) = self.tickets.get_mut(&id).filter(|ticket| ticket.stage == Stage::Opening(room)) else {
            return;
        };
        ticket.stage = Stage::Placed(room, Arc::clone(&channel));
        let users = ticket.user_ids();
        self.pending -= 1;
        self.counters.placed += 1;
        self.set_timer(id, Some(now_ms.saturating_add(self.rules.reserve_timeout_ms)));
        effects.push(MatchEffect::Placed { ticket: id, users, channel });
    }

    pub(crate) fn close_room(
        &mut self,
        now_ms: u64,
        id: MatchRoomId,
        failure: OpenFailure,
        effects: &mut Vec<MatchEffect>,
    ) {
        self.unlist_room(id);
        let Some(room) = self.rooms.remove(&id) else { return };
        self.channels.remove(&room.channel);
        if room.opening.is_some() {
            self.rooms_opening -= 1;
        }
        if room.opening.is_some() || !room.reservations.is_empty() {
            self.counters.rooms_failed += 1;
        }
        for reservation in room.reservations {
            if failure == OpenFailure::Failed {
                self.extend_deadline(now_ms, reservation.ticket);
            }
            self.wait_again(reservation.ticket);
            let Some(ticket) = self.tickets.get_mut(&reservation.ticket) else { continue };
            ticket.failures += u8::from(failure == OpenFailure::Failed);
            if ticket.failures > FAILURES_MAX {
                self.end(now_ms, reservation.ticket, EndReason::RoomFailed, effects);
            }
        }
        self.forget_bucket(&room.criteria);
    }

    /// Gives a ticket that has lost its room the time of a new one.
    fn extend_deadline(&mut self, now_ms: u64, id: TicketId) {
        let deadline_ms = now_ms.saturating_add(self.rules.ticket_timeout_ms);
        if let Some(ticket) = self.tickets.get_mut(&id) {
            ticket.deadline_ms = ticket.deadline_ms.max(deadline_ms);
        }
    }

    /// A ticket that has lost its places waits for others.
    fn wait_again(&mut self, id: TicketId) {
        if self.ticket(id).is_some_and(|ticket| matches!(ticket.stage, Stage::Placed(..))) {
            self.pending += 1;
        }
        self.start_waiting(id);
    }

    fn unlist_room(&mut self, id: MatchRoomId) {
        let Some(room) = self.rooms.get_mut(&id) else { return };
        if let (Some(entry), Some(bucket)) = (room.listed.take(), self.buckets.get_mut(&room.criteria)) {
            bucket.unlist_room(&entry);
        }
    }
}
