//! The waiting tickets and the open rooms with the same criteria.

use std::{
    collections::{BTreeMap, BTreeSet, btree_set},
    iter::{Peekable, Rev},
    sync::Arc,
};

use crate::{TicketId, room::MatchRoomId};

/// Tickets by the regions that they accept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pool {
    /// Rooms of any region.
    Roaming,
    /// Rooms of this region.
    Region(Arc<str>),
}

/// What the order of waiting tickets depends on.
#[derive(Clone, Debug)]
pub(crate) struct WaitingTicket {
    pub(crate) id: TicketId,
    pub(crate) pool: Pool,
    pub(crate) skill: i64,
    pub(crate) size: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Bucket {
    /// Oldest first.
    queue: BTreeSet<TicketId>,
    pools: BTreeMap<Pool, BTreeSet<(i64, TicketId)>>,
    /// How many tickets have each number of users.
    sizes: BTreeMap<u32, usize>,
    /// Users of all tickets.
    users: u64,
    /// Open rooms with free places, those with the fewest first.
    open_rooms: BTreeSet<(u32, MatchRoomId)>,
}

impl Bucket {
    pub(crate) fn insert(&mut self, ticket: WaitingTicket) {
        self.queue.insert(ticket.id);
        *self.sizes.entry(ticket.size).or_default() += 1;
        self.users += u64::from(ticket.size);
        self.pools.entry(ticket.pool).or_default().insert((ticket.skill, ticket.id));
    }

    pub(crate) fn remove(&mut self, ticket: &WaitingTicket) {
        if !self.queue.remove(&ticket.id) {
            return;
        }
        self.users -= u64::from(ticket.size);
        if let Some(count) = self.sizes.get_mut(&ticket.size) {
            *count -= 1;
            if *count == 0 {
                self.sizes.remove(&ticket.size);
            }
        }
        if let Some(pool) = self.pools.get_mut(&ticket.pool) {
            pool.remove(&(ticket.skill, ticket.id));
            if pool.is_empty() {
                self.pools.remove(&ticket.pool);
            }
        }
    }

    pub(crate) fn list_room(&mut self, free: u32, room: MatchRoomId) {
        self.open_rooms.insert((free, room));
    }

    pub(crate) fn unlist_room(&mut self, free: u32, room: MatchRoomId) {
        self.open_rooms.remove(&(free, room));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.open_rooms.is_empty()
    }

    pub(crate) fn has_rooms(&self) -> bool {
        !self.open_rooms.is_empty()
    }

    pub(crate) fn users(&self) -> u64 {
        self.users
    }

    pub(crate) fn smallest_size(&self) -> Option<u32> {
        self.sizes.first_key_value().map(|(size, _)| *size)
    }

    /// The waiting tickets, oldest first.
    pub(crate) fn tickets(&self) -> Vec<TicketId> {
        self.queue.iter().copied().collect()
    }

    /// Rooms with at least this many free places, those with the fewest first.
    pub(crate) fn rooms_with(&self, free: u32) -> impl Iterator<Item = MatchRoomId> {
        self.open_rooms.range((free, MatchRoomId(0))..).map(|(_, room)| *room)
    }

    /// The other tickets that accept the region of `seed`, within a window of skill: the nearest first, and the oldest of
    /// those.
    pub(crate) fn nearest(&self, seed: &WaitingTicket, window: i64) -> NearestTickets<'_> {
        let own = match &seed.pool {
            Pool::Roaming => None,
            region @ Pool::Region(_) => self.pools.get(region),
        };
        self.nearest_in(own, seed, window)
    }

    /// As [`Self::nearest`], for a roaming ticket that prefers a region.
    pub(crate) fn nearest_roaming(
        &self,
        seed: &WaitingTicket,
        region: Option<&Arc<str>>,
        window: i64,
    ) -> NearestTickets<'_> {
        let own = region.and_then(|region| self.pools.get(&Pool::Region(Arc::clone(region))));
        self.nearest_in(own, seed, window)
    }

    fn nearest_in<'a>(
        &'a self,
        own: Option<&'a BTreeSet<(i64, TicketId)>>,
        seed: &WaitingTicket,
        window: i64,
    ) -> NearestTickets<'a> {
        let (skill, id) = (seed.skill, seed.id);
        let first = TicketId(0);
        let mut sides = NearestTickets { skill, seed: id, above: Vec::new(), below: Vec::new() };
        for set in own.into_iter().chain(self.pools.get(&Pool::Roaming)) {
            let above = set.range((skill, first)..=(skill.saturating_add(window), TicketId(u64::MAX)));
            sides.above.push(above.peekable());
            sides.below.push(set.range((skill.saturating_sub(window), first)..(skill, first)).rev().peekable());
        }
        sides
    }
}

type Range<'a> = btree_set::Range<'a, (i64, TicketId)>;

/// See [`Bucket::nearest`].
pub(crate) struct NearestTickets<'a> {
    skill: i64,
    seed: TicketId,
    above: Vec<Peekable<Range<'a>>>,
    below: Vec<Peekable<Rev<Range<'a>>>>,
}

impl Iterator for NearestTickets<'_> {
    type Item = TicketId;

    fn next(&mut self) -> Option<TicketId> {
        loop {
            let skill = self.skill;
            let distance = |&&(other, id): &&(i64, TicketId)| (other.abs_diff(skill), id);
            let above = self.above.iter_mut().filter_map(|side| Some((side.peek().map(distance)?, side)));
            let above = above.min_by_key(|(distance, _)| *distance);
            let below = self.below.iter_mut().filter_map(|side| Some((side.peek().map(distance)?, side)));
            let below = below.min_by_key(|(distance, _)| *distance);
            let found = match (above, below) {
                (Some((near, side)), Some((far, _))) if near < far => side.next(),
                (Some((_, side)), None) => side.next(),
                (_, Some((_, side))) => side.next(),
                (None, None) => return None,
            };
            match found {
                Some((_, id)) if *id != self.seed => return Some(*id),
                Some(_) => {}
                None => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(id: u64, skill: i64, region: Option<&str>) -> WaitingTicket {
        let pool = region.map_or(Pool::Roaming, |region| Pool::Region(region.into()));
        WaitingTicket { id: TicketId(id), pool, skill, size: 1 }
    }

    #[test]
    fn the_nearest_tickets_of_the_region_come_first() {
        let mut bucket = Bucket::default();
        let tickets = [
            ticket(1, 100, Some("eu")),
            ticket(2, 90, Some("eu")),
            ticket(3, 111, Some("eu")),
            ticket(4, 100, None),
            ticket(5, 100, Some("us")),
            ticket(6, 60, None),
            ticket(7, 151, Some("eu")),
        ];
        for ticket in &tickets {
            bucket.insert(ticket.clone());
        }
        let order = |found: NearestTickets<'_>| found.map(|id| id.0).collect::<Vec<_>>();
        assert_eq!(order(bucket.nearest(&tickets[0], 50)), [4, 2, 3, 6]);
        assert_eq!(order(bucket.nearest(&tickets[0], 51)), [4, 2, 3, 6, 7]);
        assert_eq!(order(bucket.nearest(&tickets[3], 0)), Vec::<u64>::new());
        assert_eq!(order(bucket.nearest_roaming(&tickets[3], Some(&"us".into()), 0)), [5]);
        for ticket in &tickets {
            bucket.remove(ticket);
        }
        assert!(bucket.is_empty() && bucket.pools.is_empty() && bucket.sizes.is_empty() && bucket.users == 0);
    }
}
