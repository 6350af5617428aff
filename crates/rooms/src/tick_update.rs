//! The changes of one tick, encoded once and shared by all shards.

mod format;
mod layered;
mod still;

use std::{ops::Range, sync::Arc};

use crate::{
    CellIndex, ClockRate, FormatSet, Grid, ObjectId, Schema, SnapshotFormat, TickTime,
    layers::{Layers, Reaches},
    wire::{self, ChangeList, Changes, ObjectBefore, SegmentHead, WHOLE},
};
pub use format::MalformedUpdate;
pub(crate) use layered::FullSegment;
use layered::LayerParts;
pub(crate) use still::StillObject;
use still::{StillCell, StillCells};

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

/// An object that is new or different in a tick.
#[derive(Clone, Copy, Debug)]
pub struct ChangedView<'a> {
    /// The object now.
    pub now: ObjectView<'a>,
    /// The object after the last tick, if it was in the same cell.
    pub before: Option<ObjectBefore<'a>>,
}

/// An object that has left a cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DepartedObject {
    pub(crate) id: ObjectId,
    /// Without a kind, all players who see the cell are told.
    pub(crate) kind: Option<u16>,
}

/// The changes of one tick: for each changed cell a delta segment against the previous tick, and a full segment. A
/// keyframe has full segments of all cells that are not empty.
///
/// The number of allocations is constant, regardless of the number of cells.
#[derive(Clone, Debug, Default)]
pub struct TickUpdate {
    tick: u32,
    time: TickTime,
    is_keyframe: bool,
    formats: FormatSet,
    schema: Arc<Schema>,
    reaches: Reaches,
    layers: LayerParts,
    cells: Vec<ChangedCell>,
    /// Ids of the departed objects, of all cells in order.
    departed: Vec<u32>,
    /// Ids of the objects in delta segments, of all cells in order.
    upserted: Vec<u32>,
    /// What has changed of each of these, with [`SnapshotFormat::TypedProtobuf`].
    changes: Vec<Changes>,
    forms: [Form; SnapshotFormat::ALL.len()],
}

/// A cell in an update. Its part of each list begins where that of the previous cell ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChangedCell {
    pub(crate) cell: CellIndex,
    /// Whether the cell has no objects.
    pub(crate) is_empty: bool,
    /// The weight of the most important object in the cell.
    pub(crate) weight: u8,
    /// The highest layer of an object in the delta segment.
    pub(crate) layer_max: u8,
    /// The highest layer of an object in the full segment.
    full_layer_max: u8,
    departed_end: usize,
    upserted_end: usize,
}

/// An update in one form. Segments are contiguous, so those of adjacent cells are one slice.
#[derive(Clone, Debug, Default)]
struct Form {
    deltas: Vec<u8>,
    delta_ends: Vec<usize>,
    fulls: Vec<u8>,
    full_ends: Vec<usize>,
    /// The range of each object in `deltas`, for a form with objects of its own.
    upserts: Vec<(usize, usize)>,
}

/// Builds a [`TickUpdate`]. Its buffers are reused between ticks.
#[derive(Debug, Default)]
pub struct UpdateWriter {
    update: TickUpdate,
    layers: Layers,
    position_bits: u32,
    /// The forms of the update that have objects of their own.
    object_formats: Vec<SnapshotFormat>,
    /// Objects of the current segment, in each form.
    objects: [Vec<u8>; SnapshotFormat::ALL.len()],
    change_list: ChangeList,
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
        self.time.unix_us
    }

    /// The rate of the room's clock in the interval before this tick.
    pub fn rate(&self) -> ClockRate {
        self.time.rate
    }

    /// Whether it is a keyframe.
    pub fn is_keyframe(&self) -> bool {
        self.is_keyframe
    }

    /// The forms of the update.
    pub fn formats(&self) -> FormatSet {
        self.formats
    }

    /// What the states of the objects are made of.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
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
            + self.changes.capacity() * size_of::<Changes>()
            + self.layers.memory_bytes()
    }

    /// The update as another node receives it, with whole states only. Nodes of all versions read it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        format::write(self, format::WHOLE_STATES, &mut bytes);
        bytes
    }

    /// As [`TickUpdate::to_bytes`], with the changed fields if the update has them: for a node with players who receive
    /// [`SnapshotFormat::TypedProtobuf`].
    pub fn to_bytes_with_changes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        format::write(self, format::WITH_CHANGES, &mut bytes);
        bytes
    }

    /// Reads what [`TickUpdate::to_bytes`] returned.
    ///
    /// # Errors
    /// If the bytes are anything else. No bytes cause a panic in a mirror that applies the update.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MalformedUpdate> {
        Self::from_bytes_in(bytes, &Schema::new(), 0)
    }

    /// As [`TickUpdate::from_bytes`], also with changed fields, in a room whose keyframe has this schema, and whose cells
    /// have this side.
    ///
    /// # Errors
    /// As [`TickUpdate::from_bytes`].
    pub fn from_bytes_in(bytes: &[u8], schema: &Schema, cell_units: u32) -> Result<Self, MalformedUpdate> {
        let update = format::read(bytes)?;
        if update.has_possible_changes(schema, cell_units) { Ok(update) } else { Err(MalformedUpdate) }
    }

    /// Whether a mirror can write all changes of fields: the objects have their states of these kinds.
    fn has_possible_changes(&self, schema: &Schema, cell_units: u32) -> bool {
        let is_possible = |(place, (id, changes)): (usize, (&u32, &Changes))| {
            if *changes == WHOLE {
                return true;
            }
            wire::read_object(self.upsert(SnapshotFormat::TypedProtobuf, place)).is_some_and(|object| {
                object.id.0 == *id
                    && object.x.max(object.y) < cell_units
                    && schema
                        .kind(object.kind)
                        .is_some_and(|kind| wire::are_changes_of(kind, *changes) && kind.describes(object.state))
            })
        };
        self.upserted.iter().zip(&self.changes).enumerate().all(is_possible)
    }

    /// How far the layers of cells are visible.
    pub(crate) fn reaches(&self) -> Reaches {
        self.reaches
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
    pub(crate) fn delta(&self, format: SnapshotFormat, place: usize) -> Range<usize> {
        part(&self.forms[format.index()].delta_ends, place)
    }

    /// All delta segments.
    pub(crate) fn deltas(&self, format: SnapshotFormat) -> &[u8] {
        &self.forms[format.index()].deltas
    }

    /// A cell's full segment.
    pub(crate) fn full(&self, format: SnapshotFormat, place: usize) -> FullSegment<'_> {
        let format = format.objects();
        let form = &self.forms[format.index()];
        let bytes = &form.fulls[part(&form.full_ends, place)];
        if self.cells[place].full_layer_max == 0 {
            return FullSegment { bytes, ends: &[] };
        }
        let (number, count) = (self.layers.cells.partition_point(|of| *of < place), self.reaches.cells().len() + 2);
        let ends = self.layers.ends[format.index()].get(number * count..(number + 1) * count);
        FullSegment { bytes, ends: ends.unwrap_or_default() }
    }

    /// Ids of the objects that departed from a cell, and the index of the first among those of all cells.
    pub(crate) fn departed(&self, place: usize) -> (&[u32], usize) {
        let start = place.checked_sub(1).map_or(0, |before| self.cells[before].departed_end);
        (&self.departed[start..self.cells[place].departed_end], start)
    }

    /// The layer of a departed object, by its index among those of all cells.
    pub(crate) fn departed_layer(&self, place: usize) -> u8 {
        self.layers.departed.get(place).copied().unwrap_or(0)
    }

    /// Ids of the objects in a cell's delta segment, and the index of the first among those of all cells.
    pub(crate) fn upserted(&self, place: usize) -> (&[u32], usize) {
        let start = place.checked_sub(1).map_or(0, |before| self.cells[before].upserted_end);
        (&self.upserted[start..self.cells[place].upserted_end], start)
    }

    /// The encoded object of a delta segment, by its index among those of all cells.
    pub(crate) fn upsert(&self, format: SnapshotFormat, place: usize) -> &[u8] {
        let form = &self.forms[format.objects().index()];
        form.upserts.get(place).map_or(&[], |(start, end)| &form.deltas[*start..*end])
    }

    /// The layer of such an object.
    pub(crate) fn upserted_layer(&self, place: usize) -> u8 {
        self.layers.upserted.get(place).copied().unwrap_or(0)
    }

    /// Where the changed values of such an object are in the delta segments with [`SnapshotFormat::TypedProtobuf`], in bits.
    pub(crate) fn values(&self, place: usize) -> Option<Range<usize>> {
        self.layers.values.get(place).cloned()
    }

    /// What has changed of such an object since the tick before.
    pub(crate) fn changes(&self, place: usize) -> Changes {
        self.changes.get(place).copied().unwrap_or(WHOLE)
    }
}

/// The range from the end of the previous part to the end of this one.
fn part(ends: &[usize], place: usize) -> Range<usize> {
    let start = place.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
    start..ends.get(place).copied().unwrap_or(start)
}

impl UpdateWriter {
    /// A writer for a world whose cells have this side, and whose objects have the states of a schema.
    pub fn new(schema: Arc<Schema>, cell_units: u32) -> Self {
        let layers = Layers::new(&schema, cell_units);
        let update = TickUpdate { schema, reaches: layers.reaches(), ..TickUpdate::default() };
        Self { update, layers, position_bits: wire::position_bits(cell_units), ..Self::default() }
    }

    /// Starts an update.
    pub fn begin(&mut self, tick: u32, time: impl Into<TickTime>, formats: FormatSet, is_keyframe: bool) {
        self.update.tick = tick;
        self.update.time = time.into();
        self.update.formats = formats;
        self.update.is_keyframe = is_keyframe;
        self.object_formats.clear();
        self.object_formats.extend(formats.with_objects());
        self.update.cells.clear();
        self.update.departed.clear();
        self.update.upserted.clear();
        self.update.changes.clear();
        self.update.layers.clear();
        self.update.forms.iter_mut().for_each(Form::clear);
    }

    /// Adds a cell; cells must be added in ascending order. `changed` are the objects of `full` that are new or
    /// different in this tick, including those from other cells; `departed` are those that were in the cell after the
    /// last tick and are not any more. A keyframe ignores both.
    pub fn cell<'a>(
        &mut self,
        cell: CellIndex,
        changed: impl Iterator<Item = impl Into<ChangedView<'a>>>,
        departed: impl Iterator<Item = ObjectId>,
        full: impl Iterator<Item = ObjectView<'a>> + Clone,
    ) {
        if !self.update.is_keyframe {
            self.delta(cell, changed.map(Into::into), departed.map(|id| DepartedObject { id, kind: None }));
        }
        if !self.layers.is_one() {
            let first_upserted = self.update.upserted.len();
            let weight = self.update.schema.weight_max(full.clone().map(|object| object.kind));
            let all = full.map(|view| StillObject { touched: 0, view });
            return self.layered_full(cell, first_upserted, weight, |still, formats, kinds| {
                still.encode_once(formats, kinds, &all)
            });
        }
        self.objects.iter_mut().for_each(Vec::clear);
        let (mut is_empty, mut weight) = (true, 1);
        for object in full {
            (is_empty, weight) = (false, weight.max(self.update.schema.weight(object.kind)));
            for &format in &self.object_formats {
                wire::write_upsert(format, &self.update.schema, &object, &mut self.objects[format.index()]);
            }
        }
        for format in self.update.formats.with_objects() {
            let objects = &self.objects[format.index()];
            self.update.forms[format.index()].write_full(format, cell, objects);
        }
        self.end_cell(cell, is_empty, weight);
    }

    /// As [`UpdateWriter::cell`], with the objects that are not in `changed` instead of all. Objects that have not
    /// changed since an earlier `round` are not encoded again.
    pub(crate) fn changed_cell<'a>(
        &mut self,
        round: u64,
        cell: CellIndex,
        changed: impl Iterator<Item = ChangedView<'a>> + Clone,
        departed: impl Iterator<Item = DepartedObject>,
        still: &(impl Iterator<Item = StillObject<'a>> + Clone),
    ) {
        let before = self.update.upserted.len();
        let kinds = changed.clone().map(|changed| changed.now.kind).chain(still.clone().map(|object| object.view.kind));
        let weight = self.update.schema.weight_max(kinds);
        self.delta(cell, changed, departed);
        if !self.layers.is_one() {
            return self.layered_full(cell, before, weight, |cells, formats, kinds| {
                cells.encode(round, cell, formats, kinds, still)
            });
        }
        let has_changed = self.update.upserted.len() > before;
        if still.clone().next().is_none() {
            for format in self.update.formats.with_objects() {
                let objects = &self.objects[format.index()];
                self.update.forms[format.index()].write_full(format, cell, objects);
            }
            self.end_cell(cell, !has_changed, weight);
            return;
        }
        let kinds = (&*self.update.schema, &self.layers);
        let still = self.still.encode(round, cell, self.update.formats, kinds, still);
        for format in self.update.formats.with_objects() {
            let mut objects = still.upserts(format);
            if has_changed {
                self.all_objects.clear();
                self.all_objects.extend_from_slice(objects);
                wire::part_upserts(format, &mut self.all_objects);
                self.all_objects.extend_from_slice(&self.objects[format.index()]);
                objects = &self.all_objects;
            }
            self.update.forms[format.index()].write_full(format, cell, objects);
        }
        self.end_cell(cell, false, weight);
    }

    /// Approximate bytes that are kept between updates.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.update.memory_bytes()
            + self.still.memory_bytes()
            + self.change_list.memory_bytes()
            + self.objects.iter().map(Vec::capacity).sum::<usize>()
            + self.all_objects.capacity()
    }

    /// Writes the full segment of a cell with layers and ends the cell: the objects that `encode` returns, and those of the
    /// delta segment from `first_upserted` on.
    fn layered_full(
        &mut self,
        cell: CellIndex,
        first_upserted: usize,
        weight: u8,
        encode: impl for<'s> FnOnce(&'s mut StillCells, FormatSet, (&Schema, &Layers)) -> &'s StillCell,
    ) {
        let Self { update, layers, still, all_objects, .. } = self;
        let still = encode(still, update.formats, (&*update.schema, layers));
        let is_empty = still.is_empty() && update.upserted.len() == first_upserted;
        let mut full_layer_max = 0;
        for format in update.formats.with_objects() {
            all_objects.clear();
            let (form, upserted) = (&mut update.forms[format.index()], &update.layers.upserted);
            let ends = &mut update.layers.ends[format.index()];
            let first_end = ends.len();
            for layer in layers.all() {
                let length_before = all_objects.len();
                let of_layer = (first_upserted..upserted.len()).filter(|place| upserted[*place] == layer);
                let changed = of_layer.map(|place| form.upserts[place]).map(|(start, end)| &form.deltas[start..end]);
                for objects in std::iter::once(still.layer(format, layer)).chain(changed).filter(|of| !of.is_empty()) {
                    wire::part_upserts(format, all_objects);
                    all_objects.extend_from_slice(objects);
                }
                if all_objects.len() > length_before {
                    full_layer_max = layer.max(full_layer_max);
                }
                ends.push(all_objects.len());
            }
            let segment_start = form.fulls.len();
            let start = form.write_full(format, cell, all_objects) - segment_start;
            if full_layer_max == 0 {
                ends.truncate(first_end);
                continue;
            }
            ends[first_end..].iter_mut().for_each(|end| *end += start);
            ends.insert(first_end, start);
        }
        if full_layer_max > 0 {
            self.update.layers.cells.push(self.update.cells.len());
        }
        self.end_cell(cell, is_empty, weight);
        if let Some(cell) = self.update.cells.last_mut() {
            cell.full_layer_max = full_layer_max;
        }
    }

    fn end_cell(&mut self, cell: CellIndex, is_empty: bool, weight: u8) {
        let (departed_end, upserted_end) = (self.update.departed.len(), self.update.upserted.len());
        let changed = ChangedCell { cell, weight, departed_end, upserted_end, ..ChangedCell::default() };
        let before = self.update.cells.last().copied().unwrap_or_default();
        let layers = &self.update.layers;
        let of_departed = layers.departed.get(before.departed_end..).unwrap_or_default();
        let of_upserted = layers.upserted.get(before.upserted_end..).unwrap_or_default();
        let layer_max = of_departed.iter().chain(of_upserted).copied().max().unwrap_or(0);
        self.update.cells.push(ChangedCell { is_empty, layer_max, ..changed });
    }

    fn delta<'a>(
        &mut self,
        cell: CellIndex,
        changed: impl Iterator<Item = ChangedView<'a>>,
        departed: impl Iterator<Item = DepartedObject>,
    ) {
        let (first_departed, first_upserted) = (self.update.departed.len(), self.update.upserted.len());
        let is_layered = !self.layers.is_one();
        for DepartedObject { id, kind } in departed {
            self.update.departed.push(id.0);
            if is_layered {
                self.update.layers.departed.push(kind.map_or(0, |kind| self.layers.of(kind)));
            }
        }
        self.objects.iter_mut().for_each(Vec::clear);
        self.change_list.clear();
        let has_changes = self.update.formats.contains(SnapshotFormat::TypedProtobuf);
        for ChangedView { now, before } in changed {
            self.update.upserted.push(now.id.0);
            if is_layered {
                self.update.layers.upserted.push(self.layers.of(now.kind));
            }
            for &format in &self.object_formats {
                let objects = &mut self.objects[format.index()];
                let length = wire::write_upsert(format, &self.update.schema, &now, objects);
                self.update.forms[format.index()].upserts.push((objects.len() - length, objects.len()));
            }
            if has_changes {
                self.typed_change(&now, before.as_ref());
            }
        }
        for format in self.update.formats.iter() {
            let form = &mut self.update.forms[format.index()];
            let departed = &self.update.departed[first_departed..];
            let has_changes = format == SnapshotFormat::TypedProtobuf && !self.change_list.is_empty();
            let fields = if has_changes { self.change_list.finish() } else { &[] };
            let objects = &self.objects[format.index()];
            let head = SegmentHead { cell, is_full: false, departed, changes: fields };
            // An object may be as it was at the end of the tick.
            let is_needed = format != SnapshotFormat::TypedProtobuf || !head.is_nothing() || !objects.is_empty();
            let start = if is_needed { wire::write_segment(format, &head, objects, &mut form.deltas) } else { 0 };
            form.delta_ends.push(form.deltas.len());
            if is_layered && format == SnapshotFormat::TypedProtobuf {
                let values = &mut self.update.layers.values;
                values.resize(self.update.upserted.len(), 0..0);
                // The objects of a segment follow its changes.
                let first_bit = (start - fields.len()) * 8;
                for (number, range) in self.change_list.values() {
                    values[first_upserted + number] = first_bit + range.start..first_bit + range.end;
                }
            }
            for (from, to) in form.upserts.get_mut(first_upserted..).unwrap_or_default() {
                *from += start;
                *to += start;
            }
        }
    }

    /// Adds the last object of `objects` to the segment of a client that knows the fields.
    fn typed_change(&mut self, now: &ObjectView<'_>, before: Option<&ObjectBefore<'_>>) {
        let changes = self.change_list.push_since(&self.update.schema, self.position_bits, now, before);
        self.update.changes.push(changes);
        if changes == WHOLE
            && let Some(&(start, end)) = self.update.forms[SnapshotFormat::Protobuf.index()].upserts.last()
        {
            let [_, whole, _, typed] = &mut self.objects;
            typed.extend_from_slice(&whole[start..end]);
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

impl<'a> From<ObjectView<'a>> for ChangedView<'a> {
    fn from(now: ObjectView<'a>) -> Self {
        Self { now, before: None }
    }
}

impl Form {
    /// Returns where the objects begin.
    fn write_full(&mut self, format: SnapshotFormat, cell: CellIndex, objects: &[u8]) -> usize {
        let head = SegmentHead { cell, is_full: true, departed: &[], changes: &[] };
        let start = wire::write_segment(format, &head, objects, &mut self.fulls);
        self.full_ends.push(self.fulls.len());
        start
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
