//! The positions of objects after earlier ticks, for simulations that set [`crate::Simulation::rewind_ticks`].
//!
//! For each of the last ticks, the world stores the changes of that tick: the objects that moved, appeared or
//! disappeared, with their position before it. An object that stands still costs nothing. The position after an earlier
//! tick is in the first entry of a later tick; without an entry, it is the current position.

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::{near::neighbours, objects::Objects, slots::Slots};
use crate::{
    ObjectId, Position,
    binary::{Reader, Unreadable, put_number, put_position},
    hash::Hasher,
};

/// The position of an object before a change; `None` if it did not exist.
type Before = Option<Position>;

/// The changes of the last ticks.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// Maximum number of stored ticks; with 0, nothing is stored.
    ticks_max: u8,
    /// The last completed tick.
    settled_tick: u32,
    /// Oldest first.
    ticks: VecDeque<PastTick>,
    /// The changes since the last tick.
    now: HashMap<ObjectId, Before, foldhash::fast::FixedState>,
    /// The total capacity of the entries of `ticks`.
    entry_capacity: usize,
}

/// The changes of one tick, in the order of the objects' numbers.
#[derive(Debug, Default)]
struct PastTick {
    tick: u32,
    hash: u64,
    entries: Vec<(ObjectId, Before)>,
}

/// The positions of a world's objects after an earlier tick.
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::{Position, Rewound, World};
///
/// /// Whether an object was at a place in the tick that a player saw.
/// fn is_taken(then: Rewound<'_>, place: Position) -> bool {
///     then.near(place, 30).next().is_some()
/// }
///
/// fn can_build(world: &World, seen_tick: u32, place: Position) -> bool {
///     !is_taken(world.rewind(seen_tick), place)
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rewound<'a> {
    objects: &'a Objects,
    tick: u32,
    /// The index of the first stored tick after `tick`.
    first: usize,
}

/// An object that was within the radius around a position.
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::{PastNeighbour, Position, World};
///
/// /// Where a player saw the object that it points at.
/// fn target(world: &World, seen_tick: u32, pointer: Position) -> Option<Position> {
///     world.rewind(seen_tick).near(pointer, 20).next().map(|PastNeighbour { position, .. }| position)
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastNeighbour {
    /// The object's id. The object may no longer exist.
    pub id: ObjectId,
    /// dx² + dy² in square units, at that time.
    pub distance_squared: u64,
    /// The position at that time.
    pub position: Position,
}

impl Past {
    /// No past after a tick.
    pub(super) fn after(tick: u32, ticks_max: u8) -> Self {
        Self { ticks_max, settled_tick: tick, ..Self::default() }
    }

    /// From now on, stores up to `ticks_max` ticks.
    pub(super) fn keep(&mut self, ticks_max: u8) {
        self.ticks_max = ticks_max;
    }

    /// Appends the form that [`Past::restore`] reads.
    pub(super) fn save(&self, out: &mut Vec<u8>) {
        let Past { ticks_max, ticks, now, .. } = self;
        out.push(*ticks_max);
        if *ticks_max == 0 {
            return;
        }
        put_number(ticks.len() as u64, out);
        for past in ticks {
            put_number(u64::from(past.tick), out);
            save_entries(&past.entries, out);
        }
        save_entries(&in_order(now), out);
    }

    /// Restores what [`Past::save`] wrote after `tick`, when `last_id` was the highest number of an object. A world keeps
    /// its original number of ticks even if its simulation now requests another one, because the state hash depends on
    /// it.
    pub(super) fn restore(tick: u32, last_id: u32, saved: &mut Reader<'_>) -> Result<Self, Unreadable> {
        let ticks_max = saved.byte()?;
        let mut past = Self::after(tick, ticks_max);
        if ticks_max == 0 {
            return Ok(past);
        }
        let mut expected = None;
        let count = saved.count()?;
        if count > ticks_max.into() {
            return Err(Unreadable::Wrong);
        }
        for _ in 0..count {
            let number: u32 = saved.number_of()?;
            if number == 0 || number > tick || expected.is_some_and(|expected| expected != number) {
                return Err(Unreadable::Wrong);
            }
            expected = number.checked_add(1);
            let entries = restore_entries(last_id, saved)?;
            past.push(PastTick::new(number, entries));
        }
        if past.ticks.back().is_some_and(|last| last.tick != tick) {
            return Err(Unreadable::Wrong);
        }
        past.now = restore_entries(last_id, saved)?.into_iter().collect();
        Ok(past)
    }

    /// Ends a tick: the changes since the last one belong to it.
    pub(super) fn settle(&mut self, tick: u32, slots: &Slots) {
        self.settled_tick = tick;
        if self.ticks_max == 0 {
            return;
        }
        let mut past = self.take_spare();
        past.tick = tick;
        let moved = self.now.drain().filter(|(id, before)| {
            let now = slots.find(*id).map(|slot| slots.at(slot).object.position);
            now != *before
        });
        past.entries.extend(moved);
        past.entries.sort_unstable_by_key(|(id, _)| *id);
        past.hash = hash_entries(past.tick, &past.entries);
        // Before the first tick, there is no past. When tick numbers restart, the old ticks are dropped.
        if tick != self.ticks.back().map_or(tick, |last| last.tick.wrapping_add(1)) {
            self.forget();
        }
        if tick > 0 {
            self.push(past);
        }
    }

    /// Adds everything that the future depends on to a hash, if there is any.
    pub(super) fn hash(&self, hasher: Hasher) -> Hasher {
        let Past { ticks_max, ticks, now, .. } = self;
        if *ticks_max == 0 {
            return hasher;
        }
        let hasher = ticks.iter().fold(hasher.number(ticks.len() as u64), |hasher, past| hasher.number(past.hash));
        hasher.number(hash_entries(0, &in_order(now)))
    }

    /// Records that an object is about to change; `before` is its position, or `None` if it does not exist yet.
    pub(super) fn remember(&mut self, id: ObjectId, before: Before) {
        if self.ticks_max > 0 {
            self.now.entry(id).or_insert(before);
        }
    }

    /// Approximate memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.entry_capacity * size_of::<(ObjectId, Before)>()
            + self.ticks.capacity() * size_of::<PastTick>()
            + self.now.allocation_size()
    }

    /// A buffer for a tick: that of the oldest one, if the maximum number is stored.
    fn take_spare(&mut self) -> PastTick {
        if self.ticks.len() < self.ticks_max.into() {
            return PastTick::default();
        }
        let mut oldest = self.ticks.pop_front().unwrap_or_default();
        self.entry_capacity -= oldest.entries.capacity();
        if oldest.entries.len() * 4 < oldest.entries.capacity() {
            oldest.entries = Vec::new();
        }
        oldest.entries.clear();
        oldest
    }

    fn push(&mut self, past: PastTick) {
        if self.ticks.len() >= self.ticks_max.into() {
            let oldest = self.ticks.pop_front().unwrap_or_default();
            self.entry_capacity -= oldest.entries.capacity();
        }
        self.entry_capacity += past.entries.capacity();
        self.ticks.push_back(past);
    }

    fn forget(&mut self) {
        self.ticks.clear();
        self.entry_capacity = 0;
    }
}

impl PastTick {
    fn new(tick: u32, entries: Vec<(ObjectId, Before)>) -> Self {
        Self { tick, hash: hash_entries(tick, &entries), entries }
    }

    fn find(&self, id: ObjectId) -> Option<Before> {
        let place = self.entries.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(self.entries[place].1)
    }
}

impl<'a> Rewound<'a> {
    /// The positions after `tick`, which is limited to the stored ticks.
    pub(super) fn new(objects: &'a Objects, tick: u32) -> Self {
        let newest = objects.past.settled_tick;
        let oldest = newest - objects.past.ticks.len() as u32;
        let tick = tick.clamp(oldest, newest);
        Self { objects, tick, first: (tick - oldest) as usize }
    }

    /// The tick of these positions: the requested one, or the nearest stored one.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// // A client may name any tick.
    /// let seen = world.rewind(u32::MAX).tick();
    /// assert!(seen <= world.tick());
    /// # Ok(())
    /// # })
    /// ```
    pub fn tick(&self) -> u32 {
        self.tick
    }

    /// The position of an object; `None` if it did not exist.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// let chest = example::spawn_chest(world)?;
    /// assert_eq!(world.rewind(0).position(chest), world.object(chest).map(|chest| chest.position), "this world keeps no ticks");
    /// # Ok(())
    /// # })
    /// ```
    pub fn position(&self, id: ObjectId) -> Option<Position> {
        self.changed(self.later().len(), id).unwrap_or_else(|| self.objects.get(id).map(|object| object.position))
    }

    /// The objects that were within `radius` units of a position, in a circle: the nearest first; at equal distances,
    /// the oldest. Includes objects that no longer exist.
    ///
    /// Costs as much as [`World::near`](super::World::near), plus a comparison of distances for each later change. For
    /// each object that is near now and each later change within the radius, it also searches the later ticks in
    /// sequence, with a binary search in the changes of each.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::{ObjectId, Position, World};
    ///
    /// /// The objects that a shot hits at the places where its player saw them.
    /// fn hits(world: &World, seen_tick: u32, shot: Position) -> Vec<ObjectId> {
    ///     world.rewind(seen_tick).near(shot, 16).map(|target| target.id).collect()
    /// }
    /// ```
    pub fn near(&self, position: Position, radius: u32) -> impl ExactSizeIterator<Item = PastNeighbour> + use<> {
        let all = self.later().len();
        let near = neighbours(self.objects, position, radius);
        let still = near.filter(|near| self.changed(all, near.id).is_none());
        let mut found: Vec<PastNeighbour> = still
            .map(|near| PastNeighbour {
                id: near.id,
                distance_squared: near.distance_squared,
                position: near.object.position,
            })
            .collect();
        let reach = u64::from(radius).pow(2);
        let changes =
            self.later().enumerate().flat_map(|(place, past)| past.entries.iter().map(move |entry| (place, entry)));
        let since = self.objects.past.now.iter().map(|(id, before)| (all, (*id, *before)));
        for (place, (id, before)) in changes.map(|(place, entry)| (place, *entry)).chain(since) {
            let Some(before) = before else { continue };
            let distance_squared = position.distance_squared(before);
            if distance_squared <= reach && self.changed_in(place, id).is_none() {
                found.push(PastNeighbour { id, distance_squared, position: before });
            }
        }
        found.sort_unstable_by_key(|near| (near.distance_squared, near.id));
        found.into_iter()
    }

    /// The changes of the ticks after it, oldest first.
    fn later(&self) -> impl ExactSizeIterator<Item = &'a PastTick> {
        self.objects.past.ticks.range(self.first..)
    }

    /// The position of the object before the first of the first `ticks` changes; `None` if none of them changed it.
    fn changed_in(&self, ticks: usize, id: ObjectId) -> Option<Before> {
        self.later().take(ticks).find_map(|past| past.find(id))
    }

    /// As [`Rewound::changed_in`], including the changes since the last tick.
    fn changed(&self, ticks: usize, id: ObjectId) -> Option<Before> {
        self.changed_in(ticks, id).or_else(|| self.objects.past.now.get(&id).copied())
    }
}

fn in_order(now: &HashMap<ObjectId, Before, foldhash::fast::FixedState>) -> Vec<(ObjectId, Before)> {
    let mut entries: Vec<_> = now.iter().map(|(id, before)| (*id, *before)).collect();
    entries.sort_unstable_by_key(|(id, _)| *id);
    entries
}

fn hash_entries(tick: u32, entries: &[(ObjectId, Before)]) -> u64 {
    let hasher = Hasher::new(5).number(u64::from(tick) << 32 | entries.len() as u64);
    let hash = |hasher: Hasher, (id, before): &(ObjectId, Before)| {
        let id = hasher.number(u64::from(id.0) << 1 | u64::from(before.is_some()));
        before.map_or(id, |before| id.number(u64::from(before.x) << 32 | u64::from(before.y)))
    };
    entries.iter().fold(hasher, hash).finish()
}

fn save_entries(entries: &[(ObjectId, Before)], out: &mut Vec<u8>) {
    put_number(entries.len() as u64, out);
    for (id, before) in entries {
        put_number(u64::from(id.0), out);
        out.push(before.is_some().into());
        if let Some(before) = before {
            put_position(*before, out);
        }
    }
}

fn restore_entries(last_id: u32, saved: &mut Reader<'_>) -> Result<Vec<(ObjectId, Before)>, Unreadable> {
    let mut last = 0;
    let entries = (0..saved.count()?).map(|_| {
        let id: u32 = saved.number_of()?;
        if id <= last || id > last_id {
            return Err(Unreadable::Wrong);
        }
        last = id;
        let before = match saved.byte()? {
            0 => None,
            1 => Some(saved.position()?),
            _ => return Err(Unreadable::Wrong),
        };
        Ok((ObjectId(id), before))
    });
    entries.collect()
}

#[cfg(test)]
mod tests;
