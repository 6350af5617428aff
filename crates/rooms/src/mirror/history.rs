//! The last updates of a room, and the latest full segment of every cell with objects.

use std::{collections::VecDeque, sync::Arc};

use hashbrown::HashMap;

use super::HashState;
use crate::{
    CellIndex, SnapshotFormat, TickUpdate,
    grid::HISTORY_TICKS,
    tick_update::FullSegment,
    wire::{self, SegmentHead},
};

#[derive(Debug)]
pub(super) struct History {
    /// Dropped when no cell refers to it, to free its memory.
    keyframe: Option<Arc<TickUpdate>>,
    /// Cells of the keyframe before this index no longer refer to it.
    keyframe_left: usize,
    /// In ascending order, all after the keyframe.
    updates: VecDeque<Arc<TickUpdate>>,
    /// The number of updates before the first of `updates`.
    forgotten: u64,
    /// The tick before the first of `updates`: changes since an earlier tick are no longer known.
    floor: u32,
    cells: HashMap<CellIndex, Full, HashState>,
}

/// Maximum number of keyframe cells that a tick copies, so that no tick copies a whole world.
const KEYFRAME_CELLS_PER_TICK: usize = 64;

/// The location of a cell's full segment.
#[derive(Debug)]
enum Full {
    /// At an index in the keyframe.
    Keyframe(usize),
    /// In the update with this number, counted since the mirror was created.
    Update { number: u64, place: usize },
    /// A copy, made when the update was dropped: a quiet cell must not keep all other changes of its update in memory.
    /// Boxed: there is one of these entries for each cell that is not empty.
    Copied(Box<[CopiedSegment; SnapshotFormat::ALL.len()]>),
}

#[derive(Debug, Default)]
struct CopiedSegment {
    bytes: Box<[u8]>,
    /// See [`FullSegment`].
    ends: Box<[usize]>,
}

impl History {
    pub(super) fn new(keyframe: Arc<TickUpdate>) -> Self {
        let mut history = Self {
            keyframe: None,
            keyframe_left: 0,
            updates: VecDeque::with_capacity(HISTORY_TICKS.into()),
            forgotten: 0,
            floor: 0,
            cells: HashMap::default(),
        };
        history.begin(keyframe);
        history
    }

    fn begin(&mut self, keyframe: Arc<TickUpdate>) {
        self.forgotten += self.updates.len() as u64;
        self.updates.clear();
        self.floor = keyframe.tick();
        self.cells.clear();
        let occupied = keyframe.cells().iter().enumerate().filter(|(_, changed)| !changed.is_empty);
        self.cells.extend(occupied.map(|(place, changed)| (changed.cell, Full::Keyframe(place))));
        (self.keyframe, self.keyframe_left) = (Some(keyframe), 0);
    }

    pub(super) fn apply(&mut self, update: Arc<TickUpdate>) {
        if update.is_keyframe() {
            self.begin(update);
            return;
        }
        if self.updates.len() >= usize::from(HISTORY_TICKS) {
            self.forget_oldest();
        }
        let number = self.forgotten + self.updates.len() as u64;
        for (place, changed) in update.cells().iter().enumerate() {
            if changed.is_empty {
                self.cells.remove(&changed.cell);
            } else {
                self.cells.insert(changed.cell, Full::Update { number, place });
            }
        }
        self.updates.push_back(update);
    }

    fn forget_oldest(&mut self) {
        let Some(oldest) = self.updates.pop_front() else { return };
        for (place, changed) in oldest.cells().iter().enumerate() {
            if let Some(full) = self.cells.get_mut(&changed.cell)
                && matches!(full, Full::Update { number, .. } if *number == self.forgotten)
            {
                *full = Full::Copied(Box::new(copied(&oldest, place)));
            }
        }
        self.forgotten += 1;
        self.floor = oldest.tick();
        self.leave_keyframe();
    }

    /// Copies the cells that have not changed since the keyframe, some at a time, and drops the keyframe after the
    /// last.
    fn leave_keyframe(&mut self) {
        let Some(keyframe) = self.keyframe.take() else { return };
        let end = keyframe.cells().len().min(self.keyframe_left + KEYFRAME_CELLS_PER_TICK);
        for place in self.keyframe_left..end {
            if let Some(full) = self.cells.get_mut(&keyframe.cells()[place].cell)
                && matches!(full, Full::Keyframe(_))
            {
                *full = Full::Copied(Box::new(copied(&keyframe, place)));
            }
        }
        self.keyframe_left = end;
        if end < keyframe.cells().len() {
            self.keyframe = Some(keyframe);
        }
    }

    /// The last update, or the keyframe.
    pub(super) fn latest(&self) -> &TickUpdate {
        let latest = self.updates.back().or(self.keyframe.as_ref());
        latest.expect("the keyframe is there until there are updates")
    }

    /// Whether the changes since `tick` are known.
    pub(super) fn reaches(&self, tick: u32) -> bool {
        self.floor <= tick
    }

    /// The updates after `tick`, in ascending order.
    pub(super) fn after(&self, tick: u32) -> impl DoubleEndedIterator<Item = &TickUpdate> + ExactSizeIterator {
        let first = self.updates.partition_point(|update| update.tick() <= tick);
        self.updates.range(first..).map(|update| &**update)
    }

    /// The full segment of a cell; `None` if it is empty.
    pub(super) fn full(&self, format: SnapshotFormat, cell: CellIndex) -> Option<FullSegment<'_>> {
        Some(match self.cells.get(&cell)? {
            Full::Keyframe(place) => self.keyframe.as_ref()?.full(format, *place),
            Full::Update { number, place } => {
                let index = number.checked_sub(self.forgotten)?;
                self.updates.get(index as usize)?.full(format, *place)
            }
            Full::Copied(segments) => {
                let CopiedSegment { bytes, ends } = &segments[format.objects().index()];
                FullSegment { bytes, ends }
            }
        })
    }

    /// Appends the first `depth` layers of a cell of which a client has nothing.
    pub(super) fn write_new(&self, format: SnapshotFormat, cell: CellIndex, depth: u8, out: &mut Vec<u8>) {
        if let Some(full) = self.full(format, cell) {
            full.write(format, cell, depth, false, out);
        }
    }

    /// Appends the first `depth` layers of a cell even if they have no objects, for a client that may have some.
    pub(super) fn write_known(&self, format: SnapshotFormat, cell: CellIndex, depth: u8, out: &mut Vec<u8>) {
        if let Some(full) = self.full(format, cell) {
            full.write(format, cell, depth, true, out);
        } else {
            let head = SegmentHead { cell, is_full: true, departed: &[], changes: &[] };
            wire::write_segment(format, &head, &[], out);
        }
    }
}

/// A cell's full segments, each once.
fn copied(update: &TickUpdate, place: usize) -> [CopiedSegment; SnapshotFormat::ALL.len()] {
    SnapshotFormat::ALL.map(|format| {
        if format.objects() != format {
            return CopiedSegment::default();
        }
        let FullSegment { bytes, ends } = update.full(format, place);
        CopiedSegment { bytes: bytes.into(), ends: ends.into() }
    })
}
