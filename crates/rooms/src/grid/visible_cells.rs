//! Which cells a player sees from its viewpoint, and how often they are updated.

use super::{CellIndex, Grid};

/// How often a visible cell is updated.
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::{Band, CellIndex, Grid, GridShape};
///
/// let shape = GridShape { columns: 4, rows: 2, cell_units: 100, near_cells: 1, far_cells: 1, far_interval_ticks: 4 };
/// let grid = Grid::new(shape).expect("a possible map");
/// // A player in the first cell gets the third column every fourth tick.
/// assert_eq!(grid.band(CellIndex(0), CellIndex(1)), Some(Band::Near));
/// assert_eq!(grid.band(CellIndex(0), CellIndex(2)), Some(Band::Far));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Band {
    /// Every tick.
    Near,
    /// Every `far_interval_ticks`.
    Far,
}

impl Grid {
    /// How often `cell` is updated for a player whose viewpoint is in `view`; `None` if the cell is not visible.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::{CellIndex, Grid, GridShape};
    ///
    /// let shape = GridShape { columns: 4, rows: 2, cell_units: 100, near_cells: 1, far_cells: 1, far_interval_ticks: 4 };
    /// let grid = Grid::new(shape).expect("a possible map");
    /// assert_eq!(grid.band(CellIndex(0), CellIndex(3)), None, "out of sight");
    /// ```
    pub fn band(&self, view: CellIndex, cell: CellIndex) -> Option<Band> {
        let distance = self.distance(view, cell);
        if distance <= self.shape.near_cells {
            Some(Band::Near)
        } else if distance <= self.shape.near_cells.saturating_add(self.shape.far_cells) {
            Some(Band::Far)
        } else {
            None
        }
    }

    /// The cells between `view` and `cell`, in columns or in rows, whichever are more.
    pub(crate) fn distance(&self, view: CellIndex, cell: CellIndex) -> u16 {
        let ((left, top), (column, row)) = (self.place(view), self.place(cell));
        left.abs_diff(column).max(top.abs_diff(row))
    }

    /// The cells that are visible from a viewpoint in `view`, in ascending order.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::{Band, CellIndex, Grid, GridShape};
    ///
    /// let shape = GridShape { columns: 4, rows: 2, cell_units: 100, near_cells: 1, far_cells: 1, far_interval_ticks: 4 };
    /// let grid = Grid::new(shape).expect("a possible map");
    /// let near = grid.visible(CellIndex(0)).filter(|(_, band)| *band == Band::Near);
    /// assert_eq!(near.count(), 4, "in a corner of the map");
    /// ```
    pub fn visible(&self, view: CellIndex) -> impl Iterator<Item = (CellIndex, Band)> + '_ {
        self.visible_at(view).map(|(cell, band, _)| (cell, band))
    }

    /// As [`Grid::visible`], with the distance of each cell.
    pub(crate) fn visible_at(&self, view: CellIndex) -> impl Iterator<Item = (CellIndex, Band, u16)> + '_ {
        let (view_column, view_row) = self.place(view);
        let reach = self.shape.near_cells.saturating_add(self.shape.far_cells);
        let around = |at: u16, count: u16| at.saturating_sub(reach)..=at.saturating_add(reach).min(count - 1);
        let (columns, rows) = (around(view_column, self.shape.columns), around(view_row, self.shape.rows));
        rows.flat_map(move |row| columns.clone().map(move |column| (column, row))).map(move |(column, row)| {
            let cell = CellIndex(u32::from(row) * u32::from(self.shape.columns) + u32::from(column));
            let distance = view_column.abs_diff(column).max(view_row.abs_diff(row));
            (cell, if distance <= self.shape.near_cells { Band::Near } else { Band::Far }, distance)
        })
    }
}
