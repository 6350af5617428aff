//! What one tick changed, encoded once and shared by everyone.

use dunlin_protocol::Encoding;

use crate::{CellIndex, Grid, ObjectId};

/// Some of the encodings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodingSet([bool; Encoding::ALL.len()]);

impl EncodingSet {
    /// With `encoding`.
    #[must_use]
    pub fn with(mut self, encoding: Encoding) -> Self {
        self.0[encoding.index()] = true;
        self
    }

    /// Whether `encoding` is one of them.
    pub fn contains(self, encoding: Encoding) -> bool {
        self.0[encoding.index()]
    }

    /// Whether all of `other` are among them.
    pub fn covers(self, other: Self) -> bool {
        Encoding::ALL.into_iter().all(|encoding| self.contains(encoding) || !other.contains(encoding))
    }
}

/// An object as clients are told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectView<'a> {
    /// Its number.
    pub id: ObjectId,
    /// What it is.
    pub kind: u16,
    /// Units from its cell's corner to the right.
    pub x: u32,
    /// Units from its cell's corner downwards.
    pub y: u32,
    /// The rest.
    pub state: &'a [u8],
}

/// What one tick changed: for each changed cell a delta segment against the tick before, and a full segment. Or a
/// keyframe: full segments of all cells that are not empty.
#[derive(Debug)]
pub struct TickUpdate {
    _todo: (),
}

/// Makes a [`TickUpdate`]. Its scratch memory is kept between ticks.
#[derive(Debug, Default)]
pub struct UpdateWriter {
    _todo: (),
}

impl TickUpdate {
    /// The tick after which the world is like this.
    pub fn tick(&self) -> u32 {
        todo!()
    }

    /// The Unix time that clients are told.
    pub fn time_us(&self) -> u64 {
        todo!()
    }

    /// Whether it is a keyframe.
    pub fn is_keyframe(&self) -> bool {
        todo!()
    }

    /// In which encodings it is.
    pub fn encodings(&self) -> EncodingSet {
        todo!()
    }

    /// How many cells it is about.
    pub fn cell_count(&self) -> usize {
        todo!()
    }
}

impl UpdateWriter {
    /// Begins an update.
    pub fn begin(&mut self, tick: u32, time_us: u64, encodings: EncodingSet, is_keyframe: bool) {
        let _ = (tick, time_us, encodings, is_keyframe);
        todo!()
    }

    /// Adds a cell; to be called in ascending order. `changed` are the objects of `full` that are new or different in this
    /// tick, those included that came from another cell; `departed` those that were here after the last tick and are not now.
    pub fn cell<'a>(
        &mut self,
        cell: CellIndex,
        changed: impl Iterator<Item = ObjectView<'a>>,
        departed: impl Iterator<Item = ObjectId>,
        full: impl Iterator<Item = ObjectView<'a>>,
    ) {
        let _ = (cell, changed.count(), departed.count(), full.count());
        todo!()
    }

    /// The finished update. Cells that are not on `grid` are left out.
    pub fn finish(&mut self, grid: &Grid) -> TickUpdate {
        let _ = grid;
        todo!()
    }
}
