//! Clues: every now and then all players hear of the same place.

use dunlin_rooms::{ObjectId, Position, Scope, World, WorldError};

use super::{
    news, objects,
    treasure::{Find, Treasure, Treasures},
};

/// What a dig at a clue yields.
pub const SHARE_VALUE: u16 = 100;
/// How many digs yield it.
pub const SHARES: u8 = 10;

/// A clue that lies somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clue {
    /// What players see of it.
    pub marker: ObjectId,
    /// What lies there.
    pub treasure: ObjectId,
    /// Where.
    pub position: Position,
    /// Shares that are left.
    pub shares: u8,
    /// The tick in which it disappears.
    pub until: u32,
}

/// At most one clue lies on the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clues {
    interval_s: u32,
    /// The tick in which the next one drops.
    pub next: u32,
    /// The one that lies there.
    pub lying: Option<Clue>,
}

impl Clues {
    /// One every `interval_s`; none if that is 0.
    pub fn new(interval_s: u32) -> Self {
        Self { interval_s, next: 0, lying: None }
    }

    /// Says when the next one drops.
    pub fn schedule(&mut self, world: &World) {
        self.next = world.tick().saturating_add(self.interval_s.saturating_mul(world.ticks_per_second()));
    }

    /// Drops the next one in its time, instead of the one that lay there.
    pub fn tick(&mut self, world: &mut World, treasures: &mut Treasures) {
        if self.interval_s == 0 || world.tick() < self.next {
            return;
        }
        if let Some(clue) = self.lying.take() {
            treasures.remove(world, clue.treasure);
            clear_away(world, &clue, false);
        }
        self.schedule(world);
        // In a full world there is no place for it; perhaps next time.
        self.lying = drop_clue(world, treasures, self.next).ok();
        if let Some(clue) = &self.lying {
            let _ = world.emit(Scope::All, &news::clue(clue));
        }
    }

    /// A share of something was found: if it was at the clue, one is gone.
    pub fn found(&mut self, world: &mut World, find: Find) {
        let Some(clue) = self.lying.as_mut().filter(|clue| clue.treasure == find.treasure) else { return };
        clue.shares = find.shares_left;
        if clue.shares == 0 {
            clear_away(world, clue, true);
            self.lying = None;
        } else {
            let _ = world.set_state(clue.marker, &objects::clue(clue.shares, SHARE_VALUE, clue.until));
        }
    }
}

/// Drops a clue in the inner half of the map, where most players can come in time.
fn drop_clue(world: &mut World, treasures: &mut Treasures, until: u32) -> Result<Clue, WorldError> {
    let (width, height) = world.grid().size_units();
    let mut inner = |size: u32| size / 4 + world.random_below((size / 2).max(1));
    let position = Position { x: inner(width), y: inner(height) };
    let treasure = treasures.bury(world, position, Treasure { value: SHARE_VALUE, shares: SHARES, is_chest: false })?;
    let state = objects::clue(SHARES, SHARE_VALUE, until);
    let marker = world.spawn(objects::visible(position, objects::CLUE, &state));
    let marker = marker.inspect_err(|_| treasures.remove(world, treasure))?;
    Ok(Clue { marker, treasure, position, shares: SHARES, until })
}

fn clear_away(world: &mut World, clue: &Clue, found: bool) {
    world.despawn(clue.marker);
    let _ = world.emit(Scope::All, &news::clue_over(clue, found));
}
