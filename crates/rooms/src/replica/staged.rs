//! A decoded snapshot that is not applied yet.

use std::ops::Range;

use dunlin_protocol::Encoding;

use super::{ReplicaError, json, protobuf, seen_objects::SeenObjects};
use crate::{
    CellIndex, ClockRate, Grid, GridShape, Schema,
    wire::{ChangeReader, KnownObject, ObjectBefore},
};

/// The lists are flat, and reused for the next snapshot.
#[derive(Debug, Default)]
pub(super) struct Staged {
    pub(super) ack: u32,
    pub(super) avatar: u32,
    pub(super) tick: u32,
    pub(super) base: u32,
    pub(super) time_us: u64,
    pub(super) rate: ClockRate,
    pub(super) waited: u32,
    pub(super) moved: bool,
    pub(super) view: u32,
    pub(super) grid: Option<StagedGrid>,
    /// Whether the snapshot contains the player's own objects.
    pub(super) has_own: bool,
    pub(super) own: Vec<StagedObject>,
    pub(super) cells: Vec<StagedCell>,
    /// Departed objects of all cells, in order.
    pub(super) departed: Vec<u32>,
    /// Updated objects of all cells, in order.
    pub(super) upserts: Vec<StagedObject>,
    /// Changed objects of all cells, in order, with all that the client knows of them.
    pub(super) changed: Vec<StagedObject>,
    /// The schema, if the snapshot contains it.
    pub(super) schema: Option<Schema>,
    /// Decoded states that are not contained in the snapshot as plain bytes.
    pub(super) states: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct StagedGrid {
    pub(super) shape: GridShape,
    pub(super) ticks_per_second: u32,
}

/// A cell's part of each list begins where that of the previous cell ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct StagedCell {
    pub(super) cell: u32,
    pub(super) is_full: bool,
    pub(super) departed_end: usize,
    pub(super) upserts_end: usize,
    /// The range of its changes in the snapshot, and the end of its part of the changed objects.
    pub(super) changes: (usize, usize),
    pub(super) changed_end: usize,
}

#[derive(Clone, Debug, Default)]
pub(super) struct StagedObject {
    pub(super) id: u32,
    pub(super) kind: u16,
    pub(super) x: u32,
    pub(super) y: u32,
    /// The range of its state in the snapshot, or in the decoded states.
    pub(super) state: Range<usize>,
    pub(super) is_decoded: bool,
}

/// The bytes that contain the states of staged objects.
#[derive(Clone, Copy)]
pub(super) struct StagedStates<'a> {
    received: &'a [u8],
    decoded: &'a [u8],
}

impl<'a> StagedStates<'a> {
    pub(super) fn of(&self, object: &StagedObject) -> &'a [u8] {
        let bytes = if object.is_decoded { self.decoded } else { self.received };
        bytes.get(object.state.clone()).unwrap_or_default()
    }
}

/// What one cell of a snapshot says.
pub(super) struct CellParts<'a> {
    pub(super) cell: &'a StagedCell,
    pub(super) departed: &'a [u32],
    pub(super) upserts: &'a [StagedObject],
    pub(super) changed: &'a [StagedObject],
}

/// The fields of a map as received: columns, rows, cell units, near and far cells, far interval, ticks per second.
pub(super) type GridNumbers = [u32; 7];

impl Staged {
    /// Decodes a snapshot.
    pub(super) fn read(&mut self, encoding: Encoding, data: &[u8], schema: &Schema) -> Result<(), ReplicaError> {
        self.clear();
        let outcome = match encoding {
            Encoding::Json => json::read(data, schema, self),
            Encoding::Protobuf => protobuf::read(data, self),
        };
        outcome.ok_or(ReplicaError::Malformed)
    }

    fn clear(&mut self) {
        let Self { own, cells, departed, upserts, changed, states, .. } = std::mem::take(self);
        *self = Self { own, cells, departed, upserts, changed, states, ..Self::default() };
        self.own.clear();
        self.cells.clear();
        self.departed.clear();
        self.upserts.clear();
        self.changed.clear();
        self.states.clear();
    }

    /// The bytes that contain the objects' states, for a snapshot that was read from `data`.
    pub(super) fn states<'a>(&'a self, data: &'a [u8]) -> StagedStates<'a> {
        StagedStates { received: data, decoded: &self.states }
    }

    /// Decodes the changes of objects, which are those of the objects in `base`. `data` is the snapshot.
    pub(super) fn read_changes(&mut self, data: &[u8], base: &ChangesBase<'_>) -> Result<(), ReplicaError> {
        for cell in &mut self.cells {
            let (start, end) = cell.changes;
            let bytes = data.get(start..end).unwrap_or_default();
            if !bytes.is_empty() {
                // The objects of a full cell are all in it as a whole.
                if cell.is_full || cell.cell as usize >= base.grid.len() {
                    return Err(ReplicaError::Malformed);
                }
                read_cell_changes(bytes, CellIndex(cell.cell), base, (&mut self.changed, &mut self.states))?;
            }
            cell.changed_end = self.changed.len();
        }
        Ok(())
    }

    pub(super) fn set_grid(&mut self, numbers: GridNumbers) -> Option<()> {
        let [columns, rows, cell_units, near_cells, far_cells, far_interval_ticks, ticks_per_second] = numbers;
        let shape = GridShape {
            columns: columns.try_into().ok()?,
            rows: rows.try_into().ok()?,
            cell_units,
            near_cells: near_cells.try_into().ok()?,
            far_cells: far_cells.try_into().ok()?,
            far_interval_ticks: far_interval_ticks.try_into().ok()?,
        };
        self.grid = Some(StagedGrid { shape, ticks_per_second });
        Some(())
    }

    /// Ends a cell: everything added to the lists since the previous one belongs to it.
    pub(super) fn push_cell(&mut self, cell: u32, is_full: bool, changes: (usize, usize)) {
        let (departed_end, upserts_end) = (self.departed.len(), self.upserts.len());
        let cell = StagedCell { cell, is_full, departed_end, upserts_end, changes, changed_end: 0 };
        self.cells.push(cell);
    }

    /// What each cell says.
    pub(super) fn cells(&self) -> impl Iterator<Item = CellParts<'_>> {
        let (mut departed_start, mut upserts_start, mut changed_start) = (0, 0, 0);
        self.cells.iter().map(move |cell| {
            let parts = CellParts {
                cell,
                departed: &self.departed[departed_start..cell.departed_end],
                upserts: &self.upserts[upserts_start..cell.upserts_end],
                changed: &self.changed[changed_start..cell.changed_end],
            };
            (departed_start, upserts_start, changed_start) = (cell.departed_end, cell.upserts_end, cell.changed_end);
            parts
        })
    }
}

/// What changes build on, and how long the states may be that they lead to.
pub(super) struct ChangesBase<'a> {
    pub(super) seen: &'a SeenObjects,
    pub(super) schema: &'a Schema,
    pub(super) grid: &'a Grid,
    pub(super) state_bytes_max: usize,
}

/// Decodes the changes of a cell into lists of objects and of their states.
fn read_cell_changes(
    bytes: &[u8],
    cell: CellIndex,
    base: &ChangesBase<'_>,
    (changed, states): (&mut Vec<StagedObject>, &mut Vec<u8>),
) -> Result<(), ReplicaError> {
    let ChangesBase { seen, schema, grid, state_bytes_max } = *base;
    let corner = grid.corner(cell);
    let known = |id| {
        let object = seen.get(id).filter(|object| object.cell == Some(cell))?;
        let (x, y) = (object.position.x - corner.x, object.position.y - corner.y);
        Some(KnownObject { kind: object.kind, before: ObjectBefore { x, y, state: &object.state } })
    };
    let mut reader = ChangeReader::new(bytes, schema, grid.shape().cell_units).ok_or(ReplicaError::Malformed)?;
    while reader.has_next() {
        let start = states.len();
        let object = reader.next(known, states).ok_or(ReplicaError::Malformed)?;
        // Here and not behind the last change: a few bits may be a long state, and the snapshot says how many there are.
        if states.len() > state_bytes_max {
            return Err(ReplicaError::TooLarge);
        }
        let state = start..states.len();
        let (id, kind, x, y) = (object.id.0, object.kind, object.x, object.y);
        changed.push(StagedObject { id, kind, x, y, state, is_decoded: true });
    }
    if reader.is_finished() { Ok(()) } else { Err(ReplicaError::Malformed) }
}
