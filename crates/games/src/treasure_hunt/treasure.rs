//! What is in the ground: chests, and what lies at a clue.

use std::collections::{BTreeMap, VecDeque};

use dunlin_rooms::{CellIndex, ObjectId, Position, Visibility, World, WorldError};

use super::{objects, player::anywhere};

/// Units within which a dig reaches a treasure.
pub const REACH: u32 = 48;
/// A chest's least value, and how many values there are.
const CHEST_VALUES: (u16, u32) = (10, 41);
/// Seconds for which an open chest is seen.
const OPEN_S: u32 = 10;

/// A treasure in the ground.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Treasure {
    /// What a dig yields.
    pub value: u16,
    /// How many digs yield something.
    pub shares: u8,
    /// Whether players see where it is.
    pub is_chest: bool,
}

/// What a dig yielded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Find {
    /// From which treasure.
    pub treasure: ObjectId,
    /// How much.
    pub value: u16,
    /// How many shares are left of it.
    pub shares_left: u8,
}

/// All treasures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Treasures {
    /// In the ground. Clients know where chests are, but not what is in them: that is kept here alone.
    pub buried: BTreeMap<ObjectId, Treasure>,
    /// Open chests, and the ticks in which they disappear, the next one first.
    pub open: VecDeque<(u32, ObjectId)>,
}

impl Treasures {
    /// Buries a chest somewhere.
    ///
    /// # Errors
    /// [`WorldError`]: the world is full.
    pub fn bury_chest(&mut self, world: &mut World) -> Result<(), WorldError> {
        let (least, values) = CHEST_VALUES;
        let value = least + world.random_below(values) as u16;
        let position = anywhere(world);
        self.bury(world, position, Treasure { value, shares: 1, is_chest: true }).map(|_| ())
    }

    /// Buries a treasure here.
    ///
    /// # Errors
    /// [`WorldError`]: the world is full.
    pub fn bury(&mut self, world: &mut World, position: Position, treasure: Treasure) -> Result<ObjectId, WorldError> {
        let mut object = objects::visible(position, objects::CHEST, &objects::BURIED);
        if !treasure.is_chest {
            object.visibility = Visibility::Nobody;
        }
        let id = world.spawn(object)?;
        self.buried.insert(id, treasure);
        Ok(id)
    }

    /// Takes a share of the nearest treasure that a dig at `place` reaches.
    pub fn dig(&mut self, world: &mut World, place: Position, finder: ObjectId) -> Option<Find> {
        let id = self.nearest(world, place)?;
        let treasure = self.buried.get_mut(&id)?;
        treasure.shares = treasure.shares.saturating_sub(1);
        let Treasure { value, shares, is_chest } = *treasure;
        if shares == 0 {
            self.buried.remove(&id);
            if is_chest {
                let _ = world.set_state(id, &objects::open_chest(value, finder));
                self.open.push_back((world.tick().saturating_add(OPEN_S * world.ticks_per_second()), id));
            } else {
                world.despawn(id);
            }
        }
        Some(Find { treasure: id, value, shares_left: shares })
    }

    /// Takes a treasure away that nobody found.
    pub fn remove(&mut self, world: &mut World, treasure: ObjectId) {
        if self.buried.remove(&treasure).is_some() {
            world.despawn(treasure);
        }
    }

    /// Clears chests away that were open for long enough, and buries as many elsewhere.
    pub fn tick(&mut self, world: &mut World) {
        while let Some((until, chest)) = self.open.front().copied()
            && until <= world.tick()
        {
            self.open.pop_front();
            world.despawn(chest);
            // There is a place free for it.
            let _ = self.bury_chest(world);
        }
    }

    /// Of two that are as near as each other, the older one: so it does not depend on the order in a cell.
    fn nearest(&self, world: &World, place: Position) -> Option<ObjectId> {
        let grid = world.grid();
        let low = |at: u32| at.saturating_sub(REACH);
        let corners = [
            Position { x: low(place.x), y: low(place.y) },
            Position { x: place.x.saturating_add(REACH), y: place.y.saturating_add(REACH) },
        ];
        let [(left, top), (right, bottom)] = corners.map(|corner| grid.place(grid.cell_of(corner)));
        let columns = u32::from(grid.shape().columns);
        let cells = (top..=bottom)
            .flat_map(|row| (left..=right).map(move |column| CellIndex(u32::from(row) * columns + u32::from(column))));
        let near = cells.flat_map(|cell| world.objects_in(cell));
        near.filter(|(id, object)| object.kind == objects::CHEST && self.buried.contains_key(id))
            .map(|(id, object)| (distance_squared(place, object.position), id))
            .filter(|(distance, _)| *distance <= u64::from(REACH * REACH))
            .min()
            .map(|(_, id)| id)
    }
}

fn distance_squared(one: Position, other: Position) -> u64 {
    let square = |a: u32, b: u32| u64::from(a.abs_diff(b)).pow(2);
    square(one.x, other.x) + square(one.y, other.y)
}
