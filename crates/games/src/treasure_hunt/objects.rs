//! The kinds of objects and the fields of their states. `docs/rooms.md` lists them.

use dunlin_rooms::{ObjectId, Schema, state};

use super::player::Doing;
use crate::{looks::Looks, walk::Velocity};

state! {
    /// A player.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Player: 1 {
        pub colour: u8 [range(0, 11)],
        pub vx: i8 [range(-127, 127)],
        pub vy: i8 [range(-127, 127)],
        /// 0: nothing, 1: digging, 2 and above: waving, plus the emote.
        pub activity: u8 [range(0, 9)],
    }
}

state! {
    /// A name tag. It moves only when its player enters another cell. A separate object, because clients without fields
    /// receive the whole state of a player with every step, and a name is long.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct NameTag: 2 {
        pub player: Option<ObjectId>,
        pub score: u32,
        pub name: String [max(96)],
    }
}

state! {
    /// A visible treasure. What is in it is known when it is open.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Chest: 3 {
        pub is_open: bool,
        pub value: u16 [optional()],
        pub finder: Option<ObjectId> [optional()],
    }
}

state! {
    /// Scenery that blocks no one.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Tree: 4 {
        pub size: u8 [range(0, 3)],
    }
}

state! {
    /// Scenery that blocks no one.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Rock: 5 {
        pub size: u8 [range(0, 3)],
    }
}

state! {
    /// The place of a clue.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ClueMarker: 6 {
        pub shares: u8,
        /// Of a share.
        pub value: u16,
        /// The tick in which it disappears.
        pub until: u32,
    }
}

state! {
    /// What only its player receives.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Purse: 7 {
        pub score: u32,
        pub chests: u16,
        pub energy: u8 [range(0, 100)],
    }
}

/// All of them.
pub fn schema() -> Schema {
    Schema::new()
        .with::<Player>()
        .with::<NameTag>()
        .with::<Chest>()
        .with::<Tree>()
        .with::<Rock>()
        .with::<ClueMarker>()
        .with::<Purse>()
}

impl Player {
    pub fn new(colour: u8, velocity: Velocity, doing: Doing) -> Self {
        let activity = match doing {
            Doing::Nothing => 0,
            Doing::Digging { .. } => 1,
            Doing::Waving { emote, .. } => 2 + emote,
        };
        Self { colour, vx: velocity.x, vy: velocity.y, activity }
    }
}

impl NameTag {
    pub fn new(avatar: ObjectId, score: u32, looks: &Looks) -> Self {
        Self { player: Some(avatar), score, name: (*looks.name).to_owned() }
    }
}

impl Chest {
    pub const BURIED: Self = Self { is_open: false, value: 0, finder: None };
}
