//! The kinds of objects and the fields of their states. `docs/tag.md` lists them.

use dunlin_rooms::{Angle, ObjectId, Schema, choice, state};

use super::runner::{Condition, TagRunner};

choice! {
    /// Whether a runner can run and be tagged.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ShownCondition { Running, Tagged, Safe, Away }
}

state! {
    /// A player or a bot.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Runner: 1 {
        pub colour: u8 [range(0, 11)],
        pub vx: i8 [range(-127, 127)],
        pub vy: i8 [range(-127, 127)],
        pub condition: ShownCondition,
    }
}

state! {
    /// A runner's name and points. It moves only when its runner enters another cell. A separate object, because clients
    /// without fields receive the whole state of a runner with every step.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Label: 2 {
        pub runner: Option<ObjectId>,
        pub score: u32,
        pub name: String [max(96)],
    }
}

state! {
    /// A projectile.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Projectile: 3 {
        pub colour: u8 [range(0, 11)],
        pub angle: Angle,
        pub owner: Option<ObjectId>,
    }
}

/// All of them.
pub fn schema() -> Schema {
    Schema::new().with::<Runner>().with::<Label>().with::<Projectile>()
}

impl Runner {
    pub fn of(runner: &TagRunner) -> Self {
        let condition = match runner.condition {
            _ if runner.is_away => ShownCondition::Away,
            Condition::Running => ShownCondition::Running,
            Condition::Tagged { .. } => ShownCondition::Tagged,
            Condition::Safe { .. } => ShownCondition::Safe,
        };
        Self { colour: runner.looks.colour, vx: runner.velocity.x, vy: runner.velocity.y, condition }
    }
}
