//! The waiting tickets and the open rooms with the same criteria.

use std::{
    collections::{BTreeMap, BTreeSet, btree_set},
    iter::{Peekable, Rev},
    sync::Arc,
};

use crate::{
    MatchCriteria, MatchRules, TicketId,
    fill_places::GroupCandidate,
    room::{MatchRoom, MatchRoomId},
};

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

/// How many comparisons a pass makes per waiting ticket on the average.
const COMPARED_PER_TICKET: usize = 32;

/// Open rooms by free places and mean skill.
type RoomIndex = BTreeSet<(u32, i64, MatchRoomId)>;
/// Tickets of one size by skill.
type SkillIndex = BTreeSet<(i64, TicketId)>;

/// Under what an open room is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoomEntry {
    pub(crate) free: u32,
    pub(crate) skill: i64,
    pub(crate) room: MatchRoomId,
    pub(crate) region: Option<Arc<str>>,
}

/// The buckets, by the criteria that their tickets and rooms have in common.
#[derive(Debug, Default)]
pub(crate) struct Buckets(BTreeMap<Arc<MatchCriteria>, Bucket>);

#[derive(Debug, Default)]
pub(crate) struct Bucket {
    /// Oldest first.
    queue: BTreeSet<TicketId>,
    /// By pool and by number of users.
    pools: BTreeMap<Pool, BTreeMap<u32, SkillIndex>>,
    /// Users of all tickets.
    users: u64,
    /// Open rooms with free places.
    open_rooms: RoomIndex,
    /// Those of them that have a region.
    regional_rooms: BTreeMap<Arc<str>, RoomIndex>,
    /// Where the next pass goes on if the last one had to stop: for open rooms, and for new ones.
    pub(crate) fill_from: TicketId,
    pub(crate) open_from: TicketId,
}

impl Buckets {
    pub(crate) fn get(&self, criteria: &MatchCriteria) -> Option<&Bucket> {
        self.0.get(criteria)
    }

    pub(crate) fn get_mut(&mut self, criteria: &MatchCriteria) -> Option<&mut Bucket> {
        self.0.get_mut(criteria)
    }

    pub(crate) fn all_criteria(&self) -> Vec<Arc<MatchCriteria>> {
        self.0.keys().cloned().collect()
    }

    /// The same criteria of a bucket, if there is one.
    pub(crate) fn known_criteria(&self, criteria: MatchCriteria) -> Arc<MatchCriteria> {
        let known = self.0.get_key_value(&criteria).map(|(known, _)| Arc::clone(known));
        known.unwrap_or_else(|| Arc::new(criteria))
    }

    pub(crate) fn insert(&mut self, criteria: Arc<MatchCriteria>, ticket: WaitingTicket) {
        self.0.entry(criteria).or_default().insert(ticket);
    }

    pub(crate) fn forget_if_empty(&mut self, criteria: &MatchCriteria) {
        if self.0.get(criteria).is_some_and(Bucket::is_empty) {
            self.0.remove(criteria);
        }
    }

    /// Lists a room under its number of free places, its skill and its region.
    pub(crate) fn list_room(&mut self, id: MatchRoomId, room: &mut MatchRoom, rules: &MatchRules) {
        self.unlist_room(room);
        let free = room.free();
        // A mean skill that is not known suits nobody.
        let is_comparable = !rules.skill.is_on() || room.has_skill();
        if room.accepts && room.takes_tickets && is_comparable && room.opening.is_none() && free > 0 {
            let entry = RoomEntry { free, skill: room.skill(), room: id, region: room.region.clone() };
            self.0.entry(Arc::clone(&room.criteria)).or_default().list_room(&entry);
            room.listed = Some(entry);
        } else {
            self.forget_if_empty(&room.criteria);
        }
    }

    pub(crate) fn unlist_room(&mut self, room: &mut MatchRoom) {
        if let (Some(entry), Some(bucket)) = (room.listed.take(), self.0.get_mut(&room.criteria)) {
            bucket.unlist_room(&entry);
        }
    }
}

impl Bucket {
    pub(crate) fn insert(&mut self, ticket: WaitingTicket) {
        self.queue.insert(ticket.id);
        self.users += u64::from(ticket.size);
        let sizes = self.pools.entry(ticket.pool).or_default();
        sizes.entry(ticket.size).or_default().insert((ticket.skill, ticket.id));
    }

    pub(crate) fn remove(&mut self, ticket: &WaitingTicket) {
        if !self.queue.remove(&ticket.id) {
            return;
        }
        self.users -= u64::from(ticket.size);
        let Some(sizes) = self.pools.get_mut(&ticket.pool) else { return };
        if let Some(tickets) = sizes.get_mut(&ticket.size) {
            tickets.remove(&(ticket.skill, ticket.id));
            if tickets.is_empty() {
                sizes.remove(&ticket.size);
            }
        }
        if sizes.is_empty() {
            self.pools.remove(&ticket.pool);
        }
    }

    fn list_room(&mut self, entry: &RoomEntry) {
        let place = (entry.free, entry.skill, entry.room);
        self.open_rooms.insert(place);
        if let Some(region) = &entry.region {
            self.regional_rooms.entry(Arc::clone(region)).or_default().insert(place);
        }
    }

    fn unlist_room(&mut self, entry: &RoomEntry) {
        let place = (entry.free, entry.skill, entry.room);
        self.open_rooms.remove(&place);
        let Some(region) = &entry.region else { return };
        if let Some(rooms) = self.regional_rooms.get_mut(region) {
            rooms.remove(&place);
            if rooms.is_empty() {
                self.regional_rooms.remove(region);
            }
        }
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

    /// The waiting tickets from one on, oldest first.
    pub(crate) fn tickets_from(&self, first: TicketId) -> Vec<TicketId> {
        self.queue.range(first..).copied().collect()
    }

    /// Maximum number of comparisons of a pass, so that rules with which each ticket has many candidates delay tickets, and not
    /// the node.
    pub(crate) fn comparisons_max(&self) -> usize {
        self.queue.len().saturating_mul(COMPARED_PER_TICKET)
    }

    /// The open room with the fewest free places that suits a ticket, of those the one with the nearest skill, and how many
    /// numbers of free places were looked up. `region` is `None` for rooms of any region.
    pub(crate) fn room_for(
        &self,
        ticket: &WaitingTicket,
        region: Option<&Arc<str>>,
        window: i64,
    ) -> (Option<MatchRoomId>, usize) {
        let rooms = region.map_or(Some(&self.open_rooms), |region| self.regional_rooms.get(region));
        let Some(rooms) = rooms else { return (None, 1) };
        let (skill, mut compared, mut from) = (ticket.skill, 1, ticket.size);
        let (first, last) = (MatchRoomId(0), MatchRoomId(u64::MAX));
        while let Some((free, ..)) = rooms.range((from, i64::MIN, first)..).next() {
            compared += 1;
            let above = rooms.range((*free, skill, first)..=(*free, skill.saturating_add(window), last)).next();
            let below = rooms.range((*free, skill.saturating_sub(window), first)..(*free, skill, first)).next_back();
            let nearest = above.into_iter().chain(below).min_by_key(|(_, other, room)| (other.abs_diff(skill), *room));
            if let Some((_, _, room)) = nearest {
                return (Some(*room), compared);
            }
            let Some(next) = free.checked_add(1) else { break };
            from = next;
        }
        (None, compared)
    }

    /// The other tickets that may join `seed` in a room of the region, within a window of skill: of each size as many as fit
    /// in the places. The nearest first, and the oldest of those.
    pub(crate) fn candidates(
        &self,
        seed: &WaitingTicket,
        region: Option<&Arc<str>>,
        window: i64,
        places: u32,
    ) -> Vec<GroupCandidate> {
        let own = region.and_then(|region| self.pools.get(&Pool::Region(Arc::clone(region))));
        let pools: Vec<_> = own.into_iter().chain(self.pools.get(&Pool::Roaming)).collect();
        let sizes: BTreeSet<u32> =
            pools.iter().flat_map(|sizes| sizes.range(1..=places.max(1)).map(|(size, _)| *size)).collect();
        let mut found = Vec::new();
        for size in sizes {
            let sets = pools.iter().filter_map(|sizes| sizes.get(&size));
            let nearest = NearestTickets::new(sets, seed, window).take((places / size) as usize);
            found.extend(nearest.map(|(distance, id)| GroupCandidate { distance, id, size }));
        }
        found.sort_unstable();
        found
    }
}

type Range<'a> = btree_set::Range<'a, (i64, TicketId)>;

/// Other tickets within a window of skill: the nearest first, and the oldest of those.
struct NearestTickets<'a> {
    skill: i64,
    seed: TicketId,
    above: Vec<Peekable<Range<'a>>>,
    below: Vec<Peekable<Rev<Range<'a>>>>,
}

impl<'a> NearestTickets<'a> {
    fn new(sets: impl Iterator<Item = &'a SkillIndex>, seed: &WaitingTicket, window: i64) -> Self {
        let (skill, first) = (seed.skill, TicketId(0));
        let mut sides = Self { skill, seed: seed.id, above: Vec::new(), below: Vec::new() };
        for set in sets {
            let above = set.range((skill, first)..=(skill.saturating_add(window), TicketId(u64::MAX)));
            sides.above.push(above.peekable());
            sides.below.push(set.range((skill.saturating_sub(window), first)..(skill, first)).rev().peekable());
        }
        sides
    }
}

impl Iterator for NearestTickets<'_> {
    type Item = (u64, TicketId);

    fn next(&mut self) -> Option<(u64, TicketId)> {
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
                Some((other, id)) if *id != self.seed => return Some((other.abs_diff(skill), *id)),
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
        let order = |seed: &WaitingTicket, region: Option<&str>, window, places| {
            let found = bucket.candidates(seed, region.map(Arc::from).as_ref(), window, places);
            found.iter().map(|candidate| candidate.id.0).collect::<Vec<_>>()
        };
        assert_eq!(order(&tickets[0], Some("eu"), 50, 9), [4, 2, 3, 6]);
        assert_eq!(order(&tickets[0], Some("eu"), 51, 9), [4, 2, 3, 6, 7]);
        assert_eq!(order(&tickets[0], Some("eu"), 51, 2), [4, 2]);
        assert_eq!(order(&tickets[3], None, 0, 9), Vec::<u64>::new());
        assert_eq!(order(&tickets[3], Some("us"), 0, 9), [5]);
        for ticket in &tickets {
            bucket.remove(ticket);
        }
        assert!(bucket.is_empty() && bucket.pools.is_empty() && bucket.users == 0);
    }

    #[test]
    fn many_tickets_of_one_size_do_not_hide_those_of_another() {
        let mut bucket = Bucket::default();
        for id in 1..=1_000 {
            bucket.insert(WaitingTicket { size: 3, ..ticket(id, 0, None) });
        }
        bucket.insert(ticket(1_001, 0, None));
        let found = bucket.candidates(&ticket(1_002, 0, None), None, 0, 4);
        assert_eq!(found.iter().map(|candidate| candidate.id.0).collect::<Vec<_>>(), [1, 1_001]);
    }

    #[test]
    fn the_fullest_room_that_suits_is_found_among_many() {
        let mut bucket = Bucket::default();
        let entry = |room, free, skill, region: Option<&str>| RoomEntry {
            free,
            skill,
            room: MatchRoomId(room),
            region: region.map(Arc::from),
        };
        let mut rooms: Vec<_> = (1..=1_000).map(|room| entry(room, 2, 500, Some("us"))).collect();
        rooms.extend([entry(1_001, 3, 0, Some("eu")), entry(1_002, 4, 1, Some("eu")), entry(1_003, 4, -2, None)]);
        for room in &rooms {
            bucket.list_room(room);
        }
        let find = |size, region: Option<&str>, window| {
            let seed = WaitingTicket { size, ..ticket(1, 0, None) };
            let (room, compared) = bucket.room_for(&seed, region.map(Arc::from).as_ref(), window);
            assert!(compared <= 4, "{compared} comparisons");
            room.map(|room| room.0)
        };
        assert_eq!(find(2, None, 10), Some(1_001));
        assert_eq!(find(2, None, 500), Some(1));
        assert_eq!(find(4, None, 1), Some(1_002));
        assert_eq!(find(4, None, 0), None);
        assert_eq!(find(1, Some("us"), 10), None);
        assert_eq!(find(1, Some("eu"), 10), Some(1_001));
        assert_eq!(find(5, None, 1_000), None);
        for room in &rooms {
            bucket.unlist_room(room);
        }
        assert!(bucket.is_empty() && bucket.regional_rooms.is_empty());
    }
}
