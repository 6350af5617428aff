//! The changes of one tick, encoded once and shared by all shards.

mod format;
mod still;

use std::ops::Range;

use dunlin_protocol::Encoding;

use crate::{
    CellIndex, Grid, ObjectId,
    wire::{self, SegmentHead},
};
pub use format::MalformedUpdate;
use still::StillCells;
pub(crate) use still::StillObject;

/// A set of encodings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodingSet([bool; Encoding::ALL.len()]);

impl EncodingSet {
    /// Adds `encoding`.
    #[must_use]
    pub fn with(mut self, encoding: Encoding) -> Self {
        self.0[encoding.index()] = true;
        self
    }

    /// Whether the set contains `encoding`.
    pub fn contains(self, encoding: Encoding) -> bool {
        self.0[encoding.index()]
    }

    /// The encodings in the set.
    pub fn iter(self) -> impl Iterator<Item = Encoding> {
        Encoding::ALL.into_iter().filter(move |encoding| self.contains(*encoding))
    }

    /// Whether the set contains all of `other`.
    pub fn covers(self, other: Self) -> bool {
        Encoding::ALL.into_iter().all(|encoding| self.contains(encoding) || !other.contains(encoding))
    }
}

/// An object as clients see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectView<'a> {
    /// The object's id.
    pub id: ObjectId,
    /// The game's number for the kind of the object.
    pub kind: u16,
    /// Units to the right of its cell's corner.
    pub x: u32,
    /// Units below its cell's corner.
    pub y: u32,
    /// The game's other data.
    pub state: &'a [u8],
}

/// The changes of one tick: for each changed cell a delta segment against the previous tick, and a full segment. A
/// keyframe has full segments of all cells that are not empty.
///
/// The number of allocations is constant, regardless of the number of cells.
#[derive(Clone, Debug, Default)]
pub struct TickUpdate {
    tick: u32,
    time_us: u64,
    is_keyframe: bool,
    encodings: EncodingSet,
    cells: Vec<ChangedCell>,
    /// Ids of the departed objects, of all cells in order.
    departed: Vec<u32>,
    /// Ids of the objects in delta segments, of all cells in order.
    upserted: Vec<u32>,
    forms: [Form; Encoding::ALL.len()],
}

/// A cell in an update. Its part of each list begins where that of the previous cell ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangedCell {
    pub(crate) cell: CellIndex,
    /// Whether the cell has no objects.
    pub(crate) is_empty: bool,
    departed_end: usize,
    upserted_end: usize,
}

/// An update in one encoding. Segments are contiguous, so those of adjacent cells are one slice.
#[derive(Clone, Debug, Default)]
struct Form {
    deltas: Vec<u8>,
    delta_ends: Vec<usize>,
    fulls: Vec<u8>,
    full_ends: Vec<usize>,
    /// The range of each object in `deltas`.
    upserts: Vec<(usize, usize)>,
}

/// Builds a [`TickUpdate`]. Its buffers are reused between ticks.
#[derive(Debug, Default)]
pub struct UpdateWriter {
    update: TickUpdate,
    /// Objects of the current segment, in each encoding.
    objects: [Vec<u8>; Encoding::ALL.len()],
    still: StillCells,
    /// A buffer for a cell's still objects, followed by the changed ones.
    all_objects: Vec<u8>,
}

impl TickUpdate {
    /// The tick of the world's state.
    pub fn tick(&self) -> u32 {
        self.tick
    }

    /// The Unix time for clients, in microseconds.
    pub fn time_us(&self) -> u64 {
        self.time_us
    }

    /// Whether it is a keyframe.
    pub fn is_keyframe(&self) -> bool {
        self.is_keyframe
    }

    /// The encodings of the update.
    pub fn encodings(&self) -> EncodingSet {
        self.encodings
    }

    /// The number of cells.
    pub fn cell_count(&self) -> usize {
        self.cells.len()
    }

    /// The bytes that it has allocated, excluding itself.
    pub fn memory_bytes(&self) -> usize {
        self.forms.iter().map(Form::memory_bytes).sum::<usize>()
            + self.cells.capacity() * size_of::<ChangedCell>()
            + (self.departed.capacity() + self.upserted.capacity()) * size_of::<u32>()
    }

    /// The update as another node receives it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        format::write(self, &mut bytes);
        bytes
    }

    /// Reads what [`TickUpdate::to_bytes`] returned.
    ///
    /// # Errors
    /// If the bytes are anything else. No bytes cause a panic in a mirror that applies the update.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MalformedUpdate> {
        format::read(bytes)
    }

    /// The cells of the update, in ascending order. Other functions take the indices in this list.
    pub(crate) fn cells(&self) -> &[ChangedCell] {
        &self.cells
    }

    /// The index of `cell`.
    pub(crate) fn find(&self, cell: CellIndex) -> Option<usize> {
        self.cells.binary_search_by_key(&cell, |changed| changed.cell).ok()
    }

    /// The range of a cell's segment in [`TickUpdate::deltas`].
    pub(crate) fn delta(&self, encoding: Encoding, place: usize) -> Range<usize> {
        part(&self.forms[encoding.index()].delta_ends, place)
    }

    /// All delta segments.
    pub(crate) fn deltas(&self, encoding: Encoding) -> &[u8] {
        &self.forms[encoding.index()].deltas
    }

    /// A cell's full segment.
    pub(crate) fn full(&self, encoding: Encoding, place: usize) -> &[u8] {
        let form = &self.forms[encoding.index()];
        &form.fulls[part(&form.full_ends, place)]
    }

    /// Ids of the objects that departed from a cell.
    pub(crate) fn departed(&self, place: usize) -> &[u32] {
        let start = place.checked_sub(1).map_or(0, |before| self.cells[before].departed_end);
        &self.departed[start..self.cells[place].departed_end]
    }

    /// Ids of the objects in a cell's delta segment, and the index of the first among those of all cells.
    pub(crate) fn upserted(&self, place: usize) -> (&[u32], usize) {
        let start = place.checked_sub(1).map_or(0, |before| self.cells[before].upserted_end);
        (&self.upserted[start..self.cells[place].upserted_end], start)
    }

    /// The encoded object of a delta segment, by its index among those of all cells.
    pub(crate) fn upsert(&self, encoding: Encoding, place: usize) -> &[u8] {
        let form = &self.forms[encoding.index()];
        form.upserts.get(place).map_or(&[], |(start, end)| &form.deltas[*start..*end])
    }
}

/// The range from the end of the previous part to the end of this one.
fn part(ends: &[usize], place: usize) -> Range<usize> {
    let start = place.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
    start..ends.get(place).copied().unwrap_or(start)
}

impl UpdateWriter {
    /// Starts an update.
    pub fn begin(&mut self, tick: u32, time_us: u64, encodings: EncodingSet, is_keyframe: bool) {
        self.update.tick = tick;
        self.update.time_us = time_us;
        self.update.encodings = encodings;
        self.update.is_keyframe = is_keyframe;
        self.update.cells.clear();
        self.update.departed.clear();
        self.update.upserted.clear();
        self.update.forms.iter_mut().for_each(Form::clear);
    }

    /// Adds a cell; cells must be added in ascending order. `changed` are the objects of `full` that are new or
    /// different in this tick, including those from other cells; `departed` are those that were in the cell after the
    /// last tick and are not any more. A keyframe ignores both.
    pub fn cell<'a>(
        &mut self,
        cell: CellIndex,
        changed: impl Iterator<Item = ObjectView<'a>>,
        departed: impl Iterator<Item = ObjectId>,
        full: impl Iterator<Item = ObjectView<'a>>,
    ) {
        if !self.update.is_keyframe {
            self.delta(cell, changed, departed);
        }
        self.objects.iter_mut().for_each(Vec::clear);
        let mut is_empty = true;
        for object in full {
            is_empty = false;
            for encoding in self.update.encodings.iter() {
                wire::write_upsert(encoding, &object, &mut self.objects[encoding.index()]);
            }
        }
        for encoding in self.update.encodings.iter() {
            let objects = &self.objects[encoding.index()];
            self.update.forms[encoding.index()].write_full(encoding, cell, objects);
        }
        self.end_cell(cell, is_empty);
    }

    /// As [`UpdateWriter::cell`], with the objects that are not in `changed` instead of all. Objects that have not
    /// changed since an earlier `round` are not encoded again.
    pub(crate) fn changed_cell<'a>(
        &mut self,
        round: u64,
        cell: CellIndex,
        changed: impl Iterator<Item = ObjectView<'a>>,
        departed: impl Iterator<Item = ObjectId>,
        still: &(impl Iterator<Item = StillObject<'a>> + Clone),
    ) {
        let before = self.update.upserted.len();
        self.delta(cell, changed, departed);
        let has_changed = self.update.upserted.len() > before;
        if still.clone().next().is_none() {
            for encoding in self.update.encodings.iter() {
                let objects = &self.objects[encoding.index()];
                self.update.forms[encoding.index()].write_full(encoding, cell, objects);
            }
            self.end_cell(cell, !has_changed);
            return;
        }
        let still = self.still.encode(round, cell, self.update.encodings, still);
        for encoding in self.update.encodings.iter() {
            let mut objects = still.upserts(encoding);
            if has_changed {
                self.all_objects.clear();
                self.all_objects.extend_from_slice(objects);
                wire::part_upserts(encoding, &mut self.all_objects);
                self.all_objects.extend_from_slice(&self.objects[encoding.index()]);
                objects = &self.all_objects;
            }
            self.update.forms[encoding.index()].write_full(encoding, cell, objects);
        }
        self.end_cell(cell, false);
    }

    /// Approximate bytes that are kept between updates.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.update.memory_bytes()
            + self.still.memory_bytes()
            + self.objects.iter().map(Vec::capacity).sum::<usize>()
            + self.all_objects.capacity()
    }

    fn end_cell(&mut self, cell: CellIndex, is_empty: bool) {
        let (departed_end, upserted_end) = (self.update.departed.len(), self.update.upserted.len());
        self.update.cells.push(ChangedCell { cell, is_empty, departed_end, upserted_end });
    }

    fn delta<'a>(
        &mut self,
        cell: CellIndex,
        changed: impl Iterator<Item = ObjectView<'a>>,
        departed: impl Iterator<Item = ObjectId>,
    ) {
        let (first_departed, first_upserted) = (self.update.departed.len(), self.update.upserted.len());
        self.update.departed.extend(departed.map(|id| id.0));
        self.objects.iter_mut().for_each(Vec::clear);
        for object in changed {
            self.update.upserted.push(object.id.0);
            for encoding in self.update.encodings.iter() {
                let objects = &mut self.objects[encoding.index()];
                let length = wire::write_upsert(encoding, &object, objects);
                self.update.forms[encoding.index()].upserts.push((objects.len() - length, objects.len()));
            }
        }
        for encoding in self.update.encodings.iter() {
            let form = &mut self.update.forms[encoding.index()];
            let head = SegmentHead { cell, is_full: false, departed: &self.update.departed[first_departed..] };
            let start = wire::write_segment(encoding, &head, &self.objects[encoding.index()], &mut form.deltas);
            form.delta_ends.push(form.deltas.len());
            for (from, to) in &mut form.upserts[first_upserted..] {
                *from += start;
                *to += start;
            }
        }
    }

    /// Finishes the update. Cells that are not on `grid` are left out.
    pub fn finish(&mut self, grid: &Grid) -> TickUpdate {
        let on_grid = self.update.cells.partition_point(|changed| (changed.cell.0 as usize) < grid.len());
        self.update.cells.truncate(on_grid);
        // A copy has the sizes that this tick needs, and not the largest so far.
        self.update.clone()
    }
}

impl Form {
    fn write_full(&mut self, encoding: Encoding, cell: CellIndex, objects: &[u8]) {
        let head = SegmentHead { cell, is_full: true, departed: &[] };
        wire::write_segment(encoding, &head, objects, &mut self.fulls);
        self.full_ends.push(self.fulls.len());
    }

    fn memory_bytes(&self) -> usize {
        self.deltas.capacity()
            + self.fulls.capacity()
            + (self.delta_ends.capacity() + self.full_ends.capacity()) * size_of::<usize>()
            + self.upserts.capacity() * size_of::<(usize, usize)>()
    }

    fn clear(&mut self) {
        self.deltas.clear();
        self.delta_ends.clear();
        self.fulls.clear();
        self.full_ends.clear();
        self.upserts.clear();
    }
}
