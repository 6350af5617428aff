use proptest::prelude::*;

use super::*;

const SHAPE: GridShape =
    GridShape { columns: 8, rows: 6, cell_units: 10, near_cells: 1, far_cells: 2, far_interval_ticks: 4 };

fn grid(shape: GridShape) -> Grid {
    Grid::new(shape).expect("a map")
}

fn at(x: u32, y: u32) -> Position {
    Position { x, y }
}

#[test]
fn grid_shapes_are_limited() {
    let cases = [
        (GridShape { columns: 0, ..SHAPE }, Some(GridError::Cells)),
        (GridShape { columns: 1, rows: 1, ..SHAPE }, None),
        (GridShape { rows: 0, ..SHAPE }, Some(GridError::Cells)),
        (GridShape { columns: 1_024, rows: 1_024, cell_units: 65_536, ..SHAPE }, None),
        (GridShape { columns: 1_025, ..SHAPE }, Some(GridError::Cells)),
        (GridShape { rows: 1_025, ..SHAPE }, Some(GridError::Cells)),
        (GridShape { cell_units: 0, ..SHAPE }, Some(GridError::CellUnits)),
        (GridShape { cell_units: 65_537, ..SHAPE }, Some(GridError::CellUnits)),
        (GridShape { far_interval_ticks: 0, ..SHAPE }, Some(GridError::FarInterval)),
        (GridShape { far_interval_ticks: 1, ..SHAPE }, None),
        (GridShape { far_interval_ticks: 15, ..SHAPE }, None),
        (GridShape { far_interval_ticks: 16, ..SHAPE }, Some(GridError::FarInterval)),
        (GridShape { near_cells: u16::MAX, far_cells: u16::MAX, ..SHAPE }, None),
    ];
    for (shape, expected) in cases {
        assert_eq!(Grid::new(shape).err(), expected, "{shape:?}");
    }
}

#[test]
fn positions_map_to_cells_and_back() {
    let grid = grid(SHAPE);
    assert_eq!((grid.len(), grid.size_units()), (48, (80, 60)));
    let cases = [
        (at(0, 0), 0, at(0, 0)),
        (at(9, 9), 0, at(0, 0)),
        (at(10, 9), 1, at(10, 0)),
        (at(9, 10), 8, at(0, 10)),
        (at(79, 59), 47, at(70, 50)),
        (at(80, 0), 7, at(70, 0)),
        (at(0, u32::MAX), 40, at(0, 50)),
    ];
    for (position, cell, corner) in cases {
        assert_eq!(grid.cell_of(position), CellIndex(cell), "{position:?}");
        assert_eq!(grid.corner(CellIndex(cell)), corner, "{position:?}");
    }
}

#[test]
fn a_view_ends_at_the_edge_of_the_map() {
    let grid = grid(SHAPE);
    let seen = |view| grid.visible(CellIndex(view)).collect::<Vec<_>>();
    // From the corner: two near columns and rows, four in total.
    let corner = seen(0);
    assert_eq!(corner.len(), 16);
    let near: Vec<u32> = corner.iter().filter(|(_, band)| *band == Band::Near).map(|(cell, _)| cell.0).collect();
    assert_eq!(near, [0, 1, 8, 9]);
    assert_eq!(seen(47).len(), 16);
    // From the fourth column and row: all rows, and seven columns.
    assert_eq!(seen(27).len(), 7 * 6);
    let everything = self::grid(GridShape { near_cells: u16::MAX, far_cells: u16::MAX, ..SHAPE });
    assert!(everything.visible(CellIndex(13)).all(|(_, band)| band == Band::Near));
    assert_eq!(everything.visible(CellIndex(13)).count(), 48);
}

proptest! {
    #[test]
    fn exactly_the_visible_cells_have_a_band(
        columns in 1..12u16, rows in 1..12u16, near_cells in 0..5u16, far_cells in 0..5u16, view in any::<prop::sample::Index>(),
    ) {
        let grid = grid(GridShape { columns, rows, near_cells, far_cells, ..SHAPE });
        let view = CellIndex(view.index(grid.len()) as u32);
        let visible: Vec<(CellIndex, Band)> = grid.visible(view).collect();
        let all = (0..grid.len() as u32).map(CellIndex);
        let expected: Vec<(CellIndex, Band)> = all.filter_map(|cell| Some((cell, grid.band(view, cell)?))).collect();
        prop_assert_eq!(visible, expected);
    }

    #[test]
    fn a_position_is_inside_its_cell(
        columns in 1..=1_024u16, rows in 1..=1_024u16, cell_units in 1..=65_536u32, x in any::<u32>(), y in any::<u32>(),
    ) {
        let grid = grid(GridShape { columns, rows, cell_units, ..SHAPE });
        let place = grid.clamp(at(x, y));
        let cell = grid.cell_of(at(x, y));
        prop_assert_eq!(cell, grid.cell_of(place));
        prop_assert!((cell.0 as usize) < grid.len());
        let corner = grid.corner(cell);
        prop_assert!(place.x - corner.x < cell_units && place.y - corner.y < cell_units);
    }
}
