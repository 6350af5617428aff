//! The behavior of bots: they run around, approach runners that they see, and shoot inaccurately.

use dunlin_rooms::{Angle, ObjectId, World};

use super::{
    runner::{Driver, TagRunner, velocity_towards},
    shot::{Shot, nearest_runner},
};
use crate::looks::{COLOURS, Looks};

/// How far bots see, in units; less than the range of a projectile.
const SIGHT_UNITS: u32 = 650;
/// Milliseconds between two decisions of a bot.
const DECISION_MS: u32 = 350;
/// Maximum error of a shot in degrees, to either side.
const ERROR_DEGREES: u32 = 24;
/// The percentage of decisions with a target that are shots.
const SHOTS_PERCENT: u32 = 45;

/// The name and the colour of a bot.
pub fn looks(number: u32) -> Looks {
    Looks { name: format!("Bot {number}").into(), colour: (number % u32::from(COLOURS)) as u8 }
}

/// The driver of a new bot.
pub fn driver() -> Driver {
    Driver::Bot { next_tick: 0 }
}

/// Decides, if it is time to. Returns the projectile if the bot fired one.
pub fn act(world: &mut World, id: ObjectId, runner: &mut TagRunner, is_playing: bool) -> Option<(ObjectId, Shot)> {
    let Driver::Bot { next_tick } = &mut runner.driver else { return None };
    if world.tick() < *next_tick {
        return None;
    }
    // Not all bots decide in the same ticks.
    let wait = (DECISION_MS * world.ticks_per_second() / 1_000).max(1);
    *next_tick = world.tick().saturating_add(wait / 2 + 1 + world.random_below(wait));
    let from = runner.position(world);
    let target = nearest_runner(world, id, from, SIGHT_UNITS).filter(|_| runner.is_active());
    let Some(target) = target else {
        if world.random_below(3) == 0 {
            let angle = Angle::from_bits(world.random() as u32);
            runner.run(world, velocity_towards(angle));
        }
        return None;
    };
    let exact = Angle::between(from, target);
    // The bot does not run straight at its target, because that would make it easy to tag.
    let way = exact + turn(world, 80);
    runner.run(world, velocity_towards(way));
    if !is_playing || world.random_below(100) >= SHOTS_PERCENT {
        return None;
    }
    let aim = exact + turn(world, ERROR_DEGREES);
    runner.shoot(world, aim, 0)
}

/// A random turn of at most `degrees_max` to either side.
fn turn(world: &mut World, degrees_max: u32) -> Angle {
    let degrees = world.random_below(2 * degrees_max + 1).cast_signed() - degrees_max.cast_signed();
    Angle::degrees(degrees)
}
