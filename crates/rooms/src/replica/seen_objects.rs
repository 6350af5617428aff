//! The objects of a replica, and the cell of each.

use hashbrown::{HashMap, hash_map::Entry};

use super::{
    SeenObject,
    staged::{StagedObject, StagedStates},
};
use crate::{CellIndex, ObjectId, Position, wire::object_hash};

/// Ids come from the server, which the client trusts, so an unseeded hash is safe.
type HashState = foldhash::fast::FixedState;

#[derive(Debug, Default)]
pub(super) struct SeenObjects {
    objects: HashMap<u32, Kept, HashState>,
    /// Objects that only this player receives; some may have moved to a cell since.
    own: Vec<u32>,
    places: HashMap<CellIndex, Place, HashState>,
    cells: Vec<Shown>,
    /// Free indices in `cells`.
    free: Vec<Place>,
    state_bytes: usize,
}

/// An index in `cells`.
type Place = u32;

/// The index of objects that are in no cell.
const NOWHERE: Place = Place::MAX;

#[derive(Debug)]
struct Kept {
    seen: SeenObject,
    hash: u64,
    place: Place,
    /// The object's index in the ids of its cell.
    index: u32,
}

#[derive(Debug, Default)]
struct Shown {
    hash: u64,
    ids: Vec<u32>,
}

impl SeenObjects {
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn state_bytes(&self) -> usize {
        self.state_bytes
    }

    pub(super) fn get(&self, id: u32) -> Option<&SeenObject> {
        self.objects.get(&id).map(|kept| &kept.seen)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ObjectId, &SeenObject)> {
        self.objects.iter().map(|(id, kept)| (ObjectId(*id), &kept.seen))
    }

    pub(super) fn cell_hash(&self, cell: CellIndex) -> u64 {
        self.places.get(&cell).map_or(0, |place| self.cells[*place as usize].hash)
    }

    pub(super) fn clear(&mut self) {
        self.objects.clear();
        self.own.clear();
        self.free.extend(self.places.drain().map(|(_, place)| place));
        for shown in &mut self.cells {
            shown.hash = 0;
            shown.ids.clear();
        }
        self.state_bytes = 0;
    }

    /// Replaces the objects that only this player receives.
    pub(super) fn set_own(&mut self, objects: &[StagedObject], states: StagedStates<'_>) {
        for id in std::mem::take(&mut self.own) {
            if self.objects.get(&id).is_some_and(|kept| kept.place == NOWHERE) {
                self.forget(id);
            }
        }
        for object in objects {
            self.own.push(object.id);
            let position = Position { x: object.x, y: object.y };
            self.upsert(NOWHERE, None, position, object, states);
        }
    }

    /// Removes the cells that are not visible, with their objects.
    pub(super) fn keep_cells(&mut self, is_visible: impl Fn(CellIndex) -> bool) {
        let Self { objects, places, cells, free, state_bytes, .. } = self;
        places.retain(|cell, place| {
            let is_kept = is_visible(*cell);
            if !is_kept {
                empty(&mut cells[*place as usize], objects, state_bytes);
                free.push(*place);
            }
            is_kept
        });
    }

    /// Removes all objects of a cell.
    pub(super) fn empty_cell(&mut self, cell: CellIndex) {
        if let Some(place) = self.places.get(&cell) {
            empty(&mut self.cells[*place as usize], &mut self.objects, &mut self.state_bytes);
        }
    }

    /// Removes an object if it is in `cell`.
    pub(super) fn depart(&mut self, cell: CellIndex, id: u32) {
        if self.objects.get(&id).is_some_and(|kept| kept.seen.cell == Some(cell)) {
            self.forget(id);
        }
    }

    /// Inserts or updates objects of a cell with this corner.
    pub(super) fn upsert_all(
        &mut self,
        cell: CellIndex,
        corner: Position,
        objects: &[StagedObject],
        states: StagedStates<'_>,
    ) {
        if objects.is_empty() {
            return;
        }
        let place = *self.places.entry(cell).or_insert_with(|| {
            self.free.pop().unwrap_or_else(|| {
                self.cells.push(Shown::default());
                self.cells.len() as Place - 1
            })
        });
        for object in objects {
            let position = Position { x: corner.x + object.x, y: corner.y + object.y };
            self.upsert(place, Some(cell), position, object, states);
        }
    }

    fn upsert(
        &mut self,
        place: Place,
        cell: Option<CellIndex>,
        position: Position,
        object: &StagedObject,
        states: StagedStates<'_>,
    ) {
        let StagedObject { id, kind, .. } = *object;
        let state = states.of(object);
        let hash = object_hash(ObjectId(id), kind, position, state);
        self.state_bytes += state.len();
        let left = match self.objects.entry(id) {
            Entry::Occupied(mut entry) => {
                let kept = entry.get_mut();
                self.state_bytes -= kept.seen.state.len();
                kept.seen.position = position;
                kept.seen.kind = kind;
                kept.seen.cell = cell;
                kept.seen.state.clear();
                kept.seen.state.extend_from_slice(state);
                let hash_before = std::mem::replace(&mut kept.hash, hash);
                if kept.place == place {
                    if let Some(shown) = self.cells.get_mut(place as usize) {
                        shown.hash ^= hash_before ^ hash;
                    }
                    return;
                }
                let left = (kept.place, kept.index, hash_before);
                kept.place = place;
                kept.index = enter(self.cells.get_mut(place as usize), id, hash);
                Some(left)
            }
            Entry::Vacant(entry) => {
                let index = enter(self.cells.get_mut(place as usize), id, hash);
                let seen = SeenObject { position, kind, state: state.to_vec(), cell };
                entry.insert(Kept { seen, hash, place, index });
                None
            }
        };
        if let Some((place, index, hash)) = left {
            self.leave(place, index, hash);
        }
    }

    fn forget(&mut self, id: u32) {
        if let Some(kept) = self.objects.remove(&id) {
            self.state_bytes -= kept.seen.state.len();
            self.leave(kept.place, kept.index, kept.hash);
        }
    }

    /// Removes the id at `index` from a cell; the last one takes its index.
    fn leave(&mut self, place: Place, index: u32, hash: u64) {
        let Some(shown) = self.cells.get_mut(place as usize) else { return };
        shown.hash ^= hash;
        shown.ids.swap_remove(index as usize);
        if let Some(moved) = shown.ids.get(index as usize).and_then(|id| self.objects.get_mut(id)) {
            moved.index = index;
        }
    }
}

/// Adds an object to a cell, if it is in one. Returns its index.
fn enter(shown: Option<&mut Shown>, id: u32, hash: u64) -> u32 {
    let Some(shown) = shown else { return 0 };
    shown.hash ^= hash;
    shown.ids.push(id);
    shown.ids.len() as u32 - 1
}

fn empty(shown: &mut Shown, objects: &mut HashMap<u32, Kept, HashState>, state_bytes: &mut usize) {
    shown.hash = 0;
    for id in shown.ids.drain(..) {
        if let Some(kept) = objects.remove(&id) {
            *state_bytes -= kept.seen.state.len();
        }
    }
}
