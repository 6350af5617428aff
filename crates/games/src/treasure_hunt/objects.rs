//! The kinds of objects and the encoding of their states. `docs/rooms.md` lists them.

use dunlin_rooms::{NewObject, ObjectId, Position, Visibility};

use super::player::Doing;
use crate::{looks::Looks, walk::Velocity};

/// Kind of an object: a player.
pub const PLAYER: u16 = 1;
/// Kind of an object: a name tag. It is a separate object because every step sends a player's whole state, and a name
/// is long. The tag moves only when its player enters another cell.
pub const TAG: u16 = 2;
/// Kind of an object: a visible treasure, buried or open.
pub const CHEST: u16 = 3;
/// Kind of an object: scenery that blocks no one.
pub const TREE: u16 = 4;
/// Kind of an object: scenery that blocks no one.
pub const ROCK: u16 = 5;
/// Kind of an object: the place of a clue.
pub const CLUE: u16 = 6;
/// Kind of an object: a player's private state.
pub const PURSE: u16 = 7;

/// A buried chest's state.
pub const BURIED: [u8; 1] = [0];

/// A player's state.
pub fn player(colour: u8, velocity: Velocity, doing: Doing) -> [u8; 4] {
    let doing = match doing {
        Doing::Nothing => 0,
        Doing::Digging { .. } => 1,
        Doing::Waving { emote, .. } => 2 + emote,
    };
    [colour, velocity.x.cast_unsigned(), velocity.y.cast_unsigned(), doing]
}

/// A name tag's state.
pub fn tag(avatar: ObjectId, score: u32, looks: &Looks) -> Vec<u8> {
    [&avatar.0.to_le_bytes(), &score.to_le_bytes(), looks.name.as_bytes()].concat()
}

/// An open chest's state.
pub fn open_chest(value: u16, finder: ObjectId) -> [u8; 7] {
    let ([v0, v1], [f0, f1, f2, f3]) = (value.to_le_bytes(), finder.0.to_le_bytes());
    [1, v0, v1, f0, f1, f2, f3]
}

/// A clue's state.
pub fn clue(shares: u8, value: u16, until: u32) -> [u8; 7] {
    let ([v0, v1], [t0, t1, t2, t3]) = (value.to_le_bytes(), until.to_le_bytes());
    [shares, v0, v1, t0, t1, t2, t3]
}

/// A purse's state.
pub fn purse(score: u32, chests: u16, energy: u8) -> [u8; 7] {
    let ([s0, s1, s2, s3], [c0, c1]) = (score.to_le_bytes(), chests.to_le_bytes());
    [s0, s1, s2, s3, c0, c1, energy]
}

/// An object that all players near it see.
pub fn visible(position: Position, kind: u16, state: &[u8]) -> NewObject<'_> {
    NewObject { position, kind, visibility: Visibility::Everyone, state }
}
