//! One pass over the waiting tickets of a bucket, oldest first.

use std::{collections::BTreeSet, sync::Arc, vec};

use crate::{
    MatchRules, TicketId,
    bucket::{Bucket, WaitingTicket},
    fill_places,
    ticket::MatchTicket,
    tickets::Tickets,
};

/// What a ticket accepts, apart from its window of skill: region, whether others will do, size, skill. What an older ticket
/// with the same wish has not found in a pass, a younger one does not find either, because its window is not wider.
type Wish = (Option<Arc<str>>, bool, u32, i64);

fn wish(ticket: &MatchTicket, waiting: &WaitingTicket) -> Wish {
    (ticket.region.clone(), ticket.is_roaming, waiting.size, waiting.skill)
}

pub(crate) struct Pass {
    tickets: vec::IntoIter<TicketId>,
    missed: BTreeSet<Wish>,
    compared: usize,
    compared_max: usize,
    /// Where the next pass goes on.
    goes_on_from: TicketId,
}

impl Pass {
    pub(crate) fn new(bucket: &Bucket, from: TicketId) -> Self {
        Self {
            tickets: bucket.tickets_from(from).into_iter(),
            missed: BTreeSet::new(),
            compared: 0,
            compared_max: bucket.comparisons_max(),
            goes_on_from: TicketId(0),
        }
    }

    /// The next ticket that may find something. `None` at the end, or when the pass has made enough comparisons.
    pub(crate) fn next<'t>(
        &mut self,
        tickets: &'t Tickets,
        rules: &MatchRules,
    ) -> Option<(WaitingTicket, &'t MatchTicket)> {
        for id in self.tickets.by_ref() {
            let (Some(waiting), Some(ticket)) = (tickets.waiting(id, rules), tickets.get(id)) else { continue };
            if self.missed.contains(&wish(ticket, &waiting)) {
                continue;
            }
            if self.compared >= self.compared_max {
                self.goes_on_from = id;
                return None;
            }
            return Some((waiting, ticket));
        }
        None
    }

    /// Takes the result of a search for a ticket, which has taken this many comparisons.
    pub(crate) fn note<T>(
        &mut self,
        ticket: &MatchTicket,
        waiting: &WaitingTicket,
        (found, compared): (Option<T>, usize),
    ) -> Option<T> {
        self.compared += compared;
        if found.is_none() {
            self.missed.insert(wish(ticket, waiting));
        }
        found
    }

    /// How many comparisons the pass has made, and where the next one goes on.
    pub(crate) fn end(self) -> (u64, TicketId) {
        (u64::try_from(self.compared).unwrap_or(u64::MAX), self.goes_on_from)
    }
}

/// The tickets of a new room for `seed`, which comes first and whose window decides, and how many comparisons that took.
pub(crate) fn group(
    bucket: &Bucket,
    ticket: &MatchTicket,
    seed: &WaitingTicket,
    rules: &MatchRules,
    now_ms: u64,
) -> (Option<Vec<TicketId>>, usize) {
    let waited_ms = now_ms.saturating_sub(ticket.submitted_ms);
    let window = rules.skill.width_after(waited_ms);
    let users = u32::try_from(bucket.users()).unwrap_or(u32::MAX);
    let places = rules.players_max.min(users).saturating_sub(seed.size);
    let candidates = bucket.candidates(seed, ticket.region.as_ref(), window, places);
    let fit = fill_places::fullest(&candidates, places);
    let users = seed.size.saturating_add(fit.users);
    let is_full = users == rules.players_max;
    let suffices = users >= rules.players_min && (is_full || waited_ms >= rules.fill_wait_ms);
    let tickets = std::iter::once(seed.id).chain(fit.tickets).collect();
    (suffices.then_some(tickets), 1 + candidates.len() + fit.steps)
}
