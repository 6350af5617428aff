//! Places waiting tickets: first in open rooms, then in new ones. The oldest ticket goes first.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    MatchCriteria, MatchEffect, Matchmaker, TicketId,
    bucket::{Bucket, WaitingTicket},
    fill_places,
    ticket::MatchTicket,
};

/// What a ticket accepts, apart from its window of skill: region, whether others will do, size, skill. What an older ticket
/// with the same wish has not found in a pass, a younger one does not find either, because its window is not wider.
type Wish = (Option<Arc<str>>, bool, u32, i64);

fn wish(ticket: &MatchTicket, waiting: &WaitingTicket) -> Wish {
    (ticket.region.clone(), ticket.is_roaming, waiting.size, waiting.skill)
}

impl Matchmaker {
    /// Runs the timers, and places all tickets that can be placed.
    pub fn place(&mut self, now_ms: u64, effects: &mut Vec<MatchEffect>) {
        self.run_timers(now_ms, effects);
        let buckets: Vec<_> = self.buckets.keys().cloned().collect();
        for criteria in buckets {
            self.fill_rooms(now_ms, &criteria, effects);
            self.open_rooms(now_ms, &criteria, effects);
            if self.buckets.get(&criteria).is_some_and(Bucket::is_empty) {
                self.buckets.remove(&criteria);
            }
        }
    }

    fn fill_rooms(&mut self, now_ms: u64, criteria: &Arc<MatchCriteria>, effects: &mut Vec<MatchEffect>) {
        let Some(bucket) = self.buckets.get(criteria).filter(|bucket| bucket.has_rooms()) else { return };
        let compared_max = bucket.comparisons_max();
        let (mut missed, mut compared, mut next) = (BTreeSet::new(), 0, TicketId(0));
        for id in bucket.tickets_from(bucket.fill_from) {
            let Some(bucket) = self.buckets.get(criteria).filter(|bucket| bucket.has_rooms()) else { break };
            let (Some(waiting), Some(ticket)) = (self.waiting(id), self.ticket(id)) else { continue };
            let wish = wish(ticket, &waiting);
            if missed.contains(&wish) {
                continue;
            }
            if compared >= compared_max {
                next = id;
                break;
            }
            let window = self.rules.skill.width_after(now_ms.saturating_sub(ticket.submitted_ms));
            let region = ticket.region.as_ref().filter(|_| !ticket.is_roaming);
            let (room, steps) = bucket.room_for(&waiting, region, window);
            compared += steps;
            match room {
                Some(room) => self.place_in(now_ms, &waiting, room, effects),
                None => drop(missed.insert(wish)),
            }
        }
        self.count_comparisons(compared);
        if let Some(bucket) = self.buckets.get_mut(criteria) {
            bucket.fill_from = next;
        }
    }

    fn open_rooms(&mut self, now_ms: u64, criteria: &Arc<MatchCriteria>, effects: &mut Vec<MatchEffect>) {
        let is_open = |this: &Self| now_ms >= this.opens_from_ms && this.rooms_opening < this.rules.rooms_opening_max;
        let has_users = |bucket: &&Bucket| bucket.users() >= u64::from(self.rules.players_min);
        let Some(bucket) = self.buckets.get(criteria).filter(has_users) else { return };
        let compared_max = bucket.comparisons_max();
        let (mut missed, mut compared, mut next) = (BTreeSet::new(), 0, TicketId(0));
        for id in bucket.tickets_from(bucket.open_from) {
            if !is_open(self) {
                break;
            }
            let (Some(seed), Some(ticket)) = (self.waiting(id), self.ticket(id)) else { continue };
            let wish = wish(ticket, &seed);
            if missed.contains(&wish) {
                continue;
            }
            if compared >= compared_max {
                next = id;
                break;
            }
            let (group, steps) = self.group(now_ms, criteria, &seed);
            compared += steps;
            match group {
                Some(group) => self.open_room(now_ms, group, effects),
                None => drop(missed.insert(wish)),
            }
        }
        self.count_comparisons(compared);
        if let Some(bucket) = self.buckets.get_mut(criteria) {
            bucket.open_from = next;
        }
    }

    /// The tickets of a new room for `seed`, which comes first and whose window decides, and how many comparisons that took.
    fn group(
        &self,
        now_ms: u64,
        criteria: &Arc<MatchCriteria>,
        seed: &WaitingTicket,
    ) -> (Option<Vec<TicketId>>, usize) {
        let (Some(bucket), Some(ticket)) = (self.buckets.get(criteria), self.ticket(seed.id)) else { return (None, 1) };
        let waited_ms = now_ms.saturating_sub(ticket.submitted_ms);
        let window = self.rules.skill.width_after(waited_ms);
        let users = u32::try_from(bucket.users()).unwrap_or(u32::MAX);
        let places = self.rules.players_max.min(users).saturating_sub(seed.size);
        let candidates = bucket.candidates(seed, ticket.region.as_ref(), window, places);
        let fit = fill_places::fullest(&candidates, places);
        let users = seed.size.saturating_add(fit.users);
        let is_full = users == self.rules.players_max;
        let suffices = users >= self.rules.players_min && (is_full || waited_ms >= self.rules.fill_wait_ms);
        let tickets = std::iter::once(seed.id).chain(fit.tickets).collect();
        (suffices.then_some(tickets), 1 + candidates.len() + fit.steps)
    }

    fn count_comparisons(&mut self, compared: usize) {
        self.counters.compared += u64::try_from(compared).unwrap_or(u64::MAX);
    }
}
