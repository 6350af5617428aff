//! The movement of players. It uses only integers, so that clients can compute the same: `docs/rooms.md` contains the
//! formulas.

use dunlin_rooms::{Grid, Position};

/// Full speed in units per second.
pub const SPEED: u32 = 640;

/// A component of [`Velocity`] at full speed.
const FULL: i32 = 127;

/// Direction × speed; its length never exceeds full speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Velocity {
    /// To the right.
    pub x: i8,
    /// Downwards.
    pub y: i8,
}

impl Velocity {
    /// Standing.
    pub const NONE: Self = Self { x: 0, y: 0 };

    /// The velocity that an input requests, limited to the maximum speed: clients cannot exceed it.
    pub fn of_input(dx: i8, dy: i8) -> Self {
        let (dx, dy) = (i32::from(dx), i32::from(dy));
        let square = dx * dx + dy * dy;
        if square <= FULL * FULL {
            return Self { x: dx as i8, y: dy as i8 };
        }
        // The square root plus one, so that rounding never makes the result too long.
        let length = square.isqrt() + 1;
        Self { x: (dx * FULL / length) as i8, y: (dy * FULL / length) as i8 }
    }

    /// The position after a step in `tick`.
    pub fn step(self, from: Position, tick: u32, ticks_per_second: u32, grid: &Grid) -> Position {
        let (width, height) = grid.size_units();
        let moved = |at: u32, component: i8, size: u32| {
            let step = way(component, tick, ticks_per_second) - way(component, tick - 1, ticks_per_second);
            at.saturating_add_signed(step as i32).min(size - 1)
        };
        Position { x: moved(from.x, self.x, width), y: moved(from.y, self.y, height) }
    }
}

/// The distance that a velocity covers up to a tick. The remainder depends on the tick rather than on the player, so it
/// need not be stored or sent.
fn way(component: i8, tick: u32, ticks_per_second: u32) -> i64 {
    let way = i64::from(component) * i64::from(SPEED) * i64::from(tick);
    way.div_euclid(i64::from(FULL) * i64::from(ticks_per_second))
}

#[cfg(test)]
mod tests {
    use dunlin_rooms::GridShape;

    use super::*;

    fn grid() -> Grid {
        let shape =
            GridShape { columns: 64, rows: 32, cell_units: 512, near_cells: 3, far_cells: 1, far_interval_ticks: 6 };
        Grid::new(shape).expect("possible")
    }

    #[test]
    fn no_input_leads_beyond_full_speed() {
        for dx in i8::MIN..=i8::MAX {
            for dy in i8::MIN..=i8::MAX {
                let Velocity { x, y } = Velocity::of_input(dx, dy);
                let square = |x: i8, y: i8| i32::from(x).pow(2) + i32::from(y).pow(2);
                assert!(square(x, y) <= FULL * FULL, "{dx} {dy}: {x} {y}");
                if square(dx, dy) <= FULL * FULL {
                    assert_eq!((x, y), (dx, dy));
                } else {
                    // The result is not shortened by more than the rounding.
                    assert!(square(x, y) >= 124 * 124, "{dx} {dy}: {x} {y}");
                }
            }
        }
    }

    #[test]
    fn a_second_at_full_speed_is_640_units_at_any_tick_rate() {
        for ticks_per_second in [1, 7, 20, 60, 240] {
            for first in [1, 2, 59, 1_000_001, u32::MAX - 240] {
                let velocity = Velocity { x: 127, y: -63 };
                let start = Position { x: 10_000, y: 10_000 };
                let end = (first..first + ticks_per_second)
                    .fold(start, |from, tick| velocity.step(from, tick, ticks_per_second, &grid()));
                assert_eq!(end.x, 10_640);
                assert!((9_682..=9_683).contains(&end.y), "{end:?}");
            }
        }
    }

    #[test]
    fn opposite_directions_differ_by_rounding_alone() {
        let (there, back) = (Velocity::of_input(100, 0), Velocity::of_input(-100, 0));
        let start = Position { x: 1_000, y: 0 };
        let there = (1..=60).fold(start, |from, tick| there.step(from, tick, 60, &grid()));
        let end = (61..=120).fold(there, |from, tick| back.step(from, tick, 60, &grid()));
        assert!(end.x.abs_diff(1_000) <= 1, "{end:?}");
    }

    #[test]
    fn the_map_ends_at_its_edges() {
        let corner = Position { x: 64 * 512 - 1, y: 32 * 512 - 1 };
        assert_eq!(Velocity { x: 90, y: 89 }.step(corner, 1, 1, &grid()), corner);
        assert_eq!(Velocity { x: -90, y: -89 }.step(Position::default(), 1, 1, &grid()), Position::default());
        // At an edge, a player slides along it.
        let slid = Velocity { x: 90, y: 89 }.step(Position { x: 0, y: corner.y }, 1, 1, &grid());
        assert_eq!(slid, Position { x: 453, y: corner.y });
    }
}
