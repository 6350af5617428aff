//! Finds objects by distance, with the grid.

use super::{Object, objects::Objects};
use crate::{CellIndex, Grid, ObjectId, Position};

/// An object within the radius around a position.
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::{Neighbour, Position, World};
///
/// /// The damage of a blast: the nearer, the more.
/// fn damage(world: &World, blast: Position) -> u64 {
///     let one = |Neighbour { distance_squared, .. }: Neighbour<'_>| 100 * 100 - distance_squared;
///     world.near(blast, 100).map(one).sum()
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour<'a> {
    /// The object's id.
    pub id: ObjectId,
    /// dx² + dy² in square units.
    pub distance_squared: u64,
    /// The object.
    pub object: &'a Object,
}

/// See [`World::near`](super::World::near).
pub(super) fn near(objects: &Objects, position: Position, radius: u32) -> impl ExactSizeIterator<Item = Neighbour<'_>> {
    let mut found: Vec<Neighbour<'_>> = neighbours(objects, position, radius).collect();
    found.sort_unstable_by_key(Neighbour::rank);
    found.into_iter()
}

/// See [`World::nearest`](super::World::nearest).
pub(super) fn nearest(
    objects: &Objects,
    position: Position,
    radius: u32,
    mut is_meant: impl FnMut(ObjectId, &Object) -> bool,
) -> Option<Neighbour<'_>> {
    let meant = neighbours(objects, position, radius).filter(|near| is_meant(near.id, near.object));
    meant.min_by_key(Neighbour::rank)
}

/// As [`near`], in the order of cells.
pub(super) fn neighbours(objects: &Objects, position: Position, radius: u32) -> impl Iterator<Item = Neighbour<'_>> {
    let reach = u64::from(radius).pow(2);
    let around = square(objects.grid(), position, radius).flat_map(|cell| objects.in_cell(cell));
    around.filter_map(move |(id, object)| {
        let distance_squared = position.distance_squared(object.position);
        (distance_squared <= reach).then_some(Neighbour { id, distance_squared, object })
    })
}

impl Neighbour<'_> {
    fn rank(&self) -> (u64, ObjectId) {
        (self.distance_squared, self.id)
    }
}

/// The cells that intersect a square around a position, in ascending order.
fn square(grid: &Grid, center: Position, radius: u32) -> impl Iterator<Item = CellIndex> + use<> {
    let low = Position { x: center.x.saturating_sub(radius), y: center.y.saturating_sub(radius) };
    let high = Position { x: center.x.saturating_add(radius), y: center.y.saturating_add(radius) };
    let [(left, top), (right, bottom)] = [low, high].map(|corner| grid.place(grid.cell_of(corner)));
    let columns = u32::from(grid.shape().columns);
    let cell_at = move |row: u16, column: u16| CellIndex(u32::from(row) * columns + u32::from(column));
    (top..=bottom).flat_map(move |row| (left..=right).map(move |column| cell_at(row, column)))
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{GridShape, NewObject, RoomOptions, Visibility, World};

    fn world(columns: u16, rows: u16, cell_units: u32) -> World {
        let shape = GridShape { columns, rows, cell_units, near_cells: 1, far_cells: 0, far_interval_ticks: 1 };
        World::new(Grid::new(shape).expect("a map"), &RoomOptions::default(), 1)
    }

    fn spawn(world: &mut World, x: u32, y: u32) -> ObjectId {
        let position = Position { x, y };
        let object = NewObject { position, kind: 1, visibility: Visibility::Nobody, state: b"" };
        world.spawn(object).expect("there is room")
    }

    /// All objects, sorted by distance.
    fn model(world: &World, at: Position, radius: u32) -> Vec<(u128, ObjectId)> {
        let square = |a: u32, b: u32| u128::from(a.abs_diff(b)).pow(2);
        let far = |object: &Object| square(object.position.x, at.x) + square(object.position.y, at.y);
        let mut near: Vec<_> = world.objects().map(|(id, object)| (far(object), id)).collect();
        near.retain(|(distance, _)| *distance <= u128::from(radius).pow(2));
        near.sort_unstable();
        near
    }

    fn check(world: &World, at: Position, radius: u32) -> Result<(), TestCaseError> {
        let expected = model(world, at, radius);
        let near = world.near(at, radius);
        prop_assert_eq!(near.len(), expected.len());
        let near: Vec<_> = near.map(|near| (u128::from(near.distance_squared), near.id)).collect();
        prop_assert_eq!(&near, &expected);
        for is_odd in [0, 1] {
            let meant = expected.iter().map(|(_, id)| *id).find(|id| id.0 % 2 == is_odd);
            let nearest = world.nearest(at, radius, |id, _| id.0 % 2 == is_odd).map(|near| near.id);
            prop_assert_eq!(nearest, meant);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn near_matches_a_search_of_all_objects(
            (columns, rows, cell_units) in (1..6_u16, 1..6_u16, 1..30_u32),
            ops in vec((0..4_u8, any::<prop::sample::Index>(), 0..170_u32, 0..170_u32), 0..60),
            questions in vec((0..200_u32, 0..200_u32, 0..120_u32), 1..20),
        ) {
            let mut world = world(columns, rows, cell_units);
            let mut ids = Vec::new();
            for (op, which, x, y) in ops {
                match op {
                    0 if !ids.is_empty() => drop(world.despawn(ids.swap_remove(which.index(ids.len())))),
                    1 if !ids.is_empty() => world.move_to(ids[which.index(ids.len())], Position { x, y }),
                    _ => ids.push(spawn(&mut world, x, y)),
                }
            }
            for (x, y, radius) in questions {
                check(&world, Position { x, y }, radius)?;
            }
        }
    }

    #[test]
    fn near_compares_the_largest_coordinates() {
        let mut world = world(1_024, 1, 65_536);
        let far = spawn(&mut world, u32::MAX, 7);
        let corner = spawn(&mut world, 0, 0);
        for (x, y, radius) in [(u32::MAX, u32::MAX, u32::MAX), (0, 0, u32::MAX), (u32::MAX, 0, u32::MAX), (0, 0, 0)] {
            check(&world, Position { x, y }, radius).expect("as the model");
        }
        let ids = |radius| world.near(Position::default(), radius).map(|near| near.id).collect::<Vec<_>>();
        assert_eq!(ids(u32::MAX), [corner, far]);
        // An object on the circle is within the radius; one unit past it is not.
        let (x, y) = (u64::from(1_024 * 65_536_u32 - 1), 7);
        let radius = (x * x + y * y).isqrt() as u32;
        assert_eq!((ids(radius), ids(radius + 1)), (vec![corner], vec![corner, far]));
    }
}
