//! How important the objects in each cell are, by the weights of their kinds.
//!
//! Most heavy objects stay in their cells from one tick to the next. So the weights of a view's zones are kept while players
//! ask for them, and changed with the cells whose weight has changed. All cells of a view are only looked at when it is new, and
//! when the weight that gave a zone its maximum is gone.

use hashbrown::HashMap;

use super::{HashState, ZONES, zones::zone};
use crate::{CellIndex, Grid, TickUpdate};

#[derive(Debug, Default)]
pub(super) struct Weights {
    /// Of the cells whose weight is not 1.
    cells: HashMap<CellIndex, u8, HashState>,
    /// The views that were asked for since the last update but one. So there are at most two for each player.
    views: HashMap<CellIndex, ViewWeights, HashState>,
    /// How often a cell was looked at for a view.
    weighed_cells: u64,
    /// A buffer.
    changes: Vec<Change>,
}

/// The zones of a view.
#[derive(Debug)]
struct ViewWeights {
    /// For each, the highest weight of its cells; `None` if it has to be looked for.
    by_zone: Option<[u8; ZONES]>,
    was_asked_for: bool,
}

/// The weight of a cell is another one.
#[derive(Clone, Copy, Debug)]
struct Change {
    cell: CellIndex,
    before: u8,
    now: u8,
}

impl Weights {
    pub(super) fn new(grid: &Grid, keyframe: &TickUpdate) -> Self {
        let mut weights = Self::default();
        weights.apply(grid, keyframe);
        weights
    }

    pub(super) fn apply(&mut self, grid: &Grid, update: &TickUpdate) {
        if update.is_keyframe() {
            self.cells.clear();
            self.views.clear();
        }
        self.changes.clear();
        for changed in update.cells() {
            let (cell, now) = (changed.cell, changed.weight);
            let before = match now {
                1 if self.cells.is_empty() => None,
                1 => self.cells.remove(&cell),
                _ => self.cells.insert(cell, now),
            };
            let before = before.unwrap_or(1);
            if before != now {
                self.changes.push(Change { cell, before, now });
            }
        }
        self.views.retain(|_, view| std::mem::take(&mut view.was_asked_for));
        // Rather than at more changes than a view has cells, its cells are looked at.
        let are_few = self.changes.len() <= view_cells_max(grid);
        for (view, weights) in &mut self.views {
            weights.by_zone = weights.by_zone.filter(|_| are_few);
            for change in &self.changes {
                let Some(by_zone) = weights.by_zone else { break };
                self.weighed_cells += 1;
                weights.by_zone = changed(by_zone, zone(grid, *view, change.cell), *change);
            }
        }
    }

    /// For each zone, the highest weight of its cells.
    pub(super) fn of_zones(&mut self, grid: &Grid, view: CellIndex) -> [u8; ZONES] {
        if self.cells.is_empty() {
            return [1; ZONES];
        }
        let Self { cells, views, weighed_cells, .. } = self;
        let known = views.entry(view).or_insert(ViewWeights { by_zone: None, was_asked_for: true });
        known.was_asked_for = true;
        *known.by_zone.get_or_insert_with(|| {
            let mut by_zone = [1; ZONES];
            for (cell, _) in grid.visible(view) {
                *weighed_cells += 1;
                if let (Some(weight), Some(zone)) = (cells.get(&cell), zone(grid, view, cell)) {
                    by_zone[zone] = by_zone[zone].max(*weight);
                }
            }
            by_zone
        })
    }

    pub(super) fn weighed_cells(&self) -> u64 {
        self.weighed_cells
    }
}

/// The maxima after a change in a zone. `None` if they are not known: another cell may have the weight that is gone.
fn changed(mut by_zone: [u8; ZONES], zone: Option<usize>, change: Change) -> Option<[u8; ZONES]> {
    let Some(max) = zone.map(|zone| &mut by_zone[zone]) else { return Some(by_zone) };
    let is_known = change.now >= *max || change.before < *max;
    *max = change.now.max(*max);
    is_known.then_some(by_zone)
}

/// The cells of a view in the middle of the map.
fn view_cells_max(grid: &Grid) -> usize {
    let shape = grid.shape();
    let side = 2 * (usize::from(shape.near_cells) + usize::from(shape.far_cells)) + 1;
    (side * side).min(grid.len())
}
