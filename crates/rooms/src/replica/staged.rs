//! A decoded snapshot that is not applied yet.

use std::ops::Range;

use dunlin_protocol::Encoding;

use super::{ReplicaError, json, protobuf};
use crate::GridShape;

/// The lists are flat, and reused for the next snapshot.
#[derive(Debug, Default)]
pub(super) struct Staged {
    pub(super) ack: u32,
    pub(super) avatar: u32,
    pub(super) tick: u32,
    pub(super) base: u32,
    pub(super) time_us: u64,
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
}

#[derive(Clone, Debug, Default)]
pub(super) struct StagedObject {
    pub(super) id: u32,
    pub(super) kind: u16,
    pub(super) x: u32,
    pub(super) y: u32,
    /// The range of its state, in the bytes that [`Staged::states`] returns.
    pub(super) state: Range<usize>,
}

/// The fields of a map as received: columns, rows, cell units, near and far cells, far interval, ticks per second.
pub(super) type GridNumbers = [u32; 7];

impl Staged {
    /// Decodes a snapshot.
    pub(super) fn read(&mut self, encoding: Encoding, data: &[u8]) -> Result<(), ReplicaError> {
        self.clear();
        let outcome = match encoding {
            Encoding::Json => json::read(data, self),
            Encoding::Protobuf => protobuf::read(data, self),
        };
        outcome.ok_or(ReplicaError::Malformed)
    }

    fn clear(&mut self) {
        let Self { own, cells, departed, upserts, states, .. } = std::mem::take(self);
        *self = Self { own, cells, departed, upserts, states, ..Self::default() };
        self.own.clear();
        self.cells.clear();
        self.departed.clear();
        self.upserts.clear();
        self.states.clear();
    }

    /// The bytes that contain the objects' states, for a snapshot that was read from `data`.
    pub(super) fn states<'a>(&'a self, encoding: Encoding, data: &'a [u8]) -> &'a [u8] {
        match encoding {
            Encoding::Json => &self.states,
            Encoding::Protobuf => data,
        }
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
    pub(super) fn push_cell(&mut self, cell: u32, is_full: bool) {
        let (departed_end, upserts_end) = (self.departed.len(), self.upserts.len());
        self.cells.push(StagedCell { cell, is_full, departed_end, upserts_end });
    }

    /// Each cell with its departed and its upserted objects.
    pub(super) fn cells(&self) -> impl Iterator<Item = (&StagedCell, &[u32], &[StagedObject])> {
        let (mut departed_start, mut upserts_start) = (0, 0);
        self.cells.iter().map(move |cell| {
            let departed = &self.departed[departed_start..cell.departed_end];
            let upserts = &self.upserts[upserts_start..cell.upserts_end];
            (departed_start, upserts_start) = (cell.departed_end, cell.upserts_end);
            (cell, departed, upserts)
        })
    }
}
