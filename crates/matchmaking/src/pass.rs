//! Places waiting tickets: first in open rooms, then in new ones. The oldest ticket goes first.

use std::sync::Arc;

use crate::{
    MatchCriteria, MatchEffect, MatchRoomId, Matchmaker, TicketId,
    bucket::{Bucket, Pool, WaitingTicket},
};

/// Maximum number of rooms, or of other tickets, that are compared with a ticket at a time.
const COMPARED_MAX: usize = 128;

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
        for id in bucket.tickets() {
            let Some(bucket) = self.buckets.get(criteria).filter(|bucket| bucket.has_rooms()) else { return };
            let Some(waiting) = self.waiting(id) else { continue };
            if let Some(room) = self.room_for(now_ms, bucket, &waiting) {
                self.place_in(now_ms, &waiting, room, effects);
            }
        }
    }

    /// The fullest open room that suits a ticket.
    fn room_for(&self, now_ms: u64, bucket: &Bucket, waiting: &WaitingTicket) -> Option<MatchRoomId> {
        let mut rooms = bucket.rooms_with(waiting.size).take(COMPARED_MAX);
        rooms.find(|room| self.is_room_for(now_ms, waiting, *room))
    }

    fn is_room_for(&self, now_ms: u64, waiting: &WaitingTicket, room: MatchRoomId) -> bool {
        let (Some(ticket), Some(room)) = (self.ticket(waiting.id), self.rooms.get(&room)) else { return false };
        let window = self.rules.skill_window_after(now_ms.saturating_sub(ticket.submitted_ms));
        let is_region = ticket.is_roaming || ticket.region == room.region;
        is_region && room.skill().is_none_or(|skill| (skill - waiting.skill).abs() <= window)
    }

    fn open_rooms(&mut self, now_ms: u64, criteria: &Arc<MatchCriteria>, effects: &mut Vec<MatchEffect>) {
        let is_open = |this: &Self| now_ms >= this.opens_from_ms && this.rooms_opening < this.rules.rooms_opening_max;
        let has_users = |bucket: &&Bucket| bucket.users() >= u64::from(self.rules.players_min);
        let Some(bucket) = self.buckets.get(criteria).filter(has_users) else { return };
        for id in bucket.tickets() {
            if !is_open(self) {
                return;
            }
            let Some(seed) = self.waiting(id) else { continue };
            if let Some(group) = self.group(now_ms, criteria, &seed) {
                self.open_room(now_ms, group, effects);
            }
        }
    }

    /// The tickets of a new room, with `seed` as the oldest.
    fn group(&self, now_ms: u64, criteria: &Arc<MatchCriteria>, seed: &WaitingTicket) -> Option<Vec<TicketId>> {
        let (bucket, ticket) = (self.buckets.get(criteria)?, self.ticket(seed.id)?);
        let waited_ms = now_ms.saturating_sub(ticket.submitted_ms);
        let window = self.rules.skill_window_after(waited_ms);
        let candidates = match seed.pool {
            Pool::Roaming => bucket.nearest_roaming(seed, ticket.region.as_ref(), window),
            Pool::Region(_) => bucket.nearest(seed, window),
        };
        let smallest = bucket.smallest_size().unwrap_or(1);
        let mut free = self.rules.players_max.checked_sub(seed.size)?;
        let mut group = vec![seed.id];
        let mut candidates = candidates.take(COMPARED_MAX);
        while free >= smallest
            && let Some(id) = candidates.next()
        {
            let size = self.ticket(id).map_or(u32::MAX, crate::ticket::MatchTicket::size);
            if size <= free {
                free -= size;
                group.push(id);
            }
        }
        let users = self.rules.players_max - free;
        let suffices = users >= self.rules.players_min && (free == 0 || waited_ms >= self.rules.fill_wait_ms);
        suffices.then_some(group)
    }
}
