//! The encoded objects of cells that have not changed for a while.
//!
//! The full segment of a changed cell contains all its objects, but in most ticks only the moving ones differ. The
//! others are copied from this cache.

use std::ops::Range;

use hashbrown::HashMap;

use super::ObjectView;
use crate::{CellIndex, FormatSet, ObjectId, Schema, SnapshotFormat, layers::Layers, wire};

/// Maximum bytes of all cells together. Cells beyond them are encoded in every tick.
const STILL_BYTES_MAX: usize = 4 << 20;
/// Number of rounds after which a full cache is cleared, so that it serves the cells that change now.
const KEPT_ROUNDS: u64 = 1_024;

/// An object that has not changed in this round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StillObject<'a> {
    /// The round of its last change.
    pub(crate) touched: u64,
    pub(crate) view: ObjectView<'a>,
}

/// A cache of the encoded objects of cells.
#[derive(Debug, Default)]
pub(super) struct StillCells {
    cells: HashMap<CellIndex, StillCell, foldhash::fast::FixedState>,
    bytes: usize,
    /// A buffer for cells that do not fit into the cache.
    other: StillCell,
    emptied_round: u64,
}

/// The objects of a cell that had not changed when it was encoded.
#[derive(Debug, Default)]
pub(super) struct StillCell {
    /// The round in which it was encoded.
    round: u64,
    formats: FormatSet,
    ids: Vec<ObjectId>,
    /// The encoded upserts, with separators between them.
    upserts: [Vec<u8>; SnapshotFormat::ALL.len()],
    /// Where those of each layer are; empty if there is one layer.
    layers: [Vec<Range<usize>>; SnapshotFormat::ALL.len()],
}

/// What is known about the kinds of all objects.
pub(super) type Kinds<'a> = (&'a Schema, &'a Layers);

impl StillCells {
    /// The encoded objects of a cell in `formats`; `round` is the current one.
    pub(super) fn encode<'a>(
        &mut self,
        round: u64,
        cell: CellIndex,
        formats: FormatSet,
        kinds: Kinds<'_>,
        objects: &(impl Iterator<Item = StillObject<'a>> + Clone),
    ) -> &StillCell {
        if self.bytes > STILL_BYTES_MAX && round.saturating_sub(self.emptied_round) >= KEPT_ROUNDS {
            (self.bytes, self.emptied_round) = (0, round);
            self.cells = HashMap::default();
        }
        let has_room = self.bytes <= STILL_BYTES_MAX || self.cells.contains_key(&cell);
        if !has_room {
            self.other.encode(round, formats, kinds, objects);
            return &self.other;
        }
        let kept = self.cells.entry(cell).or_default();
        if !kept.is_current(formats, objects.clone()) {
            self.bytes -= kept.memory_bytes();
            kept.encode(round, formats, kinds, objects);
            self.bytes += kept.memory_bytes();
        }
        kept
    }

    /// The encoded objects of a cell that is not kept.
    pub(super) fn encode_once<'a>(
        &mut self,
        formats: FormatSet,
        kinds: Kinds<'_>,
        objects: &(impl Iterator<Item = StillObject<'a>> + Clone),
    ) -> &StillCell {
        self.other.encode(0, formats, kinds, objects);
        &self.other
    }

    /// Approximate memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes + self.cells.allocation_size() + self.other.memory_bytes()
    }
}

impl StillCell {
    /// Whether these are the encoded objects, and none has changed since.
    fn is_current<'a>(&self, formats: FormatSet, mut objects: impl Iterator<Item = StillObject<'a>>) -> bool {
        let mut known = self.ids.iter();
        let is_known = |object: StillObject<'_>| known.next() == Some(&object.view.id) && object.touched < self.round;
        self.formats.covers(formats) && objects.all(is_known) && known.next().is_none()
    }

    fn encode<'a>(
        &mut self,
        round: u64,
        formats: FormatSet,
        kinds: Kinds<'_>,
        objects: &(impl Iterator<Item = StillObject<'a>> + Clone),
    ) {
        (self.round, self.formats) = (round, formats);
        self.ids.clear();
        self.ids.extend(objects.clone().map(|object| object.view.id));
        self.upserts.iter_mut().for_each(Vec::clear);
        self.layers.iter_mut().for_each(Vec::clear);
        let (schema, layers) = kinds;
        for format in formats.with_objects() {
            let upserts = &mut self.upserts[format.index()];
            for layer in layers.all() {
                let mut range = upserts.len()..upserts.len();
                for object in objects.clone().filter(|object| layers.of(object.view.kind) == layer) {
                    let length = wire::write_upsert(format, schema, &object.view, upserts);
                    if range.is_empty() {
                        range.start = upserts.len() - length;
                    }
                    range.end = upserts.len();
                }
                if !layers.is_one() {
                    self.layers[format.index()].push(range);
                }
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The encoded objects of a layer, if there are several.
    pub(super) fn layer(&self, format: SnapshotFormat, layer: u8) -> &[u8] {
        let range = self.layers[format.index()].get(usize::from(layer)).cloned();
        range.and_then(|range| self.upserts[format.index()].get(range)).unwrap_or_default()
    }

    /// The encoded objects.
    pub(super) fn upserts(&self, format: SnapshotFormat) -> &[u8] {
        &self.upserts[format.index()]
    }

    fn memory_bytes(&self) -> usize {
        self.upserts.iter().map(Vec::capacity).sum::<usize>()
            + self.ids.capacity() * size_of::<ObjectId>()
            + self.layers.iter().map(Vec::capacity).sum::<usize>() * size_of::<Range<usize>>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::{
        collection::{btree_map, vec},
        prelude::*,
    };

    use super::*;

    fn both() -> FormatSet {
        FormatSet::default().with(SnapshotFormat::Json).with(SnapshotFormat::Protobuf)
    }

    fn objects<'a>(of: &'a [(u32, u32, u64)], state: &'a [u8]) -> impl Iterator<Item = StillObject<'a>> + Clone {
        of.iter().map(move |&(id, x, touched)| {
            let view = ObjectView { id: ObjectId(id), kind: 1, x, y: 0, state };
            StillObject { touched, view }
        })
    }

    fn encoded_from_scratch(of: &[(u32, u32, u64)], state: &[u8], formats: FormatSet) -> [Vec<u8>; 4] {
        let mut cell = StillCell::default();
        cell.encode(1, formats, (&Schema::new(), &Layers::default()), &objects(of, state));
        cell.upserts
    }

    /// A round: a cell, its objects with their positions, and whether JSON is the only encoding.
    type Round = (u32, BTreeMap<u32, u32>, bool);

    fn rounds() -> impl Strategy<Value = Vec<Round>> {
        vec((0..3_u32, btree_map(1..6_u32, 0..3_u32, 0..4), any::<bool>()), 1..40)
    }

    proptest! {
        /// An object whose position differs from that of the last round has been touched in this round, as in a world.
        #[test]
        fn kept_cells_equal_a_new_encoding(rounds in rounds()) {
            let mut cells = StillCells::default();
            let mut known: BTreeMap<u32, (u32, u64)> = BTreeMap::new();
            for (round, (cell, members, is_json_alone)) in (2_u64..).zip(rounds) {
                let now: Vec<_> = members.into_iter().map(|(id, x)| {
                    let touched = known.get(&id).filter(|(was, _)| *was == x).map_or(round - 1, |(_, touched)| *touched);
                    known.insert(id, (x, touched));
                    (id, x, touched)
                }).collect();
                let formats =
                    if is_json_alone { FormatSet::default().with(SnapshotFormat::Json) } else { both() };
                let kept = cells.encode(round, CellIndex(cell), formats, (&Schema::new(), &Layers::default()), &objects(&now, b"s"));
                let expected = encoded_from_scratch(&now, b"s", formats);
                for format in formats.iter() {
                    prop_assert_eq!(kept.upserts(format), &expected[format.index()]);
                }
                let bytes: usize = cells.cells.values().map(StillCell::memory_bytes).sum();
                prop_assert_eq!(cells.bytes, bytes);
            }
        }
    }

    #[test]
    fn cells_past_the_limit_are_not_kept() {
        let mut cells = StillCells::default();
        let state = vec![7; 1 << 20];
        let formats = FormatSet::default().with(SnapshotFormat::Protobuf);
        let (schema, layers) = (Schema::new(), Layers::default());
        let mut number = 0;
        while cells.bytes <= STILL_BYTES_MAX {
            cells.encode(1, CellIndex(number), formats, (&schema, &layers), &objects(&[(number + 1, 0, 0)], &state));
            number += 1;
            assert_eq!(cells.cells.len(), number as usize);
        }
        let one_more = |cells: &mut StillCells, round| {
            let kept =
                cells.encode(round, CellIndex(number), formats, (&schema, &layers), &objects(&[(9, 0, 0)], &state));
            assert_eq!(kept.upserts, encoded_from_scratch(&[(9, 0, 0)], &state, formats));
            cells.cells.len()
        };
        assert_eq!(one_more(&mut cells, 2), number as usize, "one past the limit is not kept");
        assert_eq!(one_more(&mut cells, KEPT_ROUNDS - 1), number as usize);
        assert_eq!(one_more(&mut cells, KEPT_ROUNDS), 1, "the cache was cleared for other cells");
    }
}
