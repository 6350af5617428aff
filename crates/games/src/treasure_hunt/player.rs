//! A player of the hunt: what it has, what it is doing, and the three objects that show it.

use dunlin_rooms::{NewObject, ObjectId, PlayerId, Position, Visibility, World, WorldError};

use super::{input::Input, objects, visitor::Looks, walk::Velocity};

/// Energy of who is rested.
pub const ENERGY_MAX: u8 = 100;
/// Energy that a dig takes.
pub const DIG_ENERGY: u8 = 10;
/// Energy that comes back each second.
const REST_ENERGY: u8 = 5;
/// Seconds that a dig takes.
const DIG_S: u32 = 1;
/// Seconds for which waving is shown.
const WAVE_S: u32 = 2;

/// A player.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Player {
    /// Who others see.
    pub looks: Looks,
    /// The object that walks about.
    pub avatar: ObjectId,
    /// Its name tag.
    pub tag: ObjectId,
    /// What it alone is told of itself.
    pub purse: ObjectId,
    /// The value of all that it found.
    pub score: u32,
    /// How often it found something.
    pub chests: u16,
    /// 0 to [`ENERGY_MAX`].
    pub energy: u8,
    /// Where it is going.
    pub velocity: Velocity,
    /// What it is doing besides.
    pub doing: Doing,
}

/// What a player is doing besides walking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Nothing.
    Nothing,
    /// Digging, which ends with this tick.
    Digging {
        /// The tick.
        until: u32,
    },
    /// Waving, which ends with this tick.
    Waving {
        /// How.
        emote: u8,
        /// The tick.
        until: u32,
    },
}

impl Player {
    /// Puts a player somewhere on the map.
    ///
    /// # Errors
    /// [`WorldError`], and then none of its objects is there.
    pub fn enter(world: &mut World, player: PlayerId, looks: Looks) -> Result<Self, WorldError> {
        let position = anywhere(world);
        let state = objects::player(looks.colour, Velocity::NONE, Doing::Nothing);
        let avatar = world.spawn(objects::visible(position, objects::PLAYER, &state))?;
        let tag = world.spawn(objects::visible(position, objects::TAG, &objects::tag(avatar, 0, &looks)));
        let tag = tag.inspect_err(|_| {
            world.despawn(avatar);
        })?;
        let purse = world.spawn(NewObject {
            position: Position::default(),
            kind: objects::PURSE,
            visibility: Visibility::Owner(player),
            state: &objects::purse(0, 0, ENERGY_MAX),
        });
        let purse = purse.inspect_err(|_| {
            world.despawn(avatar);
            world.despawn(tag);
        })?;
        world.set_avatar(player, Some(avatar));
        world.set_viewpoint(player, position);
        let (velocity, doing) = (Velocity::NONE, Doing::Nothing);
        Ok(Self { looks, avatar, tag, purse, score: 0, chests: 0, energy: ENERGY_MAX, velocity, doing })
    }

    /// Takes its objects off the map.
    pub fn exit(&self, world: &mut World) {
        for object in [self.avatar, self.tag, self.purse] {
            world.despawn(object);
        }
    }

    /// Where it is.
    pub fn position(&self, world: &World) -> Position {
        world.object(self.avatar).map_or_else(Position::default, |avatar| avatar.position)
    }

    /// Does what it was told, as far as it may.
    pub fn act(&mut self, world: &mut World, input: Input) {
        let seconds = world.ticks_per_second();
        let digging = matches!(self.doing, Doing::Digging { .. });
        match input {
            Input::Walk(velocity) => {
                self.velocity = velocity;
                if digging && velocity != Velocity::NONE {
                    self.doing = Doing::Nothing;
                }
            }
            Input::Dig if !digging && self.energy >= DIG_ENERGY => {
                self.energy -= DIG_ENERGY;
                self.velocity = Velocity::NONE;
                self.doing = Doing::Digging { until: world.tick().saturating_add(DIG_S * seconds) };
                self.show_purse(world);
            }
            Input::Wave { emote } if !digging => {
                self.doing = Doing::Waving { emote, until: world.tick().saturating_add(WAVE_S * seconds) };
            }
            Input::Dig | Input::Wave { .. } => return,
        }
        self.show(world);
    }

    /// Goes a step, with its viewpoint; its name tag follows from cell to cell.
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

    /// Ends what it is doing when its time is over; returns whether that was a dig.
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

    /// Gives it what it found.
    pub fn earn(&mut self, world: &mut World, value: u16) {
        self.score = self.score.saturating_add(value.into());
        self.chests = self.chests.saturating_add(1);
        self.show_purse(world);
        let _ = world.set_state(self.tag, &objects::tag(self.avatar, self.score, &self.looks));
    }

    /// Gives it back some energy, once a second. Not everybody's in the same tick, so that no tick tells all players.
    pub fn rest(&mut self, world: &mut World, player: PlayerId) {
        let due = world.tick().wrapping_add(player.0).is_multiple_of(world.ticks_per_second());
        if due && self.energy < ENERGY_MAX {
            self.energy = ENERGY_MAX.min(self.energy + REST_ENERGY);
            self.show_purse(world);
        }
    }

    // The objects are there as long as the player is, and their states are short: these cannot fail.

    fn show(&self, world: &mut World) {
        let _ = world.set_state(self.avatar, &objects::player(self.looks.colour, self.velocity, self.doing));
    }

    fn show_purse(&self, world: &mut World) {
        let _ = world.set_state(self.purse, &objects::purse(self.score, self.chests, self.energy));
    }
}

/// A place on the map, each as likely as any other.
pub fn anywhere(world: &mut World) -> Position {
    let (width, height) = world.grid().size_units();
    Position { x: world.random_below(width), y: world.random_below(height) }
}
