//! The kinds of objects and the encoding of their states. `docs/tag.md` lists them.

use dunlin_rooms::{Angle, NewObject, ObjectId, Position, Visibility};

use super::runner::{Condition, TagRunner};
use crate::looks::Looks;

/// Kind of an object: a player or a bot.
pub const RUNNER: u16 = 1;
/// Kind of an object: a runner's name and points. It is a separate object, so that they are not sent with every step.
/// It moves only when its runner enters another cell.
pub const LABEL: u16 = 2;
/// Kind of an object: a projectile.
pub const SHOT: u16 = 3;

/// A runner's state.
pub fn runner(runner: &TagRunner) -> [u8; 4] {
    let condition = match runner.condition {
        _ if runner.is_away => 3,
        Condition::Running => 0,
        Condition::Tagged { .. } => 1,
        Condition::Safe { .. } => 2,
    };
    let velocity = runner.velocity;
    [runner.looks.colour, velocity.x.cast_unsigned(), velocity.y.cast_unsigned(), condition]
}

/// A label's state.
pub fn label(avatar: ObjectId, score: u32, looks: &Looks) -> Vec<u8> {
    [&avatar.0.to_le_bytes(), &score.to_le_bytes(), looks.name.as_bytes()].concat()
}

/// A projectile's state.
pub fn shot(colour: u8, angle: Angle, owner: ObjectId) -> [u8; 7] {
    let ([_, _, a0, a1], [o0, o1, o2, o3]) = (angle.to_bits().to_le_bytes(), owner.0.to_le_bytes());
    [colour, a0, a1, o0, o1, o2, o3]
}

/// An object that all players near it see.
pub fn visible(position: Position, kind: u16, state: &[u8]) -> NewObject<'_> {
    NewObject { position, kind, visibility: Visibility::Everyone, state }
}
