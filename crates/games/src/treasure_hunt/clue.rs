//! Clues: from time to time all players receive the same place.

use dunlin_rooms::{ObjectId, Position, Scope, Visibility, World, WorldError};

use super::{
    news,
    objects::ClueMarker,
    treasure::{Find, Treasure, Treasures},
};

/// Points for one share of a clue's treasure.
pub const SHARE_VALUE: u16 = 100;
/// Number of shares of a clue's treasure.
pub const SHARES: u8 = 10;

/// A clue on the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clue {
    /// The object that players see.
    pub marker: ObjectId,
    /// The object of the treasure, which no player receives.
    pub treasure: ObjectId,
    /// Position of the treasure, in units from the corner of the map.
    pub position: Position,
    /// Number of remaining shares.
    pub shares: u8,
    /// The tick in which it disappears.
    pub until: u32,
}

/// The clues. At most one is on the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clues {
    interval_s: u32,
    /// The tick of the next clue.
    pub next: u32,
    /// The current clue.
    pub lying: Option<Clue>,
}

impl Clues {
    /// Drops a clue every `interval_s` seconds; never if it is 0.
    pub fn new(interval_s: u32) -> Self {
        Self { interval_s, next: 0, lying: None }
    }

    /// Schedules the next clue.
    pub fn schedule(&mut self, world: &World) {
        self.next = world.tick().saturating_add(self.interval_s.saturating_mul(world.ticks_per_second()));
    }

    /// Drops the next clue when it is due, and removes the previous one.
    pub fn tick(&mut self, world: &mut World, treasures: &mut Treasures) {
        if self.interval_s == 0 || world.tick() < self.next {
            return;
        }
        if let Some(clue) = self.lying.take() {
            treasures.remove(world, clue.treasure);
            clear_away(world, &clue, false);
        }
        self.schedule(world);
        // A full world has no space for it. The next attempt follows.
        self.lying = drop_clue(world, treasures, self.next).ok();
        if let Some(clue) = &self.lying {
            let _ = world.emit(Scope::All, &news::clue(clue));
        }
    }

    /// Processes a find: if it was a share of the clue's treasure, one share less remains.
    pub fn found(&mut self, world: &mut World, find: Find) {
        let Some(clue) = self.lying.as_mut().filter(|clue| clue.treasure == find.treasure) else { return };
        clue.shares = find.shares_left;
        if clue.shares == 0 {
            clear_away(world, clue, true);
            self.lying = None;
        } else {
            let _ = world.update(clue.marker, |marker: &mut ClueMarker| marker.shares = find.shares_left);
        }
    }
}

/// Drops a clue in the inner half of the map, which most players can reach in time.
fn drop_clue(world: &mut World, treasures: &mut Treasures, until: u32) -> Result<Clue, WorldError> {
    let (width, height) = world.grid().size_units();
    let mut inner = |size: u32| size / 4 + world.random_below((size / 2).max(1));
    let position = Position { x: inner(width), y: inner(height) };
    let treasure = treasures.bury(world, position, Treasure { value: SHARE_VALUE, shares: SHARES, is_chest: false })?;
    let marker = ClueMarker { shares: SHARES, value: SHARE_VALUE, until };
    let marker = world.add(position, Visibility::Everyone, &marker);
    let marker = marker.inspect_err(|_| treasures.remove(world, treasure))?;
    Ok(Clue { marker, treasure, position, shares: SHARES, until })
}

fn clear_away(world: &mut World, clue: &Clue, found: bool) {
    world.despawn(clue.marker);
    let _ = world.emit(Scope::All, &news::clue_over(clue, found));
}
