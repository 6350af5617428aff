//! A player or a bot on the map.

use dunlin_rooms::{Angle, Fixed, ObjectId, PlayerId, Position, State, Visibility, World, WorldError};

use super::{
    objects::{Label, Projectile, Runner},
    shot::Shot,
};
use crate::{looks::Looks, walk::Velocity};

/// Seconds that a tagged runner is out.
const OUT_S: u32 = 2;
/// Seconds for which a runner that has just entered the map cannot be tagged.
const SAFE_S: u32 = 1;
/// Milliseconds between two shots of a runner.
const RELOAD_MS: u32 = 400;
/// Minimum distance from other runners, in units, at which a runner enters the map, if such a place is found.
const FREE_UNITS: u32 = 400;
/// Number of places that are tried.
const TRIES: u32 = 8;

/// A runner's state that is not in its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagRunner {
    /// Name and colour.
    pub looks: Looks,
    /// The id of its player's user; empty for bots and anonymous players.
    pub user: Box<str>,
    /// The object that represents it.
    pub avatar: ObjectId,
    /// The object with its name and points.
    pub label: ObjectId,
    /// Controls the runner.
    pub driver: Driver,
    /// Points in this round.
    pub score: u32,
    /// The current velocity.
    pub velocity: Velocity,
    /// Whether it can run and be tagged.
    pub condition: Condition,
    /// Whether its player has no connection. Then it stands still and cannot be tagged.
    pub is_away: bool,
    /// The first tick in which it may shoot.
    pub reloaded_tick: u32,
}

/// The controller of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// A player.
    Player {
        /// The player.
        id: PlayerId,
        /// The tick of its last input, or of its join.
        last_input_tick: u32,
    },
    /// The simulation.
    Bot {
        /// The tick in which it decides next.
        next_tick: u32,
    },
}

/// Whether a runner can run, shoot and be tagged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The runner runs, shoots, and can be tagged.
    Running,
    /// The runner is out until a tick.
    Tagged {
        /// The tick in which it returns to the map.
        until: u32,
    },
    /// The runner runs and shoots, and cannot be tagged until a tick.
    Safe {
        /// The tick in which it can be tagged again.
        until: u32,
    },
}

impl TagRunner {
    /// Adds a runner away from others.
    ///
    /// # Errors
    /// [`WorldError`]; no object was created.
    pub fn enter(world: &mut World, looks: Looks, user: &str, driver: Driver) -> Result<(ObjectId, Self), WorldError> {
        let position = free_place(world);
        let mut runner = Self {
            looks,
            user: user.into(),
            avatar: ObjectId(0),
            label: ObjectId(0),
            driver,
            score: 0,
            velocity: Velocity::NONE,
            condition: safe(world),
            is_away: false,
            reloaded_tick: 0,
        };
        runner.avatar = world.add(position, Visibility::Everyone, &Runner::of(&runner))?;
        let label = world.add(position, Visibility::Everyone, &runner.shown_label());
        runner.label = label.inspect_err(|_| {
            world.despawn(runner.avatar);
        })?;
        runner.look_from(world, position);
        Ok((runner.avatar, runner))
    }

    /// Removes its objects.
    pub fn exit(&self, world: &mut World) {
        world.despawn(self.avatar);
        world.despawn(self.label);
    }

    /// Position of its object.
    pub fn position(&self, world: &World) -> Position {
        world.object(self.avatar).map_or_else(Position::default, |avatar| avatar.position)
    }

    /// Whether a projectile can tag it now.
    pub fn can_be_tagged(&self) -> bool {
        self.condition == Condition::Running && !self.is_away
    }

    /// Whether it takes part: it is neither out nor away.
    pub fn is_active(&self) -> bool {
        !matches!(self.condition, Condition::Tagged { .. }) && !self.is_away
    }

    /// Changes the velocity. A runner that is out keeps it for its return.
    pub fn run(&mut self, world: &mut World, velocity: Velocity) {
        self.velocity = velocity;
        self.show(world);
    }

    /// Shoots, if it may. Returns the projectile, which the caller must store.
    pub fn shoot(&mut self, world: &mut World, angle: Angle, lag_ticks: u32) -> Option<(ObjectId, Shot)> {
        if !self.is_active() || world.tick() < self.reloaded_tick {
            return None;
        }
        let position = self.position(world);
        let shot = Projectile { colour: self.looks.colour, angle, owner: Some(self.avatar) };
        let id = world.add(position, Visibility::Everyone, &shot).ok()?;
        self.reloaded_tick = world.tick().saturating_add((RELOAD_MS * world.ticks_per_second()).div_ceil(1_000));
        Some((id, Shot::new(world, self.avatar, position, angle, lag_ticks)))
    }

    /// Marks the runner as tagged.
    pub fn tag(&mut self, world: &mut World) {
        self.condition = Condition::Tagged { until: world.tick().saturating_add(OUT_S * world.ticks_per_second()) };
        self.show(world);
    }

    /// Adds a point for tagging another runner.
    pub fn score_point(&mut self, world: &mut World) {
        self.score = self.score.saturating_add(1);
        self.show_label(world);
    }

    /// Resets the runner for a new round.
    pub fn reset(&mut self, world: &mut World) {
        self.score = 0;
        self.condition = safe(world);
        self.show(world);
        self.show_label(world);
    }

    /// Called when its player has lost the connection.
    pub fn go_away(&mut self, world: &mut World) {
        self.is_away = true;
        self.velocity = Velocity::NONE;
        self.show(world);
    }

    /// Called when its player has a connection again. The time away does not count as idle.
    pub fn come_back(&mut self, world: &mut World) {
        self.is_away = false;
        self.velocity = Velocity::NONE;
        if let Driver::Player { last_input_tick, .. } = &mut self.driver {
            *last_input_tick = world.tick();
        }
        if self.condition == Condition::Running {
            self.condition = safe(world);
        }
        self.show(world);
    }

    /// Moves by a step, or returns to the map when its time out is over.
    pub fn tick(&mut self, world: &mut World) {
        match self.condition {
            Condition::Tagged { until } if world.tick() >= until => {
                let place = free_place(world);
                self.move_to(world, place);
                self.condition = safe(world);
                self.show(world);
            }
            Condition::Safe { until } if world.tick() >= until => {
                self.condition = Condition::Running;
                self.show(world);
            }
            Condition::Tagged { .. } | Condition::Safe { .. } | Condition::Running => {}
        }
        if self.is_active() && self.velocity != Velocity::NONE {
            let place = self.velocity.step(self.position(world), world.tick(), world.ticks_per_second(), world.grid());
            self.move_to(world, place);
        }
    }

    fn move_to(&self, world: &mut World, to: Position) {
        let from = self.position(world);
        world.move_to(self.avatar, to);
        if world.grid().cell_of(from) != world.grid().cell_of(to) {
            world.move_to(self.label, to);
        }
        self.look_from(world, to);
    }

    fn look_from(&self, world: &mut World, position: Position) {
        if let Driver::Player { id, .. } = self.driver {
            world.set_viewpoint(id, position);
        }
    }

    // Cannot fail: the objects exist as long as the runner, and their states are short.

    fn show(&self, world: &mut World) {
        let _ = world.set(self.avatar, &Runner::of(self));
    }

    fn show_label(&self, world: &mut World) {
        let _ = world.set(self.label, &self.shown_label());
    }

    fn shown_label(&self) -> Label {
        Label { runner: Some(self.avatar), score: self.score, name: (*self.looks.name).to_owned() }
    }
}

fn safe(world: &World) -> Condition {
    Condition::Safe { until: world.tick().saturating_add(SAFE_S * world.ticks_per_second()) }
}

/// A random place without runners near it, or any random place if none is found.
fn free_place(world: &mut World) -> Position {
    let (width, height) = world.grid().size_units();
    let mut place = Position::default();
    for _ in 0..TRIES {
        place = Position { x: world.random_below(width), y: world.random_below(height) };
        if world.nearest(place, FREE_UNITS, |_, object| object.kind == Runner::KIND).is_none() {
            break;
        }
    }
    place
}

/// The velocity of a runner at full speed in a direction.
pub fn velocity_towards(angle: Angle) -> Velocity {
    let component = |share: Fixed| (share * Fixed::from(i32::from(i8::MAX))).round() as i8;
    Velocity::of_input(component(angle.cos()), component(angle.sin()))
}
