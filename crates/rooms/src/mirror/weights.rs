//! How important the objects in each cell are, by the weights of their kinds.

use hashbrown::HashMap;

use super::{HashState, ZONES, zones::zone};
use crate::{CellIndex, Grid, TickUpdate};

#[derive(Debug, Default)]
pub(super) struct Weights {
    /// Of the cells whose weight is not 1.
    cells: HashMap<CellIndex, u8, HashState>,
    /// Of the views that were asked for since the last update.
    views: HashMap<CellIndex, [u8; ZONES], HashState>,
}

impl Weights {
    pub(super) fn new(keyframe: &TickUpdate) -> Self {
        let mut weights = Self::default();
        weights.apply(keyframe);
        weights
    }

    pub(super) fn apply(&mut self, update: &TickUpdate) {
        if update.is_keyframe() {
            self.cells.clear();
        }
        self.views.clear();
        for changed in update.cells() {
            if changed.weight > 1 {
                self.cells.insert(changed.cell, changed.weight);
            } else if !self.cells.is_empty() {
                self.cells.remove(&changed.cell);
            }
        }
    }

    /// For each zone, the highest weight of its cells.
    pub(super) fn of_zones(&mut self, grid: &Grid, view: CellIndex) -> [u8; ZONES] {
        if self.cells.is_empty() {
            return [1; ZONES];
        }
        let Self { cells, views } = self;
        *views.entry(view).or_insert_with(|| {
            let mut weights = [1; ZONES];
            for (cell, _) in grid.visible(view) {
                if let (Some(weight), Some(zone)) = (cells.get(&cell), zone(grid, view, cell)) {
                    weights[zone] = weights[zone].max(*weight);
                }
            }
            weights
        })
    }
}
