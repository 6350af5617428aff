//! The grid: maps positions to cells, and viewpoints to visible cells.

mod visible_cells;

use std::fmt;

pub use visible_cells::Band;

/// A position in a world, in units from the map's corner.
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::Position;
///
/// let start = Position { x: 100, y: 20 };
/// assert_eq!(start.moved(-7, 5), Position { x: 93, y: 25 });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Position {
    /// To the right.
    pub x: u32,
    /// Downwards.
    pub y: u32,
}

impl Position {
    /// The position that is this far to the right and down. It saturates at the left and top edges of the map;
    /// [`Grid::clamp`] limits it to the other two edges, as [`World::move_to`](crate::World::move_to) does.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::Position;
    ///
    /// assert_eq!(Position { x: 5, y: 5 }.moved(10, -10), Position { x: 15, y: 0 });
    /// ```
    #[must_use]
    pub const fn moved(self, right: i32, down: i32) -> Self {
        Self { x: self.x.saturating_add_signed(right), y: self.y.saturating_add_signed(down) }
    }

    /// The squared distance to another position: dx² + dy² in square units.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::Position;
    ///
    /// /// Whether a runner touches a star.
    /// fn touches(runner: Position, star: Position) -> bool {
    ///     runner.distance_squared(star) <= 32 * 32
    /// }
    /// assert!(touches(Position { x: 100, y: 100 }, Position { x: 100, y: 132 }));
    /// assert!(!touches(Position { x: 100, y: 100 }, Position { x: 132, y: 132 }));
    /// ```
    pub const fn distance_squared(self, other: Self) -> u64 {
        let (x, y) = (self.x.abs_diff(other.x) as u64, self.y.abs_diff(other.y) as u64);
        // More than the square of any radius.
        (x * x).saturating_add(y * y)
    }
}

/// A cell's index: row by row, from the map's corner.
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::{CellIndex, Grid, GridShape};
///
/// let shape = GridShape { columns: 4, rows: 2, cell_units: 100, near_cells: 1, far_cells: 1, far_interval_ticks: 4 };
/// let grid = Grid::new(shape).expect("a possible map");
/// // The second cell of the second row.
/// assert_eq!(grid.place(CellIndex(5)), (1, 1));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CellIndex(pub u32);

/// The map of a simulation.
///
/// ```
/// use dunlin_rooms::{Grid, GridShape};
///
/// // A player sees 5 × 5 cells in each tick, and two more cells in each direction in every fourth tick.
/// let shape = GridShape { columns: 32, rows: 32, cell_units: 256, near_cells: 2, far_cells: 2, far_interval_ticks: 4 };
/// assert!(Grid::new(shape).is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridShape {
    /// Cells from left to right, at most 1,024.
    pub columns: u16,
    /// Cells from top to bottom, at most 1,024.
    pub rows: u16,
    /// A cell's side in units, at most 65,536.
    pub cell_units: u32,
    /// The number of cells that a player sees in each direction around the cell of its viewpoint: 1 means 3 × 3.
    pub near_cells: u16,
    /// The number of further cells around those, which are updated only every `far_interval_ticks`.
    pub far_cells: u16,
    /// Ticks between updates of far cells; at least 1.
    pub far_interval_ticks: u16,
}

/// A checked [`GridShape`].
///
/// ```
/// use dunlin_rooms::{CellIndex, Grid, GridShape, Position};
///
/// let shape = GridShape { columns: 4, rows: 2, cell_units: 100, near_cells: 1, far_cells: 0, far_interval_ticks: 1 };
/// let grid = Grid::new(shape).expect("a possible map");
/// assert_eq!((grid.len(), grid.size_units()), (8, (400, 200)));
/// assert_eq!(grid.clamp(Position { x: 9_999, y: 7 }), Position { x: 399, y: 7 });
/// assert_eq!(grid.cell_of(Position { x: 150, y: 150 }), CellIndex(5));
/// assert_eq!(grid.corner(CellIndex(5)), Position { x: 100, y: 100 });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    shape: GridShape,
}

/// Why a shape is invalid.
///
/// ```
/// use dunlin_rooms::{Grid, GridError, GridShape};
///
/// let shape = GridShape { columns: 0, rows: 2, cell_units: 100, near_cells: 1, far_cells: 0, far_interval_ticks: 1 };
/// assert_eq!(Grid::new(shape), Err(GridError::Cells));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GridError {
    /// No cell, or more than 1,024 in a direction.
    Cells,
    /// A cell's side is 0 or more than 65,536 units.
    CellUnits,
    /// `far_interval_ticks` is 0, or greater than the number of updates in a mirror's history.
    FarInterval,
}

/// Maximum number of cells in one direction: rows and columns fit 10 bits each.
const CELLS_MAX: u16 = 1_024;
const CELL_UNITS_MAX: u32 = 65_536;
/// The number of updates in a mirror's history: the maximum distance in ticks between a base and the newest tick.
pub(crate) const HISTORY_TICKS: u16 = 16;

impl Grid {
    /// Checks a shape.
    ///
    /// # Errors
    /// [`GridError`]
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::{Grid, GridError, GridShape};
    ///
    /// let shape = GridShape { columns: 4, rows: 2, cell_units: 0, near_cells: 1, far_cells: 0, far_interval_ticks: 1 };
    /// assert_eq!(Grid::new(shape), Err(GridError::CellUnits));
    /// ```
    pub fn new(shape: GridShape) -> Result<Self, GridError> {
        let in_bounds = |cells| (1..=CELLS_MAX).contains(&cells);
        if !in_bounds(shape.columns) || !in_bounds(shape.rows) {
            return Err(GridError::Cells);
        }
        if !(1..=CELL_UNITS_MAX).contains(&shape.cell_units) {
            return Err(GridError::CellUnits);
        }
        if !(1..HISTORY_TICKS).contains(&shape.far_interval_ticks) {
            return Err(GridError::FarInterval);
        }
        Ok(Self { shape })
    }

    /// The shape, as the simulation defined it; it never changes.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::{Grid, GridShape};
    ///
    /// let shape = GridShape { columns: 4, rows: 2, cell_units: 100, near_cells: 1, far_cells: 1, far_interval_ticks: 4 };
    /// let grid = Grid::new(shape).expect("a possible map");
    /// assert_eq!(grid.shape(), &shape);
    /// ```
    pub fn shape(&self) -> &GridShape {
        &self.shape
    }

    /// The number of cells.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::{Grid, GridShape};
    ///
    /// let shape = GridShape { columns: 4, rows: 2, cell_units: 100, near_cells: 1, far_cells: 1, far_interval_ticks: 4 };
    /// let grid = Grid::new(shape).expect("a possible map");
    /// assert_eq!(grid.len(), 8);
    /// ```
    pub fn len(&self) -> usize {
        usize::from(self.shape.columns) * usize::from(self.shape.rows)
    }

    /// Always `false`: a grid has at least one cell.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::{Grid, GridShape};
    ///
    /// let shape = GridShape { columns: 4, rows: 2, cell_units: 100, near_cells: 1, far_cells: 1, far_interval_ticks: 4 };
    /// let grid = Grid::new(shape).expect("a possible map");
    /// assert!(!grid.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The map's width and height in units.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::{Grid, GridShape};
    ///
    /// let shape = GridShape { columns: 4, rows: 2, cell_units: 100, near_cells: 1, far_cells: 1, far_interval_ticks: 4 };
    /// let grid = Grid::new(shape).expect("a possible map");
    /// assert_eq!(grid.size_units(), (400, 200));
    /// ```
    pub fn size_units(&self) -> (u32, u32) {
        let GridShape { columns, rows, cell_units, .. } = self.shape;
        (u32::from(columns) * cell_units, u32::from(rows) * cell_units)
    }

    /// The nearest position inside the map.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::{Grid, GridShape, Position};
    ///
    /// let shape = GridShape { columns: 4, rows: 2, cell_units: 100, near_cells: 1, far_cells: 1, far_interval_ticks: 4 };
    /// let grid = Grid::new(shape).expect("a possible map");
    /// assert_eq!(grid.clamp(Position { x: 9_999, y: 7 }), Position { x: 399, y: 7 });
    /// ```
    pub fn clamp(&self, position: Position) -> Position {
        let (width, height) = self.size_units();
        Position { x: position.x.min(width - 1), y: position.y.min(height - 1) }
    }

    /// The cell of a position.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::{CellIndex, Grid, GridShape, Position};
    ///
    /// let shape = GridShape { columns: 4, rows: 2, cell_units: 100, near_cells: 1, far_cells: 1, far_interval_ticks: 4 };
    /// let grid = Grid::new(shape).expect("a possible map");
    /// assert_eq!(grid.cell_of(Position { x: 150, y: 150 }), CellIndex(5));
    /// ```
    pub fn cell_of(&self, position: Position) -> CellIndex {
        let Position { x, y } = self.clamp(position);
        CellIndex(y / self.shape.cell_units * u32::from(self.shape.columns) + x / self.shape.cell_units)
    }

    /// A cell's column and row.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::{CellIndex, Grid, GridShape};
    ///
    /// let shape = GridShape { columns: 4, rows: 2, cell_units: 100, near_cells: 1, far_cells: 1, far_interval_ticks: 4 };
    /// let grid = Grid::new(shape).expect("a possible map");
    /// assert_eq!(grid.place(CellIndex(6)), (2, 1));
    /// ```
    pub fn place(&self, cell: CellIndex) -> (u16, u16) {
        let columns = u32::from(self.shape.columns);
        ((cell.0 % columns) as u16, (cell.0 / columns) as u16)
    }

    /// A cell's corner.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::{CellIndex, Grid, GridShape, Position};
    ///
    /// let shape = GridShape { columns: 4, rows: 2, cell_units: 100, near_cells: 1, far_cells: 1, far_interval_ticks: 4 };
    /// let grid = Grid::new(shape).expect("a possible map");
    /// assert_eq!(grid.corner(CellIndex(5)), Position { x: 100, y: 100 });
    /// ```
    pub fn corner(&self, cell: CellIndex) -> Position {
        let (column, row) = self.place(cell);
        Position { x: u32::from(column) * self.shape.cell_units, y: u32::from(row) * self.shape.cell_units }
    }
}

impl fmt::Display for GridError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cells => "a grid has 1 to 1,024 columns and rows",
            Self::CellUnits => "a cell's side has 1 to 65,536 units",
            Self::FarInterval => "far cells are updated every 1 to 15 ticks",
        })
    }
}

impl std::error::Error for GridError {}

#[cfg(test)]
mod tests;
