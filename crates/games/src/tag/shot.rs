//! Projectiles. A player sees and aims at other runners where they were some ticks ago. So a projectile is compared
//! with past positions of the runners: as many ticks ago as the age of the shooter's view when it fired.

use dunlin_rooms::{Angle, Fixed, ObjectId, Position, State, StateReader, World};

use super::objects::{Runner, ShownCondition};

/// Units per second.
pub const SPEED: i32 = 1_500;
/// Milliseconds until a projectile disappears.
pub const LIFE_MS: u32 = 600;
/// Distance in units between the centres of a projectile and of a runner at which the runner is tagged.
pub const HIT_UNITS: u32 = 36;

/// A projectile's state that is not in its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shot {
    /// The runner that has fired it.
    pub owner: ObjectId,
    /// Position, with parts of a unit.
    pub x: Fixed,
    /// Position downwards.
    pub y: Fixed,
    /// Direction.
    pub angle: Angle,
    /// Age of the shooter's view in ticks.
    pub lag_ticks: u32,
    /// The tick in which it disappears.
    pub until: u32,
}

impl Shot {
    /// A projectile that starts at a runner's position.
    pub fn new(world: &World, owner: ObjectId, from: Position, angle: Angle, lag_ticks: u32) -> Self {
        let life_ticks = (LIFE_MS * world.ticks_per_second()).div_ceil(1_000);
        let until = world.tick().saturating_add(life_ticks);
        Self { owner, x: whole(from.x), y: whole(from.y), angle, lag_ticks, until }
    }

    /// Moves by a tick. Returns the first target on its path.
    ///
    /// The path is divided into steps of at most [`HIT_UNITS`], so that a projectile does not skip a runner.
    pub fn fly(&mut self, world: &World, is_target: impl Fn(ObjectId) -> bool) -> Option<ObjectId> {
        let seen = world.rewind(world.tick().saturating_sub(1).saturating_sub(self.lag_ticks));
        let pieces = SPEED.unsigned_abs().div_ceil(world.ticks_per_second() * HIT_UNITS).cast_signed();
        let way = Fixed::from(SPEED) / (Fixed::from(world.ticks_per_second().cast_signed()) * Fixed::from(pieces));
        let (dx, dy) = (way * self.angle.cos(), way * self.angle.sin());
        for _ in 0..pieces {
            self.x += dx;
            self.y += dy;
            let mut near = seen.near(self.position(), HIT_UNITS);
            let target = near.find(|near| near.id != self.owner && is_target(near.id));
            if let Some(target) = target {
                return Some(target.id);
            }
        }
        None
    }

    /// Whether its time is over, or it is outside of the map.
    pub fn is_over(&self, world: &World) -> bool {
        let (width, height) = world.grid().size_units();
        let is_inside = |at: Fixed, size: u32| u32::try_from(at.floor()).is_ok_and(|at| at < size);
        world.tick() >= self.until || !is_inside(self.x, width) || !is_inside(self.y, height)
    }

    /// The nearest position in units.
    pub fn position(&self) -> Position {
        let unit = |at: Fixed| u32::try_from(at.round()).unwrap_or(0);
        Position { x: unit(self.x), y: unit(self.y) }
    }
}

/// The runner that a bot at `from` sees within `units`, the nearest first.
pub fn nearest_runner(world: &World, from: ObjectId, position: Position, units: u32) -> Option<Position> {
    let is_other = |id: ObjectId, object: &dunlin_rooms::Object| {
        let is_running = || {
            let runner = StateReader::read::<Runner>(&object.state);
            runner.is_some_and(|runner| runner.condition == ShownCondition::Running)
        };
        id != from && object.kind == Runner::KIND && is_running()
    };
    world.nearest(position, units, is_other).map(|near| near.object.position)
}

/// Coordinates fit: a map has at most 2²⁶ units.
fn whole(at: u32) -> Fixed {
    Fixed::from(at.cast_signed())
}
