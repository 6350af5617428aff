//! The storage of a world's objects.

use hashbrown::HashMap;

use super::{NewObject, Object, Visibility};
use crate::{CellIndex, ObjectId, PlayerId, Position, hash::Hasher};

/// The players who saw an object after the last tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// No player.
    Nowhere,
    /// All players who see the cell.
    In(CellIndex),
    /// One player.
    To(PlayerId),
}

/// Storage for an object. A free slot keeps its memory for the next object.
#[derive(Debug)]
pub(super) struct Slot {
    /// The object's id; 0 for a free slot.
    pub(super) id: ObjectId,
    pub(super) object: Object,
    /// The object's cell, and its index there.
    pub(super) cell: CellIndex,
    pub(super) place: u32,
    pub(super) shown: Shown,
    /// The round in which it was last touched.
    pub(super) round: u64,
    /// As of the last settlement: [`crate::wire::object_hash`], and the object's contribution to the state hash.
    pub(super) object_hash: u64,
    pub(super) state_hash: u64,
    /// The object before this round, if it was touched in it.
    pub(super) before: Before,
}

/// An object before the round in which it was last touched.
#[derive(Debug)]
pub(super) struct Before {
    pub(super) shown: Shown,
    pub(super) position: Position,
    /// The round in which `state` was replaced; in other rounds, the object has the state that it had before.
    state_round: u64,
    state: Vec<u8>,
}

/// The objects of a world.
#[derive(Debug)]
pub(super) struct Slots {
    pub(super) slots: Vec<Slot>,
    /// Free slots; the last is used next.
    pub(super) free: Vec<u32>,
    places: HashMap<ObjectId, u32, foldhash::fast::FixedState>,
    /// The highest number assigned so far.
    pub(super) last_id: u32,
    /// The exclusive-or of a hash for each free slot's position.
    free_hash: u64,
    /// The total capacity of the states in bytes.
    state_capacity_bytes: usize,
}

impl Slots {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            places: HashMap::default(),
            last_id: 0,
            free_hash: 0,
            state_capacity_bytes: 0,
        }
    }

    /// The number of objects.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// The slot of an object.
    pub(super) fn find(&self, id: ObjectId) -> Option<u32> {
        self.places.get(&id).copied()
    }

    pub(super) fn at(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    pub(super) fn at_mut(&mut self, slot: u32) -> &mut Slot {
        &mut self.slots[slot as usize]
    }

    /// Creates an object, which is not in a cell's list yet. `None` if all numbers have been used.
    pub(super) fn make(&mut self, new: NewObject<'_>, cell: CellIndex) -> Option<u32> {
        let id = ObjectId(self.last_id.checked_add(1)?);
        self.last_id = id.0;
        let slot = self.free.pop().inspect(|&slot| self.free_hash ^= free_hash(self.free.len(), slot));
        let slot = slot.unwrap_or_else(|| {
            self.slots.push(Slot::free());
            self.slots.len() as u32 - 1
        });
        let place = &mut self.slots[slot as usize];
        place.id = id;
        place.cell = cell;
        place.object.position = new.position;
        place.object.kind = new.kind;
        place.object.visibility = new.visibility;
        self.places.insert(id, slot);
        self.put_state(slot, new.state);
        Some(slot)
    }

    /// Restores a saved object into a slot that is free but not in the free list.
    pub(super) fn put_back(&mut self, slot: u32, id: ObjectId, new: NewObject<'_>, cell: CellIndex) -> bool {
        let place = &mut self.slots[slot as usize];
        place.id = id;
        place.cell = cell;
        place.object.position = new.position;
        place.object.kind = new.kind;
        place.object.visibility = new.visibility;
        self.put_state(slot, new.state);
        self.places.insert(id, slot).is_none()
    }

    /// Adds a slot to the free list.
    pub(super) fn release(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize];
        self.places.remove(&place.id);
        place.id = ObjectId(0);
        place.object.state.clear();
        place.shown = Shown::Nowhere;
        (place.object_hash, place.state_hash) = (0, 0);
        self.free_hash ^= free_hash(self.free.len(), slot);
        self.free.push(slot);
    }

    /// Replaces an object's state.
    pub(super) fn put_state(&mut self, slot: u32, state: &[u8]) {
        let buffer = &mut self.slots[slot as usize].object.state;
        self.state_capacity_bytes -= buffer.capacity();
        buffer.clear();
        buffer.extend_from_slice(state);
        self.state_capacity_bytes += buffer.capacity();
    }

    /// As [`Slots::put_state`], and keeps the state that the object had before this round. The buffers change places, so
    /// that nothing is copied.
    pub(super) fn put_state_and_keep(&mut self, slot: u32, state: &[u8]) {
        let Slot { object, before, round, .. } = &mut self.slots[slot as usize];
        if before.state_round != *round {
            before.state_round = *round;
            std::mem::swap(&mut object.state, &mut before.state);
        }
        self.put_state(slot, state);
    }

    /// Drops the states from before this round, and frees their memory.
    pub(super) fn drop_states_before(&mut self) {
        for slot in &mut self.slots {
            self.state_capacity_bytes -= slot.before.state.capacity();
            (slot.before.state, slot.before.state_round) = (Vec::new(), 0);
        }
    }

    /// The objects, in the order of their slots.
    pub(super) fn live(&self) -> impl Iterator<Item = (u32, &Slot)> {
        self.slots.iter().enumerate().filter(|(_, slot)| slot.is_live()).map(|(index, slot)| (index as u32, slot))
    }

    /// See [`super::World::state_hash`].
    pub(super) fn free_hash(&self) -> u64 {
        self.free_hash
    }

    /// Approximate memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
            + self.free.capacity() * size_of::<u32>()
            + self.places.allocation_size()
            + self.state_capacity_bytes
    }
}

impl Slot {
    /// A free slot.
    pub(super) fn free() -> Self {
        let object =
            Object { position: Position::default(), kind: 0, visibility: Visibility::Nobody, state: Vec::new() };
        Self {
            id: ObjectId(0),
            object,
            cell: CellIndex(0),
            place: 0,
            shown: Shown::Nowhere,
            round: 0,
            object_hash: 0,
            state_hash: 0,
            before: Before { shown: Shown::Nowhere, position: Position::default(), state_round: 0, state: Vec::new() },
        }
    }

    /// Whether the slot contains an object.
    pub(super) fn is_live(&self) -> bool {
        self.id.0 != 0
    }

    /// The state before the round in which the object was last touched, if states were kept in that round.
    pub(super) fn state_before(&self) -> &[u8] {
        if self.before.state_round == self.round { &self.before.state } else { &self.object.state }
    }

    /// The hash of the current state that clients see.
    pub(super) fn hash_object(&self) -> u64 {
        let Object { position, kind, ref state, .. } = self.object;
        crate::wire::object_hash(self.id, kind, position, state)
    }

    /// The object's contribution to the state hash in slot `index`, given [`Slot::hash_object`].
    pub(super) fn hash_state(&self, index: u32, object_hash: u64) -> u64 {
        let visibility = match self.object.visibility {
            Visibility::Everyone => 0,
            Visibility::Nobody => 1,
            Visibility::Owner(player) => 2 + u64::from(player.0),
        };
        Hasher::new(2).number(object_hash).number(u64::from(index)).number(visibility).finish()
    }
}

fn free_hash(place: usize, slot: u32) -> u64 {
    Hasher::new(3).number(place as u64).number(u64::from(slot)).finish()
}
