//! What an update says about the layers of its cells, so that a mirror can leave out those that a player does not see.

use std::ops::Range;

use crate::{
    CellIndex, SnapshotFormat,
    wire::{self, SegmentHead},
};

/// The lists are empty in a room whose cells have one layer.
#[derive(Clone, Debug, Default)]
pub(super) struct LayerParts {
    /// The layer of each departed object.
    pub(super) departed: Vec<u8>,
    /// The layer of each object of the delta segments.
    pub(super) upserted: Vec<u8>,
    /// Where its changed values are in `deltas` with [`SnapshotFormat::TypedProtobuf`], in bits; nowhere if it has none.
    pub(super) values: Vec<Range<usize>>,
    /// The indices of the cells whose full segments have objects beyond layer 0, in ascending order.
    pub(super) cells: Vec<usize>,
    /// For each of these, by form, where the objects of its full segment begin in it, and where those of each layer end.
    pub(super) ends: [Vec<usize>; SnapshotFormat::ALL.len()],
}

/// A cell's full segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FullSegment<'a> {
    pub(crate) bytes: &'a [u8],
    /// See [`LayerParts::ends`]; empty if all objects are in layer 0.
    pub(crate) ends: &'a [usize],
}

impl LayerParts {
    pub(super) fn clear(&mut self) {
        self.departed.clear();
        self.upserted.clear();
        self.values.clear();
        self.cells.clear();
        self.ends.iter_mut().for_each(Vec::clear);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.departed.capacity()
            + self.upserted.capacity()
            + self.values.capacity() * size_of::<Range<usize>>()
            + (self.cells.capacity() + self.ends.iter().map(Vec::capacity).sum::<usize>()) * size_of::<usize>()
    }
}

impl FullSegment<'_> {
    /// Appends the first `depth` layers. Nothing if they have no objects, unless the client may have some and `is_known`.
    pub(crate) fn write(&self, format: SnapshotFormat, cell: CellIndex, depth: u8, is_known: bool, out: &mut Vec<u8>) {
        let (Some(&start), Some(&last)) = (self.ends.first(), self.ends.last()) else {
            return out.extend_from_slice(self.bytes);
        };
        let end = self.ends.get(usize::from(depth)).copied().unwrap_or(last);
        if end == last {
            return out.extend_from_slice(self.bytes);
        }
        let objects = self.bytes.get(start..end).unwrap_or_default();
        if is_known || !objects.is_empty() {
            let head = SegmentHead { cell, is_full: true, departed: &[], changes: &[] };
            wire::write_segment(format, &head, objects, out);
        }
    }
}
