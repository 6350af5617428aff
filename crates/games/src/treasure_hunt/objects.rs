//! What there is in the world, and how clients are told of it: kinds and the bytes of their states. `docs/rooms.md` has the
//! table.

use dunlin_rooms::{NewObject, ObjectId, Position, Visibility};

use super::{player::Doing, visitor::Looks, walk::Velocity};

/// A player.
pub const PLAYER: u16 = 1;
/// Who a player is. An object of its own because every step sends a player's state again, and a name is long: the tag
/// stays where it is until its player goes into another cell.
pub const TAG: u16 = 2;
/// A treasure that can be seen: buried, then open.
pub const CHEST: u16 = 3;
/// Scenery.
pub const TREE: u16 = 4;
/// Scenery.
pub const ROCK: u16 = 5;
/// Where a clue has dropped.
pub const CLUE: u16 = 6;
/// What a player has; for nobody else.
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

/// An object that every player sees who is near.
pub fn visible(position: Position, kind: u16, state: &[u8]) -> NewObject<'_> {
    NewObject { position, kind, visibility: Visibility::Everyone, state }
}
