//! A player of the hunt: its possessions, its current action, and its three objects.

use dunlin_rooms::{ObjectId, PlayerId, Position, Visibility, World, WorldError};

use super::{
    input::HuntInput,
    objects::{NameTag, Player, Purse},
};
use crate::{looks::Looks, walk::Velocity};

/// Maximum energy.
pub const ENERGY_MAX: u8 = 100;
/// Energy cost of a dig.
pub const DIG_ENERGY: u8 = 10;
/// Energy regained per second.
const REST_ENERGY: u8 = 5;
/// Duration of a dig in seconds.
const DIG_S: u32 = 1;
/// Duration of waving in seconds.
const WAVE_S: u32 = 2;

/// A player's state that is not in its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HuntPlayer {
    /// Name and colour.
    pub looks: Looks,
    /// The object that represents the player.
    pub avatar: ObjectId,
    /// Its name tag.
    pub tag: ObjectId,
    /// The object that only this player sees, with its private state.
    pub purse: ObjectId,
    /// Total value of its finds.
    pub score: u32,
    /// Number of its finds.
    pub chests: u16,
    /// 0 to [`ENERGY_MAX`].
    pub energy: u8,
    /// The current velocity.
    pub velocity: Velocity,
    /// The current activity besides walking.
    pub doing: Doing,
}

/// An activity besides walking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Walking or standing.
    Nothing,
    /// Digging.
    Digging {
        /// The tick in which it ends.
        until: u32,
    },
    /// Waving.
    Waving {
        /// 0 to 7.
        emote: u8,
        /// The tick in which it ends.
        until: u32,
    },
}

impl HuntPlayer {
    /// Adds a player at a random position.
    ///
    /// # Errors
    /// [`WorldError`]; no object was created.
    pub fn enter(world: &mut World, player: PlayerId, looks: Looks) -> Result<Self, WorldError> {
        let position = anywhere(world);
        let standing = Player::new(looks.colour, Velocity::NONE, Doing::Nothing);
        let avatar = world.add(position, Visibility::Everyone, &standing)?;
        let tag = world.add(position, Visibility::Everyone, &NameTag::new(avatar, 0, &looks));
        let tag = tag.inspect_err(|_| {
            world.despawn(avatar);
        })?;
        let purse = Purse { score: 0, chests: 0, energy: ENERGY_MAX };
        let purse = world.add(Position::default(), Visibility::Owner(player), &purse);
        let purse = purse.inspect_err(|_| {
            world.despawn(avatar);
            world.despawn(tag);
        })?;
        world.set_avatar(player, Some(avatar));
        world.set_viewpoint(player, position);
        let (velocity, doing) = (Velocity::NONE, Doing::Nothing);
        Ok(Self { looks, avatar, tag, purse, score: 0, chests: 0, energy: ENERGY_MAX, velocity, doing })
    }

    /// Removes its objects.
    pub fn exit(&self, world: &mut World) {
        for object in [self.avatar, self.tag, self.purse] {
            world.despawn(object);
        }
    }

    /// Position of the player's object.
    pub fn position(&self, world: &World) -> Position {
        world.object(self.avatar).map_or_else(Position::default, |avatar| avatar.position)
    }

    /// Carries out an input, within the rules.
    pub fn act(&mut self, world: &mut World, input: HuntInput) {
        let seconds = world.ticks_per_second();
        let digging = matches!(self.doing, Doing::Digging { .. });
        match input {
            HuntInput::Walk(velocity) => {
                self.velocity = velocity;
                if digging && velocity != Velocity::NONE {
                    self.doing = Doing::Nothing;
                }
            }
            HuntInput::Dig if !digging && self.energy >= DIG_ENERGY => {
                self.energy -= DIG_ENERGY;
                self.velocity = Velocity::NONE;
                self.doing = Doing::Digging { until: world.tick().saturating_add(DIG_S * seconds) };
                self.show_purse(world);
            }
            HuntInput::Wave { emote } if !digging => {
                self.doing = Doing::Waving { emote, until: world.tick().saturating_add(WAVE_S * seconds) };
            }
            HuntInput::Dig | HuntInput::Wave { .. } => return,
        }
        self.show(world);
    }

    /// Moves by a step, with the viewpoint. The name tag follows when the player enters another cell.
    pub fn walk(&self, world: &mut World, player: PlayerId) {
        if self.velocity == Velocity::NONE {
            return;
        }
        let from = self.position(world);
        let to = self.velocity.step(from, world.tick(), world.ticks_per_second(), world.grid());
        if to == from {
            return;
        }
        world.move_to(self.avatar, to);
        world.set_viewpoint(player, to);
        if world.grid().cell_of(from) != world.grid().cell_of(to) {
            world.move_to(self.tag, to);
        }
    }

    /// Ends the activity when its time is over; returns whether that was a dig.
    pub fn finish(&mut self, world: &mut World) -> bool {
        let (Doing::Digging { until } | Doing::Waving { until, .. }) = self.doing else { return false };
        if world.tick() < until {
            return false;
        }
        let dug = matches!(self.doing, Doing::Digging { .. });
        self.doing = Doing::Nothing;
        self.show(world);
        dug
    }

    /// Adds the value of a find.
    pub fn earn(&mut self, world: &mut World, value: u16) {
        self.score = self.score.saturating_add(value.into());
        self.chests = self.chests.saturating_add(1);
        self.show_purse(world);
        let _ = world.set(self.tag, &NameTag::new(self.avatar, self.score, &self.looks));
    }

    /// Regains energy once per second. Players do so in different ticks, so that no tick changes all purses.
    pub fn rest(&mut self, world: &mut World, player: PlayerId) {
        let due = world.tick().wrapping_add(player.0).is_multiple_of(world.ticks_per_second());
        if due && self.energy < ENERGY_MAX {
            self.energy = ENERGY_MAX.min(self.energy + REST_ENERGY);
            self.show_purse(world);
        }
    }

    // Cannot fail: the objects exist as long as the player, and their states are short.

    fn show(&self, world: &mut World) {
        let _ = world.set(self.avatar, &Player::new(self.looks.colour, self.velocity, self.doing));
    }

    fn show_purse(&self, world: &mut World) {
        let Self { score, chests, energy, .. } = *self;
        let _ = world.set(self.purse, &Purse { score, chests, energy });
    }
}

/// A uniformly random position.
pub fn anywhere(world: &mut World) -> Position {
    let (width, height) = world.grid().size_units();
    Position { x: world.random_below(width), y: world.random_below(height) }
}
