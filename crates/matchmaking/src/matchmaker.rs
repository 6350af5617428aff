//! The tickets of one namespace, from request to end.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use crate::{
    CRITERION_BYTES_MAX, EndReason, Initiator, MatchCounters, MatchCriteria, MatchEffect, MatchGauges, MatchRefusal,
    MatchRoomId, MatchRules, TicketId, TicketRequest, TicketStatus, USER_BYTES_MAX,
    bucket::{Bucket, Pool, WaitingTicket},
    room::MatchRoom,
    ticket::{MatchTicket, Stage, TicketUser},
};

/// How long the status of an ended ticket is kept.
const STATUS_KEPT_MS: u64 = 60_000;

/// The queue of one namespace.
#[derive(Debug)]
pub struct Matchmaker {
    pub(crate) rules: MatchRules,
    pub(crate) channel_prefix: Box<str>,
    pub(crate) tickets: BTreeMap<TicketId, MatchTicket>,
    /// The tickets of confirmed users.
    users: BTreeMap<Arc<str>, TicketId>,
    pub(crate) rooms: BTreeMap<MatchRoomId, MatchRoom>,
    pub(crate) channels: BTreeMap<Arc<str>, MatchRoomId>,
    pub(crate) buckets: BTreeMap<Arc<MatchCriteria>, Bucket>,
    timers: BTreeSet<(u64, TicketId)>,
    /// Tickets that are over, oldest first; some may be forgotten.
    over: VecDeque<TicketId>,
    /// Tickets that are not placed and not over.
    pub(crate) pending: usize,
    pub(crate) rooms_opening: usize,
    pub(crate) opens_from_ms: u64,
    pub(crate) reports: u64,
    last_ticket: u64,
    pub(crate) last_room: u64,
    pub(crate) counters: MatchCounters,
}

impl Matchmaker {
    /// A queue without tickets. The channels of its rooms begin with the prefix.
    pub fn new(rules: MatchRules, channel_prefix: &str) -> Self {
        Self {
            rules,
            channel_prefix: channel_prefix.into(),
            tickets: BTreeMap::new(),
            users: BTreeMap::new(),
            rooms: BTreeMap::new(),
            channels: BTreeMap::new(),
            buckets: BTreeMap::new(),
            timers: BTreeSet::new(),
            over: VecDeque::new(),
            pending: 0,
            rooms_opening: 0,
            opens_from_ms: 0,
            reports: 0,
            last_ticket: 0,
            last_room: 0,
            counters: MatchCounters::default(),
        }
    }

    /// Accepts a ticket. It is placed by a later [`Matchmaker::place`].
    ///
    /// # Errors
    /// [`MatchRefusal`]; nothing has changed.
    pub fn submit(&mut self, now_ms: u64, request: TicketRequest) -> Result<TicketId, MatchRefusal> {
        let checked = self.check(&request);
        self.count_refusal(checked)?;
        let TicketRequest { initiator, users, criteria, region, skill } = request;
        let is_confirmed = |user: &Arc<str>| match &initiator {
            Initiator::Backend => true,
            Initiator::User(own) => own == user,
        };
        let users: Vec<_> = users.into_iter().map(|id| TicketUser { is_confirmed: is_confirmed(&id), id }).collect();
        self.last_ticket += 1;
        let id = TicketId(self.last_ticket);
        for user in users.iter().filter(|user| user.is_confirmed) {
            self.users.insert(Arc::clone(&user.id), id);
        }
        let is_complete = users.iter().all(|user| user.is_confirmed);
        let ticket = MatchTicket {
            is_roaming: region.is_none() || self.rules.region_wait_ms == 0,
            users,
            criteria: self.known_criteria(criteria),
            region,
            skill,
            submitted_ms: now_ms,
            deadline_ms: now_ms.saturating_add(self.rules.ticket_timeout_ms),
            failures: 0,
            stage: Stage::Unconfirmed,
            timer_ms: None,
        };
        self.tickets.insert(id, ticket);
        self.pending += 1;
        self.counters.submitted += 1;
        if is_complete {
            self.start_waiting(id);
        } else {
            self.set_timer(id, Some(now_ms.saturating_add(self.rules.confirm_timeout_ms)));
        }
        Ok(id)
    }

    /// A user agrees to be placed with the others of the ticket.
    ///
    /// # Errors
    /// [`MatchRefusal`]
    pub fn confirm(&mut self, now_ms: u64, id: TicketId, user: &Arc<str>) -> Result<(), MatchRefusal> {
        let checked = self.check_confirmation(id, user);
        self.count_refusal(checked)?;
        let Some(ticket) = self.tickets.get_mut(&id) else { return Ok(()) };
        ticket.users.iter_mut().filter(|known| known.id == *user).for_each(|known| known.is_confirmed = true);
        let is_complete = ticket.stage == Stage::Unconfirmed && ticket.users.iter().all(|user| user.is_confirmed);
        if is_complete {
            ticket.deadline_ms = now_ms.saturating_add(self.rules.ticket_timeout_ms);
        }
        self.users.insert(Arc::clone(user), id);
        if is_complete {
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
        let checked = match self.tickets.get(&id) {
            Some(ticket) if user.is_some_and(|user| !ticket.has_user(user)) => Err(MatchRefusal::UnknownTicket),
            Some(ticket) if ticket.is_over() => Err(MatchRefusal::TicketOver),
            Some(_) => Ok(()),
            None => Err(MatchRefusal::UnknownTicket),
        };
        self.count_refusal(checked)?;
        self.end(now_ms, id, EndReason::Cancelled, effects);
        Ok(())
    }

    /// The state of a ticket; `None` if it is not known, or is not the user's.
    pub fn status(&self, id: TicketId, user: Option<&str>) -> Option<TicketStatus> {
        let ticket = self.tickets.get(&id)?;
        user.is_none_or(|user| ticket.has_user(user)).then(|| ticket.status())
    }

    /// Whether a ticket is unconfirmed or waits for a room.
    pub fn is_pending(&self, id: TicketId) -> bool {
        self.tickets.get(&id).is_some_and(MatchTicket::is_pending)
    }

    /// The ticket that a user is in; `None` if there is none, or it is over.
    pub fn ticket_of(&self, user: &str) -> Option<TicketId> {
        self.users.get(user).copied()
    }

    /// The counters.
    pub const fn counters(&self) -> &MatchCounters {
        &self.counters
    }

    /// The sizes.
    pub fn gauges(&self) -> MatchGauges {
        let places = self.rooms.values().flat_map(|room| &room.reservations);
        let reserved_places = places.map(|reservation| u64::from(reservation.places)).sum();
        MatchGauges { pending: self.pending, rooms: self.rooms.len(), reserved_places }
    }

    /// Ends or changes the tickets whose time has come.
    pub(crate) fn run_timers(&mut self, now_ms: u64, effects: &mut Vec<MatchEffect>) {
        while let Some((at_ms, id)) = self.timers.first().copied().filter(|(at_ms, _)| *at_ms <= now_ms) {
            self.timers.remove(&(at_ms, id));
            let Some(ticket) = self.tickets.get_mut(&id) else { continue };
            ticket.timer_ms = None;
            match ticket.stage {
                Stage::Unconfirmed => self.end(now_ms, id, EndReason::Unconfirmed, effects),
                Stage::Waiting if now_ms >= ticket.deadline_ms => self.end(now_ms, id, EndReason::TimedOut, effects),
                Stage::Waiting => self.start_roaming(id),
                Stage::Placed(..) => self.end(now_ms, id, EndReason::NotJoined, effects),
                Stage::Joined(_) | Stage::Ended(_) => drop(self.tickets.remove(&id)),
                Stage::Opening(_) => {}
            }
        }
    }

    pub(crate) fn ticket(&self, id: TicketId) -> Option<&MatchTicket> {
        self.tickets.get(&id)
    }

    pub(crate) fn waiting(&self, id: TicketId) -> Option<WaitingTicket> {
        let ticket = self.tickets.get(&id).filter(|ticket| ticket.stage == Stage::Waiting)?;
        let region = ticket.region.as_ref().filter(|_| !ticket.is_roaming);
        let pool = region.map_or(Pool::Roaming, |region| Pool::Region(Arc::clone(region)));
        Some(WaitingTicket { id, pool, skill: self.rules.skill.compared(ticket.skill), size: ticket.size() })
    }

    fn check(&self, request: &TicketRequest) -> Result<(), MatchRefusal> {
        let TicketRequest { initiator, users, region, .. } = request;
        let is_user = |user: &Arc<str>| !user.is_empty() && user.len() <= USER_BYTES_MAX;
        let limit = self.rules.party_max.min(self.rules.players_max);
        let is_small = u32::try_from(users.len()).is_ok_and(|count| (1..=limit).contains(&count));
        if !is_small || !users.iter().all(is_user) || users.iter().collect::<BTreeSet<_>>().len() != users.len() {
            return Err(MatchRefusal::Users);
        }
        if region.as_ref().is_some_and(|region| region.is_empty() || region.len() > CRITERION_BYTES_MAX) {
            return Err(MatchRefusal::Criteria);
        }
        let binds = match initiator {
            Initiator::Backend => users.as_slice(),
            Initiator::User(own) if users.contains(own) => std::slice::from_ref(own),
            Initiator::User(_) => return Err(MatchRefusal::Users),
        };
        if binds.iter().any(|user| self.users.contains_key(user)) {
            return Err(MatchRefusal::UserHasTicket);
        }
        if self.pending >= self.rules.tickets_max {
            return Err(MatchRefusal::QueueFull);
        }
        Ok(())
    }

    fn check_confirmation(&self, id: TicketId, user: &Arc<str>) -> Result<(), MatchRefusal> {
        let ticket = self.tickets.get(&id).filter(|ticket| ticket.has_user(user));
        let ticket = ticket.ok_or(MatchRefusal::UnknownTicket)?;
        if ticket.is_over() {
            return Err(MatchRefusal::TicketOver);
        }
        match self.users.get(user) {
            Some(other) if *other != id => Err(MatchRefusal::UserHasTicket),
            _ => Ok(()),
        }
    }

    fn count_refusal(&mut self, checked: Result<(), MatchRefusal>) -> Result<(), MatchRefusal> {
        if let Err(refusal) = checked
            && let Some(count) = self.counters.refused.get_mut(refusal.index())
        {
            *count += 1;
        }
        checked
    }

    /// The same criteria of a bucket, if there is one.
    pub(crate) fn known_criteria(&self, criteria: MatchCriteria) -> Arc<MatchCriteria> {
        let known = self.buckets.get_key_value(&criteria).map(|(known, _)| Arc::clone(known));
        known.unwrap_or_else(|| Arc::new(criteria))
    }

    pub(crate) fn start_waiting(&mut self, id: TicketId) {
        let Some(ticket) = self.tickets.get_mut(&id) else { return };
        ticket.stage = Stage::Waiting;
        let criteria = Arc::clone(&ticket.criteria);
        let roams_ms = ticket.submitted_ms.saturating_add(self.rules.region_wait_ms);
        let timer_ms = if ticket.is_roaming { ticket.deadline_ms } else { ticket.deadline_ms.min(roams_ms) };
        self.set_timer(id, Some(timer_ms));
        if let Some(waiting) = self.waiting(id) {
            self.buckets.entry(criteria).or_default().insert(waiting);
        }
    }

    pub(crate) fn stop_waiting(&mut self, waiting: &WaitingTicket, stage: Stage) {
        let Some(ticket) = self.tickets.get_mut(&waiting.id) else { return };
        ticket.stage = stage;
        if let Some(bucket) = self.buckets.get_mut(&ticket.criteria) {
            bucket.remove(waiting);
        }
        self.set_timer(waiting.id, None);
    }

    /// Gives up the region of a ticket that waits.
    fn start_roaming(&mut self, id: TicketId) {
        let Some(waiting) = self.waiting(id) else { return };
        self.stop_waiting(&waiting, Stage::Waiting);
        if let Some(ticket) = self.tickets.get_mut(&id) {
            ticket.is_roaming = true;
        }
        self.start_waiting(id);
    }

    pub(crate) fn end(&mut self, now_ms: u64, id: TicketId, reason: EndReason, effects: &mut Vec<MatchEffect>) {
        if let Some(waiting) = self.waiting(id) {
            self.stop_waiting(&waiting, Stage::Waiting);
        }
        let Some(ticket) = self.tickets.get(&id) else { return };
        if ticket.is_pending() {
            self.pending -= 1;
        }
        let (criteria, users) = (Arc::clone(&ticket.criteria), ticket.user_ids());
        let channel = match &ticket.stage {
            Stage::Placed(_, channel) => Some(Arc::clone(channel)),
            _ => None,
        };
        if let Stage::Opening(room) | Stage::Placed(room, _) = ticket.stage
            && let Some(known) = self.rooms.get_mut(&room)
        {
            known.release(id);
            self.list_room(room);
        }
        self.forget_bucket(&criteria);
        if let Some(count) = self.counters.ended.get_mut(reason.index()) {
            *count += 1;
        }
        self.finish(now_ms, id, Stage::Ended(reason));
        effects.push(MatchEffect::Ended { ticket: id, users, reason, channel });
    }

    /// Keeps the status of a ticket that is over for a while, and frees its users.
    pub(crate) fn finish(&mut self, now_ms: u64, id: TicketId, stage: Stage) {
        let Some(ticket) = self.tickets.get_mut(&id) else { return };
        ticket.stage = stage;
        for user in &ticket.users {
            if self.users.get(&user.id) == Some(&id) {
                self.users.remove(&user.id);
            }
        }
        self.set_timer(id, Some(now_ms.saturating_add(STATUS_KEPT_MS)));
        self.over.push_back(id);
        while self.over.len() > self.rules.tickets_max {
            let Some(oldest) = self.over.pop_front() else { break };
            self.set_timer(oldest, None);
            self.tickets.remove(&oldest);
        }
    }

    pub(crate) fn set_timer(&mut self, id: TicketId, timer_ms: Option<u64>) {
        let Some(ticket) = self.tickets.get_mut(&id) else { return };
        let before = std::mem::replace(&mut ticket.timer_ms, timer_ms);
        if let Some(before_ms) = before {
            self.timers.remove(&(before_ms, id));
        }
        if let Some(timer_ms) = timer_ms {
            self.timers.insert((timer_ms, id));
        }
    }

    pub(crate) fn forget_bucket(&mut self, criteria: &Arc<MatchCriteria>) {
        if self.buckets.get(criteria).is_some_and(Bucket::is_empty) {
            self.buckets.remove(criteria);
        }
    }
}
