//! The objects of each cell, and the cells that changed.

use crate::{CellIndex, ObjectId, hash::Hasher};

#[derive(Debug, Default)]
struct Cell {
    /// The slots of its objects. The order is part of the world, because simulations iterate in it.
    slots: Vec<u32>,
    /// The exclusive-or of the hashes of the objects in it that players receive.
    hash: u64,
    is_dirty: bool,
}

/// The cells of a world.
#[derive(Debug)]
pub(super) struct Cells {
    cells: Vec<Cell>,
    /// The exclusive-or of a hash of each object's index in its cell.
    order_hash: u64,
    /// Cells that have changed since the last tick.
    dirty: Vec<CellIndex>,
    /// Objects that players received in a cell after the last tick, and no longer do, with their kinds.
    departed: Vec<(CellIndex, ObjectId, u16)>,
    /// The sum of the capacities of all cells' lists.
    slot_capacity: usize,
}

impl Cells {
    /// Empty cells.
    pub(super) fn new(count: usize) -> Self {
        let cells = std::iter::repeat_with(Cell::default).take(count).collect();
        Self { cells, order_hash: 0, dirty: Vec::new(), departed: Vec::new(), slot_capacity: 0 }
    }

    /// Appends a slot to a cell; returns its index.
    pub(super) fn add(&mut self, cell: CellIndex, slot: u32) -> u32 {
        let slots = &mut self.cells[cell.0 as usize].slots;
        let (place, capacity) = (slots.len() as u32, slots.capacity());
        slots.push(slot);
        self.slot_capacity += slots.capacity() - capacity;
        self.order_hash ^= place_hash(cell, place, slot);
        place
    }

    /// Removes the slot at `place` from a cell. Returns the slot that moved to `place`, if one did.
    pub(super) fn take(&mut self, cell: CellIndex, place: u32) -> Option<u32> {
        let slots = &mut self.cells[cell.0 as usize].slots;
        let removed = slots.swap_remove(place as usize);
        let moved = slots.get(place as usize).copied();
        self.order_hash ^= place_hash(cell, place, removed);
        if let Some(moved) = moved {
            let was = slots.len() as u32;
            self.order_hash ^= place_hash(cell, was, moved) ^ place_hash(cell, place, moved);
        }
        moved
    }

    /// The slots in a cell; none for a cell outside the map.
    pub(super) fn slots(&self, cell: CellIndex) -> &[u32] {
        self.cells.get(cell.0 as usize).map_or(&[], |cell| &cell.slots)
    }

    /// Adds an object's hash to its cell's, or removes it.
    pub(super) fn toggle(&mut self, cell: CellIndex, object_hash: u64) {
        self.cells[cell.0 as usize].hash ^= object_hash;
    }

    /// See [`super::World::cell_hash`].
    pub(super) fn hash(&self, cell: CellIndex) -> u64 {
        self.cells.get(cell.0 as usize).map_or(0, |cell| cell.hash)
    }

    /// Marks a cell as changed.
    pub(super) fn mark(&mut self, cell: CellIndex) {
        let state = &mut self.cells[cell.0 as usize];
        if !std::mem::replace(&mut state.is_dirty, true) {
            self.dirty.push(cell);
        }
    }

    /// Marks an object as departed from a cell.
    pub(super) fn depart(&mut self, cell: CellIndex, id: ObjectId, kind: u16) {
        self.mark(cell);
        self.departed.push((cell, id, kind));
    }

    /// Sorts dirty cells and departures into the order of the update.
    pub(super) fn sort(&mut self) {
        self.dirty.sort_unstable();
        self.departed.sort_unstable();
    }

    /// The cells that have changed; in ascending order once sorted.
    pub(super) fn dirty(&self) -> &[CellIndex] {
        &self.dirty
    }

    /// The objects that departed from a cell, in ascending order once sorted.
    pub(super) fn departed(&self, cell: CellIndex) -> &[(CellIndex, ObjectId, u16)] {
        let start = self.departed.partition_point(|&(other, ..)| other < cell);
        let of_cell = &self.departed[start..];
        &of_cell[..of_cell.partition_point(|&(other, ..)| other == cell)]
    }

    /// Starts a new tick: changes so far belong to the previous one.
    pub(super) fn forget_changes(&mut self) {
        for cell in self.dirty.drain(..) {
            self.cells[cell.0 as usize].is_dirty = false;
        }
        self.departed.clear();
    }

    /// See [`super::World::state_hash`].
    pub(super) fn order_hash(&self) -> u64 {
        self.order_hash
    }

    /// The cells with objects, in ascending order.
    pub(super) fn occupied(&self) -> impl Iterator<Item = (CellIndex, &[u32])> {
        let numbered = self.cells.iter().enumerate();
        numbered
            .filter(|(_, cell)| !cell.slots.is_empty())
            .map(|(index, cell)| (CellIndex(index as u32), &cell.slots[..]))
    }

    /// Approximate memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.slot_capacity * size_of::<u32>()
            + self.cells.capacity() * size_of::<Cell>()
            + self.dirty.capacity() * size_of::<CellIndex>()
            + self.departed.capacity() * size_of::<(CellIndex, ObjectId, u16)>()
    }
}

#[cfg(test)]
impl Cells {
    pub(super) fn assert_counted(&self) {
        assert_eq!(self.slot_capacity, self.cells.iter().map(|cell| cell.slots.capacity()).sum::<usize>());
    }
}

fn place_hash(cell: CellIndex, place: u32, slot: u32) -> u64 {
    Hasher::new(1).number(u64::from(cell.0)).number(u64::from(place) << 32 | u64::from(slot)).finish()
}
