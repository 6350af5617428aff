//! The queue of one namespace: puts its tickets into rooms. The oldest ticket goes first, and open rooms are filled before
//! new ones are opened.

use std::sync::Arc;

use crate::{
    EndReason, HandedTicket, Initiator, MatchCounters, MatchCriteria, MatchEffect, MatchGauges, MatchRefusal,
    MatchRoomId, MatchRules, OpenFailure, OpenedRoom, RoomState, TicketId, TicketRequest, TicketStatus,
    bucket::{Bucket, Buckets, WaitingTicket},
    known_rooms::KnownRooms,
    pass::{Pass, group},
    room::MatchRoom,
    ticket::{MatchTicket, Stage, TicketUser},
    tickets::Tickets,
};

/// Number of rooms that may fail before a ticket ends.
const FAILURES_MAX: u8 = 3;

/// The queue of one namespace.
#[derive(Debug)]
pub struct Matchmaker {
    rules: MatchRules,
    channel_prefix: Box<str>,
    tickets: Tickets,
    rooms: KnownRooms,
    buckets: Buckets,
    counters: MatchCounters,
}

impl Matchmaker {
    /// A queue without tickets. The channels of its rooms begin with the prefix.
    pub fn new(rules: MatchRules, channel_prefix: &str) -> Self {
        Self {
            rules,
            channel_prefix: channel_prefix.into(),
            tickets: Tickets::default(),
            rooms: KnownRooms::default(),
            buckets: Buckets::default(),
            counters: MatchCounters::default(),
        }
    }

    /// Accepts a ticket. It is placed by a later [`Matchmaker::place`].
    ///
    /// # Errors
    /// [`MatchRefusal`]; nothing has changed.
    pub fn submit(&mut self, now_ms: u64, request: TicketRequest) -> Result<TicketId, MatchRefusal> {
        let checked = self.tickets.check(&request, &self.rules);
        self.count_refusal(checked)?;
        let TicketRequest { initiator, users, criteria, region, skill } = request;
        let is_confirmed = |user: &Arc<str>| match &initiator {
            Initiator::Backend => true,
            Initiator::User(own) => own == user,
        };
        let users: Vec<_> = users.into_iter().map(|id| TicketUser { is_confirmed: is_confirmed(&id), id }).collect();
        let is_complete = users.iter().all(|user| user.is_confirmed);
        let id = self.tickets.add(MatchTicket {
            is_roaming: region.is_none() || self.rules.region_wait_ms == 0,
            users,
            criteria: self.buckets.known_criteria(criteria),
            region,
            skill,
            submitted_ms: now_ms,
            deadline_ms: now_ms.saturating_add(self.rules.ticket_timeout_ms),
            failures: 0,
            stage: Stage::Unconfirmed,
            timer_ms: None,
        });
        self.counters.submitted += 1;
        if is_complete {
            self.start_waiting(id);
        } else {
            self.tickets.set_timer(id, Some(now_ms.saturating_add(self.rules.confirm_timeout_ms)));
        }
        Ok(id)
    }

    /// Removes the oldest tickets that are in no room and in none that is being opened, for the queue of another node. Those whose
    /// time is over stay, and end here.
    pub fn hand_over(&mut self, now_ms: u64, tickets_max: usize) -> Vec<(TicketId, HandedTicket)> {
        let has_time = |id: &TicketId| self.tickets.get(*id).is_some_and(|ticket| ticket.ends_ms() > now_ms);
        let ids: Vec<_> = self.tickets.without_room().filter(has_time).take(tickets_max).collect();
        let handed = ids.into_iter().filter_map(|id| {
            if let Some(waiting) = self.tickets.waiting(id, &self.rules) {
                self.stop_waiting(&waiting, Stage::Waiting);
            }
            let ends_ms = self.tickets.get(id)?.ends_ms();
            let MatchTicket { users, criteria, region, skill, submitted_ms, .. } = self.tickets.take(id)?;
            self.buckets.forget_if_empty(&criteria);
            let handed = HandedTicket {
                users: users.into_iter().map(|user| (user.id, user.is_confirmed)).collect(),
                criteria: (*criteria).clone(),
                region,
                skill,
                age_ms: now_ms.saturating_sub(submitted_ms),
                left_ms: ends_ms.saturating_sub(now_ms),
            };
            Some((id, handed))
        });
        handed.collect()
    }

    /// Goes on with a ticket that another queue has handed over. It keeps its time, and is not counted as submitted again.
    ///
    /// # Errors
    /// [`MatchRefusal`]; nothing has changed.
    pub fn take_over(&mut self, now_ms: u64, ticket: HandedTicket) -> Result<TicketId, MatchRefusal> {
        let checked = self.tickets.check_handed(&ticket, &self.rules);
        self.count_refusal(checked)?;
        let HandedTicket { users, criteria, region, skill, age_ms, left_ms } = ticket;
        let is_complete = users.iter().all(|(_, is_confirmed)| *is_confirmed);
        let timeout_ms = if is_complete { self.rules.ticket_timeout_ms } else { self.rules.confirm_timeout_ms };
        let ends_ms = now_ms.saturating_add(left_ms.min(timeout_ms));
        let id = self.tickets.add(MatchTicket {
            is_roaming: region.is_none() || self.rules.region_wait_ms <= age_ms,
            users: users.into_iter().map(|(id, is_confirmed)| TicketUser { id, is_confirmed }).collect(),
            criteria: self.buckets.known_criteria(criteria),
            region,
            skill,
            submitted_ms: now_ms.saturating_sub(age_ms),
            deadline_ms: ends_ms,
            failures: 0,
            stage: Stage::Unconfirmed,
            timer_ms: None,
        });
        if is_complete {
            self.start_waiting(id);
        } else {
            self.tickets.set_timer(id, Some(ends_ms));
        }
        Ok(id)
    }

    /// Ends a ticket with which no queue goes on, so that its users are informed. Its status is kept like that of other tickets.
    pub fn end_handed(&mut self, now_ms: u64, ticket: HandedTicket, effects: &mut Vec<MatchEffect>) -> TicketId {
        let HandedTicket { users, criteria, region, skill, age_ms, left_ms: _ } = ticket;
        let id = self.tickets.add(MatchTicket {
            is_roaming: true,
            // A confirmed user would be bound to it, and may have another ticket by now.
            users: users.into_iter().map(|(id, _)| TicketUser { id, is_confirmed: false }).collect(),
            criteria: self.buckets.known_criteria(criteria),
            region,
            skill,
            submitted_ms: now_ms.saturating_sub(age_ms),
            deadline_ms: now_ms,
            failures: 0,
            stage: Stage::Unconfirmed,
            timer_ms: None,
        });
        self.end(now_ms, id, EndReason::Lost, effects);
        id
    }

    /// Whether a ticket is not over.
    pub fn has_unfinished(&self) -> bool {
        self.tickets.has_unfinished()
    }

    /// A user agrees to be placed with the others of the ticket.
    ///
    /// # Errors
    /// [`MatchRefusal`]
    pub fn confirm(&mut self, now_ms: u64, id: TicketId, user: &Arc<str>) -> Result<(), MatchRefusal> {
        let checked = self.tickets.check_confirmation(id, user);
        self.count_refusal(checked)?;
        if self.tickets.confirm(id, user, now_ms.saturating_add(self.rules.ticket_timeout_ms)) {
            self.start_waiting(id);
        }
        Ok(())
    }

    /// Cancels a ticket that is not over, for one of its users or for the backend (`None`). Reserved places become free.
    ///
    /// # Errors
    /// [`MatchRefusal`]
    pub fn cancel(
        &mut self,
        now_ms: u64,
        id: TicketId,
        user: Option<&str>,
        effects: &mut Vec<MatchEffect>,
    ) -> Result<(), MatchRefusal> {
        let checked = self.tickets.check_cancellation(id, user);
        self.count_refusal(checked)?;
        self.end(now_ms, id, EndReason::Cancelled, effects);
        Ok(())
    }

    /// The state of a ticket; `None` if it is not known, or is not the user's.
    pub fn status(&self, id: TicketId, user: Option<&str>) -> Option<TicketStatus> {
        let ticket = self.tickets.get(id)?;
        user.is_none_or(|user| ticket.has_user(user)).then(|| ticket.status())
    }

    /// Whether a ticket is unconfirmed or waits for a room.
    pub fn is_pending(&self, id: TicketId) -> bool {
        self.tickets.get(id).is_some_and(MatchTicket::is_pending)
    }

    /// The ticket that a user is in; `None` if there is none, or it is over.
    pub fn ticket_of(&self, user: &str) -> Option<TicketId> {
        self.tickets.of_user(user)
    }

    /// The counters.
    pub const fn counters(&self) -> &MatchCounters {
        &self.counters
    }

    /// The sizes.
    pub fn gauges(&self) -> MatchGauges {
        let (pending, rooms) = (self.tickets.pending(), self.rooms.len());
        MatchGauges { pending, rooms, reserved_places: self.rooms.reserved_places() }
    }

    /// Runs the timers, and places all tickets that can be placed.
    pub fn place(&mut self, now_ms: u64, effects: &mut Vec<MatchEffect>) {
        self.run_timers(now_ms, effects);
        for criteria in self.buckets.all_criteria() {
            self.fill_rooms(now_ms, &criteria, effects);
            self.open_rooms(now_ms, &criteria, effects);
            self.buckets.forget_if_empty(&criteria);
        }
    }

    /// A room was opened.
    pub fn on_room_opened(&mut self, now_ms: u64, id: MatchRoomId, effects: &mut Vec<MatchEffect>) {
        let Some(tickets) = self.rooms.set_open(id, now_ms) else { return };
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
        if self.rooms.is_opening(id) {
            self.rooms.pause_opening(now_ms);
            self.close_room(now_ms, id, failure, effects);
        }
    }

    /// Takes over the numbers of players of all rooms. A room of the matchmaker that is missing is closed: tickets whose users
    /// have not come wait again.
    pub fn on_rooms_reported<'r>(
        &mut self,
        now_ms: u64,
        rooms: impl IntoIterator<Item = RoomState<'r>>,
        effects: &mut Vec<MatchEffect>,
    ) {
        self.rooms.begin_report();
        for state in rooms {
            if let Some(id) = self.rooms.of_channel(state.channel) {
                self.take_report(now_ms, id, &state, effects);
            }
        }
        for id in self.rooms.missing(now_ms, self.rules.reserve_timeout_ms) {
            self.close_room(now_ms, id, OpenFailure::Failed, effects);
        }
    }

    /// Whether a room is known: one that the matchmaker has opened, or that it has adopted with these parameters.
    pub fn has_room(&self, channel: &str, params: &str) -> bool {
        self.rooms.has(channel, params)
    }

    /// Takes over a room that is not known. It gets tickets from the next report on. A room with other parameters that the channel
    /// had before is closed.
    pub fn adopt_room(&mut self, now_ms: u64, opened: OpenedRoom, effects: &mut Vec<MatchEffect>) {
        let OpenedRoom { channel, params, criteria, region } = opened;
        if self.has_room(&channel, &params) {
            return;
        }
        if let Some(before) = self.rooms.of_channel(&channel) {
            self.close_room(now_ms, before, OpenFailure::Failed, effects);
        }
        let takes_tickets = criteria.is_some();
        let criteria = self.buckets.known_criteria(criteria.unwrap_or_default());
        let limits = (self.rules.players_max, self.rooms.reports());
        let mut room = MatchRoom::new(channel, criteria, region, now_ms, limits);
        (room.adopted, room.takes_tickets) = (Some(params), takes_tickets);
        // Until its first report.
        room.accepts = false;
        let id = self.rooms.next_id();
        self.rooms.insert(id, room);
    }

    /// Ends or changes the tickets whose time has come. Of a queue whose tickets another node places, nothing else is due.
    pub fn run_timers(&mut self, now_ms: u64, effects: &mut Vec<MatchEffect>) {
        while let Some(id) = self.tickets.take_due(now_ms) {
            let Some(ticket) = self.tickets.get(id) else { continue };
            match ticket.stage {
                Stage::Unconfirmed => self.end(now_ms, id, EndReason::Unconfirmed, effects),
                Stage::Waiting if now_ms >= ticket.deadline_ms => self.end(now_ms, id, EndReason::TimedOut, effects),
                Stage::Waiting => self.start_roaming(id),
                Stage::Placed(..) => self.end(now_ms, id, EndReason::NotJoined, effects),
                Stage::Joined(_) | Stage::Ended(_) => self.tickets.forget(id),
                Stage::Opening(_) => {}
            }
        }
    }

    fn fill_rooms(&mut self, now_ms: u64, criteria: &MatchCriteria, effects: &mut Vec<MatchEffect>) {
        let Some(bucket) = self.buckets.get(criteria).filter(|bucket| bucket.has_rooms()) else { return };
        let mut pass = Pass::new(bucket, bucket.fill_from);
        while let Some(bucket) = self.buckets.get(criteria).filter(|bucket| bucket.has_rooms())
            && let Some((waiting, ticket)) = pass.next(&self.tickets, &self.rules)
        {
            let window = self.rules.skill.width_after(now_ms.saturating_sub(ticket.submitted_ms));
            let region = ticket.region.as_ref().filter(|_| !ticket.is_roaming);
            let found = bucket.room_for(&waiting, region, window);
            if let Some(room) = pass.note(ticket, &waiting, found) {
                self.place_in(now_ms, &waiting, room, effects);
            }
        }
        let (compared, next) = pass.end();
        self.counters.compared += compared;
        if let Some(bucket) = self.buckets.get_mut(criteria) {
            bucket.fill_from = next;
        }
    }

    fn open_rooms(&mut self, now_ms: u64, criteria: &MatchCriteria, effects: &mut Vec<MatchEffect>) {
        let has_users = |bucket: &&Bucket| bucket.users() >= u64::from(self.rules.players_min);
        let Some(bucket) = self.buckets.get(criteria).filter(has_users) else { return };
        let mut pass = Pass::new(bucket, bucket.open_from);
        while self.rooms.may_open(now_ms, self.rules.rooms_opening_max)
            && let Some(bucket) = self.buckets.get(criteria)
            && let Some((seed, ticket)) = pass.next(&self.tickets, &self.rules)
        {
            let found = group(bucket, ticket, &seed, &self.rules, now_ms);
            if let Some(tickets) = pass.note(ticket, &seed, found) {
                self.open_room(now_ms, tickets, effects);
            }
        }
        let (compared, next) = pass.end();
        self.counters.compared += compared;
        if let Some(bucket) = self.buckets.get_mut(criteria) {
            bucket.open_from = next;
        }
    }

    /// Opens a room for tickets that wait.
    fn open_room(&mut self, now_ms: u64, tickets: Vec<TicketId>, effects: &mut Vec<MatchEffect>) {
        let Some(oldest) = tickets.first().and_then(|id| self.tickets.get(*id)) else { return };
        let (criteria, region) = (Arc::clone(&oldest.criteria), oldest.region.clone());
        let id = self.rooms.next_id();
        let channel: Arc<str> = format!("{}{}", self.channel_prefix, id.0).into();
        let limits = (self.rules.players_max, self.rooms.reports());
        let mut room = MatchRoom::new(Arc::clone(&channel), Arc::clone(&criteria), region.clone(), now_ms, limits);
        for ticket in &tickets {
            let Some(waiting) = self.tickets.waiting(*ticket, &self.rules) else { continue };
            room.reserve(*ticket, waiting.size, waiting.skill);
            self.stop_waiting(&waiting, Stage::Opening(id));
        }
        room.opening = Some(tickets);
        self.rooms.insert(id, room);
        effects.push(MatchEffect::OpenRoom { room: id, channel, criteria, region });
    }

    /// Reserves places in an open room.
    fn place_in(&mut self, now_ms: u64, waiting: &WaitingTicket, id: MatchRoomId, effects: &mut Vec<MatchEffect>) {
        let Some(room) = self.rooms.get_mut(id) else { return };
        room.reserve(waiting.id, waiting.size, waiting.skill);
        self.stop_waiting(waiting, Stage::Opening(id));
        self.list_room(id);
        self.announce(now_ms, waiting.id, id, effects);
    }

    fn announce(&mut self, now_ms: u64, id: TicketId, room: MatchRoomId, effects: &mut Vec<MatchEffect>) {
        let Some(channel) = self.rooms.get(room).map(|room| Arc::clone(&room.channel)) else { return };
        let timer_ms = now_ms.saturating_add(self.rules.reserve_timeout_ms);
        let Some(users) = self.tickets.place(id, room, &channel, timer_ms) else { return };
        self.counters.placed += 1;
        effects.push(MatchEffect::Placed { ticket: id, users, channel });
    }

    fn take_report(&mut self, now_ms: u64, id: MatchRoomId, state: &RoomState<'_>, effects: &mut Vec<MatchEffect>) {
        let report = self.rooms.reports();
        let Some(room) = self.rooms.get_mut(id) else { return };
        room.was_reported = true;
        room.report = report;
        room.players_max = state.players_max.min(self.rules.players_max);
        room.accepts = state.accepts;
        let channel = Arc::clone(&room.channel);
        let complete = room.set_players(state);
        // The room may have more places than tickets fill.
        let overbooked = state.reservations.map_or_else(Vec::new, |_| room.remove_overbooked(state.players_max));
        for ticket in complete {
            self.counters.joined += 1;
            self.tickets.finish(now_ms, ticket, Stage::Joined(Arc::clone(&channel)), self.rules.tickets_max);
        }
        for ticket in overbooked {
            self.counters.withdrawn += 1;
            self.tickets.extend_deadline(ticket, now_ms.saturating_add(self.rules.ticket_timeout_ms));
            self.wait_again(ticket);
            effects.push(MatchEffect::Withdrawn { ticket, channel: Arc::clone(&channel) });
        }
        self.list_room(id);
    }

    fn close_room(&mut self, now_ms: u64, id: MatchRoomId, failure: OpenFailure, effects: &mut Vec<MatchEffect>) {
        let Some(mut room) = self.rooms.remove(id) else { return };
        self.buckets.unlist_room(&mut room);
        if room.opening.is_some() || !room.reservations.is_empty() {
            self.counters.rooms_failed += 1;
        }
        for reservation in room.reservations {
            if failure == OpenFailure::Failed {
                let deadline_ms = now_ms.saturating_add(self.rules.ticket_timeout_ms);
                self.tickets.extend_deadline(reservation.ticket, deadline_ms);
            }
            self.wait_again(reservation.ticket);
            let Some(ticket) = self.tickets.get_mut(reservation.ticket) else { continue };
            ticket.failures += u8::from(failure == OpenFailure::Failed);
            if ticket.failures > FAILURES_MAX {
                self.end(now_ms, reservation.ticket, EndReason::RoomFailed, effects);
            }
        }
        self.buckets.forget_if_empty(&room.criteria);
    }

    fn list_room(&mut self, id: MatchRoomId) {
        if let Some(room) = self.rooms.get_mut(id) {
            self.buckets.list_room(id, room, &self.rules);
        }
    }

    /// A ticket that has lost its places waits for others.
    fn wait_again(&mut self, id: TicketId) {
        self.tickets.displace(id);
        self.start_waiting(id);
    }

    fn start_waiting(&mut self, id: TicketId) {
        let Some(ticket) = self.tickets.get_mut(id) else { return };
        ticket.stage = Stage::Waiting;
        let criteria = Arc::clone(&ticket.criteria);
        let roams_ms = ticket.submitted_ms.saturating_add(self.rules.region_wait_ms);
        let timer_ms = if ticket.is_roaming { ticket.deadline_ms } else { ticket.deadline_ms.min(roams_ms) };
        self.tickets.set_timer(id, Some(timer_ms));
        if let Some(waiting) = self.tickets.waiting(id, &self.rules) {
            self.buckets.insert(criteria, waiting);
        }
    }

    fn stop_waiting(&mut self, waiting: &WaitingTicket, stage: Stage) {
        let Some(ticket) = self.tickets.get_mut(waiting.id) else { return };
        ticket.stage = stage;
        if let Some(bucket) = self.buckets.get_mut(&ticket.criteria) {
            bucket.remove(waiting);
        }
        self.tickets.set_timer(waiting.id, None);
    }

    /// Gives up the region of a ticket that waits.
    fn start_roaming(&mut self, id: TicketId) {
        let Some(waiting) = self.tickets.waiting(id, &self.rules) else { return };
        self.stop_waiting(&waiting, Stage::Waiting);
        if let Some(ticket) = self.tickets.get_mut(id) {
            ticket.is_roaming = true;
        }
        self.start_waiting(id);
    }

    fn end(&mut self, now_ms: u64, id: TicketId, reason: EndReason, effects: &mut Vec<MatchEffect>) {
        if let Some(waiting) = self.tickets.waiting(id, &self.rules) {
            self.stop_waiting(&waiting, Stage::Waiting);
        }
        let Some(ticket) = self.tickets.get(id) else { return };
        let (criteria, users) = (Arc::clone(&ticket.criteria), ticket.user_ids());
        let (room, channel) = match &ticket.stage {
            Stage::Opening(room) => (Some(*room), None),
            Stage::Placed(room, channel) => (Some(*room), Some(Arc::clone(channel))),
            _ => (None, None),
        };
        if let Some(room) = room
            && let Some(known) = self.rooms.get_mut(room)
        {
            known.release(id);
            self.list_room(room);
        }
        self.buckets.forget_if_empty(&criteria);
        if let Some(count) = self.counters.ended.get_mut(reason.index()) {
            *count += 1;
        }
        self.tickets.finish(now_ms, id, Stage::Ended(reason), self.rules.tickets_max);
        effects.push(MatchEffect::Ended { ticket: id, users, reason, channel });
    }

    fn count_refusal(&mut self, checked: Result<(), MatchRefusal>) -> Result<(), MatchRefusal> {
        if let Err(refusal) = checked
            && let Some(count) = self.counters.refused.get_mut(refusal.index())
        {
            *count += 1;
        }
        checked
    }
}
