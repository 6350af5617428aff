//! The interface that a game implements.

use std::fmt;

use crate::{GridShape, PlayerId, World};

/// A game: the rules of a world. Its methods are called one at a time, by one thread, in an order that a recording
/// repeats; whatever they do has to follow from their arguments, the world and what they did before. So a simulation
/// reads no clock, draws its chance from [`World::random`], and iterates over nothing whose order is not fixed.
pub trait Simulation: Send {
    /// The map. Asked once, before anything else.
    fn grid(&self) -> GridShape;

    /// For how many ticks [`World::rewind`] goes back. The world keeps what each of them has changed. Asked once.
    fn rewind_ticks(&self) -> u8 {
        0
    }

    /// Fills the new world.
    fn start(&mut self, world: &mut World);

    /// A player wants to join with `data`, which its client gave. When this returns `Ok`, it is in the room.
    ///
    /// # Errors
    /// [`Refusal`]: the client's subscription fails with it.
    fn join(&mut self, world: &mut World, player: PlayerId, visitor: &Visitor<'_>, data: &[u8]) -> Result<(), Refusal>;

    /// A player has left, for whatever reason.
    fn leave(&mut self, world: &mut World, player: PlayerId);

    /// A player's input.
    ///
    /// # Errors
    /// [`InputError`]: counted; nothing else happens.
    fn input(&mut self, world: &mut World, player: PlayerId, data: &[u8]) -> Result<(), InputError>;

    /// One step of time.
    fn tick(&mut self, world: &mut World);

    /// Appends everything that is not in the world, so that [`Simulation::restore`] can go on from it.
    fn save(&self, out: &mut Vec<u8>);

    /// Takes over what [`Simulation::save`] wrote. Called instead of [`Simulation::start`]; the world is as it was then.
    ///
    /// # Errors
    /// [`RestoreError`]
    fn restore(&mut self, saved: &[u8]) -> Result<(), RestoreError>;
}

/// Who wants to join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visitor<'a> {
    /// The user's id; empty for an anonymous one.
    pub user: &'a str,
}

/// Why a player may not join, in the game's own words and numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The code of the error reply: 400 to 1,999.
    pub code: u16,
    /// Human-readable; the client receives it with the code.
    pub message: Box<str>,
}

/// An input that the game can't make sense of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputError;

/// What was saved cannot be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoreError;

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what was saved is not of this simulation")
    }
}

impl std::error::Error for RestoreError {}
