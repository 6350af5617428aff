//! Buried treasure: chests, and the treasures at clues.

use std::collections::{BTreeMap, VecDeque};

use dunlin_rooms::{ObjectId, Position, State, Visibility, World, WorldError};

use super::{objects::Chest, player::anywhere};

/// The reach of a dig in units.
pub const REACH: u32 = 48;
/// Minimum value of a chest, and the number of different values.
const CHEST_VALUES: (u16, u32) = (10, 41);
/// Seconds for which an open chest is visible.
const OPEN_S: u32 = 10;

/// A buried treasure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Treasure {
    /// The value of a share.
    pub value: u16,
    /// Number of remaining shares.
    pub shares: u8,
    /// Whether it is a chest, which players see.
    pub is_chest: bool,
}

/// The result of a dig.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Find {
    /// The treasure.
    pub treasure: ObjectId,
    /// Points that the finder gets.
    pub value: u16,
    /// Number of remaining shares.
    pub shares_left: u8,
}

/// Buried treasures and the shares of clues, by cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Treasures {
    /// Buried treasures. Clients know the positions of chests, but not their values, which are stored only here.
    pub buried: BTreeMap<ObjectId, Treasure>,
    /// Open chests with the tick in which they disappear, the next one first.
    pub open: VecDeque<(u32, ObjectId)>,
}

impl Treasures {
    /// Buries a chest at a random position.
    ///
    /// # Errors
    /// [`WorldError`] if the world is full.
    pub fn bury_chest(&mut self, world: &mut World) -> Result<(), WorldError> {
        let (least, values) = CHEST_VALUES;
        let value = least + world.random_below(values) as u16;
        let position = anywhere(world);
        self.bury(world, position, Treasure { value, shares: 1, is_chest: true }).map(|_| ())
    }

    /// Buries a treasure at `position`.
    ///
    /// # Errors
    /// [`WorldError`] if the world is full.
    pub fn bury(&mut self, world: &mut World, position: Position, treasure: Treasure) -> Result<ObjectId, WorldError> {
        let visibility = if treasure.is_chest { Visibility::Everyone } else { Visibility::Nobody };
        let id = world.add(position, visibility, &Chest::BURIED)?;
        self.buried.insert(id, treasure);
        Ok(id)
    }

    /// Takes a share of the nearest treasure within reach of a dig at `place`.
    pub fn dig(&mut self, world: &mut World, place: Position, finder: ObjectId) -> Option<Find> {
        let id = self.nearest(world, place)?;
        let treasure = self.buried.get_mut(&id)?;
        treasure.shares = treasure.shares.saturating_sub(1);
        let Treasure { value, shares, is_chest } = *treasure;
        if shares == 0 {
            self.buried.remove(&id);
            if is_chest {
                let _ = world.set(id, &Chest { is_open: true, value, finder: Some(finder) });
                self.open.push_back((world.tick().saturating_add(OPEN_S * world.ticks_per_second()), id));
            } else {
                world.despawn(id);
            }
        }
        Some(Find { treasure: id, value, shares_left: shares })
    }

    /// Removes a treasure that was not found.
    pub fn remove(&mut self, world: &mut World, treasure: ObjectId) {
        if self.buried.remove(&treasure).is_some() {
            world.despawn(treasure);
        }
    }

    /// Removes chests that have been open for long enough, and buries the same number elsewhere.
    pub fn tick(&mut self, world: &mut World) {
        while let Some((until, chest)) = self.open.front().copied()
            && until <= world.tick()
        {
            self.open.pop_front();
            world.despawn(chest);
            // Cannot fail: the removed chest has left space.
            let _ = self.bury_chest(world);
        }
    }

    /// Approximate memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.buried.len() * size_of::<(ObjectId, Treasure)>() + self.open.capacity() * size_of::<(u32, ObjectId)>()
    }

    /// The nearest treasure. Of two at the same distance the older one, so that the result does not depend on the order
    /// in a cell.
    fn nearest(&self, world: &World, place: Position) -> Option<ObjectId> {
        let is_buried = |id: ObjectId| self.buried.contains_key(&id);
        let near = world.nearest(place, REACH, |id, object| object.kind == Chest::KIND && is_buried(id));
        near.map(|near| near.id)
    }
}
