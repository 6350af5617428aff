//! The tickets of one namespace, with their users and timers.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use crate::{
    CRITERION_BYTES_MAX, HandedTicket, Initiator, MatchRefusal, MatchRules, TicketId, TicketRequest, USER_BYTES_MAX,
    bucket::{Pool, WaitingTicket},
    room::MatchRoomId,
    ticket::{MatchTicket, Stage},
};

/// How long the status of an ended ticket is kept.
const STATUS_KEPT_MS: u64 = 60_000;

#[derive(Debug, Default)]
pub(crate) struct Tickets {
    by_id: BTreeMap<TicketId, MatchTicket>,
    /// The tickets of confirmed users.
    users: BTreeMap<Arc<str>, TicketId>,
    timers: BTreeSet<(u64, TicketId)>,
    /// Tickets that are over, oldest first; some may be forgotten.
    over: VecDeque<TicketId>,
    /// Tickets that are not placed and not over.
    pending: usize,
    last: u64,
}

impl Tickets {
    pub(crate) fn get(&self, id: TicketId) -> Option<&MatchTicket> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: TicketId) -> Option<&mut MatchTicket> {
        self.by_id.get_mut(&id)
    }

    /// The ticket that a confirmed user is in.
    pub(crate) fn of_user(&self, user: &str) -> Option<TicketId> {
        self.users.get(user).copied()
    }

    /// Number of tickets that are not placed and not over.
    pub(crate) const fn pending(&self) -> usize {
        self.pending
    }

    /// A ticket as it waits for a room; `None` if it does not.
    pub(crate) fn waiting(&self, id: TicketId, rules: &MatchRules) -> Option<WaitingTicket> {
        let ticket = self.by_id.get(&id).filter(|ticket| ticket.stage == Stage::Waiting)?;
        let region = ticket.region.as_ref().filter(|_| !ticket.is_roaming);
        let pool = region.map_or(Pool::Roaming, |region| Pool::Region(Arc::clone(region)));
        Some(WaitingTicket { id, pool, skill: rules.skill.compared(ticket.skill), size: ticket.size() })
    }

    /// Whether a request may become a ticket.
    pub(crate) fn check(&self, request: &TicketRequest, rules: &MatchRules) -> Result<(), MatchRefusal> {
        let TicketRequest { initiator, users, region, .. } = request;
        let is_user = |user: &Arc<str>| !user.is_empty() && user.len() <= USER_BYTES_MAX;
        let limit = rules.party_max.min(rules.players_max);
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
        if self.pending >= rules.tickets_max {
            return Err(MatchRefusal::QueueFull);
        }
        Ok(())
    }

    /// Whether a ticket of another queue may go on here.
    pub(crate) fn check_handed(&self, ticket: &HandedTicket, rules: &MatchRules) -> Result<(), MatchRefusal> {
        let limit = rules.party_max.min(rules.players_max);
        let is_small = u32::try_from(ticket.users.len()).is_ok_and(|count| (1..=limit).contains(&count));
        let is_user = |user: &Arc<str>| !user.is_empty() && user.len() <= USER_BYTES_MAX;
        let distinct: BTreeSet<_> = ticket.users.iter().map(|(user, _)| user).collect();
        if !is_small || distinct.len() != ticket.users.len() || !distinct.into_iter().all(is_user) {
            return Err(MatchRefusal::Users);
        }
        if ticket.region.as_ref().is_some_and(|region| region.is_empty() || region.len() > CRITERION_BYTES_MAX) {
            return Err(MatchRefusal::Criteria);
        }
        if ticket.users.iter().any(|(user, is_confirmed)| *is_confirmed && self.users.contains_key(user)) {
            return Err(MatchRefusal::UserHasTicket);
        }
        if self.pending >= rules.tickets_max { Err(MatchRefusal::QueueFull) } else { Ok(()) }
    }

    /// Tickets that are unconfirmed or wait, and are in no room that is being opened; the oldest first.
    pub(crate) fn without_room(&self) -> impl Iterator<Item = TicketId> {
        let is_without = |ticket: &MatchTicket| matches!(ticket.stage, Stage::Unconfirmed | Stage::Waiting);
        self.by_id.iter().filter(move |(_, ticket)| is_without(ticket)).map(|(id, _)| *id)
    }

    /// Whether a ticket is not over.
    pub(crate) fn has_unfinished(&self) -> bool {
        self.by_id.values().any(|ticket| !ticket.is_over())
    }

    /// Removes a ticket that waits or is unconfirmed, as if it had never been here.
    pub(crate) fn take(&mut self, id: TicketId) -> Option<MatchTicket> {
        self.set_timer(id, None);
        let ticket = self.by_id.remove(&id)?;
        self.pending -= usize::from(ticket.is_pending());
        for user in &ticket.users {
            if self.users.get(&user.id) == Some(&id) {
                self.users.remove(&user.id);
            }
        }
        Some(ticket)
    }

    /// Whether a user may confirm a ticket.
    pub(crate) fn check_confirmation(&self, id: TicketId, user: &str) -> Result<(), MatchRefusal> {
        let ticket = self.by_id.get(&id).filter(|ticket| ticket.has_user(user));
        let ticket = ticket.ok_or(MatchRefusal::UnknownTicket)?;
        if ticket.is_over() {
            return Err(MatchRefusal::TicketOver);
        }
        match self.users.get(user) {
            Some(other) if *other != id => Err(MatchRefusal::UserHasTicket),
            _ => Ok(()),
        }
    }

    /// Whether one of its users or the backend (`None`) may cancel a ticket.
    pub(crate) fn check_cancellation(&self, id: TicketId, user: Option<&str>) -> Result<(), MatchRefusal> {
        match self.by_id.get(&id) {
            Some(ticket) if user.is_some_and(|user| !ticket.has_user(user)) => Err(MatchRefusal::UnknownTicket),
            Some(ticket) if ticket.is_over() => Err(MatchRefusal::TicketOver),
            Some(_) => Ok(()),
            None => Err(MatchRefusal::UnknownTicket),
        }
    }

    pub(crate) fn add(&mut self, ticket: MatchTicket) -> TicketId {
        self.last += 1;
        let id = TicketId(self.last);
        for user in ticket.users.iter().filter(|user| user.is_confirmed) {
            self.users.insert(Arc::clone(&user.id), id);
        }
        self.by_id.insert(id, ticket);
        self.pending += 1;
        id
    }

    /// A user confirms. Returns whether no other user of the ticket is missing; the ticket then waits until `deadline_ms`.
    pub(crate) fn confirm(&mut self, id: TicketId, user: &Arc<str>, deadline_ms: u64) -> bool {
        let Some(ticket) = self.by_id.get_mut(&id) else { return false };
        ticket.users.iter_mut().filter(|known| known.id == *user).for_each(|known| known.is_confirmed = true);
        let is_complete = ticket.stage == Stage::Unconfirmed && ticket.users.iter().all(|user| user.is_confirmed);
        if is_complete {
            ticket.deadline_ms = deadline_ms;
        }
        self.users.insert(Arc::clone(user), id);
        is_complete
    }

    pub(crate) fn set_timer(&mut self, id: TicketId, timer_ms: Option<u64>) {
        let Some(ticket) = self.by_id.get_mut(&id) else { return };
        let before = std::mem::replace(&mut ticket.timer_ms, timer_ms);
        if let Some(before_ms) = before {
            self.timers.remove(&(before_ms, id));
        }
        if let Some(timer_ms) = timer_ms {
            self.timers.insert((timer_ms, id));
        }
    }

    /// A ticket whose time has come. Its timer is removed.
    pub(crate) fn take_due(&mut self, now_ms: u64) -> Option<TicketId> {
        let (at_ms, id) = self.timers.first().copied().filter(|(at_ms, _)| *at_ms <= now_ms)?;
        self.timers.remove(&(at_ms, id));
        if let Some(ticket) = self.by_id.get_mut(&id) {
            ticket.timer_ms = None;
        }
        Some(id)
    }

    /// Reserved places are announced to the users, who have until `timer_ms` to join. Returns them, or `None` if the ticket
    /// was cancelled meanwhile.
    pub(crate) fn place(
        &mut self,
        id: TicketId,
        room: MatchRoomId,
        channel: &Arc<str>,
        timer_ms: u64,
    ) -> Option<Vec<Arc<str>>> {
        let ticket = self.by_id.get_mut(&id).filter(|ticket| ticket.stage == Stage::Opening(room))?;
        ticket.stage = Stage::Placed(room, Arc::clone(channel));
        let users = ticket.user_ids();
        self.pending -= 1;
        self.set_timer(id, Some(timer_ms));
        Some(users)
    }

    /// A ticket has lost its places. It is about to wait for others.
    pub(crate) fn displace(&mut self, id: TicketId) {
        if self.by_id.get(&id).is_some_and(|ticket| matches!(ticket.stage, Stage::Placed(..))) {
            self.pending += 1;
        }
    }

    /// Gives a ticket that has lost its room the time of a new one.
    pub(crate) fn extend_deadline(&mut self, id: TicketId, deadline_ms: u64) {
        if let Some(ticket) = self.by_id.get_mut(&id) {
            ticket.deadline_ms = ticket.deadline_ms.max(deadline_ms);
        }
    }

    /// Keeps the status of a ticket that is over for a while, and frees its users. `over_max` is the maximum number of such
    /// tickets.
    pub(crate) fn finish(&mut self, now_ms: u64, id: TicketId, stage: Stage, over_max: usize) {
        let Some(ticket) = self.by_id.get_mut(&id) else { return };
        if ticket.is_pending() {
            self.pending -= 1;
        }
        ticket.stage = stage;
        for user in &ticket.users {
            if self.users.get(&user.id) == Some(&id) {
                self.users.remove(&user.id);
            }
        }
        self.set_timer(id, Some(now_ms.saturating_add(STATUS_KEPT_MS)));
        self.over.push_back(id);
        while self.over.len() > over_max {
            let Some(oldest) = self.over.pop_front() else { break };
            self.set_timer(oldest, None);
            self.by_id.remove(&oldest);
        }
    }

    pub(crate) fn forget(&mut self, id: TicketId) {
        self.by_id.remove(&id);
    }
}
